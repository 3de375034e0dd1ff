# SPDX-License-Identifier: Apache-2.0
"""``pack`` writes into its target and nowhere else, and ends, whatever the annotations, the source and the target contain."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd
from torch_ndd.pack import pack


def save_image(path: Path, side: int = 80) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)
    return path


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return all that is in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def annotations_of(path: Path, names: list[Any], **more: Any) -> Path:
    images = [{"id": k, "file_name": name, "height": 80, "width": 80} for k, name in enumerate(names)]
    path.write_text(json.dumps({"images": images, "annotations": [], "categories": [], **more}))
    return path


NAMES: dict[str, Callable[[Path], Any]] = {
    "absolute": lambda folder: str(folder / "source" / "a.jpg"),
    "absolute elsewhere": lambda folder: str(folder / "b.jpg"),
    "above": lambda folder: "../b.jpg",
    "back again": lambda folder: "x/../a.jpg",
    "above by backslashes": lambda folder: "..\\..\\b.jpg",
    "drive": lambda folder: "C:\\b.jpg",
    "work folder": lambda folder: ".pack/a.jpg",
    "own file": lambda folder: "pack.json",
    "zero": lambda folder: "a\0.jpg",
    "empty": lambda folder: "",
    "folder": lambda folder: "..",
    "number": lambda folder: 5,
    "null": lambda folder: None,
}


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "folder"])
@pytest.mark.parametrize("name", NAMES)
def test_names_in_annotations_stay_in_the_folders(name: str, kind: str, tmp_path: Path) -> None:
    save_image(tmp_path / "source" / "a.jpg")
    save_image(tmp_path / "b.jpg")
    annotations = annotations_of(tmp_path / "annotations.json", [NAMES[name](tmp_path)])
    before = snapshot(tmp_path)
    for on_error in ("fail", "skip"):
        with pytest.raises(ValueError, match="file_name"):
            pack(tmp_path / "source", tmp_path / "target", format=kind, shorter=50, annotations=annotations, on_error=on_error)
    assert snapshot(tmp_path) == before


def test_links_in_the_target_are_not_followed(tmp_path: Path) -> None:
    save_image(tmp_path / "source" / "cat" / "1.jpg")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "000000.json").write_text("{}")
    (kept / "x.part").write_text("mine")
    before = snapshot(kept)

    target = tmp_path / "target"
    target.mkdir()
    (target / ".pack").symlink_to(kept)
    with pytest.raises(ValueError, match="not a folder but a link"):
        pack(tmp_path / "source", target)
    (target / ".pack").unlink()
    (target / ".pack").mkdir()
    (target / "cat").symlink_to(kept)
    with pytest.raises(ValueError, match="not a folder but a link"):
        pack(tmp_path / "source", target, format="folder")
    (target / "cat").unlink()
    for name in ("lock", "digest"):
        (target / ".pack" / name).unlink(missing_ok=True)
        (target / ".pack" / name).symlink_to(kept / "made")
        with pytest.raises(OSError, match=r"symbolic links|loop"):
            pack(tmp_path / "source", target)
        (target / ".pack" / name).unlink()
    (target / "000000.tar").symlink_to(kept / "x.part")
    pack(tmp_path / "source", target)
    assert snapshot(kept) == before
    assert not (target / "000000.tar").is_symlink()


@pytest.mark.parametrize("content", ["", "[]", '{"digest": 1}', '{"digest": "x", "options": {}}', "[" * 100_000])
def test_a_damaged_summary_is_named(content: str, tmp_path: Path) -> None:
    save_image(tmp_path / "source" / "cat" / "1.jpg")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "pack.json").write_text(content)
    with pytest.raises(ValueError, match=r"pack.json' is damaged"):
        pack(tmp_path / "source", tmp_path / "target")


def test_links_to_folders_above_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("cat/1.jpg", "dog/2.jpg", "dog/more/3.jpg"):
        save_image(source / name)
    for k, place in enumerate((source, source / "cat", source / "dog" / "more")):
        (place / f"here{k}").symlink_to(".")
        (place / f"again{k}").symlink_to(".")
    (source / "dog" / "up").symlink_to("..")
    (source / "owl").symlink_to("dog")
    result = pack(source, tmp_path / "target", format="folder")
    assert result.images == 5
    assert sorted(name for name in snapshot(tmp_path / "target") if name.endswith(".jpg")) == [
        "cat/1.jpg", "dog/2.jpg", "dog/more/3.jpg", "owl/2.jpg", "owl/more/3.jpg",
    ]  # fmt: skip
    data = ndd.ImageFolder(source)
    assert (data.classes, len(data)) == (["cat", "dog", "owl"], 5)


def test_folders_that_double_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for k in range(30):
        (source / "cat" / str(k)).mkdir(parents=True)
        for name in ("a", "b"):
            (source / "cat" / str(k) / name).symlink_to(source / "cat" / str(k + 1))
    save_image(source / "cat" / "29" / "1.jpg")
    for call in (lambda: pack(source, tmp_path / "target"), lambda: ndd.ImageFolder(source)):
        with pytest.raises(ValueError, match="by more than 100 ways"):
            call()


def test_pipes_and_devices_are_not_images(tmp_path: Path) -> None:
    source = tmp_path / "source"
    save_image(source / "cat" / "1.jpg")
    os.mkfifo(source / "cat" / "2.jpg")
    (source / "cat" / "3.jpg").symlink_to("/dev/zero")
    (source / "cat" / "4.jpg").symlink_to("4.jpg")
    assert pack(source, tmp_path / "target").images == 1
    annotations = annotations_of(tmp_path / "annotations.json", ["cat/2.jpg"])
    with pytest.raises(ValueError, match="are not in"):
        pack(source, tmp_path / "other", annotations=annotations)
    for special in (source / "cat" / "2.jpg", Path("/dev/zero")):
        with pytest.raises(ValueError, match="not a regular file"):
            pack(source, tmp_path / "other", annotations=special)


DAMAGED = [
    {"bbox": None}, {"bbox": [1, 2, 3]}, {"bbox": [1, 2, 3, "4"]}, {"bbox": {"x": 1}}, {"area": "large"}, {"area": None}, {"area": float("nan")},
    {"segmentation": {"counts": [6400]}}, {"segmentation": {"size": [80, 80]}}, {"segmentation": {"size": [80, 80], "counts": [-1, 6401]}},
    {"segmentation": {"size": [80, 80], "counts": [6400.0]}}, {"segmentation": {"size": [80, 80], "counts": "zzzzzzzzzzzzzzzzzzzz"}},
    {"segmentation": {"size": 80, "counts": [6400]}}, {"segmentation": "polygon"}, {"segmentation": [3]}, {"segmentation": [["x"]]},
    {"keypoints": None}, {"keypoints": [[1]]}, {"bbox": [1e400, 0, 0, 0]},
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED, ids=str)
def test_damaged_annotations_are_skipped_like_damaged_images(damage: dict[str, Any], tmp_path: Path) -> None:
    for name in ("0.png", "1.png"):
        save_image(tmp_path / "source" / name)
    objects = [{"id": 1, "image_id": 0, "bbox": [8, 8, 16, 16]}, {"id": 2, "image_id": 1, **damage}]
    annotations = annotations_of(tmp_path / "annotations.json", ["0.png", "1.png"], annotations=objects)
    options: dict[str, Any] = {"annotations": annotations, "shorter": 40, "format": "folder"}
    with pytest.raises(RuntimeError, match=r"pack: .*1.png: "):
        pack(tmp_path / "source", tmp_path / "target", **options)
    result = pack(tmp_path / "source", tmp_path / "target", on_error="skip", **options)
    assert [path for path, _ in result.skipped] == ["1.png"]
    assert json.loads((tmp_path / "target" / "annotations.json").read_text())["annotations"] == [
        {"id": 1, "image_id": 0, "bbox": [4.0, 4.0, 8.0, 8.0]}
    ]


@pytest.mark.parametrize(
    "content",
    ["", "5", "null", '"x"', '{"images": 3}', '{"images": {"a": 1}}', '{"images": [1]}', '{"images": [{"id": [1], "file_name": "0.png"}]}',
     "[" * 100_000, '{"images": [{"file_name": "0.png"}]}', '{"images": [{"id": 1, "file_name": "0.png"}], "annotations": null}',
     '{"images": [{"id": 1, "file_name": "0.png"}], "annotations": [{"image_id": 2}]}'],
)  # fmt: skip
def test_what_is_not_coco_is_named(content: str, tmp_path: Path) -> None:
    save_image(tmp_path / "source" / "0.png")
    (tmp_path / "annotations.json").write_text(content)
    with pytest.raises(ValueError, match="is not a file of COCO annotations"):
        pack(tmp_path / "source", tmp_path / "target", annotations=tmp_path / "annotations.json", on_error="skip")


def test_annotations_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    save_image(tmp_path / "source" / "0.png")
    annotations = annotations_of(tmp_path / "annotations.json", ["0.png"])
    annotations.write_bytes(b"\xef\xbb\xbf" + annotations.read_bytes())
    assert pack(tmp_path / "source", tmp_path / "target", annotations=annotations).images == 1


def test_hidden_folders_are_left_out_with_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("cat/1.jpg", "dog/2.jpg", ".ipynb_checkpoints/1-checkpoint.jpg", "cat/.ipynb_checkpoints/1-checkpoint.jpg", "__MACOSX/1.jpg"):
        save_image(source / name)
    with pytest.warns(UserWarning, match=r"hidden folders in .*: .ipynb_checkpoints, __MACOSX") as warned:
        data = ndd.ImageFolder(source)
    assert (len(warned), data.classes, data.targets) == (1, ["cat", "dog"], [0, 1])
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="hidden folders") as warned:
        assert pack(source, tmp_path / "target").images == 2
    assert len(warned) == 1
