# SPDX-License-Identifier: Apache-2.0
"""Reading and writing files of this machine: what is not a regular file, links under the names, and several processes that write one file."""

import contextlib
import io
import json
import multiprocessing
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import dali, index
from torch_ndd._core.process.files import open_regular, read_regular, text_of, whole_file, write_whole
from torch_ndd.checkpoint import Checkpoint
from torch_ndd.pack._writers import Entry, write_tfrecord
from torch_ndd.torchvision.datasets import default_loader


@pytest.fixture(params=["pipe", "device", "link to a device", "socket"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a path that a plain ``open(path).read()`` never comes back from, or fails at."""
    path = tmp_path / "endless.jpg"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        return "/dev/zero"
    elif request.param == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    else:
        path.symlink_to("/dev/zero")
    return str(path)


class Paths(torch.utils.data.Dataset[Any]):
    def __init__(self, path: Any) -> None:
        self.path = path

    def __len__(self) -> int:
        return 2

    def __getitem__(self, k: int) -> Any:
        return self.path


FEATURES = {"a": ndd.tfrecord.FixedLenFeature((), ndd.tfrecord.string, "")}
READS: dict[str, Callable[[str, Path], Any]] = {
    "Dataset": lambda path, _: list(ndd.DataLoader(Paths(Path(path)), batch_size=1)),
    "readers.File": lambda path, _: list(ndd.readers.File(files=[path]).next_epoch()),
    "File list": lambda path, _: list(ndd.readers.File(file_list=path).next_epoch()),
    "Numpy list": lambda path, _: list(ndd.readers.Numpy(file_list=path).next_epoch()),
    "COCO": lambda path, folder: list(ndd.readers.COCO(annotations_file=path, file_root=str(folder)).next_epoch()),
    "NemoAsr": lambda path, _: list(ndd.readers.NemoAsr(manifest_filepaths=[path]).next_epoch()),
    "Webdataset": lambda path, _: list(ndd.readers.Webdataset(paths=[path], ext=["jpg"]).next_epoch()),
    "Webdataset index": lambda path, folder: list(ndd.readers.Webdataset(paths=[str(folder)], index_paths=[path], ext=["jpg"]).next_epoch()),
    "TFRecord": lambda path, _: list(ndd.readers.TFRecord(path=[path], features=FEATURES).next_epoch()),
    "MXNet index": lambda path, folder: list(ndd.readers.MXNet(path=[str(folder)], index_path=[path]).next_epoch()),
    "imread": lambda path, _: ndd.imread(path).evaluate(),
    "decoders.image": lambda path, _: ndd.decoders.image(path).evaluate(),
    "io.file.read": lambda path, _: ndd.io.file.read(np.frombuffer(path.encode(), np.uint8)).evaluate(),
    "ImageFolder": lambda path, _: default_loader(path),
    "Checkpoint": lambda path, folder: (os.rename(path, folder / "0.json"), Checkpoint().load(str(folder / "{seq}.json"))),
    "deserialize": lambda path, _: dali.Pipeline.deserialize(filename=path),
    "index": lambda path, folder: index.wds(path, str(folder / "made.idx")),
    "file URL": lambda path, _: list(ndd.readers.File(files=["file://" + path]).next_epoch()),
}


@pytest.mark.parametrize("what", READS)
def test_devices_and_pipes_are_not_read(what: str, endless: str, tmp_path: Path) -> None:
    if what == "Checkpoint" and endless == "/dev/zero":
        pytest.skip("it is not renamed")
    if what == "file URL":
        pytest.importorskip("fsspec")
    with pytest.raises((OSError, RuntimeError, ValueError), match=r"regular file|no checkpoint matches|No such device"):
        READS[what](endless, tmp_path)


def test_videos_and_parquet_files_are_regular(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    if ndd.readers.Parquet is not None:
        pytest.importorskip("pyarrow")
        with pytest.raises(RuntimeError, match="not a regular file"):
            ndd.readers.Parquet(path=str(tmp_path / "pipe.parquet")).next_epoch().__next__()
    pytest.importorskip("torchcodec")
    from torch_ndd.decoders._video import Video

    for path, reason in ((tmp_path / "pipe.parquet", "not a regular file"), ("concat:a|b", "No such file"), ("pipe:0", "No such file")):
        with pytest.raises(RuntimeError, match=reason):
            Video(str(path))


def test_folders_are_called_so(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"x"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "link", follow=False)


def test_a_written_file_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for name in ("out", "out.tmp", "out.part"):
        (tmp_path / name).symlink_to("mine")
    write_whole(tmp_path / "out", "new")
    assert (tmp_path / "mine").read_text() == "mine"
    assert not (tmp_path / "out").is_symlink()
    assert (tmp_path / "out").read_text() == "new"
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_device_or_a_pipe_is_not_replaced(endless: str) -> None:
    before = os.lstat(endless)
    with pytest.raises(OSError, match=r"regular file|No such device"):
        write_whole(endless, "text")
    assert os.lstat(endless) == before


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, "before")
    with contextlib.suppress(RuntimeError), whole_file(path) as file:
        file.write(b"half")
        raise RuntimeError("stop")
    with pytest.raises(FileExistsError):
        write_whole(path, "after", replace=False)
    with pytest.raises(FileNotFoundError) as error:
        write_whole(tmp_path / "none" / "a", "x")
    assert error.value.filename == str(tmp_path / "none" / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert path.read_text() == "before"


def test_files_without_hard_links_are_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_whole(tmp_path / "a", "x", replace=False)
    with pytest.raises(PermissionError):
        write_whole(tmp_path / "a", "y", replace=False)
    assert (tmp_path / "a").read_text() == "x"


def _save(path: str, pattern: str, rank: int, ready: Any) -> None:
    checkpoint = Checkpoint()
    checkpoint.set_state("a", str(rank) * 100_000)
    ready.wait()
    for _ in range(50):
        write_whole(path, checkpoint.serialize())
        checkpoint.save(pattern)


@pytest.mark.slow
def test_ranks_that_save_one_path_do_not_disturb_each_other(tmp_path: Path) -> None:
    path, pattern = tmp_path / "one.json", str(tmp_path / "{seq}.json")
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(5)
    ranks = [context.Process(target=_save, args=(str(path), pattern, rank, ready)) for rank in range(4)]
    for rank in ranks:
        rank.start()
    ready.wait(60)
    seen = 0
    while any(rank.is_alive() for rank in ranks):
        if path.exists():
            Checkpoint().deserialize(path.read_text())
            seen += 1
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0] * 4
    assert seen > 0
    numbered = sorted(int(each.stem) for each in tmp_path.iterdir() if each.stem.isdigit())
    assert numbered == list(range(200))  # each in a file of its own
    assert len([*tmp_path.iterdir()]) == 201
    states = [json.loads((tmp_path / f"{k}.json").read_text())["states"]["a"]["state"] for k in numbered]
    assert sorted(states) == sorted(str(rank) * 100_000 for rank in range(4) for _ in range(50))


def test_saved_files_are_private_to_nobody_else(tmp_path: Path) -> None:
    """Every function that writes a file keeps what a link under its name leads to."""
    (tmp_path / "mine").write_text("mine")

    def plant(name: str) -> str:
        (tmp_path / name).symlink_to("mine")
        return str(tmp_path / name)

    @dali.pipeline_def(batch_size=1, num_threads=1, device_id=None, enable_checkpointing=True)
    def definition() -> Any:
        return dali.fn.constant(idata=[1])

    pipeline = definition()
    pipeline.build()
    pipeline.serialize(filename=plant("graph.json"))
    pipeline.checkpoint(plant("state.json"))
    pipeline.save_graph_to_dot_file(plant("graph.dot"))
    images = ndd.batch([np.zeros((4, 4, 3), np.uint8)], layout="HWC")
    pytest.importorskip("PIL")
    ndd.show(images, plant("picture.png"))
    assert (tmp_path / "mine").read_text() == "mine"
    assert not any(path.is_symlink() for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match="extension"):
        ndd.show(images, tmp_path / "picture.none")


# torch validates sparse tensors that other tests have unpickled in this process.
@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")
def test_a_loaded_batch_has_shapes_of_its_own(tmp_path: Path) -> None:
    """A file may say that the shapes of the samples are a part of the values."""
    state = ndd.batch([[1, 2, 3], [4, 5]]).__getstate__()
    values = torch.cat([torch.tensor([3, 2]), torch.zeros(3, dtype=torch.int64)])
    state["values"], state["shapes"] = values, values[:2].view(2, 1)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = ndd.Batch.__new__(ndd.Batch)
    loaded.__setstate__(torch.load(file, weights_only=True))
    loaded.select(0).torch().fill_(2**40)
    assert loaded.shape == [(3,), (2,)]
    assert loaded.ragged_shapes is not None
    assert loaded.ragged_shapes.untyped_storage().data_ptr() != loaded.buffer.untyped_storage().data_ptr()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_texts_lose_their_byte_order_mark(encoding: str) -> None:
    text = "kätzchen 1\n"
    content = text.encode(encoding)
    if encoding == "utf-16-le":
        content = b"\xff\xfe" + content
    assert text_of(content).decode() == text
    assert text_of(b"\xff\xfea") == b"\xff\xfea"  # which is not UTF-16


def _text_reads(folder: Path) -> dict[str, tuple[str, Callable[[Path], Any]]]:
    """Return a text for each kind of file, and what reads it."""
    for name in ("a.bin", "b.bin"):
        (folder / name).write_bytes(name.encode())
    np.save(folder / "a.npy", np.arange(3))
    with open(folder / "a.tfrecord", "wb") as file:
        places = write_tfrecord(file, [Entry("key", ".jpg", b"content", None, None)])

    def arrays(path: Path) -> list[Any]:
        return [np.asarray(each).tolist() for each in ndd.readers.Numpy(file_list=path, file_root=folder).next_epoch()]

    def records(path: Path) -> int:
        return len(list(ndd.readers.TFRecord(path=folder / "a.tfrecord", index_path=path, features=FEATURES).next_epoch()))

    def texts(ext: str, content: bytes) -> list[Any]:
        with tarfile.open(folder / "a.tar", "w") as archive:
            header = tarfile.TarInfo(f"1.{ext}")
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
        reader = ndd.readers.Webdataset(1, paths=folder / "a.tar", ext=ext, decode=True)
        return [value if isinstance(value, list) else value.torch().tolist() for (value,) in reader]

    def contents(reader: Any) -> list[bytes]:
        return [np.asarray(files).tobytes() for files, *_ in reader.next_epoch()]

    annotations = {"images": [{"id": 1, "file_name": "a.bin"}], "annotations": [], "categories": []}
    return {
        "file list": ("a.bin 3\nb.bin 4\n", lambda path: contents(ndd.readers.File(file_list=path, file_root=folder))),
        "list of arrays": (
            "a.npy\n",
            lambda path: [np.asarray(batch).tolist() for batch in ndd.readers.Numpy(file_list=path, file_root=folder).next_epoch()],
        ),
        "annotations": (json.dumps(annotations), lambda path: contents(ndd.readers.COCO(annotations_file=path, file_root=folder))),
        "index": (places.decode(), records),
        "caption": ("a cat\n", lambda path: texts("txt", path.read_bytes())),
        "label": ("17", lambda path: texts("cls", path.read_bytes())),
        "object": ('{"a": 1}', lambda path: texts("json", path.read_bytes())),
        "checkpoint": (
            '{"version": 2, "states": {"a": {"state": "x"}}}',
            lambda path: (loaded := Checkpoint(), loaded.load(str(path.with_name("{seq}"))), loaded._states["a"].state)[-1],
        ),
    }


@pytest.mark.parametrize("what", ["file list", "list of arrays", "annotations", "index", "caption", "label", "object", "checkpoint"])
def test_texts_may_have_a_byte_order_mark(what: str, tmp_path: Path) -> None:
    text, read = _text_reads(tmp_path)[what]
    (tmp_path / "1").write_text(text)
    expected = read(tmp_path / "1")
    assert expected
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "1").write_text(text, encoding=encoding)
        assert read(tmp_path / "1") == expected
