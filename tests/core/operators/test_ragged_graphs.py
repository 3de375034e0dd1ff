# SPDX-License-Identifier: Apache-2.0
"""Operators on ragged images among others in a compiled graph, which knows what all samples share: channels, the size after a resize.

Every registered operator that has a case with images; ``test_operators.py`` tests that each compiles alone. Operators with the same images share a
graph, which runs uncompiled behind Dynamo (``backend="eager"``), because Dynamo is where unknown numbers would be requested: one graph per operator
takes ten times as long.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, as_tuple
from conftest import WHOLE
from test_operators import CASES

import torch_ndd as ndd
from torch_ndd import Batch
from torch_ndd._core.operators.operator import OPERATORS
from torch_ndd.ops.geometry._crop_window import CROP_LAYOUTS
from torch_ndd.testing._properties import values

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("new_compiler")]

Images = list[np.ndarray]


def takes(operator: str, layout: str | None) -> bool:
    """Return whether an operator accepts this layout."""
    return layout in (OPERATORS[operator].options.layouts or ())


def content(case: Case) -> tuple[Any, ...]:
    """Return a key that is equal for cases with the same images."""
    (dense, *_), (ragged, *_) = case.inputs(False), case.inputs(True)
    return case.layout, ragged[0].dtype, dense[0].shape, b"".join(sample.tobytes() for sample in ragged)


def groups() -> dict[str, list[Case]]:
    """Group a case with ragged images for every operator that has one by its images. ``Case.uncompiled`` says why others cannot compile."""
    cases = [case for case in CASES if case.ragged and not case.uncompiled and takes("resize", case.layout) and {"H", "W"} <= set(case.layout or "")]
    count = Counter(content(case) for case in cases)
    cases.sort(key=lambda case: -count[content(case)])
    found_: dict[Any, list[Case]] = {}
    for case in {case.operator: case for case in reversed(cases)}.values():
        found_.setdefault(content(case), []).append(case)
    return {f"{layout}-{dtype}-{found[0].operator}": found for (layout, dtype, *_), found in found_.items()}


GROUPS = groups()


def extents(case: Case, letters: str) -> list[int]:
    """Return the images of the dense samples, which work in every case."""
    return [case.inputs(False)[0][0].shape[axis] for axis, letter in enumerate(case.layout or "") if letter in letters]


Step = Callable[[Batch], Batch]


def as_it_is(images: Batch) -> Batch:
    return images


def flip_reference(images: Batch) -> Batch:
    return ndd.flip(images) if takes("flip", images.layout) else images


def resize_reference(**size: Any) -> Step:
    return lambda images: ndd.resize(images, **size) if takes("resize", images.layout) else images


def normalize_reference(images: Batch) -> Batch:
    return ndd.crop_mirror_normalize(images, mean=3.0) if images.layout in CROP_LAYOUTS else ndd.normalize(images, mean=1.0, stddev=2.0)


# The operators before and after the tested ones.
CHAINS: dict[str, Callable[[Case], tuple[Step, Step]]] = {
    "behind a resize to one size": lambda case: (resize_reference(size=extents(case, "DHW")), as_it_is),
    "behind a resize to one width": lambda case: (resize_reference(resize_x=extents(case, "W")[0]), as_it_is),
    "behind a resize to fit": lambda case: (resize_reference(size=extents(case, "DHW"), mode="not_larger"), as_it_is),
    "before a resize": lambda case: (as_it_is, resize_reference(size=7)),
    "between flip and normalize": lambda case: (flip_reference, normalize_reference),
}


def call_of(case: Case, after: Step) -> Callable[..., list[Batch]]:
    """Return the case and its successor, as a function of its inputs."""
    function, args = case.function, {name: value for name, value in case.arguments().items() if name != "rng"}
    return lambda *inputs: [after(value) for value in as_tuple(function(*inputs, **args))]


def far(ours: list[Batch], theirs: list[Batch]) -> float:
    """Return the largest difference; infinite for different shapes, types or layouts."""
    if [(sample.shape, sample.dtype, sample.layout) for sample in ours] != [(sample.shape, sample.dtype, sample.layout) for sample in theirs]:
        return float("inf")
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(values(tuple(ours)), values(tuple(theirs)), strict=True)]
    return max((float(np.abs(a - b).max(initial=0)) for a, b in pairs), default=0.0)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("group", GROUPS)
def test_every_operator_in_a_chain_of_ragged_batches(group: str, chain: str) -> None:
    """Check that results equal those of the same calls in eager mode, also with random numbers.

    An operator of a large group is in every second chain; with TORCH_NDD_WHOLE=1 in all.
    """
    cases = GROUPS[group]
    if len(cases) > 10 and not WHOLE:
        cases = cases[list(CHAINS).index(chain) % 2 :: 2]
    before, after = CHAINS[chain](cases[0])
    calls, inputs = [call_of(case, after) for case in cases], [case.batches(True) for case in cases]
    images, others = inputs[0][0], [value[1:] for value in inputs]
    alike = [[image.shape == images.shape for image in value[1:]] for value in inputs]  # images that take the same path

    def results(numbers: list[int], images: Batch, others: list[tuple[Batch, ...]]) -> list[list[Batch]]:
        first = before(images)
        return [calls[k](first, *(before(other) if same else other for other, same in zip(others[k], alike[k], strict=True))) for k in numbers]

    def refuses(k: int) -> bool:
        try:
            values(tuple(results([k], images, others)[0]))
        except RuntimeError:
            return True
        return False

    refused = [k for k in range(len(cases)) if refuses(k)]
    # A second input belongs to the original images; patches need sides of whole patches.
    assert all(others[k] or cases[k].operator == "patchify" for k in refused)
    numbers = [k for k in range(len(cases)) if k not in refused]
    ndd.random.set_seed(1)
    expected = results(numbers, images, others)
    ndd.random.set_seed(1)
    output = torch.compile(lambda *inputs: results(numbers, *inputs), fullgraph=True, backend="eager")(images, others)
    for k, ours, theirs in zip(numbers, output, expected, strict=True):
        assert far(ours, theirs) <= cases[k].tolerance, cases[k].operator
