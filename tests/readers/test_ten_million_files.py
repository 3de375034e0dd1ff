# SPDX-License-Identifier: Apache-2.0
"""Ten million files cost megabytes and no waiting."""

import json
from pathlib import Path

import pytest
from _forks import Forks

FILES = 10_000_000

READ = """
import json, os, sys, time
import numpy as np
import psutil
import torch_ndd as ndd
from torch_ndd.readers.file import _Index

folder, count = sys.argv[1], int(sys.argv[2])
for i in range(100):
    with open(f"{folder}/{i:08}", "w") as file:
        file.write(str(i))
options = json.loads(sys.argv[3])
next(ndd.readers.File(files=[f"{folder}/00000000"] * 8, **options).next_epoch(batch_size=1))  # threads are there
before = psutil.Process().memory_info().rss
digits = np.full((count, 8), ord("0"), np.uint8)
numbers = np.arange(count, dtype=np.int32)
digits[:, 6] += (numbers // 10 % 10).astype(np.uint8)
digits[:, 7] += (numbers % 10).astype(np.uint8)
index = _Index(os.fsencode(folder), digits.tobytes(), np.arange(0, 8 * count + 1, 8), numbers)
del digits, numbers
reader = ndd.readers.File(files=["known"], **options)
reader._index = index
begin, cpu = time.perf_counter(), time.process_time()
files, labels = next(reader.next_epoch(batch_size=64))
seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
assert [int(bytes(file.torch().tolist())) for file in files] == [label.item() % 100 for label in labels]
memory = psutil.Process().memory_info().rss - before
# Not getrusage's: that begins with the memory of the process that has started this one.
peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024 - before
print(json.dumps({"seconds": seconds, "cpu": cpu, "bytes": memory / count, "peak": peak / count, "state": len(json.dumps(reader.state_dict()))}))
"""


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "num_shards": 8, "shard_id": 3}], ids=str)
def test_memory_and_first_batch(tmp_path: Path, options: dict[str, bool], forks: Forks) -> None:
    run = forks.run(READ, tmp_path, FILES, json.dumps(options))
    assert (run.wait(250), run.errors) == (0, "")
    result = json.loads(run.output)
    seconds = f"{result['seconds']:.3f} s ({result['cpu']:.3f} of the CPU)"
    memory = f"{result['bytes']:.1f} bytes of memory a file ({result['peak']:.1f} at most)"
    print(f"{options}: {FILES} files: first batch after {seconds}, {memory}, a state of {result['state']} bytes")
    assert result["cpu"] < 5  # of the clock, unless the machine has other work
    assert result["bytes"] < 100
    assert result["peak"] < 100
    assert result["state"] < 4096
