# SPDX-License-Identifier: Apache-2.0
"""Data sets with torchvision's interface, which :class:`torch_ndd.DataLoader` reads and decodes by native threads."""

import copy
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from .. import readers
from .._core.process.files import open_regular
from .._core.values.batch import Batch
from ..decoders.image import image as decode
from ..io._folders import is_hidden, subfolders, walk
from ..ops.generic.convert import cast
from ..ops.shape.reshape import squeeze
from ..readers._choice import OfTorch, dataset_reader, with_order
from ..readers._items import together
from ..readers._selected import Selected

__all__ = ["IMG_EXTENSIONS", "CocoDetection", "ImageFolder", "PathLike", "default_loader"]

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

PathLike = str | os.PathLike[str]


def default_loader(path: str) -> Any:
    """Return an image file as a PIL image in RGB."""
    from PIL import Image

    with open_regular(path) as file:
        return Image.open(file).convert("RGB")


class ImageFolder(Dataset[tuple[Any, Any]]):
    """Images in one subfolder per class; subfolders of these are searched too, hidden ones (``.ipynb_checkpoints``) are left out with a warning.

    ``dataset[i]`` is an image and its class like torchvision's. :class:`torch_ndd.DataLoader` does not call it: it reads the files natively, gives
    ``fn`` the encoded images, uint8 (length,), and the classes, int64 (N,), or, with a ``transform``, what the same transform makes of whole batches
    (:func:`torch_ndd.torchvision.from_torchvision`).

    Args:
        root: the folder.
        transform: called with a PIL image by ``dataset[i]``.
        target_transform: called with a class.
        loader: called with a path; by default it opens a PIL image in RGB. With another one, loaders call ``dataset[i]`` on threads.
        is_valid_file: called with a path, tells whether the file belongs to the data set; by default the usual extensions of images.
        allow_empty: accept classes without files.

    Attributes:
        classes: names of the subfolders, sorted.
        class_to_idx: their numbers.
        samples, imgs: (path, class) of each file, sorted.
        targets: the class of each.

    Raises:
        FileNotFoundError: no subfolders, or one without files.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("cat/1.png", "dog/2.png"):
    ...     (folder / name).parent.mkdir()
    ...     Image.new("RGB", (4, 2), "red").save(folder / name)
    >>> dataset = ImageFolder(folder)
    >>> dataset.classes, dataset.targets, dataset[1][0].size
    (['cat', 'dog'], [0, 1], (4, 2))
    >>> loader = ndd.DataLoader(dataset, lambda files, labels: (ndd.decoders.image(files), labels), batch_size=2)
    >>> [(images.shape, labels) for images, labels in loader]
    [(torch.Size([2, 2, 4, 3]), tensor([0, 1]))]
    """

    def __init__(
        self,
        root: PathLike,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        self.root = os.fspath(root)
        self.transform, self.target_transform, self.loader = transform, target_transform, loader
        self.extensions = IMG_EXTENSIONS if is_valid_file is None else None
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, is_valid_file=is_valid_file, allow_empty=allow_empty)
        self.targets = [target for _, target in self.samples]
        self.imgs = self.samples

    def find_classes(self, directory: PathLike) -> tuple[list[str], dict[str, int]]:
        """Return the names of the classes and their numbers. Raise FileNotFoundError if there are none."""
        classes = [name for name in subfolders(directory) if not is_hidden(name)]
        if not classes:
            raise FileNotFoundError(f"ImageFolder: {os.fspath(directory)} has no subfolder; each class is one")
        return classes, {name: number for number, name in enumerate(classes)}

    @staticmethod
    def make_dataset(
        directory: PathLike,
        class_to_idx: Mapping[str, int],
        extensions: Sequence[str] | None = IMG_EXTENSIONS,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """Return path and class of all files. Raise FileNotFoundError for classes without any."""
        endings = tuple(extensions or ())
        hidden = [name for name in subfolders(directory) if is_hidden(name) and name not in class_to_idx]

        def enters(name: str) -> bool:
            if is_hidden(name):
                hidden.append(name)
            return not is_hidden(name)

        valid = is_valid_file or (lambda path: path.lower().endswith(endings))
        found: list[tuple[str, int]] = []
        empty = []
        for name in sorted(class_to_idx):
            before = len(found)
            for folder, files in sorted(walk(os.path.join(directory, name), enters)):
                paths = (os.path.join(folder, file) for file in sorted(files))
                found += [(path, class_to_idx[name]) for path in paths if valid(path)]
            if len(found) == before:
                empty.append(name)
        if hidden:
            names = ", ".join(sorted(set(hidden)))
            warnings.warn(f"ImageFolder: hidden folders in {os.fspath(directory)} are left out: {names}", UserWarning, stacklevel=3)
        if empty and not allow_empty:
            wanted = f" with one of the extensions {', '.join(endings)}" if is_valid_file is None else ""
            where = f"for the classes {', '.join(empty)} in {os.fspath(directory)}"
            raise FileNotFoundError(f"ImageFolder: there is no file{wanted} {where}; allow_empty=True accepts them")
        return found

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        image = self.loader(path)
        if self.transform is not None:
            image = self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)

    def __repr__(self) -> str:
        kinds = f"{len(self.classes)} class{'es' * (len(self.classes) != 1)}"
        transform = "" if self.transform is None else f", {type(self.transform).__name__}"
        return f"{type(self).__name__}({self.root!r}{transform}: {len(self)} image{'s' * (len(self) != 1)} of {kinds})"

    @property
    def _origin(self) -> Any:
        """The data set whose transforms are called."""
        return self.__dict__.get("_whole", self)

    @classmethod
    def _of(cls, theirs: Any) -> "ImageFolder":
        """Return torchvision's data set as one of ours."""
        made = cls.__new__(cls)
        made.__dict__.update(theirs.__dict__, loader=default_loader, _whole=theirs)
        return made

    def _selected(self, indices: np.ndarray) -> "ImageFolder":
        """Return a data set of some of the files."""
        return self._with_samples([self.samples[k] for k in indices.tolist()])

    def _joined(self, others: Sequence[Any]) -> "ImageFolder | None":
        """Return a data set of the files of several; None if they are treated differently."""
        for one in others:
            if type(one) is not type(self) or any(
                getattr(one, name) is not getattr(self, name) for name in ("transform", "target_transform", "loader")
            ):
                return None
        return self._with_samples([sample for one in (self, *others) for sample in one.samples])

    def _with_samples(self, samples: list[tuple[str, int]]) -> "ImageFolder":
        made = copy.copy(self)
        made.__dict__["_whole"] = self._origin
        made.samples = made.imgs = samples
        made.targets = [target for _, target in samples]
        return made

    def _loading(self, given: OfTorch, options: Mapping[str, Any], unknown: str = "raise") -> "tuple[readers.Reader, Callable[..., Any] | None]":
        """Return the reader for a loader, and what runs on its batches."""
        own = type(self).__getitem__ is not ImageFolder.__getitem__ or getattr(self.loader, "__name__", "") != "default_loader"
        if own or given.collate_fn is not None or given.multiprocessing_context is not None:
            return dataset_reader(self, given, options), None
        paths, targets = [path for path, _ in self.samples], self.targets
        if given.sampler is not None:
            reader: Any = dataset_reader(_Paths(self.samples), given, options)
        else:
            reader = readers.File(files=paths, labels=np.asarray(targets, np.int32), scalar_labels=True, **with_order(given, options))
            reader._names = self.classes
        return reader, _Transformed(self._origin, unknown)


