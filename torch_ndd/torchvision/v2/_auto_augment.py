# SPDX-License-Identifier: Apache-2.0
"""Policies that choose augmentations: AutoAugment, RandAugment, TrivialAugmentWide and AugMix."""

import math
import re
from collections.abc import Sequence
from typing import Any

import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.values.batch import Batch, new_batch
from ...augment import _spaces
from ...ops.color._byte_steps import KINDS, NUMBERS, takes, with_steps
from ...types import INTERP_LINEAR
from .. import tv_tensors
from .._draws import Draws, to_int
from .._numbers import batch_of
from .._sample import batch_size_of, check_type, flatten, is_pure_tensor, kind_of, merge_batches, sample_of, unflatten
from . import functional as F
from ._base import Batched
from .functional._color import largest
from .functional._dispatch import as_images, fills
from .functional._interpolation import warp_filter
from .functional._matrices import about_centers, affine_matrix
from .functional._sizes import size_columns

_SPACES = {
    "AutoAugment": _spaces.AUTO_AUGMENT,
    "RandAugment": _spaces.RAND_AUGMENT,
    "TrivialAugmentWide": _spaces.TRIVIAL_AUGMENT_WIDE,
    "AugMix": _spaces.TORCHVISION_AUG_MIX,
}
_WARPS = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_FACTOR_FUNCTIONS = {
    "brightness": F.adjust_brightness,
    "color": F.adjust_saturation,
    "contrast": F.adjust_contrast,
    "sharpness": F.adjust_sharpness,
}
_PLAIN_FUNCTIONS = {"auto_contrast": F.autocontrast, "equalize": F.equalize, "invert": F.invert}
# The kinds of steps of the kernel that runs all steps of an image in one pass.
_KINDS = {
    **dict.fromkeys(_WARPS, KINDS["warp"]),
    **{name: KINDS[name] for name in ("brightness", "contrast", "sharpness", "posterize", "solarize", "equalize", "invert")},
    "color": KINDS["saturation"],
    "auto_contrast": KINDS["autocontrast"],
    "identity": KINDS["none"],
}

# A step on a sample: the name of an augmentation and its parameter.
Step = tuple[str, float]


def _snake_case(name: str) -> str:
    """Return the name of one of torchvision's augmentations as in ``augment/_spaces.py``: "ShearX" is "shear_x"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class _Policy(Batched):
    """A transform of the only image or video of a sample."""

    interpolation: Any

    def forward(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, given as one argument or several."""
        leaves, spec = flatten(sample_of(inputs))
        size = batch_size_of(self._name, leaves)
        # An empty batch has no sizes from which parameters could follow.
        if size == 0:
            return sample_of(inputs)
        index = self._find_image(leaves)
        leaves[index] = self._augment(leaves[index], Draws(size))
        return unflatten(leaves, spec)

    def _find_image(self, leaves: list[Any]) -> int:
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

    def _augment(self, image: Any, draws: Draws) -> Any:
        raise NotImplementedError

    @property
    def _space(self) -> _spaces.Space:
        # Subclasses of the user have the space of their base.
        return _SPACES[next(cls.__name__ for cls in type(self).__mro__ if cls.__name__ in _SPACES)]

    def _make_steps(self, draws: Draws, names: Sequence[str], fractions: Any, image: Any) -> list[Step]:
        """Return the step of each sample: its augmentation at a fraction of the range; the sign is drawn here."""
        heights, widths = _size_lists(image, draws.count)
        # Drawn for each sample, also if its augmentation has no sign, so the number of draws is fixed.
        other_side, space = (draws.unit() <= 0.5).tolist(), self._space
        steps = []
        for k, name in enumerate(names):
            parameter = 0.0
            if (range := space.get(name)) is not None:
                extent = widths[k] if name == "translate_x" else heights[k]
                parameter = range.parameter(float(fractions[k]), other_side[k], extent)
            # The number of bits is whole.
            steps.append((name, round(parameter) if name == "posterize" else parameter))
        return steps

    def _apply(self, image: Any, *turns: Sequence[Step]) -> Any:
        """Apply to each sample its step of every turn."""
        fill = self._fill_for(image)
        if not isinstance(image, Batch):
            # A single sample has one step per turn.
            for steps in turns:
                image = apply_step(image, *steps[0], self.interpolation, fill)
            return image
        plain = as_images(self._name, image)
        # uint8: all steps of an image in one pass. Else one operator call for each augmentation of a turn.
        if takes(plain, INTERP_LINEAR) and plain.shared_extent((plain.layout or "").index("C")) in (1, 3):
            filter, values = warp_filter(self._name, self.interpolation), fills(fill, plain, self._name)
            output = with_steps(plain, encode_steps(plain, turns), filter, values or (0.0,), fade=values is not None)
            return image.over(output) if tv_tensors.is_typed(image) else output
        for steps in turns:
            image = self._apply_by_groups(image, steps, fill)
        return image

    def _apply_by_groups(self, image: Batch, steps: Sequence[Step], fill: Any) -> Any:
        """Apply to each sample its step, with one call for all samples that share an augmentation."""
        groups: dict[str, list[int]] = {}
        for k, (name, _) in enumerate(steps):
            # Warps of all kinds are one call, since each sample has its own matrix.
            groups.setdefault("warp" if name in _WARPS else name, []).append(k)
        parts = []
        for name, indices in groups.items():
            part = image if len(indices) == image.batch_size else image.select(indices)
            part_steps = [steps[k] for k in indices]
            if name == "warp":
                parts.append((indices, apply_warps(part, part_steps, self.interpolation, fill)))
            else:
                parameters = torch.tensor([parameter for _, parameter in part_steps], dtype=torch.float64)
                parts.append((indices, apply_step(part, name, parameters, self.interpolation, fill)))
        if len(parts) == 1:
            return parts[0][1]
        return merge_batches(self._name, parts, image.batch_size)


