# SPDX-License-Identifier: Apache-2.0
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from _cases import Case, images

import torch_ndd as ndd
from torch_ndd import types

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = sorted(types.NUMERIC - {*FLOATS, torch.bool}, key=str)
DTYPES = [torch.bool, *INTEGERS, *FLOATS]


def converted(value: float | int, dtype: torch.dtype) -> float | int:
    """One number, exactly."""
    if dtype is torch.bool:
        return not (abs(value) < 0.5)
    if dtype in FLOATS:
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None).to(dtype).double().item()
    limits = torch.iinfo(dtype)
    if math.isinf(value):
        return limits.max if value > 0 else limits.min
    whole = math.floor(abs(Fraction(value)) + Fraction(1, 2)) * (1 if value >= 0 else -1)
    return min(max(whole, limits.min), limits.max)


def interesting(dtype: torch.dtype) -> torch.Tensor:
    """Limits of every type, halves, and what lies next to them."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype in FLOATS:
        ends = [float(limit) for other in INTEGERS for limit in (torch.iinfo(other).min, torch.iinfo(other).max)]
        numbers = [*(k / 4 for k in range(-2100, 2100)), *ends, *(e + 0.5 for e in ends), *(e * 1.01 for e in ends)]
        numbers += [math.inf, -math.inf, 0.49999997, 8388609.0]
        return torch.tensor(numbers, dtype=torch.float64).to(dtype)
    own = torch.iinfo(dtype)
    ends = [limit + k for other in INTEGERS for limit in (torch.iinfo(other).min, torch.iinfo(other).max) for k in (-1, 0, 1)]
    numbers = [n for n in (*ends, *range(-130, 260), 2**53 + 1, 2**24 + 1) if own.min <= n <= own.max]
    return torch.from_numpy(np.array(numbers, str(dtype).removeprefix("torch.")))


def plain(image: np.ndarray, dtype: str) -> np.ndarray:
    out = {"u8": np.uint8, "f32": np.float32, "i16": np.int16, "f16": np.float16, "bool": np.bool_}[dtype]
    if np.dtype(out).kind == "i" or out is np.uint8:
        limits = np.iinfo(out)
        wide = image.astype(np.float64)
        return np.clip(np.copysign(np.floor(np.abs(wide) + 0.5), wide), limits.min, limits.max).astype(out)
    return image.astype(np.float32 if dtype == "f16" else out).astype(out)  # to half a float64 goes through float32, as in torch


CASES = [
    Case("cast", "uint8 to float32", images("HWC"), {"dtype": "f32"}, "HWC", plain),
    Case("cast", "float32 to uint8", images("HWC", "float32", low=-50, high=300), {"dtype": "u8"}, "HWC", plain),
    Case("cast", "int64 to int16", images("DHWC", "int64", low=-50000, high=50000), {"dtype": "i16"}, "DHWC", plain),
    Case("cast", "float64 to float16", images("FHWC", "float64"), {"dtype": "f16"}, "FHWC", plain),
    Case("cast", "uint16 to bool", images("HW", "uint16", high=3), {"dtype": "bool"}, "HW", plain),
    Case("cast", "the same", images("HWC"), {"dtype": "u8"}, "HWC", plain),
]


@pytest.mark.parametrize("source", DTYPES, ids=types.dtype_name)
@pytest.mark.parametrize("target", DTYPES, ids=types.dtype_name)
def test_every_pair_is_exact(source: torch.dtype, target: torch.dtype) -> None:
    given = interesting(source)
    result = ndd.cast(given, dtype=target).torch()
    assert result.dtype is target
    wide = given.double() if source in FLOATS else given
    numbers = result.double().tolist() if target in FLOATS else result.tolist()
    for value, ours in zip(wide.tolist(), numbers, strict=True):
        if target in FLOATS:
            assert ours == given.new_tensor(value).to(target).item() or ours == converted(value, target), value
        else:
            assert ours == converted(value, target), value


@pytest.mark.parametrize("count", [0, 1, 63, 1025, 5000])
def test_any_length(count: int) -> None:
    given = torch.arange(count, dtype=torch.int32) - 7
    for target in (torch.uint8, torch.float32, torch.int64, torch.uint16):
        expected = given.long().clamp(torch.iinfo(target).min, torch.iinfo(target).max).to(target) if target is not torch.float32 else given.float()
        assert torch.equal(ndd.cast(given, dtype=target).torch(), expected)


def test_a_result_larger_than_the_caches() -> None:
    given = torch.randint(0, 256, (3, 3, 700_001), dtype=torch.uint8)
    assert torch.equal(ndd.cast(ndd.as_batch(given), dtype="f32").torch(), given.float())


def test_dtype_is_needed() -> None:
    with pytest.raises(TypeError, match=r"cast.*dtype"):
        ndd.cast(torch.zeros(3))
