# SPDX-License-Identifier: Apache-2.0
"""A call of an operator, from its arguments to its results: :func:`perform` binds the arguments, runs the body and launches the kernel."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import native
from ..context.device import DeviceLike, torch_device
from ..native import CPU
from ..native.graph_results import mark_result
from ..native.tracing import is_compiling
from ..suggestions import similar
from ..values.batch import Batch, new_batch
from ..values.dispatch import launch as launch_kernel
from ..values.dispatch import submit
from ..values.operand import Operand, layout_error, unwrap
from ..values.tensor import Tensor, as_tensor, new_tensor
from ..work.cuda_work import decode_work, on_decode_stream, on_stream, stream_work
from ..work.pending import ALL_SAMPLES, SAME_SAMPLE, Pending
from ..work.sources import UNKNOWN, name_source
from .arguments import Call, Role, check_plain, prepare_argument
from .definition import Launch, Operator, Packed, Record
from .planes import as_images, as_planes, image_layout, warn_about_planes

TAIL = ("batch_size", "device")  # parameters that every operator has
_OWN_ERRORS = frozenset((TypeError, ValueError, OverflowError, IndexError))
_NOT_WRAPPED = frozenset((int, float, bool, str, list, tuple, type(None)))  # nearly all arguments: without the call of unwrap()
_NO_SHAPES = torch.empty(0, dtype=torch.int64, device="cpu")  # of a dense batch in a list


def perform(
    op: Operator,
    inputs: tuple[Any, ...],
    arguments: dict[str, Any],
    words: torch.Tensor | None = None,
    records: list[Record] | None = None,
) -> Any:
    """Call an operator.

    Args:
        op: The operator.
        inputs: Positional arguments.
        arguments: Keyword arguments. The dict is modified.
        words: The words of a random operator, if they are drawn already.
        records: Receives the record of the launch, if there is one.
    """
    call, values, arguments, device = _bind(op, inputs, arguments)
    call.records = records
    if words is not None:
        arguments.pop("rng", None)
        call.words = words
    return _execute(op, call, values, arguments, device)


def perform_with_constants(
    op: Operator,
    constants: dict[str, Any],
    inputs: Sequence[Batch],
    arguments: dict[str, Batch],
    words: torch.Tensor | None,
    batch_size: int | None,
    device: DeviceLike | None,
    records: list[Record] | None,
) -> Any:
    """Do the same for inputs and arguments that are batches, beside constants that :func:`prepare_constants` has prepared."""
    call = Call(op.name, compiling=False)
    call.constants, call.words, call.records = constants, words, records
    on_cpu = device is None
    for k, batch in enumerate(inputs):
        call.join(batch, k)
        on_cpu = on_cpu and batch.buffer.device == CPU
    for name, batch in arguments.items():
        call.join(batch, name)
    if batch_size is not None:
        native.check_samples(op.name, batch_size)
        call.is_batch, call.batch_size = True, batch_size
    return _execute(op, call, inputs, arguments, device, CPU if on_cpu else None)


def prepare_constants(op: Operator, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of an operator in the form that its body takes, defaults included."""
    call, prepared = Call(op.name), dict(op.prepared)
    for name, value in constants.items():
        argument = op.arguments.get(name) or op.positional[name]
        convert = check_plain if argument.role is Role.plain else prepare_argument
        prepared[name] = convert(call, argument, value)
    return prepared


def prepare_launch(op: Operator, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Call, list[Batch | None], Launch]:
    """Return what a call would launch, without running it: the call, the inputs in the body's form, and the body's result."""
    call, values, arguments, device = _bind(op, inputs, arguments)
    batches, launch = _run_body(op, call, values, arguments, _find_target(op.name, values, device), copies=False)
    assert isinstance(launch, Launch)
    _set_outputs(launch, call)
    return call, batches, launch


# --- The steps of a call ---


