# SPDX-License-Identifier: Apache-2.0
"""readers.TFRecord, Webdataset and MXNet against DALI's, and index files against those of its tools. Everything is equal."""

import importlib
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _dali import assert_equal
from _raises import Raises, raising
from readers._files import MAGIC, floats, ints, strings, write_recordio, write_tar, write_tfrecord

import torch_ndd as ndd
from torch_ndd import index

Make = Callable[[ModuleType, dict[str, Any]], Any]

ORDERS: list[dict[str, Any]] = [
    {},
    {"pad_last_batch": True},
    {"num_shards": 3},
    {"num_shards": 3, "shard_id": 1, "pad_last_batch": True},
    {"num_shards": 3, "shard_id": 2, "stick_to_shard": True},
    raising(RuntimeError, {"num_shards": 99}),
]


def read_epochs(module: ModuleType, make: Make, batch_size: int | None, options: dict[str, Any]) -> Any:
    samples: list[Any] = []
    reader = make(module, options)
    for _ in range(3):
        for outputs in reader.next_epoch(batch_size=batch_size):
            for key, output in outputs.items() if isinstance(outputs, dict) else enumerate(outputs):
                for sample in output.tensors if batch_size else [output]:
                    values = np.asarray(sample)
                    source = bytes(np.asarray(module.get_property(sample, key="source_info")))
                    samples.append((key, values.dtype, values.shape, values.tobytes(), source))
    return samples, dict(reader.get_metadata())


def assert_same(make: Make, batch_sizes: tuple[int | None, ...] = (None, 1, 3, 20), raises: Raises | None = None, **options: Any) -> None:
    for batch_size in batch_sizes:
        assert_equal(lambda module, size=batch_size: read_epochs(module, make, size, options), raises)


def tf(module: ModuleType) -> ModuleType:
    return ndd.tfrecord if module is ndd else importlib.import_module("nvidia.dali.tfrecord")


@pytest.fixture
def records(tmp_path: Path) -> list[str]:
    examples = [
        {
            "image": strings(bytes([i]) * (i % 4 + 1)),
            "label": ints([i - 3], i % 2 == 0),
            "pair": ints([-i, 1 << 62], i % 3 == 0),
            "boxes": floats([i / 4] * (4 * (i % 3)), i % 2 == 0),
        }
        for i in range(11)
    ]
    return [str(write_tfrecord(tmp_path / "a.tfrecord", examples[:4])), str(write_tfrecord(tmp_path / "b.tfrecord", examples[4:]))]


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_order_of_tfrecord(records: list[str], options: dict[str, Any], raises: Raises | None) -> None:
    def make(module: ModuleType, options: dict[str, Any]) -> Any:
        t = tf(module)
        features = {
            "label": t.FixedLenFeature([1], t.int64, -1),
            "image": t.FixedLenFeature([], t.string, ""),
            "pair": t.FixedLenFeature([2, 1], t.int64, 0),
            "boxes": t.VarLenFeature([4], t.float32, 0.0),
        }
        indices = [path.replace(".tfrecord", ".idx") for path in records]
        return module.readers.TFRecord(path=records, index_path=indices, features=features, **options)

    assert_same(make, raises=raises, **options)


def test_tfrecord_errors(records: list[str]) -> None:
    indices = [path.replace(".tfrecord", ".idx") for path in records]
    for value in (
        {"index_path": indices[:1]},
        {"index_path": "/none"},
        {"features": {"label": 3}},
        {"features": {}},
        {"kind": ("VarLenFeature", [3])},
        {"kind": ("FixedLenFeature", [0])},
    ):

        def make(module: ModuleType, options: dict[str, Any], arguments: dict[str, Any] = value) -> Any:
            t = tf(module)
            kind, shape = arguments.get("kind", ("FixedLenFeature", [2]))
            features = arguments.get("features", {"pair": getattr(t, kind)(shape, t.int64, 0)})
            return module.readers.TFRecord(path=records, index_path=arguments.get("index_path", indices), features=features)

        assert_same(make, (None,), TypeError if value.get("features") == {"label": 3} else RuntimeError)


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_order_of_mxnet(tmp_path: Path, options: dict[str, Any], raises: Raises | None) -> None:
    images: list[tuple[Any, bytes]] = [(float(i), bytes([i]) * i) for i in range(8)]
    images += [([3.0, 4.0], b"zz"), ([], b""), (9.5, MAGIC + b"1234" + MAGIC + b"5")]
    path = write_recordio(tmp_path / "a.rec", images)

    def make(module: ModuleType, options: dict[str, Any]) -> Any:
        return module.readers.MXNet(path=str(path), index_path=str(path.with_suffix(".idx")), **options)

    assert_same(make, raises=raises, **options)
    lines = path.with_suffix(".idx").read_text().splitlines()
    path.with_suffix(".idx").write_text("\n".join(lines[k] for k in (3, 1, 10, 7)))
    assert_same(make, (None, 2), raises, **options)


