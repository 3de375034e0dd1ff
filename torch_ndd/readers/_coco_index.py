# SPDX-License-Identifier: Apache-2.0
"""The annotations of COCO as arrays: from its JSON, and from and to the files in which DALI keeps them."""

import gc
import importlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._remote import open_file

# Kinds of masks: none, run lengths as numbers and in COCO's compressed text, polygons.
NOTHING, COUNTS, TEXT, POLYGONS = range(4)


@dataclass
class CocoIndex:
    """Images in the order in which they are read, and of each its annotations: rows ``offsets[i]`` to ``offsets[i + 1]``."""

    names: list[bytes]
    ids: np.ndarray  # int32 (images,)
    sizes: np.ndarray  # int32 (images, 2): height, width; 0 where the file does not tell them
    offsets: np.ndarray  # int64 (images + 1,)
    boxes: np.ndarray  # float32 (annotations, 4)
    labels: np.ndarray  # int32 (annotations,)
    polygons: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int32))  # of an image: number of its annotation, first and last vertex
    polygon_offsets: np.ndarray | None = None  # by image
    vertices: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    vertex_offsets: np.ndarray | None = None  # by image
    masks: "Masks | None" = None


@dataclass
class Masks:
    """The shape of each annotation, as it stands in the file."""

    kinds: np.ndarray  # uint8 (annotations,)
    values: np.ndarray  # float64: coordinates of polygons, run lengths
    value_offsets: np.ndarray  # by part: a polygon or a list of run lengths
    part_offsets: np.ndarray  # by annotation
    text: bytes
    text_offsets: np.ndarray  # by annotation
    sizes: np.ndarray  # int32 (annotations, 2), of masks in run lengths

    def parts(self, row: int) -> list[np.ndarray]:
        """The polygons, or the run lengths, of an annotation."""
        first, last = self.part_offsets[row : row + 2]
        return [self.values[self.value_offsets[k] : self.value_offsets[k + 1]] for k in range(first, last)]


@dataclass
class Wanted:
    """What is asked of the annotations."""

    ltrb: bool
    ratio: bool
    size_threshold: float
    include_iscrowd: bool
    skip_empty: bool
    avoid_class_remapping: bool
    polygons: bool
    pixelwise: bool
    images: list[bytes] | None


def from_json(op: str, path: str, wanted: Wanted) -> CocoIndex:
    """The index of a JSON file. RuntimeError or ValueError for what is no such file."""
    with _without_collections(), open_file(op, "annotations_file", path) as file:
        content = file.read()
        try:
            parser, document = _parsed(content)
        except (ValueError, RecursionError) as error:
            raise RuntimeError(f'{op}: annotations_file "{path}" is no JSON: {error}') from None
        del content
        try:
            made = _Builder(document, wanted).built()
        except _Invalid as error:
            raise ValueError(f'{op}: Invalid COCO annotation in "{path}": {error}') from None
        except (TypeError, KeyError, AttributeError, ValueError, OverflowError, IndexError) as error:
            raise RuntimeError(f'{op}: annotations_file "{path}" is no COCO file: {type(error).__name__}: {error}') from None
        del document, parser
    return made


class _Invalid(ValueError):
    pass


def _parsed(content: bytes) -> tuple[Any, Any]:
    """By simdjson where it is installed: 4 s for 860,000 annotations of 530 MB, where the json module takes 26 s."""
    try:
        simdjson = importlib.import_module("simdjson")
    except ImportError:
        return None, json.loads(content)
    parser = simdjson.Parser()
    return parser, parser.parse(content)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Millions of new objects and no garbage among them: looking for it would take half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _numbers(values: Any) -> bytes:
    """A list of numbers as float64, one after the other."""
    if hasattr(values, "as_buffer"):
        return bytes(values.as_buffer(of_type="d"))
    if not isinstance(values, list):
        raise TypeError(f"expected a list of numbers, got {values!r:.60}")
    return array("d", values).tobytes()


