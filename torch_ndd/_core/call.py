# SPDX-License-Identifier: Apache-2.0
"""One call of an operator, from its arguments to its results."""

import difflib
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import native
from .arguments import Call, Role, plain, prepared
from .batch import Batch, new_batch
from .cuda_work import decode_work, on_decode_stream, on_stream, stream_work
from .definition import Operator
from .device import DeviceLike, torch_device
from .dispatch import submit
from .operand import Operand
from .pending import ALL_SAMPLES, SAME_SAMPLE, Pending
from .tensor import Tensor, as_tensor, new_tensor

TAIL = ("batch_size", "device")  # parameters that every operator has


@dataclass
class Launch:
    """The result of a body whose kernel takes other arguments than the function.

    Attributes:
        out: The outputs; ``()`` if the body has computed everything itself, as ``also``. For a ``per_frame`` operator it may be a function of the
            number of frames that inputs and arguments agree on: None, a number or int64 (N,) with one per sample.
        args: The kernel's arguments.
        also: Results that need no kernel.
        inputs: Inputs that replace those of the call.
        fusable: Whether the operator's formula holds for these arguments.
        views: Parts of the output that are returned instead of it.
        event: For an operator with host inputs on a GPU: the event that the kernel records after issuing everything.
        mixes: Whether a sample of the result depends on other samples of the input.
    """

    out: Batch | tuple[Batch, ...] | Callable[[Any], Batch]
    args: Sequence[Any] = ()
    also: tuple[Batch, ...] = ()
    inputs: tuple[Batch, ...] = ()
    fusable: bool = True
    views: tuple[Batch, ...] = ()
    mixes: bool = False
    event: "torch.cuda.Event | None" = None


def launch(
    out: Batch | tuple[Batch, ...] | Callable[[Any], Batch],
    args: Sequence[Any] = (),
    **more: Any,
) -> Any:
    """Return a :class:`Launch`, from a body that is annotated with what the operator returns."""
    return Launch(out, args, **more)


