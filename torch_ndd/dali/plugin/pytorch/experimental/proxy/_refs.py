# SPDX-License-Identifier: Apache-2.0
"""References to outputs of a pipeline that has not run yet, and the inputs that they carry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import default_collate_fn_map


@dataclass
class Packed:
    """The samples of an input of a batch, in one buffer, which worker processes send in shared memory."""

    values: torch.Tensor  # of all samples, flat
    shapes: list[tuple[int, ...]]

    @classmethod
    def of(cls, name: str, samples: Sequence[Any]) -> "Packed":
        """Pack samples. Raise TypeError unless they are arrays of one type."""
        arrays = [_array(name, array) for array in samples]
        dtypes = {array.dtype for array in arrays}
        if len(dtypes) > 1:
            raise TypeError(f"DALI proxy: the samples of the input {name!r} have different types in a batch: {sorted(map(str, dtypes))}")
        values = torch.empty(sum(array.size for array in arrays), dtype=torch.from_numpy(np.empty(0, dtypes.pop())).dtype)
        if values.numel():
            np.concatenate([array.reshape(-1) for array in arrays], out=values.numpy())
        return cls(values, [array.shape for array in arrays])

    def batch(self) -> Any:
        """Return the batch for the pipeline: a tensor (N, ...), or a list of tensors of different shapes."""
        if len(set(self.shapes)) == 1:
            return self.values.reshape(len(self.shapes), *self.shapes[0])
        parts = self.values.split([int(np.prod(shape)) for shape in self.shapes])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def _array(name: str, sample: Any) -> np.ndarray:
    if isinstance(sample, torch.Tensor):
        sample = sample.detach().cpu().numpy()
    elif isinstance(sample, bytes | bytearray | memoryview):
        sample = np.frombuffer(sample, np.uint8)
    array = np.asarray(sample)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"DALI proxy: a sample of the input {name!r} must be an array, a tensor, a number or bytes, got {type(sample).__name__}")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


class DALIPipelineRunRef:
    """One run of the pipeline on a batch.

    Args:
        batch_id: Index of the worker, and index of the batch in it.
        inputs: The batch of each input.
    """

    def __init__(self, batch_id: Any, inputs: Mapping[str, Packed] | None = None) -> None:
        self.batch_id = batch_id
        self.inputs = dict(inputs or {})
        self.outputs: tuple[torch.Tensor, ...] | None = None  # in the main process, after the run
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
        output_idx: Index of the output.
        sample_idx: Index of the call.
    """

    def __init__(self, proxy: Any, pipe_run_ref: Any, output_idx: int, sample_idx: int) -> None:
        self.proxy, self.pipe_run_ref, self.output_idx, self.sample_idx = proxy, pipe_run_ref, output_idx, sample_idx

    def __repr__(self) -> str:
        return f"DALIOutputSampleRef(output_idx={self.output_idx}, sample_idx={self.sample_idx})"


class DALIOutputBatchRef:
    """An output of the pipeline for a batch.

    Args:
        pipe_run_ref: The run.
        output_idx: Index of the output.
    """

    def __init__(self, pipe_run_ref: DALIPipelineRunRef, output_idx: int) -> None:
        self.pipe_run_ref, self.output_idx = pipe_run_ref, output_idx

    def __repr__(self) -> str:
        return f"DALIOutputBatchRef(pipe_run_ref={self.pipe_run_ref}, output_idx={self.output_idx})"


def _collate(batch: Sequence[DALIOutputSampleRef], *, collate_fn_map: Any = None) -> DALIOutputBatchRef:
    """Return the reference of a batch of samples."""
    first = batch[0]
    if any(reference.output_idx != first.output_idx or reference.proxy is not first.proxy for reference in batch):
        raise RuntimeError("DALI proxy: all references of a batch must be to one output of one proxy")
    return DALIOutputBatchRef(first.proxy.find_run([reference.pipe_run_ref for reference in batch]), first.output_idx)


default_collate_fn_map[DALIOutputSampleRef] = _collate
