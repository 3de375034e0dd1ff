# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from readers._files import GZIP, write_tar

import torch_ndd as ndd
from torch_ndd import index
from torch_ndd._core import native
from torch_ndd.readers.webdataset._tar_headers import mismatches
from torch_ndd.testing import assert_resumable

FILES = [
    ("d", None),
    ("d/1.jpg", b"J1"),
    ("d/1.cls", b"0"),
    ("d/2.JPG", b"J2"),
    ("d/2.cls", b"11"),
    ("d/3.png", b"P3"),
    ("d/3.jpg", b"J3"),
    ("d/4.cls", b"4"),
    (".hidden.jpg", b"no"),
    ("d/.hidden.jpg", b"no"),
    ("5.seg.png", b"s5"),
    ("5.png", b"p5"),
    ("d/1.jpg", b"again"),
    ("8.jpg", b"first"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "a.tar", FILES)


def read(ext: Any, *paths: Path, **options: Any) -> list[tuple[bytes, ...]]:
    reader = ndd.readers.Webdataset(paths=paths, ext=ext, **options)
    return [tuple(np.asarray(value).tobytes() for value in sample) for sample in reader.next_epoch()]


@pytest.mark.parametrize("indexed", [None, "v1.2", "v1.1"])
def test_components_follow_ext(path: Path, indexed: str | None) -> None:
    options: dict[str, Any] = {}
    if indexed:
        place = path.with_suffix(".idx")
        index.wds(str(path), str(place))
        if indexed == "v1.1":
            words = [line.split() for line in place.read_text().splitlines()[1:]]
            lines = [" ".join(word for k, word in enumerate(line) if k % 4 < 3) for line in words]
            place.write_text(f"v1.1 {len(lines)}\n" + "\n".join(lines) + "\n")
        options["index_paths"] = [place, place]
    twice = (path, path)
    assert read("jpg", *twice, **options) == [(b"J1",), (b"",), (b"J3",), (b"",), (b"",), (b"again",), (b"first",)] * 2
    assert read(["jpg;png", "cls"], path, **({"index_paths": place} if indexed else {})) == [
        (b"J1", b"0"), (b"", b"11"), (b"P3", b""), (b"", b"4"), (b"p5", b""), (b"again", b""), (b"first", b"")
    ]  # fmt: skip
    assert read("seg.png", *twice, **options)[4] == (b"s5",)
    assert read("jpg", *twice, case_sensitive_extensions=False, **options)[1] == (b"J2",)
    assert read(["jpg", "cls"], *twice, missing_component_behavior="skip", **options) == [(b"J1", b"0")] * 2
    assert read(["cls", "cls"], *twice, missing_component_behavior="Skip", **options)[:2] == [(b"0", b"0"), (b"11", b"11")]
    with pytest.raises(RuntimeError, match=r"a\.tar\": sample 1 has no file"):
        read(["jpg", "cls"], *twice, missing_component_behavior="error", **options)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("names", "options", "good"),
    [
        (["1.jpg", "1.cls", "1.jpg", "1.cls", "2.jpg", "2.cls"], {"ext": ["jpg", "cls"]}, 1),
        (["2.jpg", "2.cls", "1.jpg", "1.cls", "./1.jpg"], {"ext": ["jpg", "cls"]}, 1),
        (["1.jpg", "1.JPG", "2.jpg"], {"ext": "jpg", "case_sensitive_extensions": False}, 1),
        (["1.jpg", "1.JPG", "2.jpg"], {"ext": "jpg"}, 2),
        (["1.jpg", "1.txt", "1.txt"], {"ext": "jpg"}, 1),
        (["1.jpg", "1.png", "2.png"], {"ext": "jpg;png"}, 2),
        (["1.jpg", "1.cls", "2.jpg", "2.cls", "1.jpg", "1.cls"], {"ext": ["jpg", "cls"]}, 3),
    ],
)
def test_two_files_of_one_extension_are_an_error(names: list[str], options: dict[str, Any], good: int, indexed: bool, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [(name, str(k).encode()) for k, name in enumerate(names)])
    if indexed:
        if (len(set(names)) < len(names) and good < 3) or "./1.jpg" in names:
            with pytest.raises(RuntimeError, match="several files with the same extension"):
                index.wds(str(path), str(path.with_suffix(".idx")))
            return
        index.wds(str(path), str(path.with_suffix(".idx")))
        options = {**options, "index_paths": path.with_suffix(".idx")}
    reader = ndd.readers.Webdataset(1, paths=path, on_error="skip", **options)
    assert len([*reader]) == good
    wrong = len(reader.errors)
    assert all("several files with the same extension" in error.reason for error in reader.errors)
    if wrong:
        with pytest.raises(RuntimeError, match=r"a\.tar at byte \d+\): it has several files with the same extension"):
            [*ndd.readers.Webdataset(1, paths=path, **options)]


