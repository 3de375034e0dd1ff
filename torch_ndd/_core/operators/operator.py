# SPDX-License-Identifier: Apache-2.0
"""``@operator()``: from a handwritten function to an operator on tensors and batches.

The body of the function allocates the output; its kernel is the C++ function registered under the same name. The decorator adds everything else: it
decides between Tensor and Batch, packs per-sample arguments, checks layouts, moves inputs, launches the kernel and tracks pending work
(``call.py``), and repeats calls by plans (``plans.py``).
"""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Concatenate, TypeVar, overload

from .. import native
from ..context.device import DeviceLike as DeviceLike
from ..values.batch import Batch
from ..values.tensor import Tensor
from .arguments import AsGiven as AsGiven
from .arguments import Call, Role, describe_argument, prepare_argument
from .arguments import Double as Double
from .arguments import Hint as Hint
from .arguments import Kept as Kept
from .arguments import KeptLike as KeptLike
from .arguments import PerSample as PerSample
from .arguments import Random as Random
from .arguments import ShapeArg as ShapeArg
from .arguments import Shared as Shared
from .arguments import Varying as Varying
from .arguments import VaryingShape as VaryingShape
from .call import TAIL
from .definition import OPERATORS as OPERATORS
from .definition import Derivation as Derivation
from .definition import NativeDerivation as NativeDerivation
from .definition import Operator as Operator
from .definition import Options
from .definition import launch as launch
from .plans import make_caller
from .signatures import OfAnyOutputs, OfOneInput, OfOptionalInput, OfShapeLike, OfTwoInputs, P, PairOfOneInput, TakesMany

T = TypeVar("T", Tensor, Batch)
V = TypeVar("V", bound=TakesMany)
F = TypeVar("F", bound=Callable[..., Any])


_MAX_INPUTS = 999  # of a variadic operator, as in DALI


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
        if (existing := OPERATORS.get(name)) is not None and existing.body.__module__ != function.__module__:
            raise ValueError(f"operator: {name} is already registered by {existing.body.__module__}; choose another name")
        op = OPERATORS[name] = _define_operator(function, self)
        call = functools.wraps(function)(make_caller(op))
        call.__module__ = ".".join(("torch_ndd", *op.name.split(".")[:-1]))
        call.__name__ = call.__qualname__ = op.name.rpartition(".")[2]
        return call


_PACKED = (Role.per_sample, Role.shape, Role.random, Role.dtype)


def _define_operator(function: Callable[..., Any], options: Options) -> Operator:
    name = options.name or function.__name__
    parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function, include_extras=True)
    positional_only = {p.name: describe_argument(p, hints[p.name]) for p in parameters if p.kind is p.POSITIONAL_ONLY}
    positional = {key: argument for key, argument in positional_only.items() if argument.role in (Role.per_sample, Role.shape)}
    inputs = [p for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name not in positional]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in TAIL]
    arguments = {p.name: describe_argument(p, hints[p.name]) for p in keywords}
    all_arguments = (*positional.values(), *arguments.values())

    kernel, automatic = None, None
    if options.kernel is not None:
        native_name, hint = name.replace(".", "_"), hints.get("return")
        outputs = len(typing.get_args(hint)) if typing.get_origin(hint) is tuple else 1
        kernel = native.kernel(native_name, options.fills or range(-2 * outputs, 0, 2))
        own = [argument for argument in all_arguments if argument.schema]
        if native.parameters(native_name)[2 if variadic else 2 * len(inputs) : -2 * outputs] == [argument.schema for argument in own]:
            automatic = tuple(argument.name for argument in own)
    packed = tuple(argument for argument in all_arguments if argument.role in _PACKED)
    missing = frozenset(p.name for p in keywords if p.default is p.empty)
    defaults = {p.name: p.default for p in keywords if p.default is not p.empty} | dict.fromkeys((*missing, *positional))
    ready = {a.name: prepare_argument(Call(name), a, defaults[a.name]) for a in packed if a.role is not Role.random}
    return Operator(
        name,
        function,
        options,
        kernel,
        _MAX_INPUTS if variadic else len(inputs),
        sum(p.default is p.empty for p in inputs),
        variadic,
        frozenset(k for k, p in enumerate(inputs) if positional_only[p.name].role is Role.shared),
        {k: positional_only[p.name].varying for k, p in enumerate(inputs) if positional_only[p.name].role is Role.kept},
        positional,
        arguments,
        defaults,
        missing,
        packed,
        {**defaults, **{key: value for key, value in ready.items() if value is not None}},
        automatic,
        any(argument.role is Role.random for argument in all_arguments),
    )
