# SPDX-License-Identifier: Apache-2.0
"""readers.Numpy against DALI's: arrays, windows, order, metadata, errors. Everything is equal."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from _dali import assert_equal, ndd
from _raises import Raises, raising

RANDOM = np.random.default_rng(1)
ARRAYS = {
    "a": np.arange(24, dtype=np.int16).reshape(4, 6),
    "fortran": np.asfortranarray(RANDOM.random((5, 7, 3))),
    "scalar": np.float32(3),
    "empty": np.zeros((0, 3), np.uint8),
    "bool": RANDOM.random((6, 5)) > 0.5,
    "half": RANDOM.random((3, 4)).astype(np.float16),
    "large": RANDOM.integers(0, 255, (300, 400, 3)).astype(np.uint8),
    "u64": np.array([1, 2**63], np.uint64),
    "four": RANDOM.random((3, 4, 5, 6)).astype(np.float32),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arrays")
    (root / "types").mkdir()
    for name, array in ARRAYS.items():
        np.save(root / f"{name}.npy", array)
    for code in "bBhHiIqQefd?":
        np.save(root / f"types/{ord(code)}.npy", np.arange(5).astype(code))
    return root


def read_epochs(module: ModuleType, batch_size: int | None, options: dict[str, Any]) -> Any:
    samples: list[Any] = []
    reader = module.readers.Numpy(**options)
    for _ in range(3):
        for (arrays,) in reader.next_epoch(batch_size=batch_size):
            for array in arrays.tensors if batch_size else [arrays]:
                values = np.asarray(array)
                samples.append((values.dtype, values.shape, values.tobytes()))
    return samples, dict(reader.get_metadata())


def assert_same(options: dict[str, Any], batch_size: int | None = None, raises: Raises | None = None) -> None:
    assert_equal(lambda module: read_epochs(module, batch_size, options), raises)


@pytest.mark.parametrize("name", ARRAYS)
def test_random_windows_of_arrays(root: Path, name: str) -> None:
    ndim = np.ndim(ARRAYS[name])
    assert_same({"file_root": str(root), "files": [f"{name}.npy"]})
    random = np.random.default_rng(len(name))
    rejected = 0
    for _ in range(25):
        options: dict[str, Any] = {"out_of_bounds_policy": str(random.choice(["pad", "constant", "fill", "trim_to_shape", "error"]))}
        options["fill_value"] = float(random.choice([0, 1.5, -2.5, 300]))
        count = ndim
        if ndim and random.random() < 0.3:
            count = int(random.integers(1, ndim + 1))
            options["roi_axes"] = random.permutation(ndim)[:count].tolist()
        for names in (("roi_start", "rel_roi_start", ""), ("roi_end", "rel_roi_end", "roi_shape", "rel_roi_shape", "")):
            limit = str(random.choice(names))
            if limit:
                low = -2 if "start" in limit else 0
                options[limit] = (random.integers(low, 12, count) / 8).tolist() if "rel" in limit else random.integers(low, 8, count).tolist()
        read = {"file_root": str(root), "files": [f"{name}.npy"] * 2, **options}
        batch_size = None if random.random() < 0.5 else 2
        try:
            read_epochs(ndd, batch_size, read)
        except RuntimeError:
            rejected += 1
            out_of_bounds = "negative|ROI" if options["out_of_bounds_policy"] == "error" else "negative|ends before its start"
            assert_same(read, batch_size, (RuntimeError, out_of_bounds))
        else:
            assert_same(read, batch_size)
    assert rejected < 20


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.7, 0.9])
def test_relative_windows_that_end_halfway_are_rounded_alike(fraction: float, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(15))
    for limits in (
        {"rel_roi_end": fraction},
        {"rel_roi_start": fraction},
        {"rel_roi_start": fraction, "rel_roi_shape": 0.7},
        {"roi_start": 2, "rel_roi_shape": fraction},
    ):
        assert_same({"file_root": str(tmp_path), "files": ["x.npy"], "roi_axes": [0], "out_of_bounds_policy": "pad", **limits})


@pytest.mark.parametrize(
    "options",
    [
        raising(RuntimeError, {"roi_start": [1, 2, 3]}),
        {"roi_start": [1], "roi_end": [2, 3]},
        {"roi_start": 1, "roi_axes": [0]},
        raising(RuntimeError, {"roi_axes": [5], "roi_start": [1]}),
        {"roi_axes": [-1], "roi_start": [1]},
        raising(RuntimeError, {"roi_axes": [0, 0], "roi_start": [1, 1]}),
        {"roi_start": np.array([1.6, 1.2])},
        {"roi_start": torch.tensor(1), "roi_axes": [0]},
        {"roi_shape": np.array([1, 2])},
        raising(RuntimeError, {"roi_start": [1, 1], "rel_roi_start": [0.1, 0.1]}),
        raising(RuntimeError, {"roi_end": [2, 2], "roi_shape": [1, 1]}),
        raising(RuntimeError, {"out_of_bounds_policy": "x", "roi_start": [0, 0]}),
        raising(RuntimeError, {"roi_shape": [-1, 2]}),
        raising(RuntimeError, {"files": ["none.npy"]}),
        raising(RuntimeError, {"files": []}),
        {"cache_header_information": True},
    ],
    ids=str,
)
def test_windows_by_every_argument(root: Path, options: dict[str, Any], raises: Raises | None) -> None:
    assert_same({"file_root": str(root), "files": ["a.npy"], **options}, raises=raises)


@pytest.mark.parametrize(
    "options",
    [
        {},
        raising(RuntimeError, {"file_filter": "*.NPY"}),
        {"file_filter": "[aehs]*"},
        {"num_shards": 3, "shard_id": 1, "pad_last_batch": True},
        {"stick_to_shard": True, "num_shards": 2},
    ],
    ids=str,
)
def test_folders_and_order(root: Path, options: dict[str, Any], raises: Raises | None) -> None:
    assert_same({"file_root": str(root), **options}, raises=raises)
    for batch_size in (1, 2, 3):
        assert_same({"files": [str(root / "a.npy"), *[str(root / "a.npy")] * 6], "roi_shape": [1, 1], **options}, batch_size)
    assert_same({"file_root": str(root), "files": ["a.npy", "half.npy"]}, 2, raises=RuntimeError)
    assert_same({"file_root": str(root), "files": ["a.npy", "four.npy"]}, 2, raises=RuntimeError)
    (root / "list").write_text("a.npy\ntypes/98.npy\n")
    assert_same({"file_list": str(root / "list")})
    assert_same({"file_root": "/none"}, raises=RuntimeError)
    assert_same({}, raises=RuntimeError)