def test_names_with_and_without_a_folder_before_them_are_one_sample(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("./1.jpg", b"J"), ("1.cls", b"3"), ("././a/2.jpg", b"K"), ("a/2.cls", b"4")])
    assert read(["jpg", "cls"], path) == [(b"J", b"3"), (b"K", b"4")]
    index.wds(str(path), str(path.with_suffix(".idx")))
    assert read(["jpg", "cls"], path, index_paths=path.with_suffix(".idx")) == [(b"J", b"3"), (b"K", b"4")]


LONG = "folder/" * 20
ARCHIVES = {
    "reordered": ["2.jpg", "2.cls", "1.jpg", "1.cls"],
    "other extensions": ["1.png", "1.cls", "2.jpg", "2.cls"],
    "other names": ["1.jpg", "2.cls", "1b.jpg", "2b.cls"],
    "long names": [LONG + "1.jpg", LONG + "1.cls", "2.jpg", "2.cls"],
    "letters": ["kätzchen/1.jpg", "kätzchen/1.cls", "2.jpg", "2.cls"],
}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_index_of_another_archive_is_an_error(name: str, form: int, tmp_path: Path) -> None:
    def write(path: Path, names: list[str], size: int = 3) -> Path:
        with tarfile.open(path, "w", format=form) as archive:
            for member in names:
                header = tarfile.TarInfo(member)
                header.size = size
                archive.addfile(header, io.BytesIO(member.rpartition(".")[2].encode().rjust(size)))
        return path

    try:
        other = write(tmp_path / "b.tar", ARCHIVES[name])
    except ValueError:
        pytest.skip("this format has no such names")
    index.wds(str(other), str(tmp_path / "b.idx"))
    assert len(read(["jpg;png", "cls"], other, index_paths=tmp_path / "b.idx")) == (4 if name == "other names" else 2)
    path = write(tmp_path / "a.tar", ["1.jpg", "1.cls", "2.jpg", "2.cls"])
    longer = write(tmp_path / "c.tar", ["1.jpg", "1.cls", "2.jpg", "2.cls"], 4)
    for archive in (path, longer):
        reader = ndd.readers.Webdataset(1, paths=archive, ext=["jpg;png", "cls"], index_paths=tmp_path / "b.idx", on_error="skip")
        with contextlib.suppress(RuntimeError):  # no sample can be read
            for files, labels in reader:
                assert np.asarray(files).tobytes() in (b"jpg", b"")
                assert np.asarray(labels).tobytes() in (b"cls", b"")
        assert reader.errors
        assert all("the index is not that of this archive" in error.reason or "ends at byte" in error.reason for error in reader.errors)


def test_an_index_without_names_of_another_archive_is_an_error(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("1.jpg", b"a"), ("1.cls", b"1"), ("2.jpg", b"b"), ("2.cls", b"2")])
    place = tmp_path / "a.idx"
    place.write_text("v1.1 1\njpg 512 1 cls 3584 1\n")  # of sample 1, and of sample 2
    with pytest.raises(RuntimeError, match=r"there are files of the samples .*; the index is not that of this archive"):
        read(["jpg", "cls"], path, index_paths=place)
    place.write_bytes(b"\xef\xbb\xbfv1.1 1\njpg 512 1 cls 1536 1\n")
    assert read(["jpg", "cls"], path, index_paths=place) == [(b"a", b"1")]
    place.write_text("v1.1 1\ncls 512 1 jpg 1536 1\n")
    with pytest.raises(RuntimeError, match=r"the file there is '1\.(jpg|cls)'"):
        read(["jpg", "cls"], path, index_paths=place)


