# SPDX-License-Identifier: Apache-2.0
"""cast against DALI's. NaN as an integer is undefined there; here it is the smallest one."""

import numpy as np
import pytest

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def numbers(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return np.array([*np.arange(-1050, 1050) / 4, 1e4, -1e4, 4e4, 7e4, -7e4, 3e9, -3e9, 5e9, 1e12], np.float64).astype(kind)
    if kind.kind == "b":
        return np.array([False, True])
    limits = np.iinfo(kind)
    ends = [0, 1, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    return np.array([n for end in ends for n in (end, -end, -end - 1) if limits.min <= n <= limits.max], kind)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_every_pair(source: str, target: str) -> None:
    given = numbers(source)
    ours, theirs = (np.asarray(module.cast(module.tensor(given), dtype=getattr(module, target)).evaluate()) for module in (ndd, dali))
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("layout", ["HWC", "FHWC", "CDHW", "W"])
def test_shape_and_layout_are_kept(layout: str) -> None:
    given = np.random.default_rng(0).uniform(-300, 300, tuple(range(2, 2 + len(layout)))).astype(np.float32)
    ours, theirs = (module.cast(module.tensor(given, layout=layout), dtype=module.uint8).evaluate() for module in (ndd, dali))
    assert ours.layout == theirs.layout == layout
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
