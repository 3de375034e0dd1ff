# SPDX-License-Identifier: Apache-2.0
"""Cases of operators: a call on a few samples, for tests of every property."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._core.context.rng import RNG
from .._core.operators.arguments import Role
from .._core.operators.definition import OPERATORS, Operator
from .._core.values.batch import Batch, batch
from .._core.values.tensor import Tensor, tensor

Samples = list[np.ndarray]
# Returns the samples of every positional input, of different shapes if the flag is set.
Inputs = Callable[[bool], tuple[Samples, ...]]

COUNT = 3  # samples of a case
# Operators whose input is host memory; ``device="gpu"`` selects the device of their result.
FROM_HOST = ("decoders.image", "decoders.image_random_crop", "decoders.image_crop", "decoders.image_slice")
EXTENTS = {"F": 3, "C": 3, "D": 5, "H": 17, "W": 23}


@dataclass(frozen=True)
class Each:
    """An argument with one value per sample; a batch gets it as a Batch, a single sample as that sample's value."""

    values: Sequence[Any]


def arrays(
    shape: tuple[int, ...], dtype: str = "uint8", *, axes: Sequence[int] = (0, 1), count: int = COUNT, low: float = 0, high: float = 256
) -> Inputs:
    """Return samples of random numbers from ``low`` to ``high``; the extents of ``axes`` differ if the shapes should."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        generator = np.random.default_rng(7)
        shapes = [tuple(n + (2 * i + 1) * (ragged and i > 0 and axis in axes) for axis, n in enumerate(shape)) for i in range(count)]
        return ([generator.uniform(low, high, extents).astype(dtype) for extents in shapes],)

    return make


def images(layout: str = "HWC", dtype: str = "uint8", *, count: int = COUNT, low: float = 0, high: float = 256, **extents: int) -> Inputs:
    """Return random images, sequences or volumes of a layout; height and width differ if the shapes should. ``extents`` overrides ``EXTENTS``."""
    shape = tuple((EXTENTS | extents)[letter] for letter in layout)
    axes = [k for k, letter in enumerate(layout) if letter in "HW"]
    return arrays(shape, dtype, axes=axes, count=count, low=low, high=high)


def no_inputs(ragged: bool) -> tuple[Samples, ...]:
    """For operators without inputs, which take ``batch_size``."""
    del ragged
    return ()


@dataclass(frozen=True)
class Case:
    """One call of an operator.

    Attributes:
        operator: Public name, as in ``torch_ndd.<name>``, or that of an operator of another library, with ``call``.
        id: What is special about it; a test is named ``<operator>-<id>``.
        inputs: Makes the samples of every positional input, the same whenever it is called: :func:`images`, :func:`arrays` or a function.
        args: Keyword arguments; :class:`Each` for one value a sample. ``rng`` is added where the operator takes one.
        layout: Of the samples of the first input.
        reference: The result for one sample: ``reference(*samples, **args)`` in NumPy or torch, with its type. None where the operator has a
            formula (the compiled graph then is the reference), and for random operators, whose distribution has tests of its own.
        tolerance: Largest difference from the reference and between the backends, in units of the result.
        out_layout: Of the result, by default the first input's.
        ragged: False when the case makes no ragged batch, such as an operator without inputs.
        uncompiled: Why it does not pass ``torch.compile(fullgraph=True)``; empty when it does.
        call: What to call where the operator has no public function, such as ``operator.add``; tests of keyword arguments leave it out.
    """

    operator: str
    id: str
    inputs: Inputs = no_inputs
    args: Mapping[str, Any] = field(default_factory=dict)
    layout: str | None = None
    reference: Callable[..., Any] | None = None
    tolerance: float = 0.0
    out_layout: str | None = "as the input"
    ragged: bool = True
    uncompiled: str = ""
    call: Callable[..., Any] | None = None

    @property
    def definition(self) -> Operator:
        """The registered definition of the operator."""
        if self.operator not in OPERATORS:
            raise LookupError(f"there is no operator {self.operator}: torch_ndd/__init__.py must import its function")
        return OPERATORS[self.operator]

    @property
    def function(self) -> Callable[..., Any]:
        """The operator itself."""
        return self.call or public(self.operator)

    @property
    def random(self) -> bool:
        """Whether the operator draws random numbers."""
        return any(argument.role is Role.random for argument in self.definition.arguments.values())

    @property
    def batch_size(self) -> int:
        """Samples of the case."""
        inputs = self.inputs(False)
        each = [len(value.values) for value in self.args.values() if isinstance(value, Each)]
        return len(inputs[0]) if inputs else next(iter(each), COUNT)

    def batches(self, ragged: bool = False, device: str = "cpu") -> tuple[Batch, ...]:
        """Return the inputs as batches."""
        layouts = (self.layout, *(None,) * 9)
        return tuple(batch(samples, layout=layout, device=device) for samples, layout in zip(self.inputs(ragged), layouts, strict=False))

    def arguments(self, sample: int | None = None, seed: int = 11) -> dict[str, Any]:
        """Return the keyword arguments for the batch or for one sample."""
        keywords = {
            name: (_each(value) if sample is None else value.values[sample]) if isinstance(value, Each) else value
            for name, value in self.args.items()
        }
        if self.random:
            keywords["rng"] = RNG(seed=seed)
        if not self.inputs(False) and sample is None:
            keywords.setdefault("batch_size", self.batch_size)
        return keywords

    def run(self, ragged: bool = False, device: str = "cpu", **changes: Any) -> tuple[Batch, ...]:
        """Call the operator on the batch; all results, also of one."""
        inputs, where = self.placed(ragged, device)
        return as_tuple(self.function(*inputs, **self.arguments(), **where, **changes))

    def placed(self, ragged: bool = False, device: str = "cpu") -> tuple[tuple[Batch, ...], dict[str, str]]:
        """Return the inputs if the operator has any, else the keyword argument that makes it run on ``device``."""
        inputs = self.batches(ragged, "cpu" if self.operator in FROM_HOST else device)
        return inputs, {} if device == "cpu" or (inputs and self.operator not in FROM_HOST) else {"device": device}

    def run_sample(self, sample: int, ragged: bool = False) -> tuple[Tensor, ...]:
        """Call the operator on one sample."""
        samples = [samples_of_input[sample] for samples_of_input in self.inputs(ragged)]
        tensors = [tensor(samples_of_input, layout=self.layout if k == 0 else None) for k, samples_of_input in enumerate(samples)]
        return as_tuple(self.function(*tensors, **self.arguments(sample)))

    def expected(self, ragged: bool = False) -> list[tuple[np.ndarray, ...]] | None:
        """Return the reference of every sample, or None."""
        if self.reference is None:
            return None
        inputs, results = self.inputs(ragged), []
        for i in range(self.batch_size):
            args = {name: value.values[i] if isinstance(value, Each) else value for name, value in self.args.items()}
            results.append(
                tuple(
                    np.asarray(value_of_input)
                    for value_of_input in as_tuple(self.reference(*(value_of_input[i] for value_of_input in inputs), **args))
                )
            )
        return results


def _each(value: Each) -> Batch:
    return batch(
        [np.asarray(value_of_sample, np.float32) if isinstance(value_of_sample, float) else value_of_sample for value_of_sample in value.values]
    )


def public(name: str) -> Any:
    """Return ``torch_ndd.<name>``; the name may have dots."""
    return functools.reduce(getattr, name.split("."), sys.modules["torch_ndd"])


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Return several results unchanged, one as a tuple."""
    return result if isinstance(result, tuple) else (result,)
