# SPDX-License-Identifier: Apache-2.0
"""``DataNode``: a value of the graph. Arithmetic, comparisons and indexing of nodes add operators to it."""

import enum
import itertools
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from .._core.operators.operator import OPERATORS
from .._core.values.elementwise import label
from .._core.values.operand import Operand
from .._core.values.python_operators import PythonOperators
from .._core.values.tensor import new_tensor
from .._core.work.call_sites import Site, is_own
from ..types import INT64, DALIDataType, DALIImageType, DALIInterpType, to_dtype, type_id
from ._graph.constants import ScalarConstant, constant_tensor, to_dali_type
from ._graph.graph import Node, Operation, check_device, current_graph, default_name, definitions
from ._graph.operations import ArithmeticOperation, ConstantOperation, MoveOperation, OperatorOperation, ShapesOperation, SubscriptOperation

__all__ = ["DataNode", "newaxis"]

_SITE_FRAMES = 12

_serials = itertools.count()


class NewAxis:
    """A new axis in an index: ``node[newaxis]``, or ``node[newaxis("F")]`` with a letter of the layout."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None:
            if not isinstance(name, str):
                raise TypeError(f"newaxis: the name must be a str, got {name!r}")
            if len(name) != 1:
                raise ValueError(f"newaxis: the name must be one letter, got {name!r}")
        self.name = name

    def __call__(self, name: str | None = None) -> "NewAxis":
        """Return a new axis with a name."""
        return NewAxis(name)

    def __repr__(self) -> str:
        return "newaxis" if self.name is None else f"newaxis({self.name!r})"


newaxis = NewAxis()


class DataNode(PythonOperators, Node):
    """One result of an operation: a batch of samples in each iteration of the pipeline.

    Nodes are symbolic: their values exist when the pipeline runs. They have no truth value, length or elements.

    Attributes:
        name: Name of the operation; with several outputs ``name[k]``.
        device: ``"cpu"`` or ``"gpu"``.
        source: The operation.
        index: Number of the output.
        ndim, dtype, layout: Of the samples, as far as they are declared; otherwise None.
    """

    __array_ufunc__ = None  # NumPy leaves ndarray + DataNode to __radd__

    def gpu(self) -> "DataNode":
        """Return the values on the GPU: this node if they are there, otherwise one of the same name."""
        return self._copy_to("gpu")

    def cpu(self) -> "DataNode":
        """Return the values in host memory: this node if they are there, otherwise one of the same name."""
        return self._copy_to("cpu")

    def _copy_to(self, device: str) -> "DataNode":
        if self.device == device:
            return self
        copy = move(self, device)
        copy.name = self.name  # feed_input finds the input by the name of a copy too
        return copy

    def shape(self, *, dtype: Any = None, device: str = "cpu") -> "DataNode":
        """Return the shapes of the samples: a one-dimensional node of ``dtype``, by default ``INT64``."""
        return shapes(self, dtype, device)

    def property(self, key: str, *, device: str = "cpu") -> "DataNode":
        """Return a property of the samples, ``"source_info"`` or ``"layout"``: one-dimensional, uint8, the characters of its text."""
        nodes = create(
            *(OperatorOperation, "GetProperty", [self], None, {"key": key}),
            schema="get_property",
            title="fn.get_property",
            device=check_device("fn.get_property", device),
            call=OPERATORS["get_property"],
        )
        return nodes[0]

    def source_info(self, *, device: str = "cpu") -> "DataNode":
        """Return the source of the samples, such as the path of a file: one-dimensional, uint8, its characters."""
        return self.property("source_info", device=device)

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"DataNode {self.name!r} {what}: its values exist only when the pipeline runs")

    def __bool__(self) -> bool:
        return self._refuse(
            "has no truth value, so it cannot be used in a condition (`if`, `while`, `and`, `or`, `not`, `assert`). "
            "`@pipeline_def(enable_conditionals=True)` supports `if` and logical expressions"
        )

    # A method that raises would make a node an instance of Iterable and Container; programs decide by these whether they have one node or several.
    __iter__ = None
    __contains__ = None

    def __int__(self) -> int:
        return self._refuse("cannot be converted to int")

    def __float__(self) -> float:
        return self._refuse("cannot be converted to float")

    def __index__(self) -> int:
        return self._refuse("cannot be converted to int")

    @staticmethod
    def _apply(operation: str, left: Any, right: Any) -> Any:
        return arithmetic(operation, left, right)

    @staticmethod
    def _reflect(operation: str, left: Any, right: Any) -> Any:
        return arithmetic(operation, _to_python_number(left), right)

    def __neg__(self) -> "DataNode":
        return arithmetic("neg", self)

    def __pos__(self) -> "DataNode":
        return self

    def __invert__(self) -> "DataNode":
        return arithmetic("invert", self)

    def __abs__(self) -> "DataNode":
        return arithmetic("abs", self)

    def __getitem__(self, key: Any) -> "DataNode":
        """Index every sample: integers, slices, nodes with one of them for each sample, and ``newaxis``."""
        return subscript(self, key)

    def __str__(self) -> str:
        return f"DataNode(name={self.name!r}, device={self.device!r})"

    __repr__ = __str__


def create(
    cls: type[Operation],
    kind: str,
    inputs: Sequence[Node] = (),
    arguments: Mapping[str, Node] | None = None,
    constants: Mapping[str, Any] | None = None,
    *,
    schema: str,
    title: str,
    outputs: int | Sequence[str] = 1,
    name: str | None = None,
    device: str = "cpu",
    output_device: str | None = None,
    preserve: bool = False,
    **attributes: Any,
) -> list[DataNode]:
    """Create an operation, add it to the graph that is being defined, and return its output nodes. No other code constructs operations.

    Args:
        cls: Class of the operation.
        kind, schema, title, inputs, arguments, constants, name, device, preserve: See :class:`Operation`.
        outputs: Number of outputs, or their names.
        output_device: Device of the outputs; by default that of the operation.
        attributes: Set on the operation.
    """
    graph = current_graph()
    nodes, keywords = list(inputs), dict(arguments or {})
    branches = None if graph is None else graph.branches
    # Inside a branch of a condition the operation gets the samples of the branch, whatever scope its inputs come from.
    if branches is not None:
        nodes, keywords = branches.adapt(nodes, keywords)
    operation = cls()
    operation.kind, operation.schema, operation.title = kind, schema, title
    operation.named = name is not None
    operation.name = str(name) if name is not None else default_name(kind, graph)
    operation.inputs, operation.arguments, operation.constants = nodes, keywords, dict(constants or {})
    operation.device, operation.preserve = device, bool(preserve)
    operation.graph_reference = None if graph is None else weakref.ref(graph)
    # Counts across pipelines, so the order of serials is an order of dependency in each of them.
    operation.serial, operation.site = next(_serials), _call_site()
    for key, value in attributes.items():
        setattr(operation, key, value)
    operation.own_seed = operation.seed
    names: Sequence[str]
    if isinstance(outputs, int):
        names = [operation.name] if outputs == 1 else [f"{operation.name}[{k}]" for k in range(outputs)]
    else:
        names = [f"{operation.name}[{key}]" for key in outputs]
    node_type = (None if graph is None else graph.node_type) or DataNode
    result_device = output_device or ("cpu" if device == "cpu" else "gpu")
    results = [node_type(result_name, result_device, operation, k) for k, result_name in enumerate(names)]
    operation.outputs = results
    # Debug mode runs the operation here, so its nodes must be complete.
    if graph is not None:
        graph.add(operation)
    if branches is not None:
        branches.register(results)
    return results


def _call_site() -> Site:
    """Return the frames of the definition, without those of this package."""
    base = definitions.stack[-1].base if definitions.stack else None
    # Frame 0 is this function, 1 is create().
    frame, site = sys._getframe(2), Site()
    while frame is not None and len(site) < _SITE_FRAMES:
        if not is_own(frame.f_code):
            site.append((frame.f_code, frame.f_lasti))
        if frame is base:
            break
        frame = frame.f_back
    return site


def move(node: DataNode, device: str) -> DataNode:
    """Return a node of the same values on another device."""
    return create(MoveOperation, "Copy", [node], schema=f"move.{device}", title=f"DataNode.{device}", device=device)[0]


def shapes(node: DataNode, dtype: Any = None, device: str = "cpu", title: str = "DataNode.shape", kind: str = "_Shape", **options: Any) -> DataNode:
    """Return a node of the shapes of another node's samples."""
    element_type = to_dtype(INT64 if dtype is None else dtype)
    if element_type not in (torch.int32, torch.int64, torch.uint32, torch.uint64, torch.float32, torch.float64):
        raise ValueError(f"{title}: dtype must be a type of 4 or 8 bytes, got {dtype!r}")
    constants = {} if dtype is None else {"dtype": dtype}
    return create(ShapesOperation, kind, [node], None, constants, schema="shapes", title=title, device=device, dtype=element_type, **options)[0]


