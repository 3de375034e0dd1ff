# SPDX-License-Identifier: Apache-2.0
"""Iterators over pipelines that return torch tensors."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from ..._functions.python_function import TorchPythonFunction
from ..base_iterator import BaseIterator, LastBatchPolicy
from . import fn, torch_utils
from .torch_utils import TensorCPU, TensorGPU, TensorListGPU, feed_ndarray, to_torch_tensor, to_torch_type

__all__ = [
    "DALIClassificationIterator",
    "DALIGenericIterator",
    "DALIRaggedIterator",
    "LastBatchPolicy",
    "TensorCPU",
    "TensorGPU",
    "TensorListGPU",
    "TorchPythonFunction",
    "feed_ndarray",
    "fn",
    "to_torch_type",
    "torch_utils",
]


class DALIGenericIterator(BaseIterator):
    """Iterate over the outputs of pipelines as torch tensors, epoch by epoch.

    Each step is a list with a dict for each pipeline, from the names of ``output_map`` to tensors with the batch axis first, on the device of the
    output. The tensors own the pipeline's memory: it is not reused while they exist.

    A new loop continues in the middle of the epoch if an earlier one was left. After the end ``next`` raises StopIteration until :meth:`reset`; a new
    loop resets.

    Args:
        pipelines: A pipeline or a list of them. They are built.
        output_map: A name for each output.
        size: Number of samples in an epoch, of all pipelines together. By default an epoch ends when the pipeline raises StopIteration, for example
            because an external source is exhausted; then there may be only one pipeline, and the policy does not matter.
        reader_name: Name of the reader whose size, shards and padding apply. Replaces ``size`` and ``last_batch_padded``.
        auto_reset: Begin the next epoch at the end of one: True or "yes". False, None and "no" leave that to :meth:`reset` or the next loop.
        fill_last_batch: Deprecated: True means ``LastBatchPolicy.FILL``, False ``PARTIAL``.
        dynamic_shape: Has no effect: shapes may always change from batch to batch.
        last_batch_padded: With ``size``, whether the reader has ``pad_last_batch=True``.
        last_batch_policy: Treatment of the last batch of an epoch, see :class:`LastBatchPolicy`. All ranks have equally many batches.
        prepare_first_batch: Produce the first batch in the constructor, which then raises errors of the data.

    Raises:
        AssertionError: arguments that exclude each other, names that occur twice, pipelines that do not fit each other, or batches that are not full
            with ``reader_name`` or ``size``.
        IndexError: fewer names than outputs.
        KeyError: more names than outputs.
        RuntimeError: no reader has this name, the epoch has no batches, or a batch has samples of different shapes (see :class:`DALIRaggedIterator`).
        ValueError: an unknown policy or value of ``auto_reset``, or pipelines with different ``enable_checkpointing``.

    >>> import numpy as np
    >>> from torch_ndd.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=2, num_threads=1)
    ... def numbers():
    ...     return fn.external_source([np.float32([[1], [2]]), np.float32([[3], [4]])]) * 10
    >>> [step[0]["value"].tolist() for step in DALIGenericIterator(numbers(), ["value"])]
    [[[10.0], [20.0]], [[30.0], [40.0]]]
    """

    _allows_extra_names = False  # whether output_map may have more names than there are outputs

    def __init__(
        self,
        pipelines: Any,
        output_map: Sequence[str],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: str | bool | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: bool | None = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
    ) -> None:
        self.output_map = output_map
        if len(set(output_map)) < len(output_map):
            raise AssertionError(f"{type(self).__name__}: the names in output_map must be different, got {list(output_map)}")
        super().__init__(pipelines, size, reader_name, auto_reset, fill_last_batch, last_batch_padded, last_batch_policy, prepare_first_batch)

    def _convert(self, outputs: Sequence[Any], kept: int) -> dict[str, Any]:
        names = self.output_map
        if len(names) < len(outputs) or (len(names) > len(outputs) and not self._allows_extra_names):
            error = IndexError if len(names) < len(outputs) else KeyError
            raise error(f"{self._op}: output_map must have a name for each of the {len(outputs)} outputs, got {list(names)}")
        return {name: self._tensor(place, values, kept) for place, (name, values) in enumerate(zip(names, outputs, strict=False))}

    def _tensor(self, output: int, values: Any, kept: int) -> Any:
        tensor = to_torch_tensor(values, copy=False)
        # A view: only the samples that belong to the epoch.
        return tensor if kept >= len(tensor) else tensor[:kept]


class DALIClassificationIterator(DALIGenericIterator):
    """Iterate over pipelines with two outputs, ``"data"`` and ``"label"``. Otherwise as :class:`DALIGenericIterator`.

    >>> import numpy as np
    >>> from torch_ndd.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=2, num_threads=1)
    ... def classes():
    ...     return fn.external_source([np.float32([[1], [2]])]), fn.external_source([np.int32([5, 6])])
    >>> next(DALIClassificationIterator(classes()))[0]["label"]
    tensor([5, 6], dtype=torch.int32)
    """

    def __init__(
        self,
        pipelines: Any,
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: str | bool | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: bool | None = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
    ) -> None:
        names = ["data", "label"]
        super().__init__(
            pipelines, names, size, reader_name, auto_reset, fill_last_batch, dynamic_shape, last_batch_padded, last_batch_policy, prepare_first_batch
        )


class DALIRaggedIterator(DALIGenericIterator):
    """Iterate over outputs whose samples may have different shapes. Otherwise as :class:`DALIGenericIterator`.

    Names of ``output_map`` beyond the outputs are ignored.

    Args:
        pipelines: As there, like all arguments except ``output_types``.
        output_types: For each output ``DENSE_TAG``, a tensor, which is the default; ``SPARSE_LIST_TAG``, a list with a tensor for each sample; or
            ``SPARSE_COO_TAG``, a sparse COO tensor (N, L) of samples with one dimension, where L is the length of the longest.

    Raises:
        AssertionError: another tag.
        IndexError: fewer tags than outputs.

    >>> import numpy as np
    >>> from torch_ndd.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=2, num_threads=1)
    ... def boxes():
    ...     return fn.external_source([[np.float32([1]), np.float32([2, 3])]])
    >>> next(DALIRaggedIterator(boxes(), ["box"], output_types=[DALIRaggedIterator.SPARSE_LIST_TAG]))[0]["box"]
    [tensor([1.]), tensor([2., 3.])]
    """

    DENSE_TAG: ClassVar[str] = "dense"
    SPARSE_LIST_TAG: ClassVar[str] = "sparse_list"
    SPARSE_COO_TAG: ClassVar[str] = "sparse_coo"
    _allows_extra_names = True

    def __init__(
        self,
        pipelines: Any,
        output_map: Sequence[str],
        size: int = -1,
        reader_name: str | None = None,
        output_types: Sequence[str] | None = None,
        auto_reset: str | bool | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: bool | None = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
    ) -> None:
        known = (self.DENSE_TAG, self.SPARSE_LIST_TAG, self.SPARSE_COO_TAG)
        for tag in output_types or ():
            if tag not in known:
                raise AssertionError(f"{type(self).__name__}: output_types must be of {known}, got {tag!r}")
        self._tags = None if output_types is None else list(output_types)
        super().__init__(
            pipelines,
            output_map,
            size,
            reader_name,
            auto_reset,
            fill_last_batch,
            dynamic_shape,
            last_batch_padded,
            last_batch_policy,
            prepare_first_batch,
        )

    def _tensor(self, output: int, values: Any, kept: int) -> Any:
        if self._tags is not None and output >= len(self._tags):
            raise IndexError(f"{self._op}: output_types must have a tag for each output, got {self._tags}")
        tag = self.DENSE_TAG if self._tags is None else self._tags[output]
        if tag == self.DENSE_TAG:
            return super()._tensor(output, values, kept)
        samples = [to_torch_tensor(values[k], copy=False) for k in range(min(kept, len(values)))]
        if tag == self.SPARSE_LIST_TAG:
            return samples
        return self._sparse(output, samples)

    def _sparse(self, output: int, samples: list[torch.Tensor]) -> torch.Tensor:
        if any(sample.ndim != 1 for sample in samples):
            shapes = [list(sample.shape) for sample in samples]
            raise RuntimeError(
                f"{self._op}: the samples of {self.output_map[output]!r} must have one dimension for {self.SPARSE_COO_TAG!r}, got {shapes}"
            )
        lengths = torch.tensor([len(sample) for sample in samples])
        # One coordinate pair for each value: the sample, and the position in it.
        rows = torch.repeat_interleave(torch.arange(len(samples)), lengths)
        columns = torch.cat([torch.arange(len(sample)) for sample in samples] or [torch.empty(0, dtype=torch.int64)])
        values = torch.cat(samples)
        size = (len(samples), int(lengths.max()))
        # Without check_invariants torch warns that it does not check.
        return torch.sparse_coo_tensor(torch.stack([rows, columns]).to(values.device), values, size, check_invariants=False)
