# SPDX-License-Identifier: Apache-2.0
"""What a loader says about itself: its own work only, and advice that applies to the program."""

import gc
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _videos import encoders, write
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core.context.pools import available_cpus
from torch_ndd._core.work.diagnosis import Work, count_images

IMAGES = 12
MODEL = {"batches": 10, "samples": 640, "bytes": 640 * 600_000, "read": 0.0, "call": 0.1, "wait": 5.0, "model": 5.0}
DECODING = {**MODEL, "decode": 18.0, "augment": 1.0, "images": 640, "image_bytes": 640 * 600_000}
LARGE = 640 * 36_000_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("diagnosed")
    values = np.random.default_rng(0).integers(0, 256, (IMAGES, 80, 120, 3), np.uint8)
    for i, value in enumerate(values):
        Image.fromarray(value).save(folder / f"{i:02}.jpg")
    return sorted(map(str, folder.iterdir()))


def loader_of(files: list[str], fn: Any, **options: Any) -> ndd.DataLoader:
    return ndd.DataLoader(ndd.readers.File(files=files), fn, batch_size=4, **options)


def decode(files: ndd.Batch, labels: ndd.Batch) -> Any:
    return ndd.decoders.image(files), labels


def blur(files: ndd.Batch, labels: ndd.Batch) -> Any:
    return ndd.gaussian_blur(ndd.decoders.image(files), sigma=5.0), labels


def test_loaders_at_the_same_time_have_their_own_figures(files: list[str]) -> None:
    first, second = loader_of(files, decode), loader_of(files, blur)
    for _ in zip(first, second, strict=True):
        pass
    list(second)
    value, other = first.stats, second.stats
    assert (value.images, other.images) == (IMAGES, 2 * IMAGES)
    assert set(value.operators) == {"decoders.image"}
    assert set(other.operators) == {"decoders.image", "gaussian_blur"}
    assert value.augment == 0
    assert value.others > 0
    assert value.images / value.samples == other.images / other.samples == 1


def test_work_outside_of_loaders_belongs_to_none(files: list[str]) -> None:
    loader = loader_of(files, decode)
    for _ in loader:
        ndd.gaussian_blur(ndd.decoders.image(files), sigma=5.0).evaluate()
    assert loader.stats.images == IMAGES
    assert "gaussian_blur" not in loader.stats.operators
    assert loader.stats.others > 0


@pytest.mark.slow
def test_numbers_of_loaders_that_are_gone_are_used_again(files: list[str]) -> None:
    gc.collect()
    numbers = set()
    for _ in range(20):
        loader = loader_of(files, decode)
        list(loader)
        numbers.add(loader._watch.number)
        assert loader.stats.images == IMAGES
        del loader
        gc.collect()
    assert len(numbers) <= 2


def test_pickled_loader_has_figures_of_its_own(files: list[str]) -> None:
    loader = loader_of(files, decode)
    list(loader)
    other = pickle.loads(pickle.dumps(loader))
    assert other._watch.number != loader._watch.number
    assert other.stats.samples == IMAGES
    list(other)
    assert (loader.stats.images, other.stats.images) == (IMAGES, IMAGES)


def test_repeated_decoding_in_fn_is_noticed(files: list[str]) -> None:
    def ten_crops(value: ndd.Batch, labels: ndd.Batch) -> Any:
        return tuple(ndd.resize(ndd.decoders.image_random_crop(value), size=[8, 8]) for _ in range(10))

    loader = loader_of(files, ten_crops)
    list(loader)
    stats = loader.stats
    assert (stats.images, stats.decoded_again) == (10 * IMAGES, 9 * IMAGES)
    text = stats._replace(wait=5.0, model=0.0, read=0.0, call=0.0, decode=9.0, augment=0.5).diagnosis(2, epoch=IMAGES)
    assert "decode each file once instead of 10 times and take all crops from its pixels" in text
    assert f"for the {IMAGES} images of an epoch" in text


def test_files_that_occur_several_times_in_an_epoch_are_noticed(files: list[str]) -> None:
    loader = loader_of(files * 5, decode)
    for _ in range(2):
        list(loader)
    stats = loader.diagnose().stats
    assert stats.repeats == 5
    text = stats._replace(wait=5.0, model=0.0, read=0.0, call=0.0, decode=9.0, augment=0.5).diagnosis(2, epoch=5 * IMAGES)
    assert "because each file is decoded 5 times in an epoch" in text
    assert f"for the {IMAGES} images of an epoch" in text
    plain = loader_of(files, decode)
    for _ in range(3):
        list(plain)
    assert plain.diagnose().stats.repeats == 1


def diagnosis(figures: dict[str, Any], threads: int = 2, **more: Any) -> str:
    return ndd.loader.Stats(**{**DECODING, **figures}).diagnosis(threads, **more)


