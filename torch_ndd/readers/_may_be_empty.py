# SPDX-License-Identifier: Apache-2.0
"""Readers whose source may have no samples."""

from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from ._base import Reader
from ._order import Position


class MayBeEmpty(Reader):
    """Base class of readers that yield nothing from an empty source, such as a part of a split of a few items, as torch's DataLoader does."""

    def _is_empty(self) -> bool:
        return not self.scan()

    @override
    def begin_pass(self, batch_size: int | None) -> Iterator[Any]:
        # A state in the middle of an epoch belongs to another source, which is an error.
        if (self._resumed and (self._state.position.offset or self._state.history)) or not self._is_empty():
            return super().begin_pass(batch_size)
        with self._lock:
            passes, offset = self._state.position  # an epoch that was left early has ended
            ended = self._state.moved_to(Position(passes + bool(offset) + 1))
            self._order, self._state = None, ended._replace(epochs=ended.epochs + 1, size=None)
            self._resumed, self._loop = False, object()
        return iter(())

    @override
    def count_batches(self, batch_size: int | None, drop_last: bool = False) -> int:
        return 0 if self._is_empty() else super().count_batches(batch_size, drop_last)
