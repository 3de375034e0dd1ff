# SPDX-License-Identifier: Apache-2.0
"""Batches that could not be read, in their places among the others."""

from collections.abc import Iterator
from typing import Any

from ._sample_source import unwrap


class FailedBatch:
    """Stands for a batch that could not be read. The position is after it: a loop can go on with the next batch."""

    def __init__(self, op: str, error: Exception) -> None:
        if isinstance(error, StopIteration):  # would silently end the loop
            cause, error = error, RuntimeError(f"{op}: StopIteration was raised while a batch was read")
            error.__cause__ = cause
        self.error = error


class BatchIterator(Iterator[Any]):
    """Batches of a generator, as a program gets them. Raises the errors of failed ones, and goes on, which a generator could not."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __next__(self) -> Any:
        outputs = next(self._batches)
        if not isinstance(outputs, FailedBatch):
            return unwrap(outputs)
        error = outputs.error
        try:
            raise error
        finally:  # the traceback of the error refers to this frame: the cycle would keep what the reader holds
            del outputs, error

    def close(self) -> None:
        """End the loop."""
        self._batches.close()  # type: ignore[attr-defined]
