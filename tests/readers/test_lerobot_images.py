# SPDX-License-Identifier: Apache-2.0
"""readers.LeRobot: cameras that are stored as images in Parquet files."""

import io
import os
import pickle
import shutil
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _robots import (
    CAMERAS,
    LENGTHS,
    TASKS,
    action_of,
    describe_images,
    encode_png,
    image_column,
    image_frame_columns,
    image_of,
    write_json,
    write_table,
    write_v3_images,
)
from _videos import HEIGHT, WIDTH
from torch.utils.data import DataLoader

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

Image = pytest.importorskip("PIL.Image")
TOP, WRIST = CAMERAS
BEGINS = np.cumsum([0, *LENGTHS])
FRAMES = sum(LENGTHS)
FILE = "data/chunk-000/file-000.parquet"  # episodes 0 and 1: 12 frames


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_v3_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    shutil.copytree(root, tmp_path / "copy")
    return tmp_path / "copy"


def replace_images(root: Path, files: Sequence[bytes | None], paths: Sequence[str | None] | None = None) -> None:
    """Write the first camera of episodes 0 and 1 again."""
    write_table(root / FILE, image_frame_columns((0, 1)) | {TOP: image_column(files, paths)}, row_group_size=4)


def good_files() -> list[bytes | None]:
    return [encode_png(image_of(0, k)) for k in range(BEGINS[2])]


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 3}], ids=str)
def test_samples_have_the_images_of_their_frames(root: Path, options: dict[str, Any]) -> None:
    found = []
    for batch in ndd.readers.LeRobot(6, path=root, **options):
        assert (batch[TOP].layout, batch[TOP].torch().dtype) == ("HWC", torch.uint8)
        for k, index in enumerate(batch["index"].torch().tolist()):
            for camera, name in enumerate(CAMERAS):
                assert np.array_equal(np.asarray(batch[name].nth(k)), image_of(camera, index))
            assert batch["action"].torch()[k].tolist() == action_of(index)
            assert bytes(np.asarray(batch["task"].nth(k))).decode() in TASKS
            found.append(index)
    assert sorted(found) == list(range(FRAMES))


def test_windows_of_images_are_clamped_to_the_episode_and_marked(root: Path) -> None:
    batch = next(ndd.readers.LeRobot(path=root, delta_timestamps={TOP: [-0.1, 0, 0.3], "action": [0]}).next_epoch(FRAMES))
    assert (batch[TOP].layout, batch[WRIST].layout, batch[TOP].torch().shape) == ("FHWC", "HWC", (FRAMES, 3, HEIGHT, WIDTH, 3))
    for index in range(FRAMES):
        episode = int(np.searchsorted(BEGINS, index, "right")) - 1
        wanted = index + np.array([-1, 0, 3])
        inside = wanted.clip(BEGINS[episode], BEGINS[episode + 1] - 1)
        assert batch[f"{TOP}_is_pad"].torch()[index].tolist() == (wanted != inside).tolist()
        assert np.array_equal(batch[TOP].torch()[index], np.stack([image_of(0, k) for k in inside]))
    assert f"{WRIST}_is_pad" not in batch


def test_chosen_episodes_read_their_own_rows(root: Path) -> None:
    for episodes in ([1], [2], [0, 2]):
        expected = [k for episode in episodes for k in range(BEGINS[episode], BEGINS[episode + 1])]
        batch = next(ndd.readers.LeRobot(path=root, episodes=episodes, features=[WRIST, "index"]).next_epoch(len(expected)))
        assert batch["index"].torch().tolist() == expected
        assert np.array_equal(batch[WRIST].torch(), np.stack([image_of(1, k) for k in expected]))


def test_statistics_of_image_cameras_are_in_levels(root: Path) -> None:
    assert ndd.readers.LeRobot(path=root).stats[TOP]["mean"].tolist() == [127.5, 63.75, 255]


def test_gray_images_and_shapes_that_begin_with_the_channels(copy: Path) -> None:
    write_json(copy / "meta/info.json", describe_images(shape=[3, HEIGHT, WIDTH]))
    sample = next(iter(ndd.readers.LeRobot(path=copy, features=[TOP]).next_epoch()))
    assert np.array_equal(np.asarray(sample[TOP]), image_of(0, 0))
    write_json(copy / "meta/info.json", describe_images(shape=[HEIGHT, WIDTH, 1]))
    gray = [image_of(0, k)[..., 0] for k in range(BEGINS[2])]
    replace_images(copy, [encode_png(pixels) for pixels in gray])
    batch = next(ndd.readers.LeRobot(path=copy, features=[TOP], episodes=[0, 1]).next_epoch(len(gray)))
    assert np.array_equal(batch[TOP].torch(), np.stack(gray)[..., None])


