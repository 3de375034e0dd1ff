# SPDX-License-Identifier: Apache-2.0
"""One call of an operator, from its arguments to its results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .. import native
from ..context.device import DeviceLike
from ..native import CPU
from ..native.graph_results import result
from ..suggestions import similar
from ..values.batch import Batch, new_batch
from ..values.dispatch import submit
from ..values.operand import Operand
from ..values.pipeline_values import unwrap
from ..values.tensor import Tensor, new_tensor
from ..work.cuda_work import decode_work, on_decode_stream, on_stream, stream_work
from ..work.pending import ALL_SAMPLES, SAME_SAMPLE, Pending
from ..work.sources import UNKNOWN, name_source
from .arguments import Call, Role, plain, prepared
from .definition import Operator, Packed
from .inputs import as_input, batched, check_on_host, converted, set_batch_size, target_device, with_layout
from .planes import as_planes
from .repeated import Repeated
from .replay import Drawn, Launched, recording, repeatable

TAIL = ("batch_size", "device")  # parameters that every operator has
_PYTHONS_OWN = frozenset((TypeError, ValueError, OverflowError, IndexError))


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
        any_shape: Whether it would be the same for all ragged inputs of this type and layout with the same common extents, as long as no sample is
            empty, so that it can be repeated without the body.
        drawn: For a random operator: what has made the first of ``args``, of the input's shapes (None if they are equal) and of the generator's
            words. A call that is repeated without the body makes it anew; nothing else may follow from the words.
    """

    out: Batch | tuple[Batch, ...] | Callable[[Any], Batch]
    args: Sequence[Any] = ()
    also: tuple[Batch, ...] = ()
    inputs: tuple[Batch, ...] = ()
    fusable: bool = True
    views: tuple[Batch, ...] = ()
    mixes: bool = False
    any_shape: bool = False
    drawn: Drawn | None = None
    event: "torch.cuda.Event | None" = None


def launch(
    out: Batch | tuple[Batch, ...] | Callable[[Any], Batch],
    args: Sequence[Any] = (),
    **more: Any,
) -> Any:
    """Return a :class:`Launch`, from a body that is annotated with what the operator returns."""
    return Launch(out, args, **more)


class Prepared:
    """An operator with arguments that are the same in many calls on Batches. What follows from them alone is found once.

    Args:
        op: The operator.
        constants: The arguments, of which each call has the same.
    """

    __slots__ = ("_constants", "_op", "_repeated")

    def __init__(self, op: Operator, constants: Mapping[str, Any]) -> None:
        call, made = Call(op.name), dict(op.prepared)
        for key, value in constants.items():
            argument = op.arguments.get(key) or op.positional[key]
            made[key] = plain(call, argument, value) if argument.role is Role.plain else prepared(call, argument, value, False)
        self._op, self._constants, self._repeated = op, made, Repeated(op) if repeatable(op) else None

    def __call__(
        self,
        inputs: Sequence[Batch],
        arguments: dict[str, Any],
        *,
        words: torch.Tensor | None = None,
        batch_size: int | None = None,
        device: DeviceLike | None = None,
    ) -> Any:
        """Call the operator, as :func:`perform` does.

        Args:
            inputs: As many as the operator takes; further ones are arguments by position.
            arguments: Batches, by names that the operator has.
            words: What a random operator has drawn.
            batch_size: Number of samples of an operator without inputs.
            device: Where to compute; by default where the inputs are.
        """
        op, repeated = self._op, self._repeated
        if len(inputs) > op.inputs:
            arguments = {**arguments, **dict(zip(op.positional, inputs[op.inputs :], strict=False))}
            inputs = inputs[: op.inputs]
        if repeated is None or device is not None:
            return self._called(inputs, arguments, words, batch_size, device)
        operands = [*inputs, *arguments.values()]
        key = repeated.key(operands, arguments, batch_size)
        if key is None:
            return self._called(inputs, arguments, words, batch_size, None)
        made = repeated.again(key, operands, len(inputs), words)
        if made is None:
            made = repeated.recorded(key, operands, arguments, partial(self._called, inputs, arguments, words, batch_size, None))
        return made

    def _called(
        self, inputs: Sequence[Batch], arguments: dict[str, Batch], words: torch.Tensor | None, batch_size: int | None, device: DeviceLike | None
    ) -> Any:
        op, call = self._op, Call(self._op.name, compiling=False)
        call.constants, call.words = self._constants, words
        on_cpu = device is None
        for k, one in enumerate(inputs):
            call.join(one, k)
            on_cpu = on_cpu and one.buffer.device == CPU
        for key, value in arguments.items():
            call.join(value, key)
        if batch_size is not None:
            native.check_samples(op.name, batch_size)
            call.is_batch, call.batch_size = True, batch_size
        if not on_cpu:
            return _placed(op, call, inputs, arguments, device)
        try:
            return _results(op, call, inputs, arguments, CPU)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            name_source(error, first_sources(inputs))
            raise


