# SPDX-License-Identifier: Apache-2.0
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def train_images() -> ModuleType:
    return load("train_images")


def write_images(folder: Path, name: str, count: int) -> None:
    (folder / name).mkdir(parents=True)
    for i in range(count):
        pixels = torch.randint(0, 256, (40 + i, 60, 3), dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(folder / name / f"{i}.jpg")


def test_train_images_recognises_digits(train_images: ModuleType, tmp_path: Path) -> None:
    assert train_images.main(["--epochs", "4", "--out", str(tmp_path / "batch.png")]) >= 97


def test_train_images_writes_the_augmented_batch(train_images: ModuleType, tmp_path: Path) -> None:
    train_images.main(["--steps", "1", "--batch-size", "6", "--out", str(tmp_path / "batch.png")])
    # 32 pixels, enlarged three times, three in a row, a gap of 4 around each, and a line of text below
    with Image.open(tmp_path / "batch.png") as picture:
        assert picture.size == (304, 236)


def test_train_images_on_a_folder(train_images: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(tmp_path / "data", "cats", 7)
    write_images(tmp_path / "data", "dogs", 6)
    options = [
        "--steps",
        "2",
        "--batch-size",
        "4",
        "--size",
        "32",
        "--threads",
        "2",
        "--out",
        str(tmp_path / "batch.png"),
    ]
    accuracy = train_images.main([str(tmp_path / "data"), *options])
    assert 0 <= accuracy <= 100
    printed = capsys.readouterr().out
    assert "10 images to train on, 3 held out, 2 classes" in printed
    assert f"accuracy on the held-out images: {accuracy:.1f} %" in printed


def test_train_images_counts_every_held_out_image_once(train_images: ModuleType, tmp_path: Path) -> None:
    write_images(tmp_path, "all", 7)
    files, labels, classes = train_images.list_images(tmp_path)
    assert (len(files), labels, classes) == (7, [0] * 7, ["all"])
    always_right = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 1))
    assert train_images.evaluate(always_right, files, labels, 16, 4) == 7


def test_train_images_refuses_a_folder_without_images(train_images: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="subfolder for each class"):
        train_images.main([str(tmp_path)])
