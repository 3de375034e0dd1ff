# SPDX-License-Identifier: Apache-2.0
"""A plan: a kernel call that native code keeps (``ndd::again``, csrc/ndd/stream/repeat.cpp), built from a pattern and run on other tensors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .. import native
from ..context import pools
from ..context.context import EvalMode, thread_state
from ..process import shutdown
from ..values.batch import Batch, new_batch
from ..values.native_plan import FITS, NOT_ONE_CALL, OUTPUT, ROWS, WHOLE, DerivedTensors, bypass_overload, keep_call, launch_in_one_call
from ..work.cuda_work import StreamWork, join_queue, on_stream, stream_work
from ..work.pending import ALL_SAMPLES, SAME_SAMPLE, Pending, finish_call
from ..work.sources import UNKNOWN, select_sources
from .arguments import round_numbers, takes_rounded
from .definition import Also, Derivation, NativeDerivation, Record, Redraw
from .patterns import Pattern

_MAX_SHAPES = 16  # plans chained under a key, which native code tries in turn: the sizes of multi-scale training


class Plan(NamedTuple):
    """A cached call that can be repeated, for one shape of its operands or several."""

    handle: int  # of native code
    owner: Any  # releases the handle
    shapes: int  # number of plans chained under the handle
    input_shape: tuple[int, ...]  # of the first operand's values
    output_shape: tuple[int, ...]
    takes_words: bool
    layout: str | None  # of the output
    redraw: Redraw | None
    gpu: torch.device | None  # None for the CPU
    is_packed: bool
    mixes: bool
    any_rows: bool  # serves batches of any number of samples
    inputs: "DerivedInputs | None"
    also_again: Also | None
    learned: "Learned | None" = None  # until a call with another number of samples has been compared
    other: "Plan | None" = None  # the next plan to try, if this one has `inputs`; native code chains those without


class DerivedInputs(NamedTuple):
    """What a plan needs for :attr:`Launch.derivation`."""

    derivation: Derivation
    is_native: bool
    operands: list[int]  # that the kernel gets; the host reads the others
    read: list[int]  # that the derivation needs
    names: tuple[str, ...]  # of the operands behind the inputs
    forms: list[tuple[torch.dtype, tuple[int, ...]]]  # of these operands, without the number of samples
    rounded: frozenset[str]  # of them, those with fractions for integers
    shape_columns: int  # of the shapes of a packed output, which are derived; 0 if it is dense
    extents: Any  # that the samples of a packed output share


class Learned(NamedTuple):
    """The call that a plan was made from."""

    pattern: "Pattern"
    shapes: list[tuple[int, ...]]  # of its operand tensors
    rows: int  # its number of samples
    previous: "Plan | None"  # the plan for other shapes


def build_plan(
    pattern: Pattern,
    record: Record,
    tensors: Sequence[torch.Tensor | None],
    previous: Plan | None,
    any_rows: bool = False,
    names: Sequence[str] = (),
    rows_are_given: bool = False,
) -> Plan | None:
    """Return the plan of a recorded call, which also serves the calls that ``previous`` does; None if it cannot be repeated.

    ``any_rows``: the plan serves batches of any number of samples. ``names``: of the operands that are arguments. ``rows_are_given``: there are no
    operands, and the caller of the plan gives the number of samples.
    """
    output: torch.Tensor = record.arguments[-2]
    words, gpu = record.words, output.device if output.is_cuda else None
    first = tensors[0].shape if tensors and tensors[0] is not None else ()
    passed = [k for k, tensor in enumerate(tensors) if tensor is not None]
    used = {k for *_, k in pattern.places}
    inputs = None
    if (derivation := pattern.derivation) is not None:
        is_native = type(derivation.compute) is NativeDerivation
        if not is_native:
            passed = [k for k in passed if k in used]
        values = [tensor for k, tensor in enumerate(tensors) if k >= 2 * len(record.inputs) and k % 2 == 0 and tensor is not None]
        forms = [(tensor.dtype, tuple(tensor.shape[1:])) for tensor in values]
        if len(forms) != len(names) or any(tensors[k] is not None for k in range(2 * len(record.inputs) + 1, len(tensors), 2)):
            return None  # a ragged argument
        op = record.op
        rounded = frozenset(
            [name for name, (dtype, _) in zip(names, forms, strict=True) if takes_rounded(op.arguments.get(name) or op.positional[name], dtype)]
        )
        operands = [k for k in range(len(tensors) // 2) if 2 * k in used]
        read = [k for k, name in enumerate(names, len(record.inputs)) if name in derivation.names]
        columns = record.outputs[0].ndim if pattern.is_packed else 0
        inputs = DerivedInputs(derivation, is_native, operands, read, tuple(names), forms, rounded, columns, record.outputs[0].shared_extents)
    plan = Plan(
        *(0, None, 1, first, output.shape, pattern.words_place is not None, pattern.layout, pattern.redraw, gpu, pattern.is_packed, pattern.mixes),
        *(any_rows, inputs, pattern.also_again),
    )
    other = None
    if previous is not None:
        # Native code compares the shapes of a chain one after the other, in every call.
        if previous.shapes >= _MAX_SHAPES:
            return None
        if plan.inputs is not None:
            previous, other = None, previous
        # `redraw` and `also_again` are other functions in each call, of the arguments in the key.
        elif previous.inputs is not None or _find_kind(previous) != _find_kind(plan):
            return None
    # The arguments of this call are needed once, so that the dispatcher can convert them; those with a place are not kept.
    arguments = pattern.arguments.copy()
    arguments[-2] = output
    places = [(len(arguments) - 2, WHOLE, OUTPUT)]
    # The values of a ragged operand have any size; its shapes have one row for each sample.
    equal = FITS["any_rows" if any_rows else "equal_shape"]
    fits = [FITS["any_size"] if k % 2 == 0 and tensors[k + 1] is not None else equal for k in passed]
    for place in range(2) if record.op.variadic else ():
        arguments[place] = record.arguments[place]
    for place, element, k in pattern.places:
        places.append((place, element, passed.index(k)))
        if element == WHOLE:
            arguments[place] = tensors[k]
    for place in pattern.derived:
        table = arguments[place] = record.arguments[place]
        places.append((place, WHOLE, len(fits)))
        # One row for several samples is one for any number of them.
        fits.append(FITS["equal_shape"] if len(table) == 1 != output.shape[0] else equal)
    packed = -1
    if pattern.is_packed:
        packed = len(passed) if pattern.derivation is not None else passed.index(1)
    if pattern.words_place is not None and words is not None:
        places.append((pattern.words_place, WHOLE, len(passed)))
        fit = FITS["equal_shape"]
        if pattern.redraw is not None and (first_input := record.inputs[0]) is not None:
            words, fit = pattern.redraw(first_input, words), equal
        fits.append(fit)
        arguments[pattern.words_place] = words
    rows = ROWS["any_given_rows" if any_rows else "given_rows"] if rows_are_given else ROWS["by_tensors"]
    derived = None
    if inputs is not None and inputs.is_native:
        derived = _describe_derivation(inputs, tensors, [k for k in passed if k not in used], passed, len(record.inputs))
        if derived is None:
            return None
    kept = keep_call(pattern.kernel, arguments, places, fits, packed, rows, None if previous is None else previous.handle, derived)
    if kept is None:
        return None
    shapes = 1 + sum(earlier.shapes for earlier in (previous, other) if earlier is not None)
    return plan._replace(handle=kept.handle, owner=kept.owner, shapes=shapes, other=other)


def _describe_derivation(
    needs: DerivedInputs, tensors: Sequence[torch.Tensor | None], unused: Sequence[int], passed: Sequence[int], inputs: int
) -> DerivedTensors | None:
    """Return what native code derives in each call; None for an argument of a type that it does not know.

    ``unused``: the operand tensors that the kernel does not get. ``passed``: all of them that are passed to native code.
    """
    compute = needs.derivation.compute
    assert isinstance(compute, NativeDerivation)
    places, host = [], []
    for offset, name, position in compute.places:
        places += offset, passed.index(2 * (inputs + needs.names.index(name))), position, name in needs.rounded
    for k in unused:
        tensor = tensors[k]
        assert tensor is not None
        if tensor.dtype not in native.DTYPE_NUMBERS or not tensor.is_cpu:
            return None
        host += passed.index(k), native.DTYPE_NUMBERS[tensor.dtype], tensor.dim(), *tensor.shape
    is_ragged = tensors[1] is not None
    count = needs.derivation.count
    return DerivedTensors(compute.function, compute.arguments, places, compute.options, host, len(unused), count, is_ragged, compute.is_fixed)


def _find_kind(plan: Plan) -> tuple[Any, ...]:
    """Return what the plans of a chain must have in common, as Python makes the result of any of them."""
    return plan.takes_words, plan.layout, plan.gpu, plan.is_packed, plan.mixes, plan.redraw is None, plan.also_again is None


_again, _again_with = map(bypass_overload, (torch.ops.ndd.again.default, torch.ops.ndd.again_with.default))


def resubmit(
    plan: int, tensors: list[torch.Tensor], reads: Sequence[tuple[Pending, int]], caller_owned: bool, sources: Sequence[str], rows: int = 0
) -> tuple[torch.Tensor | None, Pending | None]:
    """Run a native plan on other tensors, as ``dispatch.submit`` runs a kernel. Return the output, None if it does not fit, and the pending work.

    ``rows``: the number of samples of a call without operands.
    """
    # The first lines repeat those of dispatch.submit(): with cold caches a shared function takes 5 to 10 us of the 200 of a call.
    if shutdown.exiting:
        shutdown.park_daemon()
    if pools.unsettled:
        pools.settle()
    mode = EvalMode.sync_cpu if caller_owned else thread_state.mode
    level = 3 if mode >= EvalMode.sync_cpu else mode
    count = len(tensors)
    if count <= 2 and len(reads) <= 1:
        read, sample = (reads[0][0].handle, reads[0][1]) if reads else (0, 0)
        out, handle = _again_with(plan, tensors[0] if count else None, tensors[1] if count == 2 else None, level, read, sample, rows)
    else:
        out, handle = _again(plan, tensors, [number for pending, sample in reads for number in (pending.handle, sample)], level, rows)
    return out, finish_call(handle, mode, [pending for pending, _ in reads], sources) if handle else None


def resubmit_one(plan: int, tensor: torch.Tensor, caller_owned: bool, sources: Sequence[str]) -> tuple[torch.Tensor | None, Pending | None]:
    """Do the same for a single tensor with no pending work."""
    # A function of its own: repeated functionals of torchvision take 10.1 instead of 10.9 us with cold caches.
    if shutdown.exiting:
        shutdown.park_daemon()
    if pools.unsettled:
        pools.settle()
    mode = EvalMode.sync_cpu if caller_owned else thread_state.mode
    level = 3 if mode >= EvalMode.sync_cpu else mode
    out, handle = _again_with(plan, tensor, None, level, 0, 0, 0)
    return out, finish_call(handle, mode, [], sources) if handle else None


def run_plan(plan: Plan, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None, rows: int = 0) -> Any:
    """Repeat a call on other operands, of which the first ``inputs`` are inputs; None if they do not fit the plan.

    ``rows``: the number of samples of a call without operands.
    """
    derived = None  # what the kernel gets besides operands and constants
    passed = kept = operands
    if (needs := plan.inputs) is not None:
        passed = [operands[k] for k in needs.operands]
        if needs.is_native:
            for k in needs.read:
                if operands[k].pending is not None:
                    operands[k].wait()
            if needs.shape_columns:  # which native code fills
                derived = [torch.empty(operands[0].batch_size, needs.shape_columns, dtype=torch.int64)]
        elif (derived := _derive(plan, needs, operands, inputs)) is None:
            return _run_other(plan, operands, inputs, words, rows)
        else:
            kept = passed
    sources = operands[0].sources if inputs else UNKNOWN
    if sources is UNKNOWN and inputs > 1:
        sources = next((operand.sources for operand in operands[1:inputs] if operand.sources is not UNKNOWN), UNKNOWN)
    # Gathered here, and the usual result is made here: with cold caches each further function takes 5 to 10 us.
    tensors: list[torch.Tensor] = []
    is_pending = caller_owned = False  # work fills some of them; the caller may overwrite some
    for operand in kept:
        tensors.append(operand.buffer)
        if operand.ragged_shapes is not None:
            tensors.append(operand.ragged_shapes)
        if operand.pending is not None:
            is_pending = True
        if operand.caller_owned:
            caller_owned = True
    if caller_owned and passed is not kept:
        caller_owned = any(operand.caller_owned for operand in passed)
    if derived is not None:
        tensors += derived
    if plan.takes_words:
        assert words is not None
        tensors.append(words if plan.redraw is None else plan.redraw(operands[0], words))
    if plan.gpu is not None:
        launched = launch_in_one_call(plan.handle, plan.gpu.index, passed, tensors, sources, rows)
        if launched is NOT_ONE_CALL:
            launched = _launch_within_stream(plan, passed, tensors, caller_owned, sources, rows)
    else:
        launched = resubmit(plan.handle, tensors, _find_reads(plan, passed) if is_pending else (), caller_owned, sources, rows)
    output, pending = launched
    if output is None:
        return _run_other(plan, operands, inputs, words, rows)
    if plan.is_packed or sources is not UNKNOWN or plan.also_again is not None:
        return _make_result(plan, operands, derived, output, pending, sources)
    return new_batch(output, None, plan.layout, pending)


def _run_other(plan: Plan, operands: Sequence[Batch], inputs: int, words: torch.Tensor | None, rows: int) -> Any:
    return None if plan.other is None else run_plan(plan.other, operands, inputs, words, rows)


def _make_result(
    plan: Plan,
    operands: Sequence[Batch],
    derived: list[torch.Tensor] | None,
    output: torch.Tensor,
    pending: Pending | None,
    sources: Sequence[str],
) -> Any:
    result = new_batch(output, None, plan.layout, pending) if not plan.is_packed else _make_packed(plan, operands[0], derived, output, pending)
    if sources is not UNKNOWN:
        if not plan.mixes:
            result.sources = sources
        elif plan.inputs is not None and plan.inputs.derivation.selects and derived is not None:
            result.sources = select_sources(operands[0].sources, derived[-1].expand(result.batch_size))
    if plan.also_again is None:
        return result
    also = plan.also_again(operands[0])
    if sources is not UNKNOWN and not plan.mixes:
        for other in also:
            other.sources = sources
    return (result, *also)


def _find_reads(plan: Plan, operands: Sequence[Batch]) -> list[tuple[Pending, int]]:
    """Return the work that fills the operands."""
    reads = []
    for operand in operands:
        if operand.pending is not None and (pending := operand._pending_work()) is not None:
            sample = operand._sample
            reads.append((pending, ALL_SAMPLES if sample == SAME_SAMPLE and plan.mixes else sample))
    return reads


def _derive(plan: Plan, needs: DerivedInputs, operands: Sequence[Batch], inputs: int) -> list[torch.Tensor] | None:
    """Return what the kernel gets besides the operands; None if the ordinary call has to do it, or to raise the error with the sample's file."""
    assert callable(needs.derivation.compute)
    first = operands[0]
    extents, skipped = first.buffer.shape, int(plan.any_rows)
    if first.ragged_shapes is None and extents[skipped:] != plan.input_shape[skipped:]:
        return None
    rows = first.batch_size
    values: dict[str, torch.Tensor] = {}
    for name, operand, (dtype, shape) in zip(needs.names, operands[inputs:], needs.forms, strict=True):
        buffer = operand.buffer
        if (
            operand.ragged_shapes is not None
            or buffer.dtype != dtype
            or buffer.shape != (rows, *shape)
            or not (buffer.is_cpu and buffer.is_contiguous())
        ):
            return None
        # Values for each frame: their number, which must fit the input, is compared by the ordinary call.
        if operand._layout is not None and operand._layout.startswith("F"):
            return None
        if operand.pending is not None:
            buffer = operand.wait()
        values[name] = round_numbers(buffer) if name in needs.rounded else buffer
    try:
        tensors, shapes = needs.derivation.compute(first, values)
    # Not raised here: the ordinary call computes the same again and names the sample and its file.
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None
    if needs.shape_columns:
        return None if shapes is None or _have_equal_rows(shapes) else [shapes, *tensors]
    if shapes is not None and (not _have_equal_rows(shapes) or tuple(shapes[0].tolist()) != plan.output_shape[1:]):
        return None
    return [*tensors]


