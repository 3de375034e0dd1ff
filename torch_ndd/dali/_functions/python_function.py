# SPDX-License-Identifier: Apache-2.0
"""``fn.python_function`` and its kin: the user's Python code as an operator, on NumPy arrays, torch tensors or DLPack capsules.

Functions run one after the other on the executor's thread when an iteration is issued, after their inputs are complete. Neither the program nor work
that was submitted before waits for them.
"""

import traceback
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from ..._core.operators.call import first_sources
from ..._core.process import workers
from ..._core.values.batch import Batch, as_batch
from .._graph.errors import UnknownArgumentError
from .._graph.graph import Step, current_graph
from .._graph.operations import PlacedOperation, on_device
from .._inputs.feeding import import_batch
from ..data_node import as_node, create
from ..tensors._single import describe_type, is_capsule
from .calls import device_of, has_nodes

_IGNORED = ("bytes_per_sample_hint", "seed", "synchronize_stream")


class FunctionOperation(PlacedOperation):
    """A Python function as an operator."""

    always_kept = True
    function: Callable[..., Any]
    batch_processing: bool
    layouts: Sequence[str | None]  # of the outputs

    form: ClassVar[str] = "NumPy arrays"

    def to_arguments(self, batch: Batch) -> list[Any]:
        """Return the samples as arguments of the function, over the memory of the batch."""
        if batch.buffer.device.type != "cpu":
            import cupy  # type: ignore[import-not-found]

            return [cupy.from_dlpack(sample) for sample in batch]
        return [np.asarray(sample) for sample in batch]

    def accepts(self, value: Any) -> bool:
        """Return whether a result has this form."""
        return isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__")

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Wait for the inputs, call the function, and copy its results."""
        size = inputs[0].batch_size if inputs else step.batch_size
        columns = [self.to_arguments(values) for values in inputs]
        if self.batch_processing:
            outputs = self._check_outputs(self._call_function(columns))
        else:
            # Checked before each sample, so the end of the program does not wait for a whole batch.
            rows = [self._check_outputs(self._call_function([column[i] for column in columns]), i) for i in range(size) if not workers.ending]
            if workers.ending:
                raise RuntimeError("the program is ending")
            outputs = [[row[k] for row in rows] for k in range(len(self.outputs))]  # by output, not by sample
        batches = [self._import_output(values, k, size) for k, values in enumerate(outputs)]
        for batch in batches:
            batch.sources = first_sources(inputs)
        return on_device(batches, self._target)

    def _call_function(self, arguments: Sequence[Any]) -> Any:
        try:
            return self.function(*arguments)
        except Exception as error:
            # Without the frame of this method.
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next if error.__traceback__ else None))
            raise RuntimeError(f"the Python function raised {type(error).__name__}: {error}\n\n{text}") from error

    def _check_outputs(self, result: Any, sample: int | None = None) -> Sequence[Any]:
        """Return the outputs of a call. Raise RuntimeError for another number than ``num_outputs``."""
        count = len(self.outputs)
        where = "" if sample is None else f" for sample {sample}"
        if not count:
            if result is not None:
                raise RuntimeError(f"the Python function returned {describe_type(result)}{where}, but num_outputs=0: it must return None")
            return ()
        if isinstance(result, tuple):
            if len(result) != count:
                raise RuntimeError(f"the Python function returned {len(result)} outputs{where}, but num_outputs={count}")
            return result
        if count > 1:
            raise RuntimeError(
                f"the Python function returned {describe_type(result)}{where}: with num_outputs={count} it must return a tuple of {count} outputs"
            )
        return (result,)

    def _import_output(self, values: Any, output: int, size: int) -> Batch:
        """Convert an output to a batch."""
        what = f"output {output} of the Python function"
        if isinstance(values, list):
            for i, sample in enumerate(values):
                if not self.accepts(sample):
                    raise RuntimeError(f"{what} must have {self.form}, got {describe_type(sample)} for sample {i}")
        elif not self.accepts(values):
            raise RuntimeError(f"{what} must be a list of {self.form} or one with all samples, got {describe_type(values)}")
        # Copied, because the function may keep and change its results.
        batch = import_batch(what, values, max(size, len(values) if isinstance(values, list) else 0), share=False)
        if batch.batch_size != size:
            raise RuntimeError(f"{what} has {batch.batch_size} samples, but there are {size}")
        layout = self.layouts[output]
        if layout and len(layout) != batch.ndim:
            raise ValueError(f'{what} has {batch.ndim} dimensions, but its layout "{layout}" has {len(layout)} letters')
        return as_batch(batch, layout=layout) if layout else batch


class TorchFunctionOperation(FunctionOperation):
    """A function of torch tensors."""

    form = "torch tensors"

    def to_arguments(self, batch: Batch) -> list[Any]:
        """Return the samples as tensors."""
        return [sample.torch() for sample in batch]

    def accepts(self, value: Any) -> bool:
        """Return whether a result is a tensor."""
        return isinstance(value, torch.Tensor)


class CapsuleFunctionOperation(FunctionOperation):
    """A function of DLPack capsules."""

    form = "DLPack capsules"

    def to_arguments(self, batch: Batch) -> list[Any]:
        """Return the samples as capsules."""
        return [sample.__dlpack__() for sample in batch]

    def accepts(self, value: Any) -> bool:
        """Return whether a result is a capsule."""
        return is_capsule(value)


class PythonFunction:
    """An operator that calls ``function``. See :func:`python_function` for the arguments; ``name`` and ``output_layouts`` may be given to the call.

    Raises:
        TypeError: a function that is not callable, or a number of outputs that is not an int.
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
            raise TypeError(f"{self._title}: function must be callable, got {describe_type(function)}")
        if isinstance(num_outputs, bool) or not hasattr(num_outputs, "__index__"):
            raise TypeError(f"{self._title}: num_outputs must be an int, got {num_outputs!r}")
        if num_outputs < 0:
            raise ValueError(f"{self._title}: num_outputs must not be negative, got {num_outputs}")
        self.function, self.num_outputs, self.device, self._batch_processing = function, int(num_outputs), device, bool(batch_processing)
        self._arguments = self._check_arguments(arguments)

    def _check_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        for key in arguments:
            if key not in ("name", "preserve", "output_layouts", *_IGNORED):
                raise UnknownArgumentError(f"{self._title} got an unexpected argument {key!r}")
        return {key: value for key, value in arguments.items() if value is not None and key not in _IGNORED}

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Add the operator to the graph. Return its node, or a list of nodes unless there is one output."""
        if current_graph() is None:
            raise RuntimeError(f"{self._title}: Current Pipeline not set: a Python function must be called in the definition of a pipeline")
        for k, value in enumerate(inputs):
            if has_nodes(value):
                raise TypeError(f"{self._title}: input {k} is a list of nodes; a Python function has no input sets")
        options = self._check_arguments(arguments)
        for key in options:
            if key in self._arguments:
                raise ValueError(f"{self._title}: {key} was passed to the constructor too; pass it once")
        options = {**self._arguments, **options}
        device = device_of(self._title, self.device, inputs)
        nodes = create(
            self._operation,
            type(self).__name__.lstrip("_"),
            [as_node(value, f"{self._title}: input {k}") for k, value in enumerate(inputs)],
            constants={"num_outputs": self.num_outputs, "batch_processing": self._batch_processing},
            schema=self._schema,
            title=self._title,
            outputs=self.num_outputs,
            name=options.get("name"),
            device=device,
            preserve=True,
            function=self.function,
            batch_processing=self._batch_processing,
            layouts=self._layouts(options.get("output_layouts")),
        )
        return nodes[0] if len(nodes) == 1 else nodes

    def _layouts(self, value: Any) -> list[str | None]:
        if value is None or isinstance(value, str):
            return [value or None] * self.num_outputs
        layouts = list(value)
        if len(layouts) > self.num_outputs:
            raise RuntimeError(f"{self._title}: output_layouts has {len(layouts)} layouts, but num_outputs={self.num_outputs}")
        return [layout or None for layout in layouts] + [None] * (self.num_outputs - len(layouts))


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
    operator.__init__(function, **arguments)  # type: ignore[misc]  # messages name the function of fn, not the class
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
        num_outputs: Number of outputs. With several outputs the function returns a tuple, without outputs None.
        batch_processing: Call it once for a batch, with a list of arrays per input; it returns a list of arrays, or one array with all samples.
        output_layouts: Layout of all outputs, or a list with one for each.
        device: ``"cpu"``, or ``"gpu"`` for arrays of CuPy.
        name: Name of the operator.
        arguments: ``preserve`` and ``bytes_per_sample_hint``, which have no effect.

    Returns:
        A node, a list of nodes, or None.

    Raises:
        RuntimeError: no pipeline is being defined. When the pipeline runs: an exception of the function, with its
            traceback, or results that are not arrays of one type and number of dimensions.

    >>> from torch_ndd.dali import Pipeline, types
    >>> pipe = Pipeline(batch_size=2)
    >>> with pipe:
    ...     pipe.set_outputs(python_function(types.Constant([3, 1, 2]), function=np.sort))
    >>> pipe.run()[0].as_array().tolist()
    [[1, 2, 3], [1, 2, 3]]
    """
    options = dict(num_outputs=num_outputs, batch_processing=batch_processing, output_layouts=output_layouts, device=device, name=name, **arguments)
    return _function(PythonFunction, "fn.python_function", inputs, function, options)


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
    options = dict(num_outputs=num_outputs, batch_processing=batch_processing, output_layouts=output_layouts, device=device, name=name, **arguments)
    return _function(DLTensorPythonFunction, "fn.dl_tensor_python_function", inputs, function, options)


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
    ...     pipe.set_outputs(torch_python_function(types.Constant([3, 1, 2]), function=lambda values: values.cumsum(0)))
    >>> pipe.run()[0].as_array().tolist()
    [[3, 4, 6], [3, 4, 6]]
    """
    options = dict(num_outputs=num_outputs, batch_processing=batch_processing, output_layouts=output_layouts, device=device, name=name, **arguments)
    return _function(TorchPythonFunction, "plugin.pytorch.fn.torch_python_function", inputs, function, options)
