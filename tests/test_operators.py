# SPDX-License-Identifier: Apache-2.0
"""Every operator, on every case, through every property. The cases are ``CASES`` of ``tests/ops`` and ``tests/decoders``; nothing is listed here."""

import doctest
import enum
import inspect
import sys
from collections import defaultdict
from typing import Any

import pytest
import torch
from _all_cases import CASES
from _cases import HOST_ONLY, Case, Each
from conftest import CI, HAS_CUDA_KERNELS, WHOLE

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.operators.arguments import Role
from torch_ndd._core.operators.operator import OPERATORS
from torch_ndd.testing import _properties as properties

# Operators without a CUDA kernel, with the reason.
WITHOUT_CUDA_KERNEL = {
    "decoders.audio": "libsndfile decodes on the CPU, as in DALI; the result goes to the GPU with .gpu()",
    "decoders.numpy": "it reads headers and copies; the files are on the host, as in DALI",
    "io.file.read": "files are read into host memory",
}


def parametrize(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.operator}-{case.id}") for case in cases])


Row = tuple[Case, bool]


def rows(cases: list[Case]) -> list[Row]:
    """Return each case with dense and, where it has some, with ragged samples."""
    return [(case, ragged) for case in cases for ragged in (False, True) if case.ragged or not ragged]


def each_row(chosen: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("case", "ragged"), [pytest.param(case, ragged, id=f"{case.operator}-{case.id}-{'ragged' if ragged else 'dense'}") for case, ragged in chosen]
    )


def both_shapes(cases: list[Case]) -> pytest.MarkDecorator:
    return each_row(rows(cases))


def traits(case: Case, ragged: bool) -> set[tuple[Any, ...]]:
    """Return what may make a graph of the case another one: inputs, layouts, and each argument with the kind of its value.

    Equal and different shapes count apart from the number of dimensions. ``make whole`` combines the two.
    """

    def kind(value: Any) -> Any:
        if value is None or isinstance(value, bool | str | enum.Enum | torch.dtype):
            return value
        return type(value)

    inputs = case.inputs(False)
    found: set[tuple[Any, ...]] = {("layout", case.layout), ("result", case.out_layout), ("public", case.call is None)}
    found.add(("inputs", len(inputs), ragged))
    found |= {("dtype", k, samples[0].dtype) for k, samples in enumerate(inputs)}
    found |= {("dimensions", k, samples[0].ndim) for k, samples in enumerate(inputs)}
    return found | {(name, kind(value)) for name, value in case.args.items()}


def by_operator(chosen: list[Row]) -> dict[str, list[Row]]:
    of_operator: dict[str, list[Row]] = defaultdict(list)
    for row in chosen:
        of_operator[row[0].operator].append(row)
    return of_operator


def covering(cases: list[Case]) -> list[Row]:
    """Return rows that show all traits of each operator: always the one with the most new ones, until none has any."""
    chosen: list[Row] = []
    for of_operator in by_operator(rows(cases)).values():
        left = [(row, traits(*row)) for row in of_operator]
        while left:
            row, found = max(left, key=lambda value: len(value[1]))
            chosen.append(row)
            left = [(other, rest) for other, more in left if (rest := more - found)]
    return chosen


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


@both_shapes([case for case in CASES if case.reference is not None])
def test_equals_its_reference(case: Case, ragged: bool, device: str) -> None:
    properties.equals_its_reference(case, ragged, device)


# Every case meets its reference. What `call.py` and the kernels' drivers do for all operators is tested on rows that cover each operator's inputs,
# layouts and arguments; CI, `make whole` and builds with CUDA kernels take all rows, which are 2.6 times as many.
MODE_ROWS = rows(CASES) if CI or WHOLE or HAS_CUDA_KERNELS else covering(CASES)
each_mode_row = each_row(MODE_ROWS)
each_fixed_row = each_row([row for row in MODE_ROWS if not row[0].random])


@each_fixed_row
def test_batch_equals_its_samples_one_by_one(case: Case, ragged: bool) -> None:
    properties.batch_equals_its_samples_one_by_one(case, ragged)


@each_row([row for row in MODE_ROWS if any(isinstance(value, Each) for value in row[0].args.values())])
def test_inputs_and_arguments_may_be_pending(case: Case, ragged: bool) -> None:
    properties.inputs_and_arguments_may_be_pending(case, ragged)


