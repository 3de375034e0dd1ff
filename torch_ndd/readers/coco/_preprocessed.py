# SPDX-License-Identifier: Apache-2.0
"""COCO annotations in DALI's preprocessed files: one file per array, preceded by its number of elements as uint32."""

import os
from typing import Any

import numpy as np

from ..._core.process.files import write_whole
from ...io._urls import open_file
from ._index import COUNTS, NOTHING, POLYGONS, CocoIndex, Masks, Polygons, Wanted, gather_ranges, offsets_of, polygons_of

_LARGEST = 2**32 - 1  # run length


def save(op: str, folder: str, index: CocoIndex, ids: bool) -> None:
    """Write an index in the format that DALI reads and writes."""
    counts = np.diff(index.offsets)
    arrays = {"offsets": index.offsets[:-1].astype(np.int32), "counts": counts.astype(np.int32), "boxes": index.boxes, "labels": index.labels}
    found = None
    if index.masks is not None:
        try:
            found = _polygons_to_save(index, index.masks, arrays)
        except ValueError as error:
            raise RuntimeError(f"{op}: the masks cannot be preprocessed: {error}") from None
    elif index.polygon_offsets is not None and index.vertex_offsets is not None:
        found = Polygons(index.polygons, index.polygon_offsets, index.vertices, index.vertex_offsets)
    if found is not None:
        arrays |= {
            "polygon_data": found.rows,
            "polygon_offset": found.offsets[:-1],
            "polygons_count": np.diff(found.offsets),
            "vertices": found.vertices,
            "vertices_offset": found.vertex_offsets[:-1],
            "vertices_count": np.diff(found.vertex_offsets),
        }
    if ids:
        if index.ids.dtype != np.int32:
            raise RuntimeError(f"{op}: preprocessed annotations have image ids of 32 bits, and these need 64; leave image_ids out")
        arrays["original_ids"] = index.ids
    try:
        for name, array in arrays.items():
            # DALI counts boxes by their numbers, four each, all other arrays by their rows.
            length = array.size if name == "boxes" else len(array)
            write_whole(os.path.join(folder, name + ".dat"), np.uint32(length).tobytes() + array.tobytes())
        if index.masks is not None:
            write_whole(os.path.join(folder, "masks_rles.dat"), _run_lengths(index, index.masks))
        write_whole(os.path.join(folder, "filenames.dat"), b"".join(name + b"\n" for name in index.names))
    except OSError as error:
        raise RuntimeError(f'{op}: the preprocessed annotations cannot be written to "{folder}": {error.strerror}') from None


def _polygons_to_save(index: CocoIndex, masks: Masks, arrays: dict[str, np.ndarray]) -> Polygons:
    """Write which annotations have run lengths, and return the polygons of the others."""
    rows = _rows_in_lengths(masks)
    owner = np.repeat(np.arange(len(index.sizes)), np.diff(index.offsets))[rows]
    counts = np.bincount(owner, minlength=len(index.sizes)).astype(np.int64)
    heights, widths = np.ascontiguousarray(index.sizes.T)
    arrays |= {"heights": heights, "widths": widths, "masks_offset": np.cumsum(counts) - counts, "mask_count": counts}
    arrays["masks_rles_idx"] = (rows - index.offsets[owner]).astype(np.int32)
    of_row = np.repeat(np.arange(len(masks.kinds)), np.diff(masks.part_offsets))
    chosen = np.flatnonzero(masks.kinds[of_row] == POLYGONS)
    return polygons_of(index.offsets, masks.values, of_row[chosen], masks.value_offsets[:-1][chosen], np.diff(masks.value_offsets)[chosen])


def _rows_in_lengths(masks: Masks) -> np.ndarray:
    return np.flatnonzero((masks.kinds != NOTHING) & (masks.kinds != POLYGONS))


