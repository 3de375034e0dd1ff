# SPDX-License-Identifier: Apache-2.0
"""Prepare a data set once: smaller images, in a few large files. ``python -m torch_ndd.pack SRC DST``."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from .._core.context.pools import get_num_threads, set_num_threads
from .._core.process.files import read_regular
from ._images import encoder
from ._plan import Format, OnError, Options, Plan, plan
from ._progress import Progress
from ._shards import name_of, read_record, write_shard
from ._target import ANNOTATIONS, CLASSES, SUMMARY, WORK, Target

__all__ = ["Summary", "pack", "shards_of"]

_DIGEST = f"{WORK}/digest"
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Summary(NamedTuple):
    """The result of :func:`pack`."""

    images: int
    bytes: int  # of the images
    shards: int
    skipped: list[tuple[str, str]]  # path, reason
    resumed: int  # shards that an earlier run wrote


def pack(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    shorter: int | None = None,
    quality: int = 90,
    format: Format = "webdataset",
    annotations: str | os.PathLike[str] | None = None,
    per_shard: int = 1000,
    on_error: OnError = "fail",
    jobs: int | None = None,
    ray: bool = False,
    progress: bool = False,
) -> Summary:
    """Write a data set of images as shards for ``readers.Webdataset`` or ``readers.TFRecord``, or as files for ``readers.File`` and ``readers.COCO``.

    Labels are the numbers of the sorted subfolders of ``source``, as for ``readers.File``, and ``classes.txt`` has their names; images outside of
    subfolders have none. With COCO ``annotations``, boxes, areas, polygons, masks and key points follow the images: in ``annotations.json``, and in a
    ``.json`` beside each image of an archive.

    A run that was stopped, or killed, continues where it ended when it is started again with the same arguments (``on_error`` may change). Each file
    appears under its name only when it is complete, and the result is the same, byte for byte. The target's ``pack.json`` says what was done;
    ``.pack`` is there until then. Nothing is written outside of the target. Symbolic links in the source are followed, but not those back to a folder
    above; hidden folders are left out with a warning.

    Args:
        source: The folder of the images.
        target: A folder that is new, or that an earlier run with the same arguments has begun.
        shorter: Images whose shorter side is longer than this are decoded, resized with antialiasing, and written as JPEG; their EXIF orientation is
            applied, except for those with annotations, which are about the image as stored. All other images, and all where it is None, are copied
            byte for byte; of those only the header is checked.
        quality: Of JPEG, from 1 to 100.
        format: "webdataset" (tar, with ``jpg``, ``cls`` and ``json``), "tfrecord" (``image/encoded``, ``image/class/label``, ``image/filename``, with
            an index), or "folder".
        annotations: A JSON file in COCO's format about the images of ``source``.
        per_shard: Images of a shard, which is the unit of work.
        on_error: What to do with an image that is damaged or does not suit its annotations: "fail", or "skip", which lists it in the result.
        jobs: Threads; by default one for each CPU of this process.
        ray: Run the shards as tasks on a Ray cluster, all of whose machines see both folders. Needs the extra ``[ray]``.
        progress: Print the progress: a bar where tqdm is installed and the output is a terminal, a line now and then otherwise.

    Raises:
        ValueError: a wrong argument, a source without images, a target that another run with other arguments has begun, that has other files, or that
            is in the source; annotations of a file that is not below ``source`` (an absolute ``file_name``, or one with ``..``).
        RuntimeError: an image that cannot be packed, if they are not skipped; no encoder; a target in which another process is at work.

    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> source, target = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp()) / "packed"
    >>> for name in ("cat", "dog"):
    ...     (source / name).mkdir()
    ...     Image.fromarray(np.zeros((60, 80, 3), np.uint8)).save(source / name / "1.png")
    >>> pack(source, target, shorter=30).images, sorted(path.name for path in target.iterdir())
    (2, ['000000.tar', 'classes.txt', 'pack.json'])
    """
    options = Options(format, shorter, quality, per_shard, on_error)
    # A missing package raises here, before anything is written.
    if shorter is not None:
        encoder()
    where = Path(target)
    _check_apart(Path(source), where)
    pack_plan = plan(Path(source), options, None if annotations is None else Path(annotations))
    digest = pack_plan.digest()
    finished = _finished_summary(where, digest)
    if finished is not None:
        return finished
    with _at_work(where, digest) as folder:
        shards = pack_plan.shards()
        records: dict[int, dict[str, Any]] = {}
        for number in range(len(shards)):
            found = read_record(folder, number)
            # With on_error="fail" a shard that has skipped images is from a run that allowed it, and is written again.
            if found is not None and (on_error == "skip" or not found["skipped"]):
                records[number] = found
        resumed = len(records)
        left = [number for number in range(len(shards)) if number not in records]
        with Progress(len(pack_plan.samples), progress) as shown:
            shown.add(sum(len(shards[number]) for number in records))
            for number, record in _run(pack_plan, where, left, jobs, ray):
                records[number] = record
                shown.add(len(shards[number]))
        return _finish(pack_plan, folder, digest, [records[number] for number in range(len(shards))], resumed)


def _run(pack_plan: Plan, where: Path, left: list[int], jobs: int | None, ray: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Write shards, and return their numbers and records as they are done."""
    shards = pack_plan.shards()
    if ray:
        from ._cluster import run_on_cluster  # needs ray

        yield from run_on_cluster(pack_plan, where, left)
        return
    threads = jobs if jobs is not None else len(os.sched_getaffinity(0))
    if threads < 1:
        raise ValueError(f"pack: jobs must be positive, got {threads}")
    # Each thread decodes one image at a time, and the operators inside it share this many threads.
    before = get_num_threads()
    set_num_threads(threads)
    try:
        with ThreadPoolExecutor(threads, "pack") as pool:
            running = {pool.submit(write_shard, pack_plan.source, where, pack_plan.options, number, shards[number]): number for number in left}
            try:
                while running:
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield running.pop(future), future.result()
            finally:
                # After an error or an interruption only the running shards are finished.
                for future in running:
                    future.cancel()
    finally:
        set_num_threads(before)


