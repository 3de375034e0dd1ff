# SPDX-License-Identifier: Apache-2.0
"""``ndd.doctor()`` and ``python -m torch_ndd``."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.context import device
from torch_ndd._core.operators.operator import OPERATORS
from torch_ndd.decoders import _gpu_engines

doctor_module = sys.modules["torch_ndd._doctor"]
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "WebP", "PNM", "JPEG 2000")


def test_what_is_there() -> None:
    report = ndd.doctor()
    assert report["versions"]["torch"].startswith(torch.__version__)
    assert report["kernels"]["operators"] == len(OPERATORS)
    computing = sum(operator.kernel is not None for operator in OPERATORS.values())
    assert report["kernels"]["on the CPU"] == computing
    has_cuda = any(backend == "CUDA" for _, backend in native.KERNELS)
    assert (report["kernels"]["CUDA architectures"] is not None) == has_cuda
    assert report["cuda"]["usable"] == torch.cuda.is_available()
    assert tuple(report["codecs"]) == FORMATS
    assert report["cpu"]["threads"] == ndd.get_num_threads()
    assert any(word in report["cpu"]["instructions"] for word in ("SSE2", "AVX", "NEON", "none"))
    assert json.loads(json.dumps(report))["codecs"] == report["codecs"]


def test_every_codec_decodes() -> None:
    codecs = ndd.doctor()["codecs"]
    assert all(codecs[name][-1].isdigit() for name in FORMATS), codecs  # the version of the package


def test_the_text_has_everything() -> None:
    report = ndd.doctor()
    text = str(report)
    for section, content in report.items():
        assert f"\n{section}\n" in text
        for key, value in content.items() if isinstance(content, dict) else ():
            assert any(line.strip().startswith(key) and str(value if value not in (None, True, False) else "") in line for line in text.splitlines())
    for what, why, remedy in report["missing"]:
        assert f"  {what}: {why}\n    {remedy}" in text
    assert repr(report) == text


def missing(report: Any) -> dict[str, tuple[str, str]]:
    return {value.what: (value.why, value.remedy) for value in report["missing"]}


def test_a_missing_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "cuda_problem", lambda: "it was stolen")
    report = ndd.doctor()
    assert report["cuda"] == {"usable": False, "because": "it was stolen"}
    assert missing(report)["a GPU"][0] == "it was stolen"
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "pytorch.org" in missing(ndd.doctor())["a GPU"][1]


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ({"_is_in_bad_fork": lambda: True}, "forked"),
        ({"is_available": lambda: False, "init": lambda: _raise("Found no driver. Install one.\nmore")}, "torch says: Found no driver"),
        ({"is_available": lambda: False, "init": lambda: None}, "this machine has no GPU"),
    ],
)
def test_why_there_is_no_gpu(patch: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in patch.items():
        monkeypatch.setattr(torch.cuda, name, value)
    assert reason in (device.cuda_problem() or "")


def _raise(text: str) -> None:
    raise RuntimeError(text)


def test_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "a build without CUDA" in (device.cuda_problem() or "")


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(content: bytes) -> None:
        if content.startswith(b"\xff\xd8"):
            raise RuntimeError("no such codec\nand more")

    monkeypatch.setattr(doctor_module, "_decode", decode)
    monkeypatch.setattr(doctor_module, "_importable", lambda module: module != "cv2")
    monkeypatch.setattr(doctor_module.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor_module, "find_version", lambda name: None if name.startswith("nvidia-nvimgcodec") else "1.0")
    report = ndd.doctor()
    assert report["codecs"]["JPEG"] == "does not work: RuntimeError: no such codec"
    found = missing(report)
    assert found["JPEG images"] == ("RuntimeError: no such codec", "pip install 'nvidia-nvimgcodec-cu13<0.10'")
    assert found["optical_flow"] == ("opencv-python-headless not installed", "pip install torch_ndd[flow]")
    assert report["extras"]["flow"] == "- without opencv-python-headless; for optical_flow"
    assert "g++" in found["a C++ compiler"][1]
    assert "PNG images" not in found
    assert "jax" not in found


def test_an_old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        major, minor, name, total_memory = 7, 5, "Tesla T4", 16 << 30

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: Properties)
    found: list[Any] = []
    assert doctor_module._gpu(0, "90", found) == "Tesla T4, sm_75, 16 GiB"
    assert found[0].why == "Tesla T4 is sm_75, the library is built for sm_90 and later"
    assert found[0].remedy.startswith("TORCH_NDD_CUDA_ARCHS=75 pip install")
    found.clear()
    doctor_module._gpu(0, "75-real, 90a", found)
    assert found == []


def test_a_codec_that_decodes_wrongly_does_not_work() -> None:
    with pytest.raises(RuntimeError, match="red pixels became"):
        doctor_module._decode(b"P6 8 8 255\n" + bytes(192))


@pytest.mark.slow
def test_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-m", "torch_ndd", "--json"], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["cpu"]["threads"] >= 1
    assert done.stderr == ""
    main = __import__("torch_ndd.__main__", fromlist=["main"]).main
    with pytest.raises(SystemExit):
        main(["--help"])


def test_every_extra_is_listed() -> None:
    tomllib = pytest.importorskip("tomllib")
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    assert set(ndd.doctor()["extras"]) == set(extras) - {"bench", "dali", "docs", "test"}
    for name, found in doctor_module._EXTRAS.items():
        wanted = {re.split("[>[]", extra)[0] for extra in extras[name]}
        assert set(found.packages.values()) == wanted, name


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (None, "decoded by NVDEC, through torchcodec "),
        (("no library", "install it"), "decoded on the CPU: no library"),
        (RuntimeError("videos need the package torchcodec"), "needs torch_ndd[video]"),
    ],
)
def test_report_says_where_videos_are_decoded(monkeypatch: pytest.MonkeyPatch, problem: Any, text: str) -> None:
    def find() -> Any:
        if isinstance(problem, Exception):
            raise problem
        return problem

    monkeypatch.setattr(doctor_module, "cuda_problem", lambda: None)
    monkeypatch.setattr(doctor_module, "gpu_count", lambda: 0)
    monkeypatch.setattr(doctor_module, "find_nvdec_problem", find)
    report = ndd.doctor()
    assert report["cuda"]["video"].startswith(text)
    assert missing(report).get("videos on a GPU") == (
        ("no library; they are decoded on the CPU", "install it") if isinstance(problem, tuple) else None
    )


def test_a_missing_ffmpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "codec", lambda: _raise("torchcodec does not find FFmpeg's libraries\nmore"))
    report = ndd.doctor()
    assert "without FFmpeg" in report["extras"]["video"]
    assert "apt-get install ffmpeg" in missing(report)["decoders.video, readers.Video and VideoResize, GIF, AVIF and HEIC images"][1]


def _on_a_gpu(monkeypatch: pytest.MonkeyPatch, engines: dict[str, str]) -> Any:
    """Report as if there were a GPU on which these engines decode the formats."""
    counts = dict.fromkeys(_gpu_engines.ENGINES, 0)

    def decode(content: bytes, device: str = "cpu") -> None:
        if device == "gpu":
            name = next(name for name, file in doctor_module._FILES.items() if file == content)
            counts[engines[name]] += 1
            counts["refused"] += 1

    monkeypatch.setattr(doctor_module, "cuda_problem", lambda: None)
    monkeypatch.setattr(doctor_module, "gpu_count", lambda: 0)
    monkeypatch.setattr(doctor_module, "_decode", decode)
    monkeypatch.setattr(_gpu_engines, "engine_counts", lambda: dict(counts))
    return ndd.doctor()


def test_the_engines_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    report = _on_a_gpu(monkeypatch, {"JPEG": "hardware", "TIFF": "tiff", "JPEG 2000": "cpu"})
    assert report["cuda"]["JPEG"] == "decoded by the engine 'hardware'"
    assert report["cuda"]["TIFF"] == "decoded by the engine 'tiff'"
    assert report["cuda"]["GPUDirect Storage"].startswith(("not used: ", "used by readers.Numpy"))
    assert missing(report)["JPEG 2000 images on a GPU"] == ("the GPU's decoders do not accept a plain file", "pip install torch_ndd[gpu]")


def test_gpu_libraries_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "_importable", lambda name: True)
    monkeypatch.setattr(doctor_module, "_check_gpu_libraries", lambda: _raise("libnvtiff.so.0 has version 0.2"))
    report = ndd.doctor()
    assert "which cannot be used" in report["extras"]["gpu"]
    use = "JPEG 2000, TIFF and decoders.inflate on a GPU"
    assert missing(report)[use] == ("RuntimeError: libnvtiff.so.0 has version 0.2", "pip install --upgrade torch_ndd[gpu]")
