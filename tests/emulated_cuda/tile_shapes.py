# SPDX-License-Identifier: Apache-2.0
"""Kernels in tiles, of sizes around those of a tile and at every alignment: the CPU kernel against the emulated CUDA kernel, bit by bit.

`make emulated-cuda` runs this with emulated_plugin. The cases of the operators are smaller than a tile.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import emulated_plugin
import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import EvalMode

DTYPES = ["uint8", "uint8", "uint8", "uint16", "float32", "float16", "int64"]


def assert_same(call: Callable[[], Any], relative: float = 0.0, absolute: float = 1e-6) -> None:
    with EvalMode.sync_cpu:
        found = [np.array(value) for value in call()]
        with emulated_plugin.on_cpu():
            expected = [np.array(value) for value in call()]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        if relative == 0.0:
            np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=relative, atol=absolute)


def images(rng: random.Random, dtype: str, channels: int, size: tuple[int, int]) -> Any:
    """Return a batch of up to four random images, dense or ragged."""
    ragged = rng.random() < 0.4

    def draw() -> np.ndarray:
        shape = tuple(rng.randint(20, extent) for extent in size) if ragged else size
        return np.random.default_rng(rng.randint(0, 1 << 30)).integers(0, 255, (*shape, channels)).astype(dtype)

    return ndd.batch([draw() for _ in range(rng.randint(1, 4))], layout="HWC")


def positions(rng: random.Random, count: int) -> Any:
    return ndd.batch([np.float32(rng.random()) for _ in range(count)])


@pytest.mark.parametrize("seed", range(16))
def test_slices_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    dtype, channels = rng.choice(DTYPES), rng.choice([1, 2, 3, 3, 4, 5])
    height, width = rng.randint(33, 110), rng.randint(33, 200)
    x = images(rng, dtype, channels, (height, width))
    for order in ([1, 0, 2], [2, 0, 1], [2, 1, 0]):
        assert_same(lambda order=order: ndd.transpose(x, perm=order))
    assert_same(lambda: ndd.flip(x, horizontal=1))
    assert_same(lambda: ndd.flip(x, horizontal=0, vertical=1))
    assert_same(lambda: ndd.cat(x, x, axis=1))
    assert_same(lambda: ndd.full_like(x, 7))
    assert_same(lambda: ndd.pad(x, axis_names="HW", shape=[height + 7, width + 11], fill_value=5))
    window = {"crop": [rng.randint(17, 60), rng.choice([16, 32, 48, rng.randint(17, 90)])], "out_of_bounds_policy": "pad"}
    window |= {f"crop_pos_{axis}": positions(rng, x.batch_size) for axis in "xy"}
    for fill in (7, list(range(1, channels + 1))):
        assert_same(lambda fill=fill: ndd.crop(x, fill_values=fill, **window))
    for border in ("edge", "reflect", "reflect_101", "wrap"):
        start, shape = [rng.randint(-90, 9), -rng.randint(0, 40)], [rng.randint(40, 300), width + rng.randint(0, 90)]
        assert_same(lambda b=border, s=start, e=shape: ndd.slice(x, start=s, shape=e, axis_names="HW", out_of_bounds_policy=b))
    if dtype not in ("uint8", "float32", "float16"):
        return
    mirror = ndd.batch([np.int32(rng.randint(0, 1)) for _ in range(x.batch_size)])
    for layout in ("CHW", "HWC"):
        for out in (ndd.float32, ndd.float16, ndd.uint8):
            assert_same(
                lambda out=out, layout=layout: ndd.crop_mirror_normalize(
                    x, dtype=out, output_layout=layout, mirror=mirror, mean=[3.0 + c for c in range(channels)], std=[2.0] * channels, **window
                )
            )


@pytest.mark.parametrize("seed", range(8))
def test_layers_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    dtype, channels, count = rng.choice(DTYPES), rng.choice([1, 3, 3, 4, 5]), rng.choice([1, 5, 40])
    height, width = rng.randint(33, 100), rng.randint(33, 400)
    x = images(rng, dtype, channels, (height, width))

    def numbers(most: float) -> Sequence[float]:
        return [rng.random() * most for _ in range(2 * count)]

    regions = {"anchor": numbers(0.9), "shape": numbers(0.7), "normalized_anchor": True, "normalized_shape": True, "axis_names": "HW"}
    for fill in (7.0, [c + 1.0 for c in range(channels)]):
        assert_same(lambda fill=fill: ndd.erase(x, fill_value=fill, **regions))
    size = [height // 2, width // 3]
    parts = ndd.batch([np.full((height, width, channels), k + 1, dtype) for k in range(4)], layout="HWC")
    anchors, targets = ndd.tensor([[1, 2], [3, 1], [5, 7]]), ndd.tensor([[0, 3], [4, 8], [11, 1]])
    assert_same(
        lambda: ndd.multi_paste(
            parts, in_ids=[0, 3, 2], output_size=[height, width + 5], shapes=ndd.tensor([size] * 3), in_anchors=anchors, out_anchors=targets
        )
    )


@pytest.mark.parametrize("seed", range(12))
def test_reductions_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    dtype, channels = rng.choice(DTYPES), rng.choice([1, 2, 3, 3, 4, 17])
    x = images(rng, dtype, channels, rng.choice([(rng.randint(20, 60), rng.randint(20, 300)), (64, 128)]))
    exact = dtype in ("uint8", "uint16")  # the others are added in another order
    relative = 0.0 if exact else 2e-3 if dtype == "float16" else 2e-7
    for axes in ([0, 1], [2], [1], [0], [0, 1, 2], [0, 2], [1, 2]):
        for name in rng.sample(["mean", "sum", "max", "min", "mean_square", "rms"], 3):
            assert_same(lambda name=name, axes=axes: getattr(ndd.reductions, name)(x, axes=axes), relative)


@pytest.mark.parametrize("seed", range(10))
def test_resizes_by_torchs_rule_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    x = images(rng, "uint8", rng.choice([1, 2, 3, 3, 4]), (rng.randint(21, 130), rng.randint(21, 130)))
    kernel = rng.choice([ndd.types.INTERP_LINEAR, ndd.types.INTERP_CUBIC])
    size = [rng.randint(5, 70), rng.randint(5, 90)]
    for rule in ("torch", "pillow"):
        for antialias in (True, False):
            assert_same(lambda rule=rule, antialias=antialias: ndd.resize(x, size=size, rule=rule, interp_type=kernel, antialias=antialias))


@pytest.mark.parametrize("seed", range(10))
def test_resizes_to_floats_by_torchs_rule_of_any_size(seed: int) -> None:
    rng = random.Random(seed)
    dtype = rng.choice(["float32", "float16", "uint8"])
    x = images(rng, dtype, rng.choice([1, 2, 3, 4, 5]), (rng.randint(21, 130), rng.randint(21, 130)))
    out = ndd.float16 if dtype == "float16" else ndd.float32
    kernel = rng.choice([ndd.types.INTERP_LINEAR, ndd.types.INTERP_CUBIC])
    # Also sizes of a tile, larger ones, and an axis that stays.
    size = [rng.choice([5, 8, 32, 70, x.shape[0][0]]), rng.choice([5, 16, 64, 90])]
    # Volumes go by a pass for each axis, with the same sums.
    volumes = ndd.batch([np.stack([np.array(image)] * 2) for image in x], layout="DHWC")
    for rule in ("torch", "pillow"):
        for antialias in (True, False):
            arguments: dict[str, Any] = {"rule": rule, "interp_type": kernel, "antialias": antialias, "dtype": out}
            assert_same(lambda arguments=arguments: ndd.resize(x, size=size, **arguments), 2e-3 if dtype == "float16" else 1e-5, 2e-4)
            if rule == "pillow":  # which may begin with the height, of images only
                continue
            with EvalMode.sync_cpu:
                images_found, volumes_found = ndd.resize(x, size=size, **arguments), ndd.resize(volumes, size=[2, *size], **arguments)
            for image, volume in zip(images_found, volumes_found, strict=True):
                np.testing.assert_array_equal(np.array(image), np.array(volume)[1])


@pytest.mark.parametrize("seed", range(8))
def test_resizes_by_torchs_rule_that_no_tile_holds(seed: int) -> None:
    """Volumes, and images of many channels: a pass for each axis, the first of which skips rows outside the region."""
    rng = random.Random(seed)
    dtype = rng.choice(["uint8", "uint8", "float32", "int16"])
    shape = [rng.randint(3, 9), rng.randint(20, 50), rng.randint(20, 50), rng.randint(1, 3)]
    # In an odd seed's batch one sample has another depth, in every fourth one a depth of 1: it is resampled as an image.
    shapes = [shape, [shape[0] + seed % 2, *shape[1:]], *([[1, *shape[1:]]] if seed % 4 == 3 else [])]
    generator = np.random.default_rng(seed)
    volumes = ndd.batch([generator.integers(0, 255, extents).astype(dtype) for extents in shapes], layout="DHWC")
    many = images(rng, dtype, rng.randint(6, 9), (rng.randint(21, 60), rng.randint(21, 60)))
    kernel = rng.choice([ndd.types.INTERP_LINEAR, ndd.types.INTERP_CUBIC])
    depth = 1 if seed % 4 == 3 else rng.choice([2, 5, shape[0]])
    size = [depth, rng.randint(5, 60), rng.choice([rng.randint(5, 60), shape[2]])]
    tolerance = 1.01 if dtype == "int16" else 1e-3  # sums of floats close to a half may be rounded otherwise
    regions: tuple[dict[str, Any], ...] = ({}, {"roi_start": [0.0, 0.3, 0.1], "roi_end": [1.0, 0.7, 0.9], "roi_relative": True})
    for antialias in (True, False):
        for region in regions:
            arguments: dict[str, Any] = {"interp_type": kernel, "antialias": antialias}
            of_volumes: dict[str, Any] = {**arguments, **region, "size": size, "rule": "torch"}
            assert_same(lambda of_volumes=of_volumes: ndd.resize(volumes, **of_volumes), 1e-5, max(tolerance, 1.01 * (dtype == "uint8")))
            arguments |= {name: value[1:] if isinstance(value, list) else value for name, value in region.items()} | {"size": size[1:]}
            for rule in ("torch", "pillow"):
                of_images: dict[str, Any] = {**arguments, "rule": rule}
                assert_same(lambda of_images=of_images: ndd.resize(many, **of_images), 1e-5, tolerance)


@pytest.mark.parametrize("seed", range(12))
def test_normalization_in_a_resize_equals_that_behind_it(seed: int) -> None:
    rng = random.Random(seed)
    channels = rng.choice([1, 3, 3, 4, 5])
    x = images(rng, rng.choice(["uint8", "uint8", "float32"]), channels, (rng.randint(21, 90), rng.randint(21, 90)))
    if seed % 3 == 0:
        x = ndd.transpose(x, perm=[2, 0, 1])
    mirror = ndd.batch([np.int32(rng.randint(0, 1)) for _ in range(x.batch_size)])
    resize: dict[str, Any] = {"resize_shorter": rng.randint(30, 60), "crop": [rng.randint(5, 40), rng.randint(5, 50)], "mirror": mirror}
    resize |= {"rule": rng.choice(["dali", "dali", "torch"]), "antialias": rng.random() < 0.5}
    constants: dict[str, Any] = {"mean": [3.0 + c for c in range(channels)], "std": [2.0 + c for c in range(channels)]}
    for layout in (None, x.layout):
        for dtype in (ndd.float32, rng.choice([ndd.float16, ndd.bfloat16, ndd.uint8])):
            with EvalMode.sync_cpu:
                fused = ndd.resize_crop_mirror(x, **resize, **constants, output_layout=layout, dtype=dtype)
                two = ndd.crop_mirror_normalize(ndd.resize_crop_mirror(x, **resize), **constants, output_layout=layout, dtype=dtype)
                assert fused.layout == two.layout
                assert torch.equal(fused.torch(), two.torch())


def test_random_resized_crop_with_a_normalization_is_one_launch() -> None:
    x = ndd.batch([np.random.default_rng(k).integers(0, 255, (40 + k, 50, 3)).astype(np.uint8) for k in range(3)], layout="HWC")
    for rule in ("dali", "torch"):
        before = emulated_plugin.count_launches()
        ndd.random_resized_crop(x, size=[20, 30], mirror=1, mean=[1, 2, 3], std=2, rule=rule, dtype=ndd.float16).evaluate()
        assert emulated_plugin.count_launches() == before + len(emulated_plugin.ORDERS)


@pytest.mark.parametrize("seed", range(4))
def test_mixup_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    shape = (rng.randint(20, 70), rng.randint(20, 90), rng.choice([1, 3]))
    kind = rng.choice(["uint8", "float32"])
    x = ndd.batch([np.random.default_rng(k).integers(0, 255, shape).astype(kind) for k in range(3)], layout="HWC")
    for dtype in (ndd.float32, ndd.uint8) if kind == "uint8" else (ndd.float32,):
        before = emulated_plugin.operators_run.get("blend_batch", 0)
        assert_same(lambda dtype=dtype: ndd.augment.mixup(x, dtype=dtype, rng=ndd.random.RNG(seed)))
        assert emulated_plugin.operators_run["blend_batch"] == before + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options", [{}, {"time_warp": 20}, {"p": 0.5, "time_warp": 10, "freq_masks": (5, 9), "time_masks": (3, 20)}, {"time_masks": (0, 0)}]
)
def test_spec_augment_of_frames_around_a_tile(dtype: torch.dtype, options: dict[str, Any]) -> None:
    shapes = [(130, 20), (33, 20), (32, 7), (0, 4), (70, 1), (2, 0), (1, 3)]
    features = ndd.batch([torch.from_numpy(np.random.default_rng(k).normal(size=shape)).to(dtype) for k, shape in enumerate(shapes)])
    before = emulated_plugin.operators_run.get("spec_augment", 0)
    assert_same(lambda: ndd.augment.spec_augment(features, rng=ndd.random.RNG(3), **options), relative=2e-6)
    assert emulated_plugin.operators_run["spec_augment"] == before + 1


@pytest.mark.parametrize("seed", range(24))
def test_windows_of_bytes_of_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    channels = [1, 3, 4, 5][seed % 4]
    # Around the sizes from which on a row, or an image, has one tile more.
    widths = (1, 2, 7, 480 // channels + rng.randint(-4, 4), rng.randint(8, 700 // channels))

    def draw(width: int) -> np.ndarray:
        shape = (rng.choice([0, 1, 2, 5, 31, 32, 33, 70]), width, channels)
        return np.random.default_rng(rng.randint(0, 1 << 30)).integers(0, 256, shape).astype("uint8")

    x = ndd.batch([draw(rng.choice(widths)) for _ in range(3)] if seed % 3 else [draw(widths[seed % 5])] * 2, layout="HWC")
    for size in (3, 5):
        assert_same(lambda size=size: ndd.experimental.median_blur(x, window_size=[size, size]))
    for size in (3, 5, 7):
        border = rng.choice(["reflect_101", "reflect", "replicate", "wrap", "constant"])
        arguments = {"mask_size": [size, size], "border_mode": border, "anchor": [rng.randint(0, size - 1), rng.randint(0, size - 1)]}
        for morphology in (ndd.experimental.dilate, ndd.experimental.erode):
            assert_same(lambda morphology=morphology, arguments=arguments: morphology(x, **arguments))
    y = x - 128 if seed % 2 else x > 100  # signed bytes, and bools
    y = ndd.cast(y, dtype=ndd.int8) if seed % 2 else y
    assert_same(lambda: ndd.experimental.median_blur(y, window_size=[3, 3]))
    assert_same(lambda: ndd.experimental.erode(y, mask_size=[3, 3]))
    assert_same(lambda: ndd.experimental.dilate(y, mask_size=[5, 5]))
    weights = np.random.default_rng(seed).integers(-3, 4, (3, 3)).astype(rng.choice(["float32", "int8"])) / rng.choice([1, 4])
    anchor = [rng.randint(0, 2), rng.randint(0, 2)]
    for border in ("reflect_101", "reflect_1001", "clamp", "wrap"):
        assert_same(lambda border=border: ndd.filter(x, weights, border=border, anchor=anchor))
    if all(min(sample.shape[:2]) >= 3 for sample in x):
        assert_same(lambda: ndd.filter(x, weights, mode="valid"))
    assert_same(lambda: ndd.laplacian(x))


@pytest.mark.parametrize("seed", range(8))
def test_mosaics_of_any_size(seed: int) -> None:
    rng = random.Random(seed)

    def draw() -> np.ndarray:
        shape = (2 * rng.choice([1, 2, 8, rng.randint(4, 40)]), rng.choice([2, 4, 6, 14, 478, 480, 482, 2 * rng.randint(4, 400)]))
        return np.random.default_rng(rng.randint(0, 1 << 30)).integers(0, 256, shape).astype("uint8")

    x = ndd.batch([draw() for _ in range(3)], layout="HW")
    positions = ndd.batch([np.array([rng.randint(0, 1), rng.randint(0, 1)]) for _ in range(3)])
    for algorithm in ("vng_ocv", "bilinear_ocv", "edgeaware_ocv"):
        assert_same(lambda algorithm=algorithm: ndd.debayer(x, blue_position=positions, algorithm=algorithm))


@pytest.mark.parametrize("seed", range(12))
def test_clahe_of_any_size(seed: int) -> None:
    rng = random.Random(seed)
    channels = rng.choice([1, 1, 3])

    def draw() -> np.ndarray:
        shape = rng.choice([(64, 64), (rng.randint(1, 90), rng.randint(1, 200)), (40, 1100)])
        return np.random.default_rng(rng.randint(0, 1 << 30)).integers(0, rng.choice([3, 256]), (*shape, channels)).astype("uint8")

    x = ndd.batch([draw() for _ in range(2)], layout="HWC")
    tiles = {"tiles_x": rng.randint(1, 9), "tiles_y": rng.randint(1, 9), "clip_limit": rng.choice([0.0, 2.0])}
    for luma_only in (True, False):
        assert_same(lambda luma_only=luma_only: ndd.clahe(x, luma_only=luma_only, **tiles))


@pytest.mark.parametrize("seed", range(8))
def test_shot_noise_of_any_length(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.choice([1, 15, 16, 17, 4096, rng.randint(1, 9000)]) for _ in range(4)]
    x = ndd.batch([np.random.default_rng(n).integers(0, 256, (n, 1, 1)).astype("uint8") for n in lengths], layout="HWC")
    # From all levels in the table of probabilities to nearly none.
    factors = ndd.batch([np.float32(rng.choice([0.0, 0.01, 1.0, 7.97, 20.0, 20.0, 1e30])) for _ in lengths])
    words = rng.randint(0, 1 << 30)
    assert_same(lambda: ndd.noise.shot(x, factor=factors, rng=ndd.random.RNG(words)))


@pytest.mark.parametrize("seed", range(5))
def test_nonsilent_regions_of_windows_of_any_length(seed: int) -> None:
    rng = random.Random(seed)

    def draw() -> np.ndarray:
        count = rng.choice([0, 1, 255, 256, 257, rng.randint(1, 6000)])
        signal = np.random.default_rng(rng.randint(0, 1 << 30)).integers(-1000, 1000, count)
        signal[: rng.randint(0, count)] = 0
        signal[rng.randint(0, count) :] //= 500
        return signal.astype("int16")

    x = ndd.batch([draw() for _ in range(4)])
    for window in (1, 31, 256, rng.randint(1, 3000)):
        for reference in (0.0, 1000.0):
            arguments = {"window_length": window, "reference_power": reference, "cutoff_db": rng.choice([-60.0, -6.0, 0.0])}
            for k in (0, 1):
                assert_same(lambda k=k, arguments=arguments: ndd.nonsilent_region(x, **arguments)[k])


@pytest.mark.parametrize("seed", range(12))
def test_blurs_of_any_alignment(seed: int) -> None:
    """Bytes have a kernel of their own: its results are those of the one that returns floats, rounded."""
    rng = random.Random(seed)
    channels = rng.choice([1, 2, 3, 3, 4])
    widths = {1: 600, 2: 300, 3: 200, 4: 150}
    x = images(rng, "uint8", channels, (rng.randint(20, 100), rng.randint(20, widths[channels])))
    if rng.random() < 0.4:  # rows of whole pieces of 16 bytes
        x = ndd.crop(x, crop=[rng.randint(20, 100), 16 * rng.randint(1, 12)], out_of_bounds_policy="pad")
    size = [2 * rng.randint(0, 16) + 1, 2 * rng.choice([0, 1, 2, 5, 8, 15, 16]) + 1]
    for arguments in ({"window_size": size}, {"sigma": rng.uniform(0.3, 5.3)}):
        with EvalMode.sync_cpu:
            found, floats = (ndd.gaussian_blur(x, dtype=dtype, **arguments) for dtype in (ndd.uint8, ndd.float32))
        for ours, exact in zip(found, floats, strict=True):
            np.testing.assert_array_equal(np.array(ours), np.floor(np.array(exact) + np.float32(0.49999997)).astype(np.uint8))
