# SPDX-License-Identifier: Apache-2.0
"""Operators under torch's transforms: they work, or raise an error. Never does a derivative get lost, or a random number repeated, silently."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ndd as ndd

# Of torch itself, which scripts functions for forward-mode differentiation.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::torch.jit.TracerWarning")

IMAGES = torch.arange(2 * 6 * 7 * 3, dtype=torch.float32).reshape(2, 6, 7, 3) / 10


def take(values: torch.Tensor) -> ndd.Batch:
    return ndd.as_batch(values, layout="HWC")


OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "flip": lambda values: ndd.flip(take(values)).torch(),
    "resize": lambda values: ndd.resize(take(values), size=[4, 5]).torch(),
    "normalize": lambda values: ndd.normalize(take(values)).torch(),
    "sum": lambda values: ndd.reductions.sum(take(values), axes=[0, 1]).torch(),
    "arithmetic": lambda values: (take(values) + 1).torch(),
    "a sample": lambda values: ndd.flip(ndd.as_tensor(values[0], layout="HWC")).torch(),
    "without a batch": lambda values: ndd.flip(values[0]).torch(),
}
operators = pytest.mark.parametrize("name", OPERATORS)


def draw(values: torch.Tensor) -> torch.Tensor:
    return values.sum() * 0 + ndd.random.uniform(shape=[3], batch_size=2, range=[0, 1]).torch()


def differentiate(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return torch.func.grad(lambda values: function(values).sum())(IMAGES)


def push_forward(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return torch.func.jvp(function, (IMAGES,), (IMAGES,))


def dualize(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(IMAGES.clone(), IMAGES))


LOST: dict[str, tuple[Callable[..., Any], str]] = {
    "grad": (differentiate, "requires grad cannot become a Tensor; call .detach"),
    "jvp": (push_forward, "has a forward-mode tangent cannot become a Tensor; call .detach"),
    "dual": (dualize, "has a forward-mode tangent cannot become a Tensor; call .detach"),
    "jacfwd": (lambda function: torch.func.jacfwd(function)(IMAGES), "has a forward-mode tangent"),
    "hessian": (lambda function: torch.func.hessian(lambda values: function(values).sum())(IMAGES), "requires grad"),
    "vmap": (lambda function: torch.func.vmap(function)(torch.stack([IMAGES, IMAGES])), "operators take all samples together"),
    "functionalize": (lambda function: torch.func.functionalize(function)(IMAGES), "of functionalize cannot become"),
}


@operators
@pytest.mark.parametrize("transform", LOST)
def test_operators_refuse_what_a_transform_would_lose(transform: str, name: str) -> None:
    apply, message = LOST[transform]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        apply(OPERATORS[name])


COMPILED: dict[str, tuple[Callable[..., Any], str]] = {
    "grad": (lambda function: torch.func.grad(lambda values: function(values).sum()), "requires grad"),
    "jvp": (lambda function: lambda values: torch.func.jvp(function, (values,), (values,)), "has a forward-mode tangent"),
    "vmap": (lambda function: torch.func.vmap(function), "operators take all samples together"),
}


@pytest.mark.usefixtures("new_compiler")
@pytest.mark.parametrize("name", ["resize", "arithmetic"])
@pytest.mark.parametrize("transform", COMPILED)
def test_a_graph_refuses_what_a_transform_would_lose(transform: str, name: str) -> None:
    apply, message = COMPILED[transform]
    function = OPERATORS[name]
    compiled = torch.compile(lambda values: apply(function)(values), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=message):  # of a class of the compiler
        compiled(torch.stack([IMAGES, IMAGES]) if transform == "vmap" else IMAGES)


def test_operators_refuse_tensors_within_a_transform() -> None:
    """A Tensor is a node of torch's trees, which the transform opens."""
    tensor = ndd.tensor(IMAGES[0], layout="HWC")
    with pytest.raises(RuntimeError, match=r"flip: input 0: .* requires grad"):
        torch.func.grad(lambda tensor: ndd.flip(tensor).torch().sum())(tensor)
    with pytest.raises(RuntimeError, match=r"arithmetic \+: input 0: .* tangent"):
        torch.func.jvp(lambda tensor: (tensor + 1).torch(), (tensor,), (tensor,))
    assert not tensor.torch().requires_grad


TRANSFORMS: dict[str, Callable[[Callable[[torch.Tensor], torch.Tensor]], Any]] = {
    "grad": lambda function: torch.func.grad(lambda values: function(values).sum())(torch.ones(1)),
    "jvp": lambda function: torch.func.jvp(function, (torch.ones(1),), (torch.ones(1),))[1],
    "vmap": lambda function: torch.func.vmap(function)(torch.ones(3, 1)),
    "grad of grad": lambda function: torch.func.grad(lambda x: torch.func.grad(lambda y: (function(y) * y * x).sum())(x).sum())(torch.ones(1)),
}