def _have_equal_rows(shapes: torch.Tensor) -> bool:
    data = shapes.numpy().tobytes()  # as bytes: comparing rows by NumPy takes twice as long
    return data == data[: len(data) // max(1, len(shapes))] * len(shapes)


def _make_packed(plan: Plan, first: Batch, derived: list[torch.Tensor] | None, output: torch.Tensor, pending: Pending | None) -> Batch:
    if plan.inputs is None or derived is None:
        return new_batch(output, first.ragged_shapes, plan.layout, pending, shared_extents=first.shared_extents)
    return new_batch(output, derived[0], plan.layout, pending, shared_extents=plan.inputs.extents)


def _launch_within_stream(
    plan: Plan, operands: Sequence[Batch], tensors: list[torch.Tensor], caller_owned: bool, sources: Sequence[str], rows: int
) -> tuple[torch.Tensor | None, StreamWork | None]:
    """Make the context's stream current in torch and launch on it, after the launches that it has queued, as ``dispatch.launch`` does."""
    assert plan.gpu is not None
    with on_stream(plan.gpu, [(operand.buffer, operand.pending) for operand in operands], caller_owned):
        reads = _find_reads(plan, operands)
        queue = join_queue(reads, caller_owned)
        if queue is None:
            output, _ = resubmit(plan.handle, tensors, [], False, sources, rows)
            return output, None if output is None else stream_work([output])
        return queue.add(reads, lambda hosts: resubmit(plan.handle, tensors, hosts, False, sources, rows))
