# SPDX-License-Identifier: Apache-2.0
"""The definition of an operator: its options, and what follows from the signature of its function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

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
            samples share is passed as a Python number, so that the graph has it as a constant. Returns None for dtypes without a formula.
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
        return self.kernel is not None and not (self.variadic or self.options.host_inputs or self.options.reads_values)


OPERATORS: dict[str, Operator] = {}  # by public name; the tests iterate over it