def test_native_code_passes_no_header_that_differs(tmp_path: Path) -> None:
    """Of headers with one changed byte, it passes those that contradict nothing when they are examined one by one: others may be of another file."""
    name, size, start = b"folder/1.jpg", 700, write_tar(tmp_path / "a.tar", [("folder/1.jpg", bytes(700))]).read_bytes()[:512]
    blocks = np.repeat(np.frombuffer(start, np.uint8)[None], 1 + 3 * 512, 0)
    for k, block in enumerate(blocks[1:]):
        block[k // 3] ^= (1, 0x80, start[k // 3] or 255)[k % 3]
        if not 148 <= k // 3 < 156:  # with a checksum that fits
            block[148:156] = np.frombuffer(b"%06o\0 " % (int(block.sum()) - int(block[148:156].sum()) + 8 * 32), np.uint8)
    lengths, others = np.zeros(2 * len(blocks), np.int64), np.empty(2 * len(blocks), np.int64)
    lengths[1::2] = 512  # the others have no header
    columns = lengths, np.zeros_like(lengths), np.full_like(lengths, size)
    offsets = np.array([0, len(name)])
    found = native.find_other_headers(
        blocks.ctypes.data, *(c.ctypes.data for c in columns), len(lengths), name, offsets.ctypes.data, others.ctypes.data
    )
    assert (others[:found] % 2 == 1).all()
    passed = np.setdiff1d(np.arange(len(blocks)), others[:found] // 2)
    assert len(passed) > 500  # owners, times and the fields after the checksum
    assert passed[0] == 0
    assert not mismatches(blocks[passed], [size] * len(passed), [name] * len(passed), [b"jpg"] * len(passed))
    changed = {(k - 1) // 3 for k in passed.tolist() if k}
    assert not changed & {*range(len(name)), *range(124, 135), *range(148, 154)}  # name, size, checksum


def test_types_of_components(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("1.f4", struct.pack("<2f", 1, 2)), ("1.i2", struct.pack("<h", -3)), ("2.f4", b""), ("2.i2", b"\1\0\2\0")])
    reader = ndd.readers.Webdataset(2, paths=path, ext=["i2", "f4", "f4"], dtypes=[ndd.int16, ndd.types.FLOAT, ndd.types.UINT8])
    ((numbers, floats, raw),) = reader.next_epoch()
    assert [number.torch().tolist() for number in numbers] == [[-3], [1, 2]]
    assert [item.torch().tolist() for item in floats] == [[1, 2], []]
    assert (floats.dtype, raw.shape) == (ndd.float32, [(8,), (0,)])
    reader = ndd.readers.Webdataset(paths=path, ext="f4", dtypes=ndd.types.FLOAT64, on_error="skip", max_batch_size=2)
    assert [batch.shape for (batch,) in reader] == [[(1,), (0,)]]
    write_tar(path, [("1.f4", b"abc"), ("2.f4", b"abcd")])
    with pytest.raises(RuntimeError, match=r"sample 0 \(.*a\.tar at byte 512\): 3 bytes of f4 are not a multiple"):
        read("f4", path, dtypes=ndd.float32)
    reader = ndd.readers.Webdataset(2, paths=path, ext="f4", dtypes=ndd.float32, on_error="skip")
    assert [batch.shape for (batch,) in reader] == [[(1,)]]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names(tmp_path: Path, form: int) -> None:
    long = "x" * 90 + "/" + "y" * 150
    files = [(f"{name}.{ext}", f"{name[:3]} {ext}".encode()) for name in (long, "z/ä b", "last") for ext in ("jpg", "cls")]
    path = write_tar(tmp_path / "a.tar", files, form)
    expected = [(b"xxx jpg", b"xxx cls"), ("z/ä jpg".encode(), "z/ä cls".encode()), (b"las jpg", b"las cls")]
    assert read(["jpg", "cls"], path) == expected
    index.wds(str(path), str(tmp_path / "idx"))
    assert read(["jpg", "cls"], path, index_paths=tmp_path / "idx") == expected


def test_ustar_prefix_and_other_entries(tmp_path: Path) -> None:
    long = "x" * 90 + "/" + "y" * 90
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, kind in (
            (f"{long}.jpg", tarfile.REGTYPE),
            ("link.jpg", tarfile.SYMTYPE),
            ("hard.jpg", tarfile.LNKTYPE),
            ("z.jpg", tarfile.AREGTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "z.jpg" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            archive.addfile(info)
    reader = ndd.readers.Webdataset(paths=path, ext="jpg")
    sources = [bytes(np.asarray(ndd.get_property(value, key="source_info"))) for (value,) in reader.next_epoch()]
    assert sources == [f"{path}:512:{long}.jpg".encode(), f"{path}:2048:z.jpg".encode()]


def test_damaged_archives(path: Path) -> None:
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        begins = [member.offset for member in archive if member.isfile()]
    wrong = bytearray(whole)
    wrong[begins[4] + 3] ^= 1  # the header of d/3.png
    for data, byte, reason in ((wrong, begins[4], "checksum"), (whole[: begins[4] + 100], begins[4], "ends within a header")):
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match=rf"sample 0 \(.*a\.tar at byte {byte}\): .*{reason}"):
            read("cls", path)
        reader = ndd.readers.Webdataset(1, paths=path, ext="cls", on_error="skip")
        assert [value.torch().flatten().tolist() for (value,) in reader] == [[48], [49, 49]]
        assert [error.sample for error in reader.errors] == [2]
    path.write_bytes(whole[: begins[4] + 512 + 1])
    with pytest.raises(RuntimeError, match=rf"sample 0 \(.*a\.tar at byte {begins[4]}\): a file of 2 bytes, but the archive ends earlier"):
        read("png", path)
    for data, reason in (
        (GZIP * 20, "gzip"),
        (b"x" * 600, "it is a text file"),
        (b"\x01x" * 300, "checksum|octal"),
        (b"x", "header"),
    ):
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match=rf'readers\.Webdataset: ".*a\.tar": .*({reason})'):
            read("png", path)
    for data in (b"", bytes(1024)):
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match="number of input samples: 0"):
            read("png", path)


@pytest.mark.parametrize("behavior", ["empty", "skip", "error"])
def test_a_sample_that_the_end_of_a_cut_archive_splits_is_not_delivered(tmp_path: Path, behavior: Any) -> None:
    path = write_tar(
        tmp_path / "cut.tar",
        [("1.jpg", b"first"), ("1.cls", b"1"), ("2.txt", b"a caption"), ("2.png", b"a mask" * 200), ("2.jpg", b"second"), ("2.cls", b"2")],
    )
    with tarfile.open(path) as archive:
        begin = archive.getmember("2.png").offset
    path.write_bytes(path.read_bytes()[: begin + 512 + 600])  # within a file that no output takes
    reader = ndd.readers.Webdataset(4, paths=path, ext=["jpg", "cls"], on_error="skip", missing_component_behavior=behavior)
    assert [[bytes(part.torch().tolist()) for part in output.tensors] for batch in reader for output in batch] == [[b"first"], [b"1"]]
    assert [(error.sample, error.source) for error in reader.errors] == [(1, f"{path} at byte {begin}")]
    # A sample that has all outputs before the cut is delivered.
    reader = ndd.readers.Webdataset(4, paths=path, ext="txt;cls", on_error="skip")
    assert [bytes(text.torch().tolist()) for (texts,) in reader for text in texts.tensors] == [b"1", b"a caption"]
    assert len(reader.errors) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage\n",
        "v1.0 1\njpg 0 1\n",
        "v1.2 x\n",
        "v1.2 3\njpg 512 1 a.jpg\n",
        "v1.2 1\njpg 512\n",
        "v1.2 1\njpg 513 1 a.jpg\n",
        "v1.2 1\njpg a 1 a.jpg\n",
    ],
)
def test_damaged_indices(path: Path, text: str) -> None:
    path.with_suffix(".idx").write_text(text)
    with pytest.raises(RuntimeError, match=r"readers\.Webdataset: the index .*a\.idx\" is damaged"):
        read("jpg", path, index_paths=path.with_suffix(".idx"))