def apply_step(image: Any, name: str, parameter: Any, interpolation: Any, fill: Any) -> Any:
    """Apply one augmentation; ``parameter`` is a number, or one for each sample of a Batch."""
    if name == "identity":
        return image
    if name == "rotate":
        return F.rotate(image, parameter, interpolation=interpolation, fill=fill)
    if name in _WARPS:
        return F.affine(image, **warp_arguments(name, parameter), interpolation=interpolation, fill=fill)
    if name in _FACTOR_FUNCTIONS:
        return _FACTOR_FUNCTIONS[name](image, parameter)
    if name == "posterize":
        return F.posterize(image, to_int(parameter))
    if name == "solarize":
        return F.solarize(image, (255.0 if isinstance(image, PIL.Image.Image) else largest(image.dtype)) * parameter)
    return _PLAIN_FUNCTIONS[name](image)


def warp_arguments(name: str, parameter: float) -> dict[str, Any]:
    """Return the arguments of :func:`functional.affine` for a shear or a translation."""
    shear, translate, center = [0.0, 0.0], [0, 0], None
    if name.startswith("shear"):
        # torchvision keeps the upper left corner, as Pillow's transform does.
        shear["xy".index(name[-1])], center = math.degrees(math.atan(parameter)), [0, 0]
    else:
        translate["xy".index(name[-1])] = int(parameter)
    return {"angle": 0.0, "translate": translate, "scale": 1.0, "shear": shear, "center": center}


def _warp_columns(steps: Sequence[Step], heights: Sequence[float], widths: Sequence[float]) -> torch.Tensor:
    """Return the angle, translation, shear and center of warps of images of these sizes, float64 (7, warps)."""
    rows = []
    for (name, parameter), height, width in zip(steps, heights, widths, strict=True):
        if name == "rotate":
            rows.append([-parameter, 0, 0, 0, 0, width / 2, height / 2])
        else:
            arguments = warp_arguments(name, parameter)
            rows.append([0.0, *arguments["translate"], *arguments["shear"], *(arguments["center"] or (width / 2, height / 2))])
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 7).T.contiguous()


def _size_lists(images: Any, count: int) -> tuple[list[float], list[float]]:
    """Return the heights and widths of ``count`` samples."""
    heights, widths = (torch.as_tensor(column, dtype=torch.float64).expand(count).tolist() for column in size_columns(images))
    return heights, widths


