# SPDX-License-Identifier: Apache-2.0
"""Batches with a meaning, such as images or masks: :mod:`torch_ndd.torchvision.tv_tensors`. Needs torchvision.

Readers create them from the samples of torchvision's data sets, so this module is below the readers.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeGuard

import torch
from torch.utils import _pytree as pytree
from torchvision import tv_tensors as _single
from torchvision.tv_tensors import BoundingBoxFormat as BoundingBoxFormat
from torchvision.tv_tensors import TVTensor as TVTensor
from torchvision.tv_tensors import is_rotated_bounding_format as is_rotated_bounding_format
from torchvision.tv_tensors import set_return_type as set_return_type

from ..suggestions import check_choice
from .batch import Batch, as_batch, new_batch
from .tensor import Tensor

Sizes = "list[tuple[int, int]]"
ClampingMode = Literal["soft", "hard"] | None

wrap: Any = _single.wrap


def as_box_format(op: str, format: BoundingBoxFormat | str) -> BoundingBoxFormat:
    """Return a format of boxes from its name, in any case."""
    if not isinstance(format, str):
        return format
    check_choice(op, "format", format.upper(), BoundingBoxFormat.__members__, ValueError)
    return BoundingBoxFormat[format.upper()]


IMAGE_ENDINGS = ("HWC", "CHW")


class _Kind(type):
    """Makes torchvision's objects instances of the classes here."""

    def __instancecheck__(cls, instance: Any) -> bool:
        single = cls.__dict__.get("_single")
        return type.__instancecheck__(cls, instance) or (single is not None and isinstance(instance, single))