def _decoded(files: Batch) -> Batch:
    """Decode to what ``dataset[i]`` has: Pillow does not apply the EXIF orientation, and boxes and masks belong to the stored pixels."""
    return decode(files, adjust_orientation=False)


class _Paths:
    """The files of a folder, still encoded."""

    def __init__(self, samples: Sequence[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Path, int]:
        path, target = self.samples[index]
        return Path(path), target


class _Transformed:
    """Runs the transforms that a data set has at the moment on batches."""

    def __init__(self, dataset: Any, unknown: str) -> None:
        self._dataset, self._unknown = dataset, unknown
        self._translated: tuple[Any, Callable[..., Any] | None] = None, None
        self._transform()  # raises for a transform that cannot be translated

    def _transform(self) -> Callable[..., Any] | None:
        transform = self._dataset.transform
        if transform is not self._translated[0]:
            from .v2._translate import from_torchvision  # needs torchvision

            self._translated = transform, None if transform is None else from_torchvision(transform, self._unknown)
        return self._translated[1]

    def __call__(self, files: Batch, labels: Batch) -> tuple[Any, Any]:
        transform, target_transform = self._transform(), self._dataset.target_transform
        if transform is None and target_transform is None:
            return files, labels
        images = _decoded(files) if transform is None else transform(files)
        if target_transform is None:
            return images, labels
        return images, together([target_transform(label) for label in labels.torch().tolist()])


class CocoDetection(Dataset[tuple[Any, dict[str, Any]]]):
    """Images with the boxes, classes and masks of COCO annotations.

    ``dataset[i]`` is a PIL image and a dict: ``image_id``; ``boxes``, ``tv_tensors.BoundingBoxes`` XYXY (M, 4); ``labels``, the category ids, int64
    (M,); with ``masks`` a ``tv_tensors.Mask`` (M, H, W) with 1 where the object is. So does torchvision's ``wrap_dataset_for_transforms_v2``; an
    image without objects has empty ones here. :class:`torch_ndd.DataLoader` gives ``fn`` the decoded images, a Batch ``HWC``, and the dict with
    Batches, or what ``transforms`` makes of both.

    Args:
        root: the folder of the images.
        annFile: the JSON file.
        transforms: a transform of torchvision's v2, called with image and dict.
        masks: deliver masks; needs pycocotools (``torch_ndd[coco]``).

    Raises:
        RuntimeError: annotations that cannot be read.
        ValueError: masks without the sizes of the images in the annotations.
    """

    def __init__(self, root: PathLike, annFile: PathLike, transforms: Callable[..., Any] | None = None, *, masks: bool = True) -> None:
        self.root, self.annFile, self.transforms, self.masks = os.fspath(root), os.fspath(annFile), transforms, masks
        self._reader = self._new_reader()
        self._length = self._reader._scan()
        self._origin: CocoDetection = self  # whose transforms are called
        self._parts: Sequence[CocoDetection] = (self,)
        self._which, self._numbers = np.zeros(self._length, np.int64), np.arange(self._length)

    def _new_reader(self, options: Mapping[str, Any] | None = None) -> readers.COCO:
        given: dict[str, Any] = {"ltrb": True, "avoid_class_remapping": True, "image_ids": True, "size_threshold": 0.0, "object_masks": self.masks}
        return readers.COCO(annotations_file=self.annFile, file_root=self.root, **{**given, **(options or {})})

    @property
    def ids(self) -> list[int]:
        """The ids of the images, in the order of the items: sorted."""
        ids = [one._reader._index.ids for one in self._parts if one._reader._index is not None]
        return [int(ids[part][number]) for part, number in zip(self._which.tolist(), self._numbers.tolist(), strict=True)]

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r}, {self.annFile!r}: {len(self)} image{'s' * (len(self) != 1)})"

    def __getitem__(self, index: int) -> tuple[Any, dict[str, Any]]:
        from io import BytesIO

        from PIL import Image
        from torchvision import tv_tensors

        if not -self._length <= index < self._length:
            raise IndexError(f"CocoDetection: sample {index} is out of range for {self._length} images")
        index %= self._length
        reader, number = self._parts[self._which[index]]._reader, self._numbers[index : index + 1]
        file, boxes, labels, *masks, ids = (one.nth(0).torch() for one in reader._finish(reader._start(number), number))
        image = Image.open(BytesIO(file.numpy().tobytes())).convert("RGB")
        target: dict[str, Any] = {"image_id": int(ids), "boxes": _boxes(tv_tensors, boxes, (image.height, image.width))}
        if masks:
            target["masks"] = tv_tensors.Mask(masks[0])
        target["labels"] = labels.to(torch.int64)
        return (image, target) if self.transforms is None else self.transforms(image, target)

    def _loading(self, given: OfTorch, options: Mapping[str, Any], unknown: str = "raise") -> "tuple[readers.Reader, Callable[..., Any] | None]":
        """Return the reader for a loader, and what runs on its batches."""
        own = type(self).__getitem__ is not CocoDetection.__getitem__
        if own or given.collate_fn is not None or given.multiprocessing_context is not None or given.sampler is not None:
            return dataset_reader(self, given, options), None
        if self._parts == (self,) and np.array_equal(self._numbers, np.arange(self._reader._scan())):
            reader: readers.Reader = self._new_reader(with_order(given, options))
        else:
            reader = Selected([one._new_reader() for one in self._parts], self._which, self._numbers, with_order(given, options))
        return reader, _Detections(self._origin, unknown)

    def _selected(self, indices: np.ndarray) -> "CocoDetection":
        """Return a data set of some of the images."""
        made = copy.copy(self)
        made._which, made._numbers, made._length = self._which[indices], self._numbers[indices], len(indices)
        return made

    def _joined(self, others: Sequence[Any]) -> "CocoDetection | None":
        """Return a data set of the images of several; None if they are treated differently."""
        if any(type(one) is not type(self) or one.transforms is not self.transforms or one.masks != self.masks for one in others):
            return None
        made, sets = copy.copy(self), (self, *others)
        first = np.cumsum([0, *(len(one._parts) for one in sets)])
        made._parts = [part for one in sets for part in one._parts]
        made._which = np.concatenate([one._which + begin for one, begin in zip(sets, first, strict=False)])
        made._numbers = np.concatenate([one._numbers for one in sets])
        made._length = len(made._numbers)
        return made