def test_indices_that_lie(path: Path) -> None:
    path.with_suffix(".idx").write_text("v1.2 2\njpg 1024 2 d/1.jpg\njpg 1024 99999999999 d/2.jpg\n")
    reader = ndd.readers.Webdataset(1, paths=path, ext="jpg", index_paths=path.with_suffix(".idx"), on_error="skip")
    assert [value.torch().flatten().tolist() for (value,) in reader] == [[74, 49]]
    assert "this part ends at byte 100000001023" in reader.errors[0].reason


def test_a_missing_component_is_named(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("1.jpg", b"J"), ("1.cls", b"1"), ("2.jpg", b"J"), ("2.txt", b"2")])
    with pytest.raises(RuntimeError, match=r'a\.tar": sample 1 has no file for the output \'cls;json\''):
        read(["jpg", "cls;json"], path, missing_component_behavior="error")


def test_bad_arguments_are_rejected(path: Path) -> None:
    for options, message in (
        ({"ext": []}, "ext is empty"),
        ({"missing_component_behavior": "x"}, "missing_component_behavior"),
        ({"dtypes": [ndd.uint8, ndd.uint8]}, "2 dtypes for 1"),
        ({"dtypes": ndd.types.BOOL}, "dtypes must not contain"),
        ({"index_paths": ["a", "b"]}, "2 index files for 1"),
        ({"index_paths": "/none"}, '"/none" cannot be read'),
        ({"paths": "/none"}, "No such file"),
    ):
        with pytest.raises(RuntimeError, match=message):
            next(ndd.readers.Webdataset(**{"paths": path, "ext": "jpg", **options}).next_epoch())
    with pytest.raises(TypeError):
        ndd.readers.Webdataset(paths=path)