@both_shapes(CASES if HAS_CUDA_KERNELS and torch.cuda.is_available() else CASES[:1])  # rather than 1,400 tests that are skipped
def test_cpu_equals_cuda(case: Case, ragged: bool, device: str) -> None:
    if device == "cpu":
        pytest.skip("needs --device=cuda")
    for ours, theirs in zip(properties.values(case.run(ragged)), properties.values(case.run(ragged, device)), strict=True):
        properties.near_on_gpu(case, theirs, ours)


@each_mode_row
def test_dtype_layout_and_device(case: Case, ragged: bool, device: str) -> None:
    properties.dtype_layout_and_device(case, ragged, device)


@each_mode_row
def test_inputs_are_unchanged(case: Case, ragged: bool, device: str) -> None:
    properties.inputs_are_unchanged(case, ragged, device)


@each_mode_row
def test_threads_and_modes_do_not_matter(case: Case, ragged: bool) -> None:
    properties.threads_and_modes_do_not_matter(case, ragged)


@each_fixed_row
def test_repeated_calls_read_their_inputs(case: Case, ragged: bool, device: str) -> None:
    properties.repeated_calls_read_their_inputs(case, ragged, device)


@both_shapes([case for case in CASES if case.random])
def test_random_operators_repeat_with_their_seed(case: Case, ragged: bool, device: str) -> None:
    properties.random_operators_repeat_with_their_seed(case, ragged, device)


OPERATORS_WITH_KERNEL = {case.operator: case for case in reversed(CASES) if case.definition.kernel is not None}


# A sample, as of graphs: all cases took 36 CPU seconds.
@each_row(rows(CASES) if WHOLE else covering(CASES))
def test_torch_opcheck_accepts_the_operator(case: Case, ragged: bool) -> None:
    if case.definition.kernel is None:
        pytest.skip("nothing is computed")
    properties.opcheck(case, ragged)


# One for each operator: 16 CPU seconds, where all cases would take 160.
@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS_WITH_KERNEL)
@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.usefixtures("pause_gc")
def test_torch_opcheck_traces_the_operator_with_dynamic_shapes(operator: str, ragged: bool) -> None:
    properties.opcheck(OPERATORS_WITH_KERNEL[operator], ragged, ("test_aot_dispatch_dynamic",))


COMPILED = [case for case in CASES if not case.uncompiled]
COMPILED_ROWS = by_operator(rows(COMPILED) if WHOLE else covering(COMPILED))


# A graph takes 0.2 to 2 s, ten times as long as all other properties of a case. One for each operator takes 0.7 times as long as one for each row.
@pytest.mark.slow
@pytest.mark.parametrize("operator", COMPILED_ROWS)
@pytest.mark.usefixtures("pause_gc")
def test_torch_compile_equals_eager(operator: str, device: str) -> None:
    if device == "gpu" and operator in HOST_ONLY:
        pytest.skip("works in host memory alone")
    properties.assert_compiles(COMPILED_ROWS[operator], "aot_eager", device)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_inductor_equals_eager(ragged: bool, device: str) -> None:
    properties.assert_compiles([(next(case for case in CASES if case.operator == "brightness"), ragged)], "inductor", device)


@each_operator
def test_unknown_argument(operator: Case) -> None:
    properties.unknown_argument(operator)


@each_operator
def test_wrong_number_of_inputs(operator: Case) -> None:
    properties.wrong_number_of_inputs(operator)


@each_operator
def test_wrong_batch_size(operator: Case) -> None:
    properties.wrong_batch_size(operator)


@each_operator
def test_wrong_layout(operator: Case) -> None:
    if not operator.definition.required:
        pytest.skip("takes no input")
    properties.wrong_layout(operator)


@each_operator
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrong_type_of_an_argument(operator: Case) -> None:
    properties.wrong_type_of_an_argument(operator)


@each_operator
def test_wrong_device(operator: Case) -> None:
    properties.wrong_device(operator)


@each_operator
def test_wrong_input(operator: Case) -> None:
    if not operator.definition.required:
        pytest.skip("takes no input")
    properties.wrong_input(operator)


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
    assert cases, f"{name} has no case in tests/ops or tests/decoders"
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
        if not module.__name__.startswith("torch_ndd") or module.__name__ == "torch_ndd.extension":  # whose functions help to write operators
            continue
        for name, function in vars(module).items():
            if name[0] == "_" or not inspect.isfunction(function):
                continue
            if {"device", "batch_size"} <= set(inspect.signature(function).parameters):
                # per_frame only marks its input, python_function makes an operator of its argument. experimental.peek_image_shape is the operator
                # without that prefix.
                same = name in OPERATORS and function is getattr(ndd, name, None)
                assert prefix + name in OPERATORS or same or name in ("per_frame", "python_function"), f"{prefix}{name} is not an operator"
