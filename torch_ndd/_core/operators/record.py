# SPDX-License-Identifier: Apache-2.0
"""A launch, as the body of an operator requests it, and the record of it, from which plans are built."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch

from ..values.batch import Batch
from .definition import Operator

# Computes an argument from the input's shapes, int64 (N, ndim) or None if they are equal, and the words drawn from the generator.
Redraw: TypeAlias = Callable[[torch.Tensor | None, torch.Tensor], torch.Tensor]
# The output, or several, or a function of the number of frames.
Outputs: TypeAlias = Batch | tuple[Batch, ...] | Callable[[Any], Batch]


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
            the words.
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
    event: "torch.cuda.Event | None" = None


def launch(out: Outputs, args: Sequence[Any] = (), **options: Any) -> Any:
    """Return a :class:`Launch` from a body whose annotation is the type that the operator returns."""
    return Launch(out, args, **options)


class Record(NamedTuple):
    """A launched call: everything needed to launch its kernel again on other batches.

    A call that is observed adds its record to the list that its caller passed to ``perform``; other calls create none.

    Attributes:
        op: The operator.
        kernel: Its kernel.
        inputs: The batches that the kernel reads.
        arguments: All arguments of the kernel: values and shapes of each input, the operator's own arguments, values and shapes of each output.
        outputs: The batches that the kernel fills.
        layouts: Their layouts.
        words: The words that a random operator has drawn.
        any_shape: See :class:`Launch`.
        redraw: See :class:`Launch`.
        is_plain: Whether the call returns its only output and nothing else, each sample computed from the same sample of the inputs.
    """

    op: Operator
    kernel: Any
    inputs: Sequence[Batch | None]
    arguments: list[Any]
    outputs: tuple[Batch, ...]
    layouts: tuple[str | None, ...]
    words: torch.Tensor | None
    any_shape: bool
    redraw: Redraw | None
    is_plain: bool
