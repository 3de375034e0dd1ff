# SPDX-License-Identifier: Apache-2.0
"""``@operator``: from a handwritten function to an operator on tensors and batches.

The function's signature is the schema of ``torch.ops.ndd.<name>``, its body allocates the output. The decorator adds everything else: it decides
between Tensor and Batch, packs per-sample arguments, checks layouts, moves inputs, queues the kernel on the CPU stream and keeps what is pending.
"""

import difflib
import functools
import inspect
import numbers
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import torch

from . import _capture, _native
from ._arguments import Argument, Call, Role, described, plain, prepared
from ._arguments import Hint as Hint
from ._arguments import PerSample as PerSample
from ._arguments import Random as Random
from ._arguments import ShapeArg as ShapeArg
from ._arguments import Varying as Varying
from ._arguments import VaryingShape as VaryingShape
from ._batch import Batch, new_batch
from ._device import DeviceLike as DeviceLike
from ._device import torch_device
from ._launch import issued, launched, on_decode_stream, on_stream
from ._operand import Operand
from ._queue import queue as queue
from ._stream import Pending
from ._tensor import ALL_SAMPLES, SAME_SAMPLE, Tensor, as_tensor, new_tensor

T = TypeVar("T", Tensor, Batch)
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Launch:
    """What a body returns when the kernel's arguments are not its own.

    Attributes:
        out: The outputs; ``()`` where the body has computed everything itself, which is ``also`` then. Of a ``per_frame`` operator it may be a
            function of the number of frames that inputs and arguments agree on: None, a number or int64 (N,) with one for each sample.
        args: The kernel's arguments.
        also: Results that need no kernel.
        inputs: Inputs that take the place of the call's.
        fusable: Whether the operator's formula holds for these arguments.
        views: Parts of the output that are the results in its place.
        event: Of an operator with host inputs on a GPU: what the kernel records when it has issued everything.
        mixes: Whether a sample of the result is made from other samples of the input.
    """

    out: Batch | tuple[Batch, ...] | Callable[[Any], Batch]
    args: Sequence[Any] = ()
    also: tuple[Batch, ...] = ()
    inputs: tuple[Batch, ...] = ()
    fusable: bool = True
    views: tuple[Batch, ...] = ()
    mixes: bool = False
    event: "torch.cuda.Event | None" = None


@dataclass
class Operator:
    """A decorated function and what was derived from it."""

    name: str
    body: Callable[..., Any]
    layouts: tuple[str, ...] | None
    formula: Callable[..., torch.Tensor | None] | None
    inputs: int
    required: int
    arguments: dict[str, Argument]
    kernel: Any  # torch.ops.ndd.<name>.default; None where nothing is computed
    defaults: dict[str, Any] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    packed: tuple[Argument, ...] = ()  # those that Python prepares
    prepared: dict[str, Any] = field(default_factory=dict)  # the defaults, prepared
    draws: bool = False  # has a generator
    reads_values: bool = False
    positional: dict[str, Argument] = field(default_factory=dict)  # arguments that are given by position, behind the inputs
    variadic: bool = False  # any number of inputs, which the kernel takes as lists
    per_frame: bool = False  # arguments may be for frames although no input is
    shares: bool = False  # the kernel need not have a copy of a Tensor for each sample
    numbers: bool = False  # the formula takes Python numbers
    host_inputs: bool = False  # stay in host memory, wherever the output goes


OPERATORS: dict[str, Operator] = {}  # by public name; the tests go through it

_TAIL = ("batch_size", "device")  # parameters that every operator has
_MOST_INPUTS = 999  # of a variadic operator, as in DALI


