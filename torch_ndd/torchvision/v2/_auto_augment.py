# SPDX-License-Identifier: Apache-2.0
"""Policies that choose augmentations: AutoAugment, RandAugment, TrivialAugmentWide and AugMix."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch, new_batch
from ...ops.color._byte_steps import KINDS, NUMBERS, takes, with_steps
from .. import tv_tensors
from .._draws import Draws, to_int
from .._numbers import batch_of
from .._sample import batch_size_of, check_type, flatten, is_pure_tensor, kind_of, merged, sample_of, unflatten
from . import functional as F
from ._transform import Batched
from .functional._color import largest
from .functional._dispatch import as_images, fills
from .functional._interpolation import warp_filter
from .functional._matrices import about_centers, affine_matrix
from .functional._meta import size_columns

Magnitude = Callable[[Any, Any, Any], Any]  # of a fraction from 0 to 1, the height and the width


def _up_to(most: float) -> Magnitude:
    return lambda fraction, height, width: fraction * most


def _posterized(first: float, change: float) -> Magnitude:
    return lambda fraction, height, width: round(first - change * fraction)


def _space(
    shear: float, across: Magnitude, down: Magnitude, turn: float, factor: float, posterize: Magnitude
) -> dict[str, tuple[Magnitude | None, bool]]:
    """Return the magnitude of each augmentation, and whether the opposite one is equally likely."""
    return {
        "ShearX": (_up_to(shear), True),
        "ShearY": (_up_to(shear), True),
        "TranslateX": (across, True),
        "TranslateY": (down, True),
        "Rotate": (_up_to(turn), True),
        **{name: (_up_to(factor), True) for name in ("Brightness", "Color", "Contrast", "Sharpness")},
        "Posterize": (posterize, False),
        "Solarize": (lambda fraction, height, width: 1.0 - fraction, False),
        "AutoContrast": (None, False),
        "Equalize": (None, False),
    }


def _part_of_width(part: float) -> Magnitude:
    return lambda fraction, height, width: fraction * (part * width)


def _part_of_height(part: float) -> Magnitude:
    return lambda fraction, height, width: fraction * (part * height)


# AutoAugment's authors moved images of 331 pixels by up to 150.
_USUAL = _space(0.3, _part_of_width(150.0 / 331.0), _part_of_height(150.0 / 331.0), 30.0, 0.9, _posterized(8, 4))
_SPACES = {
    "AutoAugment": {**_USUAL, "Invert": (None, False)},
    "RandAugment": {"Identity": (None, False), **_USUAL},
    "TrivialAugmentWide": {"Identity": (None, False), **_space(0.99, _up_to(32.0), _up_to(32.0), 135.0, 0.99, _posterized(8, 6))},
    "AugMix": _space(0.3, _part_of_width(1.0 / 3.0), _part_of_height(1.0 / 3.0), 30.0, 0.9, _posterized(4, 4)),
}
_WARPS = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
_FACTORS = {
    "Brightness": F.adjust_brightness,
    "Color": F.adjust_saturation,
    "Contrast": F.adjust_contrast,
    "Sharpness": F.adjust_sharpness,
}
_KINDS = {
    **dict.fromkeys(_WARPS, KINDS["warp"]),
    **{"Brightness": KINDS["brightness"], "Color": KINDS["saturation"], "Contrast": KINDS["contrast"]},
    **{name: KINDS[name.lower()] for name in ("Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert")},
    "Identity": KINDS["none"],
}
_PLAIN = {"AutoContrast": F.autocontrast, "Equalize": F.equalize, "Invert": F.invert}


class _Policy(Batched):
    """A transform of the only image or video of a sample."""

    interpolation: Any

    def forward(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, given as one argument or several."""
        leaves, spec = flatten(sample_of(inputs))
        size = batch_size_of(self._name, leaves)
        if size == 0:
            return sample_of(inputs)
        at = self._image_of(leaves)
        leaves[at] = self._augmented(leaves[at], Draws(size))
        return unflatten(leaves, spec)

    def _image_of(self, leaves: list[Any]) -> int:
        found = []
        for k, (leaf, wanted) in enumerate(zip(leaves, self._needs_transform_list(leaves), strict=True)):
            if wanted and check_type(leaf, (single.Image, PIL.Image.Image, is_pure_tensor, single.Video)):
                found.append(k)
            elif check_type(leaf, (single.BoundingBoxes, single.Mask, single.KeyPoints)):
                raise TypeError(f"Inputs of type {kind_of(leaf).__name__} are not supported by {self._name}()")
        if not found:
            raise TypeError("Found no image in the sample.")
        if len(found) > 1:
            raise TypeError(f"{self._name} is defined for one image or video in a sample, but found {len(found)}")
        return found[0]

    def _augmented(self, image: Any, draws: Draws) -> Any:
        raise NotImplementedError

    @property
    def _space(self) -> dict[str, tuple[Magnitude | None, bool]]:
        return _SPACES[next(cls.__name__ for cls in type(self).__mro__ if cls.__name__ in _SPACES)]

    def _steps(self, draws: Draws, names: Sequence[str], fractions: Any, image: Any) -> list[tuple[str, float]]:
        """Return the augmentation and its magnitude for each sample; the sign is drawn here."""
        height, width = (torch.as_tensor(one, dtype=torch.float64).expand(draws.count).tolist() for one in size_columns(image))
        other_side, space = (draws.unit() <= 0.5).tolist(), self._space
        made = []
        for k, name in enumerate(names):
            function, signed = space.get(name, (None, False))
            magnitude = 0.0 if function is None else float(function(float(fractions[k]), height[k], width[k]))
            made.append((name, -magnitude if signed and other_side[k] else magnitude))
        return made

    def _applied(self, image: Any, *turns: Sequence[tuple[str, float]]) -> Any:
        """Apply to each sample its augmentation of every turn."""
        fill = self._fill_for(image)
        if not isinstance(image, Batch):
            for steps in turns:
                image = apply_one(image, *steps[0], self.interpolation, fill)
            return image
        plain = as_images(self._name, image)
        if takes(plain):
            filter = warp_filter(self._name, self.interpolation)
            made = with_steps(plain, steps_of(plain, turns), filter, fills(fill, plain, self._name))
            return image.over(made) if tv_tensors.is_typed(image) else made
        for steps in turns:
            image = self._by_groups(image, steps, fill)
        return image

    def _by_groups(self, image: Batch, steps: Sequence[tuple[str, float]], fill: Any) -> Any:
        """Apply to each sample its augmentation, all samples that share one at once."""
        groups: dict[str, list[int]] = {}
        for k, (name, _) in enumerate(steps):
            groups.setdefault("warp" if name in _WARPS else name, []).append(k)
        parts = []
        for name, indices in groups.items():
            part = image if len(indices) == image.batch_size else image.select(indices)
            chosen = [steps[k] for k in indices]
            magnitudes = torch.tensor([one for _, one in chosen], dtype=torch.float64)
            if name == "warp":
                parts.append((indices, apply_warps(part, chosen, self.interpolation, fill)))
            else:
                parts.append((indices, apply_one(part, name, magnitudes, self.interpolation, fill)))
        if len(parts) == 1:
            return parts[0][1]
        return merged(self._name, parts, image.batch_size)


