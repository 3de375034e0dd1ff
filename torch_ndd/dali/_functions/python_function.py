# SPDX-License-Identifier: Apache-2.0
"""``fn.python_function`` and its kin: the user's Python code as an operator, on NumPy arrays, torch tensors or DLPack capsules.

The functions run one after the other on the pipeline's own thread, when an iteration is issued, with inputs that are complete. They hold up neither
the program nor work that was issued before.
"""

import traceback
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from ..._core.process import workers
from ..._core.values.batch import Batch, as_batch
from .._graph.errors import UnknownArgumentError
from .._graph.graph import Graph, Operation, Step, current_graph
from .._graph.operations import on_device, target_device
from .._inputs.feeding import import_batch
from ..data_node import as_node, create
from ..tensors._single import is_capsule
from .calls import device_of, has_nodes

_IGNORED = ("bytes_per_sample_hint", "seed", "synchronize_stream")


class FunctionOperation(Operation):
    """A Python function as an operator."""

    always_kept = True
    function: Callable[..., Any]
    batch_processing: bool
    layouts: Sequence[str | None]  # of the outputs

    wanted: ClassVar[str] = "NumPy arrays"

    def given(self, batch: Batch) -> list[Any]:
        """Return the samples in the form in which the function takes them, over the memory of the batch."""
        if batch.buffer.device.type != "cpu":
            import cupy  # type: ignore[import-not-found]

            return [cupy.from_dlpack(one) for one in batch]
        return [np.asarray(one) for one in batch]

    def accepts(self, value: Any) -> bool:
        """Return whether a result has this form."""
        return isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__")

    def prepare(self, graph: Graph) -> None:
        """Find the device of the results."""
        self._target = target_device(self, graph)

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Wait for the inputs, call the function, and copy what it returns."""
        size = inputs[0].batch_size if inputs else step.batch_size
        columns = [self.given(one) for one in inputs]
        if self.batch_processing:
            outputs = self._outputs(self._called(columns))
        else:
            rows = [self._outputs(self._called([column[i] for column in columns]), i) for i in range(size) if not workers.ending]
            if workers.ending:
                raise RuntimeError("the program ends")
            outputs = [[row[k] for row in rows] for k in range(len(self.outputs))]
        batches = [self._batch(one, k, size) for k, one in enumerate(outputs)]
        return on_device(batches, self._target)

    def _called(self, arguments: Sequence[Any]) -> Any:
        try:
            return self.function(*arguments)
        except Exception as error:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next if error.__traceback__ else None))
            raise RuntimeError(f"the Python function raised {type(error).__name__}: {error}\n\n{text}") from error

    def _outputs(self, made: Any, sample: int | None = None) -> Sequence[Any]:
        """Return the outputs of a call."""
        count = len(self.outputs)
        where = "" if sample is None else f" for sample {sample}"
        if not count:
            if made is not None:
                raise RuntimeError(f"the Python function returned {_named(made)}{where}, but num_outputs=0: it must return None")
            return ()
        if isinstance(made, tuple):
            if len(made) != count:
                raise RuntimeError(f"the Python function returned {len(made)} outputs{where}, but num_outputs={count}")
            return made
        if count > 1:
            raise RuntimeError(
                f"the Python function returned {_named(made)}{where}: with num_outputs={count} it must return a tuple of {count} outputs"
            )
        return (made,)

    def _batch(self, made: Any, output: int, size: int) -> Batch:
        """Return one output as a batch."""
        what = f"output {output} of the Python function"
        if isinstance(made, list):
            for i, one in enumerate(made):
                if not self.accepts(one):
                    raise RuntimeError(f"{what} must have {self.wanted}, got {_named(one)} for sample {i}")
        elif not self.accepts(made):
            raise RuntimeError(f"{what} must be a list of {self.wanted} or one with all samples, got {_named(made)}")
        batch = import_batch(what, made, max(size, len(made) if isinstance(made, list) else 0), share=False)
        if batch.batch_size != size:
            raise RuntimeError(f"{what} has {batch.batch_size} samples, but there are {size}")
        layout = self.layouts[output]
        if layout and len(layout) != batch.ndim:
            raise ValueError(f'{what} has {batch.ndim} dimensions, but its layout "{layout}" has {len(layout)} letters')
        return as_batch(batch, layout=layout) if layout else batch


class TorchFunctionOperation(FunctionOperation):
    """A function of torch tensors."""

    wanted = "torch tensors"

    def given(self, batch: Batch) -> list[Any]:
        """Return the samples as tensors."""
        return [one.torch() for one in batch]

    def accepts(self, value: Any) -> bool:
        """Return whether a result is a tensor."""
        return isinstance(value, torch.Tensor)


class CapsuleFunctionOperation(FunctionOperation):
    """A function of DLPack capsules."""

    wanted = "DLPack capsules"

    def given(self, batch: Batch) -> list[Any]:
        """Return the samples as capsules."""
        return [one.__dlpack__() for one in batch]

    def accepts(self, value: Any) -> bool:
        """Return whether a result is a capsule."""
        return is_capsule(value)


def _named(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


class PythonFunction:
    """An operator that calls ``function``. See :func:`python_function` for the arguments; ``name`` and ``output_layouts`` may be given to the call.

    Raises:
        TypeError: a function that cannot be called, or a number of outputs that is no int.
        ValueError: a negative number of outputs.
    """

    _operation: ClassVar[type[FunctionOperation]] = FunctionOperation
    _schema: ClassVar[str] = "python_function"
    _title: str = "ops.PythonFunction"
    preserve = True

    def __init__(
        self, function: Callable[..., Any], num_outputs: int = 1, device: str | None = "cpu", batch_processing: bool = False, **arguments: Any
    ) -> None:
        if not callable(function):
            raise TypeError(f"{self._title}: function must be callable, got {_named(function)}")
        if isinstance(num_outputs, bool) or not hasattr(num_outputs, "__index__"):
            raise TypeError(f"{self._title}: num_outputs must be an int, got {num_outputs!r}")
        if num_outputs < 0:
            raise ValueError(f"{self._title}: num_outputs must not be negative, got {num_outputs}")
        self.function, self.num_outputs, self.device, self._batch_processing = function, int(num_outputs), device, bool(batch_processing)
        self._arguments = self._checked(arguments)

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        for key in arguments:
            if key not in ("name", "preserve", "output_layouts", *_IGNORED):
                raise UnknownArgumentError(f"{self._title} got an unexpected argument {key!r}")
        return {key: value for key, value in arguments.items() if value is not None and key not in _IGNORED}

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Add the operator to the graph. Return its node, or a list of nodes unless there is one output."""
        if current_graph() is None:
            raise RuntimeError(f"{self._title}: Current Pipeline not set: a Python function must be called in the definition of a pipeline")
        for k, one in enumerate(inputs):
            if has_nodes(one):
                raise TypeError(f"{self._title}: input {k} is a list of nodes; a Python function has no input sets")
        given = self._checked(arguments)
        for key in given:
            if key in self._arguments:
                raise ValueError(f"{self._title}: {key} was given to the constructor; give it once")
        given = {**self._arguments, **given}
        device = device_of(self._title, self.device, inputs)
        nodes = create(
            self._operation,
            type(self).__name__.lstrip("_"),
            [as_node(one, f"{self._title}: input {k}") for k, one in enumerate(inputs)],
            constants={"num_outputs": self.num_outputs, "batch_processing": self._batch_processing},
            schema=self._schema,
            title=self._title,
            outputs=self.num_outputs,
            name=given.get("name"),
            device=device,
            preserve=True,
            function=self.function,
            batch_processing=self._batch_processing,
            layouts=self._layouts(given.get("output_layouts")),
        )
        return nodes[0] if len(nodes) == 1 else nodes

    def _layouts(self, given: Any) -> list[str | None]:
        if given is None or isinstance(given, str):
            return [given or None] * self.num_outputs
        layouts = list(given)
        if len(layouts) > self.num_outputs:
            raise RuntimeError(f"{self._title}: output_layouts has {len(layouts)} layouts, but num_outputs={self.num_outputs}")
        return [one or None for one in layouts] + [None] * (self.num_outputs - len(layouts))


