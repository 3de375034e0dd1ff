# SPDX-License-Identifier: Apache-2.0
"""``str(error)`` of failed queued work, for all ways to use a result: operator, sample, file and reason, then the line of the program."""

import io
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The second of three files is damaged after its header."""
    folder = tmp_path_factory.mktemp("damaged")
    file = io.BytesIO()
    Image.effect_noise((60, 60), 50).save(file, "JPEG")
    for k in range(3):
        (folder / f"{k}.jpg").write_bytes(file.getvalue()[: 700 if k == 1 else None])
    return [str(folder / f"{k}.jpg") for k in range(3)]


def test_a_package_behind_a_symbolic_link(tmp_path: Path, paths: list[str]) -> None:
    """As where the home folder or the environment is a link, or a build system lays out links."""
    (tmp_path / "torch_ndd").symlink_to(Path(ndd.__file__).parent)
    program = tmp_path / "program.py"
    lines = [
        "import sys; sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]  # without that of an editable install",
        "import torch_ndd as ndd; assert not ndd.__file__.startswith(sys.argv[1])",
        "ndd.decoders.image(sys.argv[2]).evaluate()",
    ]
    program.write_text("\n".join(lines))
    checkout = str(Path(ndd.__file__).parents[1])
    result = subprocess.run([sys.executable, program, checkout, paths[1]], capture_output=True, text=True, timeout=120)
    assert f"called at {program}:3: ndd.decoders.image" in result.stderr


def decode(jpegs: Any) -> Any:
    return ndd.flip(ndd.decoders.image(jpegs))


def files(paths: list[str]) -> ndd.Batch:
    ((jpegs, _),) = ndd.readers.File(files=paths).next_epoch(batch_size=3)
    return jpegs


def load(paths: list[str], prefetch: int) -> None:
    list(ndd.DataLoader(ndd.readers.File(files=paths), lambda jpegs, _: decode(jpegs), batch_size=3, prefetch=prefetch))


def run_captured(paths: list[str]) -> None:
    for jpegs, _ in ndd.readers.File(files=[paths[0], paths[2], paths[0], paths[0], paths[2], paths[0], *paths]).next_epoch(3, capture=True):
        decode(jpegs).evaluate()


def compile_function(paths: list[str]) -> None:
    images = decode(files(paths))
    torch.compile(lambda x: ndd.brightness(x, brightness=2.0), backend="eager")(images)


def synchronous(paths: list[str]) -> None:
    images = decode(files(paths))
    with ndd.EvalMode.sync_cpu:
        ndd.brightness(images)


ROUTES: dict[str, Callable[[list[str]], Any]] = {
    "evaluate": lambda paths: decode(files(paths)).evaluate(),
    "torch": lambda paths: decode(files(paths)).torch(pad=True),
    "numpy": lambda paths: np.asarray(decode(files(paths)).select(1)),
    "a sample": lambda paths: decode(files(paths)).tensors[1].torch(),
    "further operators": lambda paths: (ndd.brightness(decode(files(paths))) * 2).evaluate(),
    "imread": lambda paths: ndd.imread(paths).evaluate(),
    "a loader": lambda paths: load(paths, 2),
    "a loader without a thread": lambda paths: load(paths, 0),
    "a captured loop": run_captured,
    "a compiled graph": compile_function,
    "a call that does not return before": synchronous,
}


@pytest.mark.parametrize("mode", [ndd.EvalMode.eager, ndd.EvalMode.deferred])
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_the_text_says_it_all(route: Callable[[list[str]], Any], mode: ndd.EvalMode, paths: list[str]) -> None:
    with mode, pytest.raises(RuntimeError) as caught:
        route(paths)
    first, second = str(caught.value).split("\n")
    assert re.fullmatch(rf"decoders\.image: sample 1 \({re.escape(paths[1])}\): .+", first)
    call = r"lambda paths: ndd\.imread\(" if route is ROUTES["imread"] else r"return ndd\.flip\(ndd\.decoders\.image\(jpegs\)\)"
    assert re.search(rf"^called at {re.escape(__file__)}:\d+: .*{call}", second)
    assert "called at" not in str(caught.value.__cause__)


IMAGE = np.zeros((3, 4, 3), np.uint8)
SIGNALS = ndd.as_batch(np.ones((2, 200), np.float32))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ndd.brightness(IMAGE, brightness=[1.0, [2.0, 3.0]]), TypeError, "brightness: argument 'brightness' must be a number, or .* rows"),
        (lambda: ndd.water(IMAGE, freq_x=[[1, 2], [1]]), ValueError, "water: argument 'freq_x' must be a number, or numbers in rows of equal length"),
        (lambda: ndd.transpose(IMAGE, perm=[math.inf, 0, 1]), TypeError, "transpose: perm must be a list of ints"),
        (lambda: ndd.get_property(IMAGE, key=ndd.batch([1])), TypeError, "get_property: argument 'key' must be str"),
        (lambda: ndd.paste(IMAGE, ratio=1, fill_value=[""]), ValueError, "paste: could not convert"),
        (lambda: ndd.element_extract(IMAGE, element_map=[2**63]), ValueError, "element_extract: "),
        (lambda: ndd.spectrogram([1.0, 2.0], nfft=2**64, window_length=2), MemoryError, "spectrogram: no memory"),
        (lambda: ndd.audio_resample(SIGNALS, in_rate=ndd.batch([1e-30] * 2), out_rate=1.0), MemoryError, "audio_resample: there is no memory"),
        (lambda: ndd.audio_resample(SIGNALS, in_rate=ndd.batch([1e-30, 1.0]), out_rate=1.0), MemoryError, "audio_resample: there is no memory"),
    ],
)
def test_errors_of_python_and_torch_name_the_operator(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_step_with_one_output_is_named() -> None:
    step = (ndd.batch([[1, 2, 3], [4, 5]]),)
    with pytest.raises(TypeError, match=r"flip: input 0 is a tuple of 1 values with a Batch; pass one of them: .*for \(jpegs,\) in"):
        ndd.flip(step)  # type: ignore[type-var]
