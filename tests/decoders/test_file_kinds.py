# SPDX-License-Identifier: Apache-2.0
"""A file of another kind is called what it is, by every decoder and reader."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _videos import encode, frames_of
from PIL import Image

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")


def write(save: Callable[[io.BytesIO], Any]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def archive(file: io.BytesIO) -> None:
    with tarfile.open(fileobj=file, mode="w") as result:
        member = tarfile.TarInfo("a.jpg")
        member.size = 3
        result.addfile(member, io.BytesIO(b"abc"))


def write_zip(file: io.BytesIO) -> None:
    with zipfile.ZipFile(file, "w") as result:
        result.writestr("a", "b")


FEATURE = ndd.tfrecord.FixedLenFeature([], ndd.tfrecord.string, "")
NOISE = np.random.default_rng(0).normal(size=4000) * 0.1
FILES: dict[str, Callable[[], bytes]] = {
    "a WAV file": lambda: write(lambda file: soundfile.write(file, NOISE, 8000, format="WAV")),
    "a FLAC sound": lambda: write(lambda file: soundfile.write(file, NOISE, 8000, format="FLAC")),
    "an MP3 sound": lambda: write(lambda file: soundfile.write(file, NOISE, 8000, format="MP3")),
    "an Ogg Vorbis sound": lambda: write(lambda file: soundfile.write(file, NOISE, 8000, format="OGG", subtype="VORBIS")),
    "an MP4 or QuickTime file": lambda: encode(frames_of(3)).tobytes(),
    "a tar archive": lambda: write(archive),
    "compressed by gzip (decompress it)": lambda: gzip.compress(write(archive)),
    "a ZIP archive": lambda: write(write_zip),
    "an .npy file": lambda: write(lambda file: np.save(file, NOISE)),
    "a PNG image": lambda: write(lambda file: Image.new("RGB", (90, 90)).save(file, "PNG")),
    "a PNM image": lambda: write(lambda file: Image.new("RGB", (90, 90), "red").save(file, "PPM")),
    "an HTML or XML document": lambda: b"<!DOCTYPE html><html>404 Not Found</html>" * 20,
    "a pointer of Git LFS": lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n",
}


VIDEOS = {"an MP4 or QuickTime file", "a PNG image", "a PNM image"}  # FFmpeg reads images, too


def epoch(reader: Any) -> None:
    for outputs in reader.next_epoch():
        for output in outputs.values() if isinstance(outputs, dict) else outputs:
            np.asarray(output)


READERS: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "decoders.image": (lambda path: ndd.decoders.image(path), {"a PNG image", "a PNM image"}),
    "decoders.video": (lambda path: ndd.decoders.video(path), VIDEOS),
    "readers.Video": (lambda path: epoch(ndd.readers.Video(filenames=path, sequence_length=2)), VIDEOS),
    "decoders.audio": (
        lambda path: ndd.decoders.audio(path),
        {"a WAV file", "a FLAC sound", "an MP3 sound", "an Ogg Vorbis sound"},
    ),
    "decoders.numpy": (lambda path: ndd.decoders.numpy(path), {"an .npy file"}),
    "readers.Webdataset": (lambda path: epoch(ndd.readers.Webdataset(paths=path, ext="jpg")), {"a tar archive"}),
    "readers.TFRecord": (lambda path: epoch(ndd.readers.TFRecord(path=path, features={"a": FEATURE})), set()),
    "readers.MXNet": (lambda path: epoch(ndd.readers.MXNet(path=path)), set()),
    "readers.Caffe": (lambda path: epoch(ndd.readers.Caffe(path=path)), set()),
    "readers.Parquet": (lambda path: epoch(ndd.readers.Parquet(path=path)), set()),
    "experimental.readers.Fits": (lambda path: epoch(ndd.experimental.readers.Fits(files=[path])), {"compressed by gzip (decompress it)"}),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path: Path, reader: str) -> None:
    read, own = READERS[reader]
    for kind, make in FILES.items():
        if kind in own:
            continue
        path = tmp_path / "file.bin"
        path.write_bytes(make())
        with pytest.raises(RuntimeError, match=f"{reader}: .*it is {kind}".replace("(", r"\(").replace(")", r"\)")) as caught:
            read(path)
        assert "damaged" not in str(caught.value)
        assert "report an issue" not in str(caught.value)


def test_a_damaged_file_of_the_right_kind_is_still_called_damaged(tmp_path: Path) -> None:
    tar = bytearray(write(archive))
    tar[100] ^= 1
    (tmp_path / "a.tar").write_bytes(tar)
    with pytest.raises(RuntimeError, match=r"a\.tar\": the checksum of a tar header is wrong"):
        epoch(ndd.readers.Webdataset(paths=tmp_path / "a.tar", ext="jpg"))
