# SPDX-License-Identifier: Apache-2.0
"""Transforms that normalize, blur, add noise or JPEG artifacts."""

from typing import Any

import torch
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch, new_batch
from .. import tv_tensors
from .._sample import is_pure_tensor
from ._base import Batched, draws_for
from .functional._dispatch import as_images


class Normalize(Batched, reference.Normalize):
    """Subtract a mean and divide by a standard deviation, for each channel."""


class LinearTransformation(Batched, reference.LinearTransformation):
    """Subtract a mean from the flattened pixels of an image ``(C, H, W)`` and multiply the row by a matrix."""

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Multiply a leaf."""
        if not isinstance(inpt, Batch):
            output = self._multiply(inpt.as_subclass(torch.Tensor))
            return output if is_pure_tensor(inpt) else tv_tensors.wrap(output, like=inpt)
        # The matrix is for images of one size, flattened with the channels first.
        images = as_images(self._name, inpt)
        if images.ragged_shapes is not None:
            raise ValueError(f"{self._name}: all images of a Batch must have the same shape, got {images.shape[:4]}")
        values, last = images.wait(), (images.layout or "").endswith("HWC")
        output = self._multiply(values.movedim(-1, -3) if last else values)
        plain = new_batch((output.movedim(-3, -1) if last else output).contiguous(), None, inpt.layout)
        return inpt.over(plain) if tv_tensors.is_typed(inpt) else plain

    def _multiply(self, pixels: torch.Tensor) -> torch.Tensor:
        matrix, shape = self.transformation_matrix, pixels.shape
        n = shape[-3] * shape[-2] * shape[-1]
        if n != len(matrix):
            raise ValueError(
                f"{self._name}: images must have {len(matrix)} values, as many as the matrix has rows, got {n} for the shape {tuple(shape[-3:])}"
            )
        if pixels.device.type != matrix.device.type:
            raise ValueError(f"{self._name}: matrix and mean must be on the device of the images, {pixels.device}, got {matrix.device}")
        rows = pixels.reshape(-1, n) - self.mean_vector
        # A product of large matrices is best left to BLAS: our operator could only call it.
        return torch.mm(rows, matrix.to(rows.dtype)).reshape(shape)


class GaussianBlur(Batched, reference.GaussianBlur):
    """Blur with a random standard deviation."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the standard deviation."""
        draws = draws_for(flat_inputs)
        sigma = draws.result(draws.uniform(self.sigma[0], self.sigma[1]))
        return {"sigma": [sigma, sigma]}


class GaussianNoise(Batched, reference.GaussianNoise):
    """Add normally distributed noise."""


class JPEG(Batched, reference.JPEG):
    """Apply the artifacts of JPEG compression with a random quality."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw a quality."""
        draws = draws_for(flat_inputs)
        return {"quality": draws.result(draws.integers(self.quality[0], self.quality[1] + 1), int)}