def perform(op: Operator, inputs: tuple[Any, ...], given: dict[str, Any], words: torch.Tensor | None = None) -> Any:
    """Call an operator: bind the arguments, run the body, queue the kernel. ``words`` are those of a random operator if they are drawn already."""
    call, values, given, device = _bound(op, inputs, given)
    if words is not None:
        given.pop("rng", None)
        call.words = words
    return _placed(op, call, values, given, device)


def _placed(op: Operator, call: Call, values: Sequence[Operand | None], given: dict[str, Any], device: DeviceLike | None) -> Any:
    """Run the call on the device of its inputs, or on the given one. An error that names a sample names its file too."""
    try:
        return _on_target(op, call, values, given, device)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if not call.compiling:
            name_source(error, first_sources(values))
        raise


def _on_target(op: Operator, call: Call, values: Sequence[Operand | None], given: dict[str, Any], device: DeviceLike | None) -> Any:
    target = target_device(op.name, values, device)
    if target == CPU or target.type != "cuda" or call.compiling:
        return _results(op, call, values, given, target)
    if op.options.host_inputs:
        with on_decode_stream(target):
            return _results(op, call, values, given, target)
    operands = [value for value in (*values, *given.values()) if isinstance(value, Operand)]
    with on_stream(target, [(one.buffer, one.pending) for one in operands], any(one.caller_owned for one in operands)):
        return _results(op, call, values, given, target)


def planned(op: Operator, inputs: tuple[Any, ...], given: dict[str, Any]) -> tuple[Call, list[Batch | None], Launch]:
    """Return what a call would launch, without running it: the call, the inputs as the body sees them, and the body's result."""
    call, values, given, device = _bound(op, inputs, given)
    batches, launch = _body(op, call, values, given, target_device(op.name, values, device), copies=False)
    assert isinstance(launch, Launch)
    _outputs(launch, call)
    return call, batches, launch


def _bound(op: Operator, inputs: tuple[Any, ...], given: dict[str, Any]) -> tuple[Call, list[Operand | None], dict[str, Any], DeviceLike | None]:
    """Return the call, its inputs, its arguments by name, and the device that was asked for."""
    most = op.inputs + len(op.positional)
    if not op.required <= len(inputs) <= most:
        expected = str(most) if op.required == most else f"{op.required} to {most}"
        raise TypeError(f"{op.name}() takes {expected} positional inputs, got {len(inputs)}")
    batch_size, device = given.pop("batch_size", None), given.pop("device", None)
    for key in given:
        if key not in op.arguments:
            raise TypeError(f"{op.name}() got an unexpected argument {key!r}{similar(key, [*op.arguments, *TAIL])}")
    if len(inputs) > op.inputs:
        given.update(zip(op.positional, inputs[op.inputs :], strict=False))
        inputs = inputs[: op.inputs]
    for key in op.missing:
        if given.get(key) is None:
            raise TypeError(f"{op.name}() needs the argument {key!r}")
    call = Call(op.name)
    if op.options.converts is not None and not isinstance(inputs[0], Operand):
        inputs = (converted(op, inputs[0]), *inputs[1:])
    values = [one if isinstance(one, Operand) else as_input(op.name, k, one, k < op.required or op.variadic) for k, one in enumerate(inputs)]
    for k, value in enumerate(values):
        if isinstance(value, Batch):
            call.join(value, k)
    for key, value in given.items():
        if (unwrapped := unwrap(value)) is not value:
            given[key] = unwrapped
        if isinstance(unwrapped, Batch):
            call.join(unwrapped, key)
    if batch_size is not None:
        set_batch_size(call, batch_size)
    return call, values, given, device


