# SPDX-License-Identifier: Apache-2.0
"""Transforms that convert types and containers: dtypes, PIL images, arrays."""

import warnings
from typing import Any

import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch
from .. import tv_tensors
from .._sample import is_explicit_image, is_pure_tensor, kind_of
from . import functional as F
from ._base import Batched
from .functional._conversion import tensor_of


class ToDtype(Batched, reference.ToDtype):
    """Change the dtype of images and videos, or that of each kind of leaf by a dict."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        # A plain dtype is for images and videos only; a dict may name the type of every leaf.
        kind = kind_of(inpt)
        is_image = is_pure_tensor(inpt) or kind in (torch.Tensor, single.Image, single.Video) or issubclass(kind, single.Image | single.Video)
        if isinstance(self.dtype, torch.dtype):
            return self._call_kernel(F.to_dtype, inpt, dtype=self.dtype, scale=self.scale) if is_image else inpt
        if kind not in self.dtype and "others" not in self.dtype:
            raise ValueError(f"No dtype was specified for type {kind}; name it in the dict, or use the key 'others', whose value may be None")
        dtype = self.dtype.get(kind, self.dtype.get("others"))
        if dtype is None:
            if self.scale and is_image:
                warnings.warn("scale was set to True but no dtype was specified for images or videos: no scaling will be done.", stacklevel=2)
            return inpt
        return self._call_kernel(F.to_dtype, inpt, dtype=dtype, scale=self.scale)


class ConvertImageDtype(Batched, reference.ConvertImageDtype):
    """Change the dtype of images, with their range. Deprecated in torchvision: use ``ToDtype(dtype, scale=True)``."""


class _Conversion(Batched):
    """A conversion, which applies to every image Batch of a sample and not only to the first."""

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        # A batch HWC beside another image has to become CHW as well.
        needs = super()._needs_transform_list(flat_inputs)
        alone = not any(map(is_explicit_image, flat_inputs))
        return [wanted or _is_convertible(leaf, alone) for wanted, leaf in zip(needs, flat_inputs, strict=True)]


def _is_convertible(leaf: Any, alone: bool) -> bool:
    """Return whether a leaf is a Batch of images, or of encoded files in a sample without images, for which the functional raises."""
    if not isinstance(leaf, Batch):
        return False
    return kind_of(leaf) in (single.Image, single.Video) or (alone and leaf.ndim == 1 and leaf.dtype is torch.uint8)


class PILToTensor(_Conversion, reference.PILToTensor):
    """Return the pixels of PIL images as tensors ``(C, H, W)``, and a Batch with the layout ``CHW``."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return F.pil_to_tensor(inpt)


class ToImage(_Conversion, reference.ToImage):
    """Return tensors, arrays and PIL images as ``Image``, and a Batch with the layout ``CHW``."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return F.to_image(inpt)


class ToPILImage(_Conversion, reference.ToPILImage):
    """Return tensors and arrays as PIL images, a Batch as a list of them."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return F.to_pil_image(inpt, mode=self.mode)


class ToTensor(_Conversion, reference.ToTensor):
    """Return PIL images and arrays as float32 ``(C, H, W)`` from 0 to 1. Deprecated in torchvision."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return tensor_of(inpt)


class ToPureTensor(Batched, reference.ToPureTensor):
    """Return tv_tensors and typed Batches as plain tensors and Batches."""

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        return [isinstance(leaf, single.TVTensor) or tv_tensors.is_typed(leaf) for leaf in flat_inputs]

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return inpt.plain() if tv_tensors.is_typed(inpt) else inpt.as_subclass(torch.Tensor)