def _boxes(tv_tensors: Any, boxes: Any, canvas_size: Any) -> Any:
    return tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=canvas_size)


class _Detections:
    """Makes images and a dict of the outputs of the COCO reader."""

    def __init__(self, dataset: Any, unknown: str) -> None:
        self._dataset, self._unknown = dataset, unknown
        self._translated: tuple[Any, Callable[..., Any] | None] = None, None
        self._transforms()  # raises for a transform that cannot be translated

    def _transforms(self) -> Callable[..., Any] | None:
        transforms = self._dataset.transforms
        if transforms is not self._translated[0]:
            from .v2._translate import from_torchvision  # needs torchvision

            self._translated = transforms, None if transforms is None else from_torchvision(transforms, self._unknown)
        return self._translated[1]

    def __call__(self, files: Batch, boxes: Batch, labels: Batch, *others: Batch) -> tuple[Any, dict[str, Any]]:
        from . import tv_tensors  # needs torchvision

        *masks, ids = others
        images = _decoded(files)
        target: dict[str, Any] = {"image_id": cast(squeeze(ids, axes=[0]), dtype=torch.int64), "boxes": _boxes(tv_tensors, boxes, images)}
        if masks:
            target["masks"] = tv_tensors.Mask(masks[0])
        target["labels"] = cast(labels, dtype=torch.int64)
        transforms = self._transforms()
        return (images, target) if transforms is None else transforms(images, target)