def _body(
    op: Operator, call: Call, values: Sequence[Operand | None], given: dict[str, Any], target: torch.device, copies: bool = True
) -> tuple[list[Batch | None], Any]:
    """Return the inputs as the body sees them, and its result: a :class:`Launch`, or a Batch for an operator without a kernel."""
    options = op.options
    if options.reads_values:
        for value in values:
            if value is not None:
                value.wait()
    place = CPU if options.host_inputs else target
    if options.host_inputs:
        check_on_host(op, values)
    batches = [None if value is None else batched(call, value, place, copies and k not in op.shared) for k, value in enumerate(values)]
    if options.layouts is not None and batches and batches[0] is not None:
        first = batches[0]
        batches[0] = with_layout(op.name, options.layouts, first)
        # Planes have become images: over the same memory, by another view of it or by other shapes. A new layout alone keeps both.
        call.of_planes = batches[0].buffer is not first.buffer or batches[0].ragged_shapes is not first.ragged_shapes
        if op.variadic:
            batches[1:] = [with_layout(op.name, options.layouts, one) for one in batches[1:] if one is not None]
    call.per_frame = options.per_frame
    arguments = _prepare(op, call, given, _count_frames(op, call, batches) or options.per_frame)
    if call.of_planes and (wanted := arguments.get("output_layout")):
        call.of_planes = "C" not in wanted
        arguments["output_layout"] = wanted + "C" if call.of_planes else wanted
    if not op.inputs or not op.required:
        arguments["batch_size"] = call.batch_size
        arguments["device"] = target
    elif options.host_inputs:
        arguments["device"] = target
    places: list[Any] = batches
    if op.positional:
        places = [*batches, *[None] * (op.inputs - len(batches)), *[arguments.pop(key) for key in op.positional]]
    try:
        made = op.body(*places, **arguments)
    except MemoryError as error:
        raise MemoryError(f"{op.name}: {error}") from None
    except (TypeError, ValueError, OverflowError, IndexError) as error:
        if call.compiling or type(error) not in _PYTHONS_OWN or op.name in str(error):
            raise
        raise type(error)(f"{op.name}: {error}") from error
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
        if target.type == "cuda" and not call.compiling and not _is_view(launch, batches[0]):
            launch.pending = stream_work([launch.buffer])
            return launch if call.is_batch else _single(launch)
        return _as_view(call, values[0], batches[0], launch)
    if isinstance(launch.out, tuple) and not launch.out:
        return _one_or_all([out if call.is_batch else _single(out) for out in launch.also])
    outs = _outputs(launch, call)
    sources = UNKNOWN if call.compiling else first_sources(batches)
    for one in launch.inputs:
        if one.pending is not None and not any(one is batch for batch in batches):
            call.read(one)
    batches = launch.inputs or batches
    computed = _by_formula(op, call, launch, batches, outs) if call.compiling else None
    if computed is not None:
        outs = (new_batch(computed, outs[0].ragged_shapes, outs[0].layout, fixed=outs[0].shared_extents),)
        pending = None
    else:
        if launch.mixes:
            call.reads = [(pending, ALL_SAMPLES if sample == SAME_SAMPLE else sample) for pending, sample in call.reads]
        buffers = _buffers(op, batches)
        buffers += launch.args
        for out in outs:
            buffers += out.buffer, out.ragged_shapes
        if recording.launched is not None:
            plain = len(outs) == 1 and not (launch.also or launch.inputs or launch.views or launch.mixes)
            plain = plain and repeatable(op)
            recording.launched.append(
                Launched(op, len(batches), buffers, outs[0]._layout, launch.any_shape, launch.drawn, call.words) if plain else None
            )
        pending = _run(op, call, target, buffers, sources)
    outs = launch.views or outs
    if target != CPU and target.type == "cuda" and not call.compiling:
        made = [out.buffer for out in (*outs, *launch.also) if out.buffer.device == target]
        pending = stream_work(made) if launch.event is None else decode_work(made, launch.event, pending)
        for out in launch.also:
            out.pending = pending if out.buffer.device == target else None
    for out in outs:
        out.pending = pending
    if sources is not UNKNOWN and not launch.mixes:
        for out in (*outs, *launch.also):
            if out.sources is UNKNOWN and out.batch_size == call.batch_size:
                out.sources = sources
    if call.of_planes:
        outs = tuple(map(as_planes, outs))
    return _one_or_all([out if call.is_batch else _single(out) for out in (*outs, *launch.also)])


def _buffers(op: Operator, batches: Sequence[Batch | None]) -> list[Any]:
    """Return the inputs as the kernel takes them: values and shapes of each."""
    if op.variadic:
        return [
            [None if b is None else b.buffer for b in batches],
            [_NO_SHAPES if b is None or b.ragged_shapes is None else b.ragged_shapes for b in batches],
        ]
    buffers: list[Any] = []
    for one in batches:
        buffers += (None, None) if one is None else (one.buffer, one.ragged_shapes)
    buffers += [None] * (2 * (op.inputs - len(batches)))
    return buffers


