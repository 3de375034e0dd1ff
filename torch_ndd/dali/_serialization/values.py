# SPDX-License-Identifier: Apache-2.0
"""Arguments of pipelines and operators as JSON, and back.

Numbers, texts and lists are as they are. Everything else is a dict with the key ``"is"``, which says what it is.
"""

import enum
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..._core.context.states import anything, keys, one_of, rows, text, whole, yes_or_no
from ..._core.values.operand import Operand
from ..._core.values.tensor import Tensor
from ...tfrecord import Feature, FixedLenFeature, VarLenFeature
from ...types import to_dtype
from .. import types
from .._policies import OperatorConcurrency, StreamPolicy
from ..data_node import DataNode, NewAxis

_ENUMS: dict[str, type[enum.Enum]] = {
    one.__name__: one for one in (types.DALIDataType, types.DALIInterpType, types.DALIImageType, OperatorConcurrency, StreamPolicy)
}

_NUMBERS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")


def encode(value: Any, reference: Callable[[DataNode], Any] | None = None) -> Any:
    """Return a value in JSON's types. ``reference`` returns what stands for a node. Raise TypeError for a value that cannot be stored."""
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if type(value) is float:
        return value if math.isfinite(value) else {"is": "float", "value": str(value)}
    if type(value) is list:
        return [encode(one, reference) for one in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"is": "tuple", "values": [encode(one, reference) for one in value]}
    if isinstance(value, DataNode) and reference is not None:
        return {"is": "node", "value": reference(value)}
    if isinstance(value, Feature):
        return _of_feature(value)
    if isinstance(value, enum.Enum) and type(value).__name__ in _ENUMS:
        return {"is": "enum", "type": type(value).__name__, "name": value.name}
    if isinstance(value, slice):
        return {"is": "slice", "values": [encode(one, reference) for one in (value.start, value.stop, value.step)]}
    if isinstance(value, NewAxis):
        return {"is": "newaxis", "name": value.name}
    if isinstance(value, types.ScalarConstant):
        return {"is": "scalar", "type": value.dtype.name, "value": encode(value.value)}
    if isinstance(value, torch.dtype):
        return {"is": "dtype", "name": types.to_dali_type(value).name}
    if isinstance(value, dict):
        return {"is": "dict", "values": [[_key(key), encode(one, reference)] for key, one in value.items()]}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"is": "number", "type": value.dtype.name, "value": encode(value.item())}
    return _of_array(value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a dict with the key {key!r:.60} cannot be stored")
    return key


def _of_array(value: Any) -> dict[str, Any]:
    if isinstance(value, Tensor):
        value = value.torch()
    library = "numpy" if isinstance(value, np.ndarray) else "torch"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))
    if not isinstance(value, torch.Tensor) or isinstance(value, Operand):
        raise TypeError(f"a {type(value).__name__} cannot be stored: {value!r:.60}")
    values = [encode(one) for one in value.detach().cpu().flatten().tolist()]
    return {"is": "array", "library": library, "type": types.to_dali_type(value.dtype).name, "shape": list(value.shape), "values": values}


def _of_feature(feature: Feature) -> dict[str, Any]:
    default = feature.default_value
    if isinstance(default, bytes):
        raise TypeError("a feature whose default value is bytes cannot be stored: give a str")
    return {"is": "feature", "shape": list(feature.shape), "dtype": feature.dtype, "default": encode(default), "fixed": feature.has_shape}


_TYPES = {"is": text}
_SHAPES: dict[str, Callable[[Any, str], dict[str, Any]]] = {
    "float": keys(value=text, **_TYPES),
    "tuple": keys(values=anything, **_TYPES),
    "node": keys(value=anything, **_TYPES),
    "feature": keys(shape=rows(whole(), 0, 64), dtype=whole(), default=anything, fixed=yes_or_no, **_TYPES),
    "enum": keys(type=text, name=text, **_TYPES),
    "slice": keys(values=anything, **_TYPES),
    "newaxis": keys(name=anything, **_TYPES),
    "scalar": keys(type=text, value=anything, **_TYPES),
    "dtype": keys(name=text, **_TYPES),
    "dict": keys(values=anything, **_TYPES),
    "number": keys(type=one_of(*_NUMBERS), value=anything, **_TYPES),
    "array": keys(library=one_of("numpy", "torch"), type=text, shape=rows(whole(), 0, 64), values=anything, **_TYPES),
}


def decode(value: Any, node: Callable[[Any], DataNode] | None = None) -> Any:
    """Return what :func:`encoded` was given. ``node`` returns the node that something stands for. Raise ValueError for anything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [decode(one, node) for one in value]
    kind = value.get("is") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _SHAPES:
        raise ValueError(f"no value: {value!r:.60}")
    given = _SHAPES[kind](value, f"a value of kind {kind!r}")
    if kind == "node":
        if node is None:
            raise ValueError("a node cannot be here")
        return node(given["value"])
    if kind in ("tuple", "slice", "dict"):
        return _container(kind, given["values"], node)
    if kind == "array":
        return _array(given)
    if kind == "feature":
        made = FixedLenFeature if given["fixed"] else VarLenFeature
        return made(given["shape"], given["dtype"], decode(given["default"]))
    if kind == "float":
        return float(given["value"])
    if kind == "number":
        return _number(given)
    if kind == "newaxis":
        return NewAxis(given["name"])
    if kind == "scalar":
        return types.ScalarConstant(decode(given["value"]), _member("DALIDataType", given["type"]))
    if kind == "dtype":
        return to_dtype(_member("DALIDataType", given["name"]))
    return _member(given["type"], given["name"])


def _container(kind: str, values: Any, node: Callable[[Any], DataNode] | None) -> Any:
    if not isinstance(values, list) or (kind == "slice" and len(values) != 3):
        raise ValueError(f"a {kind} must have a list of values, got {values!r:.60}")
    if kind == "dict":
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in values):
            raise ValueError(f"a dict must have pairs of a text and a value, got {values!r:.60}")
        return {key: decode(one, node) for key, one in values}
    made = [decode(one, node) for one in values]
    return slice(*made) if kind == "slice" else tuple(made)


def _member(enumeration: str, name: str) -> Any:
    members = _ENUMS[enumeration].__members__ if enumeration in _ENUMS else {}
    if name not in members:
        raise ValueError(f"there is no {enumeration:.60}.{name:.60}")
    return members[name]


def _number(given: dict[str, Any]) -> np.generic:
    value = decode(given["value"])
    if not isinstance(value, bool | int | float):
        raise ValueError(f"a number must be one, got {value!r:.60}")
    try:
        return np.dtype(given["type"]).type(value)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"a number is not of its type {given['type']}: {error}") from None


def _array(given: dict[str, Any]) -> Any:
    values = given["values"]
    if not isinstance(values, list) or len(values) != math.prod(given["shape"]):
        raise ValueError(f"an array of shape {list(given['shape'])} must have {math.prod(given['shape'])} values")
    numbers = [decode(one) for one in values]
    if not all(isinstance(one, bool | int | float) for one in numbers):
        raise ValueError("the values of an array must be numbers")
    try:
        made = torch.tensor(numbers, dtype=to_dtype(_member("DALIDataType", given["type"]))).reshape(given["shape"])
    except (OverflowError, RuntimeError, TypeError) as error:
        raise ValueError(f"an array's values are not of its type {given['type']}: {error}") from None
    return made.numpy() if given["library"] == "numpy" else made
