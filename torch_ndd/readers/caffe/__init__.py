# SPDX-License-Identifier: Apache-2.0
"""Images and labels from LMDB databases of Caffe and Caffe2."""

import operator
from collections.abc import Sequence

import numpy as np
import torch
from typing_extensions import Unpack, override

from ..._core import native
from ..._core.context.device import DeviceLike
from ..._core.values.batch import Batch, new_batch
from .._labels import scalar_labels as join_scalar_labels
from .._options import LoaderOptions
from .._ranges.ranges import Path, Ranges, RecordRequest, packed_batch
from ._lmdb import LmdbReader, Numbers, form_of, join_images

_IMAGE_FORM = 4  # numbers: the dimensions of an image, and three extents
_MAX_ADDITIONAL = 1000
SINGLE_LABEL, MULTI_LABEL_DENSE, MULTI_LABEL_WEIGHTED_SPARSE, NO_LABEL = (
    native.numbers("caffe.LabelType")[name] for name in ("single", "dense", "weighted", "no_label")
)


class Caffe(LmdbReader):
    """Read LMDB databases of Caffe, whose values are ``Datum`` messages.

    Outputs: the image as stored, uint8: the bytes of a file (length,), or (height, width, channels) if the message is marked as not encoded; the
        label, int32 (1,), or (0,) if the message has none, or int64 () with ``scalar_labels``. Samples are in key order.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        path: Folder of a database, or several. Not URLs: keys and values are scattered over a database.
        image_available: Deliver images; True by default.
        label_available: Deliver labels; True by default.
        scalar_labels: Deliver labels as torch's losses take them: int64 (), so those of a batch are (N,). Not in DALI.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, if a database cannot be read, is damaged or truncated, if all are empty, or if neither images nor labels are
            wanted; at any step, for a damaged message, with database and key, and if the database was modified since.

    >>> reader = Caffe(path="train_lmdb", random_shuffle=True)
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        image_available: bool | None = None,
        label_available: bool | None = None,
        path: Path | Sequence[Path],
        scalar_labels: bool = False,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, path, loader)
        self._image = image_available is None or bool(image_available)
        self._label = label_available is None or bool(label_available)
        self._scalar_labels = bool(scalar_labels)

    @override
    def scan(self) -> int:
        if not self._image and not self._label:
            raise RuntimeError(f"{self._op}: image_available and label_available are both False: there is nothing to deliver")
        return super().scan()

    @override
    def _begin_request(self, ranges: Ranges, samples: np.ndarray) -> RecordRequest:
        return _DatumRequest(ranges, samples, self._image)

    @override
    def _join(self, request: RecordRequest) -> tuple[Batch, ...]:
        outputs = [join_images(request, form_of(request, 2, _IMAGE_FORM))] if self._image else []
        if self._label:
            values, lengths = request.output(1)
            numbers, counts = values.view(torch.int32), lengths // 4
            outputs.append(join_scalar_labels(numbers.numpy(), counts) if self._scalar_labels else packed_batch(numbers, counts))
        return tuple(outputs)


class _DatumRequest(RecordRequest):
    def __init__(self, ranges: Ranges, samples: np.ndarray, image: bool) -> None:
        self._image = image
        super().__init__(ranges, samples)

    @override
    def _begin(self) -> int:
        return native.datums_start(*self._native_ranges(), self._image)


class Caffe2(LmdbReader):
    """Read LMDB databases of Caffe2, whose values are ``TensorProtos`` messages: one tensor per output.

    Outputs: the image, uint8: the bytes of a file (length,) if it is stored as a string, else (height, width, channels); the label; the additional
        tensors, float32 or int32 (length,); the box, int32 (4,). Samples are in key order.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        additional_inputs: Number of additional tensors per sample.
        bbox: Each sample has a box.
        image_available: Each sample has an image; True by default.
        label_type: 0: one number, int32 or float32 (1,). 1: indices of the classes that apply, delivered as 0 and 1, float32 (num_labels,). 2: a
            vector as stored. 3: indices of classes and, in another tensor, their weights, delivered as float32 (num_labels,). 4: no label.
        num_labels: Number of classes for types 1 and 3.
        path: Folder of a database, or several. Not URLs: keys and values are scattered over a database.
        scalar_labels: Deliver labels of type 0 as torch's losses take them: int64 (), so those of a batch are (N,). Not in DALI.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, if a database cannot be read, is damaged or truncated, if all are empty, or if there is nothing to deliver;
            at any step, for a message that is damaged or lacks these tensors, with database and key, and if the database was modified since.

    >>> reader = Caffe2(path="train_lmdb", label_type=1, num_labels=1000)
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        additional_inputs: int | None = None,
        bbox: bool | None = None,
        image_available: bool | None = None,
        label_type: int | None = None,
        num_labels: int | None = None,
        path: Path | Sequence[Path],
        scalar_labels: bool = False,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, path, loader)
        self._additional = 0 if additional_inputs is None else operator.index(additional_inputs)
        self._label_type = SINGLE_LABEL if label_type is None else operator.index(label_type)
        self._labels = 1 if num_labels is None else operator.index(num_labels)
        self._box = bool(bbox)
        self._scalar_labels = bool(scalar_labels)
        self._image = image_available is None or bool(image_available)

    @override
    def scan(self) -> int:
        if not SINGLE_LABEL <= self._label_type <= NO_LABEL:
            raise RuntimeError(f"{self._op}: label_type must be from 0 to 4, got {self._label_type}")
        if self._additional < 0 or self._labels < 1:
            raise RuntimeError(f"{self._op}: additional_inputs must not be negative and num_labels must be positive")
        if self._additional > _MAX_ADDITIONAL:
            raise RuntimeError(f"{self._op}: additional_inputs must be at most {_MAX_ADDITIONAL}, got {self._additional}")
        if self._scalar_labels and self._label_type != SINGLE_LABEL:
            raise RuntimeError(f"{self._op}: scalar_labels is for label_type 0, one number; got label_type {self._label_type}")
        if not (self._image or self._label_type != NO_LABEL or self._additional or self._box):
            raise RuntimeError(f"{self._op}: there is nothing to deliver: no image, no label, no box and no additional tensors")
        return super().scan()

    @override
    def _begin_request(self, ranges: Ranges, samples: np.ndarray) -> RecordRequest:
        # Classes are int32, so no class reaches a larger number of them.
        return _TensorsRequest(ranges, samples, (self._image, self._label_type, min(self._labels, 2**31), self._additional, self._box))

    @override
    def _join(self, request: RecordRequest) -> tuple[Batch, ...]:
        labels = 0 if self._label_type == NO_LABEL else 2 if self._label_type == MULTI_LABEL_WEIGHTED_SPARSE else 1
        count = self._image + labels + self._additional + self._box
        form = form_of(request, count, _IMAGE_FORM * self._image + count - self._image)
        kinds = form[:, form.shape[1] - count + self._image :]
        outputs = [join_images(request, form[:, :_IMAGE_FORM])] if self._image else []
        numbers = [Numbers.of(request, self._image + k, kinds[:, k]) for k in range(kinds.shape[1])]
        if labels:
            outputs.append(self._join_labels(*numbers[:labels]))
        return (*outputs, *(output.join() for output in numbers[labels:]))

    def _join_labels(self, label: Numbers, weights: Numbers | None = None) -> Batch:
        if self._label_type in (SINGLE_LABEL, MULTI_LABEL_DENSE):
            return join_scalar_labels(label.array(), label.counts) if self._scalar_labels else label.join()
        dense = np.zeros((len(label.counts), self._labels), np.float32)
        dense[np.repeat(np.arange(len(dense)), label.counts), label.array()] = 1 if weights is None else weights.array()
        return new_batch(torch.from_numpy(dense))


class _TensorsRequest(RecordRequest):
    def __init__(self, ranges: Ranges, samples: np.ndarray, wanted: tuple[int, ...]) -> None:
        self._wanted = wanted
        super().__init__(ranges, samples)

    @override
    def _begin(self) -> int:
        return native.tensors_start(*self._native_ranges(), *self._wanted)
