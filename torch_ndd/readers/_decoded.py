# SPDX-License-Identifier: Apache-2.0
"""Components of samples that are no arrays: numbers, texts and JSON."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._core.process.files import text_of
from .._core.values.batch import Batch, new_batch


def _number(content: bytes) -> int:
    text = text_of(content).decode("ascii").strip()
    value = int(text) if len(text) < 20 else 2**63
    if not -(2**63) <= value < 2**63:
        raise ValueError("it is no number of 64 bits")
    return value


def _text(content: bytes) -> str:
    return text_of(content).decode()


def _parsed(content: bytes) -> Any:
    return json.loads(content) if content else None


_KINDS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count"), _number),
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("json", "jsn"), _parsed),
}


def decoder_of(alternatives: str) -> Callable[[bytes], Any] | None:
    """Return what makes a value of a file with one of these extensions; None if they mean an array, or different things."""
    kinds = {_KINDS.get(one.rpartition(".")[2].lower()) for one in alternatives.split(";")}
    return kinds.pop() if len(kinds) == 1 else None


def decoded(decoder: Callable[[bytes], Any], values: np.ndarray, lengths: np.ndarray, bad: dict[int, str], ext: str) -> "Batch | list[Any]":
    """Return the values of a batch: int64 of shape () for numbers, else a list. Samples that cannot be decoded are put into ``bad``."""
    ends = np.cumsum(lengths)
    found = []
    for i, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
        try:
            found.append(decoder(values[end - length : end].tobytes()))
        except (ValueError, RecursionError) as error:  # json's and Unicode's errors are ValueErrors
            bad.setdefault(i, f"its {ext} cannot be decoded: {type(error).__name__}: {error}"[:300])
            found.append(0)
    return new_batch(torch.tensor(found, dtype=torch.int64)) if decoder is _number else found