@pytest.mark.parametrize("kind", ["TFRecord", "MXNet", "Webdataset"])
def test_both_shuffles_give_each_epoch_another_order(tmp_path: Path, kind: str) -> None:
    """Of DALI's, shuffle_after_epoch shuffles the files, and random_shuffle the samples."""
    records = [str(write_tfrecord(tmp_path / f"{k}.tfrecord", [{"label": ints([8 * k + i])} for i in range(8)])) for k in range(3)]
    images = str(write_recordio(tmp_path / "a.rec", [(float(i), b"x") for i in range(24)]))
    archives = [str(write_tar(tmp_path / f"{k}.tar", [(f"{i}.cls", bytes([8 * k + i])) for i in range(8)])) for k in range(3)]

    def read(module: ModuleType, **options: Any) -> list[list[int]]:
        features = {"label": tf(module).FixedLenFeature([1], tf(module).int64, -1)}
        indices = [path.replace(".tfrecord", ".idx") for path in records]
        reader = {
            "TFRecord": lambda: module.readers.TFRecord(path=records, index_path=indices, features=features, **options),
            "MXNet": lambda: module.readers.MXNet(path=images, index_path=images.replace(".rec", ".idx"), **options),
            "Webdataset": lambda: module.readers.Webdataset(paths=archives, ext=["cls"], **options),
        }[kind]()
        epochs = [[sample["label"] if kind == "TFRecord" else sample[-1] for sample in reader.next_epoch()] for _ in range(3)]
        return [[int(np.asarray(value).ravel()[0]) for value in epoch] for epoch in epochs]

    for module in (ndd, importlib.import_module("nvidia.dali.experimental.dynamic")):
        epochs = read(module, random_shuffle=True, shuffle_after_epoch=True, seed=3)
        assert [sorted(epoch) for epoch in epochs] == [[*range(24)]] * 3
        assert len({tuple(epoch) for epoch in epochs}) == 3
        with pytest.raises(RuntimeError, match="stick_to_shard"):
            read(module, random_shuffle=True, shuffle_after_epoch=True, stick_to_shard=True)
    pairs = [(3, 111), (3, 999), (3, 111), (7, 7), (8, 8), (0, 0)]
    by_seeds = [read(ndd, random_shuffle=True, shuffle_after_epoch=True, seed=a, shuffle_after_epoch_seed=b)[0] for a, b in pairs]
    assert by_seeds[0] == by_seeds[2]
    assert len({tuple(epoch) for epoch in by_seeds}) == 5