def apply_one(image: Any, name: str, magnitude: Any, interpolation: Any, fill: Any) -> Any:
    """Apply one augmentation; ``magnitude`` is a number, or one for each sample of a Batch."""
    if name == "Identity":
        return image
    if name in _WARPS:
        return (
            F.affine(image, **warp_arguments(name, magnitude), interpolation=interpolation, fill=fill)
            if name != "Rotate"
            else F.rotate(image, magnitude, interpolation=interpolation, fill=fill)
        )
    if name in _FACTORS:
        return _FACTORS[name](image, 1.0 + magnitude)
    if name == "Posterize":
        return F.posterize(image, to_int(magnitude))
    if name == "Solarize":
        return F.solarize(image, (255.0 if isinstance(image, PIL.Image.Image) else largest(image.dtype)) * magnitude)
    return _PLAIN[name](image)


def warp_arguments(name: str, magnitude: float) -> dict[str, Any]:
    """Return the arguments of :func:`functional.affine`."""
    shear, translate, center = [0.0, 0.0], [0, 0], None
    if name.startswith("Shear"):
        shear["XY".index(name[-1])], center = math.degrees(math.atan(magnitude)), [0, 0]
    else:
        translate["XY".index(name[-1])] = int(magnitude)
    return {"angle": 0.0, "translate": translate, "scale": 1.0, "shear": shear, "center": center}


