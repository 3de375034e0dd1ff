# SPDX-License-Identifier: Apache-2.0
"""What operators are made of: options and signature, the launch that a body returns, and the record of it, from which plans are built."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from ..values.batch import Batch
from .arguments import Argument


class Packed:
    """Ragged samples as a formula gets them: the packed buffer, of the same form as the result's, and the shapes, int64 (N, ndim)."""

    def __init__(self, values: torch.Tensor, shapes: torch.Tensor) -> None:
        self.values, self.shapes = values, shapes
        self.dtype, self.device = values.dtype, values.device

    def dim(self) -> int:
        """Return the number of dimensions of a dense batch of such samples."""
        return 1 + self.shapes.shape[1]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of ``@operator()`` beyond the signature of the function.

    Attributes:
        name: Public name if it is not the function's: ``reductions.mean``.
        layouts: Layouts allowed for the first input; an input without one gets the first that has its number of dimensions. Where ``HWC`` is allowed,
            planes ``HW`` are too: the body sees images of one channel, and the caller gets planes.
        kernel: None if there is nothing to launch: the body returns a view of the first input, with the same pending work, or :func:`launch` with
            results that it has computed itself as ``also``.
        formula: The kernel in torch operations, for ``torch.compile`` on dense input: ``formula(input, *kernel arguments, dtype)``. A number that all
            samples share is passed as a Python number, so the graph has it as a constant. Returns None for dtypes without a formula.
        ragged_formula: It takes ragged images as well, as :class:`Packed`, or returns None for them.
        reads_values: The body reads the inputs' values, so the call waits for them.
        per_frame: Arguments may have values per frame although no input has frames.
        host_inputs: The kernel reads host memory even if it fills GPU memory: CPU threads issue the work. The body gets ``device``.
        fills: Parameters that the kernel fills, counted from the end, if these are not the outputs of the return type.
        converts: Converts a first input that is neither a Tensor nor a Batch; returns None to leave it to :func:`as_tensor`.
    """

    name: str | None = None
    layouts: tuple[str, ...] | None = None
    kernel: Literal["own"] | None = "own"
    formula: Callable[..., torch.Tensor | None] | None = None
    ragged_formula: bool = False
    reads_values: bool = False
    per_frame: bool = False
    host_inputs: bool = False
    fills: tuple[int, ...] = ()
    converts: Callable[[Any], Any] | None = None


@dataclass
class Operator:
    """A decorated function and what follows from its signature."""

    name: str
    body: Callable[..., Any]
    options: Options
    kernel: Any  # torch.ops.ndd.<name>.default; None if nothing is launched
    inputs: int  # the largest number
    required: int  # the smallest number
    variadic: bool = False  # any number of inputs, which the kernel takes as lists
    shared: frozenset[int] = frozenset()  # inputs that the kernel reads with a stride of 0 if they are common to all samples
    kept: dict[int, bool] = field(default_factory=dict)  # inputs that are kept if they are numbers; whether in the type of the first one
    positional: dict[str, Argument] = field(default_factory=dict)  # arguments that may be given by position, after the inputs
    arguments: dict[str, Argument] = field(default_factory=dict)  # by keyword
    defaults: dict[str, Any] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()  # arguments without a default
    packed: tuple[Argument, ...] = ()  # arguments that Python prepares
    prepared: dict[str, Any] = field(default_factory=dict)  # the defaults, prepared
    automatic: tuple[str, ...] | None = None  # the kernel's arguments, if they are the function's own
    draws: bool = False  # has a generator

    @property
    def repeatable(self) -> bool:
        """Whether it may launch the same kernel for all batches of one shape: its body does not read values."""
        return self.kernel is not None and not (self.options.host_inputs or self.options.reads_values)

    @property
    def first_argument(self) -> int:
        """The index of the kernel's first argument behind the inputs: values and shapes of each, or two lists of them."""
        return 2 if self.variadic else 2 * self.inputs


OPERATORS: dict[str, Operator] = {}  # by public name; the tests iterate over it


# --- Launches ---