@overload
def operator(function: F) -> F: ...
@overload
def operator(
    *,
    name: str | None = None,
    layouts: tuple[str, ...] | None = None,
    kernel: str | None = None,
    outputs: int = 1,
    formula: Callable[..., torch.Tensor | None] | None = None,
    reads_values: bool = False,
    view: bool = False,
    per_frame: bool = False,
    shares: bool = False,
    numbers: bool = False,
    host_inputs: bool = False,
) -> Callable[[F], F]: ...
def operator(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    layouts: tuple[str, ...] | None = None,
    kernel: str | None = None,
    outputs: int = 1,
    formula: Callable[..., torch.Tensor | None] | None = None,
    reads_values: bool = False,
    view: bool = False,
    per_frame: bool = False,
    shares: bool = False,
    numbers: bool = False,
    host_inputs: bool = False,
) -> Any:
    """Make an operator of a function ``f(input, /, *, batch_size=None, device=None, <arguments>)`` whose body allocates the output.

    ``f(input_0, /, *inputs, ...)`` takes any number of inputs. A positional parameter that is a ``PerSample`` or a ``ShapeArg`` is an argument.

    Args:
        name: Public name where it is not the function's: ``reductions.mean``.
        layouts: Layouts that the first input may have; one without a layout gets the first of them with its number of dimensions.
        kernel: Schema of the kernel's arguments, where they are not the function's; the body then returns a :class:`Launch`.
        outputs: How many buffers the kernel fills.
        formula: The same in torch operations, for ``torch.compile`` on dense input: ``formula(input, *kernel arguments, dtype)``;
            None where it has none for these types.
        reads_values: The body reads the inputs' values, so the call waits for them.
        view: No kernel: what the body returns has the first input's memory, and is pending as long as that is; or it returns a :class:`Launch` whose
            ``also`` it has computed itself.
        per_frame: Arguments may have a value for each frame although no input has frames.
        shares: The kernel takes a Tensor that is given along with a Batch as all samples' own, with a stride of 0, instead of a copy for each;
            but for the first input.
        numbers: The formula takes a number that all samples have in common as a Python number, so that the graph has it as a constant.
        host_inputs: The kernel reads host memory also where it fills that of a GPU: the CPU's threads hand the work to it. The body gets ``device``.
    """
    options = layouts, kernel, outputs, formula, reads_values, view, per_frame, shares, numbers, host_inputs
    if function is None:
        return lambda f: _make(f, name or f.__name__, *options)
    return _make(function, function.__name__, *options)