@pytest.mark.slow
def test_image_cameras_resume_exactly(root: Path) -> None:
    steps = {TOP: [-0.1, 0]}
    assert_resumable(
        lambda rank, world, batch_size: ndd.readers.LeRobot(
            batch_size, path=root, delta_timestamps=steps, random_shuffle=True, seed=3, shard_id=rank, num_shards=world
        ),
        cuts=(0, 2),
        worlds=((1, 1), (8, 3), (3, 5)),
        batch_sizes=(1, 3),
    )


def test_image_cameras_pickle_and_fork(root: Path) -> None:
    assert len(list(pickle.loads(pickle.dumps(ndd.readers.LeRobot(path=root))).next_epoch())) == FRAMES
    reader = ndd.readers.LeRobot(4, path=root)
    next(reader.next_epoch())  # the parent has open files and threads
    found = []
    for batch in DataLoader(reader, batch_size=None, num_workers=2, multiprocessing_context="fork"):
        for k, index in enumerate(batch["index"].torch().tolist()):
            assert np.array_equal(np.asarray(batch[TOP].nth(k)), image_of(0, index))
            found.append(index)
    assert sorted(found) == list(range(FRAMES))


def test_a_missing_image_is_read_from_its_path_in_the_data_set(copy: Path) -> None:
    (copy / "images").mkdir()
    (copy / "images/frame_3.png").write_bytes(encode_png(image_of(0, 3)))
    files = good_files()
    files[3] = None
    replace_images(copy, files, [f"images/frame_{k}.png" for k in range(len(files))])
    batch = next(ndd.readers.LeRobot(path=copy, features=[TOP]).next_epoch(5))
    assert np.array_equal(batch[TOP].torch(), np.stack([image_of(0, k) for k in range(5)]))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, "the image is missing: it has neither bytes nor a path"),
        ("../secret.png", r"the path '\.\./secret\.png' does not lead to a file in "),
        ("{root}/../secret.png", "does not lead to a file in "),
        ("images/../../secret.png", "does not lead to a file in "),
        ("http://127.0.0.1/x.png", "does not lead to a file in "),
        ("file:///etc/passwd", "does not lead to a file in "),
        ("absent.png", "absent.png: .*No such file"),
        ("pipe", "pipe: "),
        ("meta", "meta: "),
    ],
    ids=str,
)
def test_hostile_paths_of_images(copy: Path, path: str | None, message: str) -> None:
    (copy.parent / "secret.png").write_bytes(encode_png(image_of(0, 2)))
    os.mkfifo(copy / "pipe")
    files = good_files()
    files[2] = None
    replace_images(copy, files, [path.format(root=copy) if path and k == 2 else None for k in range(len(files))])
    with pytest.raises(RuntimeError, match=rf"frame 2 of episode 0\): camera '{TOP}', .*file-000\.parquet at row 2: .*{message}"):
        list(ndd.readers.LeRobot(5, path=copy, features=[TOP]).next_epoch())
    reader = ndd.readers.LeRobot(5, path=copy, features=[TOP, "index"], on_error="skip")
    assert sorted(index for batch in reader for index in batch["index"].torch().tolist()) == [k for k in range(FRAMES) if k != 2]
    assert [error.sample for error in reader.errors] == [2]


