# SPDX-License-Identifier: Apache-2.0
"""The cases of the operators on a GPU: the same as on the CPU, on batches that no cache holds, and a few more."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..cases import CASES, DATA
from ..cases import geometry as _geometry

# The second-level cache of an H200 has 50 MB: 128 VGA images are 118 MB, a window of 224x224 of 512 images 77 MB.
SAMPLES, WINDOW_SAMPLES = 128, 512
HOST_SAMPLES = 16  # of a call whose cost for the host is measured

# What operators of each group have to reach.
BANDWIDTH, RIVALS = "0.8 of the copy bandwidth", "1.0 times DALI and CV-CUDA"
_BANDWIDTH = re.compile(
    r"^(brightness|contrast|hsv|hue|saturation|color_|cast|flip|crop|slice|normalize|copy|arithmetic, x \* 0\.5$|comparison|math\.|"
    r"lookup_table, uint8 to uint8)"
)
_RIVALS = re.compile(
    r"^(resize|tensor_resize|random_resized|rotate|warp_affine|experimental\.(warp|remap)|gaussian_blur|median_blur|laplacian|filter)"
)
_WINDOWS = re.compile(r"^(crop 224|crop_mirror_normalize 224|slice)")
# Not here: files, views that launch nothing, and what is computed on the host.
_LEFT_OUT = re.compile(r"^(decoders|peek_image|dump_image|reshape|reinterpret|expand_dims|transforms|random_crop_generator|tiny)")


@dataclass(frozen=True)
class GpuCase:
    """One operator on a GPU.

    Attributes:
        ndd: As of a `Case`: the imperative module (torch_ndd or DALI's), its constants and a batch on the GPU.
        tv: torchvision v2 and (N, C, H, W) with the channels last in memory.
        data: The name of the input.
        samples: How many.
        bar: What it has to reach.
        traffic: The bytes that must be read and written, from those of the whole input and the output.
        instructions: Of the threads for each element of the output, where these bound the kernel more than the bytes, counted in its machine code.
    """

    name: str
    ndd: Callable[[Any, Any, Any], Any]
    tv: Callable[[Any, Any], Any] | None = None
    data: str = "vga"
    samples: int = SAMPLES
    bar: str | None = None
    traffic: Callable[[int, int], int] = lambda inputs, outputs: inputs + outputs
    instructions: float = 0.0


@functools.cache
def _on_gpu(make: Callable[[], Any], module: Any) -> list[Any]:
    return [module.as_tensor(sample, device="gpu") for sample in make()]


_MEAN, _STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
# What is called otherwise than on the CPU: batches are not of 16 samples here, and random numbers are made on the GPU.
_OTHERWISE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "crop_mirror_normalize 224": lambda ndd, types, x: ndd.crop_mirror_normalize(
        x, crop=[224, 224], mirror=ndd.random.coin_flip(batch_size=x.batch_size, probability=0.5), mean=_MEAN, std=_STD
    ),
    "experimental.remap": lambda ndd, types, x: ndd.experimental.remap(x, *_on_gpu(_geometry._maps, ndd)),
    "batch_permutation, permute_batch": lambda ndd, types, x: ndd.permute_batch(x, indices=ndd.batch_permutation(batch_size=x.batch_size)),
    "augment.mixup, uint8 to float32": lambda ndd, types, x: ndd.augment.mixup(x, _classes(x), num_classes=10, dtype=ndd.float32)[0],
    "augment.cutmix": lambda ndd, types, x: ndd.augment.cutmix(x, _classes(x), num_classes=10)[0],
    "random.uniform 480x640": lambda ndd, types, x: ndd.random.uniform(range=[0.0, 1.0], shape=[480, 640], batch_size=x.batch_size, device="gpu"),
    "random.coin_flip 480x640": lambda ndd, types, x: ndd.random.coin_flip(probability=0.5, shape=[480, 640], batch_size=x.batch_size, device="gpu"),
    "random.normal 64x4096": lambda ndd, types, x: ndd.random.normal(shape=[65536], batch_size=x.batch_size, device="gpu"),
    "random.beta 64x4096": lambda ndd, types, x: ndd.random.beta(alpha=0.4, beta=0.4, shape=[65536], batch_size=x.batch_size, device="gpu"),
    "random.choice 64x4096, with probabilities": lambda ndd, types, x: ndd.random.choice(
        [1, 2, 3, 4], p=[0.1, 0.2, 0.3, 0.4], shape=[65536], batch_size=x.batch_size, device="gpu"
    ),
}
_TORCHVISION_OTHERWISE: dict[str, Callable[[Any, Any], Any]] = {
    "random.normal 64x4096": lambda v2, x: torch.randn(64, 65536, device=x.device),
    "augment.mixup, uint8 to float32": lambda v2, x: v2.MixUp(num_classes=10)(x.float(), torch.arange(len(x), device=x.device) % 10)[0],
    "augment.cutmix": lambda v2, x: v2.CutMix(num_classes=10)(x, torch.arange(len(x), device=x.device) % 10)[0],
}
_NAMES = {name: name.replace("64x4096", "64x65536") for name in _OTHERWISE}


def _classes(x: Any) -> torch.Tensor:
    return torch.arange(x.batch_size) % 10


def _traffic(name: str) -> Callable[[int, int], int]:
    if _WINDOWS.match(name):  # uint8 is read; crop_mirror_normalize writes float32
        return lambda inputs, outputs: outputs * 5 // 4 if "normalize" in name else 2 * outputs
    if name.startswith(("random.", "full")):
        return lambda inputs, outputs: outputs
    if name.startswith(("cat", "stack")):
        return lambda inputs, outputs: 2 * outputs
    return lambda inputs, outputs: inputs + outputs


# The headers of the kernels in csrc/ndd/resample, byte_blur.cuh and audio_resample.cu say where the instructions are. Enlarging by torch's rule is
# not counted.
_INSTRUCTIONS = {
    "resize 224, linear, antialias": 110.0,
    "resize 224, linear": 40.0,
    "resize 224, linear, antialias, torch's rule": 80.0,
    "resize 224, cubic, antialias, torch's rule": 105.0,
    "random_resized_crop 224": 110.0,
    "tensor_resize 224": 110.0,
    "gaussian_blur, sigma 1.5": 40.0,
    "gaussian_blur, sigma 1.5, exact": 40.0,
    # 3.75 for each of 32 and of 96 taps, and 15 besides.
    "audio_resample, 16 to 44.1 kHz": 135.0,
    "audio_resample, 44.1 to 16 kHz": 375.0,
}


def _bar(name: str) -> str | None:
    return BANDWIDTH if _BANDWIDTH.match(name) else RIVALS if _RIVALS.match(name) else None


def _samples(name: str, data: str) -> int:
    if _WINDOWS.match(name):
        return WINDOW_SAMPLES
    return SAMPLES if data.startswith("vga") or data == "masks" else 64


def _make_samples() -> list[GpuCase]:
    same = [
        GpuCase(
            _NAMES.get(name, name),
            _OTHERWISE.get(name, case.ndd),
            _TORCHVISION_OTHERWISE.get(name, case.tv),
            case.data,
            _samples(name, case.data),
            _bar(name),
            _traffic(name),
            _INSTRUCTIONS.get(name, 0.0),
        )
        for name, case in CASES.items()
        if not _LEFT_OUT.match(name)
    ]
    more = [
        GpuCase("brightness, 512 of 224x224", lambda ndd, types, x: ndd.brightness(x, brightness=1.3), data="224", samples=512, bar=BANDWIDTH),
        GpuCase("brightness, float32", lambda ndd, types, x: ndd.brightness(x, brightness=1.3), data="224 float32", samples=256, bar=BANDWIDTH),
        GpuCase("flip, horizontal, float32", lambda ndd, types, x: ndd.flip(x, horizontal=1), data="224 float32", samples=256, bar=BANDWIDTH),
        GpuCase(
            "crop_mirror_normalize of 224x224",
            lambda ndd, types, x: ndd.crop_mirror_normalize(x, mean=_MEAN, std=_STD),
            data="224",
            samples=512,
            bar=BANDWIDTH,
        ),
        GpuCase("brightness, ragged", lambda ndd, types, x: ndd.brightness(x, brightness=1.3), data="ragged", bar=BANDWIDTH),
        GpuCase("flip, horizontal, ragged", lambda ndd, types, x: ndd.flip(x, horizontal=1), data="ragged", bar=BANDWIDTH),
        *(
            GpuCase(f"{name}{', ragged' if data == 'ragged' else ''}", call, data=data, instructions=count)
            for data in ("vga", "ragged")
            for name, call, count in _normalized_resizes()
        ),
        GpuCase("resize 224, linear, antialias, ragged", lambda ndd, types, x: ndd.resize(x, size=[224, 224]), data="ragged", bar=RIVALS),
        GpuCase(
            "rotate 15 degrees, ragged", lambda ndd, types, x: ndd.rotate(x, angle=15.0, keep_size=True, fill_value=0.0), data="ragged", bar=RIVALS
        ),
    ]
    return [*same, *more]


def _normalized_resizes() -> list[tuple[str, Callable[[Any, Any, Any], Any], float]]:
    """What follows a decoder in a training job, as one operator and as two, with the instructions for an element."""

    def draw_mirrors(ndd: Any, x: Any) -> Any:
        return ndd.random.coin_flip(batch_size=x.batch_size, probability=0.5)

    def resize_by_torch(ndd: Any, types: Any, x: Any) -> Any:
        return ndd.resize_crop_mirror(x, size=[224, 224], mirror=draw_mirrors(ndd, x), rule="torch", mean=_MEAN, std=_STD)

    def crop(ndd: Any, types: Any, x: Any) -> Any:
        return ndd.random_resized_crop(x, size=224, mirror=draw_mirrors(ndd, x), mean=_MEAN, std=_STD)

    def crop_to_half(ndd: Any, types: Any, x: Any) -> Any:
        return ndd.random_resized_crop(x, size=224, mirror=draw_mirrors(ndd, x), mean=_MEAN, std=_STD, dtype=ndd.float16)

    def crop_then_normalize(ndd: Any, types: Any, x: Any) -> Any:
        return ndd.crop_mirror_normalize(ndd.random_resized_crop(x, size=224), mirror=draw_mirrors(ndd, x), mean=_MEAN, std=_STD)

    return [
        ("random_resized_crop 224, normalized", crop, 115.0),
        ("random_resized_crop 224, normalized to float16", crop_to_half, 115.0),
        ("random_resized_crop 224, then crop_mirror_normalize", crop_then_normalize, 120.0),
        ("resize_crop_mirror 224, torch's rule, normalized", resize_by_torch, 85.0),
    ]


def samples_of(data: str, count: int) -> list[np.ndarray]:
    """The input of a case."""
    if data == "ragged":
        generator = np.random.default_rng(3)
        return [sample[: generator.integers(300, 481), : generator.integers(400, 641)] for sample in samples_of("vga", count)]
    if data.startswith("224"):
        windows = [sample[100:324, 200:424] for sample in samples_of("vga", count)]
        return [sample.astype(np.float32) for sample in windows] if data.endswith("float32") else windows
    samples = DATA[data]()
    return [samples[k % len(samples)] for k in range(count)]


GPU_CASES: dict[str, GpuCase] = {case.name: case for case in _make_samples()}
