# SPDX-License-Identifier: Apache-2.0
"""Fixtures and options. Under CI (the environment variable ``CI``) nothing that the suite needs may be missing: what is a skip elsewhere fails."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from _forks import Forks

import torch_ndd as ndd
from torch_ndd import _native

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = (
    "accelerate",
    "aiohttp",
    "astropy",
    "fsspec",
    "librosa",
    "lightning",
    "lmdb",
    "pyarrow",
    "pycocotools",
    "ray",
    "soundfile",
    "torchcodec",
    "torchdata",
    "transformers",
    "webdataset",
)
CI = bool(os.environ.get("CI"))
HAS_CUDA_KERNELS = any(backend == "CUDA" for _, backend in _native.KERNELS)

if "DALI_EXTRA_PATH" not in os.environ and (data := ROOT.parent / "shared" / "dali_extra").is_dir():
    os.environ["DALI_EXTRA_PATH"] = str(data)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("cpu", "cuda"), default="cuda" if HAS_CUDA_KERNELS and torch.cuda.is_available() else "cpu")


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
    if shutil.which("ffmpeg") is None:
        missing.append("ffmpeg, which torchcodec decodes videos with")
    if CI and missing:
        raise pytest.UsageError("under CI the suite needs " + "; ".join(missing))
    if session.config.getoption("--device") == "cuda" and not (HAS_CUDA_KERNELS and torch.cuda.is_available()):
        raise pytest.UsageError("--device=cuda needs a GPU and a library built with nvcc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``-m device`` chooses what ``--device`` makes a difference for."""
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker("device")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests with the marker ``figures`` have counted."""
    figures = [(report.nodeid, report.capstdout) for report in terminalreporter.stats.get("passed", ()) if "figures" in report.keywords]
    if any(text for _, text in figures):
        terminalreporter.section("figures")
        for name, text in sorted(figures):
            for line in text.splitlines():
                terminalreporter.write_line(f"{name.rpartition('/')[2]}: {line}")


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Where tests get processes from."""
    with Forks("torch_ndd") as made:
        yield made


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Where operators run: ``cpu``, or ``gpu`` under ``--device=cuda``."""
    return "gpu" if request.config.getoption("--device") == "cuda" else "cpu"


@pytest.fixture(scope="session")
def dali_extra() -> Path:
    """DALI's test images."""
    path = Path(os.environ.get("DALI_EXTRA_PATH", "/nowhere"))
    if not path.is_dir():
        pytest.skip("set DALI_EXTRA_PATH to a checkout of DALI_extra")
    return path


@pytest.fixture(params=[1, 4], ids=["1 thread", "4 threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Runs the test with 1 and with 4 threads."""
    ndd.set_num_threads(request.param)
    yield request.param
    ndd.set_num_threads(None)


@pytest.fixture
def new_compiler() -> Iterator[None]:
    """A compiler that has compiled nothing, and has counted nothing, before the test."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _default_threads() -> Iterator[None]:
    yield
    if ndd.get_num_threads() != ndd._context._default_threads():
        ndd.set_num_threads(None)
