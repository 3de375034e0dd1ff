# SPDX-License-Identifier: Apache-2.0
"""The plan of a packed data set: samples in order, divided into shards, and options. Deterministic, so a second run can resume."""

import hashlib
import json
import os
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, NamedTuple, get_args

from .._core.context.states import format_value
from .._core.process.files import read_regular
from .._core.suggestions import check_choice
from ..io._folders import is_hidden, subfolders, walk
from ._target import OWN_FILES, WORK

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".webp", ".jp2")
Format = Literal["webdataset", "tfrecord", "folder"]
OnError = Literal["fail", "skip"]
FORMATS, ON_ERROR = get_args(Format), get_args(OnError)


@dataclass(frozen=True)
class Options:
    """The arguments of :func:`pack` on which the result depends."""

    format: Format
    shorter: int | None
    quality: int
    per_shard: int
    on_error: OnError

    def __post_init__(self) -> None:
        check_choice("pack", "format", self.format, FORMATS, ValueError)
        check_choice("pack", "on_error", self.on_error, ON_ERROR, ValueError)
        if self.shorter is not None and self.shorter < 1:
            raise ValueError(f"pack: shorter must be positive, got {self.shorter}")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"pack: quality must be from 1 to 100, got {self.quality}")
        if self.per_shard < 1:
            raise ValueError(f"pack: per_shard must be positive, got {self.per_shard}")


class Sample(NamedTuple):
    """An image of the source."""

    path: str  # below the source
    key: str  # below the target, without the ending
    label: int | None
    objects: dict[str, Any] | None  # {"image": ..., "annotations": [...]} of COCO


@dataclass(frozen=True)
class Plan:
    """All samples, and the options."""

    source: Path
    options: Options
    classes: list[str]
    samples: list[Sample]
    coco: dict[str, Any] | None

    def shards(self) -> list[list[Sample]]:
        """Return the samples of each shard."""
        step = self.options.per_shard
        return [self.samples[k : k + step] for k in range(0, len(self.samples), step)]

    def digest(self) -> str:
        """Return a hash of everything that the result depends on; images count by size and modification time, not by content."""
        # on_error may change between runs: a rerun may skip what failed.
        found = hashlib.sha256(json.dumps([{**asdict(self.options), "on_error": ""}, self.classes], sort_keys=True).encode())
        for sample in self.samples:
            state = os.stat(self.source / sample.path)
            found.update(json.dumps([*sample[:3], state.st_size, state.st_mtime_ns, sample.objects]).encode())
        return found.hexdigest()


def plan(source: Path, options: Options, annotations: Path | None) -> Plan:
    """Return the plan for a folder of classes, a folder of images, or the images of a COCO file.

    Raises:
        ValueError: no images, or annotations that are not COCO's.
    """
    if not source.is_dir():
        raise ValueError(f"pack: {str(source)!r} is not a folder")
    if annotations is not None:
        return _coco_plan(source, options, annotations)
    folders = sorted(subfolders(source), key=os.fsencode)
    hidden = {name for name in folders if is_hidden(name)}
    images = {name: _images(source / name, hidden) for name in folders if not is_hidden(name)}
    classes = [name for name, paths in images.items() if paths]
    found: list[tuple[str, int | None]] = [(f"{name}/{path}", label) for label, name in enumerate(classes) for path in images[name]]
    if hidden:
        warnings.warn(f"pack: hidden folders in {str(source)!r} are left out: {', '.join(sorted(hidden))}", UserWarning, stacklevel=3)
    if not classes:
        found = [(path, None) for path in _images(source, hidden)]
    elif loose := [entry.name for entry in os.scandir(source) if entry.is_file() and entry.name.lower().endswith(ENDINGS)]:
        raise ValueError(
            f"pack: {str(source)!r} has folders of classes, and beside them images without a class, such as {loose[0]!r}; move them away"
        )
    if not found:
        raise ValueError(f"pack: no images found in {str(source)!r} (files that end in {' '.join(ENDINGS)})")
    keys = _keys([path for path, _ in found])
    samples = [Sample(path, key, label, None) for (path, label), key in zip(found, keys, strict=True)]
    return Plan(source, options, classes, samples, None)


