# SPDX-License-Identifier: Apache-2.0
"""The input of decoders: contents, paths, URLs, or lists of these."""

import os
import struct
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, overload

import numpy as np
import torch

from .._core.native.tracing import is_compiling
from .._core.operators.arguments import NO_VALUE
from .._core.operators.operator import T, operator
from .._core.operators.signatures import OfFiles, P, PairOfFiles
from .._core.values.batch import Batch, batch, new_batch, ragged_batch
from .._core.values.operand import Operand
from .._core.values.tensor import Tensor, as_tensor, new_tensor
from ..io._urls import Range, is_url
from ..io.file import read

_PATHS = (str, os.PathLike)
_CONTENTS = (bytes, bytearray, memoryview)
_RANGE = struct.Struct("<qq")


class decoder(operator):
    """Make an operator of a function whose first input is encoded files: :class:`operator`, for paths and bytes, too."""

    def __init__(
        self,
        *,
        name: str | None = None,
        kernel: Literal["own"] | None = "own",
        host_inputs: bool = False,
        fills: tuple[int, ...] = (),
        converts: Callable[[Any], Tensor | Batch | None] | None = None,
    ):
        super().__init__(name=name, kernel=kernel, reads_values=True, host_inputs=host_inputs, fills=fills, converts=converts or contents_of)

    @overload
    def __call__(self, function: Callable[Concatenate[T, P], T]) -> OfFiles[P]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[T, P], tuple[T, T]]) -> PairOfFiles[P]: ...
    def __call__(self, function: Any) -> Any:
        """Return the operator, and register it."""
        return super().__call__(function)


def path_bytes(path: Any) -> Tensor:
    """Convert a path to the form that operators take: its bytes in a Tensor."""
    if isinstance(path, Tensor | np.ndarray | torch.Tensor):
        return as_tensor(path)
    name = path if isinstance(path, str | bytes | os.PathLike) else str(path)
    return _bytes_of(os.fsencode(name))


def _bytes_of(text: bytes) -> Tensor:
    """Return a copy of bytes as a Tensor."""
    return new_tensor(_copy_bytes(text))


def _copy_bytes(text: bytes) -> torch.Tensor:
    # An array, because torch.frombuffer refuses to take no bytes.
    return torch.from_numpy(np.frombuffer(bytearray(text), np.uint8))


def _join_bytes(texts: Sequence[bytes]) -> Batch:
    """Return a copy of some bytes as a Batch: in one piece, since a Tensor for each and the kernel that joins them take 60 us for one text."""
    values, lengths = _copy_bytes(b"".join(texts)), list(map(len, texts))
    if len(set(lengths)) == 1:
        return new_batch(values.view(len(texts), lengths[0]))
    return ragged_batch(values, np.array(lengths, np.int64)[:, None])


def contents_of(data: Any) -> Tensor | Batch | None:
    """Return the contents of a file (a path, a URL or bytes) or of a list of files; None for everything else.

    >>> contents_of(b"abc").torch().tolist()
    [97, 98, 99]
    >>> contents_of([b"abc", np.zeros(2, np.uint8)]).shape
    [(3,), (2,)]
    >>> contents_of([1, 2]) is None
    True
    """
    if isinstance(data, _PATHS):
        return read(path_bytes(data))
    if isinstance(data, _CONTENTS):
        return as_tensor(np.frombuffer(data, np.uint8))
    if not isinstance(data, list | tuple) or not data or not all(isinstance(file, _FILES) for file in data):
        return None
    # Paths are read in one call, on all threads.
    if all(isinstance(file, _PATHS) for file in data):
        return read(_join_bytes(list(map(os.fsencode, data))))
    return batch([contents_of(file) if isinstance(file, _PATHS + _CONTENTS) else as_tensor(file) for file in data])


def places_or_contents(data: Any) -> Tensor | Batch | None:
    """Return the places of files, or of URLs, for a decoder that reads only parts of them; else what :func:`contents_of` returns.

    >>> places_or_contents("a.wav").holds_places, places_or_contents(b"abc").holds_places
    (True, False)
    """
    if is_compiling():
        return contents_of(data)
    if isinstance(data, _PATHS):
        return place(data)
    # All of one kind: the decoder opens local files itself.
    kinds = {is_url(path) if isinstance(path, _PATHS) else None for path in data} if isinstance(data, list | tuple) else None
    if kinds not in ({True}, {False}):
        return contents_of(data)
    return _mark_places(_join_bytes([_place_bytes(path, 0, -1) for path in data]), data)


def place(path: str | os.PathLike[str], begin: int = 0, length: int = -1) -> Tensor:
    """Return the place of a file, or of a range of it (negative length: its rest), as input of a decoder that reads only parts."""
    return _mark_places(_bytes_of(_place_bytes(path, begin, length)), [path])


def places(found: Batch) -> list[Range]:
    """Return the places that a batch of them holds."""
    rows = [bytes(row.buffer.numpy()) for row in found]
    return [Range(os.fsdecode(row[_RANGE.size :]), *_RANGE.unpack_from(row)) for row in rows]


def _place_bytes(path: str | os.PathLike[str], begin: int, length: int) -> bytes:
    # The form that the kernel takes: see open_sound() in csrc/decoders/audio.
    return _RANGE.pack(begin, length) + os.fsencode(path)


def _mark_places(found: Any, paths: Sequence[str | os.PathLike[str]]) -> Any:
    found.sources = tuple(os.fsdecode(path) for path in paths)
    found.holds_places, found.caller_owned = True, False  # no other reference to the memory exists
    return found


_FILES = (*_PATHS, *_CONTENTS, np.ndarray, torch.Tensor, Operand)


def check_encoded(op: str, files: Batch, what: str) -> None:
    """Raise RuntimeError unless the input of a decoder is bytes."""
    if files.dtype == torch.uint8 and files.ndim == 1:
        return
    if not files.buffer.numel():  # such as []
        raise RuntimeError(f"{op}: there are no {what}: the input is empty")
    hint = "; these values are decoded already" if files.ndim > 1 else ""
    raise RuntimeError(f"{op}: {what} must be uint8 with one dimension, got {files.dtype} with {files.ndim}{hint}")


def sample_name(files: Batch, i: int) -> str:
    """Return a sample and its file, for messages."""
    return f"sample {i} ({files.sources[i]})" if files.sources else f"sample {i}"


def sample_numbers(argument: Any, i: int) -> list[int] | None:
    """Return the numbers of sample i in an argument with a list for each sample or one for all; None if it was left out."""
    if argument is None:
        return None
    if isinstance(argument, torch.Tensor):
        argument = [number for number in argument[i if len(argument) > 1 else 0].reshape(-1).tolist() if number != NO_VALUE]
    return [int(number) for number in (argument if isinstance(argument, Sequence) else [argument])]