def test_batches_and_sources(path: Path) -> None:
    reader = pickle.loads(pickle.dumps(ndd.readers.Webdataset(paths=path, ext=["jpg", "cls"], max_batch_size=4)))
    (images, classes), _ = reader.next_epoch()
    assert images.shape == [(2,), (0,), (2,), (0,)]
    sources = [bytes(np.asarray(sample)).decode() for sample in ndd.get_property(classes, key="source_info").tensors]
    assert sources == [f"{path}:2048:d/1.cls", f"{path}:4096:d/2.cls", "", f"{path}:7168:d/4.cls"]


@pytest.mark.figures
def test_resumes_anywhere(path: Path) -> None:
    write_tar(path, [(f"{i}.{ext}", f"{i}{ext}".encode()) for i in range(11) for ext in ("jpg", "cls")])

    def make(rank: int, world: int, batch_size: int) -> ndd.readers.Webdataset:
        return ndd.readers.Webdataset(batch_size, paths=path, ext=["jpg", "cls"], random_shuffle=True, shard_id=rank, num_shards=world)

    resumed = assert_resumable(make)
    print(f"{resumed.cuts} cuts, {resumed.samples} samples compared, states of at most {resumed.state_bytes} bytes")


def test_an_extension_that_no_file_has_is_a_warning(path: Path) -> None:
    with pytest.warns(UserWarning, match=r"no file of the archives has the extension 'jpeg'.*their extensions are .*cls"):
        batches = list(ndd.readers.Webdataset(paths=path, ext=["jpeg", "cls"]).next_epoch(4))
    assert all(not images.torch()[0].numel() for images, _ in batches)
    # Without a warning, which would be an error here.
    list(ndd.readers.Webdataset(paths=path, ext=["jpeg", "cls"], missing_component_behavior="empty").next_epoch(4))


def test_patterns_of_paths(tmp_path: Path) -> None:
    for k in range(12):
        write_tar(tmp_path / f"s{k:02}.tar", [(f"{k}.cls", str(k).encode())])
    write_tar(tmp_path / "x{1,2}.tar", [("0.cls", b"99")])

    def numbers(*paths: str) -> list[int]:
        reader = ndd.readers.Webdataset(paths=[f"{tmp_path}{path}" for path in paths], ext=".cls", decode=True)
        return [batch[0].item() for batch in reader.next_epoch()]

    assert numbers("/s{08..11}.tar") == [8, 9, 10, 11]
    assert numbers("/s{03,01}.tar", "/s0[56].tar") == [3, 1, 5, 6]
    assert numbers("/s{0,1}{0..1}.tar") == [0, 1, 10, 11]
    assert numbers("") == [*range(12), 99]
    assert numbers("/x{1,2}.tar") == [99]  # a file of this name exists
    (tmp_path / "empty").mkdir()
    for wrong, message in (
        ("/s{09..02}.tar", "is empty"),
        ("/s{0..9999999}.tar", "more than"),
        ("/q*.tar", "no file matches"),
        ("::b.tar", r"pass several archives as a list, \['.*', 'b.tar'\]"),
        ("/empty", r"has no \*.tar"),
        ("/s{0..999}{0..999}{0..999}.tar", "stands for more than"),
    ):
        with pytest.raises(RuntimeError, match=message):
            numbers(wrong)
    with pytest.raises(RuntimeError, match="commands are not run"):
        ndd.readers.Webdataset(paths="pipe:cat s01.tar", ext="cls").scan()


