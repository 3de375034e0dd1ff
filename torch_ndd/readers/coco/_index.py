# SPDX-License-Identifier: Apache-2.0
"""COCO annotations as arrays: read from JSON, and read from or written to DALI's preprocessed files."""

import ctypes
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..._core import native
from ..._core.process.files import text_of
from ...io._urls import open_file

# Kinds of masks: none, run lengths as numbers, run lengths in COCO's compressed text, polygons.
NOTHING, COUNTS, TEXT, POLYGONS = (native.numbers("coco.MaskKind")[name] for name in ("nothing", "counts", "text", "polygons"))


@dataclass
class CocoIndex:
    """Images in reading order, with the annotations of each: rows ``offsets[i]`` to ``offsets[i + 1]``."""

    names: list[bytes]
    ids: np.ndarray  # int32 (images,), or int64 where they do not fit
    sizes: np.ndarray  # int32 (images, 2): height, width; 0 where the file does not give them
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
    """The mask of each annotation, as stored in the file."""

    kinds: np.ndarray  # uint8 (annotations,)
    values: np.ndarray  # float64: coordinates of polygons, run lengths
    value_offsets: np.ndarray  # per part: a polygon or a list of run lengths
    part_offsets: np.ndarray  # per annotation
    text: bytes
    text_offsets: np.ndarray  # per annotation
    sizes: np.ndarray  # int32 (annotations, 2), of masks in run lengths

    def lengths(self, row: int) -> np.ndarray:
        """Return the run lengths of an annotation. Raise ValueError if their text is damaged."""
        if self.kinds[row] == TEXT:
            return run_lengths(self.text[self.text_offsets[row] : self.text_offsets[row + 1]])
        return np.concatenate([np.zeros(0), *self.parts(row)]).astype(np.int64)

    def parts(self, row: int) -> list[np.ndarray]:
        """Return the polygons or the run lengths of an annotation."""
        first, last = self.part_offsets[row : row + 2]
        return [self.values[self.value_offsets[k] : self.value_offsets[k + 1]] for k in range(first, last)]


@dataclass
class Wanted:
    """The annotations that a reader needs."""

    ltrb: bool
    ratio: bool
    size_threshold: float
    include_iscrowd: bool
    skip_empty: bool
    avoid_class_remapping: bool
    polygons: bool
    pixelwise: bool
    images: list[bytes] | None


_FLAGS = native.numbers("coco.Flags")
_SYNTAX, _INVALID = (native.numbers("json.Error")[name] for name in ("Syntax", "Invalid"))
_COLUMN_NUMBERS = native.numbers("coco.Column")
_MISSING = np.iinfo(np.int64).min
# Element types; int64 for all other columns.
_COLUMN_TYPES = {"names": np.uint8, "boxes": np.float32, "crowds": np.uint8, "kinds": np.uint8, "values": np.float64, "texts": np.uint8}


class _Columns(NamedTuple):
    """A parsed JSON file; `*_ends` hold cumulative counts over the first k rows."""

    names: np.ndarray
    name_ends: np.ndarray
    ids: np.ndarray
    heights: np.ndarray
    widths: np.ndarray
    boxes: np.ndarray  # float32, 4 per annotation
    images: np.ndarray  # of each annotation
    labels: np.ndarray
    crowds: np.ndarray
    categories: np.ndarray
    kinds: np.ndarray
    values: np.ndarray
    value_ends: np.ndarray
    part_ends: np.ndarray
    texts: np.ndarray
    text_ends: np.ndarray
    sizes: np.ndarray


def from_json(op: str, path: str, wanted: Wanted) -> CocoIndex:
    """Return the index of a JSON file. Raise RuntimeError or ValueError for a file that is not COCO."""
    flags = _FLAGS["read_polygons"] * wanted.polygons | _FLAGS["read_masks"] * wanted.pixelwise
    flags |= _FLAGS["read_categories"] * (not wanted.avoid_class_remapping) | _FLAGS["read_crowds"] * (not wanted.include_iscrowd)
    with open_file(op, "annotations_file", path) as file:
        content = text_of(file.read())
    handle = native.coco_parse(content, len(content), flags)
    try:
        kind, reason = native.coco_error_kind(handle), native.coco_error(handle).decode(errors="replace")
        if kind == _SYNTAX:
            raise RuntimeError(f'{op}: annotations_file "{path}" is not valid JSON: {reason}')
        if kind == _INVALID:
            raise ValueError(f'{op}: Invalid COCO annotation in "{path}": {reason}')
        if kind > _INVALID:
            raise RuntimeError(f'{op}: annotations_file "{path}" is not a COCO file: {reason}')
        # The parser has copied what it needs; a file of hundreds of megabytes need not stay.
        del content
        return _build_index(
            _Columns(**{name: _column(handle, number, _COLUMN_TYPES.get(name, np.int64)) for name, number in _COLUMN_NUMBERS.items()}), wanted
        )
    # Other ValueErrors are bugs here, and keep their traceback.
    except _Invalid as error:
        raise ValueError(f'{op}: Invalid COCO annotation in "{path}": {error}') from None
    finally:
        native.coco_release(handle)


