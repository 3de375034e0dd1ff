# SPDX-License-Identifier: Apache-2.0
"""Preprocessing on many machines with Ray Data: ``torch_ndd.ray.map_batches``. Extra ``[ray]``."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from ._core.context.pools import get_num_threads, set_num_threads
from ._core.context.rng import RNG, using_rng
from ._core.values.batch import Batch, as_batch, batch
from ._core.values.tensor import Tensor

__all__ = ["map_batches"]


def map_batches(
    dataset: Any,
    fn: Callable[..., Mapping[str, Any]],
    *,
    columns: str | Sequence[str] = "bytes",
    batch_size: int = 64,
    seed: int | None = None,
    **options: Any,
) -> Any:
    """Run ``fn`` on the batches of a Ray dataset, in Ray's workers.

    Bytes of files become Batches of uint8 samples, as from readers; columns of other types are numbers and arrays, of equal or different shapes. In
    ``fn`` operators run on as many threads as the task has CPUs.

    Args:
        dataset: A ``ray.data.Dataset``, for example ``ray.data.read_binary_files(folder, include_paths=True)``. If it has a column ``path``, errors
            about images name it.
        fn: Called with one Batch for each of ``columns``; returns a dict of new columns: Batches, tensors, arrays or lists with one item per row. It
            must be stateless, because calls run in different processes and are repeated when a machine fails.
        columns: Passed to ``fn`` and dropped from the result unless ``fn`` returns them. All others are kept.
        batch_size: Rows per call; the last calls may have fewer.
        seed: Seed of the random operators in ``fn``: they draw numbers derived from it and from the contents of the first column, wherever and
            whenever that runs; another epoch needs another seed. By default every call draws new numbers.
        options: Further arguments of ``Dataset.map_batches``: ``num_cpus`` of a task, 1 by default, ``num_gpus``, ``concurrency``, ...

    Returns:
        A lazy dataset.

    Raises:
        TypeError: immediately, for anything but a Ray dataset; in the workers, if ``fn`` does not return a dict or a column has an unsupported type.
        KeyError: in the workers, for a missing column.
        ValueError: in the workers, for missing values, and for results of another number of rows.

    >>> def preprocess(jpegs):
    ...     return {"image": ndd.resize(ndd.decoders.image(jpegs), size=[224, 224])}
    >>> images = map_batches(ray.data.read_binary_files("photos"), preprocess)  # doctest: +SKIP
    """
    if not hasattr(dataset, "map_batches"):
        raise TypeError(f"ray.map_batches: dataset must be a ray.data.Dataset, not {type(dataset).__name__}")
    options.setdefault("num_cpus", 1)
    known = [columns] if isinstance(columns, str) else list(columns)
    arguments = {"fn": fn, "columns": known, "seed": seed, "threads": max(1, int(options["num_cpus"] or 1))}
    return dataset.map_batches(_apply, batch_size=batch_size, batch_format="numpy", zero_copy_batch=True, fn_kwargs=arguments, **options)


def _apply(
    rows: dict[str, np.ndarray], fn: Callable[..., Mapping[str, Any]], columns: list[str], seed: int | None, threads: int
) -> dict[str, np.ndarray]:
    """Process one batch in a worker."""
    if get_num_threads() != threads:
        set_num_threads(threads)
    missing = [name for name in columns if name not in rows]
    if missing:
        raise KeyError(f"ray.map_batches: column {missing[0]!r} not found; available: {sorted(rows)}")
    inputs = [_as_batch(name, rows[name]) for name in columns]
    if "path" in rows:
        inputs[0].sources = [str(path) for path in rows["path"]]
    with nullcontext() if seed is None else using_rng(_rng_of(seed, rows[columns[0]])):
        outputs = fn(*inputs)
    if not isinstance(outputs, Mapping):
        raise TypeError(f"ray.map_batches: fn must return a dict of columns, not {type(outputs).__name__}")
    out = {name: column for name, column in rows.items() if name not in columns}
    for name, column in outputs.items():
        out[name] = _as_column(column)
        if len(out[name]) != len(rows[columns[0]]):
            raise ValueError(f"ray.map_batches: fn returned {len(out[name])} rows of {name!r} for {len(rows[columns[0]])}")
    return out


def _as_batch(name: str, column: np.ndarray) -> Batch:
    if column.dtype != object:
        if column.dtype.kind not in "biuf":
            raise TypeError(f"ray.map_batches: column {name!r} has the type {column.dtype}, which is not supported")
        return as_batch(column)
    samples = [np.frombuffer(value, np.uint8) if isinstance(value, bytes | memoryview) else value for value in column]
    for row, value in enumerate(samples):
        if value is None:
            raise ValueError(f"ray.map_batches: row {row} of column {name!r} has no value; drop such rows before")
        if not isinstance(value, np.ndarray):
            raise TypeError(f"ray.map_batches: row {row} of column {name!r} is a {type(value).__name__}; it must be bytes, a number or an array")
    return batch(samples)


def _rng_of(seed: int, column: np.ndarray) -> RNG:
    """Return the generator of a batch, which depends on its contents, not on where it runs."""
    crc = 0
    for value in column:
        crc = zlib.crc32(value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes(), crc)
    return RNG((seed << 32 | crc) & (2**64 - 1))


def _as_column(values: Any) -> np.ndarray:
    if isinstance(values, Batch):
        if values.ragged_shapes is None:
            return values.cpu().torch().numpy()
        values = list(values.cpu())
    if isinstance(values, torch.Tensor):
        return values.cpu().numpy()
    if not isinstance(values, list | tuple):
        return np.asarray(values)
    samples = [np.asarray(sample.cpu() if isinstance(sample, Tensor | torch.Tensor) else sample) for sample in values]
    if len({sample.shape for sample in samples}) <= 1:
        return np.stack(samples) if samples else np.empty(0)
    column = np.empty(len(samples), object)
    for row, sample in enumerate(samples):
        column[row] = sample
    return column
