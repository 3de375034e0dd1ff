# SPDX-License-Identifier: Apache-2.0
import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _mutations
import numpy as np
import pytest
from _forks import SCRIPT, Forked, Forks
from _memory import resident_kilobytes
from _videos import encoders
from conftest import WHOLE
from PIL import Image

import torch_ndd as ndd


def encode(codec: str, height: int = 48, width: int = 64) -> bytes:
    y, x = np.mgrid[:height, :width]
    samples = np.stack([(x * 3 + k * y) % 256 for k in range(3)], -1).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(samples).save(file, codec)
    return file.getvalue()


GOOD = encode("JPEG")
HUGE = bytearray(GOOD)
FRAME = GOOD.index(b"\xff\xc0")  # the frame header: marker, length, precision, height, width
HUGE[FRAME + 5 : FRAME + 9] = b"\xff\xff\xff\xff"

BAD = {
    "empty": b"",
    "text": b"a text, whatever its name says\n",
    "a JPEG's first bytes": GOOD[:3],
    "header only": GOOD[: FRAME + 4],
    "truncated JPEG": GOOD[: len(GOOD) // 2],
    "truncated PNG": encode("PNG")[:-60],
    "truncated TIFF": encode("TIFF")[:-500],
    "truncated BMP": encode("BMP")[:-500],
    "truncated PNM": encode("PPM")[:-500],
    "truncated WebP": encode("WEBP")[:-60],
    "truncated JPEG 2000": encode("JPEG2000")[:150],
    "truncated GIF": encode("GIF")[:-60],
    "truncated AVIF": encode("AVIF")[:-60],
    "size that the file cannot hold": bytes(HUGE),
    "PNG chunk that the file cannot hold": encode("PNG")[:33] + b"\xf0\x00\x00\x00IDAT" + bytes(100),
}


@contextmanager
def expect_error(pattern: str) -> Iterator[None]:
    """Return a matcher for a RuntimeError with this text."""
    with pytest.raises(RuntimeError, match=pattern):
        yield


def array(file: bytes) -> np.ndarray:
    return np.frombuffer(file, np.uint8)


# A random window would often miss the part that a truncated file lacks.
ALL_OF_IT = {"random_area": [1.0, 1.0], "random_aspect_ratio": [64 / 48, 64 / 48]}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize(("name", "options"), [("image", {}), ("image_random_crop", ALL_OF_IT)])
def test_error_names_operator_and_sample(name: str, options: dict[str, object], bad: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    decoder = getattr(ndd.decoders, name)
    with expect_error(rf"decoders\.{name}.*sample 1\b"):
        [np.asarray(image) for image in decoder(ndd.batch([array(GOOD), array(bad), array(GOOD)]), **options).tensors]
    image = decoder(ndd.as_tensor(array(GOOD)), **options)
    assert np.asarray(image).shape[2] == 3
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["empty", "text", "truncated JPEG"])
def test_error_names_the_file(tmp_path: Path, name: str) -> None:
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(BAD[name] if i == 1 else GOOD)
    reader = ndd.readers.File(files=[str(tmp_path / f"{i}.jpg") for i in range(3)])
    with expect_error(r"decoders\.image: sample 1 \(.*1\.jpg\): "):
        for files, _ in reader.next_epoch(batch_size=3):
            [np.asarray(image) for image in ndd.decoders.image(files).tensors]
    assert sum(len(files.tensors) for files, _ in reader.next_epoch(batch_size=3)) == 3


def corrupt(file: bytes) -> bytes:
    data = bytearray(file)
    data[len(data) * 2 // 3 : len(data) * 2 // 3 + 8] = b"\x00\xff\x13\x00\xff\x42\xff\xaa"
    return bytes(data)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_stays_flat() -> None:
    # A JPEG with damaged data is the interesting case: nvImageCodec drops the whole decoded image.
    big = encode("JPEG", 300, 400)
    bad = [array(file) for file in (b"text", GOOD[:300], corrupt(GOOD), corrupt(big), big[:2000])]

    def decode_all(rounds: int) -> None:
        for _ in range(rounds):
            for file in bad:
                with suppress(RuntimeError):
                    np.asarray(ndd.decoders.image(ndd.as_tensor(file)))

    decode_all(100)
    before = resident_kilobytes()
    decode_all(400)
    assert resident_kilobytes() - before < 8_000


MUTATED = 2000 if WHOLE else 400  # files of each format
PROCESSES = (("jpeg", "png", "tiff", "bmp", "pnm", "webp", "jpeg2000"), ("wav", "flac", "ogg", "mp3", "npy", "lz4", "zlib"), ("mp4",))


@dataclass
class Child:
    """A process that decodes mutated files of some formats."""

    process: Forked

    def output(self) -> tuple[int, list[dict[str, Any]], str]:
        """Return how it ended, its counts, and its stderr."""
        code = self.process.wait(280)
        return code, [json.loads(line) for line in self.process.output.splitlines()], self.process.errors


@pytest.fixture(scope="module")
def children(forks: Forks) -> Iterator[dict[str, Child]]:
    """Run all formats in parallel processes."""
    started = {}
    script = Path(_mutations.__file__)
    for formats in PROCESSES:
        child = Child(forks.run(SCRIPT, script, MUTATED, 1, *formats))
        started |= dict.fromkeys(formats, child)
    yield started
    for child in started.values():
        child.process.kill()
        child.process.wait()


@pytest.mark.figures
@pytest.mark.parametrize("name", [name for formats in PROCESSES for name in formats])
def test_mutated_files(children: dict[str, Child], name: str) -> None:
    if name == "mp4":
        encoders()
    code, results, errors = children[name].output()
    found = [result for result in results if result["format"] == name]
    assert found, f"the process ended with {code} before or while it decoded {name}: {errors}"
    (value,) = found
    growth = value["after"] / value["before"] - 1
    print(f"{MUTATED} files, {value['decoded']} decoded, {value['refused']} refused, slowest {value['slowest']:.2f} s, memory {growth:+.1%}")
    assert (code, errors) == (0, "")
    assert value["decoded"] + value["refused"] == MUTATED
    assert value["slowest"] < 5
    assert growth < 0.05


CONTRADICTORY = 250 if WHOLE else 80  # files of each format


@pytest.mark.parametrize("name", PROCESSES[0])
def test_contradictory_headers(forks: Forks, tmp_path: Path, name: str) -> None:
    # tests/fuzz is the long form of this, under heap checks. Here images are decoded in front of a guard page.
    progress = tmp_path / "progress"
    progress.write_bytes(bytes(32))
    script = Path(__file__).parents[1] / "fuzz" / "images.py"
    run = forks.run(SCRIPT, script, "--child", name, "headers", 0, CONTRADICTORY, 1, progress, variables={"DALI_EXTRA_PATH": ""})
    code = run.wait(280)
    files, decoded, _, slowest = struct.unpack("<4q", progress.read_bytes())
    print(f"{files} files, {decoded} decoded, slowest {slowest / 1e6:.2f} s")
    assert (code, run.errors) == (0, ""), f"file {files} ended it"
    assert files == CONTRADICTORY


FORK = """
import os
import numpy as np
import torch_ndd as ndd

file = np.frombuffer(bytes.fromhex(os.environ["NDD_TEST_FILE"]), np.uint8)
expected = np.asarray(ndd.decoders.image(ndd.as_tensor(file)))
child = os.fork()
if child == 0:
    same = np.array_equal(np.asarray(ndd.decoders.image(ndd.as_tensor(file))), expected)
    os._exit(0 if same else 3)
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(np.asarray(ndd.decoders.image(ndd.as_tensor(file))), expected)
"""


def test_decodes_after_a_fork(forks: Forks) -> None:
    run = forks.run(FORK, variables={"NDD_TEST_FILE": GOOD.hex()})
    assert (run.wait(), run.errors) == (0, "")