def constant_node(
    value: Any, dtype: Any = None, shape: Any = None, layout: str | None = None, device: str = "cpu", title: str = "types.Constant", **options: Any
) -> DataNode:
    """Return a node with the same value in every sample."""
    # An integer of NumPy has the type that an array of them gets: 32 bits.
    tensor = constant_tensor(np.asarray(value) if isinstance(value, np.integer) else value, dtype, shape)
    if layout and len(layout) != tensor.dim():
        raise RuntimeError(f"{title}: the layout {layout!r} does not have one letter for each of the {tensor.dim()} dimensions")
    options.pop("bytes_per_sample_hint", None)
    constants: dict[str, Any] = {"value": tensor, "layout": layout or None}
    unknown = [key for key in options if key not in ("name", "preserve")]
    if unknown:
        raise TypeError(f"{title}: got an unexpected argument {unknown[0]!r}")
    node = create(
        ConstantOperation,
        "Constant",
        (),
        None,
        constants,
        schema="constant",
        title=title,
        device=device,
        value=tensor,
        layout=layout or None,
        **options,
    )[0]
    node.dtype, node.ndim, node.layout = to_dali_type(tensor.dtype), tensor.dim(), layout or ""
    # Members of enumerations are integers with a type of their own, which operators check.
    if isinstance(value, DALIDataType | DALIImageType | DALIInterpType):
        node.dtype = type_id(type(value))
    return node


