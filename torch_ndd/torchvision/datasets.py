# SPDX-License-Identifier: Apache-2.0
"""Data sets with torchvision's interface, which :class:`torch_ndd.DataLoader` reads and decodes on native threads."""

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
from ..readers._sources.choice import OfTorch, dataset_reader, with_order
from ..readers._sources.selected import Selected
from ..readers.dataset._items import collate
from ._translation import Unknown

__all__ = ["IMG_EXTENSIONS", "CocoDetection", "ImageFolder", "PathLike", "default_loader"]

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

PathLike = str | os.PathLike[str]


def default_loader(path: str) -> Any:
    """Return an image file as a PIL image in RGB."""
    from PIL import Image

    with open_regular(path) as file:
        return Image.open(file).convert("RGB")


class ImageFolder(Dataset[tuple[Any, Any]]):
    """Images in one subfolder per class, searched recursively; hidden folders (``.ipynb_checkpoints``) are skipped with a warning.

    ``dataset[i]`` is an image and its class, as in torchvision. :class:`torch_ndd.DataLoader` does not call it: it reads the files natively and calls
    ``fn`` with the encoded images, uint8 (length,), and the classes, int64 (N,). A ``transform`` is applied to whole batches
    (:func:`torch_ndd.torchvision.from_torchvision`).

    ``torch_ndd.ImageFolder`` is the recommended name; loaders also accept torchvision's own class.

    Args:
        root: the folder.
        transform: called with a PIL image by ``dataset[i]``.
        target_transform: called with a class.
        loader: called with a path; by default it opens a PIL image in RGB. With another loader, ``dataset[i]`` is called on threads.
        is_valid_file: called with a path, returns whether the file belongs to the data set; by default the usual extensions of images.
        allow_empty: accept classes without files.

    Attributes:
        classes: names of the subfolders, sorted.
        class_to_idx: their numbers.
        samples, imgs: (path, class) of each file, sorted.
        targets: the class of each.

    Raises:
        FileNotFoundError: no subfolders, or a subfolder without files.

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
        """Return the names of the classes and their indices. Raise FileNotFoundError without any class."""
        classes = [name for name in subfolders(directory) if not is_hidden(name)]
        if not classes:
            raise FileNotFoundError(f"ImageFolder: {os.fspath(directory)} must have a subfolder for each class, found none")
        return classes, {name: number for number, name in enumerate(classes)}

    @staticmethod
    def make_dataset(
        directory: PathLike,
        class_to_idx: Mapping[str, int],
        extensions: Sequence[str] | None = IMG_EXTENSIONS,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """Return path and class of all files. Raise FileNotFoundError for classes without files."""
        # Hidden folders, such as those of notebooks, would become classes or contain duplicates.
        endings = tuple(extensions or ())
        hidden = [name for name in subfolders(directory) if is_hidden(name) and name not in class_to_idx]

        # Returns whether the walk goes into a folder, and records those that it skips.
        def enters(name: str) -> bool:
            if is_hidden(name):
                hidden.append(name)
            return not is_hidden(name)

        valid = is_valid_file or (lambda path: path.lower().endswith(endings))
        found: list[tuple[str, int]] = []
        empty = []
        # torchvision's order: classes, then folders, then files, each sorted.
        for name in sorted(class_to_idx):
            before = len(found)
            for folder, files in sorted(walk(os.path.join(directory, name), enters)):
                paths = (os.path.join(folder, file) for file in sorted(files))
                found += [(path, class_to_idx[name]) for path in paths if valid(path)]
            if len(found) == before:
                empty.append(name)
        if hidden:
            names = ", ".join(sorted(set(hidden)))
            warnings.warn(f"ImageFolder: skipped hidden folders in {os.fspath(directory)}: {names}", UserWarning, stacklevel=3)
        if empty and not allow_empty:
            extension = f" with one of the extensions {', '.join(endings)}" if is_valid_file is None else ""
            where = f"for the classes {', '.join(empty)} in {os.fspath(directory)}"
            raise FileNotFoundError(f"ImageFolder: found no file{extension} {where}; pass allow_empty=True to accept such classes")
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
        """The data set that the user made, whose transforms are called even if they are assigned later."""
        return self.__dict__.get("_whole", self)

    @classmethod
    def _of(cls, theirs: Any) -> "ImageFolder":
        """Convert torchvision's data set to this one."""
        dataset = cls.__new__(cls)
        # Their files are listed already, so the folder is not read again.
        dataset.__dict__.update(theirs.__dict__, loader=default_loader, _whole=theirs)
        return dataset

    def select_samples(self, indices: np.ndarray) -> "ImageFolder":
        """Return a data set of some of the files.

        :meta private:
        """
        return self._with_samples([self.samples[k] for k in indices.tolist()])

    def join_with(self, others: Sequence[Any]) -> "ImageFolder | None":
        """Return a data set of the files of several; None if their transforms or loaders differ.

        :meta private:
        """
        for other in others:
            if type(other) is not type(self) or any(
                getattr(other, name) is not getattr(self, name) for name in ("transform", "target_transform", "loader")
            ):
                return None
        return self._with_samples([sample for dataset in (self, *others) for sample in dataset.samples])

    def _with_samples(self, samples: list[tuple[str, int]]) -> "ImageFolder":
        dataset = copy.copy(self)
        # Transforms stay attributes of the original, which the user may change.
        dataset.__dict__["_whole"] = self._origin
        dataset.samples = dataset.imgs = samples
        dataset.targets = [target for _, target in samples]
        return dataset

    def choose_reader(
        self, arguments: OfTorch, options: Mapping[str, Any], unknown: Unknown = "raise"
    ) -> "tuple[readers.Reader, Callable[..., Any] | None]":
        """Return the reader for a loader, and the function of its batches.

        :meta private:
        """
        is_custom = type(self).__getitem__ is not ImageFolder.__getitem__ or getattr(self.loader, "__name__", "") != "default_loader"
        if is_custom or arguments.collate_fn is not None or arguments.multiprocessing_context is not None:
            return dataset_reader(self, arguments, options), None
        paths, targets = [path for path, _ in self.samples], self.targets
        if arguments.sampler is not None:  # it yields indices, so the paths are read as a data set
            reader: Any = dataset_reader(_Paths(self.samples), arguments, options)
        else:
            reader = readers.File(files=paths, labels=np.asarray(targets, np.int32), scalar_labels=True, **with_order(arguments, options))
            reader._names = self.classes
        return reader, _TransformFiles(self._origin, "transform", unknown)


