# SPDX-License-Identifier: Apache-2.0
import binascii
import inspect
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _forks import Forks
from _memory import resident_bytes

import torch_ndd as ndd


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(10):
        (tmp_path / f"{i}.jpg").write_bytes(bytes([i]) * (i + 1))
    return tmp_path


def reader_of(folder: Path, **options: Any) -> ndd.readers.File:
    return ndd.readers.File(files=[f"{i}.jpg" for i in range(10)], file_root=folder, **options)


def labels(epoch: Iterator[tuple[Any, ...]]) -> list[Any]:
    """Return the label of each sample, or a list of labels per batch."""
    return [value.torch().flatten().tolist() if isinstance(value, ndd.Batch) else value.item() for _, value in epoch]


def test_batches_hold_the_contents(folder: Path) -> None:
    (files, numbers), *_ = reader_of(folder).next_epoch(batch_size=3)
    assert isinstance(files, ndd.Batch)
    assert (files.dtype, files.shape, numbers.dtype, numbers.shape) == (ndd.uint8, [(1,), (2,), (3,)], ndd.int32, [(1,)] * 3)
    assert [np.asarray(sample).tolist() for sample in files.tensors] == [[0], [1, 1], [2, 2, 2]]


def test_files_of_one_length_are_dense(folder: Path) -> None:
    reader = ndd.readers.File(files=[str(folder / "4.jpg")] * 2)
    (files, _), *_ = reader.next_epoch(batch_size=2)
    assert files.torch().tolist() == [[4] * 5] * 2


def test_samples_are_tensors(folder: Path) -> None:
    samples = list(reader_of(folder).next_epoch())
    assert all(isinstance(value, ndd.Tensor) for sample in samples for value in sample)
    assert [value.torch().tolist() for value, _ in samples] == [[i] * (i + 1) for i in range(10)]
    assert [label.shape for _, label in samples] == [(1,)] * 10


