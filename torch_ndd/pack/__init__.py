# SPDX-License-Identifier: Apache-2.0
"""Prepare a data set once: smaller images, in a few large files. ``python -m torch_ndd.pack SRC DST``."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from .._core.pools import get_num_threads, set_num_threads
from ._images import encoder
from ._plan import Options, Plan, plan
from ._progress import Progress
from ._shards import WORK, name_of, record_of, write_shard
from ._writers import write_atomically

_ANNOTATIONS = "annotations.json"
_CLASSES = "classes.txt"
_SUMMARY = "pack.json"


class Summary(NamedTuple):
    """The result of :func:`pack`."""

    images: int
    bytes: int  # of the images
    shards: int
    skipped: list[tuple[str, str]]  # path, reason
    resumed: int  # shards that an earlier run has made


def pack(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    shorter: int | None = None,
    quality: int = 90,
    format: str = "webdataset",
    annotations: str | os.PathLike[str] | None = None,
    per_shard: int = 1000,
    on_error: str = "fail",
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
    ``.pack`` is there until then.

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
        ValueError: a wrong argument, a source without images, a target that another run with other arguments has begun, or that has other files.
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
    if shorter is not None:
        encoder()
    made = plan(Path(source), options, None if annotations is None else Path(annotations))
    where = Path(target)
    digest = made.digest()
    finished = _finished(where, digest)
    if finished is not None:
        return finished
    with _at_work(where, digest):
        shards = made.shards()
        records: dict[int, dict[str, Any]] = {}
        for number in range(len(shards)):
            with contextlib.suppress(FileNotFoundError):
                found = json.loads(record_of(where, number).read_bytes())
                if on_error == "skip" or not found["skipped"]:
                    records[number] = found
        resumed = len(records)
        left = [number for number in range(len(shards)) if number not in records]
        with Progress(len(made.samples), progress) as shown:
            shown.add(sum(len(shards[number]) for number in records))
            for number, record in _run(made, where, left, jobs, ray):
                records[number] = record
                shown.add(len(shards[number]))
        return _finish(made, where, digest, [records[number] for number in range(len(shards))], resumed)


def _run(made: Plan, where: Path, left: list[int], jobs: int | None, ray: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Write shards, and return their numbers and records as they are done."""
    shards = made.shards()
    if ray:
        from ._cluster import run_on_cluster  # needs ray

        yield from run_on_cluster(made, where, left)
        return
    threads = jobs if jobs is not None else len(os.sched_getaffinity(0))
    if threads < 1:
        raise ValueError(f"pack: jobs must be positive, got {threads}")
    before = get_num_threads()
    set_num_threads(threads)
    try:
        with ThreadPoolExecutor(threads, "pack") as pool:
            running = {pool.submit(write_shard, made.source, where, made.options, number, shards[number]): number for number in left}
            try:
                while running:
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for one in done:
                        yield running.pop(one), one.result()
            finally:
                for one in running:
                    one.cancel()
    finally:
        set_num_threads(before)


@contextlib.contextmanager
def _at_work(where: Path, digest: str) -> Iterator[None]:
    """Prepare the target, and keep other processes away from it."""
    work = where / WORK
    if where.is_dir() and not work.is_dir() and any(where.iterdir()):
        raise ValueError(f"pack: {str(where)!r} has files, and none of an earlier run; take an empty folder")
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"pack: another process is at work in {str(where)!r}") from None
        begun = work / "digest"
        if begun.exists() and begun.read_text() != digest:
            raise ValueError(
                f"pack: {str(where)!r} was begun with other arguments, or its source has changed since; delete it, or take another folder"
            )
        for left_over in work.glob("*.part"):
            left_over.unlink()
        write_atomically(begun, digest.encode(), work / "digest.part")
        yield


def _finished(where: Path, digest: str) -> Summary | None:
    """Return the summary of a run that has come to its end before."""
    try:
        found = json.loads((where / _SUMMARY).read_bytes())
    except FileNotFoundError:
        return None
    shutil.rmtree(where / WORK, ignore_errors=True)  # of a run that ended between its last two steps
    if found["digest"] != digest:
        raise ValueError(f"pack: {str(where)!r} was packed with other arguments, or its source has changed since; delete it, or take another folder")
    return Summary(found["images"], found["bytes"], found["shards"], [(path, why) for path, why in found["skipped"]], found["shards"])


def _finish(made: Plan, where: Path, digest: str, records: list[dict[str, Any]], resumed: int) -> Summary:
    temporary = where / WORK / "last.part"
    skipped = [(path, why) for record in records for path, why in record["skipped"]]
    summary = Summary(sum(one["images"] for one in records), sum(one["bytes"] for one in records), len(records), skipped, resumed)
    if made.classes:
        write_atomically(where / _CLASSES, "".join(f"{name}\n" for name in made.classes).encode(), temporary)
    if made.coco is not None:
        objects = [one for record in records for one in record["objects"]]
        coco = {**made.coco, "images": [one["image"] for one in objects], "annotations": [a for one in objects for a in one["annotations"]]}
        write_atomically(where / _ANNOTATIONS, json.dumps(coco).encode(), temporary)
    about = {
        "digest": digest,
        "options": asdict(made.options),
        "images": summary.images,
        "bytes": summary.bytes,
        "shards": summary.shards,
        "skipped": skipped,
    }
    write_atomically(where / _SUMMARY, json.dumps(about, indent=1).encode(), temporary)
    # From here on it is done; what follows is cleaning up.
    for left_over in (where / WORK).iterdir():
        left_over.unlink()
    (where / WORK).rmdir()
    return summary


def shards_of(target: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the shards in a packed folder, for the ``paths`` or ``path`` of readers. Raise ValueError if it is not complete."""
    try:
        found = json.loads((Path(target) / _SUMMARY).read_bytes())
    except FileNotFoundError:
        raise ValueError(f"pack: {str(target)!r} is no complete packed data set: it has no {_SUMMARY}") from None
    if found["options"]["format"] == "folder":
        raise ValueError(f"pack: {str(target)!r} is a folder of files, not of shards")
    return [str(Path(target) / name_of(number, Options(**found["options"]))) for number in range(found["shards"])]
