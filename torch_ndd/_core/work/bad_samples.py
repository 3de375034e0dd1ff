# SPDX-License-Identifier: Apache-2.0
"""Samples that an operator could not produce, if the caller asked it to continue without them."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import torch

OnError = Literal["raise", "skip", "replace"]  # what to do with a sample that cannot be read
ON_ERROR = get_args(OnError)
REASON_BYTES = 512  # per row; csrc/decoders/image.cpp truncates longer reasons


class BadSample(NamedTuple):
    """A sample that could not be read or decoded."""

    sample: int
    """Its index: in the data set of a reader, in the input of a decoder."""
    source: str
    """The path, or the place in a file; empty if unknown."""
    reason: str

    @property
    def index(self) -> int:  # type: ignore[override]
        """Another name of ``sample``."""
        return self.sample


class UnreadableSamples(Exception):
    """Some samples of a batch cannot be read: maps their positions in the batch to the reasons, and to the exceptions if users should see them."""

    def __init__(self, reasons: Mapping[int, str], causes: Mapping[int, BaseException] | None = None) -> None:
        super().__init__(reasons)
        self.reasons, self.causes = dict(reasons), dict(causes or {})


class LeftOut(UnreadableSamples):
    """Samples that a reader leaves out as it was told to: others take their places, and nothing is raised."""


class Failures:
    """The failed samples of an input, in a table that the kernel fills: one row of text per sample, empty for success."""

    def __init__(self, op: str, samples: int, sources: Sequence[str]) -> None:
        self.op = op
        self.table = torch.zeros((samples, REASON_BYTES), dtype=torch.uint8, device="cpu")
        self.sources = sources

    def note(self, sample: int, reason: str) -> None:
        """Record why a sample failed."""
        text = reason.encode()[: REASON_BYTES - 1] or b"?"
        self.table[sample, : len(text)] = torch.tensor(list(text), dtype=torch.uint8, device="cpu")

    def samples(self) -> list[int]:
        """Return the indices of the failed samples."""
        return self.table[:, 0].nonzero().flatten().tolist()

    def list(self) -> "list[BadSample]":
        """Return all failures, in the order of the samples."""
        return [BadSample(i, self.sources[i] if self.sources else "", self._reason(i)) for i in self.samples()]

    def kept_samples(self) -> "list[int]":
        """Return the indices of the samples that did not fail."""
        failed = set(self.samples())
        return [i for i in range(len(self.table)) if i not in failed]

    def _reason(self, sample: int) -> str:
        return bytes(self.table[sample].numpy()).partition(b"\0")[0].decode(errors="replace")
