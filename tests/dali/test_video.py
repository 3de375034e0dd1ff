# SPDX-License-Identifier: Apache-2.0
"""decoders.video and experimental.readers.Video against DALI's, whose CPU backend reads VP9."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _dali import assert_equal, dali, ndd
from _raises import Raises, raising
from _videos import encode, frames_of, identity, write

Made = list[Any]


@pytest.fixture(scope="module")
def video() -> np.ndarray:
    return encode(frames_of(14), "webm")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write(tmp_path_factory.mktemp("videos"), "webm")


def assert_same(program: Callable[[ModuleType], Made], raises: Raises | None = None) -> None:
    def within_a_context(module: ModuleType) -> Made:
        with module.EvalContext():
            return program(module)

    assert_equal(within_a_context, raises)


def describe(frames: Any) -> tuple[Any, ...]:
    # Chroma is converted by different filters: frames are compared by their content, and within 12 levels.
    values = np.asarray(frames)
    return frames.layout, values.shape, str(values.dtype), identity(values)


# DALI accepts a string only as a literal in the call.
DECODED: list[Callable[[Any, Any], Any]] = [
    lambda d, v: d.video(v),
    lambda d, v: d.video(v, start_frame=5),
    lambda d, v: d.video(v, end_frame=5),
    lambda d, v: d.video(v, start_frame=3, end_frame=9),
    lambda d, v: d.video(v, start_frame=3, end_frame=13, stride=4),
    lambda d, v: d.video(v, stride=4),
    lambda d, v: d.video(v, sequence_length=4),
    lambda d, v: d.video(v, start_frame=4, sequence_length=3, stride=3),
    lambda d, v: d.video(v, start_frame=12, sequence_length=5),
    lambda d, v: d.video(v, start_frame=12, sequence_length=5, fill_value=[30]),
    lambda d, v: d.video(v, start_frame=12, sequence_length=5, fill_value=[30, 60, 90]),
    raising(RuntimeError, lambda d, v: d.video(v, start_frame=12, sequence_length=5, fill_value=[7, 8])),
    raising(RuntimeError, lambda d, v: d.video(v, start_frame=12, sequence_length=5, fill_value=[300])),
    lambda d, v: d.video(v, start_frame=12, sequence_length=5, pad_mode="none"),
    lambda d, v: d.video(v, start_frame=12, sequence_length=5, pad_mode="edge"),
    lambda d, v: d.video(v, start_frame=12, sequence_length=5, pad_mode="repeat"),
    lambda d, v: d.video(v, start_frame=12, sequence_length=40, pad_mode="reflect_1001"),
    lambda d, v: d.video(v, start_frame=12, sequence_length=5, pad_mode="symmetric"),
    lambda d, v: d.video(v, start_frame=12, sequence_length=40, pad_mode="reflect_101"),
    lambda d, v: d.video(v, start_frame=8, sequence_length=8, stride=3, pad_mode="reflect"),
    raising(RuntimeError, lambda d, v: d.video(v, start_frame=12, sequence_length=5, pad_mode="foo")),
    lambda d, v: d.video(v, start_frame=10, end_frame=20, pad_mode="edge"),
    lambda d, v: d.video(v, frames=[0, 10, 5, 10]),
    lambda d, v: d.video(v, frames=[0, 30]),
    raising(RuntimeError, lambda d, v: d.video(v, frames=[0, 30], pad_mode="none")),
    lambda d, v: d.video(v, frames=[-1, 16], pad_mode="edge"),
    lambda d, v: d.video(v, frames=[0, 16], pad_mode="reflect"),
    raising(RuntimeError, lambda d, v: d.video(v, start_frame=50, sequence_length=3)),
    lambda d, v: d.video(v, start_frame=-1),
    raising(RuntimeError, lambda d, v: d.video(v, start_frame=5, end_frame=5)),
    raising(RuntimeError, lambda d, v: d.video(v, end_frame=5, sequence_length=3)),
    raising(RuntimeError, lambda d, v: d.video(v, frames=[1], stride=2)),
    lambda d, v: d.video(v, build_index=False, start_frame=5, sequence_length=3),
]


@pytest.mark.parametrize("call", DECODED, ids=range(len(DECODED)))
def test_frames_chosen_by_the_decoder(
    video: np.ndarray, call: Callable[[Any, Any], Any], capfd: pytest.CaptureFixture[str], raises: Raises | None
) -> None:
    assert_same(lambda module: [describe(call(module.decoders, module.as_tensor(video)))], raises=raises)
    capfd.readouterr()


def test_values_are_close(video: np.ndarray) -> None:
    ours, theirs = (np.asarray(module.decoders.video(module.as_tensor(video))).astype(int) for module in (ndd, dali))
    assert np.abs(ours - theirs).max() <= 12


def test_decoder_with_a_batch(video: np.ndarray) -> None:
    def program(module: ModuleType) -> Made:
        batch = module.batch([module.as_tensor(video)] * 2)
        result = module.decoders.video(batch, start_frame=module.batch([0, 5]), sequence_length=module.batch([2, 3]))
        return [describe(sample) for sample in result.tensors]

    assert_same(program)


def test_decoder_of_non_videos(capfd: pytest.CaptureFixture[str]) -> None:
    file = np.zeros(100, np.uint8)
    assert_same(lambda module: [describe(module.decoders.video(module.as_tensor(file)))], raises=RuntimeError)
    capfd.readouterr()


READ: list[dict[str, Any]] = [
    {"sequence_length": 6},
    {"sequence_length": 6, "step": 3},
    {"sequence_length": 4, "stride": 3},
    {"sequence_length": 5, "step": 2, "pad_mode": "symmetric", "enable_frame_num": "sequence"},
    {"sequence_length": 5, "pad_mode": "constant", "fill_value": [30, 200, 9], "enable_frame_num": "sequence", "enable_timestamps": True},
    {"sequence_length": 5, "pad_mode": "reflect_101", "enable_frame_num": "sequence", "enable_timestamps": True},
    {"sequence_length": 6, "labels": [5, 6, 7], "stride": 2, "enable_frame_num": "scalar"},
    raising(RuntimeError, {"sequence_length": 6, "labels": []}),
    raising(RuntimeError, {"sequence_length": 6, "enable_frame_num": "foo"}),
    {"sequence_length": 4, "uniform_sample": True},
    raising(RuntimeError, {"sequence_length": 30}),
    {"sequence_length": 3, "num_shards": 2, "shard_id": 1},
    {"sequence_length": 3, "num_shards": 2, "stick_to_shard": True, "pad_last_batch": True},
]


def read(module: ModuleType, epochs: int, batch_size: int, **options: Any) -> Made:
    reader = module.experimental.readers.Video(**options)
    results: Made = []
    for _ in range(epochs):
        for outputs in reader.next_epoch(batch_size=batch_size):
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            for frames, *others in zip(*(output.tensors for output in outputs), strict=True):
                results.append((describe(frames), *((np.round(np.asarray(other), 3).tolist(), str(np.asarray(other).dtype)) for other in others)))
    return [*results, reader.get_metadata()]


@pytest.mark.parametrize("options", READ, ids=str)
def test_sequences_of_the_reader(videos: list[Path], options: dict[str, Any], capfd: pytest.CaptureFixture[str], raises: Raises | None) -> None:
    paths = [str(path) for path in videos]
    assert_same(lambda module: read(module, 2, 2, filenames=paths, **options), raises=raises)
    capfd.readouterr()


def test_reader_of_a_folder(videos: list[Path]) -> None:
    assert_same(lambda module: read(module, 3, 3, file_root=str(videos[0].parent.parent), sequence_length=5))


@pytest.mark.parametrize("rounding", ["start_down_end_up", "start_up_end_down", "all_up", "all_down", raising(RuntimeError, "up")])
@pytest.mark.parametrize("line", ["0.35 1.25", "0.3 1.2", "-1 1.0"])
def test_reader_of_a_list_with_times(
    videos: list[Path], tmp_path: Path, line: str, rounding: str, capfd: pytest.CaptureFixture[str], raises: Raises | None
) -> None:
    (tmp_path / "list.txt").write_text(f"{videos[0]} 3 {line}\n{videos[1]} 4\n")
    options = {"file_list": str(tmp_path / "list.txt"), "sequence_length": 1, "file_list_rounding": rounding}
    assert_same(lambda module: read(module, 1, 1, **options), raises=raises)
    capfd.readouterr()


@pytest.mark.parametrize("line", ["4 11", "-5 -1", "0 19", "0 30"])
def test_reader_of_a_list_with_frames(videos: list[Path], tmp_path: Path, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.txt").write_text(f"{videos[0]} 3 {line}\n")
    options = {"file_list": str(tmp_path / "list.txt"), "sequence_length": 1, "file_list_format": "frames"}
    assert_same(lambda module: read(module, 1, 1, **options))
    capfd.readouterr()
