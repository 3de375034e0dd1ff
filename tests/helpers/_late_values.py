# SPDX-License-Identifier: Apache-2.0
"""Files and values for the tests of calls that run ahead (running_ahead.py, uploads_ahead.py, random_programs.py)."""

import functools
import io
from typing import Any

import numpy as np
import torch
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core.work import cuda_work

SAMPLES, HEIGHT, WIDTH = 3, 16, 24


def _jpeg(rng: np.random.Generator) -> np.ndarray:
    stored = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)).save(stored, "JPEG")
    return np.frombuffer(stored.getvalue(), np.uint8)


@functools.cache
def encode_files() -> list[Any]:
    rng = np.random.default_rng(1)
    return [ndd.batch([_jpeg(rng) for _ in range(SAMPLES)]).evaluate() for _ in range(4)]


@functools.cache
def read_damaged_files() -> Any:
    intact = encode_files()[0].tensors
    return ndd.batch([intact[0], intact[1], np.concatenate([np.asarray(intact[2])[:-200], np.zeros(9, np.uint8)])]).evaluate()


@functools.cache
def draw_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.integers(0, 256, (SAMPLES, HEIGHT, WIDTH, 3), dtype=np.uint8) for _ in range(4)]


@functools.cache
def list_streams() -> list[Any]:
    return [ndd.stream() for _ in range(4)]


def decode_images() -> Any:
    return ndd.decoders.image(encode_files()[0], device="gpu")


def upload_array() -> Any:
    return ndd.batch(list(draw_arrays()[0]), layout="HWC").gpu().evaluate()


def decode_on_cpu() -> Any:
    return ndd.decoders.image(encode_files()[0], device="cpu")


def flip_on_cpu() -> torch.Tensor:
    with ndd.EvalMode.sync_cpu:
        return ndd.flip(decode_on_cpu(), horizontal=1).torch().clone()


def compute_pending(size: int) -> Any:
    """Return a pending batch on the CPU of images with so many rows and columns."""
    return ndd.resize(ndd.decoders.image(encode_files()[0], device="cpu"), size=[size, size])


def compute_expected(size: int) -> torch.Tensor:
    with ndd.EvalMode.sync_cpu:
        return compute_pending(size).torch().clone()


def get_work(value: Any) -> Any:
    assert isinstance(value.pending, cuda_work.QueuedWork)
    return value.pending.host