def apply_warps(images: Any, steps: Sequence[Step], interpolation: Any, fill: Any) -> Any:
    """Warp each sample by its step, in one call."""
    # A warp of one sample per column.
    angle, tx, ty, sx, sy, cx, cy = _warp_columns(steps, *_size_lists(images, len(steps))).unbind(0)
    return F.affine(images, angle, (tx, ty), 1.0, (sx, sy), interpolation=interpolation, fill=fill, center=(cx, cy))


def encode_steps(images: Batch, turns: Sequence[Sequence[Step]]) -> torch.Tensor:
    """Return the steps of every sample as numbers for :func:`with_steps`, float64 (N, turns, NUMBERS)."""
    heights, widths = _size_lists(images, images.batch_size)
    table = torch.zeros(images.batch_size, len(turns), NUMBERS, dtype=torch.float64)
    numbers = table.numpy()
    warps: list[tuple[int, int]] = []
    for turn, steps in enumerate(turns):
        for k, (name, parameter) in enumerate(steps):
            numbers[k, turn, 0] = _KINDS[name]
            if name in _WARPS:
                warps.append((k, turn))
            elif name == "posterize":
                numbers[k, turn, 1] = int(parameter)
            else:
                numbers[k, turn, 1] = 255.0 * parameter if name == "solarize" else parameter
    if warps:
        # The matrices of all warps together: one by one, torch took most of the time.
        heights, widths = ([column[k] for k, _ in warps] for column in (heights, widths))
        angle, tx, ty, sx, sy, cx, cy = _warp_columns([turns[turn][k] for k, turn in warps], heights, widths).unbind(0)
        height, width = (torch.tensor(column, dtype=torch.float64) for column in (heights, widths))
        matrix = affine_matrix((cx - width * 0.5, cy - height * 0.5), angle, (tx, ty), 1.0, (sx, sy), inverse=True)
        matrices = torch.stack(about_centers(matrix, (height, width), (height, width)), 1).numpy()  # type: ignore[arg-type]
        for row, (k, turn) in zip(matrices, warps, strict=True):
            numbers[k, turn, 1:7] = row
    return table


class AutoAugment(_Policy, reference.AutoAugment):
    """torchvision's spelling of :func:`torch_ndd.augment.auto_augment`: apply a random one of 25 pairs of augmentations found for a data set."""

    def _augment(self, image: Any, draws: Draws) -> Any:
        pairs = self._get_policies(self.policy)
        drawn_pairs = [pairs[k] for k in draws.integers(0, len(pairs)).tolist()]
        turns = []
        for turn in range(2):
            names, fractions = [], []
            for pair, u in zip(drawn_pairs, draws.unit().tolist(), strict=True):
                name, probability, index = pair[turn]
                acts = probability > 0 and u <= probability
                names.append(_snake_case(name) if acts else "identity")
                # Magnitudes of the policies are from 0 to 9.
                fractions.append(0.0 if index is None else index / 9)
            turns.append(self._make_steps(draws, names, fractions, image))
        return self._apply(image, *turns)


class RandAugment(_Policy, reference.RandAugment):
    """torchvision's spelling of :func:`torch_ndd.augment.rand_augment`: apply ``num_ops`` random augmentations of the magnitude ``magnitude``."""

    def _augment(self, image: Any, draws: Draws) -> Any:
        names = list(self._space)
        if not 0 <= self.magnitude < self.num_magnitude_bins and not -self.num_magnitude_bins <= self.magnitude < 0:
            raise IndexError(f"RandAugment: magnitude {self.magnitude} is out of range: there are {self.num_magnitude_bins} bins")
        # Negative magnitudes count from the end, because torchvision indexes a table with them.
        fraction = (self.magnitude % self.num_magnitude_bins) / max(1, self.num_magnitude_bins - 1)
        turns = []
        for _ in range(self.num_ops):
            turn_names = [names[k] for k in draws.integers(0, len(names)).tolist()]
            turns.append(self._make_steps(draws, turn_names, [fraction] * draws.count, image))
        return self._apply(image, *turns)


