# SPDX-License-Identifier: Apache-2.0
"""Data sets with torchvision's interface, which :class:`torch_ndd.DataLoader` reads and decodes by native threads."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from .. import readers
from .._core.batch import Batch
from .._core.files import open_regular
from ..decoders.image import image as decode
from ..io._folders import is_hidden, subfolders, walk
from ..ops.generic import cast
from ..ops.shape import squeeze
from ..readers._choice import OfTorch, dataset_reader, with_order
from ..readers._items import together

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
            raise FileNotFoundError(f"ImageFolder: there is no file{wanted} for the classes {', '.join(empty)}; allow_empty=True accepts them")
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
        lines = [f"Dataset {type(self).__name__}", f"    Number of datapoints: {len(self)}", f"    Root location: {self.root}"]
        if self.transform is not None:
            lines.append("    Transform: " + repr(self.transform).replace("\n", "\n    "))
        return "\n".join(lines)

    def _loading(self, given: OfTorch, options: Mapping[str, Any], unknown: str = "raise") -> "tuple[readers.Reader, Callable[..., Any] | None]":
        """Return the reader for a loader, and what runs on its batches."""
        if given.collate_fn is not None or given.multiprocessing_context is not None or getattr(self.loader, "__name__", "") != "default_loader":
            return dataset_reader(self, given, options), None
        paths, targets = [path for path, _ in self.samples], self.targets
        if given.sampler is not None:
            reader: Any = dataset_reader(_Paths(self.samples), given, options)
        else:
            reader = readers.File(files=paths, labels=np.asarray(targets, np.int32), scalar_labels=True, **with_order(given, options))
            reader._names = self.classes
        if self.transform is None and self.target_transform is None:
            return reader, None
        return reader, _Transformed(self.transform, self.target_transform, unknown)


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
    """Runs the transforms of a data set on batches."""

    def __init__(self, transform: Any, target_transform: Any, unknown: str) -> None:
        from .v2._translate import from_torchvision  # needs torchvision

        self._transform = None if transform is None else from_torchvision(transform, unknown)
        self._target_transform = target_transform

    def __call__(self, files: Batch, labels: Batch) -> tuple[Any, Any]:
        images = _decoded(files) if self._transform is None else self._transform(files)
        if self._target_transform is None:
            return images, labels
        return images, together([self._target_transform(label) for label in labels.torch().tolist()])


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
        self._reader = self._new_reader({})
        self._length = self._reader._scan()

    def _new_reader(self, options: Mapping[str, Any]) -> readers.COCO:
        given: dict[str, Any] = {"ltrb": True, "avoid_class_remapping": True, "image_ids": True, "size_threshold": 0.0, "object_masks": self.masks}
        return readers.COCO(annotations_file=self.annFile, file_root=self.root, **given, **options)

    @property
    def ids(self) -> list[int]:
        """The ids of the images, sorted."""
        assert self._reader._index is not None
        return self._reader._index.ids.tolist()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Any, dict[str, Any]]:
        from io import BytesIO

        from PIL import Image
        from torchvision import tv_tensors

        if not -self._length <= index < self._length:
            raise IndexError(f"CocoDetection: sample {index} is out of range for {self._length} images")
        number = np.array([index % self._length])
        file, boxes, labels, *masks, ids = (one._nth(0).torch() for one in self._reader._finish(self._reader._start(number), number))
        image = Image.open(BytesIO(file.numpy().tobytes())).convert("RGB")
        target: dict[str, Any] = {"image_id": int(ids), "boxes": _boxes(tv_tensors, boxes, (image.height, image.width))}
        if masks:
            target["masks"] = tv_tensors.Mask(masks[0])
        target["labels"] = labels.to(torch.int64)
        return (image, target) if self.transforms is None else self.transforms(image, target)

    def _loading(self, given: OfTorch, options: Mapping[str, Any], unknown: str = "raise") -> "tuple[readers.Reader, Callable[..., Any] | None]":
        """Return the reader for a loader, and what runs on its batches."""
        if given.collate_fn is not None or given.multiprocessing_context is not None or given.sampler is not None:
            return dataset_reader(self, given, options), None
        return self._new_reader(with_order(given, options)), _Detections(self.transforms, unknown)


def _boxes(tv_tensors: Any, boxes: Any, canvas_size: Any) -> Any:
    return tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=canvas_size)


class _Detections:
    """Makes images and a dict of the outputs of the COCO reader."""

    def __init__(self, transforms: Any, unknown: str) -> None:
        from .v2._translate import from_torchvision  # needs torchvision

        self._transforms = None if transforms is None else from_torchvision(transforms, unknown)

    def __call__(self, files: Batch, boxes: Batch, labels: Batch, *others: Batch) -> tuple[Any, dict[str, Any]]:
        from . import tv_tensors  # needs torchvision

        *masks, ids = others
        images = _decoded(files)
        target: dict[str, Any] = {"image_id": cast(squeeze(ids, axes=[0]), dtype=torch.int64), "boxes": _boxes(tv_tensors, boxes, images)}
        if masks:
            target["masks"] = tv_tensors.Mask(masks[0])
        target["labels"] = cast(labels, dtype=torch.int64)
        return (images, target) if self._transforms is None else self._transforms(images, target)
