# SPDX-License-Identifier: Apache-2.0
"""Images and labels from the LMDB databases of Caffe and Caffe2."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import Unpack

from .._device import DeviceLike
from ._base import LoaderOptions
from ._lmdb import LmdbReader
from ._protobuf import BYTES, FIXED32, fields, int32, packed_float, packed_int32
from ._ranges import Path


class Caffe(LmdbReader):
    """Reads the LMDB databases of Caffe, whose values are messages of type ``Datum``.

    Outputs: the image as it is stored, uint8: the bytes of a file (length,), or (height, width, channels) where the message says that it is not
    encoded; the label, int32 (1,), empty (0,) where the message has none. Samples are in the order of their keys.

    Args:
        max_batch_size: Batch size of :meth:`next_epoch` when the call gives none.
        name: Accepted for DALI's sake, as ``num_inputs``.
        device: ``"cpu"``.
        path: The folder of a database, or several. No URLs: keys and values lie all over a database.
        image_available: Deliver images; by default.
        label_available: Deliver labels; by default.
        loader: What all readers take: :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, when a database cannot be read or is damaged or cut off, all are empty, or neither images nor labels are
            wanted; at any step, for a damaged message, with database and key, and when the database was written to since.

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
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, path, loader)
        self._image = image_available is None or bool(image_available)
        self._label = label_available is None or bool(label_available)

    def _scan(self) -> int:
        if not self._image and not self._label:
            raise RuntimeError(f"{self._op}: image_available and label_available are both False: there is nothing to deliver")
        return super()._scan()

    def _parse(self, value: memoryview) -> Sequence[np.ndarray]:
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
        return [*outputs, label] if self._label else outputs


SINGLE_LABEL, MULTI_LABEL_SPARSE, MULTI_LABEL_DENSE, MULTI_LABEL_WEIGHTED_SPARSE, NO_LABEL = range(5)
_FLOAT, _INT32, _BYTE, _STRING = 1, 2, 3, 4


class Caffe2(LmdbReader):
    """Reads the LMDB databases of Caffe2, whose values are messages of type ``TensorProtos``: one tensor for each output.

    Outputs: the image, uint8: bytes of a file (length,) where it is stored as a string, else (height, width, channels); the label; as many additional
    tensors as asked for, float32 or int32 (length,); the box, int32 (4,). Samples are in the order of their keys.

    Args:
        max_batch_size: Batch size of :meth:`next_epoch` when the call gives none.
        name: Accepted for DALI's sake, as ``num_inputs``.
        device: ``"cpu"``.
        additional_inputs: How many additional tensors each sample has.
        bbox: Each sample has a box.
        image_available: Each sample has an image; by default.
        label_type: 0: one number, int32 or float32 (1,). 1: numbers of the classes that apply, delivered as 0 and 1, float32 (num_labels,). 2: a
            vector as it is. 3: numbers of classes and in another tensor their weights, delivered as float32 (num_labels,). 4: no label.
        num_labels: The number of classes for types 1 and 3.
        path: The folder of a database, or several. No URLs: keys and values lie all over a database.
        loader: What all readers take: :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, when a database cannot be read or is damaged or cut off, all are empty, or there is nothing to deliver;
            at any step, for a damaged message or one that has not got these tensors, with database and key, and when the database was written to
            since.

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
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, path, loader)
        self._additional = 0 if additional_inputs is None else operator.index(additional_inputs)
        self._label_type = SINGLE_LABEL if label_type is None else operator.index(label_type)
        self._labels = 1 if num_labels is None else operator.index(num_labels)
        self._box = bool(bbox)
        self._image = image_available is None or bool(image_available)

    def _scan(self) -> int:
        if not SINGLE_LABEL <= self._label_type <= NO_LABEL:
            raise RuntimeError(f"{self._op}: label_type must be from 0 to 4, got {self._label_type}")
        if self._additional < 0 or self._labels < 1:
            raise RuntimeError(f"{self._op}: additional_inputs must not be negative and num_labels must be positive")
        if not (self._image or self._label_type != NO_LABEL or self._additional or self._box):
            raise RuntimeError(f"{self._op}: there is nothing to deliver: no image, no label, no box and no additional tensors")
        return super()._scan()

    def _parse(self, value: memoryview) -> Sequence[np.ndarray]:
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
        if self._label_type in (SINGLE_LABEL, MULTI_LABEL_DENSE):
            return label
        if proto.kind != _INT32:
            raise ValueError(f"the numbers of classes are int32, not of data type {proto.kind}")
        if len(label) and not (label.min() >= 0 and label.max() < self._labels):
            raise ValueError(f"class {label.min() if label.min() < 0 else label.max()} is not among num_labels={self._labels}")
        weights = np.ones(len(label), np.float32)
        if self._label_type == MULTI_LABEL_WEIGHTED_SPARSE:
            weights = following("weights of the labels").numbers()
            if len(weights) != len(label):
                raise ValueError(f"there are {len(weights)} weights for {len(label)} classes")
        made = np.zeros(self._labels, np.float32)
        made[label] = weights
        return made


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
        made = _TensorProto()
        for number, wire, content in fields(message):
            if isinstance(content, int):
                if number == 1:
                    made.extents.append(content if content < 2**63 else -1)
                elif number == 2:
                    made.kind = int32(content)
                elif number == 4:
                    made.ints.append(np.array([int32(content)], np.int32))
            elif number == 1 and wire == BYTES:
                made.extents += packed_int32(content).tolist()
            elif number == 3 and wire in (BYTES, FIXED32):
                made.floats.append(packed_float(content))
            elif number == 4 and wire == BYTES:
                made.ints.append(packed_int32(content))
            elif number == 5 and wire == BYTES:
                made.data = content
            elif number == 6 and wire == BYTES:
                made.strings.append(content)
        return made

    def image(self) -> np.ndarray:
        if self.kind == _STRING:
            if not self.strings:
                raise ValueError("the image is a string, but there is none")
            return np.frombuffer(self.strings[0], np.uint8)
        if self.kind != _BYTE:
            raise ValueError(f"an image is a string or bytes, not of data type {self.kind}")
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
