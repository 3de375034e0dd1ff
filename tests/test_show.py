# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd

GAP, TEXT = 4, 16


def tile(picture: Image.Image, row: int, column: int, height: int, width: int, text: int = 0) -> np.ndarray:
    top, left = GAP + row * (height + GAP + text), GAP + column * (width + GAP)
    return np.asarray(picture)[top : top + height, left : left + width]


def test_bytes_are_shown_as_they_are(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (5, 100, 120, 3), dtype=torch.uint8)
    picture = ndd.show(images, tmp_path / "grid.png", columns=2)
    with Image.open(tmp_path / "grid.png") as written:
        assert np.array_equal(np.asarray(written), np.asarray(picture))
    assert picture.size == (2 * 124 + 4, 3 * 104 + 4)
    for i in range(5):
        assert np.array_equal(tile(picture, i // 2, i % 2, 100, 120), images[i])
    assert (tile(picture, 2, 1, 100, 120) == 255).all()


def test_floats_are_scaled_over_the_whole_batch(tmp_path: Path) -> None:
    images = torch.full((2, 3, 96, 96), -2.0)
    images[0, 0] = 3.0
    images[1] = 0.5
    picture = ndd.show(images, tmp_path / "grid.png")
    assert (tile(picture, 0, 0, 96, 96) == [255, 0, 0]).all()
    assert (np.abs(tile(picture, 0, 1, 96, 96).astype(int) - 127.5) <= 0.5).all()


def test_a_constant_float_image_is_black(tmp_path: Path) -> None:
    assert (tile(ndd.show(torch.ones(1, 3, 96, 96), tmp_path / "grid.png"), 0, 0, 96, 96) == 0).all()


def test_ragged_batch_with_labels(tmp_path: Path) -> None:
    samples = [np.full((100 + 10 * i, 130 - 10 * i, 3), 50 * i, np.uint8) for i in range(3)]
    batch = ndd.batch(samples, layout="HWC")
    labels = ndd.batch([np.array([i], np.int32) for i in range(3)])
    picture = ndd.show(batch, tmp_path / "grid.png", labels=labels, columns=3)
    assert picture.size == (3 * 134 + 4, 120 + TEXT + 2 * GAP)
    for i, sample in enumerate(samples):
        assert np.array_equal(tile(picture, 0, i, 120, 130, TEXT)[: sample.shape[0], : sample.shape[1]], sample)


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_the_layout_decides_where_the_shape_does_not(tmp_path: Path, layout: str) -> None:
    pixels = np.arange(3 * 100 * 3, dtype=np.uint8).reshape(3, 100, 3)
    picture = ndd.show(ndd.batch([pixels], layout=layout), tmp_path / "grid.png")
    expected = pixels if layout == "HWC" else pixels.transpose(1, 2, 0)
    assert np.array_equal(tile(picture, 0, 0, *expected.shape[:2]), expected)


@pytest.mark.parametrize("shape", [(100, 120), (100, 120, 1), (1, 100, 120)])
def test_grey_images(tmp_path: Path, shape: tuple[int, ...]) -> None:
    image = torch.randint(0, 256, shape, dtype=torch.uint8)
    picture = ndd.show([image], tmp_path / "grid.png")
    expected = image.reshape(100, 120, 1).expand(100, 120, 3)
    assert np.array_equal(tile(picture, 0, 0, 100, 120), expected)


def test_single_tensor(tmp_path: Path) -> None:
    image = np.arange(100 * 120 * 3, dtype=np.uint8).reshape(100, 120, 3)
    picture = ndd.show(ndd.tensor(image, layout="HWC"), tmp_path / "grid.png")
    assert np.array_equal(tile(picture, 0, 0, 100, 120), image)


@pytest.mark.parametrize(
    ("images", "arguments", "message"),
    [
        ([], {}, "no image"),
        (torch.zeros(2, 8, 8, 3), {"labels": ["one"]}, "1 labels for 2 images"),
        (torch.zeros(2, 8, 8, 3), {"columns": 0}, "columns"),
        (torch.zeros(2, 8, 8, 7), {}, "channels"),
        (torch.zeros(5), {}, "HWC, CHW or HW"),
    ],
)
def test_wrong_arguments_are_rejected(tmp_path: Path, images: object, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"show: .*{message}"):
        ndd.show(images, tmp_path / "grid.png", **arguments)


def test_boxes_in_pixels_and_as_fractions() -> None:
    image = torch.full((100, 200, 3), 128, dtype=torch.uint8)
    pixels = ndd.show([image], boxes=[torch.tensor([[20.0, 10.0, 100.0, 50.0]])])
    fractions = ndd.show([image], boxes=[torch.tensor([[0.1, 0.1, 0.5, 0.5]])])
    shown = tile(pixels, 0, 0, 100, 200)
    assert np.array_equal(shown, tile(fractions, 0, 0, 100, 200))
    changed = np.argwhere((shown != 128).any(-1))
    assert changed.min(0).tolist() == [10, 20]
    assert changed.max(0).tolist() == [49, 99]
    assert (shown[11:49, 21:99] == 128).all()


def test_boxes_outside_the_image_and_no_boxes() -> None:
    images = torch.full((2, 100, 100, 3), 7, dtype=torch.uint8)
    picture = ndd.show(images, boxes=[torch.tensor([[-50.0, -50.0, 500.0, 500.0]]), torch.zeros(0, 4)], columns=2)
    assert (tile(picture, 0, 0, 100, 100)[0] != 7).all()
    assert (tile(picture, 0, 1, 100, 100) == 7).all()


def test_masks_color_all_but_the_background() -> None:
    image, mask = torch.full((100, 100), 100, dtype=torch.uint8), torch.zeros(100, 100, dtype=torch.int64)
    mask[:50], mask[90:] = 1, 2
    shown = tile(ndd.show([image], masks=[mask]), 0, 0, 100, 100)
    assert (shown[50:90] == 100).all()
    assert len({tuple(shown[k, 5]) for k in (0, 60, 95)}) == 3


def test_masks_of_objects_have_a_color_each() -> None:
    image, masks = torch.full((100, 90), 100, dtype=torch.uint8), torch.zeros(3, 100, 90, dtype=torch.uint8)
    masks[0, :50], masks[1, 40:60], masks[2, 90:] = 1, 1, 1
    shown = tile(ndd.show([image], masks=[masks]), 0, 0, 100, 90)
    assert (shown[60:90] == 100).all()
    assert len({tuple(shown[k, 5]) for k in (0, 45, 70, 95)}) == 4
    assert tuple(shown[45, 5]) == tuple(shown[55, 5])


def test_a_video_is_a_strip_of_frames() -> None:
    video = torch.arange(20, dtype=torch.uint8)[:, None, None, None].expand(20, 100, 60, 3).contiguous()
    picture = ndd.show(ndd.as_batch([ndd.tensor(video, layout="FHWC")]))
    shown = tile(picture, 0, 0, 100, 8 * 60 + 7 * 2)
    assert shown[0, 0, 0] == 0
    assert shown[0, -1, 0] == 19
    assert np.array_equal(shown, tile(ndd.show(ndd.tensor(video.permute(0, 3, 1, 2), layout="FCHW")), 0, 0, 100, 8 * 60 + 7 * 2))
    assert picture.size == ndd.show(video[None]).size


def test_a_volume_of_one_channel() -> None:
    volume = ndd.tensor(torch.rand(5, 100, 60), layout="DHW")
    assert ndd.show(volume).size == (5 * 60 + 4 * 2 + 2 * GAP, 100 + 2 * GAP)


@pytest.mark.parametrize("sound", [torch.rand(16000) - 0.5, (torch.rand(8000, 2) * 1000).to(torch.int16), torch.zeros(100)])
def test_a_sound_is_a_wave_above_its_spectrogram(sound: torch.Tensor) -> None:
    assert ndd.show(sound).size == (320 + 2 * GAP, 64 + 128 + 2 * GAP)


def test_the_spectrogram_rises_with_the_frequency() -> None:
    rising = torch.sin(torch.cumsum(torch.linspace(0.1, 3.0, 32000), 0))
    spectrum = tile(ndd.show(rising), 0, 0, 192, 320)[64:].astype(int).sum(-1)
    assert spectrum[:, 300].argmax() < 20 < 108 < spectrum[:, 10].argmax()


def test_a_spectrogram_has_low_frequencies_at_the_bottom() -> None:
    values = torch.zeros(96, 100)
    values[3] = 1.0
    shown = tile(ndd.show(ndd.tensor(values, layout="ft")), 0, 0, 96, 100)
    assert shown.astype(int).sum(-1)[:, 0].argmax() == 92


def test_the_next_batch_of_a_reader_and_of_a_loader(tmp_path: Path) -> None:
    for k in range(6):
        Image.new("RGB", (120, 100), (k * 40, 0, 0)).save(tmp_path / f"{k}.png")
    reader = ndd.readers.File(files=sorted(tmp_path.iterdir()), labels=list(range(6)), max_batch_size=4)
    before = reader.state_dict()
    assert tile(ndd.show(reader), 0, 1, 100, 120, TEXT)[0, 0, 0] == 40
    assert reader.state_dict() == before
    loader = ndd.DataLoader(reader, lambda files, labels: (ndd.decoders.image(files), labels), batch_size=2)
    assert tile(ndd.show(loader), 0, 1, 100, 120, TEXT)[0, 0, 0] == 40
    assert [labels.flatten().tolist() for _, labels in loader] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("value", "arguments", "message"),
    [
        (torch.zeros(2, 8, 8, 3), {"boxes": [torch.zeros(1, 4)]}, "1 boxes for 2 images"),
        (torch.zeros(1, 8, 8, 3), {"boxes": [torch.zeros(1, 5)]}, r"\(boxes, 4\)"),
        (torch.zeros(1, 8, 8, 3), {"masks": [torch.zeros(4, 4, dtype=torch.int32)]}, r"the mask of an image of \(8, 8\) pixels"),
        (torch.zeros(1, 8, 8, 3), {"masks": [torch.zeros(8, 8)]}, "integers"),
        (torch.zeros(1, 2, 8, 8, 3), {"boxes": [torch.zeros(1, 4)]}, "need images"),
        (3, {}, "cannot draw a int"),
    ],
)
def test_mistakes_in_marks(value: object, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"show: .*{message}"):
        ndd.show(value, **arguments)