def _decode_as_stored(files: Batch) -> Batch:
    """Decode without the EXIF orientation: ``dataset[i]`` does not apply it either, and boxes and masks refer to the stored pixels."""
    return decode(files, adjust_orientation=False)


class _Paths:
    """The paths of a folder's files, for a reader with a sampler."""

    def __init__(self, samples: Sequence[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Path, int]:
        path, target = self.samples[index]
        return Path(path), target


class _CurrentTransform:
    """The transform that an attribute of a data set holds at each call, translated."""

    def __init__(self, dataset: Any, attribute: str, unknown: Unknown) -> None:
        self._dataset, self._attribute = dataset, attribute
        self._unknown: Unknown = unknown
        self._translated: tuple[Any, Callable[..., Any] | None] = None, None
        self._transform()  # raises early for a transform that cannot be translated

    def _transform(self) -> Callable[..., Any] | None:
        transform = getattr(self._dataset, self._attribute)
        if transform is not self._translated[0]:  # assigned after the loader was made
            from ._translation.from_torchvision import from_torchvision  # needs torchvision

            self._translated = transform, None if transform is None else from_torchvision(transform, self._unknown)
        return self._translated[1]


class _TransformFiles(_CurrentTransform):
    """Run the current transform of a data set on batches of files."""

    def __call__(self, files: Batch, labels: Batch) -> tuple[Any, Any]:
        transform, target_transform = self._transform(), self._dataset.target_transform
        if transform is None and target_transform is None:
            return files, labels
        images = _decode_as_stored(files) if transform is None else transform(files)
        if target_transform is None:
            return images, labels
        return images, collate([target_transform(label) for label in labels.torch().tolist()])


class CocoDetection(Dataset[tuple[Any, dict[str, Any]]]):
    """Images with the boxes, classes and masks of COCO annotations.

    ``dataset[i]`` is a PIL image and a dict: ``image_id``; ``boxes``, ``tv_tensors.BoundingBoxes`` XYXY (M, 4); ``labels``, the category ids, int64
    (M,); with ``masks`` a ``tv_tensors.Mask`` (M, H, W) with 1 where the object is. This is the format of torchvision's
    ``wrap_dataset_for_transforms_v2``, except that an image without objects has empty entries. :class:`torch_ndd.DataLoader` calls ``fn`` with the
    decoded images, a Batch ``HWC``, and the dict with Batches, after ``transforms``.

    Args:
        root: the folder of the images.
        annFile: the JSON file.
        transforms: a transform of torchvision's v2, called with image and dict.
        masks: include masks; needs pycocotools (``torch_ndd[coco]``).

    Raises:
        RuntimeError: annotations that cannot be read.
        ValueError: masks without the sizes of the images in the annotations.
    """

    def __init__(self, root: PathLike, annFile: PathLike, transforms: Callable[..., Any] | None = None, *, masks: bool = True) -> None:
        self.root, self.annFile, self.transforms, self.masks = os.fspath(root), os.fspath(annFile), transforms, masks
        self._reader = self._new_reader()
        self._length = self._reader.scan()
        self._origin: CocoDetection = self  # the data set whose transforms are called
        self._parts: Sequence[CocoDetection] = (self,)
        self._which, self._numbers = np.zeros(self._length, np.int64), np.arange(self._length)

    def _new_reader(self, options: Mapping[str, Any] | None = None) -> readers.COCO:
        defaults: dict[str, Any] = {"ltrb": True, "avoid_class_remapping": True, "image_ids": True, "size_threshold": 0.0, "object_masks": self.masks}
        return readers.COCO(annotations_file=self.annFile, file_root=self.root, **{**defaults, **(options or {})})

    @property
    def ids(self) -> list[int]:
        """The ids of the images, in the order of the items: sorted."""
        ids = [part._reader.index.ids for part in self._parts if part._reader.index is not None]
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
        # One item through the reader's own steps, so it equals the loader's.
        reader, number = self._parts[self._which[index]]._reader, self._numbers[index : index + 1]
        file, boxes, labels, *masks, ids = (output.nth(0).torch() for output in reader.finish(reader.start(number), number))
        image = Image.open(BytesIO(file.numpy().tobytes())).convert("RGB")
        target: dict[str, Any] = {"image_id": int(ids), "boxes": _boxes(tv_tensors, boxes, (image.height, image.width))}
        if masks:
            target["masks"] = tv_tensors.Mask(masks[0])
        target["labels"] = labels.to(torch.int64)
        return (image, target) if self.transforms is None else self.transforms(image, target)

    def choose_reader(
        self, arguments: OfTorch, options: Mapping[str, Any], unknown: Unknown = "raise"
    ) -> "tuple[readers.Reader, Callable[..., Any] | None]":
        """Return the reader for a loader, and the function of its batches.

        :meta private:
        """
        is_custom = type(self).__getitem__ is not CocoDetection.__getitem__
        if is_custom or arguments.collate_fn is not None or arguments.multiprocessing_context is not None or arguments.sampler is not None:
            return dataset_reader(self, arguments, options), None
        # All images in order: the COCO reader itself. A selection of them is read by index.
        if self._parts == (self,) and np.array_equal(self._numbers, np.arange(self._reader.scan())):
            reader: readers.Reader = self._new_reader(with_order(arguments, options))
        else:
            reader = Selected([part._new_reader() for part in self._parts], self._which, self._numbers, with_order(arguments, options))
        return reader, _TransformDetections(self._origin, "transforms", unknown)

    def select_samples(self, indices: np.ndarray) -> "CocoDetection":
        """Return a data set of some of the images.

        :meta private:
        """
        dataset = copy.copy(self)
        dataset._which, dataset._numbers, dataset._length = self._which[indices], self._numbers[indices], len(indices)
        return dataset

    def join_with(self, others: Sequence[Any]) -> "CocoDetection | None":
        """Return a data set of the images of several; None if their transforms or options differ.

        :meta private:
        """
        if any(type(other) is not type(self) or other.transforms is not self.transforms or other.masks != self.masks for other in others):
            return None
        dataset, sets = copy.copy(self), (self, *others)
        # Number of the first part of each data set among all parts.
        first = np.cumsum([0, *(len(part._parts) for part in sets)])
        dataset._parts = [part for member in sets for part in member._parts]
        # Parts are numbered through all data sets.
        dataset._which = np.concatenate([member._which + begin for member, begin in zip(sets, first, strict=False)])
        dataset._numbers = np.concatenate([member._numbers for member in sets])
        dataset._length = len(dataset._numbers)
        return dataset


def _boxes(tv_tensors: Any, boxes: Any, canvas_size: Any) -> Any:
    return tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=canvas_size)


class _TransformDetections(_CurrentTransform):
    """Convert the outputs of the COCO reader to images and a dict, and run the current transforms of a data set."""

    def __call__(self, files: Batch, boxes: Batch, labels: Batch, *others: Batch) -> tuple[Any, dict[str, Any]]:
        from . import tv_tensors  # needs torchvision

        *masks, ids = others
        images = _decode_as_stored(files)
        target: dict[str, Any] = {"image_id": cast(squeeze(ids, axes=[0]), dtype=torch.int64), "boxes": _boxes(tv_tensors, boxes, images)}
        if masks:
            target["masks"] = tv_tensors.Mask(masks[0])
        target["labels"] = cast(labels, dtype=torch.int64)
        transforms = self._transform()
        return (images, target) if transforms is None else transforms(images, target)
