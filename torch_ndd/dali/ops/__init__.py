# SPDX-License-Identifier: Apache-2.0
"""Operators of pipelines as classes, DALI's older form: ``ops.Resize(size=[224, 224])(images)``.

An instance holds arguments; calling it adds an operator with them to the graph. Each argument is passed in one of the two places. The classes are
generated like the functions of :mod:`torch_ndd.dali.fn` and take the same arguments.

>>> from torch_ndd.dali import pipeline_def
>>> @pipeline_def(batch_size=2)
... def numbers():
...     return Cast(dtype=types.INT32)([1.5, 2.5])
>>> numbers().run()[0].as_array().tolist()
[[2, 3], [2, 3]]
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from .. import types as types
from .._functions import special as _special
from .._functions.calls import call as _call
from .._functions.calls import check_known as _check_known
from .._functions.schema import Schema as _Schema
from .._functions.schema import class_name as _class_name
from .._functions.schema import schemas as _schemas
from .._functions.submodules import set_in_module as _set_in_module


class Operator:
    """The base of all operator classes."""

    _title: ClassVar[str]
    _schema: ClassVar[_Schema | None] = None  # of a class that is generated from a schema

    def __init__(self, *, device: str = "cpu", **arguments: Any) -> None:
        if self._schema is not None:
            for key in arguments:
                _check_known(self._schema, self._title, key)
        self._device = device
        self._arguments = {key: value for key, value in arguments.items() if value is not None}

    @property
    def device(self) -> str:
        """Device of the operator."""
        return self._device

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Add the operator to the graph and return its node, or a list of nodes."""
        for key, value in arguments.items():
            if value is not None and key in self._arguments:
                raise ValueError(f"{self._title}: the argument {key!r} is passed twice, to the constructor and to the call")
        combined = {**self._arguments, **{key: value for key, value in arguments.items() if value is not None}}
        return self._call(inputs, {"device": self._device, **combined})

    def _call(self, inputs: Sequence[Any], arguments: dict[str, Any]) -> Any:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self._title}>"


def _operator_class(schema: _Schema) -> type[Operator]:
    def run(self: Operator, inputs: Sequence[Any], arguments: dict[str, Any]) -> Any:
        return _call(schema, f"ops.{schema.class_name}", inputs, arguments)

    operator = _class(schema.class_name, run, schema.doc)
    operator._schema = schema
    return operator


def _function_class(name: str, function: Any) -> type[Operator]:
    def run(self: Operator, inputs: Sequence[Any], arguments: dict[str, Any]) -> Any:
        return function(*inputs, **arguments)

    return _class(name, run, function.__doc__)


def _class(full_name: str, run: Any, doc: str | None) -> type[Operator]:
    *path, name = full_name.split(".")
    members = {"_call": run, "_title": f"ops.{full_name}", "__doc__": doc, "__module__": ".".join([__name__, *path])}
    return type(name, (Operator,), members)


class Compose:
    """Several operators in a row: each takes the results of the operator before.

    >>> from torch_ndd.dali import pipeline_def
    >>> @pipeline_def(batch_size=2)
    ... def numbers():
    ...     return Compose([Cast(dtype=types.INT32), Reshape(shape=[2, 1])])([1.5, 2.5])
    >>> numbers().run()[0].shape()
    [(2, 1), (2, 1)]
    """

    def __init__(self, op_list: Sequence[Any]) -> None:
        if not op_list:
            raise ValueError("ops.Compose: op_list is empty")
        self._operators = list(op_list)

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Add the operators to the graph; ``arguments`` are those of the first operator."""
        result = self._operators[0](*inputs, **arguments)
        for operator in self._operators[1:]:
            # Several outputs are several inputs of the next operator.
            result = operator(*result) if isinstance(result, list | tuple) else operator(result)
        return result


def _fill() -> None:
    for schema in _schemas().values():
        _set_in_module(__name__, schema.class_name, _operator_class(schema))
    own_classes = _special.classes()
    for name, function in _special.functions().items():
        _set_in_module(__name__, _class_name(name), own_classes.get(name) or _function_class(_class_name(name), function))


_fill()

# The names depend on the registry of operators.
__all__ = sorted(name for name in globals() if name[0] != "_" and name not in ("Any", "ClassVar", "Sequence", "TYPE_CHECKING", "types"))  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
