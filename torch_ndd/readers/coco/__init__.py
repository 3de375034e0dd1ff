# SPDX-License-Identifier: Apache-2.0
"""Images with the boxes, labels and masks of COCO annotations."""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack, override

from ..._core.context.device import DeviceLike
from ..._core.optional import import_optional
from ..._core.process.limits import check_sample
from ..._core.process.workers import Workers, is_here
from ..._core.values.batch import Batch, new_batch
from ..._core.work.bad_samples import UnreadableSamples
from .._base import Reader
from .._options import DecodingOptions
from .._ranges.file_lists import whole_files
from .._ranges.ranges import Path, Ranges, Sources, pack_paths
from .._threads import pack_samples
from ._index import NOTHING, POLYGONS, CocoIndex, Masks, Wanted, from_json, run_lengths, spans
from ._preprocessed import load, save

# Arguments that have no effect on preprocessed annotations, so they are rejected together with them.
_PARSED = "annotations_file", "images", "ltrb", "ratio", "skip_empty", "size_threshold", "avoid_class_remapping", "save_preprocessed_annotations"


class COCO(Reader):
    """Read images and their COCO annotations.

    Outputs: image bytes, uint8 (length,); boxes, float32 (M, 4): x, y, width, height, or left, top, right, bottom with ``ltrb``; labels, int32 (M,).
    With ``polygon_masks`` also polygons, int32 (P, 3): index of the box, first and last vertex, and vertices, float32 (V, 2): x, y. With
    ``pixelwise_masks`` instead a label map, int32 (H, W, 1), 0 where there is no object and the highest label where several overlap. With
    ``object_masks`` instead a mask for each box, uint8 (M, H, W), 1 where the object is.
    With ``image_ids`` also the id, last, int32 (1,), or int64 if the ids need it. Images are sorted by id; boxes are in file order.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        annotations_file: The JSON file (path or URL).
        avoid_class_remapping: Use the category ids as labels. By default labels count from 1 in the order of ``categories``; 0 is a category that is
            not listed there.
        file_root: The folder of the images; an absolute ``file_name`` is taken as it is.
        image_ids: Add the ids to the outputs; ``save_img_ids`` is an older name.
        images: Read only these images, named as in the annotations, in this order.
        include_iscrowd: Keep annotations with ``iscrowd``; True by default.
        ltrb: Deliver boxes as left, top, right, bottom.
        masks: Like ``polygon_masks``, but polygons index coordinates, two per vertex.
        object_masks: Add a mask for each box; needs pycocotools (``torch_ndd[coco]``). Not in DALI.
        pixelwise_masks: Add label maps; needs pycocotools.
        polygon_masks: Add polygons and vertices. Run-length annotations have none.
        preprocessed_annotations: Folder written by ``save_preprocessed_annotations``, here or in DALI, to use instead of ``annotations_file``; for
            masks it must have been written with the same kind of masks. ``meta_files_path`` is an older name.
        ratio: Deliver boxes and vertices relative to the width and height of the image.
        save_preprocessed_annotations: Write such a folder when the reader starts; ``dump_meta_files`` is an older name.
        save_preprocessed_annotations_dir: The folder; ``dump_meta_files_path`` is an older name.
        size_threshold: Leave out boxes whose width or height is below this, in pixels; 0.1 by default.
        skip_empty: Leave out images without boxes.
        max_sample_bytes: The largest sample to decode, to guard against small files that declare large data; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        ValueError: a box without 4 numbers, an annotation without ``image_id``, no size where one is needed.
        RuntimeError: at the first step, for other annotations that cannot be read and for options that exclude each other; at any step, for an image
            that cannot be read.

    >>> import json, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jpg").write_bytes(b"image")
    >>> annotations = {
    ...     "images": [{"id": 7, "file_name": "a.jpg", "width": 20, "height": 10}],
    ...     "annotations": [{"image_id": 7, "category_id": 3, "bbox": [1, 2, 5, 4]}],
    ...     "categories": [{"id": 3}],
    ... }
    >>> _ = (folder / "a.json").write_text(json.dumps(annotations))
    >>> reader = COCO(annotations_file=folder / "a.json", file_root=folder, ltrb=True)
    >>> [(boxes.torch().tolist(), labels.torch().tolist()) for image, boxes, labels in reader.next_epoch()]
    [([[1.0, 2.0, 6.0, 6.0]], [1])]
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        annotations_file: Path | None = None,
        avoid_class_remapping: bool | None = None,
        dump_meta_files: bool | None = None,
        dump_meta_files_path: Path | None = None,
        file_root: Path | None = None,
        image_ids: bool | None = None,
        images: Path | Sequence[Path] | None = None,
        include_iscrowd: bool | None = None,
        ltrb: bool | None = None,
        masks: bool | None = None,
        meta_files_path: Path | None = None,
        object_masks: bool = False,
        pixelwise_masks: bool | None = None,
        polygon_masks: bool | None = None,
        preprocessed_annotations: Path | None = None,
        ratio: bool | None = None,
        save_img_ids: bool | None = None,
        save_preprocessed_annotations: bool | None = None,
        save_preprocessed_annotations_dir: Path | None = None,
        size_threshold: float | None = None,
        skip_empty: bool | None = None,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        paths = [images] if isinstance(images, str | os.PathLike) else images
        self._wanted = Wanted(
            ltrb=bool(ltrb),
            ratio=bool(ratio),
            size_threshold=0.1 if size_threshold is None else float(size_threshold),
            include_iscrowd=include_iscrowd is None or bool(include_iscrowd),
            skip_empty=bool(skip_empty),
            avoid_class_remapping=bool(avoid_class_remapping),
            polygons=bool(polygon_masks or masks),
            pixelwise=bool(pixelwise_masks or object_masks),
            images=None if paths is None else [os.fsencode(path) for path in paths],
        )
        self._legacy = bool(masks)
        self._paint = _paint_objects if object_masks else _paint
        self._both = bool(pixelwise_masks and object_masks)
        self._ids = bool(image_ids or save_img_ids)
        self._root, self._annotations = _path(file_root), _path(annotations_file)
        self._needs = {"file_root": self._root, "annotations_file": self._annotations}
        self._preprocessed = _path(preprocessed_annotations) or _path(meta_files_path)
        self._save = bool(save_preprocessed_annotations or dump_meta_files)
        self._save_to = _path(save_preprocessed_annotations_dir) or _path(dump_meta_files_path)
        values = (annotations_file, images, ltrb, ratio, skip_empty, size_threshold, avoid_class_remapping, self._save)
        self._parsed = [name for name, value in zip(_PARSED, values, strict=True) if value]
        self.index: CocoIndex | None = None
        self._ranges: Ranges | None = None
        self._painter: Workers | None = None

    @override
    def scan(self) -> int:
        if self._ranges is None:
            self._check()
            assert self._root is not None
            if self._preprocessed:
                index = load(self._op, self._preprocessed, self._wanted, self._ids)
            else:
                assert self._annotations is not None
                index = from_json(self._op, self._annotations, self._wanted)
            if not index.names:
                raise RuntimeError(f"{self._op}: No files found in {self._preprocessed or self._annotations}")
            if self._save:
                assert self._save_to is not None
                save(self._op, self._save_to, index, self._ids)
            self._ranges = whole_files(os.fsencode(self._root), *pack_paths(index.names))
            # The paths are in `_ranges` now; a list of Python strings would take several times their memory.
            index.names = []
            if self._legacy:
                # The old argument `masks` counts coordinates, of which a vertex has two.
                index.polygons = index.polygons * np.array([1, 2, 2], np.int32)
            self.index = index
        return self._ranges.size

    def _check(self) -> None:
        if self._root is None:
            raise RuntimeError(f"{self._op}: file_root is required: the folder of the images")
        if not self._annotations and not self._preprocessed:
            raise RuntimeError(f"{self._op}: Either annotations_file or preprocessed_annotations must be provided")
        if self._wanted.polygons and self._wanted.pixelwise:
            raise RuntimeError(f"{self._op}: {'pixelwise' if self._paint is _paint else 'object'}_masks and polygon_masks are mutually exclusive")
        if self._both:
            raise RuntimeError(f"{self._op}: pixelwise_masks and object_masks are mutually exclusive")
        if self._preprocessed and self._parsed:
            raise RuntimeError(f"{self._op}: {self._parsed[0]} is not supported when annotations are read from preprocessed_annotations")
        if self._save and not self._save_to:
            raise RuntimeError(f"{self._op}: save_preprocessed_annotations needs save_preprocessed_annotations_dir")
        if self._wanted.pixelwise:
            _coco_masks()

    def _source(self, sample: int) -> str:
        assert self._ranges is not None
        return self._ranges.path(sample)

    @override
    def start(self, samples: np.ndarray) -> "_Request":
        assert self._ranges is not None
        masks = []
        if self._wanted.pixelwise:
            if not is_here(self._painter):
                # Painting holds the GIL most of the time, so more threads would not help.
                self._painter = Workers(1, self._op, self)
            assert self.index is not None
            masks = [self._painter.submit(self._paint, self.index, sample, self._max_sample_bytes) for sample in samples.tolist()]
        return _Request(self._ranges.start(samples), masks, os.getpid())

    @override
    def finish(self, request: "_Request", samples: np.ndarray) -> tuple[Batch, ...]:
        index = self.index
        assert index is not None
        if request.masks and request.process != os.getpid():  # the painting threads are in the parent
            request = self.start(samples)
        images = request.images.finish()
        images.sources = Sources(self._source, samples)
        outputs = [images, _rows(index.boxes, index.offsets, samples), _rows(index.labels, index.offsets, samples)]
        if self._wanted.polygons:
            assert index.polygon_offsets is not None
            assert index.vertex_offsets is not None
            outputs += [_rows(index.polygons, index.polygon_offsets, samples), _rows(index.vertices, index.vertex_offsets, samples)]
        elif self._wanted.pixelwise:
            outputs.append(_collect_masks(request.masks, "HWC" if self._paint is _paint else None))
        if self._ids:
            outputs.append(new_batch(torch.from_numpy(index.ids[samples][:, None])))
        return tuple(outputs)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_painter": None}


class _Request(NamedTuple):
    images: Any
    masks: "list[Future[np.ndarray]]"
    process: int


def _path(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path) or None


def _rows(values: np.ndarray, offsets: np.ndarray, samples: np.ndarray) -> Batch:
    """Return the rows of an array for each sample."""
    counts = offsets[samples + 1] - offsets[samples]
    # Rows of all samples, gathered by one index array.
    chosen = torch.from_numpy(values[spans(offsets[samples], counts)[1]])
    if (counts == counts[0]).all():
        return new_batch(chosen.view(len(samples), int(counts[0]), *values.shape[1:]))
    shapes = np.empty((len(samples), values.ndim), np.int64)
    shapes[:, 0], shapes[:, 1:] = counts, values.shape[1:]
    return new_batch(chosen.view(-1), torch.from_numpy(shapes), shared_extents=(None, *values.shape[1:]))


def _collect_masks(masks: "list[Future[np.ndarray]]", layout: str | None) -> Batch:
    results, reasons = [], {}
    for k, future in enumerate(masks):
        try:
            results.append(future.result())
        except Exception as error:
            reasons[k] = f"its masks cannot be read: {error}"
    if reasons:
        raise UnreadableSamples(reasons)
    return pack_samples(results, layout)


def _coco_masks() -> Any:
    return import_optional("pycocotools.mask", "readers.COCO: pixelwise_masks need pycocotools", "coco")


def _paint(index: CocoIndex, sample: int, most: int) -> np.ndarray:
    """Return the label map of an image, int32 (H, W, 1), of at most ``most`` bytes."""
    masks = index.masks
    assert masks is not None
    height, width = _size_of(index, sample)
    check_sample(f"the label map of an image of {height} x {width} pixels has", 4 * height * width, most)
    first, last = index.offsets[sample : sample + 2].tolist()
    columns = np.zeros(width * height, np.int32)  # column by column, like the run lengths
    for row in (first + np.argsort(index.labels[first:last], kind="stable")).tolist():
        ends = np.cumsum(_lengths_of(masks, row, height, width))
        # Run lengths alternate, background first, so foreground runs are from every other end to the next one.
        for begin, end in zip(ends[:-1:2].tolist(), ends[1::2].tolist(), strict=True):
            columns[begin:end] = index.labels[row]
    return np.ascontiguousarray(columns.reshape(width, height).T)[..., None]


def _paint_objects(index: CocoIndex, sample: int, most: int) -> np.ndarray:
    """Return the masks of an image's annotations, uint8 (M, H, W), of at most ``most`` bytes."""
    masks = index.masks
    assert masks is not None
    height, width = _size_of(index, sample)
    first, last = index.offsets[sample : sample + 2].tolist()
    check_sample(f"{last - first} masks of {height} x {width} pixels have", (last - first) * height * width, most)
    columns = np.zeros((last - first, width * height), np.uint8)
    for row in range(first, last):
        # skip
        ends = np.cumsum(_lengths_of(masks, row, height, width))
        for begin, end in zip(ends[:-1:2].tolist(), ends[1::2].tolist(), strict=True):
            columns[row - first, begin:end] = 1
    return np.ascontiguousarray(columns.reshape(-1, width, height).transpose(0, 2, 1))