def _make(
    function: Callable[..., Any],
    name: str,
    layouts: tuple[str, ...] | None,
    kernel: str | None,
    outputs: int,
    formula: Callable[..., torch.Tensor | None] | None,
    reads_values: bool,
    view: bool,
    per_frame: bool,
    shares: bool,
    numbers: bool,
    host_inputs: bool,
) -> Callable[..., Any]:
    parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function, include_extras=True)
    places = {p.name: described(p, hints[p.name]) for p in parameters if p.kind is p.POSITIONAL_ONLY}
    positional = {key: argument for key, argument in places.items() if argument.role in (Role.per_sample, Role.shape)}
    inputs = [p for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name not in positional]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _TAIL]
    arguments = {p.name: described(p, hints[p.name]) for p in keywords}

    schema = [(t, p.name + suffix) for p in inputs for t, suffix in (("Tensor?" if p.default is None else "Tensor", ""), ("Tensor?", "_shapes"))]
    if variadic:
        schema = [("Tensor[]", "inputs"), ("Tensor[]", "inputs_shapes")]
    if kernel is None:
        schema += [(a.schema, a.name) for a in (*positional.values(), *arguments.values()) if a.schema]
    else:
        schema += [(t, n) for t, n in (part.split() for part in kernel.split(",") if part.strip())]
    for k in range(outputs):
        suffix = "" if outputs == 1 else str(k)
        schema += [(f"Tensor({chr(97 + k)}!)", "out" + suffix), ("Tensor?", f"out{suffix}_shapes")]
    made = Operator(
        name,
        function,
        layouts,
        formula,
        _MOST_INPUTS if variadic else len(inputs),
        sum(p.default is p.empty for p in inputs),
        arguments,
        None if view else _native.define(name.replace(".", "_"), schema),
        {p.name: p.default for p in keywords if p.default is not p.empty},
        frozenset(p.name for p in keywords if p.default is p.empty),
        tuple(a for a in (*positional.values(), *arguments.values()) if a.role in (Role.per_sample, Role.shape, Role.random) or a.name == "dtype"),
        reads_values=reads_values,
        positional=positional,
        variadic=variadic,
        per_frame=per_frame,
        shares=shares,
        numbers=numbers,
        host_inputs=host_inputs,
    )
    made.defaults.update(dict.fromkeys((*made.missing, *positional)))
    made.draws = any(a.role is Role.random for a in arguments.values())
    ready = {a.name: prepared(Call(name), a, made.defaults[a.name], False) for a in made.packed if a.role is not Role.random}
    made.prepared = {**made.defaults, **{key: value for key, value in ready.items() if value is not None}}
    automatic = None if kernel is not None else tuple(a.name for a in (*positional.values(), *arguments.values()) if a.schema)
    OPERATORS[name] = made

    @functools.wraps(function)
    def call(*inputs: Any, **given: Any) -> Any:
        if not torch.compiler.is_compiling() and (recorder := _capture.current.recorder) is not None:
            return recorder.call(name, perform, inputs, given, made.draws)
        return _call(made, automatic, inputs, given)

    def perform(inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
        return _call(made, automatic, inputs, dict(given))

    call.__module__ = _public_module(name)
    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    return call


def _public_module(name: str) -> str:
    return ".".join(("torch_ndd", *name.split(".")[:-1]))


def _call(op: Operator, automatic: tuple[str, ...] | None, inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    most = op.inputs + len(op.positional)
    if not op.required <= len(inputs) <= most:
        expected = str(most) if op.required == most else f"{op.required} to {most}"
        raise TypeError(f"{op.name}() takes {expected} positional inputs, got {len(inputs)}")
    batch_size, device = given.pop("batch_size", None), given.pop("device", None)
    for key in given:
        if key not in op.arguments:
            raise TypeError(f"{op.name}() got an unexpected argument {key!r}{_similar(key, [*op.arguments, *_TAIL])}")
    if len(inputs) > op.inputs:
        given.update(zip(op.positional, inputs[op.inputs :], strict=False))
        inputs = inputs[: op.inputs]
    for key in op.missing:
        if given.get(key) is None:
            raise TypeError(f"{op.name}() needs the argument {key!r}")

    state = Call(op.name)
    values = [one if isinstance(one, Operand) else _as_input(op.name, k, one, k < op.required or op.variadic) for k, one in enumerate(inputs)]
    for key, value in (*enumerate(values), *given.items()):
        if isinstance(value, Batch):
            state.join(value, key)
    if batch_size is not None:
        _set_batch_size(state, batch_size)
    target = _target_device(op.name, values, device)
    if target.type != "cuda" or state.compiling:
        return _finished(op, automatic, state, values, given, target)
    if op.host_inputs:
        with on_decode_stream(target):
            return _finished(op, automatic, state, values, given, target)
    operands = [value for value in (*values, *given.values()) if isinstance(value, Operand)]
    with on_stream(target, [(one._values, one._pending) for one in operands], any(one._external for one in operands)):
        return _finished(op, automatic, state, values, given, target)


def _finished(op: Operator, automatic: tuple[str, ...] | None, state: Call, values: list[Any], given: dict[str, Any], target: torch.device) -> Any:
    """The call, once it is known what kind of value it returns and where it runs."""
    if op.reads_values:
        for value in values:
            if value is not None:
                value._ready()
    place = _CPU if op.host_inputs else target
    if op.host_inputs:
        _check_on_host(op, values)
    batches = [None if value is None else _as_batch(state, value, place, op.shares and k > 0) for k, value in enumerate(values)]
    if op.layouts is not None and batches and batches[0] is not None:
        batches[0] = _with_layout(op, batches[0])
        if op.variadic:
            batches[1:] = [_with_layout(op, one) for one in batches[1:] if one is not None]
    state.per_frame = op.per_frame
    arguments = _prepare(op, state, given, _count_frames(op, state, batches) or op.per_frame)
    if not op.inputs or not op.required:
        arguments = {**arguments, "batch_size": state.batch_size, "device": target}
    elif op.host_inputs:
        arguments = {**arguments, "device": target}

    places: list[Any] = []
    if op.positional:
        places = [*[None] * (op.inputs - len(batches)), *[arguments.pop(key) for key in op.positional]]
    try:
        launch = op.body(*batches, *places, **arguments)
    except MemoryError as error:
        raise MemoryError(f"{op.name}: {error}") from None
    if op.kernel is None or (isinstance(launch, Launch) and isinstance(launch.out, tuple) and not launch.out):
        if isinstance(launch, Launch):
            results = [out if state.is_batch else _single(out) for out in launch.also]
            return results[0] if len(results) == 1 else tuple(results)
        return _as_view(state, values[0], batches[0], launch)
    if isinstance(launch, Batch):
        assert automatic is not None
        launch = Launch(launch, [arguments[key] for key in automatic])
    outs = _outputs(launch, state)
    for one in launch.inputs:
        if one._pending is not None and not any(one is batch for batch in batches):
            state.read(one)
    batches = launch.inputs or batches
    computed = None
    if state.compiling and op.formula is not None and launch.fusable and all(b is None or b._shapes is None for b in (*batches, *outs)):
        values_of = [b and b._values for b in batches]
        args = [_number_of(state, one) for one in launch.args] if op.numbers else launch.args
        computed = op.formula(*([values_of] if op.variadic else values_of), *args, dtype=outs[0].dtype)
    if computed is not None:
        outs = (new_batch(computed, None, outs[0].layout),)
        pending = None
    else:
        if launch.mixes:
            state.reads = [(pending, ALL_SAMPLES if sample == SAME_SAMPLE else sample) for pending, sample in state.reads]
        if op.variadic:
            tensors = [[b and b._values for b in batches], [_NO_SHAPES if b is None or b._shapes is None else b._shapes for b in batches]]
        else:
            padding = [None] * (op.inputs - len(batches))
            tensors = [x for b in (*batches, *padding) for x in ((None, None) if b is None else (b._values, b._shapes))]
        filled = [x for out in outs for x in (out._values, out._shapes)]
        pending = _run(op, state, target, (*tensors, *launch.args, *filled), getattr(next(iter(batches), None), "_sources", ()))
    outs = launch.views or outs
    if target.type == "cuda" and not state.compiling:
        made = [out._values for out in (*outs, *launch.also) if out._values.device == target]
        pending = launched(made) if launch.event is None else issued(made, launch.event, pending)
        for out in launch.also:
            out._pending = pending if out._values.device == target else None
    for out in outs:
        out._pending = pending
    results = [out if state.is_batch else _single(out) for out in (*outs, *launch.also)]
    return results[0] if len(results) == 1 else tuple(results)


def prepared_call(op: Operator, value: Tensor | Batch, more: Sequence[Any], given: dict[str, Any]) -> tuple[Call, Batch, Launch]:
    """What a call with one input would launch, without its work: the call, the input as its body sees it, and what that returned."""
    state = Call(op.name)
    if len(more) > len(op.positional):
        raise TypeError(f"{op.name}() takes {1 + len(op.positional)} positional inputs, got {1 + len(more)}")
    given = {**given, **dict(zip(op.positional, more, strict=False))}
    for key, argument in ((0, value), *given.items()):
        if key != 0 and key not in op.arguments and key not in op.positional:
            raise TypeError(f"{op.name}() got an unexpected argument {key!r}{_similar(str(key), [*op.arguments])}")
        if isinstance(argument, Batch):
            state.join(argument, key)
    for key in op.missing:
        if given.get(key) is None:
            raise TypeError(f"{op.name}() needs the argument {key!r}")
    batch = value if isinstance(value, Batch) else new_batch(value._values.expand(state.batch_size, *value._values.shape), None, value._layout)
    if op.layouts is not None:
        batch = _with_layout(op, batch)
    state.per_frame = op.per_frame
    arguments = _prepare(op, state, given, _count_frames(op, state, [batch]) or op.per_frame)
    places = [*[None] * (op.inputs - 1), *[arguments.pop(key) for key in op.positional]]
    launch = op.body(batch, *places, **arguments)
    _outputs(launch, state)
    return state, batch, launch


def _count_frames(op: Operator, state: Call, inputs: Sequence[Batch | None]) -> bool:
    """Whether the call is for frames: those of the first input that has some. A ``per_frame`` operator takes an input for one frame as for all."""
    state.fixed = not op.per_frame
    for k, one in enumerate(inputs):
        if one is not None and (one._layout or "").startswith("F") and (state.frames is None or op.per_frame):
            state.agree(f"input {k}", one._frames())
    return state.frames is not None


def _outputs(launch: Launch, state: Call) -> tuple[Batch, ...]:
    """The outputs, now that it is known how many frames they have."""
    out = launch.out
    if not isinstance(out, Batch | tuple):
        out = launch.out = out(state.frames)
    return out if isinstance(out, tuple) else (out,)


def _number_of(state: Call, argument: Any) -> Any:
    """The number that an argument of the kernel was made from, if it was."""
    if isinstance(argument, torch.Tensor):
        for made, number in state.numbers:
            if made is argument:
                return number
    return argument


def _prepare(op: Operator, state: Call, given: dict[str, Any], has_frames: bool) -> dict[str, Any]:
    """All keyword arguments, as the body takes them. An explicit None means the default."""
    if state.compiling:  # constants are made inside the graph
        arguments = {**op.defaults, **{key: value for key, value in given.items() if value is not None}}
        for argument in op.packed:
            if arguments[argument.name] is not None or argument.role is Role.random:
                arguments[argument.name] = prepared(state, argument, arguments[argument.name], has_frames)
    else:
        arguments = dict(op.prepared)
    for key, value in given.items():
        if value is None:
            continue
        argument = op.arguments.get(key) or op.positional[key]
        if argument.role is Role.plain:
            arguments[key] = plain(state, argument, value)
        elif not state.compiling:
            arguments[key] = prepared(state, argument, value, has_frames)
    if op.draws and not state.compiling and given.get("rng") is None:
        arguments["rng"] = prepared(state, op.arguments["rng"], None, False)
    return arguments


def _run(op: Operator, state: Call, target: torch.device, arguments: Sequence[Any], sources: Sequence[str]) -> Pending | None:
    """The kernel: queued on the CPU stream, launched on the context's CUDA stream, or a node of the graph that is being traced."""
    if state.compiling:
        op.kernel(*arguments)
        return None
    if target.type != "cpu" and not op.host_inputs:
        for pending, _ in state.reads:  # per-sample arguments: the launcher reads them on the host
            pending.wait()
        return queue(op.kernel, arguments, [], False, sources)  # a call of ours, in which errors keep their type; nothing is queued
    return queue(op.kernel, arguments, state.reads, state.external, sources)


_NO_SHAPES = torch.empty(0, dtype=torch.int64)  # of a dense batch in a list


def _as_view(state: Call, value: Operand | None, batch: Batch | None, out: Batch) -> Tensor | Batch:
    """What a body made over the memory of its first input, as pending and as much the caller's as that is."""
    assert value is not None
    assert batch is not None
    external = value._external and value._values.device == batch._values.device
    if state.is_batch:
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


def _set_batch_size(state: Call, batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, numbers.Integral):
        raise TypeError(f"{state.name}: batch_size must be an int, got {batch_size!r}")
    if batch_size < 0:
        raise ValueError(f"{state.name}: batch_size must not be negative, got {batch_size}")
    _native.check_samples(state.name, int(batch_size))
    if state.is_batch and state.batch_size != batch_size:
        raise ValueError(f"{state.name}: batch_size={batch_size}, but a Batch of {state.batch_size} samples was given: Inconsistent batch size")
    state.is_batch, state.batch_size = True, int(batch_size)


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


def _as_batch(state: Call, value: Operand, target: torch.device, shares: bool) -> Batch:
    """An input as the body sees it: a Batch with the call's number of samples, on the call's device."""
    state.external = state.external or value._external
    if value._values.device != target:
        value = value.to_device(target)  # type: ignore[attr-defined]
    if state.compiling and value._pending is not None:
        value = value._settled()
    state.read(value)
    if isinstance(value, Batch):
        return value
    values = value._values
    if state.is_batch:
        value._ready()
        made = new_batch(values.expand(state.batch_size, *values.shape) if shares else _repeated(state, values), None, value._layout)
    else:
        made = new_batch(values[None], None, value._layout)
    made._sources = tuple(value._sources) * state.batch_size
    made._pending = value._pending
    return made


def _repeated(state: Call, values: torch.Tensor) -> torch.Tensor:
    try:
        return _native.empty((state.batch_size, *values.shape), values.dtype, values.device).copy_(values)
    except MemoryError as error:
        raise MemoryError(f"{state.name}: {error}") from None


def _with_layout(op: Operator, value: Batch) -> Batch:
    assert op.layouts is not None
    if value._layout is not None:
        if value._layout not in op.layouts:
            raise ValueError(f'{op.name}: The layout "{value._layout}" does not match any of the allowed layouts: {", ".join(op.layouts)}')
        return value
    layout = next((one for one in op.layouts if len(one) == value.ndim), None)
    if layout is None:
        raise ValueError(f"{op.name}: The number of dimensions {value.ndim} does not match any of the allowed layouts: {', '.join(op.layouts)}")
    return new_batch(value._values, value._shapes, layout, value._pending, value._external, value._fixed)
