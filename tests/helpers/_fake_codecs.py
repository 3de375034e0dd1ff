# SPDX-License-Identifier: Apache-2.0
"""Functions in the place of a GPU's codecs, where the decoders run emulated (tests/emulated_cuda/fake_codec.cpp)."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import torch_ndd as ndd
from torch_ndd._core import native

EMULATED = "NDD_EMULATED_DECODERS" in os.environ
GPU = -99999 if EMULATED else 0  # its number


class Request(ctypes.Structure):
    """What a decoder is asked for."""

    _fields_ = (
        ("file", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("file_bytes", "height", "width", "channels", "row_bytes")),
        *((name, ctypes.c_int32) for name in ("type", "format", "color", "precision", "has_region", "is_decoding")),
        ("pixels", ctypes.c_void_p),
    )

    @property
    def content(self) -> bytes:
        return ctypes.string_at(self.file, self.file_bytes)

    def fill(self, samples: np.ndarray) -> None:
        assert samples.shape == (self.height, self.width, self.channels)
        assert self.row_bytes == samples[0].nbytes
        assert self.type == {1: 0x0801, 2: 0x1001}[samples.itemsize] or samples.itemsize == self.type >> 11
        ctypes.memmove(self.pixels, np.ascontiguousarray(samples).ctypes.data, samples.nbytes)


Answer = Callable[[Request], bool]
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Request))


class Codec:
    """One of the fake codecs: ``answer(request)`` returns whether it accepts, or has decoded. Keeps the requests."""

    def __init__(self, extension: str) -> None:
        self._library = ctypes.CDLL(str(Path(native.PATH).parent / f"lib{extension}_ext.so"))
        self.accepted: list[bytes] = []
        self.failures: list[BaseException] = []

    def answer(self, decode: Answer, accepts: Answer = lambda request: True) -> None:
        def call(pointer: Any) -> int:
            request = pointer.contents
            try:
                assert not request.has_region
                if not request.is_decoding:
                    return not accepts(request)
                self.accepted.append(request.content)
                return not decode(request)
            except BaseException as error:
                self.failures.append(error)
                return 1

        self._function = _PROTOTYPE(call)
        self._library.fake_codec_answer(self._function)

    def stop(self) -> None:
        self._library.fake_codec_answer(None)
        assert not self.failures, self.failures


def count_engines(work: Any) -> tuple[Any, dict[str, int]]:
    before = ndd.decoders.engine_counts(GPU)
    result = work()
    result.evaluate()
    return result, {name: count - before[name] for name, count in ndd.decoders.engine_counts(GPU).items() if count != before[name]}


def gradient(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack([255 * y / height, 255 * x / width, 255 * (y + x) / (height + width)], -1).astype(np.uint8)
