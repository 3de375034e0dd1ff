# SPDX-License-Identifier: Apache-2.0
"""``DataNode``: a value of the graph. Arithmetic, comparisons and indexing of nodes add operators to it."""

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ._graph import Operation


class NewAxis:
    """A new axis in an index: ``node[newaxis]``, or ``node[newaxis("F")]`` with a letter of the layout."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None:
            if not isinstance(name, str):
                raise TypeError(f"newaxis: a name must be a str, got {name!r}")
            if len(name) != 1:
                raise ValueError(f"newaxis: a name must be one letter, got {name!r}")
        self.name = name

    def __call__(self, name: str | None = None) -> "NewAxis":
        """Return a new axis with a name."""
        return NewAxis(name)

    def __repr__(self) -> str:
        return "newaxis" if self.name is None else f"newaxis({self.name!r})"


newaxis = NewAxis()


class DataNode:
    """One result of an operation: a batch of samples in each iteration of the pipeline.

    Nodes are symbolic: their values exist when the pipeline runs. They have no truth value, length or elements.

    Attributes:
        name: Name of the operation; with several outputs ``name[k]``.
        device: ``"cpu"`` or ``"gpu"``.
        source: The operation.
        index: Number of the output.
        ndim, dtype, layout: What is known of the samples; None if nothing is.
    """

    __array_ufunc__ = None  # DataNode computes ndarray + DataNode
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        name: str,
        device: str = "cpu",
        source: "Operation | None" = None,
        index: int = 0,
        ndim: int | None = None,
        dtype: Any = None,
        layout: str | None = None,
    ) -> None:
        self.name = name
        self.device = device
        self.source = source
        self.index = index
        self.ndim = ndim
        self.dtype = dtype
        self.layout = layout

    def gpu(self) -> "DataNode":
        """Return the values on the GPU: this node if they are there, otherwise one of the same name."""
        return self._on("gpu")

    def cpu(self) -> "DataNode":
        """Return the values in host memory: this node if they are there, otherwise one of the same name."""
        return self._on("cpu")

    def _on(self, device: str) -> "DataNode":
        from ._operators import moved

        if self.device == device:
            return self
        made = moved(self, device)
        made.name = self.name  # under which feed_input and programs know the values
        return made

    def shape(self, *, dtype: Any = None, device: str = "cpu") -> "DataNode":
        """Return the shapes of the samples: a one-dimensional node of ``dtype``, by default ``INT64``."""
        from ._operators import shapes

        return shapes(self, dtype, device)

    def property(self, key: str, *, device: str = "cpu") -> "DataNode":
        """Return a property of the samples, ``"source_info"`` or ``"layout"``: one-dimensional, uint8, the characters of its text."""
        from . import fn

        return fn.get_property(self, key=key, device=device)

    def source_info(self, *, device: str = "cpu") -> "DataNode":
        """Return the source of the samples, such as the path of a file: one-dimensional, uint8, its characters."""
        return self.property("source_info", device=device)

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"DataNode {self.name!r} {what}: its values exist only when the pipeline runs")

    def __bool__(self) -> bool:
        return self._refuse(
            "has no truth value, so that it cannot be used in a condition (`if`, `while`, `and`, `or`, `not`, `assert`). "
            "`@pipeline_def(enable_conditionals=True)` supports `if` and logical expressions"
        )

    def __iter__(self) -> Any:
        self._refuse("cannot be iterated over or unpacked")

    def __len__(self) -> int:
        return self._refuse("has no length")

    def __contains__(self, value: object) -> bool:
        return self._refuse("cannot be searched with `in`")

    def __int__(self) -> int:
        return self._refuse("cannot be converted to int")

    def __float__(self) -> float:
        return self._refuse("cannot be converted to float")

    def __index__(self) -> int:
        return self._refuse("cannot be converted to int")

    def __add__(self, other: Any) -> "DataNode":
        return arithmetic("add", self, other)

    def __radd__(self, other: Any) -> "DataNode":
        return arithmetic("add", other, self)

    def __sub__(self, other: Any) -> "DataNode":
        return arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> "DataNode":
        return arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> "DataNode":
        return arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> "DataNode":
        return arithmetic("mul", other, self)

    def __truediv__(self, other: Any) -> "DataNode":
        return arithmetic("truediv", self, other)

    def __rtruediv__(self, other: Any) -> "DataNode":
        return arithmetic("truediv", other, self)

    def __floordiv__(self, other: Any) -> "DataNode":
        return arithmetic("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> "DataNode":
        return arithmetic("floordiv", other, self)

    def __mod__(self, other: Any) -> "DataNode":
        return arithmetic("mod", self, other)

    def __rmod__(self, other: Any) -> "DataNode":
        return arithmetic("mod", other, self)

    def __pow__(self, other: Any) -> "DataNode":
        return arithmetic("pow", self, other)

    def __rpow__(self, other: Any) -> "DataNode":
        return arithmetic("pow", other, self)

    def __lshift__(self, other: Any) -> "DataNode":
        return arithmetic("lshift", self, other)

    def __rlshift__(self, other: Any) -> "DataNode":
        return arithmetic("lshift", other, self)

    def __rshift__(self, other: Any) -> "DataNode":
        return arithmetic("rshift", self, other)

    def __rrshift__(self, other: Any) -> "DataNode":
        return arithmetic("rshift", other, self)

    def __and__(self, other: Any) -> "DataNode":
        return arithmetic("and", self, other)

    def __rand__(self, other: Any) -> "DataNode":
        return arithmetic("and", other, self)

    def __or__(self, other: Any) -> "DataNode":
        return arithmetic("or", self, other)

    def __ror__(self, other: Any) -> "DataNode":
        return arithmetic("or", other, self)

    def __xor__(self, other: Any) -> "DataNode":
        return arithmetic("xor", self, other)

    def __rxor__(self, other: Any) -> "DataNode":
        return arithmetic("xor", other, self)

    def __eq__(self, other: Any) -> "DataNode":  # type: ignore[override]
        return arithmetic("eq", self, other)

    def __ne__(self, other: Any) -> "DataNode":  # type: ignore[override]
        return arithmetic("ne", self, other)

    def __lt__(self, other: Any) -> "DataNode":
        return arithmetic("lt", self, other)

    def __le__(self, other: Any) -> "DataNode":
        return arithmetic("le", self, other)

    def __gt__(self, other: Any) -> "DataNode":
        return arithmetic("lt", other, self)

    def __ge__(self, other: Any) -> "DataNode":
        return arithmetic("le", other, self)

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
        from ._operators import subscript

        return subscript(self, key)

    def __str__(self) -> str:
        return f"DataNode(name={self.name!r}, device={self.device!r})"

    __repr__ = __str__


def arithmetic(operation: str, *operands: Any, title: str | None = None) -> DataNode:
    """Return a node of an operation on elements, by its name in :mod:`torch_ndd`: ``arithmetic("add", node, 1)``."""
    from ._operators import arithmetic_node

    return arithmetic_node(operation, operands, title)
