# SPDX-License-Identifier: Apache-2.0
"""Arguments of pipelines and operators as JSON.

Numbers, strings and lists are stored directly. Everything else is a dict whose key ``"is"`` has the kind of the value.
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
    enumeration.__name__: enumeration
    for enumeration in (types.DALIDataType, types.DALIInterpType, types.DALIImageType, OperatorConcurrency, StreamPolicy)
}

_NUMBERS = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")


def encode(value: Any, reference: Callable[[DataNode], Any] | None = None) -> Any:
    """Return a value in JSON's types. ``reference`` returns the stored form of a node. Raise TypeError for a value that cannot be stored."""
    # Exactly bool or int: enumerations are ints too, and are stored by name below.
    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, str):
        # Of a subclass of str only the text is stored.
        return str.__str__(value)
    if type(value) is float:
        # JSON has no infinities and no NaN.
        return value if math.isfinite(value) else {"is": "float", "value": str(value)}
    if type(value) is list:
        return [encode(item, reference) for item in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"is": "tuple", "values": [encode(item, reference) for item in value]}
    if isinstance(value, DataNode) and reference is not None:
        return {"is": "node", "value": reference(value)}
    if isinstance(value, Feature):
        return _encode_feature(value)
    if isinstance(value, enum.Enum) and type(value).__name__ in _ENUMS:
        return {"is": "enum", "type": type(value).__name__, "name": value.name}
    if isinstance(value, slice):
        return {"is": "slice", "values": [encode(item, reference) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, NewAxis):
        return {"is": "newaxis", "name": value.name}
    if isinstance(value, types.ScalarConstant):
        return {"is": "scalar", "type": value.dtype.name, "value": encode(value.value)}
    if isinstance(value, torch.dtype):
        return {"is": "dtype", "name": types.to_dali_type(value).name}
    if isinstance(value, dict):
        return {"is": "dict", "values": [[_check_key(key), encode(item, reference)] for key, item in value.items()]}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"is": "number", "type": value.dtype.name, "value": encode(value.item())}
    return _encode_array(value)


def _check_key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a dict with the key {key!r:.60} cannot be stored")
    return key


def _encode_array(value: Any) -> dict[str, Any]:
    if isinstance(value, Tensor):
        value = value.torch()
    library = "numpy" if isinstance(value, np.ndarray) else "torch"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        # torch rejects other byte orders.
        value = torch.from_numpy(value.astype(value.dtype.newbyteorder("=")))
    if not isinstance(value, torch.Tensor) or isinstance(value, Operand):
        raise TypeError(f"a {type(value).__name__} cannot be stored: {value!r:.60}")
    values = [encode(number) for number in value.detach().cpu().flatten().tolist()]
    return {"is": "array", "library": library, "type": types.to_dali_type(value.dtype).name, "shape": list(value.shape), "values": values}


def _encode_feature(feature: Feature) -> dict[str, Any]:
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
    """Return the value that :func:`encode` converted. ``node`` returns the node of a stored form. Raise ValueError for anything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [decode(item, node) for item in value]
    kind = value.get("is") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _SHAPES:
        raise ValueError(f"not a stored value: {value!r:.60}")
    fields = _SHAPES[kind](value, f"a value of kind {kind!r}")
    if kind == "node":
        if node is None:
            raise ValueError("a node is not allowed here")
        return node(fields["value"])
    if kind in ("tuple", "slice", "dict"):
        return _decode_container(kind, fields["values"], node)
    if kind == "array":
        return _decode_array(fields)
    if kind == "feature":
        feature_type = FixedLenFeature if fields["fixed"] else VarLenFeature
        return feature_type(fields["shape"], fields["dtype"], decode(fields["default"]))
    if kind == "float":
        return float(fields["value"])
    if kind == "number":
        return _decode_number(fields)
    if kind == "newaxis":
        return NewAxis(fields["name"])
    if kind == "scalar":
        return types.ScalarConstant(decode(fields["value"]), _find_member("DALIDataType", fields["type"]))
    if kind == "dtype":
        return to_dtype(_find_member("DALIDataType", fields["name"]))
    return _find_member(fields["type"], fields["name"])


def _decode_container(kind: str, values: Any, node: Callable[[Any], DataNode] | None) -> Any:
    if not isinstance(values, list) or (kind == "slice" and len(values) != 3):
        raise ValueError(f"a {kind} must have a list of values, got {values!r:.60}")
    if kind == "dict":
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for pair in values):
            raise ValueError(f"a dict must have pairs of a string and a value, got {values!r:.60}")
        return {key: decode(item, node) for key, item in values}
    items = [decode(item, node) for item in values]
    return slice(*items) if kind == "slice" else tuple(items)


def _find_member(enumeration: str, name: str) -> Any:
    members = _ENUMS[enumeration].__members__ if enumeration in _ENUMS else {}
    if name not in members:
        raise ValueError(f"{enumeration:.60} has no member {name:.60}")
    return members[name]


def _decode_number(fields: dict[str, Any]) -> np.generic:
    value = decode(fields["value"])
    if not isinstance(value, bool | int | float):
        raise ValueError(f"not a number: {value!r:.60}")
    try:
        return np.dtype(fields["type"]).type(value)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"a number is not of its type {fields['type']}: {error}") from None


def _decode_array(fields: dict[str, Any]) -> Any:
    values = fields["values"]
    # Compared before the tensor is made: a shape may promise any size.
    if not isinstance(values, list) or len(values) != math.prod(fields["shape"]):
        raise ValueError(f"an array of shape {list(fields['shape'])} must have {math.prod(fields['shape'])} values")
    numbers = [decode(number) for number in values]
    if not all(isinstance(number, bool | int | float) for number in numbers):
        raise ValueError("the values of an array must be numbers")
    try:
        tensor = torch.tensor(numbers, dtype=to_dtype(_find_member("DALIDataType", fields["type"]))).reshape(fields["shape"])
    except (OverflowError, RuntimeError, TypeError) as error:
        raise ValueError(f"an array's values are not of its type {fields['type']}: {error}") from None
    return tensor.numpy() if fields["library"] == "numpy" else tensor