def _warp_rows(steps: Sequence[tuple[str, float]], heights: Sequence[float], widths: Sequence[float]) -> torch.Tensor:
    """Return the angle, translation, shear and center of warps of images of these sizes, float64 (7, warps)."""
    rows = []
    for (name, magnitude), height, width in zip(steps, heights, widths, strict=True):
        if name == "Rotate":
            rows.append([-magnitude, 0, 0, 0, 0, width / 2, height / 2])
        else:
            one = warp_arguments(name, magnitude)
            rows.append([0.0, *one["translate"], *one["shear"], *(one["center"] or (width / 2, height / 2))])
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 7).T.contiguous()


def _sizes(images: Any, count: int) -> tuple[list[float], list[float]]:
    heights, widths = (torch.as_tensor(one, dtype=torch.float64).expand(count).tolist() for one in size_columns(images))
    return heights, widths


def apply_warps(images: Any, steps: Sequence[tuple[str, float]], interpolation: Any, fill: Any) -> Any:
    """Warp each sample by its augmentation, all at once."""
    angle, tx, ty, sx, sy, cx, cy = _warp_rows(steps, *_sizes(images, len(steps))).unbind(0)
    return F.affine(images, angle, (tx, ty), 1.0, (sx, sy), interpolation=interpolation, fill=fill, center=(cx, cy))


def steps_of(images: Batch, turns: Sequence[Sequence[tuple[str, float]]]) -> torch.Tensor:
    """Return the augmentations of every sample as the steps of :func:`with_steps`, float64 (N, turns, NUMBERS)."""
    heights, widths = _sizes(images, images.batch_size)
    made = torch.zeros(images.batch_size, len(turns), NUMBERS, dtype=torch.float64)
    numbers = made.numpy()
    warps: list[tuple[int, int]] = []
    for turn, steps in enumerate(turns):
        for k, (name, magnitude) in enumerate(steps):
            numbers[k, turn, 0] = _KINDS[name]
            if name in _WARPS:
                warps.append((k, turn))
            elif name in _FACTORS:
                numbers[k, turn, 1] = 1.0 + magnitude
            else:
                numbers[k, turn, 1] = int(magnitude) if name == "Posterize" else 255.0 * magnitude
    if warps:
        heights, widths = ([column[k] for k, _ in warps] for column in (heights, widths))
        angle, tx, ty, sx, sy, cx, cy = _warp_rows([turns[turn][k] for k, turn in warps], heights, widths).unbind(0)
        height, width = (torch.tensor(column, dtype=torch.float64) for column in (heights, widths))
        matrix = affine_matrix((cx - width * 0.5, cy - height * 0.5), angle, (tx, ty), 1.0, (sx, sy), inverse=True)
        matrices = torch.stack(about_centers(matrix, (height, width), (height, width)), 1).numpy()  # type: ignore[arg-type]
        for row, (k, turn) in zip(matrices, warps, strict=True):
            numbers[k, turn, 1:] = row
    return made


class AutoAugment(_Policy, reference.AutoAugment):
    """Apply a random one of 25 pairs of augmentations that were found for ImageNet, CIFAR-10 or SVHN."""

    def _augmented(self, image: Any, draws: Draws) -> Any:
        pairs = self._get_policies(self.policy)
        chosen = [pairs[k] for k in draws.integers(0, len(pairs)).tolist()]
        turns = []
        for turn in range(2):
            acts = draws.unit().tolist()
            names, fractions = [], []
            for pair, u in zip(chosen, acts, strict=True):
                name, probability, index = pair[turn]
                happens = u <= probability if probability > 0 else False
                names.append(name if happens else "Identity")
                fractions.append(0.0 if index is None else index / 9)
            turns.append(self._steps(draws, names, fractions, image))
        return self._applied(image, *turns)


