# SPDX-License-Identifier: Apache-2.0
"""Outputs that not all sources have: the missing ones are filled with zeros."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..._core.suggestions import similar
from ..._core.values.batch import Batch, new_batch

_PAD = "_is_pad"


class Fields:
    """The outputs that a mix delivers, and what stands for them in sources without."""

    def __init__(self, op: str, names: Sequence[str]) -> None:
        if not names or len(set(names)) < len(names):
            raise ValueError(f"{op}: fields must have names of outputs that all differ, got {list(names)}")
        if "source" in names:
            raise ValueError(f"{op}: fields: 'source' is the name of the source's number; rename the output with ndd.Source(reader, fn)")
        # A mark comes with its output. As a field of its own it would be filled with False, which says that the zeros are values.
        self._marks = [name for name in names if name.endswith(_PAD) and name.removesuffix(_PAD) in names]
        self._op, self._names = op, tuple(name for name in names if name not in self._marks)
        self._fillers: dict[str, _Filler] = {}  # of everything that some source lacks

    def learn(self, outputs: Mapping[str, Any]) -> None:
        """Take what is missing where from the outputs of all sources, by descriptions of the sources.

        Raises:
            ValueError: outputs without names; a field that no source has, or that some source lacks and that has no zeros.
        """
        for what, found in outputs.items():
            if not isinstance(found, Mapping):
                raise ValueError(f"{self._op}: fields needs outputs with names, which {what} does not have; use ndd.Source(reader, fn)")
        known = {name: column for found in reversed(list(outputs.values())) for name, column in found.items()}  # of the first source that has it
        for name in (*self._names, *self._marks):  # marks after the outputs that may need them
            if name not in known and name not in self._fillers:
                raise ValueError(
                    f"{self._op}: fields: no source has an output {name!r}{similar(name, known)}; they have {', '.join(map(str, known))}"
                )
            if name in self._marks:
                continue
            lacking = [what for what, found in outputs.items() if name not in found]
            if lacking:
                self._fillers[name] = _Filler(f"{self._op}: output {name!r}, which {lacking[0]} does not have,", known[name])
            # LeRobot marks the frames of windows; without windows, a mark is for the whole sample.
            if lacking or name + _PAD in known:
                mark = known.get(name + _PAD, new_batch(torch.zeros(1, dtype=torch.bool)))
                self._fillers[name + _PAD] = _Filler(f"{self._op}: output {name + _PAD!r}", mark)

    def complete(self, what: str, outputs: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Return the fields of ``count`` samples of a source, and which of them are zeros. ``what`` describes the source."""
        completed: dict[str, Any] = {}
        for name in self._names:
            if name not in outputs and name not in self._fillers:
                raise ValueError(f"{self._op}: fields: {what} has no output {name!r} here, although its first sample has one")
            completed[name] = outputs[name] if name in outputs else self._fillers[name].fill(count, 0)
            if (pad := name + _PAD) in self._fillers:
                completed[pad] = outputs[pad] if pad in outputs else self._fillers[pad].fill(count, name not in outputs)
        return completed


class _Filler:
    """Values of one output for samples that have none, in the form of another source's."""

    def __init__(self, what: str, column: Any) -> None:
        self._text: str | bytes | None = None
        if not isinstance(column, Batch):
            if isinstance(column, Mapping) or not column or not isinstance(column[0], str | bytes):
                raise ValueError(f"{what} cannot be filled with zeros; add it with ndd.Source(reader, fn)")
            self._text = type(column[0])()
            return
        if getattr(column, "over", None) is not None:  # boxes and the like
            raise ValueError(f"{what} is a {type(column).__name__}, which has no zeros; add it with ndd.Source(reader, fn)")
        self._dtype, self._device, self._layout = column.buffer.dtype, column.buffer.device, column.layout
        self._shape: list[int] = column.sample_shapes()[0].tolist()
        # Bytes without a layout are text or encoded data, of which the empty one is missing.
        if self._dtype == torch.uint8 and len(self._shape) == 1 and self._layout is None:
            self._shape = [0]

    def fill(self, count: int, value: int) -> Any:
        """Return ``count`` samples."""
        if self._text is not None:
            return [self._text] * count
        # By NumPy: for large images torch divides the work among threads of OpenMP, for which a forked child waits forever.
        zeros = np.zeros(count * math.prod(self._shape) * self._dtype.itemsize, np.uint8)
        values = torch.from_numpy(zeros).view(self._dtype).view(count, *self._shape)
        return new_batch((values.fill_(value) if value else values).to(self._device), None, self._layout)