def test_epochs_go_on_where_the_last_batch_ended(folder: Path) -> None:
    reader = reader_of(folder)
    assert labels(reader.next_epoch(batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert labels(reader.next_epoch(batch_size=4)) == [[2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]
    assert labels(reader.next_epoch()) == [4, 5, 6, 7, 8, 9, 0, 1, 2, 3]
    assert labels(reader.next_epoch(batch_size=16)) == [[4, 5, 6, 7, 8, 9, *range(10)]]


def test_break_leaves_the_position(folder: Path) -> None:
    reader = reader_of(folder)
    for _ in reader.next_epoch(batch_size=4):
        break
    assert labels(reader.next_epoch(batch_size=4)) == [[4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5]]


@pytest.mark.parametrize("option", ["capture", "compile"])
def test_captured_values_are_the_plain_ones(folder: Path, option: str) -> None:
    assert labels(reader_of(folder).next_epoch(4, **{option: True})) == labels(reader_of(folder).next_epoch(4))


def test_direct_calls(folder: Path) -> None:
    reader = reader_of(folder, max_batch_size=3)
    assert reader()[1].torch().flatten().tolist() == [0, 1, 2]
    assert reader(batch_size=2)[1].torch().flatten().tolist() == [3, 4]


def test_a_direct_call_returns_a_single_output_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.array([1, 2]))
    reader = ndd.readers.Numpy(files=[tmp_path / "0.npy"])
    assert reader().torch().tolist() == [1, 2]
    assert reader(batch_size=2).torch().tolist() == [[1, 2]] * 2
    (epoch,) = reader.next_epoch()
    assert isinstance(epoch, tuple)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("shuffle", ["random_shuffle", "shuffle_after_epoch"])
def test_shuffled_shards_cover_everything_once(folder: Path, shuffle: str, shards: int) -> None:
    readers = [reader_of(folder, num_shards=shards, shard_id=i, **{shuffle: True}) for i in range(shards)]
    epochs = [[labels(reader.next_epoch()) for reader in readers] for _ in range(4)]
    if shuffle == "shuffle_after_epoch" or shards in (1, 2):
        for epoch in epochs:
            assert sorted(label for part in epoch for label in part) == list(range(10))
    assert len({str(epoch) for epoch in epochs}) > 2


def test_shuffle_repeats_with_its_seed(folder: Path) -> None:
    first, again, other = (labels(reader_of(folder, random_shuffle=True, seed=seed).next_epoch()) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == list(range(10))
    assert labels(reader_of(folder, random_shuffle=True).next_epoch()) == labels(reader_of(folder, random_shuffle=True).next_epoch())


def test_a_shuffle_is_a_permutation_of_everything(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"x")
    files = ["x.jpg"] * 1000
    first, second = (labels(ndd.readers.File(files=files, file_root=tmp_path, random_shuffle=True, seed=seed).next_epoch(1000))[0] for seed in (1, 2))
    assert sorted(first) == sorted(second) == list(range(1000))
    for value, other in ((first, range(1000)), (second, range(1000)), (first, second)):
        assert abs(float(np.corrcoef(value, other)[0, 1])) < 0.15


def test_ranks_with_different_seeds_share_no_sample(folder: Path) -> None:
    for options in ({}, {"stick_to_shard": True}):
        readers = [reader_of(folder, num_shards=3, shard_id=rank, random_shuffle=True, seed=rank, **options) for rank in range(3)]
        for _ in range(3):
            assert sorted(label for reader in readers for label in labels(iter(reader))) == list(range(10))


def test_unreadable_files(folder: Path) -> None:
    os.mkdir(folder / "directory.jpg")
    for name, reason in (("none.jpg", "No such file"), ("directory.jpg", "directory")):
        reader = ndd.readers.File(files=["1.jpg", name, "2.jpg"], file_root=folder)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=rf"readers\.File: sample \d \(.*{name}\): .*{reason}"):
                next(reader.next_epoch(batch_size=3))
    reader = ndd.readers.File(files=["1.jpg", "late.jpg"], file_root=folder)
    with pytest.raises(RuntimeError, match=r"late\.jpg"):
        next(reader.next_epoch(batch_size=2))
    reader.load_state_dict(reader.state_dict())  # which discards what was read ahead
    (folder / "late.jpg").write_bytes(b"late")
    assert labels(reader.next_epoch(batch_size=2)) == [[0, 1]]


def test_an_error_ahead_waits_for_its_turn(folder: Path) -> None:
    epoch = ndd.readers.File(files=["1.jpg", "2.jpg", "none.jpg"], file_root=folder, prefetch_queue_depth=2).next_epoch()
    assert labels(next(epoch) for _ in range(2)) == [0, 1]
    with pytest.raises(RuntimeError, match=r"none\.jpg"):
        next(epoch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "file_root is required"),
        ({"files": []}, "empty list"),
        ({"files": ["1.jpg"], "labels": [1, 2]}, "2 labels for 1 files"),
        ({"files": ["1.jpg", "2.jpg"], "labels": [[1], [2]]}, r"one list of integers, got an array of shape \(2, 1\)"),
        ({"files": ["1.jpg"], "labels": 3}, "1 labels for 1 files"),
        ({"files": ["1.jpg"], "labels": [2**31]}, "fit into 32 bits"),
        ({"file_root": "/nowhere"}, "/nowhere.*cannot be opened"),
        ({"file_list": "/nowhere"}, "/nowhere.*cannot be read"),
        ({"file_list": "a", "files": ["b"]}, "not both"),
        ({"file_root": ".", "file_filters": []}, "file_filters"),
        ({"files": ["1.jpg"], "num_shards": 2}, "The number of input samples: 1"),
        ({"files": ["1.jpg"], "random_shuffle": True, "shuffle_after_epoch": True}, "exclude each other"),
        ({"files": ["1.jpg"], "stick_to_shard": True, "shuffle_after_epoch": True}, "exclude each other"),
        ({"files": ["1.jpg"], "prefetch_queue_depth": 0}, "prefetch_queue_depth must be from 1"),
        ({"files": ["1.jpg"], "prefetch_queue_depth": 2**31}, "prefetch_queue_depth must be from 1"),
    ],
)
def test_mistakes_show_at_the_first_step(options: dict[str, Any], message: str) -> None:
    reader = ndd.readers.File(**options)
    epoch = reader.next_epoch(batch_size=2)
    with pytest.raises(RuntimeError, match=rf"readers\.File: .*{message}"):
        next(epoch)
    with pytest.raises(RuntimeError, match=message):
        reader.get_metadata()


