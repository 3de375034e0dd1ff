# SPDX-License-Identifier: Apache-2.0
"""Fixtures and options. In CI (the environment variable ``CI``) a missing dependency is a failure rather than a skip."""

import gc
import importlib.util
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _forks import Forks
from _memory import use_huge_pages
from _raises import Raises

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd.decoders._scale import libjpeg_version

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = (
    "accelerate",
    "aiohttp",
    "albumentations",
    "astropy",
    "datasets",
    "fsspec",
    "librosa",
    "lightning",
    "lmdb",
    "nvidia.libnvcomp",
    "nvidia.nvjpeg2k",
    "nvidia.nvtiff",
    "pyarrow",
    "pycocotools",
    "ray",
    "soundfile",
    "timm",
    "torchcodec",
    "torchdata",
    "transformers",
    "webdataset",
)
# Last, so an installed torch_ndd stays in front of the checkout's: for the package `benchmarks`.
sys.path.append(str(ROOT))
CI = bool(os.environ.get("CI"))
# With TORCH_NDD_WHOLE=1 (`make whole`) every case is compiled and damaged files come by the thousand. Without, the modules choose a part of
# both, because the rest takes about a third of the suite's time.
WHOLE = bool(os.environ.get("TORCH_NDD_WHOLE"))
HAS_CUDA_KERNELS = any(backend == "CUDA" for _, backend in native.KERNELS)

if "DALI_EXTRA_PATH" not in os.environ and (data := ROOT.parent / "shared" / "dali_extra").is_dir():
    os.environ["DALI_EXTRA_PATH"] = str(data)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("cpu", "cuda"), default="cuda" if HAS_CUDA_KERNELS and torch.cuda.is_available() else "cpu")


# A forked child must not collect the garbage of its parent: the destructor of DALI's pipelines, which are part of cycles wherever a test has caught
# an error of one, waits for threads that the child lacks, and keeps the GIL meanwhile.
os.register_at_fork(after_in_child=gc.freeze)


def pytest_configure() -> None:
    """Give each of several processes its part of the cores: all threads of OpenMP wait for the last one, and spin meanwhile."""
    if processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))


def pytest_sessionstart(session: pytest.Session) -> None:
    missing = []
    if importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None:
        missing.append("nvidia-dali, which tests/dali compares with")
    if not HAS_CUDA_KERNELS:
        missing.append("CUDA kernels: the library was built without nvcc")
    if not Path(os.environ.get("DALI_EXTRA_PATH", "/nowhere")).is_dir():
        missing.append("the images of DALI_extra: set DALI_EXTRA_PATH")
    for name in ("jax", "ml_dtypes", "numba", *OPTIONAL):
        if importlib.util.find_spec(name) is None:
            missing.append(f"{name}, with which tests exchange or compare data")
    if libjpeg_version() is None:
        missing.append("libjpeg-turbo, with which JPEGs are decoded at a part of their size: apt install libjpeg-dev, and build again")
    if shutil.which("ffmpeg") is None:
        missing.append("ffmpeg, which torchcodec decodes videos with")
    if CI and missing:
        raise pytest.UsageError("under CI the suite needs " + "; ".join(missing))
    if session.config.getoption("--device") == "cuda" and not (HAS_CUDA_KERNELS and torch.cuda.is_available()):
        raise pytest.UsageError("--device=cuda needs a GPU and a library built with nvcc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let ``-m device`` select the tests on which ``--device`` has an effect. Start with the modules that have slow tests."""
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker("device")
    slow = {item.path for item in items if item.get_closest_marker("slow")}  # at the end, one of several processes would run them alone
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Hide tens of thousands of tests, and all packages, from the garbage collector, which would go through them again and again.

    Take the clock from the guards of torch.compile, which empties the processor's caches for it: 22 of the 300 ms of a compilation.
    """
    _settle_memory()
    if guards := sys.modules.get("torch._dynamo.guards"):
        guards.profile_guard_manager = lambda *_: 0.0


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the counts of tests with the marker ``figures``."""
    figures = [(report.nodeid, report.capstdout) for report in terminalreporter.stats.get("passed", ()) if "figures" in report.keywords]
    if any(text for _, text in figures):
        terminalreporter.section("figures")
        for name, text in sorted(figures):
            for line in text.splitlines():
                terminalreporter.write_line(f"{name.rpartition('/')[2]}: {line}")


@pytest.fixture(scope="module", autouse=True)
def _hide_older_objects() -> Iterator[None]:
    """Hide what the tests of a module leave from the garbage collector, too: after some thousand tests a collection took 1.5 s."""
    yield
    _settle_memory()


def _settle_memory() -> None:
    """Hide all objects from the garbage collector and move them to huge pages: forks of this large process took half of some tests' CPU time."""
    gc.collect()
    gc.freeze()
    use_huge_pages()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A server of processes for tests."""
    with Forks("torch_ndd", "torch._dynamo") as result:  # which torch imports for an optimizer
        yield result


@pytest.fixture(scope="session")
def lightning_forks() -> Iterator[Forks]:
    """The same with Lightning imported, which takes 5 CPU seconds more."""
    pytest.importorskip("lightning")
    with Forks("lightning", "torch_ndd.lightning", "torch._dynamo") as result:
        yield result


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Where operators run: ``cpu``, or ``gpu`` with ``--device=cuda``."""
    return "gpu" if request.config.getoption("--device") == "cuda" else "cpu"


@pytest.fixture(scope="session")
def torch_device(device: str) -> torch.device:
    """Return the same as torch names it."""
    return torch.device("cuda" if device == "gpu" else "cpu")


@pytest.fixture(scope="session")
def dali_extra() -> Path:
    """DALI's test images."""
    path = Path(os.environ.get("DALI_EXTRA_PATH", "/nowhere"))
    if not path.is_dir():
        pytest.skip("set DALI_EXTRA_PATH to a checkout of DALI_extra")
    return path


@pytest.fixture(params=[1, 4], ids=["1 thread", "4 threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run the test with 1 and with 4 threads."""
    ndd.set_num_threads(request.param)
    yield request.param
    ndd.set_num_threads(None)


@pytest.fixture
def raises(request: pytest.FixtureRequest) -> Raises | None:
    """The error of a row made by ``_raises.raising``; None for other rows, which must not raise."""
    marker = request.node.get_closest_marker("raises")
    return marker.kwargs["error"] if marker else None


@pytest.fixture
def pause_gc() -> Iterator[None]:
    """No collection of garbage during the test: a compilation makes so many objects that collections were 8 to 15 % of its time."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def new_compiler() -> Iterator[None]:
    """A compiler with no compiled functions and zeroed counters."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _faults_of_the_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a fault of a kernel nothing works in this process any more: end it with this test; pytest-xdist starts another one."""
    yield
    if request.config.getoption("--device") == "cuda":
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            text = f"{request.node.nodeid}: {error}"
            if "PYTEST_XDIST_WORKER" not in os.environ:
                pytest.exit(text)
            print(text, file=sys.__stderr__, flush=True)
            os._exit(70)


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Seed the global generators, so the numbers of a test do not depend on the tests before it."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed formats the stack for CUDA each time, 0.3 ms
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    ndd.random.set_seed(0)


@pytest.fixture(autouse=True)
def _default_threads() -> Iterator[None]:
    yield
    pools = ndd._core.context.pools
    if pools._threads.chosen or ndd.get_num_threads() != pools._default_threads():  # also where the number chosen is the default
        ndd.set_num_threads(None)
