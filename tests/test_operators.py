# SPDX-License-Identifier: Apache-2.0
"""Every operator, on every case, through every property. The cases are ``CASES`` of ``tests/ops/test_<family>.py``; nothing is listed here."""

import doctest
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _cases import HOST_ONLY, Case, Each, as_tuple
from conftest import HAS_CUDA_KERNELS

import torch_ndd as ndd
from torch_ndd import EvalMode
from torch_ndd._core import native
from torch_ndd._core.arguments import Role
from torch_ndd._core.operator import OPERATORS

# Operators without a CUDA kernel, with the reason.
WITHOUT_CUDA_KERNEL = {
    "decoders.audio": "libsndfile decodes on the CPU, as in DALI; the result goes to the GPU with .gpu()",
    "decoders.numpy": "it reads headers and copies; the files are on the host, as in DALI",
    "io.file.read": "files are read into host memory",
}


def _cases() -> Iterator[Case]:
    for path in sorted(Path(__file__).with_name("ops").glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"cases_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except pytest.skip.Exception:  # a module that needs a package which is missing; under CI conftest.py refuses to begin
            continue
        yield from getattr(module, "CASES", [])


CASES = list(_cases())


def parametrized(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.operator}-{case.id}") for case in cases])


def both_shapes(cases: list[Case]) -> pytest.MarkDecorator:
    rows = [
        pytest.param(case, ragged, id=f"{case.operator}-{case.id}-{'ragged' if ragged else 'dense'}") for case in cases for ragged in (False, True)
    ]
    return pytest.mark.parametrize(("case", "ragged"), [row for row in rows if row.values[0].ragged or not row.values[1]])


def first_cases() -> list[Case]:
    """One for each operator with a public function."""
    return list({case.operator: case for case in reversed(CASES) if case.call is None}.values())[::-1]


each_operator = pytest.mark.parametrize("operator", first_cases(), ids=lambda case: case.operator)


@pytest.fixture(autouse=True)
def _host_memory(request: pytest.FixtureRequest) -> None:
    """Operators that work only in host memory have nothing to test on a GPU."""
    case = request.node.callspec.params.get("case") if hasattr(request.node, "callspec") else None
    if case is not None and case.operator in HOST_ONLY and "device" in request.fixturenames and request.getfixturevalue("device") == "gpu":
        pytest.skip("works in host memory alone")


def values(result: Any) -> list[np.ndarray]:
    """All samples of all results."""
    return [np.asarray(one.cpu()) for out in as_tuple(result) for one in (out if isinstance(out, ndd.Batch) else [out])]


def assert_equal(result: Any, expected: Any) -> None:
    ours, theirs = values(result), values(expected)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def assert_near(result: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance)


@both_shapes([case for case in CASES if case.reference is not None])
def test_equals_its_reference(case: Case, ragged: bool, device: str) -> None:
    results, expected = case.run(ragged, device), case.expected(ragged)
    assert expected is not None
    for k, result in enumerate(results):
        for sample, reference in zip(result.cpu(), expected, strict=True):
            assert_near(np.asarray(sample), reference[k], case.tolerance)


# A GPU fuses multiply and add with one rounding where a CPU has two, so that floating-point results differ by some ulps of the largest.
_STEPS = 2.0**-20


def near_on_gpu(case: Case, ours: np.ndarray, cpu: np.ndarray) -> None:
    steps = _STEPS * float(np.abs(cpu[np.isfinite(cpu)]).max(initial=0)) if cpu.dtype.kind == "f" else 0.0
    assert_near(ours, cpu, max(case.tolerance, steps))


@both_shapes([case for case in CASES if not case.random])
def test_batch_equals_its_samples_one_by_one(case: Case, ragged: bool) -> None:
    results = case.run(ragged)
    for i in range(case.batch_size):
        assert_equal(tuple(result.select(i) for result in results), case.run_sample(i, ragged))


@both_shapes([case for case in CASES if any(isinstance(value, Each) for value in case.args.values())])
def test_inputs_and_arguments_may_be_pending(case: Case, ragged: bool) -> None:
    def pending(value: Any) -> Any:
        return ndd.cast(value, dtype=value.dtype) if isinstance(value, ndd.Batch) else value

    with EvalMode.deferred:
        args = {name: pending(value) for name, value in case.arguments().items()}
        inputs = [pending(value) for value in case.batches(ragged)]
        assert all(value._pending for value in (*inputs, *args.values()) if isinstance(value, ndd.Batch))
        result = case.function(*inputs, **args)
    assert_equal(result, case.run(ragged))


@both_shapes(CASES)
def test_cpu_equals_cuda(case: Case, ragged: bool, device: str) -> None:
    if device == "cpu":
        pytest.skip("needs --device=cuda")
    for ours, theirs in zip(values(case.run(ragged)), values(case.run(ragged, device)), strict=True):
        near_on_gpu(case, theirs, ours)


@both_shapes(CASES)
def test_dtype_layout_and_device(case: Case, ragged: bool, device: str) -> None:
    results = case.run(ragged, device)
    assert case.out_layout == "as the input" or results[0].layout == case.out_layout
    assert case.out_layout != "as the input" or results[0].layout == case.layout
    for result in results:
        assert str(result.device).partition(":")[0] == device
        shapes, dtype = result.shape, result.dtype
        for sample, shape in zip(result.evaluate(), shapes, strict=True):
            assert (sample.shape, sample.dtype, sample.layout) == (shape, dtype, result.layout)


@both_shapes(CASES)
def test_inputs_are_unchanged(case: Case, ragged: bool, device: str) -> None:
    (inputs, where), args = case.placed(ragged, device), case.arguments()
    given = [value for value in (*inputs, *args.values()) if isinstance(value, ndd.Batch)]
    before = [value.cpu()._values.clone() for value in given]
    for result in as_tuple(case.function(*inputs, **args, **where)):
        result.evaluate()
    for value, copy in zip(given, before, strict=True):
        assert torch.equal(value.cpu()._values, copy)


@both_shapes(CASES)
def test_threads_and_modes_do_not_matter(case: Case, ragged: bool) -> None:
    with EvalMode.sync_full:
        expected = case.run(ragged)
    for threads in (1, 4):
        ndd.set_num_threads(threads)
        for mode in (EvalMode.deferred, EvalMode.eager, EvalMode.sync_cpu, EvalMode.sync_full):
            with mode:
                assert_equal(case.run(ragged), expected)


@both_shapes([case for case in CASES if case.random])
def test_random_operators_repeat_with_their_seed(case: Case, ragged: bool, device: str) -> None:
    inputs, where = case.placed(ragged, device)
    first = case.function(*inputs, **case.arguments(seed=1), **where)
    assert_equal(first, case.function(*inputs, **case.arguments(seed=1), **where))
    ndd.random.set_seed(1)
    assert_equal(first, case.function(*inputs, **{name: value for name, value in case.arguments().items() if name != "rng"}, **where))
    others = [values(case.function(*inputs, **case.arguments(seed=seed), **where)) for seed in range(2, 8)]
    assert any(not np.array_equal(a, b) for other in others for a, b in zip(values(first), other, strict=True))


@both_shapes(CASES)
def test_opcheck(case: Case, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    kernel = case.definition.kernel
    if kernel is None:
        pytest.skip("nothing is computed")
    monkeypatch.setattr(case.definition, "kernel", lambda *args: (calls.append(args), kernel(*args))[1])
    with EvalMode.sync_cpu:
        case.run(ragged)
    for args in calls:
        torch.library.opcheck(kernel, args, test_utils=("test_schema", "test_faketensor"))


def compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


def assert_compiles(case: Case, ragged: bool, backend: str, device: str) -> None:
    inputs, where = case.placed(ragged, device)
    if device == "gpu":
        inputs = tuple(one.evaluate() for one in inputs)  # a graph runs on torch's stream, which does not wait for that of the context
    args = {name: value for name, value in case.arguments().items() if name != "rng"} | where
    results = as_tuple(compiled(lambda *given: case.function(*given, **args), backend)(*inputs))
    if case.random:
        return
    for ours, theirs in zip(values(results), values(case.run(ragged, device)), strict=True):
        if device == "gpu":
            near_on_gpu(case, ours, theirs)
        else:
            assert_near(ours, theirs, case.tolerance)


@both_shapes([case for case in CASES if not case.uncompiled])
def test_torch_compile_equals_eager(case: Case, ragged: bool, device: str) -> None:
    assert_compiles(case, ragged, "aot_eager", device)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_inductor_equals_eager(ragged: bool, device: str) -> None:
    assert_compiles(next(case for case in CASES if case.operator == "brightness"), ragged, "inductor", device)


def message(error: pytest.ExceptionInfo[BaseException], *words: str) -> None:
    for word in words:
        assert re.search(rf"\b{re.escape(word)}\b", str(error.value)), f"{str(error.value)!r} does not name {word!r}"


@each_operator
def test_unknown_argument(operator: Case) -> None:
    with pytest.raises(TypeError) as error:
        operator.run(nonsense=1)
    message(error, operator.operator, "nonsense")
    for name in (*operator.definition.arguments, "device"):
        with pytest.raises(TypeError, match=f"did you mean '{name}'") as error:
            operator.run(**{name + "_": 1})
        message(error, operator.operator, name + "_")


@each_operator
def test_wrong_number_of_inputs(operator: Case) -> None:
    definition = operator.definition
    for count in {max(0, definition.required - 1), definition.inputs + len(definition.positional) + 1} - {definition.required}:
        with pytest.raises(TypeError) as error:
            operator.function(*[ndd.batch([[1]])] * count, **operator.arguments())
        message(error, operator.operator)


@each_operator
def test_wrong_batch_size(operator: Case) -> None:
    size = operator.batch_size + 1
    args = operator.arguments()
    if operator.definition.required:
        with pytest.raises(ValueError, match=r"[Bb]atch") as error:
            operator.function(*operator.batches(), **{**args, "batch_size": size})
        message(error, operator.operator)
    for name, argument in operator.definition.arguments.items():
        if argument.role is Role.per_sample:
            with pytest.raises(ValueError, match=r"[Bb]atch") as error:
                operator.function(*operator.batches(), **{**args, "batch_size": size - 1, name: ndd.batch([1] * size)})
            message(error, operator.operator)


@each_operator
def test_wrong_layout(operator: Case) -> None:
    """An operator that depends on the layout rejects an unknown one; the others accept any."""
    if not operator.definition.required:
        pytest.skip("takes no input")
    inputs = operator.batches()
    strange = ndd.as_batch(inputs[0], layout="XYZUVQ"[: inputs[0].ndim])
    try:
        operator.function(strange, *inputs[1:], **operator.arguments())
    except (RuntimeError, ValueError) as error:
        assert operator.operator in str(error)  # noqa: PT017
    else:
        assert operator.definition.options.layouts is None


@each_operator
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrong_type_of_an_argument(operator: Case) -> None:
    for name, argument in operator.definition.arguments.items():
        if argument.role is Role.hint:
            continue
        with pytest.raises((TypeError, ValueError)) as error:
            operator.run(**{name: object()})
        message(error, operator.operator, name)


@each_operator
def test_wrong_device(operator: Case) -> None:
    with pytest.raises(ValueError, match="nowhere") as error:
        operator.function(*operator.batches(), **operator.arguments(), device="nowhere")
    message(error, operator.operator)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="GPU") as error:
            operator.function(*operator.batches(), **operator.arguments(), device="gpu")
        message(error, operator.operator)


@each_operator
def test_wrong_input(operator: Case) -> None:
    if not operator.definition.required:
        pytest.skip("takes no input")
    rest = operator.batches()[1:]
    for wrong in (None, object(), "text", {"a": 1}):
        with pytest.raises(RuntimeError if wrong == "text" else TypeError) as error:  # DALI's types
            operator.function(wrong, *rest, **operator.arguments())
        message(error, operator.operator)


@pytest.mark.parametrize("name", OPERATORS)
def test_example_runs(name: str) -> None:
    definition = OPERATORS[name]
    text = inspect.getdoc(definition.body) or ""
    example = doctest.DocTestParser().get_doctest(text, {**vars(ndd), "ndd": ndd, **vars(sys.modules[definition.body.__module__])}, name, None, 0)
    assert example.examples, f"{name} has no example"
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(example, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_complete(name: str) -> None:
    cases = [case for case in CASES if case.operator == name]
    assert cases, f"{name} has no case in tests/ops"
    definition = OPERATORS[name]
    assert definition.options.formula or any(case.reference or case.random for case in cases), f"no case of {name} has a reference"
    assert not definition.required or any(case.ragged for case in cases), f"{name} has no ragged case"
    each = {key for case in cases for key, value in case.args.items() if isinstance(value, Each)}
    varying = {key for key, argument in definition.arguments.items() if argument.role in (Role.per_sample, Role.shape)}
    assert varying <= each, f"no case of {name} has a value a sample (Each) for {sorted(varying - each)}"
    if definition.kernel is None:
        return
    kernel = name.replace(".", "_")
    assert (kernel, "CPU") in native.KERNELS, f"{name} has no CPU kernel"
    if HAS_CUDA_KERNELS:
        assert (kernel, "CUDA") in native.KERNELS or name in WITHOUT_CUDA_KERNEL, f"{name} has no CUDA kernel"


def test_every_public_operator_is_registered() -> None:
    """A public function that takes a device and a batch size is an operator."""
    for module, prefix in [(ndd, ""), *((module, f"{name}.") for name, module in vars(ndd).items() if inspect.ismodule(module) and name[0] != "_")]:
        if not module.__name__.startswith("torch_ndd"):
            continue
        for name, function in vars(module).items():
            if name[0] == "_" or not inspect.isfunction(function):
                continue
            if {"device", "batch_size"} <= set(inspect.signature(function).parameters):
                # per_frame only marks its input and computes nothing. experimental.peek_image_shape is the operator without that prefix.
                same = name in OPERATORS and function is getattr(ndd, name, None)
                assert prefix + name in OPERATORS or same or name == "per_frame", f"{prefix}{name} is no operator"
