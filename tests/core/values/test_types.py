# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import types


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("f32", ndd.float32),
        ("bool", ndd.bool),
        ("bfloat16", ndd.bfloat16),
        (np.float32, ndd.float32),
        (np.dtype("u2"), ndd.uint16),
        (torch.int8, ndd.int8),
        (types.FLOAT, ndd.float32),
        (types.DALIDataType.BOOL, ndd.bool),
        (float, ndd.float32),
        (bool, ndd.bool),
        (ndd.InterpType, ndd.int32),
        ("DataType", ndd.int32),
        ("float32", ndd.float32),
        ("float128", ValueError),
        ("i7", ValueError),
        ("", ValueError),
        (int, TypeError),
        (None, TypeError),
        (5, TypeError),
        ([], TypeError),
        (types.STRING, TypeError),
        (types.INTERP_NN, TypeError),
        (torch.complex64, TypeError),
        (np.complex64, TypeError),
        (np.str_, TypeError),
    ],
    ids=str,
)
def test_dtype_converts_names(name: Any, dtype: Any) -> None:
    if isinstance(dtype, type):
        with pytest.raises(dtype):
            ndd.dtype(name)
    else:
        assert ndd.dtype(name) == dtype
        assert isinstance(ndd.dtype(name), ndd.DType)


def test_type_id() -> None:
    assert ndd.type_id(ndd.float32) is types.FLOAT
    assert ndd.type_id("u8") is types.UINT8
    assert ndd.type_id(types.STRING) is types.STRING
    assert ndd.type_id(ndd.ImageType) is types.IMAGE_TYPE
    assert ndd.type_id(ndd.bfloat16) is None
    for enumeration in (ndd.DataType, ndd.ImageType, ndd.InterpType):
        assert ndd.dtype(ndd.type_id(enumeration)) is ndd.dtype(enumeration) is ndd.int32
    for wrong in (None, 5, "float128", types.RGB):
        with pytest.raises(ValueError, match="Invalid dtype"):
            ndd.type_id(wrong)