def test_large_jpegs_are_to_be_decoded_at_a_smaller_scale() -> None:
    text = diagnosis({"image_bytes": LARGE, "operators": {"decoders.image": 18.0}})
    assert "decode large JPEGs at a smaller scale (at_least=; an image has 36 MB, the result of fn 600 kB)" in text
    assert "at_least" not in diagnosis({"image_bytes": LARGE, "scaled": 640, "operators": {"decoders.image": 18.0}})
    assert "at_least" not in diagnosis({})
    assert "at_least" not in diagnosis({"image_bytes": LARGE, "bytes": LARGE})


def test_scaled_decoding_is_counted(files: list[str]) -> None:
    loader = loader_of(files, lambda value, labels: ndd.resize(ndd.decoders.image(value, at_least=20), size=[20, 20]))
    list(loader)
    assert loader.stats.scaled == IMAGES


@pytest.mark.parametrize("used", ["decoders.image_random_crop", "decoders.image_crop", "decoders.image_slice"])
def test_windows_are_not_advised_to_programs_that_use_them(used: str) -> None:
    assert "decoders.image_random_crop)" in diagnosis({"operators": {"decoders.image": 18.0}})
    assert "decode only what is used" not in diagnosis({"operators": {used: 18.0}})


def test_no_more_threads_than_cpus_are_advised() -> None:
    assert "give it more threads (set_num_threads)" in diagnosis({}, cpus=4)
    for cpus in (1, 2):
        text = diagnosis({}, cpus=cpus)
        assert "set_num_threads" not in text
        assert "give it more CPUs" in text
        assert "set_num_threads" not in diagnosis({"decode": 1.0, "augment": 18.0}, cpus=cpus)
    assert available_cpus() >= 1


def test_fractions_are_at_most_one() -> None:
    assert "busy for 100%" in diagnosis({"decode": 79.0})


def test_other_work_of_the_process_is_named() -> None:
    text = diagnosis({"decode": 2.0, "augment": 1.0, "others": 16.0})
    assert text.startswith("Other work is the limit")
    assert "busy for 80% with other work of this process, such as other loaders, and for 15% with this loader's" in text
    assert diagnosis({"decode": 2.0, "augment": 1.0, "others": 1.0}).startswith("Latency")


def test_advice_is_a_sentence() -> None:
    assert diagnosis({"image_bytes": LARGE, "operators": {"decoders.image": 18.0}}, cpus=2, epoch=640).partition("; ")[2] == (
        "decode large JPEGs at a smaller scale (at_least=; an image has 36 MB, the result of fn 600 kB), decode only what is used "
        "(decoders.image_random_crop), keep decoded images for the next epochs (decoders.cache, 23 GB for the 640 images of an epoch), give it more "
        "CPUs, or store smaller images."
    )


def test_work_of_other_libraries_counts_as_work(files: list[str]) -> None:
    """Videos are decoded by torchcodec; without this, Python would be blamed for the time."""

    def fn(value: ndd.Batch, labels: ndd.Batch) -> Any:
        with Work("decoders.video", 2).running():
            time.sleep(0.01)
        return labels

    loader = loader_of(files, fn)
    list(loader)
    stats = loader.stats
    assert stats.operators["decoders.video"] >= 3 * 2 * 0.01
    assert stats.decode == stats.operators["decoders.video"]
    text = stats._replace(wait=5.0, model=0.0, read=0.0, call=4.9, decode=9.5, augment=0.0).diagnosis(2)
    assert text.startswith("Decoding is the limit")
    assert "image" not in text.partition(";")[2]


def test_video_decoding_is_decoding(tmp_path: Path) -> None:
    encoders()
    paths = write(tmp_path)
    loader = ndd.DataLoader(ndd.readers.File(files=paths), lambda files, labels: ndd.decoders.video(files, sequence_length=4), batch_size=3)
    list(loader)
    assert loader.stats.operators["decoders.video"] > 0
    assert loader.stats.decode >= loader.stats.operators["decoders.video"]


def test_decoding_without_a_loader_has_no_owner(files: list[str]) -> None:
    before = count_images(0)[0]
    ndd.decoders.image(files).evaluate()
    assert count_images(0)[0] == before + IMAGES


def test_cached_images_belong_to_the_loader(files: list[str], tmp_path: Path) -> None:
    cache = ndd.decoders.cache("20MB")
    loaders = [loader_of(files, lambda value, labels: ndd.decoders.image(value, cache=cache)) for _ in range(2)]
    for loader in loaders:
        list(loader)
    assert [loader.stats.cached for loader in loaders] == [0, IMAGES]


LEFT_IN_A_LOOP = """
import torch
import torch_ndd as ndd

def loop():
    yield from ndd.DataLoader(torch.utils.data.TensorDataset(torch.arange(100)), batch_size=4)

loops = [loop()]
for batches in loops:
    next(batches)
"""


def test_a_program_may_end_within_a_loop() -> None:
    run = subprocess.run([sys.executable, "-c", LEFT_IN_A_LOOP], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0
    assert "Exception ignored" not in run.stderr
