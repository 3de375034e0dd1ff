# SPDX-License-Identifier: Apache-2.0
"""The targets of a batch: images, masks, boxes and points of all samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._core.values.batch import Batch, as_batch

OP = "from_albumentations"


@dataclass(frozen=True)
class Rows:
    """Boxes or points of all samples, one a row.

    Boxes are (left, top, right, bottom, ...) relative to the image, points (x, y, angle, scale, ...) in pixels and radians; float64 (R, K). Columns
    after these belong to the user.
    """

    values: torch.Tensor
    owners: torch.Tensor
    """The sample of each row, int64 (R,), ascending."""
    origins: torch.Tensor
    """The row of the input, int64 (R,): by it, labels follow their boxes."""

    def where(self, kept: torch.Tensor) -> "Rows":
        """Return the rows for which ``kept`` is true."""
        return Rows(self.values[kept], self.owners[kept], self.origins[kept])

    def with_columns(self, *columns: torch.Tensor) -> "Rows":
        """Return the rows with other first columns."""
        return replace(self, values=torch.cat([torch.stack(columns, 1), self.values[:, len(columns) :]], 1))

    def of(self, column: torch.Tensor) -> torch.Tensor:
        """Return for each row the number of its sample."""
        return column.to(torch.float64)[self.owners]


def select_rows(rows: Rows, indices: torch.Tensor, count: int) -> Rows:
    """Return the rows of some samples, which get the numbers from 0 on."""
    numbers = torch.full((count,), -1, dtype=torch.int64)
    numbers[indices] = torch.arange(len(indices))
    chosen = rows.where(numbers[rows.owners] >= 0)
    return replace(chosen, owners=numbers[chosen.owners])


def merge_rows(parts: Sequence[tuple[torch.Tensor, Rows]]) -> Rows:
    """Return the rows of parts, each with the numbers of its samples, in the order of the samples."""
    owners = torch.cat([indices[rows.owners] for indices, rows in parts])
    order = torch.argsort(owners, stable=True)
    values, origins = torch.cat([rows.values for _, rows in parts]), torch.cat([rows.origins for _, rows in parts])
    return Rows(values[order], owners[order], origins[order])


@dataclass(frozen=True)
class Sample:
    """The targets of a batch by their names. Images and masks have the layout ``HWC``."""

    images: dict[str, Batch]
    masks: dict[str, Batch] = field(default_factory=dict)
    boxes: dict[str, Rows] = field(default_factory=dict)
    points: dict[str, Rows] = field(default_factory=dict)

    @property
    def image(self) -> Batch:
        """The images that decide about sizes."""
        return next(iter(self.images.values()))

    @property
    def count(self) -> int:
        return self.image.batch_size

    @property
    def sizes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Heights and widths of the images, int64 (N,)."""
        image = self.image
        first = (image.layout or "HWC").index("H")
        shapes = image.sample_shapes().to(torch.int64)
        return shapes[:, first], shapes[:, first + 1]

    @property
    def channels(self) -> int:
        image = self.image
        axis = (image.layout or "HWC").index("C")
        return image.shared_extent(axis) or int(image.sample_shapes()[0, axis])

    def select(self, indices: torch.Tensor) -> "Sample":
        """Return some of the samples."""
        numbers = indices.tolist()

        def pick(batches: dict[str, Batch]) -> dict[str, Batch]:
            return {name: batch.select_samples(numbers) for name, batch in batches.items()}

        def pick_rows(all_rows: dict[str, Rows]) -> dict[str, Rows]:
            return {name: select_rows(rows, indices, self.count) for name, rows in all_rows.items()}

        return Sample(pick(self.images), pick(self.masks), pick_rows(self.boxes), pick_rows(self.points))


def transform_where(acts: torch.Tensor, sample: Sample, apply: Callable[[Sample], Sample]) -> Sample:
    """Transform the samples for which ``acts`` is true, without splitting the batch if it is true for all or none."""
    if bool(acts.all()):
        return apply(sample)
    if not bool(acts.any()):
        return sample
    chosen, others = acts.nonzero().flatten(), (~acts).nonzero().flatten()
    return merge([(chosen, apply(sample.select(chosen))), (others, sample.select(others))], sample.count)


def merge(parts: Sequence[tuple[torch.Tensor, Sample]], count: int) -> Sample:
    """Return one batch of parts, each with the numbers of its samples.

    Raises:
        RuntimeError: parts with different types or layouts.
    """

    def join(field_name: str, name: str) -> Batch:
        samples: list[Any] = [None] * count
        kinds = set()
        for indices, part in parts:
            batch = getattr(part, field_name)[name]
            kinds.add((batch.dtype, batch.layout))
            for k, i in enumerate(indices.tolist()):
                samples[i] = batch.nth(k)
        if len(kinds) > 1:
            found = " and ".join(sorted(f"{dtype} {layout}" for dtype, layout in kinds))
            raise RuntimeError(f"{OP}: {name}: a transform with p below 1 changes the type or layout of some samples only, to {found}; set p=1")
        return as_batch(samples, layout=next(iter(kinds))[1])

    first = parts[0][1]
    return Sample(
        {name: join("images", name) for name in first.images},
        {name: join("masks", name) for name in first.masks},
        {name: merge_rows([(indices, part.boxes[name]) for indices, part in parts]) for name in first.boxes},
        {name: merge_rows([(indices, part.points[name]) for indices, part in parts]) for name in first.points},
    )