def as_node(value: Any, what: str = "an input") -> DataNode:
    """Return a node unchanged, or a constant node of anything that ``types.Constant`` takes. Raise TypeError for other objects."""
    if isinstance(value, DataNode):
        return value
    try:
        return constant_node(value)
    except (TypeError, ValueError) as error:
        reason = "it contains a DataNode; pass the nodes themselves, (*nodes,)" if _has_node(value) else str(error)
        raise TypeError(f"{what} must be a DataNode, a number, a list of numbers or an array, got {type(value).__name__}: {reason}") from None


def _has_node(value: Any) -> bool:
    return isinstance(value, DataNode) or (isinstance(value, list | tuple) and any(map(_has_node, value)))


def arithmetic(operation: str, *operands: Any, title: str | None = None) -> DataNode:
    """Return a node of an element-wise operation, by its name in :mod:`torch_ndd`: ``arithmetic("add", node, 1)``.

    Raises:
        TypeError: an operand that is neither a node nor a number nor an array.
        ValueError: all operands are numbers.
    """
    title = title or label(operation)
    if not any(isinstance(operand, DataNode) for operand in operands):
        operands = tuple(constant_node(operand) if _is_array(operand) else operand for operand in operands)
    prepared = [operand if isinstance(operand, DataNode) else _constant_operand(title, operand) for operand in operands]
    nodes = [operand for operand in prepared if isinstance(operand, DataNode)]
    if not nodes:
        kinds = ", ".join(type(operand).__name__ for operand in operands)
        raise ValueError(f"{title}: one of the operands must be a DataNode or an array, got {kinds}")
    device = "gpu" if any(node.device == "gpu" for node in nodes) else "cpu"
    # Places of nodes are None; the operation fills them in with the inputs of each iteration.
    template = tuple(None if isinstance(operand, DataNode) else operand for operand in prepared)
    constants = {"operands": tuple(None if isinstance(operand, DataNode) else operand for operand in operands)}
    schema = f"arithmetic.{operation}"
    results = create(
        *(ArithmeticOperation, "_ArithmeticGenericOp", nodes, None, constants),
        schema=schema,
        title=title,
        device=device,
        operation=operation,
        operands=template,
    )
    return results[0]


