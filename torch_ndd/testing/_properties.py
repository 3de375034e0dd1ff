# SPDX-License-Identifier: Apache-2.0
"""Properties that every operator has, each as a check of one case."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from .._core.context.context import EvalMode
from .._core.context.pools import get_num_threads, set_num_threads
from .._core.context.rng import set_seed
from .._core.operators.arguments import Role
from .._core.operators.functions import FunctionRecorder
from .._core.values.batch import Batch, as_batch, batch
from ..ops.generic.convert import cast
from ._cases import Case, as_tuple


def values(result: Any) -> list[np.ndarray]:
    """Return all samples of all results."""
    return [np.asarray(sample.cpu()) for out in as_tuple(result) for sample in (out if isinstance(out, Batch) else [out])]


def assert_equal(result: Any, expected: Any) -> None:
    """Check that results have equal types and values."""
    ours, theirs = values(result), values(expected)
    assert len(ours) == len(theirs), f"{len(ours)} samples instead of {len(theirs)}"
    for sample, other in zip(ours, theirs, strict=True):
        assert sample.dtype == other.dtype, f"{_start(sample)} instead of {_start(other)}"
        np.testing.assert_array_equal(sample, other)


def _start(array: np.ndarray) -> str:
    """Return the type, the shape and the first values of an array."""
    return f"{array.dtype}{array.shape} {array.ravel()[:6].tolist()}"


def assert_near(result: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Check a sample against another one, up to a difference."""
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype), f"{_start(result)} instead of {_start(expected)}"
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance)


# A GPU fuses multiply and add with one rounding where a CPU has two, so floating-point results differ by some ulps of the largest.
_STEPS = 2.0**-20


def near_on_gpu(case: Case, ours: np.ndarray, cpu: np.ndarray) -> None:
    """Check a sample from a GPU against that from the CPU."""
    steps = _STEPS * float(np.abs(cpu[np.isfinite(cpu)]).max(initial=0)) if cpu.dtype.kind == "f" else 0.0
    assert_near(ours, cpu, max(case.tolerance, steps))


def equals_its_reference(case: Case, ragged: bool, device: str) -> None:
    """Check every sample against the case's reference."""
    results, expected = case.run(ragged, device), case.expected(ragged)
    assert expected is not None
    for k, result in enumerate(results):
        for sample, reference in zip(result.cpu(), expected, strict=True):
            assert_near(np.asarray(sample), reference[k], case.tolerance)


def batch_equals_its_samples_one_by_one(case: Case, ragged: bool) -> None:
    """Check that a batch gives what its samples give one by one."""
    results = case.run(ragged)
    for i in range(case.batch_size):
        assert_equal(tuple(result.select(i) for result in results), case.run_sample(i, ragged))


def inputs_and_arguments_may_be_pending(case: Case, ragged: bool) -> None:
    """Check that inputs and arguments may be results that are not computed yet."""

    def pending(value: Any) -> Any:
        return cast(value, dtype=value.dtype) if isinstance(value, Batch) else value

    with EvalMode.deferred:
        args = {name: pending(value) for name, value in case.arguments().items()}
        inputs = [pending(value) for value in case.batches(ragged)]
        assert all(value.pending for value in (*inputs, *args.values()) if isinstance(value, Batch))
        result = case.function(*inputs, **args)
    assert_equal(result, case.run(ragged))


def dtype_layout_and_device(case: Case, ragged: bool, device: str) -> None:
    """Check that shape, dtype, layout and device are known before the values, and equal theirs."""
    results = case.run(ragged, device)
    assert case.out_layout == "as the input" or results[0].layout == case.out_layout
    assert case.out_layout != "as the input" or results[0].layout == case.layout
    for result in results:
        assert str(result.device).partition(":")[0] == device
        shapes, dtype = result.shape, result.dtype
        for sample, shape in zip(result.evaluate(), shapes, strict=True):
            found, expected = (sample.shape, sample.dtype, sample.layout), (shape, dtype, result.layout)
            assert found == expected, f"a sample has {found} instead of {expected}"


def inputs_are_unchanged(case: Case, ragged: bool, device: str) -> None:
    """Check that inputs and arguments keep their values."""
    (inputs, where), args = case.placed(ragged, device), case.arguments()
    batches = [value for value in (*inputs, *args.values()) if isinstance(value, Batch)]
    before = [value.cpu().buffer.clone() for value in batches]
    for result in as_tuple(case.function(*inputs, **args, **where)):
        result.evaluate()
    for value, copy in zip(batches, before, strict=True):
        now = value.cpu().buffer
        assert torch.equal(now, copy), f"an input has changed to {_start(now.numpy())} from {_start(copy.numpy())}"


