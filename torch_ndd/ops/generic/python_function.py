# SPDX-License-Identifier: Apache-2.0
"""Python functions as operators: of NumPy arrays, torch tensors, Numba, CuPy or Triton."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, overload

import numpy as np
import torch

from ... import types
from ..._core.context.device import DeviceLike
from ..._core.context.rng import RNG, WORDS_PER_CALL, compiled_draw, get_default_rng
from ..._core.native.tracing import is_compiling
from ..._core.operators.call import as_results, bind_batches, first_sources
from ..._core.process.weak import WeakValues
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, batch, empty_batch, new_batch
from ..._core.values.operand import loop, unwrap
from ..._core.values.tensor import Tensor, new_tensor
from ..._core.work.cuda_work import on_stream, stream_work
from ..._core.work.host_functions import queue
from .._outputs import like

Form = Literal["numpy", "torch", "cupy"]
_numbers = itertools.count(1)
_functions: "WeakValues[PythonOperator]" = WeakValues()  # by number, for compiled graphs


class PythonOperator:
    """A Python function as an operator; made by :func:`python_operator`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        num_outputs: int = 1,
        batched: bool = False,
        shape: Any = None,
        dtype: Any = None,
        layout: Any = None,
        form: Form | None = None,
        rng: bool = False,
    ) -> None:
        if not callable(function):
            raise TypeError(f"python_function: the first argument must be a function, got {function!r}")
        if isinstance(num_outputs, bool) or not isinstance(num_outputs, int) or num_outputs < 1:
            raise ValueError(f"python_function: num_outputs must be a positive int, got {num_outputs!r}")
        if form is not None:
            check_choice("python_function", "form", form, get_args(Form), ValueError)
        self.function, self.batched, self.form, self.draws = function, bool(batched), form, bool(rng)
        self.name = getattr(function, "__name__", type(function).__name__)
        self.shapes = [_as_shape(entry) for entry in _per_output("shape", shape, num_outputs)]
        self.dtypes = [None if entry is None else types.to_dtype(entry) for entry in _per_output("dtype", dtype, num_outputs)]
        self.layouts = _per_output("layout", layout, num_outputs)
        # Without the shapes the call has to wait for the results.
        self.queued = all(entry is not None for entry in self.shapes)
        self._number = next(_numbers)
        _functions[self._number] = self
        functools.update_wrapper(self, function, updated=())

    def __repr__(self) -> str:
        return f"<torch_ndd operator of the Python function {self.name}>"

    def __call__(
        self, *inputs: Any, batch_size: int | None = None, device: DeviceLike | None = None, rng: RNG | None = None, **arguments: Any
    ) -> Any:
        """Call the function for every sample. See :func:`python_function`."""
        for key, value in arguments.items():
            if isinstance(samples := unwrap(value), Batch):
                arguments[key] = samples
        if not inputs and batch_size is None and not any(isinstance(argument, Batch) for argument in arguments.values()):
            raise TypeError("python_function: without inputs the argument 'batch_size' is needed, the number of samples to make")
        if rng is not None and not self.draws:
            raise TypeError("python_function: rng is for functions with random numbers; make the operator with rng=True")
        keywords = {**arguments, "batch_size": batch_size, "device": device, **({"rng": rng} if self.draws else {})}
        if not is_compiling() and (recorder := loop.recorder) is not None:
            return recorder.call(f"python_function {self._number}", self._perform, inputs, keywords, self.draws)
        return self._perform(inputs, keywords)

    def _perform(self, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        arguments = dict(keywords)
        batch_size, device, rng = arguments.pop("batch_size"), arguments.pop("device"), arguments.pop("rng", None)
        call, batches, target = bind_batches("python_function", inputs, arguments, batch_size, device)
        size = call.batch_size
        per_sample = {key: value.to_device(target) for key, value in arguments.items() if isinstance(value, Batch)}
        constants = {key: value for key, value in arguments.items() if not isinstance(value, Batch)}
        for value in per_sample.values():
            call.read(value)
        if self.draws and call.compiling:
            words = compiled_draw(rng, WORDS_PER_CALL)
        else:
            words = (rng or get_default_rng()).draw(WORDS_PER_CALL) if self.draws else None
        columns = _Columns(self, batches, per_sample, constants, words)
        if target.type == "cuda":
            return as_results(call, self._on_gpu(columns, target, size))
        if not self.queued:
            if call.compiling:
                raise TypeError(f"python_function: in a compiled graph {self.name} needs shape=, the shapes of its outputs")
            # The shapes follow from the results, so the call has to wait for all of them.
            results: list[Any] = [None] * size
            work = queue("python_function", *columns.collecting(results, size), call.reads, call.caller_owned, columns.sources)
            if work is not None:
                work.wait()
            outs = self._collect(results, batches, size)
            for out in outs:
                out.sources = columns.sources
            return as_results(call, outs)
        outs = [self._out(k, batches, size) for k in range(len(self.shapes))]
        if call.compiling:
            if constants:
                raise TypeError(f"python_function: in a compiled graph the argument {next(iter(constants))!r} of {self.name} must be a Batch")
            tensors = [*batches, *per_sample.values()]
            torch.ops.ndd.python_function.default(
                self._number, len(batches), ",".join(per_sample), [value.buffer for value in tensors], [value.ragged_shapes for value in tensors],
                [value.layout or "" for value in tensors], words, [out.buffer for out in outs], [out.ragged_shapes for out in outs],
            )  # fmt: skip
            return as_results(call, outs)
        work = queue("python_function", *columns.filling(outs, size), call.reads, call.caller_owned, columns.sources)
        for out in outs:
            out.pending = work
            out.sources = columns.sources
        return as_results(call, outs)

    def _out(self, k: int, batches: Sequence[Batch], size: int) -> Batch:
        """Return output ``k``, unfilled."""
        shape, dtype, layout = self.shapes[k], self.dtypes[k], self.layouts[k]
        if isinstance(shape, str):
            if not batches:
                raise ValueError('python_function: shape="same" means the shape of the first input, but there is none')
            output = like(batches[0], dtype)
            if layout is not None:
                output.relabel(layout)
            return output
        if dtype is None and not batches:
            raise TypeError("python_function: without inputs dtype= is needed")
        dtype = batches[0].dtype if dtype is None else dtype
        extents: Sequence[Any]
        if isinstance(shape, torch.Tensor | np.ndarray | Batch):
            # A row for each sample; anything else is one shape for all.
            rows = torch.as_tensor(np.asarray(shape.torch() if isinstance(shape, Batch) else shape)).to(torch.int64)
            if rows.dim() != 2 or len(rows) != size:
                raise ValueError(f"python_function: shape has the shape {tuple(rows.shape)}, expected ({size}, dimensions): one row per sample")
            extents = list(rows.unbind(1))
        else:
            extents = shape
        if any(bool((torch.as_tensor(extent) < 0).any()) for extent in extents):
            raise ValueError("python_function: shape must not be negative")
        if layout is not None and len(layout) != len(extents):
            raise ValueError(f'python_function: the layout "{layout}" has {len(layout)} letters, but the shape has {len(extents)} dimensions')
        return empty_batch(size, extents, dtype, torch.device("cpu"), layout)

    def _collect(self, results: Sequence[Any], batches: Sequence[Batch], size: int) -> list[Batch]:
        outputs = []
        for k, (dtype, layout) in enumerate(zip(self.dtypes, self.layouts, strict=True)):
            if not size:
                like_it = torch.empty(
                    (0, *([0] * (batches[0].ndim if batches else 1))), dtype=dtype or (batches[0].dtype if batches else torch.float32)
                )
                outputs.append(new_batch(like_it, None, layout))
                continue
            # By output: the function has returned them by sample.
            arrays = [result[k] for result in results]
            first = arrays[0]
            for i, array in enumerate(arrays):
                if array.dtype != first.dtype or array.ndim != first.ndim:
                    raise RuntimeError(
                        f"python_function: output {k} of {self.name} has type {array.dtype} and {array.ndim} dimensions for sample {i}, but "
                        f"{first.dtype} and {first.ndim} for sample 0; all samples must be equal in both"
                    )
                if dtype is not None:
                    _check_dtype(f"sample {i}: output {k} of {self.name}", array, dtype)
            outputs.append(batch(arrays, layout=layout))
        return outputs

    def _on_gpu(self, columns: "_Columns", target: torch.device, size: int) -> list[Batch]:
        """Call the function in this thread; the kernels that it launches are queued on the context's stream."""
        with on_stream(target, [(input.buffer, input.pending) for input in columns.batches], any(input.caller_owned for input in columns.batches)):
            if self.batched:
                # One call with all samples; its results are split below.
                rows = [columns.check_results(columns.call_function(None), None)]
                outs = [_on_device(self.name, k, list(row[k]), layout, target) for row in rows for k, layout in enumerate(self.layouts)]
            else:
                rows = [columns.check_results(columns.call_function(i), i) for i in range(size)]
                outs = [_on_device(self.name, k, [row[k] for row in rows], layout, target) for k, layout in enumerate(self.layouts)]
            work = stream_work([out.buffer for out in outs])
        for out in outs:
            out.pending = work
        return outs


class _Columns:
    """The arguments of one call, and the conversion of its results."""

    def __init__(
        self, op: PythonOperator, batches: Sequence[Batch], per_sample: dict[str, Batch], constants: dict[str, Any], words: torch.Tensor | None
    ) -> None:
        self.op, self.batches, self.per_sample, self.constants = op, batches, per_sample, constants
        self.words = None if words is None or is_compiling() else words.tolist()
        self.sources: Sequence[str] = first_sources(batches)

    def call_function(self, i: int | None) -> Any:
        """Call the function for one sample, or for all."""
        return self.op.function(*[self._argument(input, i) for input in self.batches], **self._keywords(i))

    def _keywords(self, i: int | None) -> dict[str, Any]:
        # Batches are split by sample; all other arguments are passed unchanged.
        found = {key: self._argument(value, i) for key, value in self.per_sample.items()} | self.constants
        if self.words is not None:  # a generator per sample, so the order of the threads does not count
            found["rng"] = np.random.Generator(np.random.Philox(np.random.SeedSequence([*self.words, 0 if i is None else i + 1])))
        return found

    def _argument(self, value: Batch, i: int | None) -> Any:
        if i is not None:
            return _array(_sample(value, i), self.op.form)
        if value.ragged_shapes is None:
            return _array(value.buffer, self.op.form)
        return [_array(_sample(value, k), self.op.form) for k in range(value.batch_size)]

    def check_results(self, returned: Any, i: int | None) -> tuple[Any, ...]:
        """Return the outputs of one call of the function."""
        count = len(self.op.shapes)
        results = returned if isinstance(returned, tuple) else (returned,)
        if count != len(results) or any(result is None for result in results):
            got = "None" if returned is None else f"{len(results)} outputs"
            hint = " (num_outputs)" if count > 1 or len(results) > 1 else ""
            raise TypeError(f"{self.op.name} returned {got}, expected {count}{' output' if got == 'None' and count == 1 else ''}{hint}")
        return results

    def filling(self, outs: Sequence[Batch], size: int) -> tuple[int, Callable[[int], None]]:
        """Return the number of work items that fill the outputs, and the function that runs one."""

        def fill_sample(i: int) -> None:
            for k, result in enumerate(self.check_results(self.call_function(i), i)):
                _fill(f"output {k} of {self.op.name}", _sample(outs[k], i), result)

        def fill_all(_: int) -> None:
            for k, result in enumerate(self.check_results(self.call_function(None), None)):
                if len(result) != size:
                    raise ValueError(f"output {k} of {self.op.name} has {len(result)} samples, expected {size}")
                for i in range(size):
                    _fill(f"sample {i} of output {k} of {self.op.name}", _sample(outs[k], i), result[i])

        return (min(size, 1), fill_all) if self.op.batched else (size, fill_sample)

    def collecting(self, results: list[Any], size: int) -> tuple[int, Callable[[int], None]]:
        """Return the same for outputs of unknown shapes: ``results`` receives a tuple of arrays per sample."""

        def collect_sample(i: int) -> None:
            results[i] = [_as_array(x) for x in self.check_results(self.call_function(i), i)]

        def collect_all(_: int) -> None:
            outputs = self.check_results(self.call_function(None), None)
            for k, result in enumerate(outputs):
                if len(result) != size:
                    raise ValueError(f"output {k} of {self.op.name} has {len(result)} samples, expected {size}")
            results[:] = [[_as_array(result[i]) for result in outputs] for i in range(size)]

        return (min(size, 1), collect_all) if self.op.batched else (size, collect_sample)


def _per_output(name: str, value: Any, count: int) -> list[Any]:
    if count == 1:
        return [value]
    if value is None or isinstance(value, str | torch.dtype | types.DataType):
        return [value] * count
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError(f"python_function: {name} must have one entry for each of the {count} outputs, or be one for all, got {value!r}")
    return list(value)


def _as_shape(value: Any) -> Any:
    """Return the shape of an output: numbers as a list, a row for each sample or ``"same"`` unchanged."""
    if value is None or (isinstance(value, str) and value == "same") or isinstance(value, torch.Tensor | np.ndarray | Batch):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return [int(extent) for extent in value]
    raise ValueError(f'python_function: shape must be "same", a sequence of integers such as (3,), or a row of them per sample, got {value!r:.200}')


def _sample(value: Batch, i: int) -> torch.Tensor:
    return value.buffer[i] if value.ragged_shapes is None else value.part(i).view(value.ragged_shapes[i].tolist())


def _array(values: torch.Tensor, form: str | None) -> Any:
    if form == "torch" or (form is None and values.device.type == "cuda"):
        return values
    if form == "cupy":
        import cupy  # type: ignore[import-not-found]

        return cupy.from_dlpack(values)
    if values.device.type == "cuda":
        raise TypeError('python_function: the inputs are on a GPU; give form="torch" or form="cupy", or device="cpu"')
    array = values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()
    # A number, not an array of no dimensions, is what a function expects.
    if not array.ndim:
        return array[()]
    array.flags.writeable = False  # other operators may read the same memory
    return array


def _as_array(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, Tensor):
        return value.torch().cpu()
    return np.asarray(value)


def _check_dtype(what: str, value: Any, dtype: torch.dtype) -> None:
    found = value.dtype if isinstance(value, torch.Tensor) else types.to_dtype(value.dtype)
    if found != dtype:
        raise TypeError(f"{what} has type {types.dtype_name(found)}, expected {types.dtype_name(dtype)}; convert it in the function, or give dtype=")


def _fill(what: str, out: torch.Tensor, value: Any) -> None:
    # Python numbers take the output's type.
    value = torch.tensor(value, dtype=out.dtype) if isinstance(value, bool | int | float) else _as_array(value)
    # NumPy would broadcast silently.
    if tuple(value.shape) != tuple(out.shape):
        raise ValueError(f"{what} has the shape {tuple(value.shape)}, expected {tuple(out.shape)}; pass the right shape=")
    _check_dtype(what, value, out.dtype)
    if isinstance(value, torch.Tensor):
        out.copy_(value)
    else:
        np.copyto(out.numpy(), value)


def _on_device(name: str, k: int, results: list[Any], layout: str | None, target: torch.device) -> Batch:
    tensors = [tensor if isinstance(tensor, torch.Tensor) else torch.from_dlpack(tensor) for tensor in results]
    for i, tensor in enumerate(tensors):
        if tensor.device != target:
            raise TypeError(f"python_function: sample {i}: output {k} of {name} is on {tensor.device}, expected {target}")
    return batch([new_tensor(tensor.contiguous()) for tensor in tensors], layout=layout)


# Compiled graphs run the function as one opaque node.
_library = torch.library.Library("ndd", "FRAGMENT")
_library.define(
    "python_function(SymInt number, int inputs, str names, Tensor[] values, Tensor?[] shapes, str[] layouts, Tensor? words, Tensor(a!)[] out, "
    "Tensor?[] out_shapes) -> ()"
)


@torch.library.impl("ndd::python_function", "CPU", lib=_library)
def _(
    number: int,
    inputs: int,
    names: str,
    values: list[torch.Tensor],
    shapes: list[torch.Tensor | None],
    layouts: list[str],
    words: torch.Tensor | None,
    out: list[torch.Tensor],
    out_shapes: list[torch.Tensor | None],
) -> None:
    # The graph has a number, since a function is not a value that torch could store.
    op = _functions.get(number)
    if op is None:
        raise RuntimeError("the Python function of a compiled graph no longer exists")
    batches = [new_batch(*item) for item in zip(values, shapes, [x or None for x in layouts], strict=True)]
    per_sample = dict(zip([item for item in names.split(",") if item], batches[inputs:], strict=True))
    outs = [new_batch(*item) for item in zip(out, out_shapes, strict=True)]
    columns = _Columns(op, batches[:inputs], per_sample, {}, words)
    work = queue("python_function", *columns.filling(outs, outs[0].batch_size), [], False, ())
    if work is not None:
        work.wait()


@torch.library.register_fake("ndd::python_function", lib=_library)
def _(*_: Any) -> None:
    pass


def python_function(
    function: Callable[..., Any],
    /,
    *inputs: Any,
    num_outputs: int = 1,
    batched: bool = False,
    shape: Any = None,
    dtype: Any = None,
    layout: Any = None,
    form: Form | None = None,
    rng: bool | RNG = False,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    **arguments: Any,
) -> Any:
    """Call a Python function for every sample.

    With ``shape``, the call is queued like that of any other operator: it returns immediately, and threads run the function once the inputs are
    complete. Functions that release the GIL (most of NumPy, OpenCV and torch, Numba with ``nogil=True``) run side by side. Without ``shape`` the
    shapes of the results are unknown until the function has run, so the call waits for them. On a GPU the function is called immediately, and the
    kernels that it launches (torch, CuPy, Triton) are queued on the context's stream.

    >>> import numpy as np, torch_ndd as ndd
    >>> images = ndd.batch([np.full((2, 3), 7, np.uint8), np.full((1, 2), 9, np.uint8)])
    >>> def brighter(image, by):
    ...     return np.minimum(image.astype(np.int32) + by, 255).astype(np.uint8)
    >>> brightened = ndd.python_function(brighter, images, shape="same", by=ndd.batch([1, 250]))
    >>> [image.torch().tolist() for image in brightened]
    [[[8, 8, 8], [8, 8, 8]], [[255, 255]]]

    Args:
        function: Called with one array per input; returns an array, or a tuple with ``num_outputs`` of them. It must not write to its inputs.
        inputs: Tensors, Batches or arrays. A Tensor beside Batches is the same for every sample.
        num_outputs: Number of outputs.
        batched: Call the function once with all samples: an array (N, ...) per input, or a list of N arrays if their shapes differ. It returns the
            same.
        shape: Shape of the outputs: ``"same"`` for that of the first input, numbers for all samples, or int64 (N, dimensions) with a row per sample.
            A list with one for each of several outputs.
        dtype: Type of the outputs, by default that of the first input, or of the results where ``shape`` is not given. A list for several outputs.
        layout: Layout of the outputs, by default that of the first input where ``shape="same"``. A list for several outputs.
        form: Its arguments: ``"numpy"`` (read-only), ``"torch"`` or ``"cupy"``. By default NumPy arrays on the CPU, torch tensors on a GPU.
        rng: Pass the argument ``rng``, a ``numpy.random.Generator`` for this sample. Its seed comes from the generator of the thread, or from
            this one. The numbers do not depend on the order in which threads run.
        batch_size: Batch size, if there are no inputs.
        device: Where the function runs.
        arguments: Further arguments of the function. A Batch is one per sample; anything else is passed on unchanged.

    Returns:
        One output, or a tuple of several: Batches, or Tensors if no input is a Batch.

    Raises:
        TypeError: something that cannot be called, or outputs of another number or type.
        ValueError: outputs of other shapes; inputs of different batch sizes.
        Exception: what the function raises for a sample: a RuntimeError, or the same kind if it is a ValueError, TypeError, IndexError or
            MemoryError. It is raised where the result is used, names the sample and its file, and has the function's own exception as a cause.
    """
    op = PythonOperator(
        function, num_outputs=num_outputs, batched=batched, shape=shape, dtype=dtype, layout=layout, form=form, rng=bool(rng) or isinstance(rng, RNG)
    )
    return op(*inputs, batch_size=batch_size, device=device, rng=rng if isinstance(rng, RNG) else None, **arguments)


@overload
def python_operator(function: Callable[..., Any], /) -> PythonOperator: ...
@overload
def python_operator(
    *,
    num_outputs: int = 1,
    batched: bool = False,
    shape: Any = None,
    dtype: Any = None,
    layout: Any = None,
    form: Form | None = None,
    rng: bool = False,
) -> Callable[[Callable[..., Any]], PythonOperator]: ...
def python_operator(
    function: Callable[..., Any] | None = None,
    /,
    *,
    num_outputs: int = 1,
    batched: bool = False,
    shape: Any = None,
    dtype: Any = None,
    layout: Any = None,
    form: Form | None = None,
    rng: bool = False,
) -> Any:
    """Make an operator of a Python function: a decorator, with or without arguments. See :func:`python_function` for them.

    The operator takes Tensors, Batches and arrays, ``batch_size=``, ``device=`` and the function's own arguments; with ``rng=True`` also
    ``rng=``, a generator. With ``shape`` it can be part of a graph of ``torch.compile``, as one opaque node, with Batches as further arguments.

    >>> import numpy as np, torch_ndd as ndd
    >>> @ndd.python_operator(shape=(), dtype=ndd.float32)
    ... def mean(image):
    ...     return np.float32(image.mean())
    >>> mean(ndd.batch([[1, 2, 3], [4, 6]])).torch().tolist()
    [2.0, 5.0]
    """

    def decorate(function: Callable[..., Any]) -> PythonOperator:
        return PythonOperator(function, num_outputs=num_outputs, batched=batched, shape=shape, dtype=dtype, layout=layout, form=form, rng=rng)

    return decorate if function is None else decorate(function)