def _check_apart(source: Path, target: Path) -> None:
    """Raise ValueError if one of the folders is in the other: the source is not written, and what is written is not a part of it."""
    here, there = Path(os.path.realpath(source)), Path(os.path.realpath(target))
    if here == there or here in there.parents or there in here.parents:
        raise ValueError(
            f"pack: {str(source)!r} and {str(target)!r} are the same folder, or one contains the other; choose a target outside of the source"
        )


@contextlib.contextmanager
def _at_work(where: Path, digest: str) -> Iterator[Target]:
    """Prepare the target, and keep other processes away from it."""
    if where.is_dir() and not os.path.lexists(where / WORK) and any(where.iterdir()):
        raise ValueError(f"pack: {str(where)!r} has files, and none of an earlier run; take an empty folder")
    with Target(where) as target, open(os.open("lock", _LOCK, 0o666, dir_fd=target.work), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"pack: another process is at work in {str(where)!r}") from None
        begun = target.read(_DIGEST)
        if begun is not None and begun != digest.encode():
            raise ValueError(
                f"pack: {str(where)!r} was begun with other arguments, or its source has changed since; delete it, or take another folder"
            )
        target.remove_unfinished()
        target.write(_DIGEST, digest.encode())
        yield target


def _summary(where: Path) -> dict[str, Any] | None:
    """Read ``pack.json``; None without one. Raise ValueError if it is damaged."""
    path = where / SUMMARY
    try:
        found = json.loads(read_regular(path))
        # Raises for options that do not exist.
        Options(**found["options"])
        if not all(isinstance(found[key], int) for key in ("images", "bytes", "shards")) or not all(len(each) == 2 for each in found["skipped"]):
            raise ValueError("its numbers are not numbers")
        if not 0 <= found["shards"] <= found["images"] + len(found["skipped"]) or not isinstance(found["digest"], str):
            raise ValueError("its numbers do not fit")
        return found
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError) as error:
        raise ValueError(f"pack: {str(path)!r} is damaged: {type(error).__name__}: {error}") from None


def _finished_summary(where: Path, digest: str) -> Summary | None:
    """Return the summary of a run that has come to its end before."""
    found = _summary(where)
    if found is None:
        return None
    if found["digest"] != digest:
        raise ValueError(f"pack: {str(where)!r} was packed with other arguments, or its source has changed since; delete it, or take another folder")
    if os.path.lexists(where / WORK):  # of a run that ended between its last two steps
        with Target(where) as target:
            target.remove_work()
    return Summary(found["images"], found["bytes"], found["shards"], [(path, why) for path, why in found["skipped"]], found["shards"])


def _finish(pack_plan: Plan, target: Target, digest: str, records: list[dict[str, Any]], resumed: int) -> Summary:
    skipped = [(path, why) for record in records for path, why in record["skipped"]]
    summary = Summary(sum(each["images"] for each in records), sum(each["bytes"] for each in records), len(records), skipped, resumed)
    if pack_plan.classes:
        target.write(CLASSES, b"".join(os.fsencode(name) + b"\n" for name in pack_plan.classes))
    if pack_plan.coco is not None:
        objects = [each for record in records for each in record["objects"]]
        coco = {**pack_plan.coco, "images": [each["image"] for each in objects], "annotations": [a for each in objects for a in each["annotations"]]}
        target.write(ANNOTATIONS, json.dumps(coco).encode())
    about = {
        "digest": digest,
        "options": asdict(pack_plan.options),
        "images": summary.images,
        "bytes": summary.bytes,
        "shards": summary.shards,
        "skipped": skipped,
    }
    # Last, since a folder with this file is complete.
    target.write(SUMMARY, json.dumps(about, indent=1).encode())
    target.remove_work()
    return summary


def shards_of(target: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the shards in a packed folder, for the ``paths`` or ``path`` of readers. Raise ValueError if it is not complete."""
    found = _summary(Path(target))
    if found is None:
        raise ValueError(f"pack: {str(target)!r} is not a complete packed data set: it has no {SUMMARY}")
    if found["options"]["format"] == "folder":
        raise ValueError(f"pack: {str(target)!r} is a folder of files, not of shards")
    return [str(Path(target) / name_of(number, Options(**found["options"]))) for number in range(found["shards"])]