def threads_and_modes_do_not_matter(case: Case, ragged: bool) -> None:
    """Check that results are the same for every number of threads and evaluation mode."""
    with EvalMode.sync_full:
        expected = case.run(ragged)
    before = get_num_threads()
    try:
        for threads in (1, 4):
            set_num_threads(threads)
            for mode in (EvalMode.deferred, EvalMode.eager, EvalMode.sync_cpu, EvalMode.sync_full):
                with mode:
                    assert_equal(case.run(ragged), expected)
    finally:
        set_num_threads(before)


def random_operators_repeat_with_their_seed(case: Case, ragged: bool, device: str) -> None:
    """Check that equal seeds give equal results, and other seeds others."""
    inputs, where = case.placed(ragged, device)
    first = case.function(*inputs, **case.arguments(seed=1), **where)
    assert_equal(first, case.function(*inputs, **case.arguments(seed=1), **where))
    set_seed(1)
    assert_equal(first, case.function(*inputs, **{name: value for name, value in case.arguments().items() if name != "rng"}, **where))
    others = [values(case.function(*inputs, **case.arguments(seed=seed), **where)) for seed in range(2, 8)]
    assert any(not np.array_equal(a, b) for other in others for a, b in zip(values(first), other, strict=True))


def repeated_calls_read_their_inputs(case: Case, ragged: bool, device: str = "cpu") -> None:
    """Check that a call that repeats others with inputs of the same shapes gives what it gives when it is not repeated."""
    inputs, where = case.placed(ragged, device)
    others = tuple(batch_of_input.select(list(range(batch_of_input.batch_size))[::-1]) for batch_of_input in inputs)

    def call(batches: tuple[Batch, ...]) -> Any:
        return case.function(*batches, **case.arguments(), **where)

    for batches in (inputs, others, inputs):
        # Alone in a recorder, so the call is not a repetition.
        expected = FunctionRecorder().run(call, batches)
        for _ in range(4):
            assert_equal(call(batches), expected)


def opcheck(case: Case, ragged: bool, tests: Sequence[str] = ("test_schema", "test_faketensor")) -> None:
    """Check the kernel's schema and fake implementation, or whatever ``tests`` name, with ``torch.library.opcheck``."""
    calls: list[tuple[Any, ...]] = []
    kernel = case.definition.kernel
    if kernel is None:
        return
    with patch.object(case.definition, "kernel", lambda *args: (calls.append(args), kernel(*args))[1]), EvalMode.sync_cpu:
        FunctionRecorder().run(case.run, ragged)  # no plan, which would not call the kernel
    for args in calls:
        torch.library.opcheck(kernel, args, test_utils=tuple(tests))


