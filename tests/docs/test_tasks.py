# SPDX-License-Identifier: Apache-2.0
"""The first tasks of the documentation: each page shows a script, and the scripts run."""

import ast
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _forks import SCRIPT, Forks
from _robots import write_v3
from _videos import encoders
from PIL import Image

import torch_ndd as ndd

DOCS = Path(__file__).parents[2] / "docs"
TASKS = Path(__file__).parent / "tasks"
sys.path.insert(0, str(DOCS / "_ext"))

from samples import names  # noqa: E402

Run = Callable[..., list[str]]


@pytest.fixture
def run(forks: Forks) -> Run:
    """Runs a script with arguments and returns its output."""

    def lines(task: str, *arguments: str) -> list[str]:
        done = forks.run(SCRIPT, TASKS / f"{task}.py", *arguments)
        assert done.wait(300) == 0, done.errors[-3000:]
        return done.output.splitlines()

    return lines


@pytest.fixture(scope="module")
def data() -> Any:
    return names()["data"]


def test_every_script_has_a_page() -> None:
    shown = {path.stem for path in (DOCS / "tasks").glob("*.md")} - {"index"}
    assert shown == {path.stem for path in TASKS.glob("*.py")}
    assert all(f"tests/docs/tasks/{name}.py" in (DOCS / "tasks" / f"{name}.md").read_text() for name in shown)


def test_image_folder(data: Any, run: Run) -> None:
    assert run("image_folder", data.folder) == ["['indoors', 'outdoors']", *["(4, 3, 64, 64) torch.int64"] * 2]


def test_coco_task_runs(data: Any, run: Run) -> None:
    printed = run("coco", data.root, data.annotations)
    assert len(printed) == 2
    assert all(line.startswith("(4, 96, 96, 3) [(") for line in printed)


def test_compose_task_runs(data: Any, run: Run) -> None:
    pytest.importorskip("albumentations")
    printed = run("compose", data.root, data.annotations)
    assert len(printed) == 2
    for line in printed:
        assert line.startswith("(4, 3, 96, 96) [(")
        boxes, labels = (ast.literal_eval(f"[{part.strip('[]')}]") for part in line.removeprefix("(4, 3, 96, 96) ").split("] ["))
        assert [shape[0] for shape in boxes] == labels


def test_csv_manifest_task_runs(data: Any, tmp_path: Path, run: Run) -> None:
    rows = [f"{path.relative_to(data.folder)},{path.parent.name}" for path in sorted(Path(data.folder).rglob("*.jpg"))]
    manifest = Path(data.folder) / "manifest.csv"
    manifest.write_text("\n".join(["path,label", *rows]))
    printed = run("csv_manifest", str(manifest))
    manifest.unlink()
    assert [line.split(")")[0] + ")" for line in printed] == ["(4, 64, 64, 3)"] * 2
    assert sorted(ast.literal_eval(printed[0].split(") ")[1]) + ast.literal_eval(printed[1].split(") ")[1])) == ["indoors"] * 4 + ["outdoors"] * 4


def test_strength_task_runs(data: Any, run: Run) -> None:
    assert run("strength", data.folder) == [f"{epoch} {[[4 * epoch] * 4] * 2}" for epoch in range(3)]


def test_gpu_task_runs(data: Any, run: Run) -> None:
    assert run("gpu", data.folder) == ["(4, 3, 64, 64) True"] * 2 + ["0 copies for which the host waited"]


def test_segmentation_task_runs(tmp_path: Path, run: Run) -> None:
    for folder, mode, suffix in (("images", "RGB", "jpg"), ("masks", "L", "png")):
        (tmp_path / folder / "all").mkdir(parents=True)
        for k in range(8):
            picture = Image.new(mode, (100 + k, 80))
            picture.paste(k + 1 if mode == "L" else (30 * k, 0, 0), (0, 0, 50, 80))
            picture.save(tmp_path / folder / "all" / f"{k}.{suffix}")
    printed = run("segmentation", str(tmp_path / "images"), str(tmp_path / "masks"))
    assert [line.split(" [")[0] for line in printed] == ["(4, 3, 64, 64) (4, 64, 64, 1)"] * 2
    assert sorted({label for line in printed for label in ast.literal_eval(line.split(") ")[2])}) == list(range(9))


def test_split_task_runs(data: Any, run: Run) -> None:
    training, validation = run("split", data.folder)
    assert training.startswith("training 6 <readers.File files=")
    assert validation.startswith("validation 2 <readers.File files=")
    assert (training[-10:], validation[-10:]) == ("6 samples>", "2 samples>")


def test_preset_task_runs(data: Any, run: Run) -> None:
    assert run("preset", data.folder) == ["(3, 224, 224)"] + ["(4, 3, 224, 224) (4, 1000)"] * 2


def test_custom_dataset(data: Any, run: Run) -> None:
    assert run("custom_dataset", data.folder) == [f"({n}, 64, 64, 3) torch.int64" for n in (3, 3, 2)]


def test_own_operator(data: Any, run: Run) -> None:
    assert run("own_operator", data.folder) == ["(4, 48, 48, 3) [0, 255] (4, 3) True"] * 2


def test_robots_task_runs(tmp_path: Path, run: Run) -> None:
    encoders()
    assert set(run("robots", write_v3(tmp_path))) == {"torch.Size([4, 3, 3, 64, 64]) torch.Size([4, 4, 3]) torch.Size([4, 4])"}


