# SPDX-License-Identifier: Apache-2.0
"""Blurs and sharpening. A filter of each sample is in the middle of a square that is large enough for all of them."""

import math
from typing import Any

import torch

from .._core.values.batch import Batch, as_batch
from ..math import abs as absolute
from ..math import clamp
from ..ops.filters import convolution
from ..ops.filters.morphology import median_blur
from ..ops.generic.convert import cast
from ..torchvision._draws import Draws, real
from ._sample import Sample
from ._step import Params, Step, limits, per_sample, refuse

_BYTE = 255.0
_LEAST_SIGMA = 1e-3


def odd_sizes(draws: Draws, limit: Any) -> torch.Tensor:
    """Return odd sizes of windows within a range, from 3 on, int64 (N,)."""
    low, high = (max(3, int(size) | 1) for size in limit)
    return low + 2 * draws.integers(0, (max(high, low) - low) // 2 + 1)


class Kernel(Step):
    """Filter by the middle ``ksize`` rows and columns of ``kernel``, float64 (N, K, K)."""

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return convolution.filter(images, as_batch(params["kernel"].to(torch.float32)))

    argument = "kernel"

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        kernel = params["kernel"][i]
        if "ksize" in params:
            margin = (len(kernel) - int(params["ksize"][i])) // 2
            kernel = kernel[margin : len(kernel) - margin, margin : len(kernel) - margin]
        return {self.argument: kernel.to(torch.float32).numpy()}

    def neutral_params(self) -> dict[str, Any] | None:
        return {"kernel": self.delta()}

    def delta(self) -> torch.Tensor:
        """Return the filter that changes nothing."""
        kernel = torch.zeros(self.largest(), self.largest(), dtype=torch.float64)
        kernel[self.largest() // 2, self.largest() // 2] = 1.0
        return kernel

    def largest(self) -> int:
        """Return the side of the square."""
        return max(3, int(self.original.blur_limit[1]) | 1)

    def grid(self) -> torch.Tensor:
        """Return distances from the middle of the square, float64 (K,)."""
        return torch.arange(self.largest(), dtype=torch.float64) - self.largest() // 2

    def window(self, size: torch.Tensor) -> torch.Tensor:
        """Return windows of these sizes in the middle of the square: 1 inside and 0 outside, float64 (N, K, K)."""
        inside = (self.grid().abs() <= (size // 2)[:, None]).double()
        return inside[:, :, None] * inside[:, None]


def _normalize(kernels: torch.Tensor) -> torch.Tensor:
    return kernels / kernels.sum((1, 2), keepdim=True)


class Blur(Kernel):
    """A.Blur: the mean of a square."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        size = odd_sizes(draws, self.original.blur_limit)
        return {"kernel": _normalize(self.window(size)), "ksize": size}

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"kernel": int(params["ksize"][i])}


class MedianBlur(Step):
    """A.MedianBlur."""

    only_bytes = True

    def neutral_params(self) -> dict[str, Any] | None:
        return {"kernel": 1}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        return {"kernel": odd_sizes(draws, self.original.blur_limit)}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return median_blur(images, window_size=per_sample(params["kernel"], torch.int32))


class GaussianBlur(Step):
    """A.GaussianBlur."""

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if limits(transform.sigma_limit)[1] <= 0:
            raise refuse(transform, f"sigma_limit={transform.sigma_limit}", "a sigma of 0 has no weights")

    def neutral_params(self) -> dict[str, Any] | None:
        return {"sigma": 1.0, "size": 1}

    def draw(self, sample: Sample, draws: Draws) -> Params:
        sigma = draws.uniform(*limits(self.original.sigma_limit)).clamp(min=_LEAST_SIGMA)
        low, high = self.original.blur_limit
        size = draws.integers(low, high + 1)
        return {"sigma": sigma, "size": torch.where(size == 0, (sigma * 3.5).to(torch.int64) * 2 + 1, size | 1)}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        return convolution.gaussian_blur(images, sigma=per_sample(params["sigma"]), window_size=per_sample(params["size"], torch.int32))

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        reach = int(params["size"][i]) // 2
        weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.float64) / params["sigma"][i]) ** 2)
        return {"kernel": (weights / weights.sum()).numpy()}


class MotionBlur(Kernel):
    """A.MotionBlur: the mean along a line of pixels."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        size = odd_sizes(draws, t.blur_limit)
        angle = torch.deg2rad(draws.uniform(*limits(t.angle_range)))
        direction = draws.uniform(*limits(t.direction_range))
        half = real(size // 2)
        # A direction below 0 keeps the part of the line after the middle, above 0 the part before it.
        first, last = -half * (1 - direction.clamp(min=0)), half * (1 + direction.clamp(max=0))
        first = torch.where(direction <= 0, -half, first)
        last = torch.where(direction >= 0, half, last)
        steps = torch.arange(self.largest(), dtype=torch.float64)
        used = steps < size[:, None]
        place = first[:, None] + steps / real(size - 1)[:, None] * (last - first)[:, None]
        columns = []
        for component in (torch.sin(angle), torch.cos(angle)):
            shift = (2 * draws.unit() - 1) * half / 2 if t.allow_shifted else torch.zeros_like(half)
            offset = torch.round((half + shift)[:, None] + component[:, None] * place) - half[:, None]
            columns.append(torch.minimum(torch.maximum(offset, -half[:, None]), half[:, None]).to(torch.int64) + self.largest() // 2)
        kernel = torch.zeros(len(size), self.largest() ** 2, dtype=torch.float64)
        kernel.scatter_reduce_(1, columns[0] * self.largest() + columns[1], used.double(), "amax")
        return {"kernel": _normalize(kernel.reshape(len(size), self.largest(), -1)), "ksize": size}


class AdvancedBlur(Kernel):
    """A.AdvancedBlur: a generalized Gaussian in any direction, with noise on its weights."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        size = odd_sizes(draws, t.blur_limit)
        sigma_x, sigma_y = draws.uniform(*limits(t.sigma_x_limit)), draws.uniform(*limits(t.sigma_y_limit))
        angle = torch.deg2rad(draws.uniform(*limits(t.rotate_limit)))
        low, high = limits(t.beta_limit)
        beta = torch.where(draws.happens(0.5), draws.uniform(low, 1.0), draws.uniform(1.0, high))
        noise_low, noise_high = limits(t.noise_limit)
        noise = noise_low + draws.unit(self.largest(), self.largest()) * (noise_high - noise_low)
        x, y = self.grid(), self.grid()[:, None]
        sin, cos = torch.sin(angle)[:, None, None], torch.cos(angle)[:, None, None]
        along, across = (cos * x + sin * y) / sigma_x[:, None, None], (cos * y - sin * x) / sigma_y[:, None, None]
        kernel = torch.exp(-0.5 * (along**2 + across**2) ** beta[:, None, None]) * noise
        return {"kernel": _normalize(kernel * self.window(size)), "ksize": size}


class Defocus(Kernel):
    """A.Defocus: a disk with blurred edges."""

    def largest(self) -> int:
        return 2 * max(8, int(self.original.radius[1])) + 1

    def draw(self, sample: Sample, draws: Draws) -> Params:
        low, high = self.original.radius
        radius, alias = draws.integers(low, high + 1), draws.uniform(*limits(self.original.alias_blur))
        kernel = torch.zeros(len(radius), self.largest(), self.largest(), dtype=torch.float64)
        # The disk is blurred within a square that depends on the radius, with its border reflected.
        for value in radius.unique().tolist():
            chosen = (radius == value).nonzero().flatten()
            reach, taps = max(8, value), 1 if value <= 8 else 2
            x = torch.arange(-reach, reach + 1, dtype=torch.float64)
            disk = (x**2 + x[:, None] ** 2 <= value**2).double()
            disk = (disk / disk.sum()).expand(len(chosen), 1, -1, -1)
            weights = torch.exp(-0.5 * (torch.arange(-taps, taps + 1, dtype=torch.float64) / alias[chosen, None].clamp(min=1e-6)) ** 2)
            weights = weights / weights.sum(1, keepdim=True)
            padded = torch.nn.functional.pad(disk, [taps] * 4, mode="reflect")
            windows = padded.unfold(2, 2 * taps + 1, 1).unfold(3, 2 * taps + 1, 1)[:, 0]
            margin = self.largest() // 2 - reach
            kernel[chosen, margin : margin + 2 * reach + 1, margin : margin + 2 * reach + 1] = torch.einsum(
                "nhwij,ni,nj->nhw", windows, weights, weights
            )
        return {"kernel": kernel, "ksize": 2 * radius.clamp(min=8) + 1, "radius": radius, "alias_blur": alias}

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {"radius": int(params["radius"][i]), "alias_blur": float(params["alias_blur"][i])}


class RingingOvershoot(Kernel):
    """A.RingingOvershoot: an ideal low pass of two dimensions."""

    def draw(self, sample: Sample, draws: Draws) -> Params:
        size = odd_sizes(draws, self.original.blur_limit)
        cutoff = draws.uniform(*limits(self.original.cutoff))[:, None, None]
        distance = torch.sqrt(self.grid() ** 2 + self.grid()[:, None] ** 2)
        kernel = cutoff * torch.special.bessel_j1(cutoff * distance) / (2 * math.pi * distance.clamp(min=1e-12))
        middle = self.largest() // 2
        kernel[:, middle, middle] = cutoff[:, 0, 0] ** 2 / (4 * math.pi)
        return {"kernel": _normalize(kernel * self.window(size)), "ksize": size}


class Sharpen(Kernel):
    """A.Sharpen by a filter."""

    argument = "sharpening_matrix"

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        if transform.method != "kernel":
            raise refuse(transform, f"method={transform.method!r}", "it subtracts a blurred image in unsigned bytes, which wraps around")

    def largest(self) -> int:
        return 3

    def draw(self, sample: Sample, draws: Draws) -> Params:
        alpha = draws.uniform(*limits(self.original.alpha))[:, None, None]
        lightness = draws.uniform(*limits(self.original.lightness))
        effect = torch.full((len(lightness), 3, 3), -1.0, dtype=torch.float64)
        effect[:, 1, 1] = 8.0 + lightness
        return {"kernel": (1 - alpha) * self.delta() + alpha * effect, "alpha": alpha[:, 0, 0]}

    def arguments(self, params: Params, i: int) -> dict[str, Any]:
        return {**super().arguments(params, i), "alpha": float(params["alpha"][i])}


class Emboss(Kernel):
    """A.Emboss."""

    argument = "emboss_matrix"

    def largest(self) -> int:
        return 3

    def draw(self, sample: Sample, draws: Draws) -> Params:
        alpha, strength = draws.uniform(*limits(self.original.alpha)), draws.uniform(*limits(self.original.strength))
        relief = torch.tensor([[-1.0, -1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
        plain = torch.tensor([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
        alpha = alpha[:, None, None]
        return {"kernel": (1 - alpha) * self.delta() + alpha * (plain + strength[:, None, None] * relief)}


class UnsharpMask(Step):
    """A.UnsharpMask: adds what a blur takes away, where that is more than the threshold."""

    only_bytes = True

    def draw(self, sample: Sample, draws: Draws) -> Params:
        t = self.original
        params = {"ksize": odd_sizes(draws, t.blur_limit), "sigma": draws.uniform(*limits(t.sigma_limit))}
        return {**params, "alpha": draws.uniform(*limits(t.alpha))}

    def change_images(self, images: Batch, params: Params, sample: Sample) -> Batch:
        weights = _opencv_weights(params["ksize"], params["sigma"])
        kernel = as_batch((weights[:, :, None] * weights[:, None]).to(torch.float32))
        pixels = cast(images, dtype=torch.float32)
        residual = pixels - convolution.filter(pixels, kernel)
        sharp = clamp(pixels + residual * per_sample(params["alpha"]), 0.0, _BYTE)
        mask = cast(absolute(residual) > float(self.original.threshold), dtype=torch.float32)
        soft = convolution.filter(mask, kernel)
        return cast(sharp * soft + pixels * (1.0 - soft), dtype=torch.uint8)


# Where sigma is 0, OpenCV has weights of its own for small windows: in units of 1 / 256, from the middle.
_SMALL_WEIGHTS = {3: (128, 64), 5: (96, 64, 16), 7: (72, 56, 28, 8), 9: (60, 51, 30, 13, 4)}


def _opencv_weights(size: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    """Return the weights of ``cv2.getGaussianKernel``, in the middle of rows for the largest window, float64 (N, K)."""
    reach = int(size.max()) // 2
    distance = torch.arange(-reach, reach + 1, dtype=torch.float64).abs()
    spread = torch.where(sigma > 0, sigma, 0.3 * (real(size - 1) * 0.5 - 1) + 0.8)
    weights = torch.exp(-0.5 * (distance / spread[:, None]) ** 2) * (distance <= (size // 2)[:, None]).double()
    weights = weights / weights.sum(1, keepdim=True)
    for window, numbers in _SMALL_WEIGHTS.items():
        row = torch.tensor([numbers[int(d)] if d < len(numbers) else 0 for d in distance], dtype=torch.float64) / 256
        weights = torch.where(((sigma == 0) & (size == window))[:, None], row, weights)
    return weights
