# SPDX-License-Identifier: Apache-2.0
"""Images and labels from LMDB databases of Caffe and Caffe2."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import Unpack, override

from ..._core.context.device import DeviceLike
from .._labels import class_number
from .._options import LoaderOptions
from .._ranges.ranges import Path
from ._lmdb import LmdbReader
from ._protobuf import BYTES, FIXED32, fields, int32, packed_float, packed_int32


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
        scalar_labels: Deliver labels as torch's losses take them: int64 (), so that those of a batch are (N,). Not in DALI.
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

    def _parse(self, value: memoryview) -> Sequence[np.ndarray]:
        # Field numbers of Datum: 1 to 3 are channels, height and width, 4 the data, 5 the label, 7 whether the data are encoded.
        extents, data, label, encoded = {1: 0, 2: 0, 3: 0}, memoryview(b""), np.zeros(0, np.int32), True
        for number, wire, content in fields(value):
            if not isinstance(content, int):
                if number == 4 and wire == BYTES:
                    data = content
            elif number <= 3:
                extents[number] = int32(content)
            elif number == 5:
                label = np.array([int32(content)], np.int32)
            elif number == 7:
                encoded = bool(content)
        outputs: list[np.ndarray] = []
        if self._image:
            image = np.frombuffer(data, np.uint8)
            if not encoded:
                shape = extents[2], extents[3], extents[1]
                if min(shape) < 0 or shape[0] * shape[1] * shape[2] != len(image):
                    raise ValueError(f"the image has {len(image)} bytes, but height, width and channels are {shape}")
                image = image.reshape(shape)
            outputs.append(image)
        if not self._label:
            return outputs
        return [*outputs, class_number(label) if self._scalar_labels else label]


SINGLE_LABEL, MULTI_LABEL_SPARSE, MULTI_LABEL_DENSE, MULTI_LABEL_WEIGHTED_SPARSE, NO_LABEL = range(5)
# Data types of a TensorProto, as numbered in its schema.
_FLOAT, _INT32, _BYTE, _STRING = 1, 2, 3, 4


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
        scalar_labels: Deliver labels of type 0 as torch's losses take them: int64 (), so that those of a batch are (N,). Not in DALI.
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
        if self._scalar_labels and self._label_type != SINGLE_LABEL:
            raise RuntimeError(f"{self._op}: scalar_labels is for label_type 0, one number; got label_type {self._label_type}")
        if not (self._image or self._label_type != NO_LABEL or self._additional or self._box):
            raise RuntimeError(f"{self._op}: there is nothing to deliver: no image, no label, no box and no additional tensors")
        return super().scan()

    def _parse(self, value: memoryview) -> Sequence[np.ndarray]:
        # skip
        protos = [_TensorProto.of(content) for number, wire, content in fields(value) if number == 1 and wire == BYTES]  # type: ignore[arg-type]
        place = 0

        def following(what: str) -> _TensorProto:
            nonlocal place
            if place == len(protos):
                raise ValueError(f"there are {len(protos)} tensors and none is left for the {what}")
            place += 1
            return protos[place - 1]

        outputs: list[np.ndarray] = []
        if self._image:
            outputs.append(following("image").image())
        if self._label_type != NO_LABEL:
            outputs.append(self._label(following("label"), following))
        for k in range(self._additional):
            outputs.append(following(f"additional input {k}").numbers())
        if self._box:
            box = following("box")
            if box.kind != _INT32 or len(box.numbers()) != 4:
                raise ValueError(f"a box is four int32 numbers, not {len(box.numbers())} of data type {box.kind}")
            outputs.append(box.numbers())
        return outputs

    def _label(self, proto: "_TensorProto", following: Any) -> np.ndarray:
        label = proto.numbers()
        if self._label_type == SINGLE_LABEL and len(label) != 1:
            raise ValueError(f"a label is one number, not {len(label)}; label_type has other kinds")
        if self._label_type == SINGLE_LABEL and self._scalar_labels:
            return class_number(label)
        if self._label_type in (SINGLE_LABEL, MULTI_LABEL_DENSE):
            return label
        if proto.kind != _INT32:
            raise ValueError(f"the numbers of classes are int32, not of data type {proto.kind}")
        # Class numbers index `dense` below, and come from the file.
        if len(label) and not (label.min() >= 0 and label.max() < self._labels):
            raise ValueError(f"class {label.min() if label.min() < 0 else label.max()} is not among num_labels={self._labels}")
        weights = np.ones(len(label), np.float32)
        if self._label_type == MULTI_LABEL_WEIGHTED_SPARSE:
            weights = following("weights of the labels").numbers()
            if len(weights) != len(label):
                raise ValueError(f"there are {len(weights)} weights for {len(label)} classes")
        dense = np.zeros(self._labels, np.float32)
        dense[label] = weights
        return dense


@dataclass
class _TensorProto:
    kind: int = _FLOAT
    extents: list[int] = field(default_factory=list)
    floats: list[np.ndarray] = field(default_factory=list)
    ints: list[np.ndarray] = field(default_factory=list)
    data: memoryview = field(default_factory=lambda: memoryview(b""))
    strings: list[memoryview] = field(default_factory=list)

    @staticmethod
    def of(message: memoryview) -> "_TensorProto":
        tensor = _TensorProto()
        # Numbers of a TensorProto: 1 extents, 2 data type, 3 floats, 4 int32s, 5 bytes, 6 strings. A writer may pack repeated ones or not.
        for number, wire, content in fields(message):
            if isinstance(content, int):
                if number == 1:
                    # Varints are unsigned: the sign bit means a negative extent, which is rejected later.
                    tensor.extents.append(content if content < 2**63 else -1)
                elif number == 2:
                    tensor.kind = int32(content)
                elif number == 4:
                    tensor.ints.append(np.array([int32(content)], np.int32))
            elif number == 1 and wire == BYTES:
                tensor.extents += packed_int32(content).tolist()
            elif number == 3 and wire in (BYTES, FIXED32):
                tensor.floats.append(packed_float(content))
            elif number == 4 and wire == BYTES:
                tensor.ints.append(packed_int32(content))
            elif number == 5 and wire == BYTES:
                tensor.data = content
            elif number == 6 and wire == BYTES:
                tensor.strings.append(content)
        return tensor

    def image(self) -> np.ndarray:
        if self.kind == _STRING:
            if not self.strings:
                raise ValueError("the image is a string, but there is none")
            return np.frombuffer(self.strings[0], np.uint8)
        if self.kind != _BYTE:
            raise ValueError(f"an image is a string or bytes, not of data type {self.kind}")
        # Two extents are height and width of a gray image.
        shape = (*self.extents[:3], *[1] * (3 - len(self.extents))) if len(self.extents) == 2 else tuple(self.extents)
        if len(shape) != 3 or min(shape) < 0 or shape[0] * shape[1] * shape[2] != len(self.data):
            raise ValueError(f"the image has {len(self.data)} bytes and the extents {self.extents}")
        return np.frombuffer(self.data, np.uint8).reshape(shape)

    def numbers(self) -> np.ndarray:
        if self.kind == _FLOAT:
            return np.concatenate(self.floats) if self.floats else np.zeros(0, np.float32)
        if self.kind == _INT32:
            return np.concatenate(self.ints) if self.ints else np.zeros(0, np.int32)
        raise ValueError(f"numbers are float or int32, not of data type {self.kind}")