@operators
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_operators_work_on_constants_within_a_transform(transform: str, name: str) -> None:
    """A loss augments its images, and is differentiated by its parameters."""
    expected = OPERATORS[name](IMAGES).clone()
    found = TRANSFORMS[transform](lambda values: values * OPERATORS[name](IMAGES))
    torch.testing.assert_close(found, TRANSFORMS[transform](lambda values: values * expected))


def test_values_are_made_of_constants_within_a_transform() -> None:
    def loss(weight: torch.Tensor) -> torch.Tensor:
        batch = ndd.as_batch([IMAGES[0], IMAGES[1].flip(0)], layout="HWC")
        ragged = ndd.batch([[1.0, 2.0], [3.0]])
        part = ndd.flip(batch.slice[1:4, ::2]).select([1, 0]) * ndd.tensor([1.0, 2.0, 3.0])
        return weight * (part.torch().sum() + ndd.as_tensor(ragged, pad=True).torch().sum() + ndd.tensor([[2.0]])[0, 0].item())

    expected = loss(torch.ones(1))
    for _ in range(5):  # plans of repeated calls are not made of wrapped values
        torch.testing.assert_close(torch.func.grad(lambda weight: loss(weight).sum())(torch.ones(1)), expected)
        torch.testing.assert_close(loss(torch.ones(1)), expected)


@operators
def test_detached_values_are_constants(name: str) -> None:
    function = OPERATORS[name]
    primal, tangent = torch.func.jvp(lambda values: function(values.detach()), (IMAGES,), (IMAGES,))
    torch.testing.assert_close(primal, function(IMAGES))
    assert not tangent.any()
    assert not torch.func.grad(lambda values: function(values.detach()).sum() + 0 * values.sum())(IMAGES).any()


@pytest.mark.parametrize("name", ["horizontal_flip", "invert"])
def test_repeated_functionals_refuse_what_a_transform_would_lose(name: str) -> None:
    from torch_ndd.torchvision.v2 import functional

    function, images = getattr(functional, name), torch.rand(3, 6, 7)
    for _ in range(4):
        function(images)
    with pytest.raises(RuntimeError, match="has a forward-mode tangent"):
        torch.func.jvp(function, (images,), (images,))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="has a forward-mode tangent"):
        function(forward_ad.make_dual(images.clone(), images))
    with pytest.raises(RuntimeError, match="operators take all samples together"):
        torch.func.vmap(function)(images[None])
    program = torch.jit.trace(function, (images,), check_trace=False)
    torch.testing.assert_close(program(1 - images), function(1 - images))


def test_torch_jit_trace_stores_repeated_calls() -> None:
    function = OPERATORS["flip"]
    for _ in range(5):
        function(IMAGES)
    program = torch.jit.trace(function, (IMAGES,), check_trace=False)
    torch.testing.assert_close(program(IMAGES + 1), function(IMAGES + 1))


def test_arguments_that_require_grad_are_refused() -> None:
    strength = torch.tensor([1.5, 0.5], requires_grad=True)
    with pytest.raises(RuntimeError, match=r"brightness: brightness: a torch tensor that requires grad"):
        ndd.brightness(take(IMAGES), brightness=strength)
    with pytest.raises(RuntimeError, match=r"brightness: brightness: a torch tensor that requires grad"):
        ndd.brightness(take(IMAGES), brightness=strength[0])
    with torch.no_grad():
        ndd.brightness(take(IMAGES), brightness=strength.detach())


# --- Random numbers ---


@pytest.mark.parametrize("randomness", ["error", "different"])
def test_vmap_does_not_repeat_random_numbers(randomness: str) -> None:
    with pytest.raises(RuntimeError, match=r"random\.uniform: torch\.func\.vmap calls an operator a single time"):
        torch.func.vmap(draw, randomness=randomness)(torch.ones(3, 1))


def test_vmap_shares_random_numbers_on_request() -> None:
    first, *others = torch.func.vmap(draw, randomness="same")(torch.ones(3, 1))
    assert all(torch.equal(first, other) for other in others)


def test_random_operators_work_within_a_gradient() -> None:
    ndd.random.set_seed(5)
    expected = draw(IMAGES).sum()
    ndd.random.set_seed(5)
    torch.testing.assert_close(torch.func.grad(lambda weight: (weight * draw(IMAGES)).sum())(torch.ones(())), expected)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("has_generator", [False, True])
def test_a_traced_program_draws_when_it_runs(mode: str, has_generator: bool) -> None:
    generator = ndd.random.RNG(seed=5) if has_generator else None

    def function(values: torch.Tensor) -> torch.Tensor:
        return values.sum() * 0 + ndd.random.uniform(shape=[3], batch_size=2, range=[0, 1], rng=generator).torch()

    def reseed() -> None:
        if generator is None:
            ndd.random.set_seed(5)
        else:
            generator.seed = 5

    program = make_fx(function, tracing_mode=mode)(IMAGES)
    reseed()
    expected = [function(IMAGES) for _ in range(2)]
    reseed()
    found = [program(IMAGES) for _ in range(2)]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_torch_jit_trace_does_not_store_random_numbers() -> None:
    with pytest.raises(RuntimeError, match=r"random\.uniform: torch\.jit\.trace would store"):
        torch.jit.trace(draw, (IMAGES,), check_trace=False)