class DLTensorPythonFunction(PythonFunction):
    """An operator that calls a function of DLPack capsules, by default of whole batches. See :class:`PythonFunction`.

    A capsule shares the memory of its sample and can be used once.
    """

    _operation = CapsuleFunctionOperation
    _schema = "dl_tensor_python_function"
    _title = "ops.DLTensorPythonFunction"

    def __init__(
        self, function: Callable[..., Any], num_outputs: int = 1, device: str | None = "cpu", batch_processing: bool = True, **arguments: Any
    ) -> None:
        super().__init__(function, num_outputs, device, batch_processing, **arguments)


class TorchPythonFunction(PythonFunction):
    """An operator that calls a function of torch tensors. See :class:`PythonFunction`."""

    _operation = TorchFunctionOperation
    _schema = "torch_python_function"
    _title = "plugin.pytorch.TorchPythonFunction"


def _function(kind: type[PythonFunction], title: str, inputs: Sequence[Any], function: Any, arguments: dict[str, Any]) -> Any:
    operator = kind.__new__(kind)
    operator._title = title
    operator.__init__(function, **arguments)  # type: ignore[misc]  # with messages that name the function
    return operator(*inputs)


def python_function(
    *inputs: Any,
    function: Callable[..., Any],
    num_outputs: int = 1,
    batch_processing: bool = False,
    output_layouts: str | Sequence[str] | None = None,
    device: str | None = None,
    name: str | None = None,
    **arguments: Any,
) -> Any:
    """Call a Python function of NumPy arrays in each iteration.

    It is called for each sample, in their order, with one array per input, which shares the memory of the sample and may be written to; it returns an
    array. It runs although nothing uses its results, on a thread of the pipeline.

    Args:
        inputs: Nodes. Without any, the function is called ``batch_size`` times.
        function: The function.
        num_outputs: Number of outputs. If there are several, the function returns a tuple of so many; if there are none, None.
        batch_processing: Call it once for a batch, with a list of arrays per input; it returns a list of arrays, or one array with all samples.
        output_layouts: Layout of all outputs, or a list with one for each.
        device: ``"cpu"``, or ``"gpu"`` for arrays of CuPy.
        name: Name of the operator.
        arguments: ``preserve`` and ``bytes_per_sample_hint``, which have no effect.

    Returns:
        A node, a list of nodes, or None.

    Raises:
        RuntimeError: no pipeline is being defined. When the pipeline runs: what the function raised, with its traceback, and results that are no
            arrays of one type and number of dimensions.

    >>> from torch_ndd.dali import Pipeline, types
    >>> pipe = Pipeline(batch_size=2)
    >>> with pipe:
    ...     pipe.set_outputs(python_function(types.Constant([3, 1, 2]), function=np.sort))
    >>> pipe.run()[0].as_array().tolist()
    [[1, 2, 3], [1, 2, 3]]
    """
    given = dict(num_outputs=num_outputs, batch_processing=batch_processing, output_layouts=output_layouts, device=device, name=name, **arguments)
    return _function(PythonFunction, "fn.python_function", inputs, function, given)


