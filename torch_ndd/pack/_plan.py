# SPDX-License-Identifier: Apache-2.0
"""The plan of a packed data set: the samples in order, cut into shards, and the options. The same for every run over the same data set."""

import hashlib
import json
import os
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".webp", ".jp2")
FORMATS = ("webdataset", "tfrecord", "folder")
ON_ERROR = ("fail", "skip")


@dataclass(frozen=True)
class Options:
    """The arguments of :func:`pack` on which the result depends."""

    format: str
    shorter: int | None
    quality: int
    per_shard: int
    on_error: str

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"pack: format must be one of {', '.join(FORMATS)}, got {self.format!r}")
        if self.on_error not in ON_ERROR:
            raise ValueError(f'pack: on_error must be "fail" or "skip", got {self.on_error!r}')
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
        """Return a hash of all that the result depends on, but for the contents of the images, of which it knows size and time of change."""
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
    classes = sorted((entry.name for entry in os.scandir(source) if entry.is_dir() and not entry.name.startswith(".")), key=os.fsencode)
    classes = [name for name in classes if _images(source / name)]
    found: list[tuple[str, int | None]] = [(f"{name}/{path}", label) for label, name in enumerate(classes) for path in _images(source / name)]
    if not classes:
        found = [(path, None) for path in _images(source)]
    elif loose := [entry.name for entry in os.scandir(source) if entry.is_file() and entry.name.lower().endswith(ENDINGS)]:
        raise ValueError(
            f"pack: {str(source)!r} has folders of classes, and beside them images without a class, such as {loose[0]!r}; move them away"
        )
    if not found:
        raise ValueError(f"pack: there are no images in {str(source)!r} (files that end in {' '.join(ENDINGS)})")
    keys = _keys([path for path, _ in found])
    samples = [Sample(path, key, label, None) for (path, label), key in zip(found, keys, strict=True)]
    return Plan(source, options, classes, samples, None)


def _images(folder: Path) -> list[str]:
    """Return the images below a folder, hidden ones left out, in order of their bytes."""
    found = []
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(place).relative_to(folder)
        found += [(inside / name).as_posix() for name in files if name.lower().endswith(ENDINGS) and not name.startswith(".")]
    return sorted(found, key=os.fsencode)


def _keys(paths: list[str]) -> list[str]:
    """Return a name for each path without its ending and without dots, where WebDataset would cut it: all different.

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


def _coco_plan(source: Path, options: Options, annotations: Path) -> Plan:
    try:
        coco = json.loads(annotations.read_text())
        images, objects = coco["images"], coco.get("annotations", [])
        of_image: dict[Any, list[dict[str, Any]]] = {one["id"]: [] for one in images}
        paths = [one["file_name"] for one in images]
        for one in objects:
            of_image[one["image_id"]].append(one)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"pack: {str(annotations)!r} is no file of COCO annotations: {type(error).__name__}: {error}") from None
    if not images or len(of_image) != len(images):
        raise ValueError(f"pack: {str(annotations)!r} has {'two images of one id' if images else 'no images'}")
    keys = _keys(paths)
    missing = [path for path in paths if not (source / path).is_file()]
    if missing:
        raise ValueError(f"pack: {len(missing)} images of {str(annotations)!r} are not in {str(source)!r}, such as {missing[0]!r}")
    samples = [
        Sample(path, key, None, {"image": one, "annotations": of_image[one["id"]]}) for path, key, one in zip(paths, keys, images, strict=True)
    ]
    return Plan(source, options, [], samples, coco)
