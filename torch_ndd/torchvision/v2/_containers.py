# SPDX-License-Identifier: Apache-2.0
"""Transforms of transforms and of functions."""

from collections.abc import Callable, Sequence
from typing import Any

from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch
from .._draws import Draws
from .._sample import batch_size_of, check_type, flatten, merge_batches, sample_of, select_samples, unflatten
from ._base import Batched


class Compose(Batched, reference.Compose):
    """Apply transforms in sequence."""

    def forward(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, passed as one argument or several."""
        return apply_in_order(self.transforms, inputs)


def apply_in_order(transforms: Sequence[Callable[..., Any]], inputs: tuple[Any, ...]) -> Any:
    """Apply transforms in sequence."""
    has_several = len(inputs) > 1
    output: Any = sample_of(inputs)
    for transform in transforms:
        output = transform(*inputs)
        inputs = output if has_several else (output,)
    return output


class _RandomContainer(Batched):
    """A transform that draws for each sample which of its transforms to apply, and in which order."""

    transforms: Any

    def forward(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, passed as one argument or several."""
        leaves, _ = flatten(sample_of(inputs))
        size = batch_size_of(self._name, leaves)
        # A tuple of indices for each sample; samples with equal tuples are transformed together.
        orders = self._draw_orders(Draws(size))
        if size is None:
            return apply_in_order([self.transforms[k] for k in orders[0]], inputs)
        return self._split(inputs, orders, size)

    def _draw_orders(self, draws: Draws) -> list[tuple[int, ...]]:
        """Return for each sample the indices of the transforms to apply, in order."""
        raise NotImplementedError

    def _split(self, inputs: tuple[Any, ...], orders: list[tuple[int, ...]], size: int) -> Any:
        """Apply each order to its samples and join the results."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, order in enumerate(orders):
            groups.setdefault(order, []).append(i)
        has_several = len(inputs) > 1
        if len(groups) == 1:  # all samples drew the same: the batch is not split
            return apply_in_order([self.transforms[k] for k in orders[0]], inputs)
        parts, specs, names = [], [], []
        for order, indices in groups.items():
            leaves, spec = flatten(sample_of(inputs))
            part = unflatten([select_samples(leaf, indices) for leaf in leaves], spec)
            outputs = apply_in_order([self.transforms[k] for k in order], tuple(part) if has_several else (part,))
            after, spec = flatten(outputs)
            parts.append((indices, after))
            specs.append(spec)
            names.append(" then ".join(type(self.transforms[k]).__name__ for k in order) or "nothing")
        if any(spec != specs[0] for spec in specs[1:]):
            raise RuntimeError(f"{self._name}: the results of {', '.join(names)} have different structures")
        outputs = []
        # Batches are merged leaf by leaf; other leaves are common to all samples.
        for k, first in enumerate(parts[0][1]):
            columns = [(indices, leaves[k]) for indices, leaves in parts]
            if isinstance(first, Batch):
                try:
                    outputs.append(merge_batches(self._name, columns, size))
                # The message then says which transforms gave the different results.
                except (RuntimeError, AttributeError) as error:
                    raise RuntimeError(f"{error} ({', '.join(names)})") from None
            else:
                outputs.append(first)
        return unflatten(outputs, specs[0])


class RandomApply(_RandomContainer, reference.RandomApply):
    """Apply transforms in sequence, with the probability ``p``."""

    def _draw_orders(self, draws: Draws) -> list[tuple[int, ...]]:
        in_sequence = tuple(range(len(self.transforms)))
        return [in_sequence if acts else () for acts in draws.happens(self.p).tolist()]


class RandomChoice(_RandomContainer, reference.RandomChoice):
    """Apply one of several transforms, chosen with the probabilities ``p``."""

    def _draw_orders(self, draws: Draws) -> list[tuple[int, ...]]:
        if min(self.p) < 0:
            raise RuntimeError(f"RandomChoice: p must not be negative, got {self.p}")
        return [(k,) for k in draws.choices(self.p).tolist()]


class RandomOrder(_RandomContainer, reference.RandomOrder):
    """Apply transforms in random order."""

    def _draw_orders(self, draws: Draws) -> list[tuple[int, ...]]:
        return [tuple(row) for row in draws.permutations(len(self.transforms)).tolist()]


class Identity(Batched, reference.Identity):
    """Change nothing."""


class Lambda(Batched, reference.Lambda):
    """Call a function with every leaf of some types; a Batch is passed as a whole."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Call the function with a leaf."""
        return self.lambd(inpt) if check_type(inpt, tuple(self.types)) else inpt
