# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
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
from types import ModuleType
from typing import Any

import pytest
import torch
from _forks import SCRIPT, Forks
from PIL import Image

import torch_ndd as ndd

EXAMPLES = Path(__file__).parents[2] / "examples"


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


@pytest.mark.slow
def test_train_images_recognizes_digits(train_images: ModuleType, tmp_path: Path) -> None:
    assert train_images.main(["--epochs", "3", "--out", str(tmp_path / "batch.png")]) >= 97


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


@pytest.fixture
def train_speech() -> ModuleType:
    pytest.importorskip("soundfile")
    return load("train_speech")


@pytest.mark.slow
def test_train_speech_recognizes_synthetic_sounds(train_speech: ModuleType) -> None:
    assert train_speech.main(["--epochs", "6", "--made", "30", "--batch-size", "24"]) >= 60  # 20 by chance


def test_train_speech_on_a_folder(train_speech: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soundfile = pytest.importorskip("soundfile")
    for name in ("yes", "no"):
        (tmp_path / name).mkdir()
        for i in range(5):
            soundfile.write(tmp_path / name / f"{i}.wav", torch.rand(4000 + 1000 * i, 2).numpy(), 8000)
    accuracy = train_speech.main([str(tmp_path), "--steps", "2", "--batch-size", "4", "--threads", "2"])
    printed = capsys.readouterr().out
    assert "8 sounds to train on, 2 held out, 2 classes" in printed
    assert f"accuracy on the held-out sounds: {accuracy:.1f} %" in printed


def test_train_speech_refuses_a_folder_without_sounds(train_speech: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="subfolder for each class"):
        train_speech.main([str(tmp_path)])


@pytest.mark.slow
def test_train_asr_learns_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    arguments = ["--sentences", "60", "--seconds", "20", "--checkpoint", str(tmp_path / "x.pt")]
    losses = load("train_asr").main([*arguments, "--epochs", "3"])
    assert 0 < losses[-1] < 0.7 * losses[0]
    resumed = load("train_asr").main([*arguments, "--epochs", "4"])
    assert 0 < len(resumed) < len(losses)
    assert resumed[-1] < losses[-1]


@pytest.fixture
def train_detection(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("DALI_EXTRA_PATH", raising=False)
    return load("train_detection")


@pytest.mark.slow
def test_train_dino_learns_from_crops_of_files() -> None:
    losses = load("train_dino").main(["--steps", "2", "--batch-size", "4", "--images", "8"])
    assert len(losses) == 2
    assert all(0 < loss < 20 for loss in losses)


@pytest.mark.slow
def test_train_detection_on_made_shapes(train_detection: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = train_detection.main(["--steps", "2", "--batch-size", "4", "--out", str(tmp_path / "batch.png")])
    assert 0 <= found <= 100
    printed = capsys.readouterr().out
    assert "320 images to train on, 80 held out, 3 classes" in printed
    assert f"objects found in the held-out images: {found:.1f} %" in printed
    with Image.open(tmp_path / "batch.png") as picture:  # two rows of 128 pixels, a gap of 4 around each, and a line of text below
        assert picture.size == (268, 300)


def test_train_detection_decodes_what_box_encoder_encodes(train_detection: ModuleType) -> None:
    boxes, labels = torch.tensor([[0.1, 0.2, 0.5, 0.45], [0.6, 0.5, 0.8, 0.9]]), torch.tensor([1, 2], dtype=torch.int32)
    anchors, stds = train_detection.ANCHORS, train_detection.STDS
    encoded, classes = ndd.box_encoder(boxes, labels, anchors=anchors, offset=True, stds=stds)
    result, found = train_detection.decode(encoded.torch()), classes.torch()
    for box, label in zip(boxes, labels, strict=True):
        torch.testing.assert_close(result[found == label], box.expand(int((found == label).sum()), 4), atol=1e-5, rtol=0)
        assert (train_detection.overlaps(box, result[found == label]) > 0.999).all()


def test_train_detection_refuses_a_folder_without_annotations(train_detection: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"instances\.json"):
        train_detection.main([str(tmp_path)])


def read_log(file: Path) -> list[tuple[int, float]]:
    return [(step, loss) for step, loss in map(json.loads, file.read_text().splitlines())]


@pytest.mark.slow
@pytest.mark.figures
def test_resume_training_after_a_kill(tmp_path: Path, forks: Forks) -> None:
    """Killed twice, training makes the steps of an uninterrupted one, with the same losses."""
    options = ["--epochs", "1", "--batch-size", "16", "--save-every", "5"]
    expected, log = tmp_path / "expected", tmp_path / "log"
    kills = []
    for wanted in (12, 31):
        process = forks.run(SCRIPT, EXAMPLES / "resume_training.py", tmp_path / "killed", "--log", log, *options)
        end = time.monotonic() + 120
        while time.monotonic() < end and (not log.exists() or log.read_bytes().count(b"\n") < wanted):
            assert process.poll() is None, process.errors
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills.append(read_log(log)[-1][0])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            load("resume_training").main([str(tmp_path / "killed"), "--log", str(log), *options])
            load("resume_training").main([str(tmp_path / "whole"), "--log", str(expected), *options])
    finally:
        torch.set_num_threads(threads)
    steps = read_log(expected)
    assert [step for step, _ in steps] == list(range(1, 114))
    # Steps between the last checkpoint and a kill are repeated.
    assert set(read_log(log)) == set(steps)
    print(f"killed after steps {kills[0]} and {kills[1]} of {len(steps)}: all losses as without")


@pytest.mark.slow
def test_train_lightning(tmp_path: Path, lightning_forks: Forks) -> None:
    for options, steps in ((["--steps", "12"], 12), (["--epochs", "1"], 23)):
        run = lightning_forks.run(SCRIPT, EXAMPLES / "train_lightning.py", tmp_path, *options)
        assert run.wait(550) == 0, run.errors
        assert f"after {steps} steps" in run.output


@pytest.mark.slow
def test_replace_dataloader(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    example = load("replace_dataloader")
    figures = example.main(["--steps", "3", "--batch-size", "64", "--size", "64"])
    assert min(figures["with_torchvision"], figures["with_ndd"]) > 0
    assert figures["difference"] < 1.01
    printed = capsys.readouterr().out
    assert "with_torchvision: " in printed
    assert "times as fast" in printed


@pytest.mark.slow
def test_compiled_augmentation(capsys: pytest.CaptureFixture[str]) -> None:
    load("compiled_augmentation").main(["--steps", "3", "--batch-size", "4"])
    assert "times as fast" in capsys.readouterr().out


# Processes share two cores here, and most of their time goes into imports.
QUICK_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_ray_preprocess(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / "ray_preprocess.py"), str(tmp_path), "--epochs", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=550, env={**os.environ, **QUICK_RAY})
    assert run.returncode == 0, run.stderr[-5000:]
    assert "epoch 0, step 29: loss" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "accuracy"),
    [(["--epochs", "1", "--steps", "3"], 0), pytest.param(["--epochs", "2"], 90, marks=pytest.mark.slow)],
    ids=["three steps", "two epochs"],
)
def test_pipeline_resnet50_recognizes_digits(
    arguments: list[str], accuracy: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    assert load("pipeline_resnet50").main([*arguments, "--threads", "2"]) >= accuracy
    assert f"epoch {arguments[1]}: loss " in capsys.readouterr().out


def test_pipeline_resnet50_is_the_same_program_on_dali(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("nvidia.dali")
    monkeypatch.syspath_prepend(EXAMPLES)
    program = load("pipeline_resnet50")
    write_images(tmp_path / "val", "cats", 5)
    batches = []
    for package in ("torch_ndd.dali", "nvidia.dali"):
        arguments = {"data_dir": str(tmp_path / "val"), "crop": 32, "size": 36, "shard_id": 0, "num_shards": 1, "area": 0.1, "flip": 0.5}
        pipe = program.create_pipeline(package, batch_size=4, num_threads=1, device_id=None, is_training=False, decoder_device="cpu", **arguments)
        images, labels = pipe.run()
        batches.append((torch.from_numpy(images.as_array().copy()), labels.as_array().tolist()))
    assert batches[0][1] == batches[1][1]
    torch.testing.assert_close(batches[0][0], batches[1][0], rtol=0, atol=0.06)  # a few levels of 255 in the decoded JPEG


@pytest.mark.slow
def test_the_demo_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = load("demo").main(["--images", "120", "--epochs", "4", "--out", str(tmp_path / "demo.png")])
    assert accuracy > 40  # six classes
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.width > 1000
    printed = capsys.readouterr().out
    assert "torch_ndd" in printed
    assert "DataLoader" in printed


@pytest.mark.slow
def test_train_timm(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    example = load("train_timm")
    assert example.main(["--epochs", "3", "--size", "48"]) > 60  # 50 by chance
    assert "epoch 2: loss" in capsys.readouterr().out


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torchvision")
    root = tmp_path_factory.mktemp("small")
    load("loaders").write_data(root)
    return root


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")  # of pycocotools
@pytest.mark.parametrize("name", ["imagenet", "validation", "classification", "detection", "timm", "super-resolution", "ssd", "nnunet", "jasper"])
def test_loaders_example_runs(name: str, small_data: Path) -> None:
    if name in ("detection", "ssd"):
        pytest.importorskip("pycocotools")
    if name == "timm":
        pytest.importorskip("timm")
    example = load("loaders")
    assert set(example.PROGRAMS) >= {name}
    example.compare(name, example.PROGRAMS[name], small_data)


def test_serve_answers_under_load_as_one_by_one(tmp_path: Path) -> None:
    serve = load("serve")
    load("photos").write_photos(tmp_path, 12)
    files = [path.read_bytes() for path in sorted(tmp_path.rglob("*.jpg"))]
    damaged = bytearray(files[0][: len(files[0]) // 2])
    bodies = {**dict(enumerate(files)), "text": b"not an image", "empty": b"", "png": b"\x89PNG\r\n\x1a\n" + bytes(40), "half": bytes(damaged)}

    async def answer(max_batch: int, copies: int) -> tuple[list[Any], list[int]]:
        app = serve.Application(serve.Batcher(serve.build_model(), max_batch=max_batch, max_delay=0.05))
        if max_batch == 1:
            return [await serve.request(app, body) for body in bodies.values()], app.batcher.sizes
        return await asyncio.gather(*(serve.request(app, body) for _ in range(copies) for body in bodies.values())), app.batcher.sizes

    alone, _ = asyncio.run(answer(1, 1))
    together, sizes = asyncio.run(answer(8, 6))
    assert [status for status, _ in alone] == [200] * 12 + [400] * 3 + [alone[-1][0]]
    assert max(sizes) == 8
    for k, (status, content) in enumerate(together):
        expected_status, expected = alone[k % len(bodies)]
        assert status == expected_status
        if status == 200:
            assert content["class"] == expected["class"]
            assert content["probability"] == pytest.approx(expected["probability"], abs=1e-5)
        else:
            assert "image" in content["error"]


def encode_png(extent: int) -> bytes:
    Image.new("L", (extent, extent)).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def test_serve_bounds_what_a_request_may_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = load("serve")
    large = encode_png(3000)
    monkeypatch.setattr(serve, "MAX_PIXELS", 1_000_000)
    monkeypatch.setattr(serve, "MAX_BODY_BYTES", len(large))

    async def answer(bodies: list[bytes], waiting: int) -> list[tuple[int, Any]]:
        monkeypatch.setattr(serve, "MAX_WAITING", waiting)
        app = serve.Application(serve.Batcher(serve.build_model(), max_delay=0.05))
        return await asyncio.gather(*(serve.request(app, body) for body in bodies))

    ((status, content),) = asyncio.run(answer([large], 8))
    assert status == 400
    assert "max_pixels" in content["error"]
    assert asyncio.run(answer([large + b"0"], 8))[0][0] == 413
    small = encode_png(300)
    assert sorted(status for status, _ in asyncio.run(answer([small] * 30, 4)))[-1] == 503


def test_serve_warms_up_before_the_first_request() -> None:
    serve = load("serve")
    app = serve.Application(serve.Batcher(serve.build_model()))
    messages, sent = iter(["lifespan.startup", "lifespan.shutdown"]), []

    async def receive() -> dict[str, Any]:
        return {"type": next(messages)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert app.batcher.sizes == [1]


def test_serve_answers_in_another_event_loop() -> None:
    serve = load("serve")
    app, body = serve.Application(serve.Batcher(serve.build_model())), encode_png(40)
    assert [asyncio.run(asyncio.wait_for(serve.request(app, body), 60))[0] for _ in range(2)] == [200, 200]


def test_serve_load_test_prints_rate_and_latency(capsys: pytest.CaptureFixture[str]) -> None:
    load("serve").main(["--requests", "40", "--clients", "4"])
    assert re.fullmatch(r"\d+ requests per second, p50 [\d.]+ ms, p99 [\d.]+ ms, [\d.]+ images per batch\n", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["train_timm", "replace_dataloader", "train_dino", "train_vlm"])
def test_examples_refuse_a_batch_that_is_larger_than_the_data(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    write_images(tmp_path, "a", 3)
    write_images(tmp_path, "b", 2)
    data = {"train_timm": [str(tmp_path)], "replace_dataloader": ["--folder", str(tmp_path)]}.get(name, ["--images", "5"])
    with pytest.raises(SystemExit):
        load(name).main([*data, "--batch-size", "6"])
    assert re.search("batch of 6; give a smaller --batch-size|--batch-size must be from 1 to the 5 images", capsys.readouterr().err)