def _joined(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of several lists one after the other, and how many each has."""
    return np.frombuffer(b"".join(parts)), np.fromiter(map(len, parts), np.int64, len(parts)) // 8


def _whole(what: str, values: list[Any], default: int = 0) -> np.ndarray:
    values = [default if one is None else one for one in values]
    if not all(type(one) is int for one in values):
        wrong = next(one for one in values if type(one) is not int)
        raise TypeError(f"{what} must be an integer, got {wrong!r:.60}")
    array = np.array(values, np.int64)
    if array.size and not (array.min() >= -(2**31) and array.max() < 2**31):
        raise OverflowError(f"{what} must fit into 32 bits")
    return array


class _Builder:
    """Goes through a document once."""

    def __init__(self, document: Any, wanted: Wanted) -> None:
        self.wanted = wanted
        self.images = list(document.get("images") or [])
        self.annotations = document.get("annotations") or []
        self.categories = list(document.get("categories") or [])

    def built(self) -> CocoIndex:
        wanted = self.wanted
        names = [_text("file_name", image.get("file_name")) for image in self.images]
        ids = _whole("id of an image", [_given("id", image) for image in self.images])
        sizes = np.stack([_whole(side, [image.get(side) for image in self.images]) for side in ("height", "width")], 1).reshape(-1, 2)
        if wanted.images is None:
            order = np.argsort(ids, kind="stable")
        else:
            place = {name: k for k, name in enumerate(names)}
            order = np.array([place[name] for name in wanted.images if name in place], np.int64)
        if (wanted.ratio or wanted.pixelwise) and order.size and sizes[order].min() <= 0:
            raise _Invalid("images need a width and a height for ratio and pixelwise_masks")
        kept = self._kept()
        image_of, labels, boxes = self._columns(kept)

        # Rows of annotations by image, in the order of the file.
        rows_of_id = np.argsort(image_of, kind="stable")
        ordered = image_of[rows_of_id]
        first, last = np.searchsorted(ordered, ids[order], "left"), np.searchsorted(ordered, ids[order], "right")
        if wanted.skip_empty:
            order, first, last = order[first < last], first[first < last], last[first < last]
        offsets, places = spans(first, last - first)
        rows = rows_of_id[places]
        sizes = sizes[order]
        owner = np.repeat(np.arange(len(order)), np.diff(offsets))
        made = CocoIndex(
            [names[k] for k in order.tolist()],
            ids[order].astype(np.int32),
            sizes.astype(np.int32),
            offsets,
            self._converted(boxes[rows], sizes[owner]),
            labels[rows].astype(np.int32),
        )
        if wanted.polygons:
            self._add_polygons(made, [kept[k] for k in rows.tolist()], owner, sizes)
        if wanted.pixelwise:
            made.masks = _masks([kept[k] for k in rows.tolist()])
        return made

    def _kept(self) -> list[Any]:
        if self.wanted.include_iscrowd:
            return list(self.annotations)
        return [one for one in self.annotations if not one.get("iscrowd")]

    def _columns(self, kept: list[Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Image, label and box of each annotation; those that are too small are removed from ``kept``."""
        nothing = np.full(4, -np.inf).tobytes()
        given = [one.get("bbox") for one in kept]
        numbers, counts = _joined([nothing if one is None else _numbers(one) for one in given])
        if (counts != 4).any():
            raise _Invalid(f"`bbox` must contain exactly 4 values, got {counts[counts != 4][0]}")
        with np.errstate(over="ignore"):
            boxes = numbers.astype(np.float32).reshape(-1, 4)
        large = np.flatnonzero((boxes[:, 2:] >= np.float32(self.wanted.size_threshold)).all(1) & (boxes[:, 2] > -np.inf))
        if len(large) < len(kept):
            kept[:] = [kept[k] for k in large.tolist()]
        image_of = _whole("image_id", [_given("image_id", one) for one in kept])
        labels = _whole("category_id", [one.get("category_id") for one in kept])
        if not self.wanted.avoid_class_remapping:
            known = {int(_whole("id of a category", [_given("id", one)])[0]): k + 1 for k, one in enumerate(self.categories)}
            distinct, inverse = np.unique(labels, return_inverse=True)
            labels = np.array([known.get(one, 0) for one in distinct.tolist()], np.int64)[inverse]
        return image_of, labels, boxes[large]

    def _converted(self, boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        if self.wanted.ltrb:
            boxes[:, 2:] += boxes[:, :2]
        if self.wanted.ratio:
            boxes /= sizes[:, [1, 0, 1, 0]].astype(np.float32)
        return np.ascontiguousarray(boxes)

    def _add_polygons(self, made: CocoIndex, annotations: list[Any], owner: np.ndarray, sizes: np.ndarray) -> None:
        number = np.arange(len(owner)) - made.offsets[owner]  # of the annotation in its image
        parts, of_row = [], []
        for row, one in enumerate(annotations):
            for polygon in _polygons(one.get("segmentation")):
                coordinates = _numbers(polygon)
                parts.append(coordinates if len(coordinates) % 16 == 0 else coordinates[:-8])
                of_row.append(row)
        images, rows = len(made.names), np.array(of_row, np.int64)
        vertices, counts = _joined(parts)
        counts //= 2
        by_image = np.bincount(owner[rows], minlength=images)
        made.polygon_offsets = np.concatenate([[0], np.cumsum(by_image)])
        ends = np.concatenate([[0], np.cumsum(counts)])
        made.vertex_offsets = ends[made.polygon_offsets]
        begin = ends[:-1] - made.vertex_offsets[owner[rows]]
        made.polygons = np.stack([number[rows], begin, begin + counts], 1).astype(np.int32).reshape(-1, 3)
        with np.errstate(over="ignore"):
            made.vertices = vertices.astype(np.float32).reshape(-1, 2)
        if self.wanted.ratio:
            made.vertices /= np.repeat(sizes[owner[rows]][:, ::-1].astype(np.float32), counts, 0)


def _given(name: str, one: Any) -> Any:
    value = one.get(name)
    if value is None:
        raise _Invalid(f"{name} is missing")
    return value


def _text(what: str, value: Any) -> bytes:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{what} must be text, got {value!r:.60}")
    return os.fsencode(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or hasattr(value, "as_buffer")


def _polygons(segmentation: Any) -> Iterable[Any]:
    return segmentation if _is_list(segmentation) else ()


def _masks(annotations: Sequence[Any]) -> Masks:
    kinds, values, parts_of, texts, sizes = [], [], [], [], []
    for one in annotations:
        segmentation = one.get("segmentation")
        text, size, parts = b"", (0, 0), []
        if segmentation is None:
            kind = NOTHING
        elif _is_list(segmentation):
            kind, parts = POLYGONS, [_numbers(part) for part in segmentation]
        else:
            counts, size = segmentation["counts"], tuple(_whole("size", list(segmentation["size"])).tolist())
            if isinstance(counts, str):
                kind, text = TEXT, counts.encode()
            else:
                kind, parts = COUNTS, [_numbers(counts)]
        kinds.append(kind)
        values += parts
        parts_of.append(len(parts))
        texts.append(text)
        if len(size) != 2:
            raise _Invalid("`size` must contain exactly 2 values")
        sizes.append(size)
    numbers, lengths = _joined(values)
    return Masks(
        np.array(kinds, np.uint8),
        numbers,
        _ends(lengths.tolist()),
        _ends(parts_of),
        b"".join(texts),
        _ends(list(map(len, texts))),
        np.array(sizes, np.int32).reshape(-1, 2),
    )


def _ends(lengths: Sequence[int]) -> np.ndarray:
    return np.cumsum([0, *lengths], dtype=np.int64)


def spans(first: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each of several ranges begins when they are put one behind the other, and all their numbers.

    >>> spans(np.array([7, 2]), np.array([2, 3]))
    (array([0, 2, 5]), array([7, 8, 2, 3, 4]))
    """
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return offsets, np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], counts)


# --- preprocessed annotations: a file for each array, its number of elements as uint32 in front of it ---


def save(op: str, folder: str, index: CocoIndex, ids: bool) -> None:
    """Write an index in the form that DALI writes and reads too."""
    counts = np.diff(index.offsets)
    arrays = {"offsets": index.offsets[:-1].astype(np.int32), "counts": counts.astype(np.int32), "boxes": index.boxes, "labels": index.labels}
    if index.polygon_offsets is not None and index.vertex_offsets is not None:
        arrays |= {
            "polygon_data": index.polygons,
            "polygon_offset": index.polygon_offsets[:-1],
            "polygons_count": np.diff(index.polygon_offsets),
            "vertices": index.vertices,
            "vertices_offset": index.vertex_offsets[:-1],
            "vertices_count": np.diff(index.vertex_offsets),
        }
    if ids:
        arrays["original_ids"] = index.ids
    try:
        for name, one in arrays.items():
            length = one.size if name == "boxes" else len(one)
            _write(os.path.join(folder, name + ".dat"), np.uint32(length).tobytes() + one.tobytes())
        _write(os.path.join(folder, "filenames.dat"), b"".join(name + b"\n" for name in index.names))
    except OSError as error:
        raise RuntimeError(f'{op}: the preprocessed annotations cannot be written to "{folder}": {error.strerror}') from None


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def load(op: str, folder: str, polygons: bool, ids: bool) -> CocoIndex:
    """Read what :func:`save` or DALI wrote. RuntimeError for files that do not fit together."""

    def read(name: str, dtype: Any, columns: int = 0) -> np.ndarray:
        path = f"{folder}/{name}.dat"
        with open_file(op, "preprocessed_annotations", path) as file:
            content = file.read()
        given = int(np.frombuffer(content[:4], np.uint32)[0]) if len(content) >= 4 else -1
        body = len(content) - 4
        size = given if name == "boxes" else given * max(columns, 1)
        if given < 0 or body != size * np.dtype(dtype).itemsize or size % max(columns, 1):
            raise RuntimeError(f'{op}: "{path}" is damaged: {body} bytes do not hold {given} elements')
        values = np.frombuffer(content[4:], dtype)
        return values.reshape(-1, columns) if columns else values

    def ranges(first: str, count: str, dtype: Any, rows: int) -> np.ndarray:
        begin, counts = read(first, dtype).astype(np.int64), read(count, dtype).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        if len(begin) != images or (counts < 0).any() or offsets[-1] != rows or not np.array_equal(begin, offsets[:-1]):
            raise RuntimeError(f'{op}: the preprocessed annotations in "{folder}" do not fit together: {first}.dat and {count}.dat')
        return offsets

    with open_file(op, "preprocessed_annotations", f"{folder}/filenames.dat") as file:
        names = file.read().split(b"\n")[:-1]
    images = len(names)
    boxes, labels = read("boxes", np.float32, 4), read("labels", np.int32)
    if len(labels) != len(boxes):
        raise RuntimeError(f'{op}: the preprocessed annotations in "{folder}" do not fit together: {len(boxes)} boxes and {len(labels)} labels')
    offsets = ranges("offsets", "counts", np.int32, len(boxes))
    image_ids = read("original_ids", np.int32) if ids else np.zeros(images, np.int32)
    if len(image_ids) != images:
        raise RuntimeError(f'{op}: the preprocessed annotations in "{folder}" do not fit together: {images} images and {len(image_ids)} numbers')
    made = CocoIndex(names, image_ids, np.zeros((images, 2), np.int32), offsets, boxes, labels)
    if polygons:
        made.polygons, made.vertices = read("polygon_data", np.int32, 3), read("vertices", np.float32, 2)
        made.polygon_offsets = ranges("polygon_offset", "polygons_count", np.int64, len(made.polygons))
        made.vertex_offsets = ranges("vertices_offset", "vertices_count", np.int64, len(made.vertices))
    return made
