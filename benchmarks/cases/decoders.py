# SPDX-License-Identifier: Apache-2.0
"""Decoders."""

import importlib
import io
from typing import Any

import numpy as np

from ._case import Case


def _cv2_window(cv2: Any, file: np.ndarray) -> Any:
    return np.ascontiguousarray(cv2.imdecode(file, cv2.IMREAD_COLOR)[75:299, 100:324])


CASES = (
    Case(
        "decoders.image",
        ndd=lambda ndd, types, x: ndd.decoders.image(x),
        cv2=lambda cv2, x: cv2.imdecode(x, cv2.IMREAD_COLOR),
        data="jpegs",
    ),
    Case(
        "decoders.image_crop",
        ndd=lambda ndd, types, x: ndd.decoders.image_crop(x, crop=[224, 224]),
        cv2=_cv2_window,
        data="jpegs",
    ),
    Case(
        "decoders.audio, FLAC",
        ndd=lambda ndd, types, x: ndd.decoders.audio(x)[0],
        np=lambda x: importlib.import_module("soundfile").read(io.BytesIO(x.tobytes()), dtype="float32")[0],
        data="flac files",
    ),
    Case(
        "decoders.audio, FLAC, mixed to int16",
        ndd=lambda ndd, types, x: ndd.decoders.audio(x, downmix=True, dtype=types.INT16)[0],
        np=lambda x: importlib.import_module("soundfile").read(io.BytesIO(x.tobytes()), dtype="int16")[0],
        data="flac files",
    ),
    Case(
        "decoders.audio, FLAC, a second from the middle",
        ndd=lambda ndd, types, x: ndd.decoders.audio(x, start=1.5, duration=1.0)[0],
        np=lambda x: importlib.import_module("soundfile").read(io.BytesIO(x.tobytes()), 16_000, 24_000, dtype="float32")[0],
        data="flac files",
    ),
    Case(
        "peek_image_shape",
        ndd=lambda ndd, types, x: ndd.peek_image_shape(x),
        data="jpegs",
    ),
)
