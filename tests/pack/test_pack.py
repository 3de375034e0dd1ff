# SPDX-License-Identifier: Apache-2.0
"""``python -m torch_ndd.pack``: what readers find in its results, damaged images, and runs that were killed."""

import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _forks import Forks
from PIL import Image

import torch_ndd as ndd
from torch_ndd import pack as packing
from torch_ndd import tfrecord as tfrec
from torch_ndd.decoders import _scale
from torch_ndd.pack import Summary, pack, shards_of
from torch_ndd.pack.__main__ import main
from torch_ndd.pack._coco import scaled_annotation

SIZES = ((90, 120), (200, 100), (40, 64), (301, 403))


def picture(height: int, width: int, seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def open_image(path: Path) -> Image.Image:
    return Image.open(io.BytesIO(path.read_bytes()))


def write_classes(folder: Path, count: int = 4) -> Path:
    for label, name in enumerate(("zebra", "Ant", "bee")):
        (folder / name).mkdir(parents=True)
        for k in range(count):
            height, width = SIZES[(label + k) % len(SIZES)]
            picture(height, width, 10 * label + k).save(folder / name / f"{k}.1.{'png' if k == 1 else 'jpg'}", **({} if k == 1 else {"quality": 95}))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_classes(tmp_path / "source")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def original(source: Path) -> list[tuple[bytes, int]]:
    reader = ndd.readers.File(file_root=str(source))
    return [(bytes(np.asarray(file)), int(np.asarray(label)[0])) for file, label in reader.next_epoch()]


def read(target: Path, kind: str) -> list[tuple[bytes, int]]:
    if kind == "folder":
        return original(target)
    if kind == "webdataset":
        reader = ndd.readers.Webdataset(paths=shards_of(target), ext=["jpg;png", "cls"])
        return [(bytes(np.asarray(file)), int(bytes(np.asarray(label)))) for file, label in reader.next_epoch()]
    features = {"image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""), "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1)}
    shards = shards_of(target)
    reader = ndd.readers.TFRecord(path=shards, index_path=[path.replace(".tfrecord", ".idx") for path in shards], features=features)
    return [(bytes(np.asarray(batch["image/encoded"])), int(np.asarray(batch["image/class/label"])[0])) for batch in reader.next_epoch()]


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "folder"])
def test_exact_copies(source: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    result = pack(source, target, format=kind, per_shard=5)
    expected = original(source)
    assert result == Summary(12, sum(len(file) for file, _ in expected), 3, [], 0)
    assert sorted(read(target, kind)) == sorted(expected)
    assert (target / "classes.txt").read_text() == "Ant\nbee\nzebra\n"
    assert not (target / ".pack").exists()


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "folder"])
def test_smaller_images(source: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    pack(source, target, format=kind, shorter=64, per_shard=5)
    expected, result = original(source), read(target, kind)
    assert [label for _, label in result] == [label for _, label in expected]
    for (small, _), (file, _) in zip(result, expected, strict=True):
        was, now = Image.open(io.BytesIO(file)), Image.open(io.BytesIO(small))
        if min(was.size) <= 64:
            assert small == file
            continue
        scale = 64 / min(was.size)
        assert now.format == "JPEG"
        assert now.size == tuple(round(side * scale) for side in was.size)
        right = np.asarray(was.convert("RGB").resize(now.size, Image.Resampling.BILINEAR)).astype(float)
        assert np.abs(np.asarray(now) - right).mean() < 4


def test_without_classes_and_orientation(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(80, 200, 1).save(source / "a.jpg", exif=exif)
    picture(80, 200, 1).convert("L").save(source / "b.png")
    assert pack(source, target, shorter=40, format="folder").images == 2
    assert open_image(target / "a.jpg").size == (40, 100)
    assert open_image(target / "b.jpg").mode == "L"
    assert not (target / "classes.txt").exists()
    assert pack(source, target, shorter=40, format="folder").resumed == 1  # all is there


def test_pillow_encodes_where_there_is_no_libjpeg(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scale, "libjpeg_version", lambda: None)
    assert pack(source, tmp_path / "a", shorter=30, format="folder", per_shard=4).images == 12
    assert {min(open_image(path).size) for path in (tmp_path / "a").rglob("*.jpg")} == {30}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="needs an encoder: pip install pillow"):
        pack(source, tmp_path / "b", shorter=30)
    assert not (tmp_path / "b").exists()


def test_damaged_images(source: Path, tmp_path: Path) -> None:
    (source / "bee" / "3.1.jpg").write_bytes(b"")
    half = (source / "zebra" / "0.1.jpg").read_bytes()
    (source / "zebra" / "0.1.jpg").write_bytes(half[: len(half) // 2])
    options = {"shorter": 32, "per_shard": 3}
    with pytest.raises(RuntimeError, match=r"pack: .*/(bee/3|zebra/0).1.jpg: .*(empty|damaged)"):
        pack(source, tmp_path / "target", **options)
    result = pack(source, tmp_path / "target", on_error="skip", **options)
    assert result.images == 10
    assert [path for path, _ in result.skipped] == ["bee/3.1.jpg", "zebra/0.1.jpg"]
    assert len(read(tmp_path / "target", "webdataset")) == 10
    pack(source, tmp_path / "fresh", on_error="skip", **options)
    assert contents(tmp_path / "target") == contents(tmp_path / "fresh")


def test_command_line(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(source), str(tmp_path / "a"), "--shorter", "50", "--per-shard", "4", "--jobs", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("12 images, ")
    assert "pack: 12 of 12 images" in shown.err
    (source / "bee" / "3.1.jpg").write_bytes(b"no image")
    assert main([str(source), str(tmp_path / "b"), "--quiet"]) == 1
    assert "bee/3.1.jpg" in capsys.readouterr().err
    assert main([str(source), str(tmp_path / "b"), "--quiet", "--on-error", "skip"]) == 0
    assert "skipped bee/3.1.jpg: " in capsys.readouterr().err


def test_wrong_arguments(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for options, what in (
        ({"format": "zip"}, "format must be one of"),
        ({"quality": 0}, "quality must be from 1 to 100"),
        ({"shorter": 0}, "shorter must be positive"),
        ({"per_shard": 0}, "per_shard must be positive"),
        ({"on_error": "raise"}, "on_error must be"),
    ):
        with pytest.raises(ValueError, match=f"pack: {what}"):
            pack(source, target, **options)
    with pytest.raises(ValueError, match="is not a folder"):
        pack(source / "nothing", target)
    pack(source, target)
    with pytest.raises(ValueError, match="was packed with other arguments"):
        pack(source, target, shorter=10)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    with pytest.raises(ValueError, match="has files, and none of an earlier run"):
        pack(source, tmp_path / "full")
    for other in (source, source / "packed", tmp_path):
        with pytest.raises(ValueError, match="are the same folder, or one contains the other"):
            pack(source, other)
    with pytest.raises(ValueError, match="is not a complete packed data set"):
        shards_of(source)
    picture(9, 9, 0).save(source / "loose.png")
    with pytest.raises(ValueError, match="beside them images without a class"):
        pack(source, tmp_path / "other")


def coco_of(folder: Path) -> Path:
    folder.mkdir()
    images, objects = [], []
    for k, (height, width) in enumerate(SIZES):
        picture(height, width, k).save(folder / f"{k}.png")
        images.append({"id": 100 + k, "file_name": f"{k}.png", "height": height, "width": width, "license": 4})
        box = [width / 4, height / 8, width / 2, height / 2]
        x, y, w, h = box
        polygon = [x, y, x + w, y, x + w, y + h, x, y + h]
        about = {"image_id": 100 + k, "category_id": 7, "area": w * h, "bbox": box, "iscrowd": 0, "keypoints": [x, y, 2, 0, 0, 0]}
        objects.append({"id": 2 * k, "segmentation": [polygon], **about})
        mask = np.zeros((height, width), np.uint8)
        mask[height // 4 : height // 2, width // 4 : width // 2] = 1
        edges = np.flatnonzero(np.diff(mask.T.ravel())) + 1
        counts = np.diff([0, *edges, mask.size]).tolist()
        objects.append({"id": 2 * k + 1, **about, "segmentation": {"size": [height, width], "counts": counts}, "iscrowd": 1, "area": int(mask.sum())})
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": [{"id": 7, "name": "seven"}], "info": {"year": 1}}))
    return path


def test_coco_follows_the_images(tmp_path: Path) -> None:
    annotations = coco_of(tmp_path / "source")
    target = tmp_path / "target"
    pack(tmp_path / "source", target, shorter=50, format="folder", annotations=annotations)
    relative = {}
    for folder, file in ((tmp_path / "source", annotations), (target, target / "annotations.json")):
        reader = ndd.readers.COCO(file_root=str(folder), annotations_file=str(file), ratio=True, ltrb=True, polygon_masks=True, image_ids=True)
        relative[folder] = [[np.asarray(value) for value in sample] for sample in reader.next_epoch()]
    for sample, small in zip(*relative.values(), strict=True):
        assert np.abs(sample[1] - small[1]).max() < 2e-4  # boxes, as parts of the image
        assert np.array_equal(sample[2], small[2])
        assert np.array_equal(sample[-1], small[-1])
    result = json.loads((target / "annotations.json").read_text())
    before = json.loads(annotations.read_text())
    assert (result["info"], result["categories"]) == (before["info"], before["categories"])
    for image in result["images"]:
        assert open_image(target / image["file_name"]).size == (image["width"], image["height"])
        assert image["license"] == 4
    of_image = {image["id"]: image for image in result["images"]}
    for item in result["annotations"]:
        image = of_image[item["image_id"]]
        if item["iscrowd"]:
            runs = item["segmentation"]
            assert runs["size"] == [image["height"], image["width"]]
            assert sum(runs["counts"]) == image["height"] * image["width"]
            assert abs(sum(runs["counts"][1::2]) / item["area"] - 1) < 0.1
        else:
            x, y, w, h = item["bbox"]
            assert np.allclose(item["segmentation"], [[x, y, x + w, y, x + w, y + h, x, y + h]], atol=2e-3)
            assert abs(item["area"] - w * h) < 0.1
            assert item["keypoints"][2:] == [2, 0, 0, 0]
            assert np.allclose(item["keypoints"][:2], [x, y], atol=2e-3)


def test_coco_in_archives(tmp_path: Path) -> None:
    annotations = coco_of(tmp_path / "source")
    pack(tmp_path / "source", tmp_path / "target", shorter=50, annotations=annotations)
    reader = ndd.readers.Webdataset(paths=shards_of(tmp_path / "target"), ext=["jpg;png", "json"])
    found = [json.loads(bytes(np.asarray(text))) for _, text in reader.next_epoch()]
    assert [value["image"]["id"] for value in found] == [100, 101, 102, 103]
    assert [a for value in found for a in value["annotations"]] == json.loads((tmp_path / "target" / "annotations.json").read_text())["annotations"]


def test_coco_that_does_not_suit(tmp_path: Path) -> None:
    annotations = coco_of(tmp_path / "source")
    document = json.loads(annotations.read_text())
    document["images"][1]["height"] += 1
    annotations.write_text(json.dumps(document))
    with pytest.raises(RuntimeError, match=r"1.png: it has 200x100 pixels, but its annotations are for 201x100"):
        pack(tmp_path / "source", tmp_path / "target", annotations=annotations)
    result = pack(tmp_path / "source", tmp_path / "target", annotations=annotations, on_error="skip")
    assert result.images == 3
    document["images"][1]["file_name"] = "none.png"
    annotations.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"1 images of .* are not in .*, such as 'none.png'"):
        pack(tmp_path / "source", tmp_path / "other", annotations=annotations)
    annotations.write_text("[1]")
    with pytest.raises(ValueError, match="is not a file of COCO annotations"):
        pack(tmp_path / "source", tmp_path / "other", annotations=annotations)


def test_masks_as_text_equal_those_as_counts() -> None:
    masks = pytest.importorskip("pycocotools.mask")
    for seed in range(5):
        mask = np.asarray(picture(60, 90, seed))[:, :, 0] > 120
        runs = masks.encode(np.asfortranarray(mask.astype(np.uint8)))
        text = {"segmentation": {"size": [60, 90], "counts": runs["counts"].decode()}}
        result = scaled_annotation(text, (60, 90), (30, 45))["segmentation"]
        found = np.repeat(np.arange(len(result["counts"])) % 2, result["counts"]).reshape(45, 30).T
        assert np.array_equal(found, mask[1::2, 1::2])


COMMAND = "import runpy; runpy.run_module('torch_ndd.pack', run_name='__main__', alter_sys=True)"  # python -m torch_ndd.pack


@pytest.mark.slow
def test_a_killed_run_continues(tmp_path: Path, forks: Forks) -> None:
    source = write_classes(tmp_path / "source", 40)
    pack(source, tmp_path / "whole", shorter=50, per_shard=2)
    target, kills, shards = tmp_path / "target", 0, 60
    for wanted in (1, shards // 3, 2 * shards // 3):
        run = forks.run(COMMAND, source, target, "--shorter", "50", "--per-shard", "2", "--jobs", "2")
        while run.poll() is None and len([*target.glob("*.tar")]) < wanted:
            time.sleep(0.001)
        run.kill()
        run.wait()
        kills += run.returncode == -signal.SIGKILL
        for path in target.glob("*.tar"):
            assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
    (target / ".pack" / "000000-dead.part").write_bytes(b"half")  # as of a kill in the middle of a file
    result = pack(source, target, shorter=50, per_shard=2)
    assert kills > 0
    assert result.resumed > 0
    assert contents(target) == contents(tmp_path / "whole")


def test_a_full_disk(tmp_path: Path, forks: Forks) -> None:
    """Of files, which may not be larger than some shards are."""
    source = write_classes(tmp_path / "source", 12)
    pack(source, tmp_path / "whole", per_shard=3)
    sizes = sorted(path.stat().st_size for path in (tmp_path / "whole").glob("*.tar"))
    assert sizes[0] < sizes[-1]
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop()),) * 2)"
    run = forks.run(f"{limit}; {COMMAND}", source, tmp_path / "target", "--per-shard", "3", "--jobs", "1", sizes[-1] - 1)
    assert run.wait() == 1
    assert re.search(r"pack: \[Errno \d+\] .*: '.*/target/\d+\.tar'; completed work is kept; run the same command again", run.errors), run.errors
    assert not [*(tmp_path / "target" / ".pack").glob("*.part")]
    result = pack(source, tmp_path / "target", per_shard=3)
    assert 0 < result.resumed < len(sizes)
    assert contents(tmp_path / "target") == contents(tmp_path / "whole")


def test_two_at_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"

    def again(*arguments: Any) -> Any:
        with pytest.raises(RuntimeError, match="another process is at work"):
            pack(source, target)
        return run(*arguments)

    run = packing._run
    monkeypatch.setattr(packing, "_run", again)
    assert pack(source, target).images == 12


@pytest.mark.slow
def test_packing_with_ray(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    program = f"""
import ray
from torch_ndd.pack import pack
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
made = pack({str(source)!r}, {str(tmp_path / "ray")!r}, shorter=50, per_shard=4, ray=True)
assert made.images == 12 and made.shards == 3, made
open({str(source / "bee" / "0.1.jpg")!r}, "wb").write(b"damaged")
try:
    pack({str(source)!r}, {str(tmp_path / "bad")!r}, shorter=50, per_shard=4, ray=True)
except RuntimeError as error:
    assert "bee/0.1.jpg" in str(error), error
    print("refused")
ray.shutdown()
"""
    pack(source, tmp_path / "here", shorter=50, per_shard=4)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=400, env={**os.environ})
    assert done.stdout.strip().endswith("refused"), done.stderr[-3000:]
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")