def _images(folder: Path, hidden: set[str]) -> list[str]:
    """Return the images below a folder in order of their bytes, but not hidden ones and what is not a regular file; note the hidden folders."""

    def enters(name: str) -> bool:
        if is_hidden(name):
            hidden.add(name)
        return not is_hidden(name)

    found = []
    for place, files in walk(folder, enters):
        inside = Path(place).relative_to(folder)
        names = [name for name in files if name.lower().endswith(ENDINGS) and not name.startswith(".")]
        found += [(inside / name).as_posix() for name in names if os.path.isfile(os.path.join(place, name))]
    return sorted(found, key=os.fsencode)


def _keys(paths: list[str]) -> list[str]:
    """Return a unique name for each path, without its ending and without dots: WebDataset would cut the name at the first dot.

    >>> _keys(["a/1.2.jpg", "a/3.jpg", "a/3.png"])
    ['a/1_2', 'a/3_jpg', 'a/3_png']
    """
    short = [str(PurePosixPath(path).with_name(PurePosixPath(path).stem.replace(".", "_"))) for path in paths]
    count = Counter(short)
    keys = [
        key if count[key] == 1 else str(PurePosixPath(path).with_name(path.rpartition("/")[2].replace(".", "_")))
        for key, path in zip(short, paths, strict=True)
    ]
    twice = [key for key, number in Counter(keys).items() if number > 1]
    if twice:
        same = [path for key, path in zip(keys, paths, strict=True) if key == twice[0]]
        raise ValueError(f"pack: {' and '.join(same)} would both become {twice[0]!r}; rename one")
    return keys


def _check_name(path: Any) -> None:
    """Raise ValueError for a name in annotations that leaves the source or the target folder, on any system that unpacks the shards."""
    if not isinstance(path, str) or not PurePosixPath(path).name or "\0" in path:
        raise ValueError(f"an image has the file_name {format_value(path)}, which does not name a file")
    if path.startswith(("/", "\\")) or PureWindowsPath(path).drive:
        raise ValueError(f"an image has the file_name {format_value(path)}: it must be relative, below the folder of the images")
    if ".." in path.replace("\\", "/").split("/"):
        raise ValueError(f'an image has the file_name {format_value(path)}, which leaves the folder of the images by ".."')
    first, *others = PurePosixPath(path).parts
    if first == WORK or (not others and first in OWN_FILES):
        raise ValueError(f"an image has the file_name {format_value(path)}, the name of a file of pack; rename it")


def _coco_plan(source: Path, options: Options, annotations: Path) -> Plan:
    try:
        coco = json.loads(read_regular(annotations))
        images, objects = coco["images"], coco.get("annotations", [])
        of_image: dict[Any, list[dict[str, Any]]] = {each["id"]: [] for each in images}
        paths = [each["file_name"] for each in images]
        for each in objects:
            of_image[each["image_id"]].append(each)
        for path in paths:
            _check_name(path)
    except OSError as error:
        raise ValueError(f"pack: the annotations {str(annotations)!r} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"pack: {str(annotations)!r} is not a file of COCO annotations: {reason}") from None
    if not images or len(of_image) != len(images):
        raise ValueError(f"pack: {str(annotations)!r} has {'two images of one id' if images else 'no images'}")
    keys = _keys(paths)
    missing = [path for path in paths if not (source / path).is_file()]
    if missing:
        raise ValueError(f"pack: {len(missing)} images of {str(annotations)!r} are not in {str(source)!r}, such as {missing[0]!r}")
    samples = [
        Sample(path, key, None, {"image": each, "annotations": of_image[each["id"]]}) for path, key, each in zip(paths, keys, images, strict=True)
    ]
    return Plan(source, options, [], samples, coco)
