# SPDX-License-Identifier: Apache-2.0
"""Codecs of others are patched in the releases that were looked at, and run as they are in every other."""

import io
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd
from torch_ndd.decoders import _jpeg2000, _library, _sndfile

doctor_module = sys.modules["torch_ndd._doctor"]


def encode(kind: str) -> bytearray:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (375, 500, 3), np.uint8)).save(file, kind)
    return bytearray(file.getvalue())


def damaged_jpeg() -> bytes:
    """libjpeg gives up in the middle, and loses 550 kB."""
    content = encode("JPEG")
    middle = len(content) // 2
    content[middle : middle + 8] = b"\x00\xff\x13\x00\xff\x42\xff\xaa"
    return bytes(content)


def odd_jpeg2000() -> bytes:
    """Of components that no colors can be made of: it is decoded, and OpenJPEG prints."""
    content = encode("JPEG2000")
    content[content.index(b"\xff\x51") + 44] = 3
    return bytes(content)


def damaged_mp3() -> bytes:
    """libmpg123 prints about what lies between frames."""
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).uniform(-0.5, 0.5, 48000), 16000, format="MP3", subtype="MPEG_LAYER_III")
    content = bytearray(file.getvalue())
    middle = len(content) // 2
    content[middle : middle + 3000] = bytes(3000)
    return bytes(content)


def heard(content: bytes) -> str:
    try:
        samples, _ = ndd.decoders.audio(ndd.as_tensor(np.frombuffer(content, np.uint8)))
        return str(samples.evaluate().shape)
    except RuntimeError as error:
        return str(error)


def decode(content: bytes) -> np.ndarray:
    return np.asarray(ndd.decoders.image(ndd.as_tensor(np.frombuffer(content, np.uint8))))


RUN = """
import sys, openjpeg
if {unknown}:
    openjpeg.__version__ = "99.0"
from decoders.test_codec_patches import damaged_jpeg, damaged_mp3, decode, heard, ndd, odd_jpeg2000, _library, _sndfile
if {unknown}:
    _library.CHECKED = _sndfile.CHECKED = ()
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4
jpeg = damaged_jpeg()
for k in range(60):
    print(decode(jpeg).sum())
    if k == 20: before = resident()
print("lost", resident() - before, "kB")
print(decode(odd_jpeg2000()).shape)
print("sound", heard(damaged_mp3()))
for row in ndd.doctor()["patches"].items(): print(*row)
for one in ndd.doctor()["missing"]: print(one)
"""


def run(unknown: bool) -> "subprocess.CompletedProcess[str]":
    code = f"import sys; sys.path[:0] = {sys.path!r}\n{RUN.format(unknown=unknown)}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)


def lost(text: str) -> int:
    return int(next(line for line in text.splitlines() if line.startswith("lost")).split()[1])


@pytest.mark.slow
def test_unknown_releases_run_as_they_are_and_doctor_says_so() -> None:
    known, unknown = run(False), run(True)
    assert known.stderr == ""
    assert "Unsupported marker type 0x13" in unknown.stderr
    assert "CAN NOT CONVERT" in unknown.stderr
    assert "Illegal Audio-MPEG-Header" in unknown.stderr
    assert "Illegal Audio-MPEG-Header" in known.stdout
    assert "Illegal Audio-MPEG-Header" not in unknown.stdout
    assert known.stdout.splitlines()[:60] == unknown.stdout.splitlines()[:60]
    assert "(375, 500, 3)" in known.stdout
    assert "(375, 500, 3)" in unknown.stdout
    assert lost(known.stdout) < 4_000
    assert lost(unknown.stdout) > 15_000  # 40 images of 550 kB
    assert "as it is" not in known.stdout
    assert sum("as it is" in line for line in unknown.stdout.splitlines()) == 3
    for name in ("JPEG", "JPEG 2000", "audio"):
        assert re.search(rf"^{name} active in ", known.stdout, re.MULTILINE)
        assert re.search(rf"^{name} not active in ", unknown.stdout, re.MULTILINE)


def test_what_is_installed_here_was_checked() -> None:
    """Otherwise the tests of messages and memory would test nothing."""
    assert _library.is_checked()
    assert _jpeg2000.is_checked(_jpeg2000.openjpeg)
    assert _jpeg2000.patched
    assert _sndfile.version() in _sndfile.CHECKED
    assert _sndfile.load()


def missing(report: Any) -> dict[str, tuple[str, str]]:
    return {value.what: (value.why, value.remedy) for value in report["missing"]}


def test_the_doctor_names_the_release_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [what for what in missing(ndd.doctor()) if what.startswith("a known")]
    monkeypatch.setattr(_library, "CHECKED", ())
    monkeypatch.setattr(_jpeg2000, "patched", False)
    monkeypatch.setattr(_sndfile, "load", lambda: False)
    report = ndd.doctor()
    jpeg, jpeg2000 = missing(report)["a known nvidia-nvimgcodec-cu13"], missing(report)["a known pylibjpeg-openjpeg"]
    sound = missing(report)["a known soundfile"]
    assert jpeg[0].startswith(f"{report['codecs']['JPEG']} runs as it is: a damaged JPEG can leak")
    assert jpeg2000[0] == f"{report['codecs']['JPEG 2000']} runs as it is: it prints about some damaged images"
    assert "nvidia-nvimgcodec-cu13==0.9.0.20" in jpeg[1]
    assert "pylibjpeg-openjpeg==2.6.0" in jpeg2000[1]
    assert sound[0].endswith("runs as it is: it prints about damaged files instead of the error's saying so")
    assert sound[1] == f"pip install soundfile=={_sndfile.CHECKED_PACKAGE}"
    assert report["patches"]["audio"].startswith("not active in soundfile")


def test_another_binary_is_not_a_checked_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "extensions").mkdir()
    monkeypatch.setattr(_library, "folder", lambda: tmp_path)
    assert not _library.is_checked()
    (tmp_path / "extensions" / "libjpeg_turbo_ext.so.0.9.0").write_bytes(b"built by somebody else")
    assert not _library.is_checked()
    assert not _jpeg2000.is_checked(object())


def test_a_missing_libsndfile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sndfile.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"pip install torch_ndd\[audio\]"):
        _sndfile.version()
    monkeypatch.setattr(_sndfile, "_path", lambda: "/nowhere/libsndfile.so")
    with pytest.raises(RuntimeError, match="cannot load libsndfile: /nowhere"):
        _sndfile.version()
