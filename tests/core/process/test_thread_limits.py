# SPDX-License-Identifier: Apache-2.0
"""A process limit: everything works with fewer threads if the system refuses some, with one warning."""

import json
from pathlib import Path

import pytest
from _forks import Forks

# Root is above the limit, and for other users all of their threads count: a dedicated user can be counted.
LIMITED = """
import json, os, resource, sys, warnings
from pathlib import Path
import numpy as np
import torch_ndd as ndd

folder, limit = Path(sys.argv[1]), int(sys.argv[2])
if os.getuid() == 0:
    os.setresuid(54321, 54321, 54321)
resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
said = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, category, *_: said.append(f"{category.__name__}: {message}")
images = [np.full((60, 80, 3), k, np.uint8) for k in range(64)]
"""

OPERATORS = (
    LIMITED
    + """
ndd.set_num_threads(64)
for _ in range(50):  # threads start as there is work for them: on a busy machine the first ones may do it all
    for _ in range(20):
        made = ndd.resize(ndd.rotate(ndd.batch(images), angle=90.0), size=[16, 24])
    np.asarray(made.tensors[9])  # whoever has waited warns
    if said:
        break
with ndd.EvalMode.deferred:
    late = ndd.rotate(made, angle=180.0)
values = np.asarray(late.tensors[9])
print(json.dumps({"shape": values.shape, "value": int(values.min()), "said": said, "threads": len(os.listdir("/proc/self/task"))}))
"""
)

READERS = (
    "import pyarrow.compute, pyarrow.parquet  # which start threads"
    + LIMITED
    + """
files = sorted(str(one) for one in folder.glob("*.bin"))
read = {}
reader = ndd.readers.File(files=files)
read["File"] = [int(label) for _, labels in ndd.DataLoader(reader, batch_size=3) for label in labels]
reader = ndd.readers.Caffe(3, path=folder / "db")
read["Caffe"] = [int(label) for _, labels in reader for label in labels.torch().flatten()]
reader = ndd.readers.Parquet(3, path=folder / "table.parquet")
read["Parquet"] = [int(one) for batch in reader for one in batch["number"].torch()]
reader = ndd.readers.Numpy(3, files=[str(folder / "array.npy")] * 4)
read["Numpy"] = [int(one) for (batch,) in reader for one in batch.torch()[:, 0]]
# A reader whose samples are made by Python's threads, and a decoder.
from torch_ndd.readers._threads import ThreadedReader
class Squares(ThreadedReader):
    def scan(self): return 5
    def _source(self, sample): return str(sample)
    def _read(self, sample): return [np.array([sample**2])]
read["threads"] = [int(one) for (batch,) in Squares(2, "cpu", {}) for one in batch.torch()]
import zlib
packed = [np.frombuffer(zlib.compress(bytes([k]) * 50), np.uint8) for k in range(5)]
read["inflate"] = np.asarray(ndd.decoders.inflate(ndd.batch(packed), algorithm="Zlib", shape=[50]).torch())[:, 7].tolist()
print(json.dumps({"read": read, "said": said}))
"""
)


@pytest.mark.parametrize("limit", [1, 3])
def test_operators_work_with_few_threads(tmp_path: Path, limit: int, forks: Forks) -> None:
    run = forks.run(OPERATORS, tmp_path, limit)
    assert (run.wait(120), run.errors) == (0, "")
    result = json.loads(run.output)
    assert (result["shape"], result["value"]) == ([16, 24, 3], 9)
    (said,) = result["said"]
    assert said.startswith("RuntimeWarning: could not start more threads (")
    assert " of 64 running" in said
    assert result["threads"] <= limit


def test_readers_work_with_few_threads(tmp_path: Path, forks: Forks) -> None:
    pytest.importorskip("lmdb")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    import numpy as np
    from _messages import datum, write_lmdb

    tmp_path.chmod(0o755)
    for k in range(7):
        (tmp_path / f"{k}.bin").write_bytes(bytes([k]))
    write_lmdb(tmp_path / "db", [datum(b"x", k) for k in range(7)])
    parquet.write_table(arrow.table({"number": list(range(7))}), tmp_path / "table.parquet", row_group_size=2)
    np.save(tmp_path / "array.npy", np.arange(3))
    for one in (tmp_path, *tmp_path.parents[:3]):
        one.chmod(one.stat().st_mode | 0o055)
    run = forks.run(READERS, tmp_path, 1)
    assert (run.wait(120), run.errors) == (0, ""), run.errors
    result = json.loads(run.output)
    numbers = list(range(7))
    assert result["read"] == {
        "File": numbers,
        "Caffe": numbers,
        "Parquet": numbers,
        "Numpy": [0] * 4,
        "threads": [0, 1, 4, 9, 16],
        "inflate": [0, 1, 2, 3, 4],
    }
    assert len(result["said"]) == 1
