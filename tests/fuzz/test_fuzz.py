# SPDX-License-Identifier: Apache-2.0
"""A few of the files of tests/fuzz, of every kind. ``python tests/fuzz/media.py``, ``containers.py``, ``tiles.py`` and ``gpu_headers.py`` run many,
under heap checks.
"""

import json
from pathlib import Path

import pytest
from _forks import Forks

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
COUNT = {"media": 60, "containers": 60, "tiles": 400, "gpu_headers": 600}

PROGRAM = """
import importlib, json, sys, tempfile, time
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent), str(Path(sys.argv[1]).parent / "helpers")]
make = importlib.import_module(sys.argv[2]).make
outcome = {}
for way in ("mutated", "headers"):
    with tempfile.TemporaryDirectory() as folder:
        attack = make(sys.argv[3], way, 1, Path(folder))
        found = {"read": 0, "refused": 0, "slowest": 0.0}
        for number in range(int(sys.argv[4])):
            begin = time.perf_counter()
            try:
                attack(number)
                found["read"] += 1
            except (RuntimeError, ValueError, MemoryError):
                found["refused"] += 1
            found["slowest"] = max(found["slowest"], time.perf_counter() - begin)
        outcome[way] = found
print(json.dumps(outcome))
"""

KINDS = {
    "media": {"wav": "soundfile", "flac": "soundfile", "vorbis": "soundfile", "opus": "soundfile", "mp3": "soundfile", "npy": "numpy"}
    | {"mp4": "torchcodec", "webm": "torchcodec", "fits": "astropy", "fits_tiles": "astropy"},
    "containers": {"tfrecord": "numpy", "recordio": "numpy", "tar": "numpy", "pax": "numpy", "caffe": "lmdb", "caffe2": "lmdb"}
    | {"coco": "pycocotools", "nemo": "soundfile", "npy": "numpy", "parquet": "pyarrow"},
    "gpu_headers": {"jpeg": "PIL", "tiff": "tifffile", "jpeg2000": "openjpeg"},
    "tiles": {"rice": "astropy", "hcompress": "astropy", "plio": "astropy"},
}


@pytest.mark.parametrize(("module", "kind"), [(module, kind) for module, kinds in KINDS.items() for kind in kinds])
def test_damaged_files(module: str, kind: str, forks: Forks) -> None:
    pytest.importorskip(KINDS[module][kind])
    run = forks.run(PROGRAM, FOLDER, module, kind, COUNT[module])
    assert (run.wait(280), run.errors) == (0, "")
    for way, found in json.loads(run.output).items():
        assert found["read"] + found["refused"] == COUNT[module], way
        assert found["refused"] > 0
        assert found["slowest"] < 30
