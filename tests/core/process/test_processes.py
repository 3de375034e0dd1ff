# SPDX-License-Identifier: Apache-2.0
"""Forks, workers, exits and Ctrl-C while work is queued."""

import pickle
import re
import textwrap

import numpy as np
import pytest
import torch
from _forks import Forked, Forks, run_in_child
from _queued import CAUSE, brighter, error_of, failing, ones

import torch_ndd as ndd
from torch_ndd import EvalMode

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def test_fork_with_pending_work() -> None:
    pending = brighter(ones(), 6)
    with EvalMode.deferred:
        deferred = brighter(ones(), 6)

    def work() -> bool:
        torch.set_num_threads(1)  # torch's own threads do not survive a fork
        results = [int(value.torch().min()) for value in (pending, deferred, brighter(ones(), 6))]
        return results == [7, 7, 7] and str(error_of(failing(200).evaluate).__cause__) == CAUSE

    for _ in range(5):
        assert run_in_child(work) == 0
        assert int(brighter(pending).torch().max()) == 8
    assert int(deferred.torch().min()) == 7


class Images(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, k: int) -> torch.Tensor:
        return brighter(ndd.batch(np.full((2, 200, 200, 3), k, np.uint8), layout="HWC"), 3).torch()


def test_dataloader_workers() -> None:
    brighter(ones(), 6)
    loader = torch.utils.data.DataLoader(Images(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [int(batch.max()) for batch in loader] == [4, 6, 8, 10]


class FailingImages(Images):
    def __getitem__(self, k: int) -> torch.Tensor:
        return failing(100).torch(pad=True)


def test_errors_cross_processes() -> None:
    loader = torch.utils.data.DataLoader(FailingImages(), batch_size=2, num_workers=1, multiprocessing_context="fork", timeout=60)
    with pytest.raises(RuntimeError) as error:
        next(iter(loader))
    assert CAUSE in str(error.value)
    assert "\ncalled at " in str(error.value)


@pytest.mark.parametrize("mode", EvalMode)
@pytest.mark.parametrize("size", [4, 200])
def test_errors_can_be_pickled(mode: EvalMode, size: int) -> None:
    with mode:
        error = error_of(lambda: failing(size).evaluate())
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied)) == (RuntimeError, str(error))


def run_python(forks: Forks, code: str) -> Forked:
    head = "import numpy as np, threading, torch_ndd as ndd\nfrom torch_ndd import EvalMode\n"
    batch = "b = ndd.batch(np.ones((16, 500, 500, 3), np.uint8), layout='HWC')\n"
    done = forks.run(head + batch + textwrap.dedent(code))
    done.wait()
    return done


@pytest.mark.parametrize(
    "code",
    [
        "kept = [b]\nfor _ in range(100): kept.append(ndd.brightness(kept[-1]))",
        "with EvalMode.deferred:\n    for _ in range(100): b = ndd.brightness(b)",
        "threading.Thread(target=lambda: [ndd.brightness(b).torch() for _ in range(50)], daemon=True).start()\nc = ndd.brightness(b)",
        "import atexit\nc = ndd.brightness(b)\natexit.register(lambda: ndd.brightness(c).torch())",
        "ndd.set_num_threads(4)\nc = [ndd.brightness(b) for _ in range(20)]\nimport sys\nsys.exit(0)",
        *["for _ in range(3): ndd.brightness(b).evaluate()"] * 5,  # threads that are about to sleep
    ],
    ids=["eager", "deferred", "daemon thread", "atexit", "sys.exit", *["threads at rest"] * 5],
)
def test_exit_with_pending_work(code: str, forks: Forks) -> None:
    done = run_python(forks, code)
    assert (done.returncode, done.output, done.errors) == (0, "", "")


def test_an_uncaught_error_shows_the_call(forks: Forks) -> None:
    done = run_python(
        forks,
        "c = ndd.grid_mask(ndd.batch([np.ones((2, 2, 3))], layout='HWC'), tile=0)\n\nc.torch()",
    )
    assert done.returncode == 1
    cause, _, wrapper = done.errors.partition("The above exception was the direct cause")
    assert "line 4, in <module>\nRuntimeError: grid_mask: sample 0: Tile argument" in cause
    assert re.search(r"RuntimeError: grid_mask: sample 0: Tile argument.*\ncalled at <program>:4, in <module>\s*$", wrapper)


def test_ctrl_c_ends_a_wait(forks: Forks) -> None:
    code = """
import os, signal, threading, time, numpy as np, torch_ndd as ndd
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
images = ndd.batch(np.ones((64, 1000, 1000, 3), np.uint8), layout="HWC")
with ndd.EvalMode.deferred, ndd.EvalContext(num_threads=1):
    for _ in range(400):
        images = ndd.brightness(images)
start = time.monotonic()
try:
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()  # here: on a busy machine it may take until the next line
    images.evaluate()
except KeyboardInterrupt:
    print(time.monotonic() - start < 5)
os._exit(0)
"""
    done = forks.run(code)
    assert (done.wait(), done.output) == (0, "True\n")