def _is_array(value: Any) -> bool:
    """Return whether a value is an array with dimensions, or a list, which are constants as inputs of operators are."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray | torch.Tensor) and value.ndim > 0)


def _to_python_number(value: Any) -> Any:
    """Convert a scalar of NumPy on the left of an operator to a Python number: NumPy passes it to DALI that way."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and not value.ndim and value.dtype.kind in "biuf" else value


def _constant_operand(title: str, value: Any) -> Operand:
    """Return a constant of an operation on elements."""
    if value is None or isinstance(value, str | bytes | dict | enum.Enum):
        raise TypeError(f"{title}: an operand must be a DataNode, a number or an array, got {type(value).__name__}")
    if isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "biuf":
        value = ScalarConstant(value.item(), value.dtype)  # keeps its type; larger arrays become 32-bit ones
    elif isinstance(value, int) and not isinstance(value, bool):
        value = ScalarConstant(value)
    if isinstance(value, ScalarConstant) and constant_tensor(value).item() != value.value and not value.is_float:
        raise OverflowError(f"{title}: {value.value} is out of range for {value.dtype}")
    try:
        return new_tensor(constant_tensor(value))
    except TypeError as error:
        raise TypeError(f"{title}: {error}") from None


def subscript(node: DataNode, key: Any) -> DataNode:
    """Return a node of a part of each sample."""
    parts = key if isinstance(key, tuple) else (key,)
    indices: list[Any] = []
    axes: list[int] = []
    names: list[str | None] = []
    position = 0
    for part in parts:
        if part is Ellipsis:
            raise NotImplementedError("DataNode: Ellipsis cannot be used as an index; write the slices")
        if part is None or isinstance(part, NewAxis):
            axes.append(position)
            names.append(None if part is None else part.name)
            position += 1
            continue
        if isinstance(part, slice):
            for bound in (part.start, part.stop, part.step):
                _check_index(bound, True)
            position += 1
        else:
            _check_index(part, False)
        indices.append(part)
    given_names = [name for name in names if name is not None]
    if given_names and len(given_names) != len(names):
        raise ValueError("DataNode: newaxis needs a name for all new axes or for none")
    # All nodes in the key, in order, become inputs after the first.
    nodes = [bound for part in indices for bound in ((part.start, part.stop, part.step) if isinstance(part, slice) else (part,))]
    nodes = [bound for bound in nodes if isinstance(bound, DataNode)]
    return create(
        *(SubscriptOperation, "_TensorSubscript", [node, *nodes], None, {"key": tuple(parts)}),
        schema="tensor_subscript",
        title="DataNode[...]",
        device=node.device,
        key=tuple(indices),
        new_axes=tuple(axes),
        new_letters="".join(given_names) or None,
    )[0]


def _check_index(bound: Any, may_miss: bool) -> None:
    if (bound is None and may_miss) or isinstance(bound, DataNode | int | np.integer):
        return
    raise TypeError(f"DataNode: an index must be an int, a slice or a DataNode, got {type(bound).__name__}")