# --- Tensors without values, and of other classes ---


@operators
def test_fake_tensors_have_the_shapes_of_results(name: str) -> None:
    expected = OPERATORS[name](IMAGES)
    mode = FakeTensorMode()
    with mode:
        found = OPERATORS[name](mode.from_tensor(IMAGES))
    assert isinstance(found, FakeTensor)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


def test_random_numbers_of_fake_tensors() -> None:
    with FakeTensorMode():
        found = ndd.random.uniform(shape=[3], batch_size=2, range=[0, 1]).torch()
    assert isinstance(found, FakeTensor)
    assert found.shape == (2, 3)


@operators
def test_make_fx_traces_operators(name: str) -> None:
    for mode in ("real", "fake", "symbolic"):
        program = make_fx(OPERATORS[name], tracing_mode=mode)(IMAGES)
        torch.testing.assert_close(program(IMAGES + 1), OPERATORS[name](IMAGES + 1))


def test_a_traced_program_keeps_pending_values() -> None:
    pending = ndd.flip(take(IMAGES))
    program = make_fx(lambda values: (take(values) + pending).torch())(IMAGES)
    torch.testing.assert_close(program(IMAGES + 1), IMAGES + 1 + IMAGES.flip(2))


@operators
def test_operators_refuse_tensors_without_memory(name: str) -> None:
    with pytest.raises(TypeError, match="a TwoTensor cannot become a Tensor because its values are in other tensors"):
        OPERATORS[name](TwoTensor(IMAGES, IMAGES + 1))
    with pytest.raises(TypeError, match=r"a FakeTensor cannot become a Tensor .* under its FakeTensorMode"):
        OPERATORS[name](FakeTensorMode().from_tensor(IMAGES))


@pytest.mark.usefixtures("new_compiler")
def test_a_graph_refuses_tensors_without_memory() -> None:
    compiled = torch.compile(OPERATORS["resize"], fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="a TwoTensor cannot become a Tensor"):  # of a class of the compiler
        compiled(TwoTensor(IMAGES, IMAGES + 1))


class Plain(torch.Tensor):
    """A class of tensors that changes nothing."""


@operators
def test_operators_take_parameters_and_simple_classes(name: str) -> None:
    expected = OPERATORS[name](IMAGES)
    for values in (torch.nn.Parameter(IMAGES, requires_grad=False), IMAGES.as_subclass(Plain)):
        torch.testing.assert_close(OPERATORS[name](values), expected)


# --- Modes and higher-order operators ---


class Counting(TorchDispatchMode):
    """Counts the calls of torch's dispatcher."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


@operators
def test_operators_work_under_modes(name: str) -> None:
    expected = OPERATORS[name](IMAGES).clone()
    with Counting() as mode:
        for _ in range(5):
            torch.testing.assert_close(OPERATORS[name](IMAGES), expected)
    assert mode.count
    with torch.autocast("cpu"):
        torch.testing.assert_close(OPERATORS[name](IMAGES), expected)
    with torch.autograd.graph.saved_tensors_hooks(lambda values: values.numpy(), torch.from_numpy):
        weight = torch.ones((), requires_grad=True)
        (weight * OPERATORS[name](IMAGES)).sum().backward()
    torch.testing.assert_close(weight.grad, expected.sum())


@pytest.mark.usefixtures("new_compiler")
@pytest.mark.parametrize("name", ["resize", "arithmetic"])
def test_branches_of_cond_contain_operators(name: str) -> None:
    function = OPERATORS[name]

    def choose(condition: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.cond(condition, lambda values: function(values) * 2, lambda values: function(values) * 3, (values,))

    compiled = torch.compile(choose, fullgraph=True, backend="aot_eager")
    for condition, factor in ((True, 2), (False, 3)):
        torch.testing.assert_close(compiled(torch.tensor(condition), IMAGES), function(IMAGES) * factor)


@pytest.mark.slow
def test_a_package_contains_cond_and_arithmetic(tmp_path: Path) -> None:
    class Program(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            small = ndd.resize(take(values) * 2, size=[4, 5])
            return torch.cond(values.sum() > 0, lambda part: (take(part) + 1).torch().clone(), lambda part: part * 3, (small.torch(),))

    program = torch.export.export(Program(), (IMAGES,))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "program.pt2"))
    for values in (IMAGES, -IMAGES):
        torch.testing.assert_close(torch._inductor.aoti_load_package(package)(values), Program()(values))
