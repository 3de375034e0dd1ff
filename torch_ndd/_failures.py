# SPDX-License-Identifier: Apache-2.0
"""Samples that an operator could not make, where the caller asked it to go on without them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

REASON_BYTES = 512  # of a row; csrc/decoders/image.cpp cuts longer reasons off


class BadSample(NamedTuple):
    """A sample that could not be decoded: its number in the input, the file that it came from (empty where that is not known), and why."""

    index: int
    source: str
    reason: str


class Failures:
    """Which samples of an input failed, in a table that the kernel fills: a row of text for each sample, empty where nothing is wrong."""

    def __init__(self, op: str, samples: int, sources: Sequence[str]) -> None:
        self.op = op
        self.table = torch.zeros((samples, REASON_BYTES), dtype=torch.uint8)
        self.sources = sources

    def note(self, sample: int, reason: str) -> None:
        """Write down why a sample failed."""
        text = reason.encode()[: REASON_BYTES - 1] or b"?"
        self.table[sample, : len(text)] = torch.tensor(list(text), dtype=torch.uint8)

    def samples(self) -> list[int]:
        """The numbers of those that failed."""
        return self.table[:, 0].nonzero().flatten().tolist()

    def list(self) -> "list[BadSample]":
        """All failures, in the order of the samples."""
        return [BadSample(i, self.sources[i] if self.sources else "", self._reason(i)) for i in self.samples()]

    def kept(self) -> "list[int]":
        """The numbers of the samples that did not fail."""
        failed = set(self.samples())
        return [i for i in range(len(self.table)) if i not in failed]

    def _reason(self, sample: int) -> str:
        return bytes(self.table[sample].numpy()).partition(b"\0")[0].decode(errors="replace")
