# SPDX-License-Identifier: Apache-2.0
"""A mix of sources with different outputs, which ``fields=`` completes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _robots import CAMERAS, write_v3
from _videos import HEIGHT, WIDTH

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

Mix = ndd.readers.Mix


def items(count: int, **columns: Any) -> list[dict[str, Any]]:
    return [{name: column(k) for name, column in columns.items()} for k in range(count)]


def one_batch(mix: ndd.readers.Reader, size: int) -> dict[str, Any]:
    return {name: column if isinstance(column, list) else column.torch().tolist() for name, column in next(mix.next_epoch(size)).items()}


def test_a_missing_output_is_zeros_and_marked() -> None:
    both = items(2, top=lambda k: torch.full((1, 2), k + 1), wrist=lambda k: float(k + 10))
    top = items(2, top=lambda k: torch.full((1, 2), k + 5))
    batch = one_batch(Mix({"both": both, "top": top}, fields=["wrist", "top"]), 4)
    assert list(batch) == ["wrist", "wrist_is_pad", "top", "source"]
    assert batch["source"] == [0, 1, 0, 1]
    assert batch["wrist"] == [10, 0, 11, 0]
    assert batch["wrist_is_pad"] == [False, True, False, True]
    assert batch["top"] == [[[1, 1]], [[5, 5]], [[2, 2]], [[6, 6]]]


def test_marks_of_windows_are_kept_and_completed() -> None:
    """As of LeRobot: a camera with a window of three frames, one of which lies outside the episode."""
    window = items(1, camera=lambda k: torch.ones(3, 2), camera_is_pad=lambda k: torch.tensor([True, False, False]))
    batch = one_batch(Mix({"without": items(1, x=lambda k: k), "with": window}, fields=["camera"]), 2)
    assert list(batch) == ["camera", "camera_is_pad", "source"]
    assert batch["camera"] == [[[0, 0]] * 3, [[1, 1]] * 3]
    assert batch["camera_is_pad"] == [[True] * 3, [True, False, False]]


@pytest.mark.parametrize("fields", [["camera", "camera_is_pad"], ["camera_is_pad", "camera"]], ids=str)
def test_marks_may_be_named_like_outputs(fields: list[str]) -> None:
    window = items(1, camera=lambda k: torch.ones(3), camera_is_pad=lambda k: torch.tensor([True, False, False]))
    batch = one_batch(Mix({"without": items(1, x=lambda k: k), "with": window}, fields=fields), 2)
    assert sorted(batch) == ["camera", "camera_is_pad", "source"]
    assert batch["camera_is_pad"] == [[True] * 3, [True, False, False]]
    numbers = {"a": items(1, x=lambda k: k, y=lambda k: k), "b": items(1, x=lambda k: k)}
    assert one_batch(Mix(numbers, fields=["y", "y_is_pad"]), 2)["y_is_pad"] == [False, True]
    with pytest.raises(ValueError, match="no source has an output 'x_is_pad'"):
        next(Mix({"a": items(1, x=lambda k: k)}, fields=["x", "x_is_pad"]).next_epoch(1))


def test_outputs_of_all_sources_have_no_marks() -> None:
    sources = {"a": items(1, x=lambda k: 1, y=lambda k: 2), "b": items(1, x=lambda k: 3, z=lambda k: 4)}
    assert one_batch(Mix(sources, fields=["x"]), 2) == {"x": [1, 3], "source": [0, 1]}


def test_missing_texts_and_encoded_data_are_empty(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"task": ["pick", "place"], "x": [1, 2]}), tmp_path / "x.parquet")
    named = items(2, x=lambda k: k, name=lambda k: f"n{k}")
    mix = Mix({"table": ndd.readers.Parquet(path=tmp_path / "x.parquet"), "items": named}, fields=["x", "task", "name"])
    batch = next(mix.next_epoch(4))
    assert [bytes(text) for text in batch["task"].tensors] == [b"pick", b"", b"place", b""]
    assert batch["name"] == ["", "n0", "", "n1"]
    assert batch["name_is_pad"].torch().tolist() == [True, False] * 2


def test_missing_images_have_the_layout_of_others() -> None:
    def add_image(outputs: dict[str, Any]) -> dict[str, Any]:
        return {**outputs, "image": ndd.as_batch([np.ones((4, 6, 3), np.uint8)] * outputs["x"].batch_size, layout="HWC")}

    decoded = ndd.Source(items(2, x=lambda k: k), add_image)
    mix = Mix({"plain": items(2, x=lambda k: k), "decoded": decoded}, fields=["x", "image"])
    image = next(mix.next_epoch(4))["image"]
    assert (image.layout, image.shape) == ("HWC", [(4, 6, 3)] * 4)
    assert image.torch().sum((1, 2, 3)).tolist() == [0, 72, 0, 72]


def test_robots_with_other_cameras(tmp_path: Path) -> None:
    pytest.importorskip("torchcodec")
    top, wrist = CAMERAS
    steps = {top: [-0.1, 0], "action": [0, 0.1]}
    windows = ndd.readers.LeRobot(path=write_v3(tmp_path / "robot"), delta_timestamps=steps)
    frames = ndd.readers.LeRobot(path=tmp_path / "robot", features=["action", wrist], delta_timestamps={"action": [0, 0.1]})
    batch = next(Mix({"windows": windows, "frames": frames}, fields=[top, wrist, "action", "task"]).next_epoch(4))
    assert set(batch) == {top, f"{top}_is_pad", wrist, "action", "action_is_pad", "task", "source"}
    assert (batch[top].layout, batch[top].torch().shape) == ("FHWC", (4, 2, HEIGHT, WIDTH, 3))
    assert batch[top].torch().sum((1, 2, 3, 4)).bool().tolist() == [True, False, True, False]
    assert batch[f"{top}_is_pad"].torch().tolist() == [[True, False], [True, True], [False, False], [True, True]]
    assert torch.equal(batch[wrist].torch()[0], batch[wrist].torch()[1])
    assert batch["action_is_pad"].torch().tolist() == [[False, False]] * 4


def test_zeros_do_not_depend_on_where_a_run_begins() -> None:
    """Shapes of zeros are those of the first sample of a source, not of the first batch."""
    ragged = items(4, image=lambda k: torch.ones(k + 1, 2))
    sources = {"ragged": ragged, "plain": items(4, x=lambda k: k)}
    first = Mix(sources, 2, fields=["image"])
    epoch = iter(first)
    next(epoch)
    second = Mix(sources, 2, fields=["image"])
    second.load_state_dict(first.state_dict())
    rest = [[tuple(sample.shape) for sample in batch["image"].tensors] for batch in second]
    assert rest == [[(2 + k, 2), (1, 2)] for k in range(3)]
    assert rest == [[tuple(sample.shape) for sample in batch["image"].tensors] for batch in epoch]


def test_every_cut_of_an_epoch_resumes() -> None:
    sources = {"a": items(5, x=lambda k: k, y=lambda k: k), "b": items(4, x=lambda k: k)}

    def make(rank: int, world: int, size: int) -> ndd.readers.Reader:
        return Mix(sources, size, fields=["x", "y"], random_shuffle=True, epoch="all", shard_id=rank, num_shards=world)

    assert assert_resumable(make, batch_sizes=[3]).cuts > 5


class Damaged(torch.utils.data.Dataset[Any]):
    """Items of which the first ``bad`` cannot be read."""

    def __init__(self, bad: int) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 20

    def __getitem__(self, k: int) -> Any:
        if k < self.bad:
            raise OSError("damaged")
        return {"x": k, "y": k}


def test_outputs_are_learned_from_a_sample_that_can_be_read() -> None:
    mix = Mix({"damaged": Damaged(3), "good": items(20, x=lambda k: k)}, fields=["x", "y"], on_error="skip")
    batch = one_batch(mix, 12)
    assert batch["x"] == [0, 1, 2, 3, 3, 4, 4, 5, 5]
    assert batch["y_is_pad"] == [True] * 3 + [False, True] * 3
    with pytest.raises(RuntimeError, match=r"the outputs of the source 'damaged' are not known, because its first 16 samples cannot be read"):
        next(Mix({"damaged": Damaged(20), "good": items(20, x=lambda k: k)}, fields=["x"], on_error="skip").next_epoch(2))


def test_an_output_that_only_some_samples_have_is_an_error_of_their_source() -> None:
    changing = [{"x": 0, "y": 0}, {"x": 1}]
    with pytest.raises(ValueError, match=r"readers\.Mix: fields: the source 'changing' has no output 'y' here, although its first sample has one"):
        list(Mix({"changing": changing, "whole": items(2, x=lambda k: k, y=lambda k: k)}, fields=["x", "y"]).next_epoch(2))


def test_outputs_are_joined_without_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child has none of them, and would wait for them forever; torch divides large copies among them."""

    cat = torch.cat

    def cat_small(tensors: Any, *rest: Any) -> torch.Tensor:
        assert sum(tensor.numel() for tensor in tensors) < 1000
        return cat(tensors, *rest)

    equal = items(
        2, x=lambda k: torch.ones(200, 200, dtype=torch.bfloat16) * (k + 1), y=lambda k: torch.ones(300, 200), z=lambda k: torch.ones(k + 1)
    )
    mix = Mix({"equal": equal, "other": [{"x": row["x"] * 10, "z": row["z"]} for row in equal]}, fields=["x", "y", "z"])
    monkeypatch.setattr(torch, "cat", cat_small)
    monkeypatch.setattr(torch, "full", lambda shape, *rest, **options: pytest.fail(f"fills {shape}"))
    batch = next(mix.next_epoch(4))
    monkeypatch.undo()
    assert batch["x"].torch()[:, 0, 0].tolist() == [1, 10, 2, 20]
    assert batch["y"].torch().sum((1, 2)).tolist() == [60_000, 0, 60_000, 0]
    assert [len(sample) for sample in batch["z"].tensors] == [1, 1, 2, 2]


X, Y = items(1, x=lambda k: k), items(1, y=lambda k: [{"a": 1}])


@pytest.mark.parametrize(
    ("sources", "fields", "kind", "message"),
    [
        ({"a": X}, "x", TypeError, "argument 'fields' must be"),
        ({"a": X}, [1], TypeError, "argument 'fields' must be"),
        ({"a": X}, [], ValueError, "fields must have names of outputs that all differ"),
        ({"a": X}, ["x", "x"], ValueError, "fields must have names of outputs that all differ"),
        ({"a": X}, ["source"], ValueError, "'source' is the name of the source's number"),
        ({"a": X}, ["xx"], ValueError, r"no source has an output 'xx'; did you mean 'x'\?; they have x"),
        ({"a": [1, 2]}, ["x"], ValueError, "the source 'a' does not have; use ndd.Source"),
        ({"a": X, "b": Y}, ["y"], ValueError, "output 'y', which the source 'a' does not have, cannot be filled with zeros"),
        ({"a": X, "b": items(1, x=lambda k: 0.5)}, ["x"], ValueError, "output 'x' differs"),
    ],
)
def test_bad_arguments(sources: Any, fields: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        next(Mix(sources, fields=fields).next_epoch(2))