def promise_png(height: int, width: int) -> bytes:
    """Return a PNG with a larger size in its header than in its data."""
    content = bytearray(encode_png(image_of(0, 0)))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"no image", "not an image of a supported format"),
        (encode_png(image_of(0, 1))[:60], "the file is damaged"),
        (encode_png(np.zeros((HEIGHT // 2, WIDTH, 3), np.uint8)), f"the image has the size {HEIGHT // 2}x{WIDTH} instead of {HEIGHT}x{WIDTH}"),
        (encode_png(np.zeros((HEIGHT + 1, WIDTH, 3), np.uint8)), "max_pixels"),
        (promise_png(100_000, 100_000), "the header promises 100000x100000 pixels"),
    ],
    ids=["empty", "text", "cut", "smaller", "larger", "huge"],
)
def test_hostile_images(copy: Path, content: bytes, message: str) -> None:
    files = good_files()
    files[8] = content
    replace_images(copy, files)
    with pytest.raises(RuntimeError, match=rf"frame 1 of episode 1\): camera '{TOP}', .*file-000\.parquet at row 8: .*{message}"):
        list(ndd.readers.LeRobot(5, path=copy).next_epoch())
    # A sample is bad if any frame of its window is.
    reader = ndd.readers.LeRobot(5, path=copy, features=[TOP, "index"], delta_timestamps={TOP: [0, 0.1]}, on_error="skip")
    assert sorted(index for batch in reader for index in batch["index"].torch().tolist()) == [k for k in range(FRAMES) if k not in (7, 8)]


def test_a_bad_image_of_one_camera_spoils_no_window_of_another(copy: Path) -> None:
    files = [encode_png(image_of(1, k)) for k in range(BEGINS[2])]
    files[8] = None
    write_table(copy / FILE, image_frame_columns((0, 1)) | {WRIST: image_column(files)}, row_group_size=4)
    # The window of sample 7 has frame 8 of the first camera, but not of the second one.
    reader = ndd.readers.LeRobot(5, path=copy, delta_timestamps={TOP: [0, 0.1]}, on_error="skip")
    assert sorted(index for batch in reader for index in batch["index"].torch().tolist()) == [k for k in range(FRAMES) if k != 8]
    with pytest.raises(RuntimeError, match=rf"camera '{WRIST}', .*: column '{WRIST}': the image is missing"):
        list(ndd.readers.LeRobot(5, path=copy).next_epoch())


def test_hostile_columns_of_images(copy: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    for column, message in (
        (arrow.array([1] * 12), "the column does not have encoded images"),
        (arrow.array([{"bytes": 1, "path": "x"}] * 12), f"column '{TOP}' not found"),
        (arrow.array([None] * 12, arrow.binary()), f"camera '{TOP}'"),
    ):
        write_table(copy / FILE, image_frame_columns((0, 1)) | {TOP: column})
        with pytest.raises(RuntimeError, match=rf"readers\.LeRobot: .*{message}"):
            list(ndd.readers.LeRobot(path=copy, features=[TOP], episodes=[0, 1]).next_epoch())
    columns = image_frame_columns((0, 1))
    del columns[TOP]
    write_table(copy / FILE, columns)
    with pytest.raises(RuntimeError, match=rf"column '{TOP}' not found; available: action, "):
        ndd.readers.LeRobot(path=copy).scan()


@pytest.mark.parametrize("shape", [[HEIGHT, WIDTH], [1], [HEIGHT, WIDTH, 4], [0, 0, 3], [2, 2, 2]], ids=str)
def test_image_cameras_need_a_shape(copy: Path, shape: list[int]) -> None:
    write_json(copy / "meta/info.json", describe_images(shape=shape))
    with pytest.raises(RuntimeError, match=rf"info\.json\": camera '{TOP}' has the shape .* with 1 or 3 channels"):
        ndd.readers.LeRobot(path=copy, features=[TOP]).scan()


def test_large_promises_of_images_are_bounded(copy: Path) -> None:
    write_json(copy / "meta/info.json", describe_images(shape=[1 << 20, 1 << 20, 3]))
    with pytest.raises(RuntimeError, match=r"images of 1048576x1048576 have 3298534883328 bytes, more than max_sample_bytes"):
        list(ndd.readers.LeRobot(path=copy, features=[TOP]).next_epoch())
    write_json(copy / "meta/info.json", describe_images())
    with pytest.raises(RuntimeError, match="more than max_sample_bytes=3000"):
        list(ndd.readers.LeRobot(path=copy, features=[TOP], max_sample_bytes=3000).next_epoch())
    buffer = io.BytesIO()
    Image.fromarray(image_of(0, 0)).save(buffer, "BMP")
    (copy / "big.bmp").write_bytes(buffer.getvalue() + bytes(1 << 20))
    files = good_files()
    files[0] = None
    replace_images(copy, files, ["big.bmp"] * len(files))
    with pytest.raises(RuntimeError, match=r"big\.bmp: the file has \d+ bytes, more than max_sample_bytes=900000"):
        list(ndd.readers.LeRobot(path=copy, features=[TOP], max_sample_bytes=900_000).next_epoch())