class TrivialAugmentWide(_Policy, reference.TrivialAugmentWide):
    """torchvision's spelling of :func:`torch_ndd.augment.trivial_augment`: apply one random augmentation with a random magnitude."""

    def _augment(self, image: Any, draws: Draws) -> Any:
        if self.num_magnitude_bins < 1:
            raise RuntimeError(f"TrivialAugmentWide: num_magnitude_bins must be positive, got {self.num_magnitude_bins}")
        choices = list(self._space)
        names = [choices[k] for k in draws.integers(0, len(choices)).tolist()]
        fractions = draws.integers(0, self.num_magnitude_bins).to(torch.float64) / max(1, self.num_magnitude_bins - 1)
        return self._apply(image, self._make_steps(draws, names, fractions.tolist(), image))


class AugMix(_Policy, reference.AugMix):
    """torchvision's spelling of :func:`torch_ndd.augment.aug_mix`: blend the image with several chains of augmentations of it."""

    def _augment(self, image: Any, draws: Draws) -> Any:
        if isinstance(image, PIL.Image.Image):
            return F.to_pil_image(self._augment(F.pil_to_tensor(image), draws))
        if not isinstance(image, Batch):
            return self._augment_tensor(image, draws)
        plain = image.plain() if tv_tensors.is_typed(image) else image
        images = as_images(self._name, plain)
        # Of the image and the mixture; then of the chains in the mixture.
        blend = draws.dirichlet(self.alpha, 2)
        weights = draws.dirichlet(self.alpha, self.mixture_width) * blend[:, 1:]
        mix = images * batch_of(blend[:, 0].to(torch.float32))
        for k in range(self.mixture_width):
            mix = mix + self._apply_chain(images, draws) * batch_of(weights[:, k].to(torch.float32))
        values = mix.wait().to(images.dtype)  # torch truncates, as torchvision does; cast would round
        output = new_batch(values, images.ragged_shapes, plain.layout, shared_extents=images.shared_extents)
        return image.over(output) if tv_tensors.is_typed(image) else output

    def _augment_tensor(self, image: torch.Tensor, draws: Draws) -> torch.Tensor:
        """Blend an image or a video; of a tensor with leading axes, each element of the first has its own weights."""
        values = image.as_subclass(torch.Tensor)
        ndim = 5 if isinstance(image, single.Video) else 4
        stack = values.reshape([1] * max(ndim - values.dim(), 0) + list(values.shape))
        weight_shape = [stack.shape[0]] + [1] * (stack.dim() - 1)
        weight_draws = Draws(stack.shape[0])
        blend = weight_draws.dirichlet(self.alpha, 2).to(torch.float32)
        weights = weight_draws.dirichlet(self.alpha, self.mixture_width).to(torch.float32) * blend[:, 1:]
        mix = blend[:, 0].reshape(weight_shape) * stack
        for k in range(self.mixture_width):
            mix = mix + weights[:, k].reshape(weight_shape) * self._apply_chain(stack, draws)
        output = mix.reshape(values.shape).to(values.dtype)
        return output if is_pure_tensor(image) else tv_tensors.wrap(output, like=image)

    def _apply_chain(self, image: Any, draws: Draws) -> Any:
        """Return each sample after a chain of augmentations drawn for it."""
        # Brightness, color, contrast and sharpness are left out unless `all_ops` is set.
        choices = [name for name in self._space if self.all_ops or name not in _FACTOR_FUNCTIONS]
        depths = [self.chain_depth] * draws.count if self.chain_depth > 0 else draws.integers(1, 4).tolist()
        turns = []
        # Shorter chains end with steps that change nothing, so all samples share the calls.
        for turn in range(max(depths)):
            indices = draws.integers(0, len(choices)).tolist()
            names = [choices[k] if turn < depth else "identity" for k, depth in zip(indices, depths, strict=True)]
            fractions = (draws.integers(0, self.severity).to(torch.float64) / 9).tolist()
            turns.append(self._make_steps(draws, names, fractions, image))
        return self._apply(image, *turns)