def _size_of(index: CocoIndex, sample: int) -> tuple[int, int]:
    """Return the height and width of an image, as the annotations state them."""
    height, width = index.sizes[sample].tolist()
    if min(height, width) < 0:
        raise ValueError(f"the annotations say that the image has {height} x {width} pixels")
    return height, width


def _lengths_of(masks: Masks, row: int, height: int, width: int) -> np.ndarray:
    """Return the run lengths of a mask, starting with background. Empty if there are none."""
    kind = masks.kinds[row]
    if kind == POLYGONS:
        # A polygon needs three vertices; pycocotools takes fewer as a box.
        polygons = [part for part in masks.parts(row) if len(part) >= 6]
        if any(not np.isfinite(part).all() or np.abs(part).max() > 1e6 for part in polygons):
            raise ValueError("a polygon goes far beyond the image")
        if not polygons:
            return np.zeros(0, np.int64)
        coco = _coco_masks()
        return run_lengths(coco.merge(coco.frPyObjects([part.tolist() for part in polygons], height, width))["counts"])
    if kind == NOTHING:
        return np.zeros(0, np.int64)
    if masks.sizes[row].tolist() != [height, width]:
        raise ValueError(f"a mask is of {masks.sizes[row].tolist()} pixels, the image of {[height, width]}")
    counts = masks.lengths(row)
    if len(counts) and (counts.min() < 0 or counts.max() > width * height or counts.sum() != width * height):
        raise ValueError(f"the run lengths of a mask do not fill its {height} x {width} pixels")
    return counts
