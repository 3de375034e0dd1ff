# SPDX-License-Identifier: Apache-2.0
"""Inputs that leave the usual path, of a batch of 8 photographs of 321x213 where nothing else is said, and arguments that are batches."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from ..._photos import vga_images
from .._case import DATA, Case

Call = Callable[[ModuleType, ModuleType, Any], Any]


@functools.cache
def _photographs() -> np.ndarray:
    return vga_images(8)


def _odd(dtype: Any = np.uint8, scale: int = 1) -> np.ndarray:
    return np.ascontiguousarray(_photographs()[:, 100:313, 100:421]).astype(dtype) * np.asarray(scale, dtype)


def _channels(count: int) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate([_odd(), _odd()[..., ::-1]], 3)[..., :count])


def _make_ragged() -> np.ndarray:
    images = np.empty(8, object)
    for i, photograph in enumerate(_photographs()):
        images[i] = np.ascontiguousarray(photograph[: 151 + 23 * i, : 371 - 31 * i])
    return images


def _large() -> np.ndarray:
    return np.ascontiguousarray(np.tile(_photographs()[:2], (1, 2, 3, 1))[:, :853, :1281])


def _videos() -> np.ndarray:
    """Four of five frames."""
    return np.ascontiguousarray(np.stack([_photographs()[:4, 20 * f : 20 * f + 107, 10 * f : 10 * f + 161] for f in range(5)], 1))


def _volumes() -> np.ndarray:
    """Four of 31x53x61, one channel."""
    return np.ascontiguousarray(np.stack([_photographs()[:4, 10 * d : 10 * d + 53, 7 * d : 7 * d + 61, :1] for d in range(31)], 1))


# By name: the layout of the samples, and what makes them.
INPUTS: dict[str, tuple[str, Callable[[], np.ndarray]]] = {
    "uint8": ("HWC", _odd),
    "CHW": ("CHW", lambda: np.ascontiguousarray(_odd().transpose(0, 3, 1, 2))),
    "1 channel": ("HWC", lambda: _channels(1)),
    "2 channels": ("HWC", lambda: _channels(2)),
    "4 channels": ("HWC", lambda: _channels(4)),
    "uint16": ("HWC", lambda: _odd(np.uint16, 257)),
    "int16": ("HWC", lambda: _odd(np.int16, 3)),
    "int32": ("HWC", lambda: _odd(np.int32, 3)),
    "float16": ("HWC", lambda: _odd(np.float16)),
    "float32": ("HWC", lambda: _odd(np.float32)),
    "7x5 pixels": ("HWC", lambda: np.ascontiguousarray(_photographs()[:, 100:107, 100:105])),
    "1281x853": ("HWC", _large),
    "ragged": ("HWC", _make_ragged),
    "videos": ("FHWC", _videos),
    "volumes": ("DHWC", _volumes),
}
DATA.update({f"unusual {name}": functools.cache(make) for name, (_, make) in INPUTS.items()})


def on(operator: str, call: Call, *inputs: str, tolerance: float = 1.0, outliers: float = 0.0) -> list[Case]:
    """The same call on each of the inputs."""
    return [_case(f"{operator}: {name}", name, call, tolerance, outliers) for name in inputs]


def arguments(operator: str, calls: Mapping[str, Call], data: str = "uint8", tolerance: float = 1.0, outliers: float = 0.0) -> list[Case]:
    """Several calls, by what is unusual in them, on one input."""
    of = "" if data == "uint8" else f", {data}"
    return [_case(f"{operator}: {name}{of}", data, call, tolerance, outliers) for name, call in calls.items()]


def _case(name: str, data: str, call: Call, tolerance: float, outliers: float) -> Case:
    known = data in INPUTS
    layout = INPUTS[data][0] if known else None
    return Case(name, ndd=call, data=f"unusual {data}" if known else data, layout=layout, tolerance=tolerance, outliers=outliers)


def each(ndd: ModuleType, *values: Any, dtype: type[np.generic] = np.float32) -> Any:
    """A batch with one of the values for each sample."""
    return _keep(ndd.__name__, values, dtype, False)


def frames(ndd: ModuleType, *values: Any, dtype: type[np.generic] = np.float32) -> Any:
    """The values, one for each frame of each of four videos."""
    return _keep(ndd.__name__, (values,) * 4, dtype, True)


@functools.cache
def _keep(module: str, values: tuple[Any, ...], dtype: type[np.generic], per_frame: bool) -> Any:
    ndd = importlib.import_module(module)
    batch = ndd.batch([np.asarray(value, dtype) for value in values])
    return (ndd.per_frame(batch) if per_frame else batch).evaluate()
