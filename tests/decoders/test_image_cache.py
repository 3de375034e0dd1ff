# SPDX-License-Identifier: Apache-2.0
import gc
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types

IMAGES = 24
DECODERS: dict[str, Callable[..., Any]] = {
    "image": ndd.decoders.image,
    "image_random_crop": lambda files, **options: ndd.decoders.image_random_crop(files, rng=ndd.random.RNG(7), **options),
    "image_crop": lambda files, **options: ndd.decoders.image_crop(files, crop=[20, 30], crop_pos_x=0.3, **options),
    "image_slice": lambda files, **options: ndd.decoders.image_slice(files, rel_start=[0.1, 0.2], rel_end=[0.9, 0.7], **options),
}


def encode(seed: int, codec: str = "JPEG", **options: object) -> np.ndarray:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(40, 120, 2)
    small = Image.fromarray(rng.integers(0, 256, (7, 9, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize((int(width), int(height)), Image.Resampling.BICUBIC).save(file, codec, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.fixture(scope="module")
def files() -> ndd.Batch:
    turned = Image.Exif()
    turned[0x0112] = 6
    kinds: list[tuple[str, dict[str, Any]]] = [("JPEG", {}), ("PNG", {}), ("JPEG", {"exif": turned}), ("WEBP", {})]
    return ndd.batch([encode(i, kinds[i % 4][0], **kinds[i % 4][1]) for i in range(IMAGES)])


@pytest.fixture(params=["memory", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "cache" if request.param == "folder" else None


def arrays(batch: Any) -> list[np.ndarray]:
    return [np.asarray(sample) for sample in batch.tensors]


def assert_equal(value: Any, other: Any) -> None:
    assert value.shape == other.shape
    assert value.dtype == other.dtype
    assert all(np.array_equal(a, b) for a, b in zip(arrays(value), arrays(other), strict=True))


def bytes_on_disk(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in list_stored(folder))


def list_stored(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/??/*") if not path.name.startswith("."))


@pytest.mark.parametrize("share", ["all", "half"])
def test_five_epochs_of_random_crops(files: ndd.Batch, place: Path | None, share: str, threads: int) -> None:
    needed = sum(-(-height * width * 3 // 4096) * 4096 + 4096 for height, width, _ in ndd.decoders.image(files).shape)
    size = needed if share == "all" else needed // 2
    cache = ndd.decoders.cache(size, place)
    for epoch in range(5):
        order = np.random.default_rng(epoch).permutation(IMAGES).tolist()
        batch = files.select(order)
        for number, decode in enumerate((ndd.decoders.image_random_crop, ndd.decoders.image_random_crop)):
            seed = 2 * epoch + number
            assert_equal(decode(batch, cache=cache, rng=ndd.random.RNG(seed)), decode(batch, rng=ndd.random.RNG(seed)))
        assert_equal(ndd.decoders.image(batch, cache=cache), ndd.decoders.image(batch))
        assert 0 < cache.stats.bytes <= size
        if place is not None:
            assert bytes_on_disk(place) == cache.stats.bytes
    stats = cache.stats
    assert stats.hits + stats.misses == 15 * IMAGES
    assert stats.misses == IMAGES if share == "all" else 4 * IMAGES < stats.misses < 11 * IMAGES
    assert (stats.images, stats.evicted) == (stats.stored, 0)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": ndd.float32},
        {"dtype": ndd.uint16, "output_type": types.YCbCr},
        {"output_type": types.GRAY},
        {"output_type": types.ANY_DATA},
        {"adjust_orientation": False},
        {"use_fast_idct": True},
    ],
    ids=str,
)
def test_arguments_are_told_apart(files: ndd.Batch, name: str, options: dict[str, Any], place: Path | None) -> None:
    cache, decode = ndd.decoders.cache("50MB", place), DECODERS[name]
    ndd.decoders.image(files, cache=cache, output_type=types.BGR).evaluate()  # other pixels of the same files
    misses = cache.stats.misses
    for _ in range(2):
        assert_equal(decode(files, cache=cache, **options), decode(files, **options))
    assert cache.stats.misses == misses + IMAGES
    assert cache.stats.hits == IMAGES


def test_the_four_decoders_share_images(files: ndd.Batch, place: Path | None) -> None:
    cache = ndd.decoders.cache("50MB", place)
    for decode in DECODERS.values():
        assert_equal(decode(files, cache=cache), decode(files))
    assert (cache.stats.misses, cache.stats.hits) == (IMAGES, 3 * IMAGES)


def test_copies_in_a_batch(place: Path | None) -> None:
    cache, file = ndd.decoders.cache("5MB", place), encode(1)
    for _ in range(3):
        batch = ndd.batch([file] * 16)
        assert_equal(ndd.decoders.image(batch, cache=cache), ndd.decoders.image(batch))
    assert cache.stats.images == cache.stats.stored == 1


def test_changed_file(tmp_path: Path, place: Path | None) -> None:
    cache, path = ndd.decoders.cache("5MB", place), tmp_path / "image.jpg"
    for seed in (1, 2, 1, 3):
        path.write_bytes(encode(seed).tobytes())
        os.utime(path, ns=(0, 0))
        assert np.array_equal(np.asarray(ndd.imread(path, cache=cache)), np.asarray(ndd.imread(path)))
    assert cache.stats.hits == 1


def test_smaller_images_than_threshold_are_not_kept(files: ndd.Batch, place: Path | None) -> None:
    sizes = [height * width * 3 for height, width, _ in ndd.decoders.image(files).shape]
    threshold = sorted(sizes)[IMAGES // 2]
    cache = ndd.decoders.cache("5MB", place, threshold=threshold)
    assert_equal(ndd.decoders.image(files, cache=cache), ndd.decoders.image(files))
    assert cache.stats.images == sum(size >= threshold for size in sizes)


@pytest.mark.parametrize("order", [1, -1])
def test_largest_replaces_smaller_images(files: ndd.Batch, place: Path | None, order: int) -> None:
    """What is left are the largest images, whatever came first."""
    shapes = ndd.decoders.image(files).shape
    taken = sorted((-(-height * width * 3 // 4096) * 4096 + 4096 * (place is not None), i) for i, (height, width, _) in enumerate(shapes))
    size = sum(bytes for bytes, _ in taken[-8:])
    cache = ndd.decoders.cache(size, place, admission="largest")
    for _, i in taken[::order]:
        value = files.select([i])
        assert_equal(ndd.decoders.image(value, cache=cache), ndd.decoders.image(value))
        assert cache.stats.bytes <= size
    hits = cache.stats.hits
    large = files.select([i for _, i in taken[-7:]])  # the eighth may be as large as the ninth
    assert_equal(ndd.decoders.image(large, cache=cache), ndd.decoders.image(large))
    assert cache.stats.hits == hits + 7
    assert cache.stats.evicted > 0 if order == 1 else cache.stats.stored < IMAGES


def test_unused_images_make_room(files: ndd.Batch, place: Path | None) -> None:
    """A data set whose files have all changed is cached again."""
    old, new = files.select(list(range(0, IMAGES, 2))), files.select(list(range(1, IMAGES, 2)))
    cache = ndd.decoders.cache(1 << 20, place)
    while not cache.stats.images:
        ndd.decoders.image(old, cache=cache).evaluate()
    cache = ndd.decoders.cache(cache.stats.bytes, place)
    for _ in range(2):
        assert_equal(ndd.decoders.image(old, cache=cache), ndd.decoders.image(old))
    held = cache.stats.images
    assert held == IMAGES // 2
    rng = np.random.default_rng(0)
    for _ in range(5):
        value = new.select(rng.permutation(IMAGES // 2).tolist())
        assert_equal(
            ndd.decoders.image_random_crop(value, cache=cache, rng=ndd.random.RNG(1)), ndd.decoders.image_random_crop(value, rng=ndd.random.RNG(1))
        )
    assert cache.stats.evicted == held
    assert cache.stats.images > held // 2


def test_shorter_is_a_resized_image(files: ndd.Batch, place: Path | None) -> None:
    cache = ndd.decoders.cache("50MB", place, shorter=48)
    whole = ndd.decoders.image(files)
    expected = [
        image if min(image.shape[:2]) <= 48 else np.asarray(ndd.resize(image, resize_shorter=48, subpixel_scale=False)) for image in arrays(whole)
    ]
    assert any(min(image.shape[:2]) < 48 for image in expected)
    small = ndd.decoders.cache(4096, place and place / "small", shorter=48)  # which has no room
    for which in (cache, cache, small):
        assert all(np.array_equal(a, b) for a, b in zip(arrays(ndd.decoders.image(files, cache=which)), expected, strict=True))
        for i, window in enumerate(arrays(ndd.decoders.image_slice(files, rel_start=[0.1, 0.2], rel_end=[0.9, 0.7], cache=which))):
            part = np.asarray(ndd.slice(expected[i], rel_start=[0.1, 0.2], rel_end=[0.9, 0.7], axis_names="WH"))
            assert np.array_equal(window, part)
    assert cache.stats.misses == IMAGES
    assert small.stats.hits <= IMAGES
    with pytest.raises(ValueError, match=r"shorter=48 takes dtype=torch\.uint8"):
        ndd.decoders.image(files, cache=cache, dtype=ndd.float32)


def test_jpeg2000_is_decoded(place: Path | None) -> None:
    file, cache = encode(3, "JPEG2000"), ndd.decoders.cache("5MB", place)
    for _ in range(2):
        assert np.array_equal(np.asarray(ndd.decoders.image(file, cache=cache)), np.asarray(ndd.decoders.image(file)))
    reduced = ndd.decoders.cache("5MB", shorter=16)
    expected = ndd.resize(ndd.decoders.image(file), resize_shorter=16, subpixel_scale=False)
    assert np.array_equal(np.asarray(ndd.decoders.image(file, cache=reduced)), np.asarray(expected))
    assert cache.stats.images == 0


def test_damaged_images_are_not_kept(files: ndd.Batch, place: Path | None) -> None:
    cache, cut = ndd.decoders.cache("5MB", place), encode(5, "PNG")
    cut = np.concatenate([cut[: len(cut) // 2], np.zeros(len(cut) // 2, np.uint8)])
    batch = ndd.batch([np.asarray(files.tensors[0]), cut])
    for _ in range(2):
        result = ndd.decoders.image(batch, on_error="replace", cache=cache)
        assert [error.sample for error in result.errors] == [1]
        assert not np.asarray(result.tensors[1]).any()
        assert np.array_equal(np.asarray(result.tensors[0]), np.asarray(ndd.decoders.image(files.tensors[0])))
        with pytest.raises(RuntimeError, match=r"decoders\.image: sample 1"):
            ndd.decoders.image(batch, cache=cache).evaluate()
    assert cache.stats.images == 1


def test_clear_and_reuse(files: ndd.Batch, place: Path | None) -> None:
    cache = ndd.decoders.cache("5MB", place)
    ndd.decoders.image(files, cache=cache).evaluate()
    cache.clear()
    assert (cache.stats.images, cache.stats.bytes) == (0, 0)
    assert_equal(ndd.decoders.image(files, cache=cache), ndd.decoders.image(files))
    assert cache.stats.images == IMAGES


def test_a_dropped_cache_serves_what_is_queued(files: ndd.Batch, place: Path | None) -> None:
    with ndd.EvalMode.deferred:
        result = ndd.decoders.image(files, cache=ndd.decoders.cache("5MB", place))
        gc.collect()
    assert_equal(result, ndd.decoders.image(files))


def test_in_a_graph(files: ndd.Batch, place: Path | None) -> None:
    cache = ndd.decoders.cache("5MB", place)
    function = torch.compile(lambda value: ndd.decoders.image_crop(value, crop=[30, 30], cache=cache), fullgraph=True, backend="eager")
    for _ in range(2):
        assert_equal(function(files), ndd.decoders.image_crop(files, crop=[30, 30]))
    assert cache.stats.hits == IMAGES


def test_pickled_cache_keeps_its_arguments(files: ndd.Batch, place: Path | None) -> None:
    cache = ndd.decoders.cache("5MB", place, threshold=100, admission="largest", shorter=64)
    ndd.decoders.image(files, cache=cache).evaluate()
    again = pickle.loads(pickle.dumps(cache))
    assert (again.size, again.folder, again.threshold, again.admission, again.shorter) == (5_000_000, cache.folder, 100, "largest", 64)
    ndd.decoders.image(files, cache=again).evaluate()
    assert again.stats.hits == (0 if place is None else IMAGES)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"size": 0}, ValueError, "size must be positive"),
        ({"size": "much"}, ValueError, "such as"),
        ({"size": "1MB", "admission": "last"}, ValueError, "admission must be one of first, largest, got 'last'"),
        ({"size": "1MB", "threshold": -1}, ValueError, "threshold must not be negative"),
        ({"size": "1MB", "shorter": 0}, ValueError, "shorter must be from 1"),
        ({"size": "900TB"}, MemoryError, "use a folder"),
        ({"size": "1MB", "folder": "/dev/null/cache"}, RuntimeError, "cannot create the folder /dev/null/cache"),
    ],
)
def test_wrong_caches(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"decoders.cache: .*{text}"):
        ndd.decoders.cache(**arguments)


def test_wrong_uses(files: ndd.Batch) -> None:
    cache = ndd.decoders.cache("1MB")
    with pytest.raises(TypeError, match=r"decoders\.image: cache must be created by decoders\.cache, got 5"):
        ndd.decoders.image(files, cache=5)
    with pytest.raises(ValueError, match="cache and cache_size cannot be used together"):
        ndd.decoders.image(files, cache=cache, cache_size=5)
    with pytest.raises(ValueError, match="cache_type must be one of threshold, largest"):
        ndd.decoders.image(files, cache_size=5, cache_type="small")
    with pytest.raises(ValueError, match="must not be negative"):
        ndd.decoders.image(files, cache_size=5, cache_threshold=-1)


@pytest.mark.parametrize("name", DECODERS)
def test_arguments_of_dali(files: ndd.Batch, name: str) -> None:
    decode = DECODERS[name]
    for kind in ("", "threshold", "largest"):
        for _ in range(2):
            options = {"cache_size": 3, "cache_threshold": 10, "cache_type": kind, "cache_batch_copy": False}
            assert_equal(decode(files, **options), decode(files))


REPORT = """
import sys, numpy as np, torch_ndd as ndd
file = np.fromfile(sys.argv[1], np.uint8)
for _ in range(3):
    ndd.decoders.image(file, cache_size=1, cache_debug=True).evaluate()
"""


def test_debug_prints_what_the_cache_did(forks: Any, tmp_path: Path) -> None:
    encode(1).tofile(tmp_path / "file")
    done = forks.run(REPORT, tmp_path / "file")
    assert done.wait() == 0
    assert "hits=2, misses=1, images=1" in done.errors


def test_statistics_and_advice(files: ndd.Batch, tmp_path: Path) -> None:
    for i, file in enumerate(arrays(files)):
        file.tofile(tmp_path / f"{i}.jpg")
    cache = ndd.decoders.cache("5MB")
    reader = ndd.readers.File(files=sorted(tmp_path.iterdir()), random_shuffle=True)
    loader = ndd.DataLoader(reader, lambda value, labels: (ndd.decoders.image(value, cache=cache), labels), batch_size=IMAGES, prefetch=0)
    for _ in range(3):
        for _ in loader:
            pass
    stats = loader.stats
    whole = sum(height * width * 3 for height, width, _ in ndd.decoders.image(files).shape)
    assert (stats.images, stats.cached, stats.image_bytes) == (3 * IMAGES, 2 * IMAGES, 3 * whole)
    limited = stats._replace(wait=5.0, model=5.0, read=0.0, call=0.1, decode=15.0, augment=3.0)
    assert "decoders.cache" not in limited.diagnosis(2, epoch=IMAGES)
    text = limited._replace(cached=0).diagnosis(2, epoch=IMAGES)
    assert f"(decoders.cache, {(whole + 4096 * IMAGES) / 1e3:.3g} kB for the {IMAGES} images of an epoch)" in text
    assert "an image)" in limited._replace(cached=0).diagnosis(2)


def test_pipeline_of_dali(files: ndd.Batch, tmp_path: Path) -> None:
    """The pipelines of torch_ndd.dali hand their arguments to the decoder."""
    from torch_ndd.dali import fn, pipeline_def
    from torch_ndd.decoders import _cache

    for i, file in enumerate(arrays(files)):
        file.tofile(tmp_path / f"{i:02d}.jpg")

    @pipeline_def(batch_size=IMAGES, num_threads=2, device_id=None)
    def graph(megabytes: int) -> Any:
        jpegs, _ = fn.readers.file(files=sorted(map(str, tmp_path.iterdir())))
        return fn.decoders.image(jpegs, device="cpu", cache_size=megabytes, cache_threshold=17, cache_type="largest")

    kept, plain = graph(11), graph(0)
    for _ in range(3):
        (value,), (other,) = kept.run(), plain.run()
        assert all(np.array_equal(value.at(i), other.at(i)) for i in range(IMAGES))
    stats = _cache._caches[11, 17, True].stats
    # A thread may decode an image of the next iteration while another one is still decoding it for this one.
    assert stats.stored == IMAGES
    assert stats.hits > IMAGES