def _run_lengths(index: CocoIndex, masks: Masks) -> bytes:
    """Write the height, width and count of each as int64, followed by the lengths."""
    rows = _rows_in_lengths(masks)
    parts = [np.uint32(len(rows)).tobytes()]
    for row in rows.tolist():
        counts = masks.lengths(row)
        # DALI stores lengths as uint32.
        parts += [np.array([*masks.sizes[row], len(counts)], np.int64).tobytes(), (counts & _LARGEST).astype(np.uint32).tobytes()]
    return b"".join(parts)


def load(op: str, folder: str, wanted: Wanted, ids: bool) -> CocoIndex:
    """Read the files of :func:`save` or DALI. Raise RuntimeError if they are inconsistent."""
    return _Folder(op, folder).index(wanted, ids)


class _Folder:
    def __init__(self, op: str, path: str) -> None:
        self.op, self.path = op, path
        self.images = 0

    def index(self, wanted: Wanted, ids: bool) -> CocoIndex:
        names = self._content("filenames").split(b"\n")[:-1]
        self.images = images = len(names)
        boxes, labels = self._array("boxes", np.float32, 4), self._array("labels", np.int32)
        if len(labels) != len(boxes):
            raise self._unfit(f"{len(boxes)} boxes and {len(labels)} labels")
        offsets = self._ranges("offsets", "counts", np.int32, len(boxes))
        image_ids = self._array("original_ids", np.int32) if ids else np.zeros(images, np.int32)
        if len(image_ids) != images:
            raise self._unfit(f"{images} images and {len(image_ids)} numbers")
        index = CocoIndex(names, image_ids, np.zeros((images, 2), np.int32), offsets, boxes, labels)
        if wanted.polygons:
            found = self._polygons()
            index.polygons, index.polygon_offsets = found.rows, found.offsets
            index.vertices, index.vertex_offsets = found.vertices, found.vertex_offsets
        elif wanted.pixelwise:
            heights, widths = self._array("heights", np.int32), self._array("widths", np.int32)
            if len(heights) != images or len(widths) != images or (images and min(heights.min(), widths.min()) <= 0):
                raise self._unfit("heights.dat and widths.dat")
            index.sizes = np.stack([heights, widths], 1)
            index.masks = self._masks(offsets)
        return index

    def _polygons(self) -> Polygons:
        rows, vertices = self._array("polygon_data", np.int32, 3), self._array("vertices", np.float32, 2)
        offsets = self._ranges("polygon_offset", "polygons_count", np.int64, len(rows))
        return Polygons(rows, offsets, vertices, self._ranges("vertices_offset", "vertices_count", np.int64, len(vertices)))

    def _masks(self, offsets: np.ndarray) -> Masks:
        polygons = self._polygons()
        image = np.repeat(np.arange(self.images), np.diff(polygons.offsets))
        number, first, last = polygons.rows.T.astype(np.int64)
        if (first < 0).any() or (last < first).any() or (last > np.diff(polygons.vertex_offsets)[image]).any():
            raise self._unfit("polygon_data.dat and vertices.dat")
        rows = self._rows(offsets, image, number, "polygon_data")
        begin, length = (polygons.vertex_offsets[image] + first) * 2, (last - first) * 2

        # A folder without run lengths may lack the files that describe them.
        of_lengths = self._array("masks_rles_idx", np.int32) if self._array("mask_count", np.int64).any() else np.zeros(0, np.int32)
        by_image = self._ranges("masks_offset", "mask_count", np.int64, len(of_lengths))
        rows_in_lengths = self._rows(offsets, np.repeat(np.arange(self.images), np.diff(by_image)), of_lengths, "masks_rles_idx")
        shapes, lengths, ends = self._run_lengths(len(of_lengths))

        annotations = int(offsets[-1])
        kinds, sizes = np.full(annotations, NOTHING, np.uint8), np.zeros((annotations, 2), np.int32)
        # Run lengths overwrite polygons, which the check below detects.
        kinds[rows], kinds[rows_in_lengths] = POLYGONS, COUNTS
        sizes[rows_in_lengths] = shapes
        if (kinds[rows] != POLYGONS).any() or len(np.unique(rows_in_lengths)) < len(rows_in_lengths):
            raise self._unfit("an annotation has several masks")
        # Polygons and run lengths become parts of one table, sorted by annotation.
        values = np.concatenate([polygons.vertices.ravel().astype(np.float64), lengths])
        rows = np.concatenate([rows, rows_in_lengths])
        begin = np.concatenate([begin, polygons.vertices.size + ends[:-1]])
        length = np.concatenate([length, np.diff(ends)])
        order = np.argsort(rows, kind="stable")
        part_offsets = offsets_of(np.cumsum(np.bincount(rows, minlength=annotations)))
        value_offsets = offsets_of(np.cumsum(length[order]))
        return Masks(
            kinds, gather_ranges(values, begin[order], length[order]), value_offsets, part_offsets, b"", np.zeros(annotations + 1, np.int64), sizes
        )

    def _rows(self, offsets: np.ndarray, image: np.ndarray, number: np.ndarray, name: str) -> np.ndarray:
        """Return the annotations with these numbers in their images."""
        if (number < 0).any() or (number >= np.diff(offsets)[image]).any():
            raise self._unfit(f"{name}.dat and counts.dat")
        return offsets[image] + number

    def _run_lengths(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the height and width of each mask, all lengths, and where those of each begin."""
        content, at = self._content("masks_rles") if count else b"\0\0\0\0", 4
        shapes, parts = np.zeros((count, 2), np.int32), []
        for k in range(count):
            # Padding with 0xff makes a truncated header negative, which the check rejects.
            height, width, length = np.frombuffer(content[at : at + 24].ljust(24, b"\xff"), np.int64).tolist()
            at += 24
            if not (0 <= height < 2**31 and 0 <= width < 2**31 and 0 <= length <= (len(content) - at) // 4):
                break
            shapes[k] = height, width
            parts.append(np.frombuffer(content, np.uint32, length, at).astype(np.float64))
            at += length * 4
        if len(parts) != count or at != len(content) or int.from_bytes(content[:4], "little") != count:
            raise RuntimeError(f'{self.op}: "{self.path}/masks_rles.dat" is damaged: it does not hold {count} masks')
        return shapes, np.concatenate([np.zeros(0), *parts]), offsets_of(np.cumsum([len(part) for part in parts], dtype=np.int64))

    def _content(self, name: str) -> bytes:
        with open_file(self.op, "preprocessed_annotations", f"{self.path}/{name}.dat") as file:
            return file.read()

    def _array(self, name: str, dtype: Any, columns: int = 0) -> np.ndarray:
        content = self._content(name)
        stored = int(np.frombuffer(content[:4], np.uint32)[0]) if len(content) >= 4 else -1
        # The count in the file must match its size exactly: it decides how much is read.
        body = len(content) - 4
        size = stored if name == "boxes" else stored * max(columns, 1)
        if stored < 0 or body != size * np.dtype(dtype).itemsize or size % max(columns, 1):
            raise RuntimeError(f'{self.op}: "{self.path}/{name}.dat" is damaged: {body} bytes do not hold {stored} elements')
        values = np.frombuffer(content[4:], dtype)
        return values.reshape(-1, columns) if columns else values

    def _ranges(self, first: str, count: str, dtype: Any, rows: int) -> np.ndarray:
        begin, counts = self._array(first, dtype).astype(np.int64), self._array(count, dtype).astype(np.int64)
        offsets = offsets_of(np.cumsum(counts))
        if len(begin) != self.images or (counts < 0).any() or offsets[-1] != rows or not np.array_equal(begin, offsets[:-1]):
            raise self._unfit(f"{first}.dat and {count}.dat")
        return offsets

    def _unfit(self, what: str) -> RuntimeError:
        return RuntimeError(f'{self.op}: the preprocessed annotations in "{self.path}" do not fit together: {what}')
