# SPDX-License-Identifier: Apache-2.0
"""Readers with threads that a fork takes from the child."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import torch_ndd as ndd
from torch_ndd._core.process.workers import Workers, is_here

# Forking beside threads is what this tests.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

SAMPLES = 12


def succeeds_in_child(check: Callable[[], bool]) -> bool:
    """Return whether a check is true in a forked child. One that waits for threads of the parent is ended after 60 s."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            status = int(not check())
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def read_items(folder: Path) -> Any:
    return ndd.readers.Dataset([(k, k) for k in range(SAMPLES)], num_workers=2)


def read_numpy(folder: Path) -> Any:
    return ndd.readers.Numpy(files=[str(folder / f"{k}.npy") for k in range(SAMPLES)])


def read_remote(folder: Path) -> Any:
    return ndd.readers.File(files=[(folder / f"{k}.npy").as_uri() for k in range(SAMPLES)])


def read_speech(folder: Path) -> Any:
    return ndd.readers.NemoAsr(manifest_filepaths=folder / "manifest.json")


def read_joined(folder: Path) -> Any:
    left, right = ([{"key": f"{k:02}", name: k} for k in range(SAMPLES)] for name in "ab")
    return ndd.readers.Join(left, right, on="key")


def read_mixed(folder: Path) -> Any:
    return ndd.readers.Mix({"a": [(k, k) for k in range(SAMPLES)], "b": [(-k, k) for k in range(SAMPLES)]}, epoch=SAMPLES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for k in range(SAMPLES):
        np.save(tmp_path / f"{k}.npy", np.full(3, k))
        soundfile.write(tmp_path / f"{k}.wav", np.full(800, k / 100), 8000)
    (tmp_path / "manifest.json").write_text("\n".join(f'{{"audio_filepath": "{k}.wav", "text": "{k}"}}' for k in range(SAMPLES)))
    return tmp_path


@pytest.mark.parametrize("make", [read_items, read_numpy, read_remote, read_speech, read_joined, read_mixed])
def test_a_forked_child_reads_what_its_parent_had_begun(folder: Path, make: Callable[[Path], Any]) -> None:
    def read(outputs: Any) -> list[Any]:
        columns = outputs.values() if isinstance(outputs, dict) else outputs
        return [[np.asarray(sample).tolist() for sample in column] for column in columns]

    expected = [read(outputs) for outputs in make(folder).next_epoch(4)]
    reader = make(folder)
    epoch = reader.next_epoch(4)
    assert read(next(epoch)) == expected[0]  # and reads ahead
    samples = np.arange(2)
    request = reader.start(samples)
    assert succeeds_in_child(lambda: [read(outputs) for outputs in epoch] == expected[1:])
    assert succeeds_in_child(lambda: bool(read(reader.finish(request, samples))))
    assert [read(outputs) for outputs in epoch] == expected[1:]


def test_a_pool_belongs_to_its_process() -> None:
    with Workers(1, "pool") as pool:
        assert pool.submit(pow, 2, 3).result() == 8
        assert is_here(pool)
        assert succeeds_in_child(lambda: not is_here(pool))
    assert not is_here(None)
