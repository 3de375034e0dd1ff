# SPDX-License-Identifier: Apache-2.0
"""``@operator()``: from a handwritten function to an operator on tensors and batches.

The body of the function allocates the output; its kernel is the C++ function registered under the same name. The decorator adds everything else: it
decides between Tensor and Batch, packs per-sample arguments, checks layouts, moves inputs, queues the kernel and tracks pending work (``call.py``).
"""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Concatenate, TypeVar, overload

import torch

from .. import native
from ..context.device import DeviceLike as DeviceLike
from ..values.batch import Batch
from ..values.operand import loop
from ..values.tensor import Tensor
from .arguments import Call, Role, described, prepared
from .arguments import Double as Double
from .arguments import Hint as Hint
from .arguments import PerSample as PerSample
from .arguments import Random as Random
from .arguments import ShapeArg as ShapeArg
from .arguments import Shared as Shared
from .arguments import Varying as Varying
from .arguments import VaryingShape as VaryingShape
from .call import TAIL, perform
from .call import launch as launch
from .definition import OPERATORS as OPERATORS
from .definition import Operator as Operator
from .definition import Options
from .repeated import Repeated
from .replay import repeatable
from .signatures import OfAnyOutputs, OfOneInput, OfOptionalInput, OfShapeLike, OfTwoInputs, P, PairOfOneInput, TakesMany

T = TypeVar("T", Tensor, Batch)
V = TypeVar("V", bound=TakesMany)
F = TypeVar("F", bound=Callable[..., Any])


_MOST_INPUTS = 999  # of a variadic operator, as in DALI


class operator(Options):
    """Make an operator of a function ``f(input, /, *, batch_size=None, device=None, <arguments>)`` whose body allocates the output.

    ``f(input_0, /, *inputs, ...)`` takes any number of inputs. A positional parameter that is a ``PerSample`` or a ``ShapeArg`` is an argument. The
    body returns the output if the kernel takes the function's own arguments in their order, or :func:`launch`. A function that
    returns ``tuple[T, T]`` has two outputs.
    """

    @overload
    def __call__(self, function: V) -> V: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T | None, P], Any]) -> OfShapeLike[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, None, P], T]) -> OfOptionalInput[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, None, P], T | tuple[T, ...]]) -> OfAnyOutputs[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, T, P], T]) -> OfTwoInputs[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, P], T]) -> OfOneInput[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, P], tuple[T, T]]) -> PairOfOneInput[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, P], T | tuple[T, ...]]) -> OfAnyOutputs[P]: ...
    @overload
    def __call__(self, function: F) -> F: ...
    def __call__(self, function: Any) -> Any:
        """Return the operator, and register it in ``OPERATORS``."""
        name = self.name or function.__name__
        if (there := OPERATORS.get(name)) is not None and there.body.__module__ != function.__module__:
            raise ValueError(f"operator: {name} exists already, in {there.body.__module__}; name yours differently")
        op = OPERATORS[name] = _made(function, self)
        repeated = Repeated(op) if repeatable(op) else None

        @functools.wraps(function)
        def call(*inputs: Any, **given: Any) -> Any:
            if torch.compiler.is_compiling():
                return perform(op, inputs, given)
            if loop.latest is not None and (recorder := loop.recorder) is not None:
                return recorder.call(op.name, perform_again, inputs, given, op.draws)
            return perform(op, inputs, given) if repeated is None else repeated.call(inputs, given, perform)

        def perform_again(inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
            return perform(op, inputs, dict(given))

        call.__module__ = ".".join(("torch_ndd", *op.name.split(".")[:-1]))
        call.__name__ = call.__qualname__ = op.name.rpartition(".")[2]
        return call


_PACKED = (Role.per_sample, Role.shape, Role.random, Role.dtype)


def _made(function: Callable[..., Any], options: Options) -> Operator:
    name = options.name or function.__name__
    parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function, include_extras=True)
    places = {p.name: described(p, hints[p.name]) for p in parameters if p.kind is p.POSITIONAL_ONLY}
    positional = {key: argument for key, argument in places.items() if argument.role in (Role.per_sample, Role.shape)}
    inputs = [p for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name not in positional]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in TAIL]
    arguments = {p.name: described(p, hints[p.name]) for p in keywords}
    every = (*positional.values(), *arguments.values())

    kernel, automatic = None, None
    if options.kernel is not None:
        compiled, hint = name.replace(".", "_"), hints.get("return")
        outputs = len(typing.get_args(hint)) if typing.get_origin(hint) is tuple else 1
        kernel = native.kernel(compiled, options.fills or range(-2 * outputs, 0, 2))
        own = [argument for argument in every if argument.schema]
        if native.parameters(compiled)[2 if variadic else 2 * len(inputs) : -2 * outputs] == [argument.schema for argument in own]:
            automatic = tuple(argument.name for argument in own)
    packed = tuple(argument for argument in every if argument.role in _PACKED)
    missing = frozenset(p.name for p in keywords if p.default is p.empty)
    defaults = {p.name: p.default for p in keywords if p.default is not p.empty} | dict.fromkeys((*missing, *positional))
    ready = {a.name: prepared(Call(name), a, defaults[a.name], False) for a in packed if a.role is not Role.random}
    return Operator(
        name,
        function,
        options,
        kernel,
        _MOST_INPUTS if variadic else len(inputs),
        sum(p.default is p.empty for p in inputs),
        variadic,
        frozenset(k for k, p in enumerate(inputs) if places[p.name].role is Role.shared),
        positional,
        arguments,
        defaults,
        missing,
        packed,
        {**defaults, **{key: value for key, value in ready.items() if value is not None}},
        automatic,
        any(argument.role is Role.random for argument in every),
    )
