# SPDX-License-Identifier: Apache-2.0
"""One shard: the unit of work of a thread, or of a Ray task on another machine."""

import json
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from .._core.process.files import read_regular
from ._coco import scaled_annotation
from ._images import Packed, pack_image
from ._plan import Options, Sample
from ._target import WORK, Target
from ._writers import Entry, write_tar, write_tfrecord

_SUFFIX = {"webdataset": ".tar", "tfrecord": ".tfrecord"}


def name_of(number: int, options: Options) -> str:
    """Return the file of a shard, in the target."""
    return f"{number:06d}{_SUFFIX.get(options.format, '')}"


def read_record(target: Target, number: int) -> dict[str, Any] | None:
    """Return the record of :func:`write_shard` for a completed shard; None for others."""
    try:
        record = json.loads(target.read(_record(number)) or b"{}")
        # A record that was cut off by a crash counts as none, and its shard is written again.
        return record if isinstance(record, dict) and record.keys() >= {"images", "bytes", "skipped", "objects"} else None
    except (ValueError, RecursionError):
        return None


def _record(number: int) -> str:
    return f"{WORK}/{number:06d}.json"


def write_shard(source: Path, path: Path, options: Options, number: int, samples: list[Sample]) -> dict[str, Any]:
    """Write the files of a shard, then the record of its result, which is returned: ``images``, ``bytes``, ``skipped``, and COCO's ``objects``.

    Raises:
        RuntimeError: an image that is damaged or cannot be read, unless these are skipped; the message names it.
    """
    record: dict[str, Any] = {"images": 0, "bytes": 0, "skipped": [], "objects": []}
    # A generator: one image at a time is in memory, and the record is complete when the file is.
    entries = _entries(source, options, samples, record)
    name = name_of(number, options)
    with Target(path) as target:
        if options.format == "folder":
            for entry in entries:
                target.write(entry.key + entry.ending, entry.content)
        elif options.format == "webdataset":
            with target.file(name) as file:
                write_tar(file, entries)
        else:
            with target.file(name) as file:
                index = write_tfrecord(file, entries)
            target.write(str(PurePosixPath(name).with_suffix(".idx")), index)
        # Last: a shard with a record is complete, and a resumed run skips it.
        target.write(_record(number), json.dumps(record).encode())
    return record


def _entries(source: Path, options: Options, samples: list[Sample], record: dict[str, Any]) -> Iterator[Entry]:
    """Yield the packed samples, and count them in the record."""
    for sample in samples:
        try:
            entry = _entry(source, options, sample)
        except (RuntimeError, ValueError, OSError) as error:
            reason = str(error).partition("\n")[0]
            if options.on_error == "fail":
                raise RuntimeError(f"pack: {source / sample.path}: {reason}") from None
            record["skipped"].append([sample.path, reason])
            continue
        record["images"] += 1
        record["bytes"] += len(entry.content)
        if entry.objects is not None:
            record["objects"].append(entry.objects)
        yield entry


def _entry(source: Path, options: Options, sample: Sample) -> Entry:
    content = read_regular(source / sample.path)
    ending = os.path.splitext(sample.path)[1].lower()
    if sample.objects is None:
        image = pack_image(content, ending, options.shorter, options.quality, True)
        return Entry(sample.key, image.ending, image.content, sample.label, None)
    # Annotations refer to the image as stored.
    image = pack_image(content, ending, options.shorter, options.quality, False)
    return Entry(sample.key, image.ending, image.content, None, _objects(sample.key + image.ending, sample.objects, image))


def _objects(name: str, objects: dict[str, Any], image: Packed) -> dict[str, Any]:
    about = objects["image"]
    # Annotations without a size are trusted.
    annotated_size = (about.get("height", image.original[0]), about.get("width", image.original[1]))
    if annotated_size != image.original:
        raise ValueError(
            f"it has {image.original[0]}x{image.original[1]} pixels, but its annotations are for {annotated_size[0]}x{annotated_size[1]}"
        )
    return {
        "image": {**about, "file_name": name, "height": image.size[0], "width": image.size[1]},
        "annotations": [scaled_annotation(annotation, image.original, image.size) for annotation in objects["annotations"]],
    }
