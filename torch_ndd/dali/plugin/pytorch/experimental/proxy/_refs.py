# SPDX-License-Identifier: Apache-2.0
"""References to outputs of a pipeline that has not run yet, and what they carry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import default_collate_fn_map


@dataclass
class Packed:
    """The samples of one input of a batch, in one buffer: worker processes send it in shared memory."""

    values: torch.Tensor  # of all samples, flat
    shapes: list[tuple[int, ...]]

    @classmethod
    def of(cls, name: str, samples: Sequence[Any]) -> "Packed":
        """Pack samples. Raise TypeError if they are no arrays, or of different types."""
        arrays = [_array(name, one) for one in samples]
        dtypes = {one.dtype for one in arrays}
        if len(dtypes) > 1:
            raise TypeError(f"DALI proxy: the samples of the input {name!r} have different types in a batch: {sorted(map(str, dtypes))}")
        values = torch.empty(sum(one.size for one in arrays), dtype=torch.from_numpy(np.empty(0, dtypes.pop())).dtype)
        if values.numel():
            np.concatenate([one.reshape(-1) for one in arrays], out=values.numpy())
        return cls(values, [one.shape for one in arrays])

    def batch(self) -> Any:
        """Return what a pipeline is fed with: a tensor (N, ...), or a list of tensors of different shapes."""
        if len(set(self.shapes)) == 1:
            return self.values.reshape(len(self.shapes), *self.shapes[0])
        parts = self.values.split([int(np.prod(shape)) for shape in self.shapes])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def _array(name: str, sample: Any) -> np.ndarray:
    if isinstance(sample, torch.Tensor):
        sample = sample.detach().cpu().numpy()
    elif isinstance(sample, bytes | bytearray | memoryview):
        sample = np.frombuffer(sample, np.uint8)
    made = np.asarray(sample)
    if made.dtype.kind not in "biuf":
        raise TypeError(f"DALI proxy: a sample of the input {name!r} must be an array, a tensor, a number or bytes, got {type(sample).__name__}")
    return made.astype(made.dtype.newbyteorder("="), copy=False)


class DALIPipelineRunRef:
    """One run of the pipeline on a batch.

    Args:
        batch_id: Number of the worker, and of the batch in it.
        inputs: The batch of each input.
    """

    def __init__(self, batch_id: Any, inputs: Mapping[str, Packed] | None = None) -> None:
        self.batch_id = batch_id
        self.inputs = dict(inputs or {})
        self.outputs: tuple[torch.Tensor, ...] | None = None  # in the main process, once it has run
        self.error: BaseException | None = None

    def __repr__(self) -> str:
        return f"DALIPipelineRunRef(batch_id={self.batch_id})"


class Call:
    """One call of a proxy: the inputs of a sample."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.inputs = inputs


class DALIOutputSampleRef:
    """An output of the pipeline for one sample. Batches of them are collated to a :class:`DALIOutputBatchRef`.

    Args:
        proxy: The proxy that was called.
        pipe_run_ref: The call.
        output_idx: Number of the output.
        sample_idx: Number of the call.
    """

    def __init__(self, proxy: Any, pipe_run_ref: Any, output_idx: int, sample_idx: int) -> None:
        self.proxy, self.pipe_run_ref, self.output_idx, self.sample_idx = proxy, pipe_run_ref, output_idx, sample_idx

    def __repr__(self) -> str:
        return f"DALIOutputSampleRef(output_idx={self.output_idx}, sample_idx={self.sample_idx})"


class DALIOutputBatchRef:
    """An output of the pipeline for a batch.

    Args:
        pipe_run_ref: The run.
        output_idx: Number of the output.
    """

    def __init__(self, pipe_run_ref: DALIPipelineRunRef, output_idx: int) -> None:
        self.pipe_run_ref, self.output_idx = pipe_run_ref, output_idx

    def __repr__(self) -> str:
        return f"DALIOutputBatchRef(pipe_run_ref={self.pipe_run_ref}, output_idx={self.output_idx})"


def _collated(batch: Sequence[DALIOutputSampleRef], *, collate_fn_map: Any = None) -> DALIOutputBatchRef:
    """Return the reference of a batch of samples."""
    first = batch[0]
    if any(one.output_idx != first.output_idx or one.proxy is not first.proxy for one in batch):
        raise RuntimeError("DALI proxy: the references of a batch must be those of one output of one proxy")
    return DALIOutputBatchRef(first.proxy._run_of([one.pipe_run_ref for one in batch]), first.output_idx)


default_collate_fn_map[DALIOutputSampleRef] = _collated
