# SPDX-License-Identifier: Apache-2.0
"""Values and types: normalization, blur, noise, conversion, and functions of the user."""

import warnings
from typing import Any

import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch, new_batch
from .. import tv_tensors
from .._sample import check_type, has_any, is_explicit_image, is_pure_tensor, kind_of
from . import functional as F
from ._transform import Batched, draws_for
from .functional._conversion import tensor_of
from .functional._dispatch import as_images


class Identity(Batched, reference.Identity):
    """Change nothing."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Return the leaf."""
        return inpt


class Lambda(Batched, reference.Lambda):
    """Call a function with every leaf of some types; with the Batch itself where there is one."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Call the function with a leaf."""
        return self.lambd(inpt) if check_type(inpt, tuple(self.types)) else inpt


class Normalize(Batched, reference.Normalize):
    """Subtract a mean and divide by a standard deviation, for each channel."""

    def check_inputs(self, flat_inputs: Any) -> None:
        """Raise TypeError for PIL images."""
        if has_any(flat_inputs, PIL.Image.Image):
            raise TypeError(f"{self._name}() does not support PIL images.")

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Normalize a leaf."""
        return self._call_kernel(F.normalize, inpt, mean=self.mean, std=self.std, inplace=self.inplace)


class LinearTransformation(Batched, reference.LinearTransformation):
    """Subtract a mean from the pixels of an image as one row, ``C`` first, and multiply by a matrix."""

    def check_inputs(self, flat_inputs: Any) -> None:
        """Raise TypeError for PIL images."""
        if has_any(flat_inputs, PIL.Image.Image):
            raise TypeError(f"{self._name}() does not support PIL images.")

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Multiply a leaf."""
        if not isinstance(inpt, Batch):
            made = self._multiplied(inpt.as_subclass(torch.Tensor))
            return made if is_pure_tensor(inpt) else tv_tensors.wrap(made, like=inpt)
        images = as_images(self._name, inpt)
        if images.ragged_shapes is not None:
            raise ValueError(f"{self._name}: all images of a Batch must have the same shape, got {images.shape[:4]}")
        values, last = images.wait(), (images.layout or "").endswith("HWC")
        made = self._multiplied(values.movedim(-1, -3) if last else values)
        plain = new_batch((made.movedim(-3, -1) if last else made).contiguous(), None, inpt.layout)
        return inpt.over(plain) if tv_tensors.is_typed(inpt) else plain

    def _multiplied(self, pixels: torch.Tensor) -> torch.Tensor:
        matrix, shape = self.transformation_matrix, pixels.shape
        n = shape[-3] * shape[-2] * shape[-1]
        if n != len(matrix):
            raise ValueError(f"{self._name}: images of {tuple(shape[-3:])} have {n} values, but the matrix is for {len(matrix)}")
        if pixels.device.type != matrix.device.type:
            raise ValueError(f"{self._name}: images on {pixels.device} need a matrix and a mean there, got them on {matrix.device}")
        rows = pixels.reshape(-1, n) - self.mean_vector
        # One product of large matrices, which is BLAS's work: an operator of our own could only call it.
        return torch.mm(rows, matrix.to(rows.dtype)).reshape(shape)


class GaussianBlur(Batched, reference.GaussianBlur):
    """Blur with a random standard deviation."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the standard deviation."""
        draws = draws_for(flat_inputs)
        sigma = draws.result(draws.uniform(self.sigma[0], self.sigma[1]))
        return {"sigma": [sigma, sigma]}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Blur a leaf."""
        return self._call_kernel(F.gaussian_blur, inpt, self.kernel_size, **params)


class GaussianNoise(Batched, reference.GaussianNoise):
    """Add normally distributed noise."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Add noise to a leaf."""
        return self._call_kernel(F.gaussian_noise, inpt, mean=self.mean, sigma=self.sigma, clip=self.clip)


class ToDtype(Batched, reference.ToDtype):
    """Change the type of the values, of images and videos, or as a dict says for each kind of leaf."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        kind = kind_of(inpt)
        pictures = is_pure_tensor(inpt) or kind in (torch.Tensor, single.Image, single.Video) or issubclass(kind, single.Image | single.Video)
        if isinstance(self.dtype, torch.dtype):
            return self._call_kernel(F.to_dtype, inpt, dtype=self.dtype, scale=self.scale) if pictures else inpt
        if kind not in self.dtype and "others" not in self.dtype:
            raise ValueError(f"No dtype was specified for type {kind}; name it in the dict, or use the key 'others', whose value may be None")
        dtype = self.dtype.get(kind, self.dtype.get("others"))
        if dtype is None:
            if self.scale and pictures:
                warnings.warn("scale was set to True but no dtype was specified for images or videos: no scaling will be done.", stacklevel=2)
            return inpt
        return self._call_kernel(F.to_dtype, inpt, dtype=dtype, scale=self.scale)


class ConvertImageDtype(Batched, reference.ConvertImageDtype):
    """Change the type of images with their range. Deprecated in torchvision: use ``ToDtype(dtype, scale=True)``."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return self._call_kernel(F.to_dtype, inpt, dtype=self.dtype, scale=True)


class UniformTemporalSubsample(Batched, reference.UniformTemporalSubsample):
    """Choose frames of videos at equal distances."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Choose frames of a leaf."""
        return self._call_kernel(F.uniform_temporal_subsample, inpt, self.num_samples)


# --- conversion ---


class _Conversion(Batched):
    """A conversion, which concerns every image Batch."""

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        made = super()._needs_transform_list(flat_inputs)
        alone = not any(map(is_explicit_image, flat_inputs))
        return [wanted or _is_convertible(one, alone) for wanted, one in zip(made, flat_inputs, strict=True)]


def _is_convertible(leaf: Any, alone: bool) -> bool:
    """Return whether a leaf is a Batch of images, or of encoded files without images beside them, which the functional refuses."""
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
    """Return tensors and Batches without their meaning."""

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        return [isinstance(one, single.TVTensor) or tv_tensors.is_typed(one) for one in flat_inputs]

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Convert a leaf."""
        return inpt.plain() if tv_tensors.is_typed(inpt) else inpt.as_subclass(torch.Tensor)