def _one_or_all(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def _by_formula(op: Operator, call: Call, launch: Launch, batches: Sequence[Batch | None], outs: Sequence[Batch]) -> torch.Tensor | None:
    """Return the output in torch operations; None if the kernel should compute it."""
    formula = op.options.formula
    if formula is None or not launch.fusable:
        return None
    ragged = any(one is not None and one.ragged_shapes is not None for one in (*batches, *outs))
    if ragged:
        first = batches[0]
        if not op.options.ragged_formula or first is None or first.ragged_shapes is None or outs[0].ragged_shapes is None:
            return None
        inputs: list[Any] = [Packed(first.buffer, first.ragged_shapes)]
    else:
        inputs = [None if b is None else b.buffer for b in batches]
    arguments = [_number_of(call, one) for one in launch.args]
    made = formula(*([inputs] if op.variadic else inputs), *arguments, dtype=outs[0].dtype)
    return made if made is None or ragged else result(made)


def _count_frames(op: Operator, call: Call, inputs: Sequence[Batch | None]) -> bool:
    """Return whether the call has frames: those of the first input that has some. A ``per_frame`` operator applies an input of one frame to all."""
    call.fixed = not op.options.per_frame
    for k, one in enumerate(inputs):
        if one is not None and (one._layout or "").startswith("F") and (call.frames is None or op.options.per_frame):
            call.agree(f"input {k}", one.frame_counts())
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
            if argument.role is Role.random:
                call.words = arguments[key]
    if call.words is not None:
        arguments["rng"] = call.words
    elif op.draws and not call.compiling and given.get("rng") is None:
        arguments["rng"] = call.words = prepared(call, op.arguments["rng"], None, False)
    return arguments


def _run(op: Operator, call: Call, target: torch.device, arguments: Sequence[Any], sources: Sequence[str]) -> Pending | None:
    """Run the kernel: queue it on the CPU stream, launch it on the context's CUDA stream, or add it to the graph that is being traced."""
    if call.compiling:
        op.kernel(*arguments)
        return None
    if target != CPU and not op.options.host_inputs:
        for pending, _ in call.reads:  # the launcher reads per-sample arguments on the host
            pending.wait()
        return submit(op.kernel, arguments, [], False, sources)  # through our own call, in which errors keep their type; nothing is queued
    return submit(op.kernel, arguments, call.reads, call.external, sources)


_NO_SHAPES = torch.empty(0, dtype=torch.int64)  # of a dense batch in a list


def _is_view(out: Batch, batch: Batch | None) -> bool:
    """Return whether a body's result has its input's memory. It is a copy where an element would be misaligned."""
    return batch is not None and out.buffer.untyped_storage().data_ptr() == batch.buffer.untyped_storage().data_ptr()


def _as_view(call: Call, value: Operand | None, batch: Batch | None, out: Batch) -> Tensor | Batch:
    """Return a body's view of its first input's memory, as pending as the input and owned by the same caller."""
    assert value is not None
    assert batch is not None
    external = value.caller_owned and value.buffer.device == batch.buffer.device
    if not call.compiling and out.sources is UNKNOWN and out.batch_size == call.batch_size:
        out.sources = batch.sources
    if call.is_batch:
        out.pending, out.caller_owned = batch.pending, external and isinstance(value, Batch)
        return out
    assert isinstance(value, Tensor)
    made = _single(out)
    made.pending, made._sample, made.caller_owned = value.pending, value._sample, external
    return made


def _single(out: Batch) -> Tensor:
    if not out.batch_size and out.failures:
        raise RuntimeError(f"{out.failures.op}: a single sample cannot be skipped: {out.errors[0].reason}")
    values = out.buffer[0] if out.ragged_shapes is None else out.buffer.view(out.ragged_shapes[0].tolist())
    made = new_tensor(values, out._layout, out.pending)
    if out.sources is not UNKNOWN:
        made.sources = out.sources
    if out.failures:
        made.failures = out.failures
    return made


def first_sources(values: Sequence[Operand | None]) -> Sequence[str]:
    """Return the sources of the first value that has some."""
    for one in values:
        if one is not None and one.sources is not UNKNOWN:
            return one.sources
    return UNKNOWN


def given_batches(
    name: str, inputs: Sequence[Any], given: Mapping[str, Any], batch_size: int | None, device: DeviceLike | None
) -> tuple[Call, list[Batch], torch.device]:
    """Return the call of an operator that has no body, its inputs as batches of one size on one device, and the device."""
    call = Call(name)
    values = [one if isinstance(one, Operand) else as_input(name, k, one, True) for k, one in enumerate(inputs)]
    for key, value in (*enumerate(values), *given.items()):
        if isinstance(value, Batch):
            call.join(value, key)
    if batch_size is not None:
        set_batch_size(call, batch_size)
    target = target_device(name, values, device)
    return call, [batched(call, value, target, False) for value in values if value is not None], target


def delivered(call: Call, results: Sequence[Batch]) -> Any:
    """Return results as the caller gets them: as Tensors if no input was a Batch, and one alone rather than in a tuple."""
    return _one_or_all([one if call.is_batch else _single(one) for one in results])
