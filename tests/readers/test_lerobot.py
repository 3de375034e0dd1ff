# SPDX-License-Identifier: Apache-2.0
"""readers.LeRobot."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _robots import (
    CAMERAS,
    LENGTHS,
    RATE,
    TASKS,
    action_of,
    describe,
    episode_columns,
    frame_color,
    frame_columns,
    write_json,
    write_table,
    write_v2,
    write_v3,
)
from _videos import HEIGHT, WIDTH, encode
from torch.utils.data import DataLoader

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

TOP, WRIST = CAMERAS
BEGINS = np.cumsum([0, *LENGTHS])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_v3(tmp_path_factory.mktemp("v3"))


@pytest.fixture(scope="module")
def old_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_v2(tmp_path_factory.mktemp("v2"))


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    shutil.copytree(root, tmp_path / "copy")
    return tmp_path / "copy"


def samples_of(reader: Any) -> list[dict[str, np.ndarray]]:
    return [{name: np.asarray(value) for name, value in sample.items()} for sample in reader.next_epoch()]


def decode_all(path: Path) -> torch.Tensor:
    decoder = pytest.importorskip("torchcodec.decoders").VideoDecoder(path, dimension_order="NHWC")
    return torch.stack([decoder.get_frame_at(k).data for k in range(len(decoder))])


def check_frame(frame: np.ndarray, camera: int, index: int) -> None:
    assert np.abs(frame.astype(int) - frame_color(camera, index)).max() <= 6  # lossy codec


@pytest.mark.parametrize("version", ["v3", "v2"])
def test_samples_are_frames_of_episodes(version: str, root: Path, old_root: Path) -> None:
    found = samples_of(ndd.readers.LeRobot(path=root if version == "v3" else old_root))
    assert len(found) == sum(LENGTHS)
    for index, sample in enumerate(found):
        episode = int(np.searchsorted(BEGINS, index, "right")) - 1
        frame = index - BEGINS[episode]
        assert (sample["index"], sample["episode_index"], sample["frame_index"]) == (index, episode, frame)
        assert sample["action"].tolist() == action_of(index)
        assert bool(sample["next.done"]) == (frame == LENGTHS[episode] - 1)
        assert sample["timestamp"] == np.float32(frame / RATE)
        assert sample["task"].tobytes().decode() == TASKS[episode % 2]
        for camera, name in enumerate(CAMERAS):
            assert (sample[name].shape, sample[name].dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
            check_frame(sample[name], camera, index)
    assert (sample["action"].dtype, sample["index"].dtype, sample["next.done"].dtype) == (np.float32, np.int64, np.bool_)


def test_frames_equal_those_of_torchcodec(root: Path) -> None:
    batch = next(ndd.readers.LeRobot(path=root, random_shuffle=True, seed=2).next_epoch(sum(LENGTHS)))
    assert (batch[TOP].layout, batch[TOP].torch().shape) == ("HWC", (20, HEIGHT, WIDTH, 3))
    for camera in CAMERAS:
        frames = torch.cat([decode_all(root / f"videos/{camera}/chunk-000/file-{k:03d}.mp4") for k in range(2)])
        assert torch.equal(batch[camera].torch(), frames[batch["index"].torch()])


def test_windows_are_clamped_to_the_episode_and_marked(root: Path) -> None:
    steps = {"action": [-0.2, 0, 0.1], TOP: [-0.1, 0, 0.3]}
    batch = next(ndd.readers.LeRobot(path=root, delta_timestamps=steps).next_epoch(sum(LENGTHS)))
    assert (batch[TOP].layout, batch[WRIST].layout) == ("FHWC", "HWC")
    frames = torch.cat([decode_all(root / f"videos/{TOP}/chunk-000/file-{k:03d}.mp4") for k in range(2)])
    for index in range(sum(LENGTHS)):
        episode = int(np.searchsorted(BEGINS, index, "right")) - 1
        for name, offsets in (("action", [-2, 0, 1]), (TOP, [-1, 0, 3])):
            wanted = index + np.array(offsets)
            inside = wanted.clip(BEGINS[episode], BEGINS[episode + 1] - 1)
            assert batch[f"{name}_is_pad"].torch()[index].tolist() == (wanted != inside).tolist()
            if name == "action":
                assert batch[name].torch()[index].tolist() == [action_of(k) for k in inside]
            else:
                assert torch.equal(batch[name].torch()[index], frames[inside])
    assert f"{WRIST}_is_pad" not in batch


def test_delta_timestamps_must_be_multiples_of_the_time_between_frames(root: Path) -> None:
    message = (
        r"readers\.LeRobot: delta_timestamps of 'action': 0\.15 s is not a multiple of the time between frames, 1/10 s, within tolerance_s=0\.0001"
    )
    with pytest.raises(ValueError, match=message):
        ndd.readers.LeRobot(path=root, delta_timestamps={"action": [0, 0.15]}).scan()
    for seconds in (["a"], [[0], [0, 0.1]], 0.1, [], [float("nan")]):
        with pytest.raises(ValueError, match=r"readers\.LeRobot: delta_timestamps of 'action' must be a list of seconds that is not empty, got "):
            ndd.readers.LeRobot(path=root, delta_timestamps={"action": seconds})
    assert ndd.readers.LeRobot(path=root, delta_timestamps={"action": [0.10009]}).scan() == 20
    assert ndd.readers.LeRobot(path=root, delta_timestamps={"action": [0.15]}, tolerance_s=0.06).scan() == 20
    for tolerance in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=rf"readers\.LeRobot: tolerance_s must be 0 or more, got {tolerance}"):
            ndd.readers.LeRobot(path=root, tolerance_s=tolerance)


def test_episodes_and_dropped_frames(root: Path) -> None:
    def indices(**options: Any) -> list[int]:
        return [int(sample["index"]) for sample in samples_of(ndd.readers.LeRobot(path=root, features=["index", WRIST], **options))]

    assert indices(episodes=[1]) == [7, 8, 9, 10, 11]
    assert indices(episodes=[2, 0], drop_first=2, drop_last=1) == [2, 3, 4, 5, *range(14, 19)]
    assert indices(drop_last=6) == [0, 12, 13]
    (sample, *_) = samples_of(ndd.readers.LeRobot(path=root, episodes=[1], drop_first=1, delta_timestamps={"action": [-0.1]}))
    assert (sample["action"].tolist(), sample["action_is_pad"].tolist()) == ([action_of(7)], [False])  # a dropped frame is in the window
    check_frame(sample[WRIST], 1, 8)
    for episodes, message in (([3], "there is no episode 3 among the 3"), ([], "the list is empty")):
        with pytest.raises(ValueError, match=message):
            indices(episodes=episodes)


def test_own_columns_may_be_missing_from_the_description(copy: Path) -> None:
    own = ("timestamp", "frame_index", "episode_index", "index", "task_index")
    info = describe("v3.0")
    write_json(copy / "meta/info.json", {**info, "features": {name: value for name, value in info["features"].items() if name not in own}})
    for index, sample in enumerate(samples_of(ndd.readers.LeRobot(path=copy))):
        assert (sample["index"], sample["index"].dtype, sample["timestamp"].dtype) == (index, np.int64, np.float32)
        assert sample["task"].tobytes().decode() == TASKS[int(sample["task_index"])]
        check_frame(sample[TOP], 0, index)
    write_table(copy / "data/chunk-000/file-000.parquet", {name: v for name, v in frame_columns((0, 1)).items() if name != "timestamp"})
    with pytest.raises(RuntimeError, match="the features have no 'timestamp'"):
        ndd.readers.LeRobot(path=copy).scan()


def test_features_select_the_outputs(root: Path) -> None:
    (sample, *_) = samples_of(ndd.readers.LeRobot(path=root, features=["action"]))
    assert set(sample) == {"action", "task"}
    with pytest.raises(ValueError, match="there is no feature 'actoin'; did you mean 'action'"):
        ndd.readers.LeRobot(path=root, features=["actoin"]).scan()
    with pytest.raises(ValueError, match="which features= leaves out"):
        ndd.readers.LeRobot(path=root, features=["index"], delta_timestamps={"action": [0]}).scan()


def test_statistics_are_those_of_the_episodes(root: Path, old_root: Path) -> None:
    stats = ndd.readers.LeRobot(path=root).stats
    assert {key: value.tolist() for key, value in stats["action"].items()} == {
        "mean": [1, 2, 3],
        "std": [1, 1, 2],
        "q01": [0, 0, 0],
        "q99": [9, 9, 9],
    }
    assert stats[TOP]["mean"].tolist() == [127.5, 63.75, 255]
    batch = next(ndd.readers.LeRobot(path=root).next_epoch(2))
    normal = ndd.normalize(batch["action"], mean=stats["action"]["mean"], stddev=stats["action"]["std"])
    assert np.allclose(normal.torch(), (batch["action"].torch() - torch.tensor([1, 2, 3])) / torch.tensor([1, 1, 2]))
    merged = ndd.readers.LeRobot(path=old_root).stats["action"]
    actions = np.array([action_of(k) for k in range(sum(LENGTHS))])
    for key in ("mean", "std", "min", "max"):
        assert np.allclose(merged[key], getattr(actions, key)(0))


def make_reader(root: Path, **options: Any) -> Callable[[int, int, int], Any]:
    steps = {"action": [0, 0.1], TOP: [-0.1, 0]}
    return lambda rank, world, batch_size: ndd.readers.LeRobot(
        batch_size, path=root, delta_timestamps=steps, shard_id=rank, num_shards=world, **options
    )


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 3, "cache_bytes": 10_000}], ids=str)
def test_lerobot_resumes_exactly(root: Path, options: dict[str, Any]) -> None:
    resumed = assert_resumable(make_reader(root, **options), cuts=(0, 1, 2), worlds=((1, 1), (2, 3), (8, 3), (3, 5)), batch_sizes=(1, 3))
    print(f"{resumed.cuts} cuts, {resumed.samples} samples compared, states of at most {resumed.state_bytes} bytes")


def test_eight_ranks_then_three_then_five_read_each_frame_once(root: Path) -> None:
    found: list[int] = []

    def take(world: int, state: dict[str, Any] | None, steps: int | None) -> dict[str, Any]:
        for rank in range(world):
            reader = ndd.readers.LeRobot(1, path=root, features=["index"], random_shuffle=True, seed=1, shard_id=rank, num_shards=world)
            if state is not None:
                reader.load_state_dict(json.loads(json.dumps(state)))
            loop = iter(reader)
            for batch in loop if steps is None else [next(loop) for _ in range(steps)]:
                found.extend(batch["index"].torch().tolist())
        return reader.state_dict()

    take(5, take(3, take(8, None, 1), 2), None)
    assert sorted(found) == list(range(20))


@pytest.mark.parametrize(("context", "workers"), [("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)])
def test_pickles_and_workers(root: Path, context: str, workers: int) -> None:
    assert len(samples_of(pickle.loads(pickle.dumps(ndd.readers.LeRobot(path=root))))) == 20
    reader = ndd.readers.LeRobot(4, path=root)
    reader.scan()
    found = []
    for batch in DataLoader(reader, batch_size=None, num_workers=workers, multiprocessing_context=context):
        found += batch["index"].torch().tolist()
        check_frame(np.asarray(batch[TOP].nth(0)), 0, int(batch["index"].torch()[0]))
    assert sorted(found) == list(range(20))


# --- data sets that contradict themselves, or do harm ---


def refuse(root: Path, message: str, **options: Any) -> None:
    with pytest.raises(RuntimeError, match=message):
        samples_of(ndd.readers.LeRobot(path=root, **options))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codebase_version": "v1.6"}, r'info\.json": codebase_version \'v1\.6\' is not supported'),
        ({"fps": 0}, "fps must be a positive number"),
        ({"fps": float("nan")}, "fps must be a positive number"),
        ({"fps": "30"}, "fps must be a positive number"),
        ({"features": []}, "features must be an object"),
        ({"features": {"x": {"dtype": "float32"}}}, "feature 'x' needs a dtype and a shape"),
        ({"video_path": "../{video_key}.mp4"}, "video_path leads to '../observation.images.top.mp4', which is not a file below the data set"),
        ({"data_path": "/etc/passwd"}, "data_path leads to '/etc/passwd'"),
        ({"data_path": "http://127.0.0.1/x"}, "data_path leads to"),
        ({"data_path": "{chunk_index.__class__}"}, "data_path leads to"),
        ({"data_path": "{chunk_index:0999999999d}"}, "data_path leads to"),
        ({"data_path": "{secret}"}, "data_path has an unknown field: '{secret}'"),
        ({"data_path": None}, "data_path must be text"),
    ],
    ids=str,
)
def test_hostile_info(copy: Path, changes: dict[str, Any], message: str) -> None:
    write_json(copy / "meta/info.json", describe("v3.0", **changes))
    refuse(copy, message)


def test_hostile_json(copy: Path) -> None:
    info = copy / "meta/info.json"
    for text, message in (("{", "not valid JSON"), ("[" * 100_000, "not valid JSON"), ("[]", "a JSON object is expected"), ("", "not valid JSON")):
        info.write_text(text)
        refuse(copy, message)
    info.unlink()
    refuse(copy, r'meta/info\.json": cannot be read: No such file')
    info.mkdir()
    refuse(copy, "cannot be read: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset_to_index": [7, 12, 10**9 + 12]}, "numbers of 1000000012 frames|the 1000000000 frames of episode 2, from index 12, are not there"),
        ({"dataset_to_index": [7, 12, 2**62]}, r"the episodes promise 4\.\d*e\+18 frames"),
        ({"dataset_from_index": [0, 7, -5]}, "episode 2 has 25 frames from -5"),
        ({"dataset_from_index": [0, 6, 12]}, "the 6 frames of episode 1, from index 6, are not there"),
        ({"episode_index": [0, 1, 1]}, "its number comes twice"),
        ({"data/file_index": [0, 0, 0]}, "the 8 frames of episode 2, from index 12, are not there"),
        ({"data/file_index": [0, 0, 7]}, r'file-007\.parquet": cannot be read: .*No such file'),
        ({"data/file_index": [0, 0, -1]}, "a number outside 0 to 2147483647"),
        ({"data/file_index": [0, 0, None]}, "column 'data/file_index' has missing values"),
        ({f"videos/{TOP}/from_timestamp": [0.0, 0.7, float("nan")]}, "from_timestamp of 'observation.images.top' is not a number in episode 2"),
    ],
    ids=str,
)
def test_hostile_episodes(copy: Path, changes: dict[str, Any], message: str) -> None:
    write_table(copy / "meta/episodes/chunk-000/file-000.parquet", episode_columns() | changes)
    with pytest.raises((RuntimeError, MemoryError), match=rf"readers\.LeRobot: .*({message})"):
        samples_of(ndd.readers.LeRobot(path=copy))


def test_hostile_tables(copy: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    path, columns = copy / "data/chunk-000/file-000.parquet", frame_columns((0, 1))
    for changes, message in (
        ({"index": list(range(11, -1, -1))}, "the 7 frames of episode 0, from index 0, are not there"),
        ({"episode_index": [0] * 12}, "the 5 frames of episode 1, from index 7"),
        ({"action": arrow.array([[1.0]] * 12)}, r"feature 'action' does not have the shape \[3\]"),
        ({"action": arrow.array([[1.0], *[[1.0] * 3] * 11])}, r"feature 'action'.* shape \[3\]"),
        ({"action": arrow.array([None, *[[1.0] * 3] * 11])}, "feature 'action', row 0: a list is missing"),
        ({"next.done": arrow.array(["x"] * 12)}, "feature 'next.done' has the type string instead of numbers"),
        ({"task_index": [0] * 11 + [9]}, "there is no task 9, which frames have"),
    ):
        write_table(path, columns | changes)
        refuse(copy, message)
    del columns["action"]
    write_table(path, columns)
    refuse(copy, "it has no column 'action'")
    path.write_bytes(b"PAR1" + bytes(100))
    refuse(copy, r'file-000\.parquet": cannot be read')
    shutil.rmtree(copy / "meta/episodes")
    refuse(copy, "cannot be listed|has no file")


def test_promised_row_groups_are_bounded(root: Path) -> None:
    refuse(root, "row group 0 has .* more than max_sample_bytes=100", max_sample_bytes=100)


def test_a_frame_at_another_time_is_a_bad_sample(copy: Path) -> None:
    begins = {f"videos/{TOP}/from_timestamp": [0.0, 0.7 + 0.002, 0.0]}
    write_table(copy / "meta/episodes/chunk-000/file-000.parquet", episode_columns() | begins)
    refuse(copy, r"frame 0 of episode 1\): camera 'observation\.images\.top', .*file-000\.mp4: frame 7 is at 0\.700000 s instead of 0\.702000 s")
    reader = ndd.readers.LeRobot(path=copy, on_error="skip")
    assert [int(sample["index"]) for sample in (next(iter([s])) for s in map(dict, reader))] == [*range(7), *range(12, 20)]
    assert len(reader.errors) == 5
    assert len(samples_of(ndd.readers.LeRobot(path=copy, tolerance_s=0.003))) == 20


def test_promised_frames_that_are_missing_are_bad_samples(copy: Path) -> None:
    path = copy / f"videos/{WRIST}/chunk-000/file-001.mp4"
    frames = np.zeros((5, HEIGHT, WIDTH, 3), np.uint8)
    path.write_bytes(encode(frames, rate=RATE).tobytes())  # the episode has 8
    refuse(copy, r"frame 5 of episode 2\): camera .*wrist', .*: the video has 5 frames at 10 per second, and none at 0\.500000 s")
    reader = ndd.readers.LeRobot(6, path=copy, on_error="skip", random_shuffle=True, seed=1)
    found = sorted(index for batch in reader for index in batch["index"].torch().tolist())
    assert found == list(range(17))
    assert len(reader.errors) == 3
    path.write_bytes(b"no video")
    refuse(copy, r"camera 'observation\.images\.wrist', .*file-001\.mp4: ")
    path.unlink()
    refuse(copy, r"file-001\.mp4: .*No such file")