def _bind(op: Operator, inputs: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[Call, list[Operand | None], dict[str, Any], DeviceLike | None]:
    """Return the call, its inputs, its arguments by name, and the requested device."""
    max_inputs = op.inputs + len(op.positional)
    if not op.required <= len(inputs) <= max_inputs:
        expected = str(max_inputs) if op.required == max_inputs else f"{op.required} to {max_inputs}"
        raise TypeError(f"{op.name}() takes {expected} positional inputs, got {len(inputs)}")
    # These two are of the call; everything that remains must be an argument of the operator.
    batch_size, device = arguments.pop("batch_size", None), arguments.pop("device", None)
    for name in arguments:
        if name not in op.arguments:
            raise TypeError(f"{op.name}() got an unexpected argument {name!r}{similar(name, [*op.arguments, *TAIL])}")
    if len(inputs) > op.inputs:
        arguments.update(zip(op.positional, inputs[op.inputs :], strict=False))
        inputs = inputs[: op.inputs]
    # None stands for a default, so an argument without one is missing if it is None.
    for name in op.missing:
        if arguments.get(name) is None:
            raise TypeError(f"{op.name}() needs the argument {name!r}")
    call = Call(op.name)
    # Before as_tensor(), which rejects a path, for example.
    if op.options.converts is not None and not isinstance(inputs[0], Operand):
        inputs = (_convert_input(op, inputs[0]), *inputs[1:])
    values = [value if isinstance(value, Operand) else _as_input(op.name, k, value, k < op.required or op.variadic) for k, value in enumerate(inputs)]
    # Every Batch takes part in the batch size before the first argument is converted: a list of N numbers is one number per sample only if N is it.
    for k, value in enumerate(values):
        if isinstance(value, Batch):
            call.join(value, k)
    for name, argument in arguments.items():
        value = argument if call.compiling or type(argument) in _NOT_WRAPPED else unwrap(argument)
        if value is not argument:
            arguments[name] = value
        if isinstance(value, Batch):
            call.join(value, name)
    if batch_size is not None:
        _set_batch_size(call, batch_size)
    return call, values, arguments, device


def _execute(
    op: Operator,
    call: Call,
    values: Sequence[Operand | None],
    arguments: dict[str, Any],
    device: DeviceLike | None,
    target: torch.device | None = None,
) -> Any:
    """Run the call on ``target``, by default the requested device or that of its inputs. An error that names a sample names its file too."""
    try:
        if target is None:
            target = _find_target(op.name, values, device)
        # A graph has no streams: Inductor launches its kernels on torch's current one.
        if target == CPU or target.type != "cuda" or call.compiling:
            return _run(op, call, values, arguments, target)
        # The whole call runs under its stream: torch's allocator reuses memory in the order of the stream on which it was allocated.
        if op.options.host_inputs:
            with on_decode_stream(target):
                return _run(op, call, values, arguments, target)
        operands = [value for value in (*values, *arguments.values()) if isinstance(value, Operand)]
        with on_stream(target, [(operand.buffer, operand.pending) for operand in operands], any(operand.caller_owned for operand in operands)):
            return _run(op, call, values, arguments, target)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if not call.compiling:
            name_source(error, first_sources(values))
        raise


def _run_body(
    op: Operator, call: Call, values: Sequence[Operand | None], arguments: dict[str, Any], target: torch.device, copies: bool = True
) -> tuple[list[Batch | None], Any]:
    """Return the inputs in the body's form, and its result: a :class:`Launch`, or a Batch for an operator without a kernel."""
    options = op.options
    # Before the conversion to batches: an error in an input is then raised as that of the input, not of this operator's body.
    if options.reads_values:
        for value in values:
            if value is not None:
                value.wait()
    # Decoders read host memory although they fill a GPU's; only the outputs are at the target.
    place = CPU if options.host_inputs else target
    if options.host_inputs:
        _check_on_host(op, values)
    batches = [None if value is None else _to_batch(call, value, place, copies and k not in op.shared) for k, value in enumerate(values)]
    if options.layouts is not None and batches and batches[0] is not None:
        first = batches[0]
        batches[0] = _match_layout(op.name, options.layouts, first)
        # Planes have become images: over the same memory, by another view of it or by other shapes. A new layout alone keeps both.
        call.of_planes = batches[0].buffer is not first.buffer or batches[0].ragged_shapes is not first.ragged_shapes
        if op.variadic:
            batches[1:] = [_match_layout(op.name, options.layouts, batch) for batch in batches[1:] if batch is not None]
    call.per_frame = options.per_frame
    prepared = _prepare_arguments(op, call, arguments, _count_frames(op, call, batches) or options.per_frame)
    if call.of_planes and (layout := prepared.get("output_layout")):
        # The caller names the layout of planes, the body that of images; planes are returned unless the layout has channels of its own.
        call.of_planes = "C" not in layout
        prepared["output_layout"] = layout + "C" if call.of_planes else layout
    # Without an input the body cannot see how many samples there are, nor where they belong.
    if not op.inputs or not op.required:
        prepared["batch_size"] = call.batch_size
        prepared["device"] = target
    elif options.host_inputs:
        prepared["device"] = target
    positional: list[Any] = batches
    # The body declares positional arguments after all inputs, so inputs left out are passed as None.
    if op.positional:
        positional = [*batches, *[None] * (op.inputs - len(batches)), *[prepared.pop(name) for name in op.positional]]
    try:
        output = op.body(*positional, **prepared)
    except MemoryError as error:
        raise MemoryError(f"{op.name}: {error}") from None
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        # Errors of Python's own functions do not name the operator. Subclasses, such as those of readers, are left alone.
        if call.compiling or type(error) not in _OWN_ERRORS or op.name in str(error):
            raise
        raise type(error)(f"{op.name}: {error}") from error
    if isinstance(output, Batch) and op.kernel is not None:
        if op.automatic is None:
            raise TypeError(
                f"{op.name}: the kernel has other parameters than the function; return launch() with its arguments, or rebuild the library"
            )
        # Besides the batches, the kernel gets nothing but the arguments.
        first = batches[0] if batches else None
        any_shape = first is not None and first.ragged_shapes is not None and output.ragged_shapes is first.ragged_shapes
        output = Launch(output, [prepared[name] for name in op.automatic], any_shape=any_shape)
    return batches, output


def _run(op: Operator, call: Call, values: Sequence[Operand | None], arguments: dict[str, Any], target: torch.device) -> Any:
    """Run the body, launch the kernel and return Tensors or Batches that may be pending."""
    batches, launch = _run_body(op, call, values, arguments, target)
    on_gpu = target.type == "cuda" and not call.compiling
    # 1. Nothing to launch: the result is a view of the input, or the body has computed it.
    if isinstance(launch, Batch):
        if on_gpu and not _shares_memory(launch, batches[0]):
            launch.pending = stream_work([launch.buffer])
            return launch if call.is_batch else _as_tensor(launch)
        return _as_view(call, values[0], batches[0], launch)
    # The body has computed everything itself, as decoders do that leave bad samples out.
    if isinstance(launch.out, tuple) and not launch.out:
        return as_results(call, launch.also)
    # 2. The values that the kernel reads, besides those that the call's inputs and arguments have added to call.reads.
    outputs = _set_outputs(launch, call)
    sources = UNKNOWN if call.compiling else first_sources(batches)
    for value in launch.inputs:
        if value.pending is not None and not any(value is batch for batch in batches):
            call.read(value)
    batches = launch.inputs or batches
    # 3. Compute the outputs. In a graph a formula is better than the kernel: the compiler fuses it with its neighbors.
    formula_output = _run_formula(op, call, launch, batches, outputs) if call.compiling else None
    pending = None
    if formula_output is not None:
        outputs = (new_batch(formula_output, outputs[0].ragged_shapes, outputs[0].layout, shared_extents=outputs[0].shared_extents),)
    else:
        if launch.mixes:
            call.reads = [(read, ALL_SAMPLES if sample == SAME_SAMPLE else sample) for read, sample in call.reads]
        kernel_arguments = _input_arguments(op, batches)
        kernel_arguments += launch.args
        for output in outputs:
            kernel_arguments += output.buffer, output.ragged_shapes
        # The record refers to the batches of this call. Patterns drop them, so that no plan keeps memory.
        if call.records is not None:
            call.records.append(Record(op, launch, batches, kernel_arguments, outputs, outputs[0]._layout, call.words))
        pending = _launch_kernel(op, call, target, kernel_arguments, sources, launch, outputs)
    # 4. The results: what is pending on the kernel's work, which files the samples come from, and planes for planes.
    outputs = launch.views or outputs
    if on_gpu:
        if launch.event is not None:
            pending = decode_work(_find_filled(launch, outputs, target), launch.event, pending)
        elif op.options.host_inputs:
            pending = stream_work(_find_filled(launch, outputs, target))
        # What the body computed on the host is finished already.
        for output in launch.also:
            output.pending = pending if output.buffer.device == target else None
    for output in outputs:
        output.pending = pending
    if sources is not UNKNOWN and not launch.mixes:
        for output in (*outputs, *launch.also):
            if output.sources is UNKNOWN and output.batch_size == call.batch_size:
                output.sources = sources
    if call.of_planes:
        outputs = tuple(map(as_planes, outputs))
    return as_results(call, (*outputs, *launch.also))


def _find_filled(launch: Launch, outputs: Sequence[Batch], target: torch.device) -> list[torch.Tensor]:
    """Return what a call fills on a GPU."""
    return [output.buffer for output in (*(launch.views or outputs), *launch.also) if output.buffer.device == target]


def _launch_kernel(
    op: Operator,
    call: Call,
    target: torch.device,
    arguments: Sequence[Any],
    sources: Sequence[str],
    launch: Launch,
    outputs: Sequence[Batch],
) -> Pending | None:
    """Submit the kernel to the CPU stream, launch it on the context's CUDA stream, or add it to the graph that is being traced."""
    if call.compiling:
        op.kernel(*arguments)
        return None
    if target != CPU and not op.options.host_inputs:
        return launch_kernel(op.kernel, arguments, call.reads, call.caller_owned, _find_filled(launch, outputs, target), sources)
    return submit(op.kernel, arguments, call.reads, call.caller_owned, sources)


# --- Inputs: any values of the program become batches of one size, on one device, with an allowed layout ---


def _as_input(op: str, position: int, value: Any, required: bool) -> Tensor | Batch | None:
    """Return an input as a Tensor, or as a Batch if it is a tensor list of a pipeline."""
    if value is None:
        if required:
            raise TypeError(f"{op}: input {position} must be a Tensor, a Batch or an array, got None")
        return None
    try:
        unwrapped = unwrap(value)
        return unwrapped if isinstance(unwrapped, Batch) else as_tensor(unwrapped)
    except (TypeError, ValueError, RuntimeError) as error:
        # What a reader with one output yields; the error of stacking its samples would not say so.
        if isinstance(value, list | tuple) and any(isinstance(element, Batch) for element in value):
            raise TypeError(
                f"{op}: input {position} is a {type(value).__name__} of {len(value)} values with a Batch; pass one of them: steps of readers "
                "are tuples, also of one output (for (jpegs,) in reader.next_epoch(...))"
            ) from None
        raise type(error)(f"{op}: input {position}: {error}") from None


def _convert_input(op: Operator, value: Any) -> Any:
    """Convert a first input that is neither a Tensor nor a Batch as the operator's option says, such as a path to the contents of its file."""
    assert op.options.converts is not None
    try:
        converted = op.options.converts(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"{op.name}: input 0: {error}") from None
    return value if converted is None else converted


def _set_batch_size(call: Call, batch_size: Any) -> None:
    """Set the batch size of a call."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, numbers.Integral):
        raise TypeError(f"{call.name}: batch_size must be an int, got {batch_size!r}")
    if batch_size < 0:
        raise ValueError(f"{call.name}: batch_size must not be negative, got {batch_size}")
    native.check_samples(call.name, int(batch_size))
    if call.is_batch and call.batch_size != batch_size:
        raise ValueError(
            f"{call.name}: Inconsistent batch size: batch_size={batch_size}, but another argument is a Batch of {call.batch_size} samples"
        )
    call.is_batch, call.batch_size = True, int(batch_size)


def _check_on_host(op: Operator, values: Sequence[Operand | None]) -> None:
    """Raise RuntimeError unless the inputs are in host memory."""
    for value in values:
        if value is not None and value.buffer.device != CPU:
            raise RuntimeError(f"{op.name}: the input must be in host memory even if the output is on a GPU, but it is on {value.buffer.device}")


def _find_target(op: str, values: Sequence[Operand | None], device: DeviceLike | None) -> torch.device:
    """Return the requested device, by default that of the inputs."""
    if device is not None:
        return torch_device(device, op)
    target = CPU
    for value in values:
        if value is not None and value.buffer.device != CPU:
            if target != CPU and value.buffer.device != target:
                raise RuntimeError(f"{op}: Got inputs with different device ids: {target} and {value.buffer.device}; move one with .gpu(index)")
            target = value.buffer.device
    return target


def _to_batch(call: Call, value: Operand, target: torch.device, copies: bool) -> Batch:
    """Return an input in the body's form: a Batch with the call's number of samples, on the call's device."""
    call.caller_owned = call.caller_owned or value.caller_owned
    if value.buffer.device != target:
        value = value.to_device(target)  # type: ignore[attr-defined]
    # A graph cannot wait for a handle, so it gets a copy that is made when the graph runs.
    if call.compiling and value.pending is not None:
        value = value.settle()
    if value.pending is not None:
        call.read(value)
    if isinstance(value, Batch):
        return value
    values = value.buffer
    if call.is_batch:
        value.wait()
        # A sample beside batches: the kernel reads it with a stride of 0 where it can, otherwise it is repeated.
        batch = new_batch(_repeat(call, values) if copies else values.expand(call.batch_size, *values.shape), None, value._layout)
    else:
        batch = new_batch(values[None], None, value._layout)
    if value.sources is not UNKNOWN and not call.compiling:
        batch.sources = tuple(value.sources) * call.batch_size
        batch.holds_places = value.holds_places
    batch.pending = value.pending
    return batch


def _repeat(call: Call, values: torch.Tensor) -> torch.Tensor:
    try:
        return native.empty((call.batch_size, *values.shape), values.dtype, values.device).copy_(values)
    except MemoryError as error:
        raise MemoryError(f"{call.name}: {error}") from None


def _match_layout(op: str, layouts: tuple[str, ...], value: Batch) -> Batch:
    """Return a Batch whose layout is allowed; without a layout it gets the allowed one with its number of dimensions; planes become images."""
    if value._layout is not None and value._layout in layouts:
        return value
    dimensions = value.ndim
    # The order matters: an operator that has HW among its layouts takes planes unchanged.
    if (value._layout is not None or dimensions == 2) and (of_images := image_layout(layouts, value)) is not None:
        return as_images(value, of_images)
    if value._layout is not None:
        raise layout_error(op, value, layouts)
    # Only the number of dimensions is known, so that CHW without a layout passes as HWC: hence the warning below.
    layout = next((known for known in layouts if len(known) == dimensions), None)
    if layout is None:
        hint = "; encoded files must be decoded first, for instance by ndd.decoders.image" if dimensions == 1 and value.dtype is torch.uint8 else ""
        raise ValueError(f"{op}: The number of dimensions {dimensions} does not match any of the allowed layouts: {', '.join(layouts)}{hint}")
    if layout == "HWC":
        warn_about_planes(op, value)
    labeled = new_batch(value.buffer, value.ragged_shapes, layout, value.pending, value.caller_owned, value.shared_extents)
    if not is_compiling():
        labeled.sources = value.sources
    return labeled


# --- Arguments ---


def _count_frames(op: Operator, call: Call, inputs: Sequence[Batch | None]) -> bool:
    """Return whether the call has frames: those of the first input with frames. A ``per_frame`` operator applies an input of one frame to all."""
    # Most operators compute frames like samples: inputs determine how many there are, and arguments must agree.
    call.fixed = not op.options.per_frame
    for k, batch in enumerate(inputs):
        if batch is not None and (batch._layout or "").startswith("F") and (call.frames is None or op.options.per_frame):
            call.agree(f"input {k}", batch.frame_counts())
    return call.frames is not None


def _prepare_arguments(op: Operator, call: Call, arguments: dict[str, Any], has_frames: bool) -> dict[str, Any]:
    """Return all keyword arguments in the form that the body takes. An explicit None means the default."""
    if call.compiling:
        # Constants are created inside the graph: tensors that were prepared outside would become inputs of it.
        prepared = {**op.defaults, **{name: value for name, value in arguments.items() if value is not None}}
        for argument in op.packed:
            if prepared[argument.name] is not None or argument.role is Role.random:
                prepared[argument.name] = prepare_argument(call, argument, prepared[argument.name], has_frames)
    else:
        prepared = dict(op.prepared if call.constants is None else call.constants)
    for name, value in arguments.items():
        if value is None:
            continue
        argument = op.arguments.get(name) or op.positional[name]
        if argument.role is Role.plain:
            prepared[name] = check_plain(call, argument, value)
        elif not call.compiling:
            prepared[name] = prepare_argument(call, argument, value, has_frames)
            if argument.role is Role.random:
                call.words = prepared[name]
    # Every call of a random operator draws exactly once, so that the position of a generator follows from the number of calls.
    if call.words is not None:
        prepared["rng"] = call.words
    elif op.draws and not call.compiling and arguments.get("rng") is None:
        prepared["rng"] = call.words = prepare_argument(call, op.arguments["rng"], None)
    return prepared


def _input_arguments(op: Operator, batches: Sequence[Batch | None]) -> list[Any]:
    """Return the inputs as the kernel takes them: values and shapes of each, or a list of all values and one of all shapes."""
    if op.variadic:
        return [
            [None if batch is None else batch.buffer for batch in batches],
            [_NO_SHAPES if batch is None or batch.ragged_shapes is None else batch.ragged_shapes for batch in batches],
        ]
    arguments: list[Any] = []
    for batch in batches:
        arguments += (None, None) if batch is None else (batch.buffer, batch.ragged_shapes)
    # Optional inputs that were left out: the kernel has parameters for them.
    arguments += [None] * (2 * (op.inputs - len(batches)))
    return arguments


# --- Formulas of compiled graphs ---


def _run_formula(op: Operator, call: Call, launch: Launch, batches: Sequence[Batch | None], outputs: Sequence[Batch]) -> torch.Tensor | None:
    """Return the output in torch operations; None if the kernel should compute it."""
    formula = op.options.formula
    if formula is None or not launch.fusable:
        return None
    ragged = any(batch is not None and batch.ragged_shapes is not None for batch in (*batches, *outputs))
    if ragged:
        first = batches[0]
        if not op.options.ragged_formula or first is None or first.ragged_shapes is None or outputs[0].ragged_shapes is None:
            return None
        inputs: list[Any] = [Packed(first.buffer, first.ragged_shapes)]
    else:
        inputs = [None if batch is None else batch.buffer for batch in batches]
    # The compiler folds numbers, for example a brightness of 1, but not the elements of tensors.
    arguments = [_number_behind(call, argument) for argument in launch.args]
    output = formula(*([inputs] if op.variadic else inputs), *arguments, dtype=outputs[0].dtype)
    return output if output is None or ragged else mark_result(output)


def _number_behind(call: Call, argument: Any) -> Any:
    """Return the Python number that an argument of the kernel was prepared from, if any: the graph has it as a constant then."""
    if isinstance(argument, torch.Tensor):
        for tensor, number in call.numbers:
            if tensor is argument:
                return number
    return argument


# --- Outputs ---


def _set_outputs(launch: Launch, call: Call) -> tuple[Batch, ...]:
    """Return the outputs, now that the number of frames is known."""
    out = launch.out
    if not isinstance(out, Batch | tuple):
        out = launch.out = out(call.frames)
    return out if isinstance(out, tuple) else (out,)


def _shares_memory(output: Batch, batch: Batch | None) -> bool:
    """Return whether a body's result has its input's memory. It is a copy where an element would be misaligned."""
    return batch is not None and output.buffer.untyped_storage().data_ptr() == batch.buffer.untyped_storage().data_ptr()


def _as_view(call: Call, value: Operand | None, batch: Batch | None, output: Batch) -> Tensor | Batch:
    """Return a body's view of its first input's memory, as pending as the input and owned by the same caller."""
    assert value is not None
    assert batch is not None
    # A copy to another device belongs to the library, whoever owns the source.
    caller_owned = value.caller_owned and value.buffer.device == batch.buffer.device
    if not call.compiling and output.sources is UNKNOWN and output.batch_size == call.batch_size:
        output.sources = batch.sources
    if call.is_batch:
        output.pending, output.caller_owned = batch.pending, caller_owned and isinstance(value, Batch)
        return output
    assert isinstance(value, Tensor)
    tensor = _as_tensor(output)
    tensor.pending, tensor._sample, tensor.caller_owned = value.pending, value._sample, caller_owned
    return tensor


def _as_tensor(output: Batch) -> Tensor:
    """Return the only sample of a batch."""
    # The sample was skipped: there is nothing that could be returned in its place.
    if not output.batch_size and output.failures:
        raise RuntimeError(f"{output.failures.op}: a single sample cannot be skipped: {output.errors[0].reason}")
    values = output.buffer[0] if output.ragged_shapes is None else output.buffer.view(output.ragged_shapes[0].tolist())
    tensor = new_tensor(values, output._layout, output.pending)
    if output.sources is not UNKNOWN:
        tensor.sources = output.sources
    if output.failures:
        tensor.failures = output.failures
    return tensor


def as_results(call: Call, batches: Sequence[Batch]) -> Any:
    """Return results to the caller: as Tensors if no input was a Batch, and a single result without a tuple."""
    results = [batch if call.is_batch else _as_tensor(batch) for batch in batches]
    return results[0] if len(results) == 1 else tuple(results)


def first_sources(values: Sequence[Operand | None]) -> Sequence[str]:
    """Return the sources of the first value with known sources."""
    for value in values:
        if value is not None and value.sources is not UNKNOWN:
            return value.sources
    return UNKNOWN


# --- Operators without a body ---


def bind_batches(
    name: str, inputs: Sequence[Any], arguments: Mapping[str, Any], batch_size: int | None, device: DeviceLike | None
) -> tuple[Call, list[Batch], torch.device]:
    """Return the call of an operator that has no body, its inputs as batches of one size on one device, and the device."""
    call = Call(name)
    values = [value if isinstance(value, Operand) else _as_input(name, k, value, True) for k, value in enumerate(inputs)]
    for key, value in (*enumerate(values), *arguments.items()):
        if isinstance(value, Batch):
            call.join(value, key)
    if batch_size is not None:
        _set_batch_size(call, batch_size)
    target = _find_target(name, values, device)
    return call, [_to_batch(call, value, target, False) for value in values if value is not None], target
