# SPDX-License-Identifier: Apache-2.0
"""``from_naflex``: the function of a loader that prepares images as timm's NaFlex transforms and collator do."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from .. import types
from .._core.context.device import DeviceLike
from .._core.native.default_device import ignore_default_device
from .._core.suggestions import check_choice
from .._core.values.tensor import new_tensor
from ..decoders.image import image as decode_image
from ..ops._arguments import as_samples
from ..ops.geometry.crop import crop_mirror_normalize
from ..ops.geometry.resize import resize
from ..ops.geometry.sizes import patches
from ..ops.geometry.slice import pad
from ..ops.shape.patches import patch_positions, patchify

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
INTERPOLATIONS: dict[Interpolation, types.DALIInterpType] = {
    "nearest": types.INTERP_NN,
    "bilinear": types.INTERP_LINEAR,
    "bicubic": types.INTERP_CUBIC,
    "lanczos": types.INTERP_LANCZOS3,
}


class NaFlex:
    """The function of :func:`from_naflex`."""

    def __init__(self, patch_size: int | Sequence[int], max_seq_len: int, max_ratio: float | None, options: dict[str, Any]) -> None:
        self.patch_size, self.max_seq_len, self.max_ratio, self.options = patch_size, max_seq_len, max_ratio, options
        self.steps = [
            "decode, apply the EXIF orientation",
            f"resize to at most {max_seq_len} patches of {patch_size} ({options['interpolation']}, Pillow's rounding)",
            f"normalize: mean {options['mean']}, std {options['std']}",
            "patches with positions, padded" if not options["packed"] else "patches with positions, packed",
        ]

    @ignore_default_device
    def __call__(self, images: Any, *labels: Any) -> Any:
        """Return a dict of ``patches``, ``patch_coord``, ``patch_valid`` and ``seq_len``, and the labels unchanged after it."""
        options = self.options
        samples, _ = as_samples(images)
        if samples.ndim == 1 and samples.dtype is torch.uint8:
            samples = decode_image(samples, output_type=types.RGB, device=options["device"])
        size = patches(samples, patch_size=self.patch_size, max_patches=self.max_seq_len, max_ratio=self.max_ratio)
        resized = resize(samples, size=size, rule="pillow", interp_type=INTERPOLATIONS[options["interpolation"]])
        # Pixels from 0 to 255 are normalized in one pass, without a division before.
        mean, std = [255 * value for value in options["mean"]], [255 * value for value in options["std"]]
        pixels = crop_mirror_normalize(resized, mean=mean, std=std, dtype=options["dtype"], output_layout="HWC")
        tokens, grid = patchify(pixels, patch_size=self.patch_size, order="HWC")  # type: ignore[arg-type]
        positions = patch_positions(grid)
        if options["packed"]:
            result: dict[str, Any] = {"patches": tokens.packed(), "patch_coord": positions.packed().values, "seq_len": self.max_seq_len}
        else:
            valid = np.arange(self.max_seq_len) < grid.torch().prod(1).numpy()[:, None]
            result = {
                "patches": pad(tokens, axes=[0], shape=[self.max_seq_len]).stack(),
                "patch_coord": pad(positions, axes=[0], shape=[self.max_seq_len]).stack(),
                "patch_valid": new_tensor(torch.from_numpy(valid)),
                "seq_len": self.max_seq_len,
            }
        return (result, *labels) if labels else result

    def tokens(self, extents: Any) -> torch.Tensor:
        """Return the patches of each image, int64 (N,), from heights and widths alone."""
        sizes = patches(extents, patch_size=self.patch_size, max_patches=self.max_seq_len, max_ratio=self.max_ratio).torch()
        sides = list(self.patch_size) if isinstance(self.patch_size, Sequence) else [self.patch_size] * 2
        return (sizes.reshape(-1, 2) // torch.tensor(sides)).prod(1)

    tokens.takes_sizes = True  # type: ignore[attr-defined]  # as a cost of batches it needs from_headers

    def __repr__(self) -> str:
        return f"NaFlex: {'; '.join(self.steps)}"


def from_naflex(
    patch_size: int | Sequence[int] = 16,
    max_seq_len: int = 576,
    *,
    max_ratio: float | None = None,
    interpolation: Interpolation = "bicubic",
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
    device: DeviceLike | None = None,
    dtype: torch.dtype = torch.float32,
    packed: bool = False,
) -> NaFlex:
    """Return the function of a :class:`torch_ndd.DataLoader` for timm's NaFlex models: ``ResizeToSequence``, ``Patchify`` and ``NaFlexCollator``.

    Args:
        patch_size: side of a patch in pixels, or height and width.
        max_seq_len: largest number of patches, to which sequences are padded.
        max_ratio: largest scale; by default small images are enlarged up to the sequence length.
        interpolation: "nearest", "bilinear", "bicubic" or "lanczos", of PIL images.
        mean, std: of values from 0 to 1.
        device: where to decode, see :func:`torch_ndd.decoders.image`.
        dtype: type of the patches.
        packed: return sequences as :meth:`Batch.packed` does, instead of padding them.

    Raises:
        ValueError: a size below 1, or another interpolation.

    >>> fn = from_naflex(patch_size=2, max_seq_len=6)
    >>> out = fn(torch.zeros(1, 4, 6, 3, dtype=torch.uint8))
    >>> out["patches"].shape, out["patch_coord"].torch()[0, -1].tolist()
    ((1, 6, 12), [1, 2])
    """
    check_choice("from_naflex", "interpolation", interpolation, INTERPOLATIONS, ValueError)
    patches([[1, 1]], patch_size=patch_size, max_patches=max_seq_len, max_ratio=max_ratio)  # raises for wrong numbers
    options = {"interpolation": interpolation, "mean": tuple(mean), "std": tuple(std), "device": device, "dtype": dtype, "packed": packed}
    return NaFlex(patch_size, max_seq_len, max_ratio, options)