def compile_graph(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """Return a function compiled as one graph."""
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


def assert_compiles(rows: Sequence[tuple[Case, bool]], backend: str, device: str) -> None:
    """Check that calls compiled as one graph give what the calls give: cases with dense or ragged samples, of one operator or several."""
    calls: list[tuple[Callable[..., Any], int, dict[str, Any]]] = []
    arguments: list[Any] = []
    for case, ragged in rows:
        inputs, where = case.placed(ragged, device)
        if device == "gpu":
            inputs = tuple(
                batch_of_input.evaluate() for batch_of_input in inputs
            )  # a graph runs on torch's stream, which does not wait for that of the context
        args = {name: value for name, value in case.arguments().items() if name != "rng"} | where
        calls.append((case.function, len(inputs), args))  # found before: a graph that looks it up has a guard for every module that is imported
        arguments += inputs

    def all_calls(*arguments: Any) -> list[Any]:
        results, begin = [], 0
        for function, count, args in calls:
            results.append(function(*arguments[begin : begin + count], **args))
            begin += count
        return results

    for (case, ragged), result in zip(rows, compile_graph(all_calls, backend)(*arguments), strict=True):
        if case.random:
            continue
        for ours, theirs in zip(values(as_tuple(result)), values(case.run(ragged, device)), strict=True):
            if device == "gpu":
                near_on_gpu(case, ours, theirs)
            else:
                assert_near(ours, theirs, case.tolerance)


@contextmanager
def raises(kinds: type[Exception] | tuple[type[Exception], ...], *words: str, match: str = "") -> Iterator[None]:
    """Check that the block raises one of these errors, whose text has all words, and matches a pattern."""
    try:
        yield
    except kinds as error:
        text = str(error)
        assert re.search(match, text), f"{text!r} does not match {match!r}"
        for word in words:
            assert re.search(rf"\b{re.escape(word)}\b", text), f"{text!r} does not name {word!r}"
    else:
        raise AssertionError(f"no error that names {', '.join(words)}")


def _with(operator: Case, name: str, value: Any) -> None:
    keywords: dict[str, Any] = {name: value}
    operator.run(**keywords)


def unknown_argument(operator: Case) -> None:
    """Check the error for an argument that does not exist."""
    with raises(TypeError, operator.operator, "nonsense"):
        _with(operator, "nonsense", 1)
    for name in (*operator.definition.arguments, "device"):
        with raises(TypeError, operator.operator, name + "_", match=f"did you mean '{name}'"):
            _with(operator, name + "_", 1)


def wrong_number_of_inputs(operator: Case) -> None:
    """Check the error for too few and too many inputs."""
    definition = operator.definition
    for count in {max(0, definition.required - 1), definition.inputs + len(definition.positional) + 1} - {definition.required}:
        with raises(TypeError, operator.operator):
            operator.function(*[batch([[1]])] * count, **operator.arguments())


def wrong_batch_size(operator: Case) -> None:
    """Check the error for samples and arguments of different numbers."""
    size = operator.batch_size + 1
    args = operator.arguments()
    if operator.definition.required:
        with raises(ValueError, operator.operator, match=r"[Bb]atch"):
            operator.function(*operator.batches(), **{**args, "batch_size": size})
    for name, argument in operator.definition.arguments.items():
        if argument.role is Role.per_sample:
            with raises(ValueError, operator.operator, match=r"[Bb]atch"):
                operator.function(*operator.batches(), **{**args, "batch_size": size - 1, name: batch([1] * size)})


def wrong_layout(operator: Case) -> None:
    """Check that an operator that depends on the layout rejects an unknown one; the others accept any."""
    if not operator.definition.required:
        return
    inputs = operator.batches()
    strange = as_batch(inputs[0], layout="XYZUVQ"[: inputs[0].ndim])
    try:
        operator.function(strange, *inputs[1:], **operator.arguments())
    except (RuntimeError, ValueError) as error:
        assert operator.operator in str(error)  # noqa: PT017
    else:
        assert operator.definition.options.layouts is None


def wrong_type_of_an_argument(operator: Case) -> None:
    """Check the error for an argument of another type."""
    for name, argument in operator.definition.arguments.items():
        if argument.role is Role.hint:
            continue
        with raises((TypeError, ValueError), operator.operator, name):
            _with(operator, name, object())


def wrong_device(operator: Case) -> None:
    """Check the error for a device that does not exist."""
    with raises(ValueError, operator.operator, match="nowhere"):
        operator.function(*operator.batches(), **operator.arguments(), device="nowhere")
    if not torch.cuda.is_available():
        with raises(RuntimeError, operator.operator, match="GPU"):
            operator.function(*operator.batches(), **operator.arguments(), device="gpu")


def wrong_input(operator: Case) -> None:
    """Check the error for inputs that are not arrays."""
    if not operator.definition.required:
        return
    rest = operator.batches()[1:]
    for wrong in (None, object(), "text", {"a": 1}):
        with raises(RuntimeError if wrong == "text" else TypeError, operator.operator):
            operator.function(wrong, *rest, **operator.arguments())


def check_operator(case: Case, device: str = "cpu") -> None:
    """Check an operator on one case, like torch_ndd's own operators.

    Dense and ragged batches must equal the reference and the samples one by one, for every number of threads and evaluation mode; inputs and
    arguments may be pending and keep their values, which repeated calls read again; shape, dtype, layout and device are known immediately; the kernel
    passes ``torch.library.opcheck``, and the call ``torch.compile(fullgraph=True)``; wrong names, types, numbers of inputs and samples, layouts and
    devices raise errors that name operator and argument. Raise AssertionError for whatever is wrong.

    Args:
        case: The call, with a reference unless the operator is random.
        device: ``"cpu"``, or ``"gpu"`` for the properties that depend on it.

    >>> import numpy as np, torch_ndd as ndd
    >>> from torch_ndd.testing import Case, Each, images
    >>> def reference(image, brightness):
    ...     return np.clip(np.rint(image * np.float32(brightness)), 0, 255).astype(np.uint8)
    >>> check_operator(Case("brightness", "uint8", images(), {"brightness": Each([0.5, 1.0, 2.0])}, layout="HWC", reference=reference, tolerance=1))
    """
    for ragged in (False, True) if case.ragged else (False,):
        if case.reference is not None:
            equals_its_reference(case, ragged, device)
        if case.random:
            random_operators_repeat_with_their_seed(case, ragged, device)
        else:
            batch_equals_its_samples_one_by_one(case, ragged)
        inputs_and_arguments_may_be_pending(case, ragged)
        dtype_layout_and_device(case, ragged, device)
        inputs_are_unchanged(case, ragged, device)
        threads_and_modes_do_not_matter(case, ragged)
        if not case.random:
            repeated_calls_read_their_inputs(case, ragged)
        opcheck(case, ragged, ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))
        if not case.uncompiled:
            assert_compiles([(case, ragged)], "aot_eager", device)
    for property in (unknown_argument, wrong_number_of_inputs, wrong_batch_size, wrong_layout, wrong_type_of_an_argument, wrong_device, wrong_input):
        property(case)
