# SPDX-License-Identifier: Apache-2.0
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd


def encoded(codec: str, height: int = 48, width: int = 64) -> bytes:
    y, x = np.mgrid[:height, :width]
    samples = np.stack([(x * 3 + k * y) % 256 for k in range(3)], -1).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(samples).save(file, codec)
    return file.getvalue()


GOOD = encoded("JPEG")
HUGE = bytearray(GOOD)
FRAME = GOOD.index(b"\xff\xc0")  # the frame header: marker, length, precision, height, width
HUGE[FRAME + 5 : FRAME + 9] = b"\xff\xff\xff\xff"

BAD = {
    "empty": b"",
    "text": b"this is no image, whatever its name says\n",
    "a JPEG's first bytes": GOOD[:3],
    "header only": GOOD[: FRAME + 4],
    "truncated JPEG": GOOD[: len(GOOD) // 2],
    "truncated PNG": encoded("PNG")[:-60],
    "truncated TIFF": encoded("TIFF")[:-500],
    "truncated BMP": encoded("BMP")[:-500],
    "truncated PNM": encoded("PPM")[:-500],
    "truncated WebP": encoded("WEBP")[:-60],
    "truncated JPEG 2000": encoded("JPEG2000")[:150],
    "GIF": encoded("GIF"),
    "size that the file cannot hold": bytes(HUGE),
}


@contextmanager
def refused(pattern: str) -> Iterator[None]:
    """A RuntimeError with this text in it, or in what caused it."""
    with pytest.raises(RuntimeError) as caught:
        yield
    error: BaseException | None = caught.value
    text = ""
    while error is not None:
        text, error = f"{text}{error}\n", error.__cause__
    assert re.search(pattern, text), text


def array(file: bytes) -> np.ndarray:
    return np.frombuffer(file, np.uint8)


# The random window would often miss the part that a truncated file lacks.
WHOLE = {"random_area": [1.0, 1.0], "random_aspect_ratio": [64 / 48, 64 / 48]}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize(("name", "options"), [("image", {}), ("image_random_crop", WHOLE)])
def test_error_names_operator_and_sample(name: str, options: dict[str, object], bad: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    decoder = getattr(ndd.decoders, name)
    with refused(rf"decoders\.{name}.*sample 1\b"):
        [np.asarray(image) for image in decoder(ndd.batch([array(GOOD), array(bad), array(GOOD)]), **options).tensors]
    image = decoder(ndd.as_tensor(array(GOOD)), **options)
    assert np.asarray(image).shape[2] == 3
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["empty", "text", "truncated JPEG"])
def test_error_names_the_file(tmp_path: Path, name: str) -> None:
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(BAD[name] if i == 1 else GOOD)
    reader = ndd.readers.File(files=[str(tmp_path / f"{i}.jpg") for i in range(3)])
    with refused(r"decoders\.image: sample 1 \(.*1\.jpg\): "):
        for files, _ in reader.next_epoch(batch_size=3):
            [np.asarray(image) for image in ndd.decoders.image(files).tensors]
    assert sum(len(files.tensors) for files, _ in reader.next_epoch(batch_size=3)) == 3


def resident_kilobytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def corrupt(file: bytes) -> bytes:
    data = bytearray(file)
    data[len(data) * 2 // 3 : len(data) * 2 // 3 + 8] = b"\x00\xff\x13\x00\xff\x42\xff\xaa"
    return bytes(data)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_stays_flat() -> None:
    # A JPEG with damaged data is the interesting one: nvImageCodec loses the whole decoded image.
    big = encoded("JPEG", 300, 400)
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


MUTATE = """
import io, random, sys
import numpy as np
from PIL import Image
import torch_ndd as ndd

codec, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
file = io.BytesIO()
samples = np.add.outer(np.arange(40) * 2, np.arange(56) * 3).astype(np.uint8)
Image.fromarray(np.dstack([samples, 255 - samples, samples // 2])).save(file, codec)
decoded = 0
for i in range(count):
    data = bytearray(file.getvalue())
    if i % 4 == 0:
        del data[draw.randrange(len(data)):]
    else:
        reach = (len(data), 64, 400)[i % 3]
        for _ in range(draw.choice((1, 2, 8))):
            data[draw.randrange(min(reach, len(data)))] = draw.choice((0, 255, draw.randrange(256)))
    try:
        np.asarray(ndd.decoders.image(ndd.as_tensor(np.frombuffer(bytes(data), np.uint8))))
        decoded += 1
    except (RuntimeError, MemoryError):
        pass
print(decoded)
"""


@pytest.mark.parametrize("codec", ["JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "JPEG2000"])
def test_mutated_files_never_crash(codec: str) -> None:
    run = subprocess.run([sys.executable, "-c", MUTATE, codec, "400", "1"], capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stderr) == (0, "")
    assert 0 <= int(run.stdout) < 400


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


def test_decodes_after_a_fork() -> None:
    environment = {**os.environ, "NDD_TEST_FILE": GOOD.hex()}
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=120, env=environment)
    assert (run.returncode, run.stderr) == (0, "")