def dl_tensor_python_function(
    *inputs: Any,
    function: Callable[..., Any],
    num_outputs: int = 1,
    batch_processing: bool = True,
    output_layouts: str | Sequence[str] | None = None,
    device: str | None = None,
    name: str | None = None,
    **arguments: Any,
) -> Any:
    """Call a Python function of DLPack capsules in each iteration, by default of lists of them. See :func:`python_function`."""
    given = dict(num_outputs=num_outputs, batch_processing=batch_processing, output_layouts=output_layouts, device=device, name=name, **arguments)
    return _function(DLTensorPythonFunction, "fn.dl_tensor_python_function", inputs, function, given)


def torch_python_function(
    *inputs: Any,
    function: Callable[..., Any],
    num_outputs: int = 1,
    batch_processing: bool = False,
    output_layouts: str | Sequence[str] | None = None,
    device: str | None = None,
    name: str | None = None,
    **arguments: Any,
) -> Any:
    """Call a Python function of torch tensors in each iteration. See :func:`python_function`.

    >>> from torch_ndd.dali import Pipeline, types
    >>> pipe = Pipeline(batch_size=2)
    >>> with pipe:
    ...     pipe.set_outputs(torch_python_function(types.Constant([3, 1, 2]), function=lambda one: one.cumsum(0)))
    >>> pipe.run()[0].as_array().tolist()
    [[3, 4, 6], [3, 4, 6]]
    """
    given = dict(num_outputs=num_outputs, batch_processing=batch_processing, output_layouts=output_layouts, device=device, name=name, **arguments)
    return _function(TorchPythonFunction, "plugin.pytorch.fn.torch_python_function", inputs, function, given)
