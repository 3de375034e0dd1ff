# SPDX-License-Identifier: Apache-2.0
"""The folder of ``decoders.cache``: damaged files, processes that are killed, disks that are full, processes that share it."""

import io
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from _forks import Forks
from PIL import Image

import torch_ndd as ndd

IMAGES = 12
KILLS = 20


def encode(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    width, height = (int(n) for n in rng.integers(100, 300, 2))
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG")
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.fixture(scope="module")
def files() -> ndd.Batch:
    return ndd.batch([encode(i) for i in range(IMAGES)])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for i in range(IMAGES):
        encode(i).tofile(folder / f"{i:02d}.jpg")
    return folder


def list_stored(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/??/*") if not path.name.startswith("."))


def list_unfinished(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/??/.new-*"))


def on_disk(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in (*list_stored(folder), *list_unfinished(folder)))


def check(files: ndd.Batch, cache: ndd.decoders.Cache, seed: int = 0) -> None:
    """Compare everything that the cache gives with what the decoder gives."""
    crops = ndd.decoders.image_random_crop(files, cache=cache, rng=ndd.random.RNG(seed))
    for value, expected in (
        (ndd.decoders.image(files, cache=cache), ndd.decoders.image(files)),
        (crops, ndd.decoders.image_random_crop(files, rng=ndd.random.RNG(seed))),
    ):
        assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(value.tensors, expected.tensors, strict=True))


def flip(at: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[min(int(at * len(content)), len(content) - 1)] ^= 0x10
        path.write_bytes(content)

    return damage


def cut(to: float) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, int(to * path.stat().st_size))


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def _swap(path: Path) -> None:
    shutil.copy(sorted(path.parent.parent.glob("??/*"))[1], path)  # which is not damaged


def _huge_extents(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[24:56] = np.array([1 << 30, 1 << 30, 1 << 30, 1 << 20], np.int64).tobytes()
    path.write_bytes(content)


def _as_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "first byte": flip(0),
    "key": lambda path: path.write_bytes(b"NDDIMG1\n" + bytes(8) + path.read_bytes()[16:]),
    "extents": _huge_extents,
    "checksum of a block": lambda path: path.write_bytes(path.read_bytes()[:68] + b"\x01\x02" + path.read_bytes()[70:]),
    "a pixel": flip(0.5),
    "the last pixel": flip(1),
    "empty": cut(0),
    "a header only": cut(0.001),
    "half": cut(0.5),
    "one byte less": lambda path: os.truncate(path, path.stat().st_size - 1),
    "one byte more": _append,
    "another image": _swap,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "link": _as_link,
    "pipe": _as_pipe,
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_files(files: ndd.Batch, tmp_path: Path, kind: str) -> None:
    cache = ndd.decoders.cache("20MB", tmp_path)
    check(files, cache)
    before = [path.read_bytes() for path in list_stored(tmp_path)]
    for path in list_stored(tmp_path)[::2]:
        DAMAGES[kind](path)
    check(files, cache)
    assert cache.stats.damaged == IMAGES // 2
    assert [path.read_bytes() for path in list_stored(tmp_path)] == before  # stored again
    misses = cache.stats.misses
    check(files, cache)
    assert cache.stats.misses == misses
    del cache  # what somebody else has done to the sizes is not known until the next process counts
    assert ndd.decoders.cache("20MB", tmp_path).stats.bytes == on_disk(tmp_path)


def test_readers_that_find_one_damaged_file_together(tmp_path: Path) -> None:
    """The file counts once, and the one that replaces it is not removed."""
    cache = ndd.decoders.cache("20MB", tmp_path)
    same = ndd.batch([encode(0)] * 16)
    check(same, cache)
    for i in range(100):
        flip(1)(list_stored(tmp_path)[0])
        check(same, cache)
        assert (cache.stats.damaged, cache.stats.stored) == (i + 1, i + 2)


def test_a_window_does_not_see_damage_elsewhere(tmp_path: Path) -> None:
    """Only the blocks that a window needs are read."""
    file, cache = encode(3), ndd.decoders.cache("20MB", tmp_path)
    big = io.BytesIO()
    Image.open(io.BytesIO(file.tobytes())).resize((800, 600)).save(big, "JPEG")
    file = np.frombuffer(big.getvalue(), np.uint8)
    ndd.decoders.image(file, cache=cache).evaluate()
    flip(1)(list_stored(tmp_path)[0])
    window = {"start": [10, 20], "shape": [100, 50]}
    assert np.array_equal(np.asarray(ndd.decoders.image_slice(file, **window, cache=cache)), np.asarray(ndd.decoders.image_slice(file, **window)))
    assert cache.stats.damaged == 0
    assert np.array_equal(np.asarray(ndd.decoders.image(file, cache=cache)), np.asarray(ndd.decoders.image(file)))
    assert cache.stats.damaged == 1


@pytest.mark.parametrize("name", ["use", "users", "secret"])
@pytest.mark.parametrize("content", [None, b"", b"\xff" * 5, b"\xff" * 500])
def test_damaged_bookkeeping(files: ndd.Batch, tmp_path: Path, name: str, content: bytes | None) -> None:
    check(files, ndd.decoders.cache("20MB", tmp_path))
    (place,) = tmp_path.iterdir()
    if content is None:
        (place / name).unlink()
    else:
        (place / name).write_bytes(content)
    cache = ndd.decoders.cache("20MB", tmp_path)
    check(files, cache)
    assert cache.stats.bytes == on_disk(tmp_path)
    (place / "use").write_bytes(b"")  # while it is used
    check(files, cache, 1)
    cache.clear()
    check(files, cache, 2)
    assert cache.stats.bytes == on_disk(tmp_path)


def test_folder_removed_while_used(files: ndd.Batch, tmp_path: Path) -> None:
    cache = ndd.decoders.cache("20MB", tmp_path / "cache")
    check(files, cache)
    shutil.rmtree(tmp_path / "cache")
    ndd.decoders.image(files, cache=cache).evaluate()
    with pytest.warns(RuntimeWarning, match=r"no more images are stored in .*: No such file"):
        check(files, cache)


EPOCHS = """
import sys, numpy as np, torch_ndd as ndd
from pathlib import Path
folder, size, epochs, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
files = ndd.batch([np.fromfile(path, np.uint8) for path in sorted(Path(sys.argv[5]).iterdir())])
whole = [np.asarray(one) for one in ndd.decoders.image(files).tensors]
cache = ndd.decoders.cache(size, folder)
print("ready", flush=True)
for epoch in range(epochs):
    if seed < 0:
        cache.clear()
    order = np.random.default_rng(abs(seed) + epoch).permutation(len(whole)).tolist()
    made = ndd.decoders.image(files.select(order), cache=cache)
    assert all(np.array_equal(np.asarray(one), whole[i]) for one, i in zip(made.tensors, order, strict=True)), "a wrong pixel"
    assert cache.stats.bytes <= size, cache
print(*cache.stats, flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_time(files: ndd.Batch, sources: Path, forks: Forks, tmp_path: Path) -> None:
    size, rng = 20_000_000, random.Random(1)
    for kill in range(KILLS):
        run = forks.run(EPOCHS, tmp_path, size, 10**6, -kill - 1, sources)  # stores everything again and again
        run.wait_for("ready")
        time.sleep(rng.uniform(0, 0.2))
        run.kill()
        assert run.wait() == -9, run.errors
        assert on_disk(tmp_path) <= size
        cache = ndd.decoders.cache(size, tmp_path)
        assert not list_unfinished(tmp_path)
        assert cache.stats.bytes == on_disk(tmp_path)
        check(files, cache, kill)
        assert cache.stats.damaged == 0
        assert len(list_stored(tmp_path)) == cache.stats.images == IMAGES
        del cache


def test_processes_share_a_folder(sources: Path, forks: Forks, tmp_path: Path, files: ndd.Batch) -> None:
    shapes = ndd.decoders.image(files).shape
    size = sum(-(-height * width * 3 // 4096) * 4096 for height, width, _ in shapes) * 2 // 3
    runs = [forks.run(EPOCHS, tmp_path, size, 8, seed, sources) for seed in (0, 100, 200)]
    for run in runs:
        assert run.wait() == 0, run.errors
    counts = [list(map(int, run.output.split()[1:])) for run in runs]
    held = list_stored(tmp_path)
    assert on_disk(tmp_path) <= size
    assert sum(count[4] - count[5] for count in counts) == len(held)  # stored once, whoever it was
    assert all(count[6] == 0 for count in counts)
    late = forks.run(EPOCHS, tmp_path, size, 1, 300, sources)
    assert late.wait() == 0, late.errors
    assert int(late.output.split()[1]) == len(held)


def test_unused_images_of_other_processes_stay(sources: Path, forks: Forks, tmp_path: Path) -> None:
    """A process that is not alone removes nothing for which it has no use itself."""
    mine = ndd.decoders.cache(1 << 20, tmp_path)
    check(ndd.batch([encode(100), encode(101)]), mine)
    run = forks.run(EPOCHS, tmp_path, mine.stats.bytes, 6, 0, sources)
    assert run.wait() == 0, run.errors
    assert int(run.output.split()[6]) == 0
    assert len(list_stored(tmp_path)) == 2


@pytest.mark.parametrize("where", ["memory", "folder"])
def test_cache_works_in_a_forked_child(files: ndd.Batch, tmp_path: Path, where: str, forks: Forks, sources: Path) -> None:
    """A child goes on with what the parent has, whatever the parent's threads were doing."""
    code = """
import os, sys, threading, numpy as np, torch_ndd as ndd
from pathlib import Path
files = ndd.batch([np.fromfile(path, np.uint8) for path in sorted(Path(sys.argv[1]).iterdir())])
whole = [np.asarray(one) for one in ndd.decoders.image(files).tensors]
cache = ndd.decoders.cache("20MB", sys.argv[2] if len(sys.argv) > 2 else None)
def same():
    return all(np.array_equal(np.asarray(a), b) for a, b in zip(ndd.decoders.image(files, cache=cache).tensors, whole, strict=True))
def work():
    while not done:
        cache.clear()
        assert same()
done = False
thread = threading.Thread(target=work)
thread.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        right = same()
        hits = cache.stats.hits
        right = right and same() and cache.stats.hits >= hits
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
done = True
thread.join()
"""
    run = forks.run(code, sources, *([tmp_path] if where == "folder" else []))
    assert run.wait(60) == 0, run.errors


FULL = """
import ctypes, os, sys, warnings, resource, numpy as np
from pathlib import Path
import torch_ndd as ndd
kind, folder, sources = sys.argv[1:]
if kind == "disk":
    libc, namespace, user = ctypes.CDLL(None, use_errno=True), 0x20000, 0x10000000
    if libc.unshare(namespace) and libc.unshare(namespace | user):
        sys.exit("no namespace")
    libc.mount(None, b"/", None, 0x44000, None)  # private
    if libc.mount(b"none", folder.encode(), b"tmpfs", 0, b"size=400k"):
        sys.exit("no mount")
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
files = ndd.batch([np.fromfile(path, np.uint8) for path in sorted(Path(sources).iterdir())])
whole = [np.asarray(one) for one in ndd.decoders.image(files).tensors]
cache = ndd.decoders.cache("20MB", folder)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(5):
        made = ndd.decoders.image(files, cache=cache)
        assert all(np.array_equal(np.asarray(a), b) for a, b in zip(made.tensors, whole, strict=True)), "a wrong pixel"
assert len(seen) == 1, seen
assert "no more images are stored" in str(seen[0].message) and seen[0].category is RuntimeWarning, seen[0]
assert not list(Path(folder).glob("*/??/.new-*"))
count = len([path for path in Path(folder).glob("*/??/*")])
assert cache.stats.images == count < len(whole), (cache.stats, count)
assert cache.stats.hits == 4 * count, cache.stats
assert cache.stats.bytes == sum(-(-path.stat().st_size // 4096) * 4096 for path in Path(folder).glob("*/??/*"))
print("full", count)
"""


@pytest.mark.parametrize("kind", ["disk", "file size"])
def test_full_disk(sources: Path, forks: Forks, tmp_path: Path, kind: str) -> None:
    run = forks.run(FULL, kind, tmp_path, sources)
    if run.wait() and run.errors.strip() in ("no namespace", "no mount"):
        pytest.skip(f"a small disk cannot be mounted here: {run.errors.strip()}")
    assert run.returncode == 0, run.errors
    assert "full" in run.output


def test_no_warnings_while_all_is_well(files: ndd.Batch, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            check(files, ndd.decoders.cache("20MB", tmp_path))
            check(files, ndd.decoders.cache(300_000, tmp_path / "small"))


def test_folder_is_private(files: ndd.Batch, tmp_path: Path) -> None:
    ndd.decoders.image(files, cache=ndd.decoders.cache("20MB", tmp_path)).evaluate()
    (place,) = tmp_path.iterdir()
    assert place.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in place.rglob("*"))


def _place(folder: Path) -> Path:
    (place,) = folder.iterdir()
    return place


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("which", ["of the format", "given"])
def test_a_folder_that_others_may_write_is_refused(files: ndd.Batch, tmp_path: Path, which: str, mode: int) -> None:
    check(files, ndd.decoders.cache("20MB", tmp_path / "cache"))
    path = tmp_path / "cache" if which == "given" else _place(tmp_path / "cache")
    path.chmod(mode)
    with pytest.raises(RuntimeError, match=r"decoders.cache: .*other users may write to the folder"):
        ndd.decoders.cache("20MB", tmp_path / "cache")
    path.chmod(0o755)
    check(files, ndd.decoders.cache("20MB", tmp_path / "cache"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("which", ["of the format", "given"])
def test_a_folder_of_another_user_is_refused(files: ndd.Batch, tmp_path: Path, which: str) -> None:
    check(files, ndd.decoders.cache("20MB", tmp_path / "cache"))
    os.chown(tmp_path / "cache" if which == "given" else _place(tmp_path / "cache"), 12345, 12345)
    with pytest.raises(RuntimeError, match=r"decoders.cache: .*belongs to another user"):
        ndd.decoders.cache("20MB", tmp_path / "cache")


def test_a_link_in_place_of_the_folder_is_refused(files: ndd.Batch, tmp_path: Path) -> None:
    check(files, ndd.decoders.cache("20MB", tmp_path / "cache"))
    place = _place(tmp_path / "cache")
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    with pytest.raises(RuntimeError, match=r"decoders.cache: .* is a symbolic link"):
        ndd.decoders.cache("20MB", tmp_path / "cache")


def test_a_folder_that_all_may_write_may_be_sticky(files: ndd.Batch, tmp_path: Path) -> None:
    """As /dev/shm and /tmp are: no other user can replace the folder of the cache in it."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    check(files, ndd.decoders.cache("20MB", tmp_path / "shared"))


def test_clear_removes_only_images(files: ndd.Batch, tmp_path: Path) -> None:
    cache = ndd.decoders.cache("20MB", tmp_path / "cache")
    check(files, cache)
    place = _place(tmp_path / "cache")
    objects = tmp_path / "objects"
    (objects / "ab").mkdir(parents=True)
    kept = [objects / "ab" / ("0" * 32), objects / "ab" / ("0" * 38), place / "notes", next(place.glob("??")) / ("0" * 38)]
    for path in kept:
        path.write_text("mine")
    inner = next(name for name in (f"{k:02x}" for k in range(256)) if not (place / name).exists())
    (place / inner).symlink_to(objects / "ab")
    cache.clear()
    assert all(path.read_text() == "mine" for path in kept)
    assert (cache.stats.images, cache.stats.bytes) == (0, 0)


KILLED = """
import sys, os, numpy as np, torch_ndd as ndd
cache = ndd.decoders.cache(int(sys.argv[2]), sys.argv[1])
file = np.fromfile(sys.argv[3], np.uint8)
print("ready", flush=True)
while True:
    cache.clear()
    ndd.decoders.image([file] * 8, cache=cache).evaluate()
"""


def test_room_of_killed_processes_is_free_while_another_one_lives(sources: Path, forks: Forks, tmp_path: Path, files: ndd.Batch) -> None:
    size = 20_000_000
    big = tmp_path / "big.jpg"
    Image.fromarray(np.zeros((1800, 2000, 3), np.uint8)).save(big)  # 10.8 MB
    mine = ndd.decoders.cache(size, tmp_path / "cache")
    check(files, mine)
    users = _place(tmp_path / "cache") / "users"
    left = 0
    for kill in range(200):
        run = forks.run(KILLED, tmp_path / "cache", size, big)
        run.wait_for("ready")
        time.sleep(0.002 * (kill % 25))
        run.kill()
        run.wait()
        slots = np.frombuffer(users.read_bytes(), np.int64).reshape(-1, 2)
        left += int(slots[1:, 0].any())
        if left >= 2:
            break
    assert left, "no process was killed while it had something reserved"
    check(files, mine)  # which has room
    mine.clear()
    assert mine.stats.bytes == 0
    check(files, mine)
    assert mine.stats.images == IMAGES
    assert mine.stats.bytes == on_disk(tmp_path / "cache")
    assert not list_unfinished(tmp_path / "cache")


HOLDS = """
import fcntl, sys, time
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("name", [pytest.param("use", marks=pytest.mark.slow), "users"])
@pytest.mark.slow
def test_a_lock_that_is_not_released_does_not_stop_others(files: ndd.Batch, tmp_path: Path, forks: Forks, name: str) -> None:
    cache = ndd.decoders.cache("20MB", tmp_path)
    check(files.select(slice(0, 4)), cache)
    run = forks.run(HOLDS, _place(tmp_path) / name)
    run.wait_for("ready")
    check(files, cache)  # without storing more
    if name == "use":
        with pytest.raises(RuntimeError, match="another process keeps it locked"):
            cache.clear()
    late = ndd.decoders.cache("20MB", tmp_path)
    check(files, late)
    run.kill()
    run.wait()
    check(files, late, 1)
    check(files, cache, 1)
    assert cache.stats.images == late.stats.images == IMAGES
    assert cache.stats.bytes == on_disk(tmp_path)