FILES = [
    ("d", None), ("d/1.jpg", b"J1"), ("d/1.cls", b"0"), ("d/2.JPG", b"J2"), ("d/2.cls", b"11"), ("d/3.png", b"P3"), ("d/3.jpg", b"J3"),
    ("d/4.cls", b"4"), ("noext", b"n"), ("5.seg.png", b"s5"), ("5.png", b"p5"), ("5.jpg", b"j5"), ("6.jpg", b"a"), ("7.cls", b"7"),
    ("6.cls", b"b"), ("d/1.jpg", b"again"), ("8.jpg", b"first"),
]  # fmt: skip


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        *ORDERS,
        {"ext": ["jpg;png", "cls"]},
        {"ext": ["png;jpg"]},
        {"ext": "seg.png"},
        {"ext": "noext"},
        {"ext": "", "missing_component_behavior": "empty"},
        {"ext": ["jpg", "jpg"]},
        {"ext": "jpg", "case_sensitive_extensions": False},
        {"missing_component_behavior": "skip"},
        {"missing_component_behavior": "Empty"},
        raising(RuntimeError, {"missing_component_behavior": "error"}),
        raising(RuntimeError, {"missing_component_behavior": "x"}),
        {"dtypes": ["UINT8", "INT8"]},
        raising(RuntimeError, {"dtypes": ["UINT8"]}),
        raising(RuntimeError, {"dtypes": ["UINT8", "INT16"]}),
        raising(RuntimeError, {"dtypes": ["UINT8", "BOOL"]}),
        raising(RuntimeError, {"index_paths": ["/none"]}),
    ],
    ids=str,
)
def test_options_of_webdataset(tmp_path: Path, options: dict[str, Any], indexed: bool, raises: Raises | None) -> None:
    path = str(write_tar(tmp_path / "a.tar", FILES))
    if indexed:
        index.wds(path, path + ".idx")

    def make(module: ModuleType, options: dict[str, Any]) -> Any:
        values: dict[str, Any] = {"paths": [path, path], "ext": ["jpg", "cls"], **options}
        types = ndd.types if module is ndd else importlib.import_module("nvidia.dali.types")
        if "dtypes" in values:
            values["dtypes"] = [getattr(types, name) for name in values["dtypes"]]
        if indexed and "index_paths" not in values:
            values["index_paths"] = [path + ".idx"] * 2
        return module.readers.Webdataset(**values)

    assert_same(make, raises=raises, **options)


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("features", [["label"], ["label", "image"]])
@pytest.mark.parametrize("extensions", [["jpg"], ["jpg", "cls"]])
def test_a_call_of_a_reader_with_one_output_returns_it_alone(
    tmp_path: Path, records: list[str], extensions: list[str], features: list[str], batch_size: int | None
) -> None:
    archive = str(write_tar(tmp_path / "a.tar", FILES))
    indices = [path + ".idx" for path in records]
    for path, to in zip(records, indices, strict=True):
        index.tfrecord(path, to)

    def describe(module: ModuleType, outputs: Any) -> Any:
        if isinstance(outputs, dict):
            return {key: describe(module, output) for key, output in outputs.items()}
        if isinstance(outputs, tuple):
            return [describe(module, output) for output in outputs]
        assert isinstance(outputs, module.Batch if batch_size else module.Tensor)
        return [np.asarray(sample).tobytes() for sample in (outputs.tensors if batch_size else [outputs])]

    def program(module: ModuleType) -> Any:
        kinds = {"label": tf(module).FixedLenFeature([1], tf(module).int64, 0), "image": tf(module).FixedLenFeature([], tf(module).string, "")}
        readers = [
            module.readers.Webdataset(batch_size, paths=[archive], ext=extensions),
            module.readers.TFRecord(batch_size, path=records, index_path=indices, features={name: kinds[name] for name in features}),
        ]
        return [describe(module, reader(batch_size=batch_size)) for reader in readers]

    assert_equal(program)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_index_of_a_tar(tmp_path: Path, form: int) -> None:
    wds2idx = importlib.import_module("wds2idx")
    files = [*FILES, (".hidden.jpg", b"h"), ("d/.hidden.jpg", b"h"), ("x" * 80 + "/" + "y" * 90 + ".jpg", struct.pack("<d", 1))]
    if form == tarfile.GNU_FORMAT:  # wds2idx records the name of a long GNU name as its data
        files.pop()
    path = write_tar(tmp_path / "a.tar", files, form)
    creator = wds2idx.IndexCreator(str(path), str(tmp_path / "theirs"), verbose=False)
    creator.create_index()
    creator.close()
    if form == tarfile.USTAR_FORMAT:
        subprocess.run([sys.executable, "-m", "torch_ndd.index", "wds", str(path)], check=True, stdout=subprocess.DEVNULL)
    else:
        index.main(["wds", str(path)])
    assert path.with_suffix(".idx").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_index_of_tfrecords(records: list[str], tmp_path: Path) -> None:
    tool = Path(sys.executable).with_name("tfrecord2idx")
    subprocess.run([sys.executable, str(tool), records[0], str(tmp_path / "theirs")], check=True)
    assert index.tfrecord(records[0], str(tmp_path / "ours")) == 4
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_index_of_recordio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # rec2idx reads through MXNet; its records' places come from the writer here, the file from the real tool.
    path = write_recordio(tmp_path / "a.rec", [(float(i), (MAGIC + b"1234") * (i % 2)) for i in range(5)])
    begins = [int(line.split()[1]) for line in path.with_suffix(".idx").read_text().splitlines()]

    class MXRecordIO:
        def __init__(self, uri: str, flag: str) -> None:
            self.left, self.is_open = list(begins), True
            self.open()

        def open(self) -> None:
            pass

        def reset(self) -> None:
            pass

        def read(self) -> bytes | None:
            return b"" if self.left and self.left.pop(0) is not None else None

        def close(self) -> None:
            pass

    fake, base, recordio = ModuleType("mxnet"), ModuleType("mxnet.base"), ModuleType("mxnet.recordio")
    recordio.MXRecordIO, base._LIB, base.check_call, fake.recordio = MXRecordIO, None, None, recordio
    monkeypatch.setitem(sys.modules, "mxnet", fake)
    monkeypatch.setitem(sys.modules, "mxnet.base", base)
    rec2idx = importlib.import_module("rec2idx")
    monkeypatch.delitem(sys.modules, "rec2idx")
    monkeypatch.setattr(rec2idx.IndexCreator, "tell", lambda self: self.left[0] if self.left else -1)
    creator = rec2idx.IndexCreator(str(path), str(tmp_path / "theirs"))
    creator.create_index()
    creator.close()
    assert index.recordio(str(path), str(tmp_path / "ours")) == 5
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_index_tools_reject_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tar(tmp_path / "a.tar", FILES[:4])
    for kind, data in (("wds", path.read_bytes()[:1700]), ("wds", bytes(1024)), ("tfrecord", b"x" * 50), ("recordio", b"x" * 50)):
        path.write_bytes(data)
        assert index.main([kind, str(path)]) == 1
        assert not path.with_suffix(".idx").exists()
        assert "a.tar" in capsys.readouterr().err
