# SPDX-License-Identifier: Apache-2.0
import sys
from typing import Any

import numpy as np
import pytest
from _cases import Case, Inputs
from scipy import ndimage
from skimage import data

import torch_ndd as ndd
from torch_ndd import types

PHOTO = data.astronaut()[:360, :400]


def texture(height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Smooth noise."""
    noise = np.random.default_rng(seed).normal(size=(height, width, channels))
    smooth = ndimage.gaussian_filter(noise, (2, 2, 0), mode="wrap")
    return np.clip(128 + smooth * (50 / smooth.std()), 0, 255).astype(np.uint8)


def moving(frames: int = 3, height: int = 48, width: int = 56, channels: int = 3) -> Inputs:
    """Windows that move over a texture by whole pixels, by a different distance per frame."""

    def make(ragged: bool) -> tuple[list[np.ndarray], ...]:
        samples = []
        for i in range(3):
            f, h, w = frames + i * ragged, height + 3 * i * ragged, width + 5 * i * ragged
            whole = texture(h + 40, w + 40, channels, i)
            places = np.cumsum([(20, 20), *[((i + k) % 3 - 1, 2 - (i + k) % 4) for k in range(f - 1)]], 0)
            samples.append(np.stack([whole[y : y + h, x : x + w] for y, x in places]))
        return (samples,)

    return make


def whole_shifts(frames: np.ndarray, *hints: np.ndarray, output_grid: int = 4, output_format: int | None = None, **args: Any) -> np.ndarray:
    """Return the single best shift of the whole frame, for every cell."""
    grid = output_format or output_grid
    _, height, width, _ = frames.shape
    fields = []
    for earlier, later in zip(frames[:-1].astype(float), frames[1:].astype(float), strict=True):
        middle = later[4:-4, 4:-4]
        shifts = [(x, y) for y in range(-4, 5) for x in range(-4, 5)]
        best = min(shifts, key=lambda s: np.square(earlier[4 + s[1] : height - 4 + s[1], 4 + s[0] : width - 4 + s[0]] - middle).mean())
        fields.append(np.full((-(-height // grid), -(-width // grid), 2), best, np.float32))
    return np.stack(fields)


def hints(ragged: bool) -> tuple[list[np.ndarray], ...]:
    samples = moving()(ragged)[0]
    return samples, [np.repeat(np.repeat(whole_shifts(sample, output_grid=8), 1, 1), 1, 2) for sample in samples]


UNCOMPILED = "OpenCV is called from Python"
CASES = [
    Case("optical_flow", "default", moving(), {}, "FHWC", whole_shifts, 0.7, uncompiled=UNCOMPILED),
    Case(
        "optical_flow",
        "gray",
        moving(channels=1),
        {"image_type": types.GRAY, "output_grid": 1, "preset": 0.5},
        "FHWC",
        whole_shifts,
        1.2,
        uncompiled=UNCOMPILED,
    ),
    Case("optical_flow", "BGR", moving(), {"image_type": types.BGR, "output_format": 2}, "FHWC", whole_shifts, 0.7, uncompiled=UNCOMPILED),
    Case("optical_flow", "temporal hints", moving(), {"enable_temporal_hints": True}, "FHWC", whole_shifts, 0.7, uncompiled=UNCOMPILED),
    Case("optical_flow", "external hints", hints, {"enable_external_hints": True, "hint_grid": 8}, "FHWC", whole_shifts, 0.7, uncompiled=UNCOMPILED),
]


def flow(frames: Any, *hints: Any, **args: Any) -> np.ndarray:
    return np.asarray(ndd.optical_flow(ndd.tensor(np.asarray(frames), layout="FHWC"), *hints, **args).evaluate())


def move_image(image: np.ndarray, field: np.ndarray) -> np.ndarray:
    """Return the frame after `image` whose optical flow is `field` (x, y)."""
    y, x = np.indices(field.shape[:2], dtype=float)
    at = [y + field[..., 1], x + field[..., 0]]
    return (
        np.stack([ndimage.map_coordinates(image[..., c].astype(float), at, order=3, mode="reflect") for c in range(3)], -1)
        .clip(0, 255)
        .astype(np.uint8)
    )


def motion(name: str) -> np.ndarray:
    y, x = np.indices(PHOTO.shape[:2], dtype=np.float32)
    if name == "shift":
        return np.stack([5.3 + 0 * x, -3.6 + 0 * x], -1)
    if name == "waves":
        return np.stack([4 * np.sin(y / 40), 4 * np.cos(x / 50)], -1)
    angle, cy, cx = np.deg2rad(3), y - y.mean(), x - x.mean()
    return np.stack([np.cos(angle) * cx - np.sin(angle) * cy - cx, np.sin(angle) * cx + np.cos(angle) * cy - cy], -1)


def endpoint_error(found: np.ndarray, truth: np.ndarray, grid: int) -> float:
    """Return the mean error away from the border, where pixels come from outside."""
    height, width = (n // grid * grid for n in truth.shape[:2])
    cells = truth[:height, :width].reshape(height // grid, grid, width // grid, grid, 2).mean((1, 3))
    border = 32 // grid
    return float(np.linalg.norm(found[: len(cells), : cells.shape[1]] - cells, axis=-1)[border:-border, border:-border].mean())


@pytest.mark.parametrize("output_grid", [1, 2, 4])
@pytest.mark.parametrize(("preset", "most"), [(0.0, 0.25), (0.5, 0.5), (1.0, 1.2)])
@pytest.mark.parametrize("name", ["shift", "turn", "waves"])
def test_known_motion(name: str, preset: float, most: float, output_grid: int) -> None:
    truth = motion(name)
    found = flow([PHOTO, move_image(PHOTO, truth)], preset=preset, output_grid=output_grid)
    assert found.shape == (1, 360 // output_grid, 400 // output_grid, 2)
    assert endpoint_error(found[0], truth, output_grid) < most < np.linalg.norm(truth, axis=-1).mean()


def test_the_field_brings_the_frame_before() -> None:
    """DALI's direction: the later frame is the earlier one sampled at the vectors."""
    truth = motion("waves")
    later = move_image(PHOTO, truth)
    found = flow([PHOTO, later], output_grid=1)[0]

    def difference(image: np.ndarray) -> float:
        return float(np.abs(image.astype(float) - later)[32:-32, 32:-32].mean())

    assert difference(move_image(PHOTO, found)) < 0.25 * difference(PHOTO)
    assert difference(move_image(PHOTO, -found)) > difference(PHOTO)


def test_quality_by_preset() -> None:
    truth = motion("turn")
    frames = [PHOTO, move_image(PHOTO, truth)]
    errors = [endpoint_error(flow(frames, preset=preset)[0], truth, 4) for preset in (0.0, 0.5, 1.0)]
    assert errors == sorted(errors)
    for preset, like in ((0.37, 0.0), (0.38, 0.5), (0.74, 0.5), (0.76, 1.0)):
        np.testing.assert_array_equal(flow(frames, preset=preset), flow(frames, preset=like))


def test_hints_find_large_motion() -> None:
    truth = np.broadcast_to(np.float32([90, -60]), (*PHOTO.shape[:2], 2))
    frames = [PHOTO, move_image(PHOTO, truth)]
    middle = (slice(80, 260), slice(40, 260))

    def error(found: np.ndarray) -> float:
        return float(np.median(np.linalg.norm(found[0] - truth, axis=-1)[middle]))

    assert error(flow(frames, output_grid=1)) > 20
    for hint_grid in (1, 2, 4, 8):
        hints = np.broadcast_to(np.float32([85, -63]), (1, -(-360 // hint_grid), -(-400 // hint_grid), 2))
        assert error(flow(frames, hints, enable_external_hints=True, hint_grid=hint_grid, output_grid=1)) < 1
        np.testing.assert_array_equal(flow(frames, hints, hint_grid=hint_grid), flow(frames))  # not enabled


def test_temporal_hints_follow_accelerating_motion() -> None:
    shifts = [25, 50, 75, 100]
    frames = [data.astronaut()[100:360, x : x + 260] for x in np.cumsum([0, *shifts])]

    def errors(enabled: bool) -> list[float]:
        fields = flow(frames, enable_temporal_hints=enabled, output_grid=1)
        return [float(np.median(np.abs(field[40:-40, 20 : 240 - x] - [x, 0]))) for field, x in zip(fields, shifts, strict=True)]

    without, hinted = errors(False), errors(True)
    assert without[0] == hinted[0]
    assert max(hinted) < 0.1
    assert without[-1] > 10


def test_cells_are_means() -> None:
    frames = [PHOTO[:50, :61], PHOTO[2:52, 1:62]]
    fine = flow(frames, output_grid=1)[0]
    for grid in (2, 4):
        coarse = flow(frames, output_grid=grid)[0]
        assert coarse.shape == (-(-50 // grid), -(-61 // grid), 2)
        for y in range(coarse.shape[0]):
            for x in range(coarse.shape[1]):
                np.testing.assert_allclose(coarse[y, x], fine[y * grid : (y + 1) * grid, x * grid : (x + 1) * grid].mean((0, 1)), atol=1e-5)


def test_image_types() -> None:
    frames = np.stack([PHOTO[:80, :90], PHOTO[1:81, 2:92]])
    np.testing.assert_array_equal(flow(frames), flow(np.ascontiguousarray(frames[..., ::-1]), image_type=types.BGR))
    gray = frames.mean(-1, keepdims=True).astype(np.uint8)
    assert endpoint_error(flow(gray, image_type=types.GRAY, output_grid=1)[0], np.full((80, 90, 2), (2, 1)), 1) < 0.3


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (3, 5), (8, 8), (11, 11), (12, 200), (16, 400), (31, 500), (200, 7)])
@pytest.mark.parametrize("preset", [0.0, 0.5, 1.0])
def test_small_and_narrow_frames(size: tuple[int, int], preset: float) -> None:
    """OpenCV itself rejects some of these, and ends the process for others."""
    frames = texture(*size, 3, 0)[None].repeat(2, 0)
    hints = np.full((1, *size, 2), 1e30, np.float32)
    for found in (
        flow(frames, preset=preset, output_grid=1),
        flow(frames, hints, preset=preset, output_grid=1, hint_grid=1, enable_external_hints=True),
    ):
        assert found.shape == (1, *size, 2)
        assert np.isfinite(found).all()
    assert np.abs(flow(frames, preset=preset)).max() < 0.1


def test_flow_of_empty_and_uniform_frames_is_zero() -> None:
    assert flow(np.zeros((3, 0, 8, 3), np.uint8)).shape == (2, 0, 2, 2)
    assert not flow(np.full((3, 40, 50, 3), 7, np.uint8)).any()


def test_sequences_of_different_length_and_size() -> None:
    samples = [np.stack([PHOTO[k : k + h, 2 * k : 2 * k + w] for k in range(f)]) for f, h, w in ((2, 60, 70), (5, 90, 64), (3, 64, 101))]
    output = ndd.optical_flow(ndd.batch(samples, layout="FHWC"))
    assert output.shape == [(1, 15, 18, 2), (4, 23, 16, 2), (2, 16, 26, 2)]
    assert output.layout == "FHWC"
    for sample, part in zip(samples, output.tensors, strict=True):
        np.testing.assert_array_equal(np.asarray(part), flow(sample))
        assert np.abs(np.median(np.asarray(part), (1, 2)) - [2, 1]).max() < 0.2


def test_wrong_sequences() -> None:
    good = np.zeros((3, 16, 16, 3), np.uint8)
    for frames, args, message in (
        (good[:1], {}, "at least 2 frames"),
        (good[..., :1], {}, "3 channels"),
        (good, {"image_type": types.GRAY}, "1 channel"),
        (good, {"image_type": types.YCbCr}, "image_type"),
        (good.astype(np.float32), {}, "uint8"),
        (good, {"output_grid": 3}, "output_grid"),
        (good, {"output_grid": 8}, "output_grid"),
        (good, {"output_format": 8}, "output_grid"),
        (good, {"hint_grid": 3}, "hint_grid"),
        (good, {"preset": 1.5}, "preset"),
        (good, {"preset": -0.1}, "preset"),
        (good, {"preset": float("nan")}, "preset"),
        (good, {"enable_external_hints": True}, "hints"),
    ):
        with pytest.raises(RuntimeError, match=f"optical_flow.*{message}"):
            flow(frames, **args)
    with pytest.raises(ValueError, match=r"optical_flow.*layout"):
        ndd.optical_flow(good[0])
    with pytest.raises(TypeError, match=r"optical_flow.*output_format"):
        flow(good, output_format=2, output_grid=1)


def test_wrong_hints() -> None:
    frames = np.zeros((3, 16, 18, 3), np.uint8)
    right = np.zeros((2, 4, 5, 2), np.float32)
    flow(frames, right, enable_external_hints=True)
    for hints in (right[:1], right[:, :3], right[..., :1], right[0]):
        with pytest.raises(RuntimeError, match=r"sample 0 needs hints of shape \(2, 4, 5, 2\)"):
            flow(frames, hints, enable_external_hints=True)
    for value in (np.nan, np.inf):
        hints = right.copy()
        hints[1, 2, 3, 0] = value
        with pytest.raises(RuntimeError, match="not finite"):
            flow(frames, hints, enable_external_hints=True)


def test_the_input_may_be_pending() -> None:
    frames = ndd.tensor(np.stack([PHOTO[:64, :80], PHOTO[1:65, 2:82]]), layout="FHWC")
    with ndd.EvalMode.deferred:
        waiting = ndd.brightness(frames, brightness=0.9)
        output = ndd.optical_flow(waiting)
    np.testing.assert_array_equal(np.asarray(output), flow(np.asarray(waiting)))
    with ndd.EvalContext(num_threads=3):
        np.testing.assert_array_equal(np.asarray(ndd.optical_flow(waiting)), np.asarray(output))


def test_optical_flow_rejects_inputs_on_a_gpu() -> None:
    on_gpu = ndd.batch([np.zeros((2, 16, 16, 3), np.uint8)], layout="FHWC")
    on_gpu.buffer = on_gpu.buffer.to("meta")  # a device that is not the CPU
    with pytest.raises(RuntimeError, match=r"optical_flow.*Optical Flow SDK.*\.cpu\(\)"):
        ndd.optical_flow(on_gpu)


def test_errors_name_the_sample_and_its_file() -> None:
    videos = ndd.batch([np.zeros((n, 16, 16, 3), np.uint8) for n in (3, 1)], layout="FHWC")
    videos.sources = ("clips/a.mp4", "clips/b.mp4")
    with pytest.raises(RuntimeError, match=r"optical_flow: sample 1 \(clips/b.mp4\) must have at least 2 frames"):
        ndd.optical_flow(videos)


def test_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"optical_flow.*pip install torch_ndd\[flow\]"):
        flow(np.zeros((2, 16, 16, 3), np.uint8))