# Computes an argument from the first input (only its shapes) and the words drawn from the generator.
Redraw: TypeAlias = Callable[[Batch, torch.Tensor], torch.Tensor]
# Computes further results of a call from the shapes of the first input.
Also: TypeAlias = Callable[[Batch], tuple[Batch, ...]]
# The output, or several, or a function of the number of frames.
Outputs: TypeAlias = Batch | tuple[Batch, ...] | Callable[[Any], Batch]


class NativeDerivation(NamedTuple):
    """A derivation that native code computes as part of the launch, without Python (csrc/ndd/derive.h).

    Attributes:
        function: The C function.
        arguments: The constants that it gets, with room for the addresses of arguments with a number for each sample.
        places: Where these go: the byte in ``arguments``, the name of the argument, and the byte in its tensor.
        options: Integers that it gets.
        is_fixed: Whether the shape of the output follows from constants, whatever shapes the function finds.
    """

    function: Any
    arguments: bytes
    places: Sequence[tuple[int, str, int]]
    options: Sequence[int]
    is_fixed: bool


class Derivation(NamedTuple):
    """How to compute, in a repeated call, what follows from arguments with a value for each sample and from the shapes of a ragged input.

    Attributes:
        compute: Gets the first input and the arguments by their names. Returns tensors, which the kernel gets first, and the shapes of the output,
            int64 (N, ndim), or None if they do not depend on what it gets. Raises what the body would raise.
        count: The number of tensors.
        names: Arguments that it needs.
        passed: Those of them that the kernel gets too.
        selects: Whether the first tensor says which sample of the first input each sample of the output is.
    """

    compute: NativeDerivation | Callable[[Batch, Mapping[str, torch.Tensor]], tuple[Sequence[torch.Tensor], torch.Tensor | None]]
    count: int
    names: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    selects: bool = False


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
        any_shape: Whether the launch would be the same for all ragged inputs of this type and layout with the same shared extents, as long as no
            sample is empty. Such a call is repeated without the body.
        redraw: For a random operator: computes the first of ``args`` in calls that are repeated without the body. No other argument may depend on
            the words, or on the number of samples.
        only_words: For a random operator: whether none of ``args`` but the words themselves follows from them; otherwise a number may be drawn.
        derivation: Computes the first of ``args`` in calls that are repeated without the body. Nothing else may depend on the shapes of a ragged
            input, or on the values of those arguments with a value for each sample that the kernel does not get.
        also_again: Computes ``also`` in calls that are repeated without the body.
    """

    out: Outputs
    args: Sequence[Any] = ()
    also: tuple[Batch, ...] = ()
    inputs: tuple[Batch, ...] = ()
    fusable: bool = True
    views: tuple[Batch, ...] = ()
    mixes: bool = False
    any_shape: bool = False
    redraw: Redraw | None = None
    only_words: bool = False
    derivation: Derivation | None = None
    also_again: Also | None = None
    event: "torch.cuda.Event | None" = None


launch: Callable[..., Any] = Launch  # for bodies, whose annotation is the type that the operator returns


class Record(NamedTuple):
    """A launched call: everything needed to launch its kernel again on other batches.

    A call that is observed adds its record to the list that its caller passed to ``perform``; other calls create none.

    Attributes:
        op: The operator.
        launch: What its body has returned.
        inputs: The batches that the kernel reads.
        arguments: All arguments of the kernel: values and shapes of each input, the operator's own arguments, values and shapes of each output.
        outputs: The batches that the kernel fills.
        layout: Of the first output.
        words: The words that a random operator has drawn.
    """

    op: Operator
    launch: Launch
    inputs: Sequence[Batch | None]
    arguments: list[Any]
    outputs: tuple[Batch, ...]
    layout: str | None
    words: torch.Tensor | None

    @property
    def is_plain(self) -> bool:
        """Whether the call returns the only output of its kernel, and nothing else that a repeated call could not compute."""
        launch = self.launch
        returns_output = len(self.outputs) == 1 and not (launch.inputs or launch.views)
        return self.op.repeatable and returns_output and (not launch.also or launch.also_again is not None)
