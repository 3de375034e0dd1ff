# SPDX-License-Identifier: Apache-2.0
"""``from_albumentations``: a function of batches from a composition of Albumentations."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from .._core.context.device import DeviceLike
from .._core.context.rng import RNG, at_batch
from .._core.native.default_device import ignore_default_device
from .._core.values.batch import Batch, as_batch
from ..decoders.image import image as decode_image
from ..ops.generic.convert import cast
from ..ops.shape.reshape import expand_dims, squeeze
from ..torchvision._draws import Draws
from ._check import check_step
from ._containers import CONTAINERS
from ._conversions import Normalize
from ._levels import RGBShift
from ._registry import REFUSED, STEPS
from ._rows import Boxes, Points, write_rows
from ._sample import OP, Sample
from ._step import Step, refuse

_KINDS = ("image", "mask", "bboxes", "keypoints")
_REFUSED_TARGETS = ("images", "masks", "volume", "volumes", "mask3d", "masks3d")


@ignore_default_device
def from_albumentations(transform: Any, *, check: bool = True, device: DeviceLike | None = None, adjust_orientation: bool = False) -> Any:
    """Return a function of batches that does to each sample what a transform of Albumentations does to one.

    The function takes the targets by name, as Albumentations does, and returns them in a dict: ``fn(image=images, mask=masks, bboxes=boxes,
    keypoints=points, labels=labels)``. Images are ``HWC`` of any sizes, uint8 or float32, or encoded files, which are decoded to RGB; masks ``HW`` or
    ``HWC``; boxes and points a Batch with the rows of each sample, and their label fields a Batch with an item for each row. In a loader, the images
    may be the first positional argument: ``fn(files, labels)`` returns them changed, and the other arguments as they are.

    All parameters are drawn for each sample, with the original's distributions and probabilities. With the same parameters the pixels equal the
    original's within one level. The numbers come from torch_ndd's generator, or from one of the Compose's ``seed``. In a loader they are those of the
    batch's place in the epoch, so a loader resumes exactly; elsewhere ``fn.state_dict()`` has the position of the generator of the ``seed``.

    Args:
        transform: a ``Compose``, with its ``bbox_params``, ``keypoint_params`` and ``additional_targets``; another composition; or one transform.
        check: run every transform and its translation on small images with the same parameters, and raise RuntimeError if they differ: another
            version of Albumentations or OpenCV cannot change pixels unnoticed.
        device: where files are decoded. Images are transformed where they are; transforms of colors have the CPU's pixels on a GPU too.
        adjust_orientation: rotate files by their EXIF orientation. Boxes usually refer to the pixels as they are stored.

    Raises:
        TypeError: a transform that is not translated, or is not one of Albumentations'; the message says why.
        ValueError: a setting that is not translated, such as another interpolation.
        RuntimeError: the check found a difference.

    >>> import albumentations as A
    >>> fn = from_albumentations(A.Compose([A.RandomCrop(24, 24), A.HorizontalFlip(), A.Normalize()]))
    >>> fn(batch(torch.zeros(2, 40, 60, 3, dtype=torch.uint8), layout="HWC")).shape
    [(24, 24, 3), (24, 24, 3)]
    """
    return BatchCompose(transform, check, device, adjust_orientation)


class BatchCompose:
    """The result of :func:`from_albumentations`."""

    def __init__(self, transform: Any, check: bool, device: DeviceLike | None, adjust_orientation: bool) -> None:
        # Only a Compose has them; other compositions and single transforms change images and masks alone.
        processors = getattr(transform, "processors", None) or {}
        is_compose = _name_of(transform) == "Compose"
        self._boxes = Boxes(processors["bboxes"].params) if is_compose and "bboxes" in processors else None
        self._points = Points(processors["keypoints"].params) if is_compose and "keypoints" in processors else None
        additional = dict(transform.additional_targets) if is_compose else {}
        if unknown := sorted({kind for kind in additional.values() if kind not in _KINDS}):
            raise refuse(transform, f"additional_targets of {', '.join(unknown)}", f"targets are {', '.join(_KINDS)}")
        self._kinds = {**dict(zip(_KINDS, _KINDS, strict=True)), **additional}
        self._device, self._orientation = device, adjust_orientation
        self._checks_shapes = bool(getattr(transform, "is_check_shapes", True))
        # With a seed the Compose draws from a generator of its own; without one, from the thread's, which loaders save.
        seed = getattr(transform, "seed", None)
        self._rng = None if seed is None else RNG(int(seed))
        self._run: Any = _translate(transform, self._filter_each)
        if check:
            for step in _steps_of(self._run):
                check_step(step)

    @ignore_default_device
    def __call__(self, *inputs: Any, **targets: Any) -> Any:
        """Transform batches: targets by name, or the images as the first argument."""
        if not inputs:
            return self._transform(targets)
        if targets:
            raise TypeError(f"{OP}: pass all targets by name, or only positional arguments, the images first")
        output = self._transform({"image": inputs[0]})["image"]
        return output if len(inputs) == 1 else (output, *inputs[1:])

    def _transform(self, targets: dict[str, Any]) -> dict[str, Any]:
        self._check_names(targets)
        sample, flat_masks = self._read(targets)
        for params, name in ((self._boxes, "bboxes"), (self._points, "keypoints")):
            if params is None and any(self._kinds.get(target) == name for target in targets):
                raise ValueError(f"{OP}: {name} need {'bbox' if name == 'bboxes' else 'keypoint'}_params of the Compose")
        if sample.count == 0:
            return self._convert_empty(targets, sample, flat_masks)
        labels = self._read_labels(targets, sample)
        with nullcontext() if self._rng is None else at_batch(self._rng) as rng:
            changed = self._filter(self._run(sample, Draws(sample.count, rng)))
        outputs = {**targets, **changed.images, **_drop_channels(changed.masks, flat_masks)}
        for params, all_rows in ((self._boxes, changed.boxes), (self._points, changed.points)):
            for name, rows in all_rows.items():
                # Integer coordinates become float32: the transforms move them by fractions.
                dtype = targets[name].dtype
                outputs[name] = params.write(rows, changed, dtype if dtype.is_floating_point else torch.float32)  # type: ignore[union-attr]
        for field, (name, values) in labels.items():
            # A label follows its row: rows that were filtered out take their labels with them.
            rows = (changed.boxes if name in changed.boxes else changed.points)[name]
            outputs[field] = write_rows(values[rows.origins], rows.owners, changed.count)
        return outputs

    def _convert_empty(self, targets: dict[str, Any], sample: Sample, flat_masks: set[str]) -> dict[str, Any]:
        """Return empty targets with the types and layouts of non-empty ones. Only conversions run: the number of channels is unknown."""
        changed = self._run.convert_empty(sample)
        coordinates = {name: targets[name] for name in (*sample.boxes, *sample.points) if not targets[name].dtype.is_floating_point}
        converted = {name: cast(values, dtype=torch.float32) for name, values in coordinates.items()}
        return {**targets, **changed.images, **_drop_channels(changed.masks, flat_masks), **converted}

    def _check_names(self, targets: dict[str, Any]) -> None:
        if "image" not in targets:
            raise TypeError(f"{OP}: the images are missing; pass image=images, a Batch of HWC images or encoded files")
        for name in targets:
            if name in _REFUSED_TARGETS:
                raise TypeError(f"{OP}: the target {name!r} is not translated; targets are {', '.join(_KINDS)} and additional targets of these kinds")

    def _read(self, targets: dict[str, Any]) -> tuple[Sample, set[str]]:
        """Return the targets as a sample, and the names of masks without channels."""
        images, masks, flat = {}, {}, set()
        for name, value in targets.items():
            kind = self._kinds.get(name)
            if kind in ("image", "mask") and not isinstance(value, Batch):
                raise TypeError(f"{OP}: {name} must be a Batch, got {type(value).__name__}; make one with ndd.as_batch(arrays, layout='HWC')")
            if kind == "image":
                images[name] = self._read_images(name, value)
            elif kind == "mask":
                masks[name], is_flat = _read_masks(name, value)
                flat |= {name} if is_flat else set()
        # First, because its sizes decide those of all other targets.
        images = {"image": images.pop("image"), **images}
        sample = Sample(images, masks)
        self._check_shapes({**images, **masks})
        boxes = {name: self._boxes.read(name, value, sample) for name, value in targets.items() if self._boxes and self._kinds.get(name) == "bboxes"}
        points = {
            name: self._points.read(name, value, sample) for name, value in targets.items() if self._points and self._kinds.get(name) == "keypoints"
        }
        return Sample(images, masks, boxes, points), flat

    def _read_images(self, name: str, images: Batch) -> Batch:
        if images.ndim == 1 and images.dtype is torch.uint8:
            return decode_image(images, device=self._device, adjust_orientation=self._orientation)
        if images.ndim != 3 or images.layout not in (None, "HWC"):
            raise ValueError(f'{OP}: {name} must be HWC images or encoded files, got the layout "{images.layout}" with {images.ndim} dimensions')
        if images.dtype is not torch.uint8 and images.dtype is not torch.float32:
            raise TypeError(f"{OP}: {name} must be uint8 or float32, got {images.dtype}")
        channels = images.sample_shapes()[:, 2].unique().tolist()
        if len(channels) > 1:
            raise ValueError(f"{OP}: all images of {name} must have the same number of channels, got {channels}")
        return images if images.layout else as_batch(images, layout="HWC")

    def _check_shapes(self, batches: dict[str, Batch]) -> None:
        names = list(batches)
        first = batches[names[0]].sample_shapes()
        for name in names[1:]:
            shapes = batches[name].sample_shapes()
            if len(shapes) != len(first):
                raise ValueError(f"{OP}: {name} has {len(shapes)} samples, {names[0]} has {len(first)}")
            if self._checks_shapes and not torch.equal(shapes[:, :2], first[:, :2]):
                i = int((shapes[:, :2] != first[:, :2]).any(1).nonzero()[0])
                sizes = " and ".join("x".join(map(str, rows[i, :2].tolist())) for rows in (first, shapes))
                raise ValueError(f"{OP}: {names[0]} and {name} of sample {i} differ in size: {sizes}")

    def _read_labels(self, targets: dict[str, Any], sample: Sample) -> dict[str, tuple[str, torch.Tensor]]:
        """Return for each label field the target that it belongs to, and its items."""
        labels = {}
        for params, name, all_rows in ((self._boxes, "bboxes", sample.boxes), (self._points, "keypoints", sample.points)):
            if name not in all_rows:
                continue
            for field in params.params.label_fields or ():  # type: ignore[union-attr]
                if field not in targets:
                    raise ValueError(f"{OP}: the label field {field!r} of {name} is missing; pass {field}= with an item for each row")
                labels[field] = (name, _read_items(field, targets[field], targets[name], name))
        return labels

    def _filter_each(self, sample: Sample) -> Sample:
        """Filter after a transform, with ``check_each_transform``."""
        boxes = self._boxes if self._boxes and self._boxes.params.check_each_transform else None
        points = self._points if self._points and self._points.params.check_each_transform else None
        return _filter_rows(sample, boxes, points)

    def _filter(self, sample: Sample) -> Sample:
        return _filter_rows(sample, self._boxes, self._points)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the generator of the Compose's ``seed``; without a seed an empty dict. Loaders do not need it."""
        return {} if self._rng is None else self._rng.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position. Raise ValueError for anything but the result of :meth:`state_dict` of a function with a seed, or without one."""
        if self._rng is not None:
            self._rng.load_state_dict(state)
        elif state:
            raise ValueError(f"{OP}: the state is of a Compose with a seed, but this one has none")

    def __repr__(self) -> str:
        return repr(self._run)


def _filter_rows(sample: Sample, boxes: Boxes | None, points: Points | None) -> Sample:
    if not (boxes and sample.boxes) and not (points and sample.points):
        return sample
    all_boxes = {name: boxes.filter(rows, sample) if boxes else rows for name, rows in sample.boxes.items()}
    all_points = {name: points.filter(rows, sample) if points else rows for name, rows in sample.points.items()}
    return Sample(sample.images, sample.masks, all_boxes, all_points)


def _drop_channels(masks: dict[str, Batch], flat: set[str]) -> dict[str, Batch]:
    """Return masks as they were passed: some had no channels."""
    return {name: squeeze(batch, axes=[2]) if name in flat else batch for name, batch in masks.items()}


def _read_masks(name: str, masks: Batch) -> tuple[Batch, bool]:
    """Return masks ``HWC``, and whether they had no channels."""
    if masks.ndim == 2 and masks.layout in (None, "HW"):
        return as_batch(expand_dims(masks, axes=[2]), layout="HWC"), True
    if masks.ndim == 3 and masks.layout in (None, "HWC"):
        return masks if masks.layout else as_batch(masks, layout="HWC"), False
    raise ValueError(f'{OP}: {name} must be HW or HWC, got the layout "{masks.layout}" with {masks.ndim} dimensions')


def _read_items(field: str, labels: Any, rows: Batch, name: str) -> torch.Tensor:
    """Return the labels of all rows, one after the other."""
    if not isinstance(labels, Batch):
        raise TypeError(f"{OP}: the label field {field!r} must be a Batch of numbers, got {type(labels).__name__}; number labels that are texts")
    shapes = labels.sample_shapes()
    if not shapes.shape[1] or not torch.equal(shapes[:, 0], rows.sample_shapes()[:, 0]):
        raise ValueError(f"{OP}: the label field {field!r} must have one item for each row of {name} in each sample, got the shapes {labels.shape}")
    return labels.wait().cpu().reshape(-1, *shapes[0, 1:].tolist())


# --- translation ---


def _name_of(transform: Any) -> str:
    """Return the name of a class of Albumentations; an empty text for other classes."""
    kind = type(transform)
    return kind.__name__ if kind.__module__.partition(".")[0] == "albumentations" else ""


def _translate(transform: Any, check: Callable[[Sample], Sample]) -> Any:
    """Return the step or container for a transform."""
    name = _name_of(transform)
    if name in CONTAINERS:
        children = [_translate(child, check) for child in transform.transforms]
        return CONTAINERS[name](transform, _fuse(children), check)
    # One class with several kinds of noise, one of which is a shift of colors.
    if name == "AdditiveNoise" and (transform.noise_type, transform.spatial_mode) == ("uniform", "constant"):
        return RGBShift(transform)
    if name == "AdditiveNoise" and (transform.noise_type, transform.spatial_mode) != ("gaussian", "per_pixel"):
        raise refuse(
            transform, f"{transform.noise_type!r}, {transform.spatial_mode!r}", "uniform constant and gaussian per_pixel noise have operators"
        )
    if name in STEPS:
        return STEPS[name](transform)
    if name in REFUSED:
        raise TypeError(f"{OP}: {name} is not translated: {REFUSED[name]}")
    raise TypeError(
        f"{OP}: {type(transform).__module__}.{type(transform).__qualname__} is not a transform of Albumentations 2.0.8; write its step with "
        "operators behind or in front of the translated ones"
    )


def _fuse(children: list[Any]) -> list[Any]:
    """Let Normalize write planes where ToTensorV2 follows."""
    fused: list[Any] = []
    for child in children:
        last = fused[-1] if fused else None
        # Only where both always run, and masks keep their axes.
        plain = isinstance(child, Step) and child.name == "ToTensorV2" and child.p >= 1 and not child.original.transpose_mask
        if plain and isinstance(last, Normalize) and last.p >= 1:
            fused[-1] = Normalize(last.original)
            fused[-1].planar = True
        else:
            fused.append(child)
    return fused


def _steps_of(run: Any) -> Sequence[Step]:
    """Return all steps of a composition."""
    if isinstance(run, Step):
        return [run]
    return [step for child in run.children for step in _steps_of(child)]