class _Invalid(ValueError):
    pass


def _column(handle: int, number: int, dtype: Any) -> np.ndarray:
    """Return a view of the parser's memory, valid until the handle is released."""
    place = ctypes.c_void_p()
    count = native.coco_column(handle, number, ctypes.byref(place))
    if not count:
        return np.empty(0, dtype)
    # All that _build_index keeps is a copy: the view ends with the handle.
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(place.value or 0), dtype)


def gather_ranges(values: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate ranges of values."""
    begins, lengths = np.ascontiguousarray(begins, np.int64), np.ascontiguousarray(lengths, np.int64)
    output = np.empty(int(lengths.sum()), values.dtype)
    native.gather(values.ctypes.data, values.itemsize, begins.ctypes.data, lengths.ctypes.data, len(begins), output.ctypes.data)
    return output


def _build_index(columns: _Columns, wanted: Wanted) -> CocoIndex:
    ids, packed = columns.ids, columns.names.tobytes()
    ends = [0, *columns.name_ends.tolist()]
    names = [packed[begin:end] for begin, end in pairwise(ends)]
    sizes = np.stack([columns.heights, columns.widths], 1)
    if wanted.images is None:
        order = np.argsort(ids, kind="stable")
    else:
        place = {name: k for k, name in enumerate(names)}
        order = np.array([place[name] for name in wanted.images if name in place], np.int64)
    if (wanted.ratio or wanted.pixelwise) and order.size and sizes[order].min() <= 0:
        raise _Invalid("images need a width and a height for ratio and pixelwise_masks")
    boxes = columns.boxes.reshape(-1, 4)
    # Minus infinity marks a missing box, which passes a threshold of minus infinity; NaN fails the comparison.
    kept = (boxes[:, 2:] >= np.float32(wanted.size_threshold)).all(1) & (boxes[:, 2] > -np.inf)
    if not wanted.include_iscrowd:
        kept &= columns.crowds == 0
    annotations = np.flatnonzero(kept)
    image_of = columns.images[annotations]
    if (image_of == _MISSING).any():
        raise _Invalid(f"image_id is missing in annotation {annotations[np.argmin(image_of)]}")

    # Annotations grouped by image, in file order.
    by_id = np.argsort(image_of, kind="stable")
    ordered = image_of[by_id]
    # Annotations sorted by image id: those of an image are between two binary searches.
    first, last = np.searchsorted(ordered, ids[order], "left"), np.searchsorted(ordered, ids[order], "right")
    if wanted.skip_empty:
        order, first, last = order[first < last], first[first < last], last[first < last]
    offsets, places = spans(first, last - first)
    rows = annotations[by_id[places]]
    sizes = sizes[order]
    owner = np.repeat(np.arange(len(order)), np.diff(offsets))
    index = CocoIndex(
        [names[k] for k in order.tolist()],
        ids[order].astype(np.int32 if _fit_32_bits(ids[order]) else np.int64),
        sizes.astype(np.int32),
        offsets,
        _convert_boxes(boxes[rows], sizes[owner], wanted),
        _labels(columns, wanted)[rows].astype(np.int32),
    )
    if wanted.polygons:
        _, *parts = _parts(columns, rows)
        found = polygons_of(offsets, columns.values, *parts)
        if wanted.ratio:
            found.vertices /= np.repeat(sizes[:, ::-1].astype(np.float32), np.diff(found.vertex_offsets), 0)
        index.polygons, index.polygon_offsets, index.vertices, index.vertex_offsets = found.rows, found.offsets, found.vertices, found.vertex_offsets
    if wanted.pixelwise:
        index.masks = _masks(columns, rows)
    return index


def _fit_32_bits(values: np.ndarray) -> bool:
    limits = np.iinfo(np.int32)
    return not len(values) or (values.min() >= limits.min and values.max() <= limits.max)


def _labels(columns: _Columns, wanted: Wanted) -> np.ndarray:
    if wanted.avoid_class_remapping:
        if not _fit_32_bits(columns.labels):
            raise _Invalid("category_id does not fit into 32 bits; with avoid_class_remapping=False labels are counted")
        return columns.labels
    if (columns.categories == _MISSING).any():
        raise _Invalid("id is missing in a category")
    # Labels count from 1 in the order of the categories; 0 stands for a category that is not listed.
    known = {category: k + 1 for k, category in enumerate(columns.categories.tolist())}
    distinct, inverse = np.unique(columns.labels, return_inverse=True)
    return np.array([known.get(category, 0) for category in distinct.tolist()], np.int64)[inverse]


def _convert_boxes(boxes: np.ndarray, sizes: np.ndarray, wanted: Wanted) -> np.ndarray:
    if wanted.ltrb:
        boxes[:, 2:] += boxes[:, :2]
    if wanted.ratio:
        boxes /= sizes[:, [1, 0, 1, 0]].astype(np.float32)
    return np.ascontiguousarray(boxes)


def offsets_of(ends: np.ndarray) -> np.ndarray:
    """Return the start of each of several ranges, and the end of the last one."""
    return np.concatenate([np.zeros(1, np.int64), ends])


def _parts(columns: _Columns, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return where the parts of each of `rows` begin, and for each part the position of its row in `rows`, its start and its length."""
    of_row = offsets_of(columns.part_ends)
    offsets, parts = spans(of_row[rows], of_row[rows + 1] - of_row[rows])
    begin = offsets_of(columns.value_ends)
    return offsets, np.repeat(np.arange(len(rows)), np.diff(offsets)), begin[parts], begin[parts + 1] - begin[parts]


@dataclass
class Polygons:
    """Polygons of all images; `offsets` and `vertex_offsets` are per image."""

    rows: np.ndarray  # int32 (polygons, 3): number of the annotation in its image, first and last vertex among those of the image
    offsets: np.ndarray
    vertices: np.ndarray  # float32 (vertices, 2)
    vertex_offsets: np.ndarray


def polygons_of(annotations: np.ndarray, values: np.ndarray, of_row: np.ndarray, begin: np.ndarray, lengths: np.ndarray) -> Polygons:
    """Build from parts: the annotation of each, the start of its values and their number. `annotations`: where those of each image begin."""
    # From the annotation of each part to its image.
    owner = np.repeat(np.arange(len(annotations) - 1), np.diff(annotations))[of_row]
    counts = lengths // 2
    offsets = offsets_of(np.cumsum(np.bincount(owner, minlength=len(annotations) - 1)))
    ends = offsets_of(np.cumsum(counts))
    # Vertices count from 0 in each image.
    first = ends[:-1] - ends[offsets][owner]
    # Coordinates beyond float32 become infinite, without a warning.
    with np.errstate(over="ignore"):
        vertices = gather_ranges(values, begin, counts * 2).astype(np.float32).reshape(-1, 2)
    rows = np.stack([of_row - annotations[owner], first, first + counts], 1).astype(np.int32).reshape(-1, 3)
    return Polygons(rows, offsets, vertices, ends[offsets])


def _masks(columns: _Columns, rows: np.ndarray) -> Masks:
    part_offsets, _, begin, lengths = _parts(columns, rows)
    of_text = offsets_of(columns.text_ends)
    characters = of_text[rows + 1] - of_text[rows]
    return Masks(
        columns.kinds[rows],
        gather_ranges(columns.values, begin, lengths),
        offsets_of(np.cumsum(lengths)),
        part_offsets,
        gather_ranges(columns.texts, of_text[rows], characters).tobytes(),
        offsets_of(np.cumsum(characters)),
        columns.sizes.astype(np.int32).reshape(-1, 2)[rows],
    )


def spans(first: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets of several ranges after concatenation, and all their indices.

    >>> spans(np.array([7, 2]), np.array([2, 3]))
    (array([0, 2, 5]), array([7, 8, 2, 3, 4]))
    """
    offsets = np.concatenate([[0], np.cumsum(counts)])
    # Index i of a range is i plus the distance between where it begins and where it lands.
    return offsets, np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], counts)


def run_lengths(text: bytes) -> np.ndarray:
    """Decode run lengths from COCO's compressed form: 5 bits per character, each from the third on relative to the one before the last."""
    counts: list[int] = []
    k = 0
    while k < len(text):
        value, shift, more = 0, 0, True
        while more:
            if k == len(text) or not 48 <= text[k] < 112 or shift > 30:
                raise ValueError("the compressed run lengths of a mask are damaged")
            digit = text[k] - 48
            value |= (digit & 0x1F) << shift
            more, shift, k = bool(digit & 0x20), shift + 5, k + 1
            # The fifth bit of the last character is the sign.
            if not more and digit & 0x10:
                value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    return np.array(counts, np.int64)