class RandAugment(_Policy, reference.RandAugment):
    """Apply ``num_ops`` random augmentations of 14, all with the magnitude ``magnitude``."""

    def _augmented(self, image: Any, draws: Draws) -> Any:
        names = list(self._space)
        if not 0 <= self.magnitude < self.num_magnitude_bins and not -self.num_magnitude_bins <= self.magnitude < 0:
            raise IndexError(f"RandAugment: magnitude {self.magnitude} is out of range: there are {self.num_magnitude_bins} bins")
        fraction = (self.magnitude % self.num_magnitude_bins) / max(1, self.num_magnitude_bins - 1)
        turns = []
        for _ in range(self.num_ops):
            chosen = [names[k] for k in draws.integers(0, len(names)).tolist()]
            turns.append(self._steps(draws, chosen, [fraction] * draws.count, image))
        return self._applied(image, *turns)


class TrivialAugmentWide(_Policy, reference.TrivialAugmentWide):
    """Apply one random augmentation of 14 with a random magnitude."""

    def _augmented(self, image: Any, draws: Draws) -> Any:
        names = list(self._space)
        chosen = [names[k] for k in draws.integers(0, len(names)).tolist()]
        bins = draws.integers(0, self.num_magnitude_bins).to(torch.float64) / max(1, self.num_magnitude_bins - 1)
        return self._applied(image, self._steps(draws, chosen, bins.tolist(), image))


class AugMix(_Policy, reference.AugMix):
    """Blend the image with several chains of augmentations of it, by random weights."""

    def _augmented(self, image: Any, draws: Draws) -> Any:
        if isinstance(image, PIL.Image.Image):
            return F.to_pil_image(self._augmented(F.pil_to_tensor(image), draws))
        if not isinstance(image, Batch):
            return self._of_one(image, draws)
        plain = image.plain() if tv_tensors.is_typed(image) else image
        images = as_images(self._name, plain)
        both = draws.dirichlet(self.alpha, 2)
        weights = draws.dirichlet(self.alpha, self.mixture_width) * both[:, 1:]
        mix = images * batch_of(both[:, 0].to(torch.float32))
        for k in range(self.mixture_width):
            mix = mix + self._chain(images, draws) * batch_of(weights[:, k].to(torch.float32))
        values = mix.wait().to(images.dtype)
        made = new_batch(values, images.ragged_shapes, plain.layout, fixed=images.shared_extents)
        return image.over(made) if tv_tensors.is_typed(image) else made

    def _of_one(self, image: torch.Tensor, draws: Draws) -> torch.Tensor:
        """Blend an image or a video; of a tensor with leading dimensions, each element of the first has its own weights."""
        values = image.as_subclass(torch.Tensor)
        wanted = 5 if isinstance(image, single.Video) else 4
        stack = values.reshape([1] * max(wanted - values.dim(), 0) + list(values.shape))
        ahead = [stack.shape[0]] + [1] * (stack.dim() - 1)
        more = Draws(stack.shape[0])
        both = more.dirichlet(self.alpha, 2).to(torch.float32)
        weights = more.dirichlet(self.alpha, self.mixture_width).to(torch.float32) * both[:, 1:]
        mix = both[:, 0].reshape(ahead) * stack
        for k in range(self.mixture_width):
            mix = mix + weights[:, k].reshape(ahead) * self._chain(stack, draws)
        made = mix.reshape(values.shape).to(values.dtype)
        return made if is_pure_tensor(image) else tv_tensors.wrap(made, like=image)

    def _chain(self, image: Any, draws: Draws) -> Any:
        """Return each sample after its own chain of augmentations."""
        names = [name for name in self._space if self.all_ops or name not in _FACTORS]
        depths = [self.chain_depth] * draws.count if self.chain_depth > 0 else draws.integers(1, 4).tolist()
        turns = []
        for step in range(max(depths)):
            chosen = [names[k] if step < depth else "Identity" for k, depth in zip(draws.integers(0, len(names)).tolist(), depths, strict=True)]
            fractions = (draws.integers(0, self.severity).to(torch.float64) / 9).tolist()
            turns.append(self._steps(draws, chosen, fractions, image))
        return self._applied(image, *turns)
