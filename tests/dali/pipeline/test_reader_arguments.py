# SPDX-License-Identifier: Apache-2.0
"""Nodes as arguments of readers: windows of arrays, and sizes of videos, of their own for each sample."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pipelines import both, define, ours_raises, plain
from _videos import write

import torch_ndd.dali as ours


@pytest.fixture
def arrays(tmp_path: Path) -> str:
    for k in range(5):
        np.save(tmp_path / f"{k}.npy", np.arange(12 * 10, dtype=np.int32).reshape(12, 10) + 1000 * k)
    return str(tmp_path)


WINDOWS = {
    "start and shape": {"roi_start": [3, 2], "roi_shape": [4, 5]},
    "start and end": {"roi_start": [1, 0], "roi_end": [5, 9]},
    "one axis": {"roi_start": [2], "roi_axes": [1]},
    "relative": {"rel_roi_start": [0.25, 0.1], "rel_roi_shape": [0.5, 0.3]},
    "relative end": {"rel_roi_end": [0.5, 0.5]},
}


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("varying", [False, True])
def test_windows_of_arrays(arrays: str, window: str, varying: bool) -> None:
    """A window for each sample, of nodes; the same in every iteration, or random."""

    def program(dali: Any) -> Any:
        def graph() -> Any:
            data: dict[str, Any] = dict(WINDOWS[window])
            for key, value in data.items():
                if key == "roi_axes":
                    continue
                kind = np.float32 if key.startswith("rel") else np.int32
                less = np.asarray(value, kind)
                source = (
                    (lambda info, less=less, kind=kind: (less * (1 + info.idx_in_epoch % 2) / 2).astype(kind))
                    if varying
                    else (lambda info, less=less: less)
                )
                data[key] = dali.fn.external_source(source, batch=False)
            return dali.fn.readers.numpy(file_root=arrays, file_filter="*.npy", name="Reader", **data)

        pipe = define(dali, graph, 3)
        return [pipe.run() for _ in range(4)]

    both(program, raises=TypeError)


def test_windows_of_arrays_are_those_of_their_iteration(arrays: str) -> None:
    """Nothing that was read ahead has another window, and no sample is left out."""

    def graph() -> Any:
        start = ours.fn.external_source(lambda info: np.int32([info.idx_in_epoch % 12]), batch=False)
        return ours.fn.readers.numpy(file_root=arrays, roi_start=start, roi_shape=[1], roi_axes=[0]), start

    pipe = define(ours, graph, 2)
    for run in range(6):
        rows, starts = pipe.run()
        for k in range(2):
            number = 2 * run + k
            first = 1000 * (number % 5) + 10 * (number % 12)
            assert rows.at(k).tolist() == [list(range(first, first + 10))]
            assert starts.at(k) == number % 12


def test_batches_of_other_sizes_are_refused(arrays: str) -> None:
    def program(dali: Any) -> Any:
        start = dali.fn.external_source(lambda: np.zeros((2, 2), np.int32), name="start")
        return dali.fn.readers.numpy(file_root=arrays, roi_start=start)

    ours_raises(lambda dali: define(dali, lambda: program(dali), 3).run(), RuntimeError, "Batch size clash")


def test_an_argument_that_is_no_node(arrays: str) -> None:
    both(lambda dali: define(dali, lambda: dali.fn.readers.numpy(file_root=arrays, shard_id=dali.fn.random.coin_flip())), raises=TypeError)


def test_sizes_of_videos(tmp_path: Path) -> None:
    """DALI decodes videos on a GPU only."""
    path = write(tmp_path, counts=(6,))[0]

    def graph(size: Any) -> Any:
        return ours.fn.readers.video_resize(filenames=[str(path)], sequence_length=2, size=size, step=1)

    def varying() -> Any:
        return graph(ours.fn.external_source(lambda info: np.float32([8 + 8 * info.idx_in_batch, 12]), batch=False))

    wanted = {height: plain(define(ours, lambda height=height: graph([height, 12]), 2).run()[0])["samples"] for height in (8, 16)}
    got = define(ours, varying, 2).run()[0]
    assert got.shape() == [(2, 8, 12, 3), (2, 16, 12, 3)]
    for k, height in enumerate((8, 16)):
        np.testing.assert_array_equal(got.at(k), wanted[height][k])