@pytest.mark.parametrize("wrong_labels", [["a", "b"], [None, 1], [1.5, 2], [float("nan"), 1], [1j, 2], ["1", "2.5"]])
def test_labels_that_are_no_integers(wrong_labels: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"labels must be integers, got .*, .*; a DataLoader also takes a list of \(pathlib\.Path\(file\), value\)"):
        next(ndd.readers.File(files=["1.jpg", "2.jpg"], labels=wrong_labels).next_epoch())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("File", {"file_root": 3}),
        ("File", {"files": [1]}),
        ("File", {"files": ["a"], "random_shuffle": np.zeros(3)}),
        ("File", {"files": ["a"], "seed": "a"}),
        ("File", {"files": ["a"], "max_batch_size": 2.5}),
        ("File", {"files": ["a"], "device": 7}),
        ("Webdataset", {"ext": ["a"], "paths": 3}),
        ("Webdataset", {"paths": ["a"], "ext": ["a"], "missing_component_behavior": True}),
        ("TFRecord", {"path": "a", "features": [1]}),
        ("COCO", {"annotations_file": "a", "ratio": "yes"}),
        ("Numpy", {"files": ["a"], "roi_axes": "x"}),
        ("Caffe", {"path": ["a"], "shard_id": "x"}),
    ],
    ids=str,
)
def test_arguments_of_another_type(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=rf"readers\.{kind}: argument '{list(options)[-1]}' must be .*, got"):
        getattr(ndd.readers, kind)(**options)


def test_lists_of_paths_may_be_arrays() -> None:
    reader = ndd.readers.File(files=np.array(["a", "b"]), labels=np.array([3, 4]))
    assert isinstance(reader, ndd.readers.File)


def test_mistakes_at_the_constructor() -> None:
    for options in ({"shard_id": 2, "num_shards": 2}, {"shard_id": -1}, {"num_shards": 0}):
        with pytest.raises(ValueError, match=r"readers\.File: .*shard"):
            ndd.readers.File(files=["a"], **options)
    with pytest.raises(ValueError, match="Invalid device"):
        ndd.readers.File(files=["a"], device="gpu")
    for options in ({"batch_size": 2}, {"shard_id": "a"}):
        with pytest.raises(TypeError):
            ndd.readers.File(files=["a"], **options)