def ready(op: Operator, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return constants with the defaults in the form that the body takes, for many calls of :func:`perform` with them."""
    call, made = Call(op.name), dict(op.prepared)
    for key, value in constants.items():
        argument = op.arguments.get(key) or op.positional[key]
        made[key] = plain(call, argument, value) if argument.role is Role.plain else prepared(call, argument, value, False)
    return made


def perform(op: Operator, inputs: tuple[Any, ...], given: dict[str, Any], constants: dict[str, Any] | None = None) -> Any:
    """Call an operator: bind the arguments, run the body, queue the kernel. ``constants`` are further arguments, made by :func:`ready`."""
    call, values, given, device = _bound(op, inputs, given, constants is None)
    call.constants = constants
    target = _target_device(op.name, values, device)
    if target.type != "cuda" or call.compiling:
        return _results(op, call, values, given, target)
    if op.options.host_inputs:
        with on_decode_stream(target):
            return _results(op, call, values, given, target)
    operands = [value for value in (*values, *given.values()) if isinstance(value, Operand)]
    with on_stream(target, [(one._values, one._pending) for one in operands], any(one._external for one in operands)):
        return _results(op, call, values, given, target)


def planned(op: Operator, inputs: tuple[Any, ...], given: dict[str, Any]) -> tuple[Call, list[Batch | None], Launch]:
    """Return what a call would launch, without running it: the call, the inputs as the body sees them, and the body's result."""
    call, values, given, device = _bound(op, inputs, given)
    batches, launch = _body(op, call, values, given, _target_device(op.name, values, device), copies=False)
    assert isinstance(launch, Launch)
    _outputs(launch, call)
    return call, batches, launch


def _bound(
    op: Operator, inputs: tuple[Any, ...], given: dict[str, Any], complete: bool = True
) -> tuple[Call, list[Operand | None], dict[str, Any], DeviceLike | None]:
    """Return the call, its inputs, and its arguments by name; ``complete`` if they are all arguments."""
    most = op.inputs + len(op.positional)
    if not op.required <= len(inputs) <= most:
        expected = str(most) if op.required == most else f"{op.required} to {most}"
        raise TypeError(f"{op.name}() takes {expected} positional inputs, got {len(inputs)}")
    batch_size, device = given.pop("batch_size", None), given.pop("device", None)
    for key in given:
        if key not in op.arguments:
            raise TypeError(f"{op.name}() got an unexpected argument {key!r}{_similar(key, [*op.arguments, *TAIL])}")
    if len(inputs) > op.inputs:
        given.update(zip(op.positional, inputs[op.inputs :], strict=False))
        inputs = inputs[: op.inputs]
    for key in op.missing if complete else ():
        if given.get(key) is None:
            raise TypeError(f"{op.name}() needs the argument {key!r}")
    call = Call(op.name)
    values = [one if isinstance(one, Operand) else _as_input(op.name, k, one, k < op.required or op.variadic) for k, one in enumerate(inputs)]
    for key, value in (*enumerate(values), *given.items()):
        if isinstance(value, Batch):
            call.join(value, key)
    if batch_size is not None:
        _set_batch_size(call, batch_size)
    return call, values, given, device


def _body(
    op: Operator, call: Call, values: Sequence[Operand | None], given: dict[str, Any], target: torch.device, copies: bool = True
) -> tuple[list[Batch | None], Any]:
    """Return the inputs as the body sees them, and its result: a :class:`Launch`, or a Batch for an operator without a kernel."""
    options = op.options
    if options.reads_values:
        for value in values:
            if value is not None:
                value._ready()
    place = _CPU if options.host_inputs else target
    if options.host_inputs:
        _check_on_host(op, values)
    batches = [None if value is None else _as_batch(call, value, place, copies and k not in op.shared) for k, value in enumerate(values)]
    if options.layouts is not None and batches and batches[0] is not None:
        batches[0] = _with_layout(op.name, options.layouts, batches[0])
        if op.variadic:
            batches[1:] = [_with_layout(op.name, options.layouts, one) for one in batches[1:] if one is not None]
    call.per_frame = options.per_frame
    arguments = _prepare(op, call, given, _count_frames(op, call, batches) or options.per_frame)
    if not op.inputs or not op.required:
        arguments = {**arguments, "batch_size": call.batch_size, "device": target}
    elif options.host_inputs:
        arguments = {**arguments, "device": target}
    places: list[Any] = []
    if op.positional:
        places = [*[None] * (op.inputs - len(batches)), *[arguments.pop(key) for key in op.positional]]
    try:
        made = op.body(*batches, *places, **arguments)
    except MemoryError as error:
        raise MemoryError(f"{op.name}: {error}") from None
    if isinstance(made, Batch) and op.kernel is not None:
        if op.automatic is None:
            raise TypeError(
                f"{op.name}: the kernel has other parameters than the function; return launch() with its arguments, or rebuild the library"
            )
        made = Launch(made, [arguments[key] for key in op.automatic])
    return batches, made


def _results(op: Operator, call: Call, values: Sequence[Operand | None], given: dict[str, Any], target: torch.device) -> Any:
    """Run the body, queue the kernel and return Tensors or Batches that may be pending."""
    batches, launch = _body(op, call, values, given, target)
    if isinstance(launch, Batch):
        return _as_view(call, values[0], batches[0], launch)
    if isinstance(launch.out, tuple) and not launch.out:
        return _one_or_all([out if call.is_batch else _single(out) for out in launch.also])
    outs = _outputs(launch, call)
    for one in launch.inputs:
        if one._pending is not None and not any(one is batch for batch in batches):
            call.read(one)
    batches = launch.inputs or batches
    computed = _by_formula(op, call, launch, batches, outs) if call.compiling else None
    if computed is not None:
        outs = (new_batch(computed, None, outs[0].layout),)
        pending = None
    else:
        if launch.mixes:
            call.reads = [(pending, ALL_SAMPLES if sample == SAME_SAMPLE else sample) for pending, sample in call.reads]
        if op.variadic:
            tensors = [[b and b._values for b in batches], [_NO_SHAPES if b is None or b._shapes is None else b._shapes for b in batches]]
        else:
            padding = [None] * (op.inputs - len(batches))
            tensors = [x for b in (*batches, *padding) for x in ((None, None) if b is None else (b._values, b._shapes))]
        filled = [x for out in outs for x in (out._values, out._shapes)]
        pending = _run(op, call, target, (*tensors, *launch.args, *filled), getattr(next(iter(batches), None), "_sources", ()))
    outs = launch.views or outs
    if target.type == "cuda" and not call.compiling:
        made = [out._values for out in (*outs, *launch.also) if out._values.device == target]
        pending = stream_work(made) if launch.event is None else decode_work(made, launch.event, pending)
        for out in launch.also:
            out._pending = pending if out._values.device == target else None
    for out in outs:
        out._pending = pending
    return _one_or_all([out if call.is_batch else _single(out) for out in (*outs, *launch.also)])


def _one_or_all(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _by_formula(op: Operator, call: Call, launch: Launch, batches: Sequence[Batch | None], outs: Sequence[Batch]) -> torch.Tensor | None:
    """Return the output in torch operations; None if the kernel should compute it."""
    formula = op.options.formula
    if formula is None or not launch.fusable or any(one is not None and one._shapes is not None for one in (*batches, *outs)):
        return None
    inputs: list[Any] = [b and b._values for b in batches]
    arguments = [_number_of(call, one) for one in launch.args]
    return formula(*([inputs] if op.variadic else inputs), *arguments, dtype=outs[0].dtype)


def _count_frames(op: Operator, call: Call, inputs: Sequence[Batch | None]) -> bool:
    """Return whether the call has frames: those of the first input that has some. A ``per_frame`` operator applies an input of one frame to all."""
    call.fixed = not op.options.per_frame
    for k, one in enumerate(inputs):
        if one is not None and (one._layout or "").startswith("F") and (call.frames is None or op.options.per_frame):
            call.agree(f"input {k}", one._frames())
    return call.frames is not None


def _outputs(launch: Launch, call: Call) -> tuple[Batch, ...]:
    """Return the outputs, once the number of frames is known."""
    out = launch.out
    if not isinstance(out, Batch | tuple):
        out = launch.out = out(call.frames)
    return out if isinstance(out, tuple) else (out,)


def _number_of(call: Call, argument: Any) -> Any:
    """Return the number that an argument of the kernel was made from, if any."""
    if isinstance(argument, torch.Tensor):
        for made, number in call.numbers:
            if made is argument:
                return number
    return argument


def _prepare(op: Operator, call: Call, given: dict[str, Any], has_frames: bool) -> dict[str, Any]:
    """Return all keyword arguments in the form that the body takes. An explicit None means the default."""
    if call.compiling:  # constants are created inside the graph
        arguments = {**op.defaults, **{key: value for key, value in given.items() if value is not None}}
        for argument in op.packed:
            if arguments[argument.name] is not None or argument.role is Role.random:
                arguments[argument.name] = prepared(call, argument, arguments[argument.name], has_frames)
    else:
        arguments = dict(op.prepared if call.constants is None else call.constants)
    for key, value in given.items():
        if value is None:
            continue
        argument = op.arguments.get(key) or op.positional[key]
        if argument.role is Role.plain:
            arguments[key] = plain(call, argument, value)
        elif not call.compiling:
            arguments[key] = prepared(call, argument, value, has_frames)
    if op.draws and not call.compiling and given.get("rng") is None:
        arguments["rng"] = prepared(call, op.arguments["rng"], None, False)
    return arguments


def _run(op: Operator, call: Call, target: torch.device, arguments: Sequence[Any], sources: Sequence[str]) -> Pending | None:
    """Run the kernel: queue it on the CPU stream, launch it on the context's CUDA stream, or add it to the graph that is being traced."""
    if call.compiling:
        op.kernel(*arguments)
        return None
    if target.type != "cpu" and not op.options.host_inputs:
        for pending, _ in call.reads:  # the launcher reads per-sample arguments on the host
            pending.wait()
        return submit(op.kernel, arguments, [], False, sources)  # through our own call, in which errors keep their type; nothing is queued
    return submit(op.kernel, arguments, call.reads, call.external, sources)


_NO_SHAPES = torch.empty(0, dtype=torch.int64)  # of a dense batch in a list


def _as_view(call: Call, value: Operand | None, batch: Batch | None, out: Batch) -> Tensor | Batch:
    """Return a body's view of its first input's memory, as pending as the input and owned by the same caller."""
    assert value is not None
    assert batch is not None
    external = value._external and value._values.device == batch._values.device
    if call.is_batch:
        out._pending, out._external = batch._pending, external and isinstance(value, Batch)
        return out
    assert isinstance(value, Tensor)
    made = _single(out)
    made._pending, made._sample, made._external = value._pending, value._sample, external
    return made


def _single(out: Batch) -> Tensor:
    if not out.batch_size and out._failures:
        raise RuntimeError(f"{out._failures.op}: a single sample cannot be skipped: {out.errors[0].reason}")
    values = out._values[0] if out._shapes is None else out._values.view(out._shapes[0].tolist())
    made = new_tensor(values, out._layout, out._pending)
    if out._sources:
        made._sources = out._sources
    if out._failures:
        made._failures = out._failures
    return made


def _similar(name: str, names: Sequence[str]) -> str:
    close = [one for one in (name.rstrip("_"),) if one in names] or difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _as_input(op: str, position: int, value: Any, required: bool) -> Tensor | None:
    if value is None:
        if required:
            raise TypeError(f"{op}: input {position} must be a Tensor, a Batch or an array, got None")
        return None
    try:
        return as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise type(error)(f"{op}: input {position}: {error}") from None


def _set_batch_size(call: Call, batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, numbers.Integral):
        raise TypeError(f"{call.name}: batch_size must be an int, got {batch_size!r}")
    if batch_size < 0:
        raise ValueError(f"{call.name}: batch_size must not be negative, got {batch_size}")
    native.check_samples(call.name, int(batch_size))
    if call.is_batch and call.batch_size != batch_size:
        raise ValueError(f"{call.name}: batch_size={batch_size}, but a Batch of {call.batch_size} samples was given: Inconsistent batch size")
    call.is_batch, call.batch_size = True, int(batch_size)


def _check_on_host(op: Operator, values: Sequence[Operand | None]) -> None:
    for value in values:
        if value is not None and value._values.device.type != "cpu":
            raise RuntimeError(f"{op.name}: the input must be in host memory, also for a GPU, but it is on {value._values.device}")


_CPU = torch.device("cpu")


def _target_device(op: str, values: Sequence[Operand | None], device: DeviceLike | None) -> torch.device:
    if device is not None:
        try:
            target = torch_device(device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise type(error)(f"{op}: {error}") from None
        return target
    target = _CPU
    for value in values:
        if value is not None and value._values.device.type != "cpu":
            if target.type != "cpu" and value._values.device != target:
                raise RuntimeError(f"{op}: Got inputs with different device ids: {target} and {value._values.device}; move one with .gpu(index)")
            target = value._values.device
    return target


def _as_batch(call: Call, value: Operand, target: torch.device, copies: bool) -> Batch:
    """Return an input in the body's form: a Batch with the call's number of samples, on the call's device."""
    call.external = call.external or value._external
    if value._values.device != target:
        value = value.to_device(target)  # type: ignore[attr-defined]
    if call.compiling and value._pending is not None:
        value = value._settled()
    call.read(value)
    if isinstance(value, Batch):
        return value
    values = value._values
    if call.is_batch:
        value._ready()
        made = new_batch(_repeated(call, values) if copies else values.expand(call.batch_size, *values.shape), None, value._layout)
    else:
        made = new_batch(values[None], None, value._layout)
    made._sources = tuple(value._sources) * call.batch_size
    made._pending = value._pending
    return made


def _repeated(call: Call, values: torch.Tensor) -> torch.Tensor:
    try:
        return native.empty((call.batch_size, *values.shape), values.dtype, values.device).copy_(values)
    except MemoryError as error:
        raise MemoryError(f"{call.name}: {error}") from None


def _with_layout(op: str, layouts: tuple[str, ...], value: Batch) -> Batch:
    if value._layout is not None:
        if value._layout not in layouts:
            raise ValueError(f'{op}: The layout "{value._layout}" does not match any of the allowed layouts: {", ".join(layouts)}')
        return value
    layout = next((one for one in layouts if len(one) == value.ndim), None)
    if layout is None:
        raise ValueError(f"{op}: The number of dimensions {value.ndim} does not match any of the allowed layouts: {', '.join(layouts)}")
    return new_batch(value._values, value._shapes, layout, value._pending, value._external, value._fixed)