class Typed(Batch, metaclass=_Kind):
    """A Batch with a meaning. Its parts and copies keep it."""

    _single: ClassVar[type]

    def __new__(cls, data: Any, *args: Any, **options: Any) -> Any:
        """Return a Batch, or torchvision's object."""
        if isinstance(data, Batch):
            return Batch.__new__(cls)
        if isinstance(data, Tensor):
            data = _as_in_torchvision(data) if issubclass(cls, Image) else data.torch()
        return cls._single(data, *args, **options)

    def __init__(self, data: Any) -> None:
        values = as_batch(data)
        vars(self).update({**values.__dict__, "_samples": None})

    def over(self, values: Batch, **changed: Any) -> Any:
        """Return the same kind of batch over other values."""
        like = Batch.__new__(type(self))
        meta = {key: value for key, value in self.__dict__.items() if key in ("format", "canvas_size", "clamping_mode")}
        vars(like).update({**values.__dict__, "_samples": None, **meta, **changed})
        return like

    def plain(self) -> Batch:
        """Return the same values as a Batch without a meaning."""
        values = new_batch(self.buffer, self.ragged_shapes, self._layout, self.pending, self.caller_owned, self.shared_extents)
        values.sources, values.failures = self.sources, self.failures
        return values

    def _select_meta(self, keys: Sequence[int]) -> dict[str, Any]:
        return {}

    def select_samples(self, keys: Sequence[int]) -> Any:
        return self.over(self.plain().select_samples(keys), **self._select_meta(list(keys)))

    def with_buffer(self, values: torch.Tensor, pending: Any, caller_owned: bool = False) -> Any:
        return self.over(super().with_buffer(values, pending, caller_owned))

    def densify(self) -> Any:
        """Return the same samples, as a dense buffer if their shapes turn out equal."""
        return self.over(super().densify())

    def __reduce__(self) -> Any:
        return _create_empty, (type(self),), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "meaning": _meaning(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        vars(self).update(state["meaning"])


def _as_in_torchvision(image: Tensor) -> torch.Tensor:
    """Return the values of an image or video in torchvision's order of axes, channels before rows."""
    values = image.torch()
    return values.movedim(-1, -3) if (image.layout or "").endswith("HWC") else values


def is_typed(value: Any) -> "TypeGuard[Typed]":
    """Return whether this is a Batch with a meaning."""
    return getattr(value, "_single", None) is not None


def is_batch_of(kind: type, value: Any) -> bool:
    """Return whether this is a Batch of this kind."""
    return is_typed(value) and value._single is kind._single  # type: ignore[attr-defined]


class Image(Typed):
    """Images with a layout that ends in ``HWC`` or ``CHW``; without one it is ``CHW``.

    >>> Image(as_batch(torch.zeros(2, 3, 4, 5))).layout
    'CHW'
    """

    _single = _single.Image
    _usual: ClassVar[dict[int, str]] = {3: "CHW"}

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        if self._layout is None:
            self._layout = self._usual.get(self.ndim)
        if self._layout is None or not self._layout.endswith(IMAGE_ENDINGS):
            raise ValueError(f"{type(self).__name__}: the layout must end in HWC or CHW, got {self._layout!r} with {self.ndim} dimensions")


class Video(Image):
    """Videos with the layout ``FHWC`` or ``FCHW``; without one it is ``FCHW``."""

    _single = _single.Video
    _usual: ClassVar[dict[int, str]] = {4: "FCHW"}


class Mask(Typed):
    """Masks ``(..., H, W)`` of any type; all axes before the last two are planes."""

    _single = _single.Mask

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        if self.ndim < 2:
            raise ValueError(f"Mask: masks have at least two dimensions, got {self.ndim}")


class _OnCanvas(Typed):
    """Coordinates in an image of a known size."""

    canvas_size: "list[tuple[int, int]]"

    def _select_meta(self, keys: Sequence[int]) -> dict[str, Any]:
        return {"canvas_size": [self.canvas_size[k] for k in keys]}


class BoundingBoxes(_OnCanvas):
    """Bounding boxes ``(n, 4)``, rotated ones ``(n, 5)`` or ``(n, 8)``, with the size of the image that they belong to.

    Args:
        data: the boxes.
        format: a :class:`BoundingBoxFormat` or its name.
        canvas_size: height and width: one pair, one pair per sample, or the Batch of images.
        clamping_mode: "soft", "hard" or None.

    Raises:
        ValueError: boxes of another shape, integers for rotated boxes, another format or clamping mode, a wrong number of sizes.

    >>> boxes = BoundingBoxes(as_batch(torch.zeros(2, 1, 4)), format="XYXY", canvas_size=(10, 20))
    >>> boxes.canvas_size, boxes.format.name
    ([(10, 20), (10, 20)], 'XYXY')
    """

    _single = _single.BoundingBoxes
    format: BoundingBoxFormat
    clamping_mode: ClampingMode

    def __init__(self, data: Any, *, format: BoundingBoxFormat | str, canvas_size: Any, clamping_mode: ClampingMode = "soft") -> None:
        super().__init__(data)
        self.format = as_box_format("BoundingBoxes", format)
        if clamping_mode is not None:
            check_choice("BoundingBoxes", "clamping_mode", clamping_mode, ("soft", "hard"), ValueError)
        self.clamping_mode = clamping_mode
        columns = box_columns(self.format)
        if self.ndim != 2 or self.shared_extent(1) not in (columns, None):
            raise ValueError(f"BoundingBoxes: {self.format.name} boxes have the shape (n, {columns}), got {self.shape[:1]}")
        if is_rotated_bounding_format(self.format) and not self.dtype.is_floating_point:
            raise ValueError(f"BoundingBoxes: rotated boxes must be floating-point numbers, got {self.dtype}")
        self.canvas_size = canvas_sizes("BoundingBoxes", canvas_size, self.batch_size)


class KeyPoints(_OnCanvas):
    """Points ``(n, ..., 2)``, x first, with the size of the image that they belong to.

    >>> KeyPoints(as_batch(torch.zeros(2, 1, 2)), canvas_size=[(10, 20), (30, 40)]).canvas_size[1]
    (30, 40)
    """

    _single = _single.KeyPoints

    def __init__(self, data: Any, *, canvas_size: Any) -> None:
        super().__init__(data)
        if self.ndim < 1 or self.shared_extent(-1) not in (2, None):
            raise ValueError(f"KeyPoints: points have the shape (..., 2), got {self.shape[:1]}")
        self.canvas_size = canvas_sizes("KeyPoints", canvas_size, self.batch_size)


def box_columns(format: BoundingBoxFormat) -> int:
    """Return the count of numbers of a box."""
    return {BoundingBoxFormat.XYWHR: 5, BoundingBoxFormat.CXCYWHR: 5, BoundingBoxFormat.XYXYXYXY: 8}.get(format, 4)


def canvas_sizes(name: str, sizes: Any, batch_size: int) -> "list[tuple[int, int]]":
    """Return height and width for each sample, from one pair, one pair per sample, or images."""
    if isinstance(sizes, Batch):
        layout = sizes.layout or ""
        if "H" not in layout or "W" not in layout:
            raise ValueError(f"{name}: canvas_size must be sizes or images whose layout has H and W, got a Batch with the layout {sizes.layout!r}")
        at = layout.index("H"), layout.index("W")
        pairs = [(shape[at[0]], shape[at[1]]) for shape in sizes.shape]
    elif isinstance(sizes, Sequence) and len(sizes) == 2 and not isinstance(sizes[0], Sequence):
        pairs = [(int(sizes[0]), int(sizes[1]))] * batch_size
    elif isinstance(sizes, Sequence) and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in sizes):
        pairs = [(int(height), int(width)) for height, width in sizes]
    else:
        raise ValueError(f"{name}: canvas_size takes height and width, or one such pair per sample, got {sizes!r}")
    if len(pairs) != batch_size:
        raise ValueError(f"{name}: canvas_size has {len(pairs)} sizes for {batch_size} samples")
    return pairs


def _create_empty(kind: type[Typed]) -> Any:
    return Batch.__new__(kind)


def _meaning(value: Typed) -> dict[str, Any]:
    return {key: value.__dict__[key] for key in ("format", "canvas_size", "clamping_mode") if key in value.__dict__}


def _register(kind: type[Typed]) -> None:
    def flatten(value: Any) -> tuple[list[Any], Any]:
        meaning = {**_meaning(value)}
        if "canvas_size" in meaning:
            meaning["canvas_size"] = tuple(meaning["canvas_size"])
        return [value.wait(), value.ragged_shapes], (value.layout, value.shared_extents, tuple(meaning.items()))

    def unflatten(children: Any, context: Any) -> Any:
        (values, shapes), (layout, shared_extents, meaning) = children, context
        result = Batch.__new__(kind)
        meta = dict(meaning)
        if "canvas_size" in meta:
            meta["canvas_size"] = list(meta["canvas_size"])
        vars(result).update({**new_batch(values, shapes, layout, shared_extents=shared_extents).__dict__, **meta})
        return result

    pytree.register_pytree_node(kind, flatten, unflatten)


for _kind in (Image, Video, Mask, BoundingBoxes, KeyPoints):
    _register(_kind)