def test_decode_converts_components(tmp_path: Path) -> None:
    files = [("a.jpg", b"J"), ("a.cls", b" 3\n"), ("a.txt", "é".encode()), ("a.json", b'{"x": [1, 2]}')]
    files += [("b.jpg", b"JJ"), ("b.cls", b"-4"), ("b.txt", b""), ("b.json", b"5")]
    reader = ndd.readers.Webdataset(paths=write_tar(tmp_path / "a.tar", files), ext=[".jpg", "cls", ".txt", "json"], decode=True)
    jpegs, numbers, texts, objects = next(iter(reader.next_epoch(batch_size=2)))
    assert jpegs.shape == [(1,), (2,)]
    assert numbers.torch().tolist() == [3, -4]
    assert (texts, objects) == (["é", ""], [{"x": [1, 2]}, 5])
    assert next(iter(reader.next_epoch()))[1:3][1] == "é"
    loader = ndd.DataLoader(reader, lambda jpegs, numbers, texts, objects: (numbers, texts), batch_size=2)
    assert [(a.tolist(), b) for a, b in loader] == [([3, -4], ["é", ""])]


@pytest.mark.parametrize("content", [b"x", b"", b"9" * 30, b"\xff", "3٣".encode()])
def test_values_that_cannot_be_decoded(tmp_path: Path, content: bytes) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.cls", content), ("b.cls", b"2")])
    with pytest.raises(RuntimeError, match=r"sample 0 \(.*its cls cannot be decoded"):
        list(ndd.readers.Webdataset(paths=path, ext="cls", decode=True).next_epoch(batch_size=2))
    reader = ndd.readers.Webdataset(paths=path, ext="cls", decode=True, on_error="skip", max_batch_size=2)
    assert [value.torch().tolist() for (value,) in reader] == [[2]]


def test_deep_json_is_an_error_of_its_sample(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.json", b"[" * 200_000), ("b.json", b"2")])
    reader = ndd.readers.Webdataset(paths=path, ext="json", decode=True, on_error="skip", max_batch_size=2)
    assert [values for (values,) in reader] == [[2]]
    assert "RecursionError" in reader.errors[0].reason or "JSON" in reader.errors[0].reason


@pytest.mark.parametrize("files", [1, 3, 4])
def test_an_archive_that_ends_with_a_file_may_be_cut(files: int, tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as archive:
        for k in range(4):
            info = tarfile.TarInfo(f"{k}.txt")
            info.size = 700
            archive.addfile(info, io.BytesIO(bytes([k]) * 700))
    content = path.read_bytes()
    assert len(list(ndd.readers.Webdataset(1, paths=str(path), ext="txt"))) == 4  # pytest makes warnings errors
    for size in (1536 * files, 1536 * files - 100):  # with and without the zeros after the last file
        path.write_bytes(content[:size])
        with pytest.warns(UserWarning, match=rf"readers\.Webdataset: .*shard\.tar\" ends after {files} files without the end of a tar archive"):
            assert len(list(ndd.readers.Webdataset(1, paths=str(path), ext="txt"))) == files


def test_a_damaged_archive_without_a_sample_is_a_bad_sample(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "shard.tar", [(".txt", b"hidden"), ("1.txt", b"lost")])
    content = bytearray(path.read_bytes())
    content[1024 + 148] ^= 1
    path.write_bytes(content)
    reader = ndd.readers.Webdataset(1, paths=str(path), ext="txt")
    with pytest.raises(RuntimeError, match=r"sample 0 \(.*shard\.tar at byte 1024\): the checksum of a tar header is wrong"):
        next(iter(reader))