def test_batch_sizes(folder: Path) -> None:
    assert labels(reader_of(folder, max_batch_size=5).next_epoch()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    with pytest.raises(ValueError, match="max_batch_size"):
        reader_of(folder, max_batch_size=5).next_epoch(batch_size=6)
    for wrong in (0, -1, 1.5, "2"):
        with pytest.raises(RuntimeError, match="batch_size"):
            next(reader_of(folder).next_epoch(batch_size=wrong))


def test_file_list_with_blanks_and_endings(folder: Path) -> None:
    (folder / "sp ace.jpg").write_bytes(b"space")
    (folder / "list.txt").write_bytes(b"1.jpg 3\n\nsp ace.jpg \t 4\r\n  \n2.jpg -1")
    reader = ndd.readers.File(file_list=folder / "list.txt")
    assert [(files.shape, label.item()) for files, label in reader.next_epoch()] == [((2,), 3), ((5,), 4), ((3,), -1)]
    (folder / "list.txt").write_text("1.jpg 3\n2.jpg\n")
    with pytest.raises(RuntimeError, match="line 2"):
        next(ndd.readers.File(file_list=folder / "list.txt").next_epoch())


def test_names_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff.jpg")).write_bytes(b"odd")
    ((files, _),) = ndd.readers.File(file_root=tmp_path).next_epoch()
    assert bytes(files.torch().tolist()) == b"odd"


STATES: list[dict[str, Any]] = [
    {},
    {"random_shuffle": True, "initial_fill": 4, "seed": 3},
    {"shuffle_after_epoch": True, "num_shards": 2},
    {"pad_last_batch": True, "num_shards": 3, "shard_id": 1},
    {"pad_shards": True, "num_shards": 3, "shard_id": 1},
]


@pytest.mark.parametrize("options", STATES, ids=str)
@pytest.mark.parametrize("taken", [1, 2, 5, 6, 11])
def test_states_resume_exactly(folder: Path, options: dict[str, Any], taken: int) -> None:
    reader = reader_of(folder, enable_checkpointing=True, **options)
    batches = (batch for _ in range(99) for batch in reader.next_epoch(batch_size=2))
    labels(next(batches) for _ in range(taken))
    state, now = reader.get_state(), reader.state_dict()
    expected = labels(next(batches) for _ in range(12))
    for resumed, restore in ((reader_of(folder, **options), "set_state"), (reader, "load_state_dict")):
        getattr(resumed, restore)(str(state) if restore == "set_state" else now)
        again = (batch for _ in range(99) for batch in resumed.next_epoch(batch_size=2))
        assert labels(next(again) for _ in range(12)) == expected


def test_shards_of_one_size(folder: Path) -> None:
    readers = [reader_of(folder, num_shards=3, shard_id=shard, stick_to_shard=True, pad_shards=True) for shard in range(3)]
    loops = [[label.flatten().tolist() for _, label in ndd.DataLoader(reader, batch_size=3)] for reader in readers]
    assert loops == [[[0, 1, 2], [2]], [[3, 4, 5], [5]], [[6, 7, 8], [9]]]
    # Batches of DALI's epochs are full: the next pass over the shard begins in the last one.
    assert [labels(readers[0].next_epoch(3)) for _ in range(2)] == [[[0, 1, 2], [2, 0, 1]], [[2, 2, 0], [1, 2, 2]]]
    assert readers[0].get_metadata()["epoch_size_padded"] == 12


def test_a_resumed_epoch_is_a_whole_one(folder: Path) -> None:
    reader = reader_of(folder, enable_checkpointing=True)
    epoch = reader.next_epoch(batch_size=2)
    labels(next(epoch) for _ in range(2))
    resumed = reader_of(folder)
    resumed.set_state(reader.get_state())
    assert labels(resumed.next_epoch(batch_size=4)) == [[4, 5, 6, 7], [8, 9, 0, 1], [2, 3, 4, 5]]
    assert reader.get_state() == str(reader.get_state())
    assert hash(reader.get_state()) == hash(reader.get_state())


def test_state_errors(folder: Path) -> None:
    reader = reader_of(folder)
    with pytest.raises(RuntimeError, match="checkpointing disabled"):
        reader.get_state()
    with pytest.raises(TypeError, match="ReaderState"):
        reader.set_state(3)
    with pytest.raises(binascii.Error):
        reader.set_state("no base64!")
    next(reader.next_epoch())
    with pytest.raises(RuntimeError, match="after iteration has begun"):
        reader.set_state("")
    with pytest.raises(RuntimeError, match="before its first iteration"):
        reader_of(folder, enable_checkpointing=True).get_state()
    for state in ("", "AAAA", "e30="):
        damaged = reader_of(folder)
        with pytest.raises(ValueError, match=r"readers\.File: not a valid saved state"):
            damaged.set_state(state)
        next(damaged.next_epoch())
    with pytest.raises(ValueError, match="version"):
        reader.load_state_dict({})


def test_metadata_of_shards(folder: Path) -> None:
    expected = {"epoch_size": 10, "epoch_size_padded": 12, "number_of_shards": 3, "shard_id": 1, "pad_last_batch": 1, "stick_to_shard": 0}
    reader = reader_of(folder, num_shards=3, shard_id=1, pad_last_batch=True)
    assert reader.get_metadata() == expected
    labels(reader.next_epoch(batch_size=2))
    assert reader.get_metadata() == expected


def test_public_members() -> None:
    protocol = {"state_dict", "load_state_dict", "set_epoch", "errors", "classes"}
    internal = {
        *("begin_pass", "count_batches", "count_batches_left", "count_steps", "describe_bottleneck", "finish", "iter_epoch", "locate_next_batch"),
        *("expect_random_order", "has_begun", "is_incomplete", "is_quick", "list_labels", "narrow", "read_matching", "read_samples"),
        *("count_epoch_samples", "list_costs", "list_order", "note_errors", "order_state", "start_heads"),
        *("draw_seed", "draws", "move_to", "parse_state", "prepare_order", "reads_here", "scan", "start", "start_seeded"),
    }  # of loaders and pipelines, see torch_ndd/readers/README.md
    members = {name for name in dir(ndd.readers.File) if not name.startswith("_")} - set(dir(torch.utils.data.IterableDataset)) - protocol - internal
    assert members == {"next_epoch", "get_metadata", "get_state", "set_state"}
    assert next(iter(inspect.signature(ndd.readers.File).parameters)) == "max_batch_size"


def test_iterable_dataset(folder: Path) -> None:
    reader = reader_of(folder, max_batch_size=4)
    assert isinstance(reader, torch.utils.data.IterableDataset)
    assert len(reader) == 3
    assert labels(iter(reader)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert labels(iter(pickle.loads(pickle.dumps(reader)))) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_two_iterators_share_the_position(folder: Path) -> None:
    reader = reader_of(folder)
    first, second = reader.next_epoch(2), reader.next_epoch(2)
    assert labels(next(value) for value in (first, second, first)) == [[0, 1], [2, 3], [4, 5]]


def test_the_context_does_not_leak(folder: Path) -> None:
    ctx = ndd.EvalContext(num_threads=1)
    for _ in reader_of(folder).next_epoch(2, ctx=ctx):
        assert ndd.EvalContext.current() is not ctx


def test_memory_of_ten_million_files_stays_small() -> None:
    reader = ndd.readers.File(files=["class/0123456789.jpg"] * 200_000, file_root="/data", random_shuffle=True)
    index = reader.get_metadata() and reader._index
    assert index is not None
    assert len(index.ranges.paths) + index.ranges.path_offsets.nbytes < 30 * 200_000


FORK = """
import os, sys
import torch_ndd as ndd

reader = ndd.readers.File(files=sys.argv[1:] * 64, prefetch_queue_depth=3)
epoch = reader.next_epoch(batch_size=8)
next(epoch)
child = os.fork()
steps = sum(1 for _ in epoch)
if child == 0:
    os._exit(0 if steps == 7 else 3)
assert steps == 7
assert os.waitpid(child, 0)[1] == 0
"""


def test_reads_after_a_fork(folder: Path, forks: Forks) -> None:
    run = forks.run(FORK, folder / "9.jpg")
    assert (run.wait(), run.errors) == (0, "")


def test_nothing_leaks(folder: Path) -> None:
    big = folder / "big.jpg"
    big.write_bytes(bytes(1_000_000))

    def read(times: int) -> None:
        for _ in range(times):
            epoch = ndd.readers.File(files=[str(big)] * 20, prefetch_queue_depth=3).next_epoch(batch_size=2)
            next(epoch)
            next(epoch)

    read(5)
    before, open_files = resident_bytes(), len(os.listdir("/proc/self/fd"))
    read(30)
    assert resident_bytes() - before < 40_000_000
    # Threads that read ahead may have a file open at either moment; thirty leaking epochs would leave many more.
    assert len(os.listdir("/proc/self/fd")) < open_files + 10


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "x.jpg").write_bytes(b"x")
    for parent in (folder, tmp_path):
        (parent / "self.jpg").symlink_to("self.jpg")
        (parent / "gone.jpg").symlink_to("nothing")
    # As in DALI they are samples: a data set on a disk that is not mounted must not be smaller unnoticed.
    reader = ndd.readers.File(file_root=tmp_path)
    assert reader.get_metadata()["epoch_size"] == 3
    with pytest.raises(RuntimeError, match=r"gone\.jpg\): No such file or directory; it is a link to nothing"):
        reader()
    reader = ndd.readers.File(file_root=tmp_path, on_error="skip")
    assert len(list(iter(reader))) == 1
    assert [error.reason.partition("; ")[2] for error in reader.errors] == ["it is a link to nothing", "it is a link to self.jpg"]
    assert ndd.readers.Numpy(file_root=tmp_path, file_filter="*.jpg").get_metadata()["epoch_size"] == 5


@pytest.mark.parametrize("options", [{"files": "*.jpg"}, {"files": ["[0-9].jpg"]}])
def test_a_pattern_among_files_is_explained(options: dict[str, Any], folder: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"No such file or directory; patterns are for file_root with file_filters, or expand this one with glob\.glob"
    ):
        next(ndd.readers.File(file_root=folder, **options).next_epoch())
    (folder / "[0-9].jpg").write_bytes(b"mine")
    if isinstance(options["files"], list):
        assert labels(ndd.readers.File(file_root=folder, **options).next_epoch()) == [0]


def test_folders_of_tools_are_classes_with_a_warning(tmp_path: Path) -> None:
    for name in (".ipynb_checkpoints", "@eaDir", "__MACOSX", "cat"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"1")
    reader = ndd.readers.File(file_root=tmp_path)
    with pytest.warns(UserWarning, match=r"'\.ipynb_checkpoints' \(0\), '@eaDir' \(1\), '__MACOSX' \(2\)\. Remove them"):
        assert labels(reader.next_epoch()) == [0, 1, 2, 3]
    # No second warning, which would be an error.
    assert labels(reader.next_epoch()) == [0, 1, 2, 3]
    # Whoever chooses the folders gets no warning.
    assert labels(ndd.readers.File(file_root=tmp_path, dir_filters="*").next_epoch()) == [0, 1, 2, 3]
    assert ndd.readers.File(file_root=tmp_path, dir_filters="[!.]*").classes == ["@eaDir", "__MACOSX", "cat"]