def test_speech_task_runs(data: Any, run: Run) -> None:
    printed = run("speech", data.manifest)
    assert printed == ["torch.Size([2, 80, 201])"]


def test_video_clips(data: Any, run: Run) -> None:
    assert set(run("video_clips", data.video)) == {"torch.Size([1, 3, 6, 64, 64])"}


def test_webdataset_task_runs(data: Any, run: Run) -> None:
    printed = run("webdataset", *data.tars)
    labels = [int(value) for line in printed for value in line.split("[")[2].rstrip("]").split(",")]
    assert sorted(labels) == list(range(8))


def test_mix_task_runs(tmp_path: Path, run: Run) -> None:
    for name, count in (("web", 20), ("docs", 12), ("chat", 9)):
        (tmp_path / name / "any").mkdir(parents=True)
        for k in range(count):
            Image.fromarray(np.full((70, 80, 3), 10 * k, np.uint8)).save(tmp_path / name / "any" / f"{k}.jpg")
    printed = run("mix", str(tmp_path))
    batch = "['web', 'docs', 'chat', 'web', 'web', 'docs', 'web', 'chat', 'docs', 'web']"
    assert printed[:4] == [f"(10, 64, 64, 3) {batch}"] * 4
    assert printed[-1] == "[4, 4, 1]"  # every second of 19 samples is one of the 9 of chat; the first ten were delivered before


def test_pack_task_runs(tmp_path: Path, run: Run) -> None:
    for k in range(8):
        (tmp_path / "photos" / f"class {k % 2}").mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(np.full((100 + k, 160, 3), 20 * k, np.uint8))
        picture.save(tmp_path / "photos" / f"class {k % 2}" / f"{k}.jpg")
    printed = run("pack", str(tmp_path / "photos"), str(tmp_path / "packed"))
    assert printed[0] == "8 images, 0 skipped"
    assert sorted(label for line in printed[1:] for label in line.split("[")[2].rstrip("]").split(", ")) == ["0"] * 4 + ["1"] * 4


def test_parquet_task_runs(data: Any, run: Run) -> None:
    assert len(run("parquet", data.parquet)) == 2


@pytest.mark.slow
def test_compiled_task_runs(run: Run) -> None:
    assert run("compiled") == ["torch.Size([8, 3, 64, 64])"] * 3


def test_slow_loader(data: Any, run: Run) -> None:
    assert run("slow_loader", data.folder)[-1].startswith("Python is the limit")


def test_resume_task_runs(data: Any, tmp_path: Path, run: Run) -> None:
    whole = run("resume", data.folder, str(tmp_path / "whole.json"))
    stopped = run("resume", data.folder, str(tmp_path / "a.json"), "stop")
    assert stopped + run("resume", data.folder, str(tmp_path / "a.json")) == whole
    assert len(stopped) == 2
    assert len(whole) == 4


def test_batches_by_cost_task_runs(data: Any, run: Run) -> None:
    *steps, diagnosis = run("batches_by_cost", data.folder)
    assert sum(int(line.split()[1]) for line in steps) == 8
    assert all(line.endswith("with a loss") for line in steps)
    assert diagnosis.startswith("In the batches units are filled to")


def test_corrupt_task_runs(data: Any, tmp_path: Path, run: Run) -> None:
    good = (Path(data.folder) / "indoors" / "1.jpg").read_bytes()
    (tmp_path / "a").mkdir()
    for k in range(5):
        (tmp_path / "a" / f"{k}.jpg").write_bytes(good if k != 3 else good[:100])
    printed = run("corrupt", str(tmp_path))
    assert len(printed) == 1
    assert "3.jpg" in printed[0]


def test_boxes_of_the_coco_task_follow_turned_images() -> None:
    """Of images with an EXIF orientation, to which COCO's boxes do not refer."""
    parsed = ast.parse((TASKS / "coco.py").read_text())
    parsed.body = [value for value in parsed.body if isinstance(value, ast.FunctionDef)]
    names: dict[str, Any] = {"ndd": ndd}
    exec(compile(parsed, "coco.py", "exec"), names)
    pixels = np.zeros((60, 120, 3), np.uint8)
    pixels[10:30, 70:100] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", exif=exif, quality=95)
    boxes = ndd.batch([np.array([[70 / 120, 10 / 60, 100 / 120, 30 / 60]], np.float32)] * 8)
    images, boxes, _ = names["augment"](ndd.batch([np.frombuffer(file.getvalue(), np.uint8)] * 8), boxes, boxes)
    for image, box in zip(images.tensors, boxes.tensors, strict=True):
        rows, columns = np.nonzero(np.asarray(image)[:, :, 0] > 127)
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_allclose(found, np.asarray(box)[0] * 96, atol=2)


@pytest.mark.slow
def test_exported_program_and_package_run_in_another_process(data: Any, run: Run) -> None:
    printed = run("export_program", data.folder)
    photos = sorted(Path(data.folder).rglob("*.jpg"))[:3]
    images = ndd.resize(ndd.decoders.image(list(map(str, photos))), resize_shorter=256)
    expected = ndd.crop_mirror_normalize(images, crop=[224, 224], mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4]).torch()
    assert printed == [f"(1, 3, 224, 224) {round(image.mean().item(), 4)}" for image in expected]
