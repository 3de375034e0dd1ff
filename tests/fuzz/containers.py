# SPDX-License-Identifier: Apache-2.0
"""Read damaged containers and their index files in processes that may die."""

import io
import json
import random
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "helpers")]

import numpy as np  # noqa: E402
from attack import Attack, main  # noqa: E402

NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 512, 4096, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
PAGE = 4096


def scatter(data: bytearray, draw: random.Random, places: list[int]) -> None:
    """Change numbers of 2, 4 or 8 bytes at relevant places."""
    for _ in range(draw.randrange(1, 4)):
        kind = draw.choice(("<H", "<I", "<Q"))
        at = draw.choice(places)
        if at + struct.calcsize(kind) <= len(data):
            struct.pack_into(kind, data, at, draw.choice(NUMBERS) % 2 ** (8 * struct.calcsize(kind)))


def lmdb_pages(data: bytes, draw: random.Random) -> bytes:
    """Change numbers in the two headers, in the headers of pages, in their tables and nodes."""
    result = bytearray(data)
    place: list[int] = []
    for page in (0, PAGE):
        place += [page + 10, page + 16, page + 20, *range(page + 40, page + 152, 4)]
    for page in range(2 * PAGE, len(data), PAGE):
        lower = min(struct.unpack_from("<H", data, page + 12)[0], PAGE)
        if data[page + 10] & 3:
            place += [page, page + 10, page + 12, page + 14, *range(page + 16, page + lower, 2)]
            for at in range(page + 16, page + lower, 2):
                node = struct.unpack_from("<H", data, at)[0]
                place += [page + node, page + node + 2, page + node + 4, page + node + 6, page + node + 16]
    scatter(result, draw, [at for at in place if at < len(data)])
    if draw.random() < 0.2:
        value, other = (draw.randrange(len(data) // PAGE) * PAGE for _ in range(2))
        result[value : value + PAGE] = data[other : other + PAGE]
    if draw.random() < 0.2:
        del result[draw.randrange(len(result)) :]
    return bytes(result)


def tfrecord_lengths(data: bytes, draw: random.Random) -> bytes:
    """Change lengths, with valid checksums."""
    from readers._files import mask_checksum

    result, at, places = bytearray(data), 0, []
    while at < len(data):
        places.append(at)
        at += 16 + struct.unpack_from("<Q", data, at)[0]
    at = draw.choice(places)
    length = struct.pack("<Q", draw.choice((*NUMBERS, len(data), len(data) - at - 16)))
    result[at : at + 12] = length + (bytes(4) if draw.random() < 0.3 else mask_checksum(length))
    if draw.random() < 0.5:
        place = draw.randrange(at + 12, len(result))
        result[place] = draw.randrange(256)
    return bytes(result)


def tar_headers(data: bytes, draw: random.Random) -> bytes:
    """Change fields, with valid checksums."""
    result = bytearray(data)
    at = draw.choice([at for at in range(0, len(data), 512) if data[at + 257 : at + 262] == b"ustar"])
    field, size = draw.choice(((0, 100), (124, 12), (156, 1), (157, 100), (257, 8), (345, 155)))
    values = (
        b"77777777777\0",
        b"00000000000\0",
        b"\x80" + bytes(11),
        b"\xff" * 12,
        b"\x80" + b"\xff" * 11,
        b"-1",
        b"9",
        b"L",
        b"x",
        b"g",
        b"K",
        b"S",
        b"1",
        b"5",
        b"\xff",
        b"../../../a",
    )
    result[at + field : at + field + size] = draw.choice(values).ljust(size, draw.choice((b"\0", b"\xff", b"A")))[:size]
    result[at + 148 : at + 156] = b" " * 8
    result[at + 148 : at + 156] = f"{sum(result[at : at + 512]):06o}\0 ".encode()
    return bytes(result)


def recordio_words(data: bytes, draw: random.Random) -> bytes:
    result = bytearray(data)
    starts = [at for at in range(0, len(data) - 8, 4) if data[at : at + 4] == data[:4]]
    at = draw.choice(starts)
    struct.pack_into("<I", result, at + draw.choice((4, 8)), draw.choice(NUMBERS) % 2**32)
    return bytes(result)


def json_values(data: bytes, draw: random.Random) -> bytes:
    """Change values at some places of the document."""
    text = data.decode()
    lines = [json.loads(line) for line in text.splitlines()] if "\n" in text else [json.loads(text)]
    wrong: tuple[Any, ...] = (
        None,
        True,
        -1,
        0,
        1.5,
        1e308,
        10**30,
        "",
        "x" * 5000,
        [],
        [[]],
        {},
        [1] * 3,
        "../../x",
        "\0",
        {"size": [10**9, 10**9], "counts": [1]},
    )
    for _ in range(draw.randrange(1, 3)):
        at: Any = draw.choice(lines)
        while True:
            key = draw.choice(list(at) if isinstance(at, dict) else range(len(at))) if at else None
            if key is None:
                break
            if not isinstance(at[key], dict | list) or not at[key] or draw.random() < 0.2:
                at[key] = draw.choice(wrong)
                break
            at = at[key]
    result = "\n".join(map(json.dumps, lines))
    return (result.replace('"image_id"', draw.choice(('"image_id"', "[" * 3000, '"a"'))) if draw.random() < 0.1 else result).encode()


def index_numbers(text: bytes, draw: random.Random) -> bytes:
    """Change numbers in an index."""
    words = text.split(b" ")
    for _ in range(draw.randrange(1, 3)):
        words[draw.randrange(len(words))] = draw.choice(
            (b"-1", b"0", b"1e9", b"x", b"", *(str(number).encode() for number in NUMBERS), b"9" * 30, b"5\n", b"\xff")
        )
    return b" ".join(words)


class Container:
    """A file, its index or None, and how both are attacked."""

    def __init__(
        self, content: bytes, read: Callable[[dict[str, Any]], Any], headers: Callable[[bytes, random.Random], bytes] | None, index: bytes = b""
    ) -> None:
        self.content, self.read, self.headers, self.index = content, read, headers, index


def _container(kind: str, folder: Path) -> Container:
    from _messages import datum, ints, pixels, tensors, write_lmdb
    from readers._files import floats, strings, write_recordio, write_tar, write_tfrecord
    from readers._files import ints as int_feature

    import torch_ndd as ndd
    from torch_ndd import tfrecord as tf

    path, index = folder / "a.bin", folder / "a.idx"
    if kind in ("caffe", "caffe2"):
        value = datum if kind == "caffe" else None
        contents = [
            value(bytes([k]) * (20 + 90 * k), k, encoded=True) if value else tensors(pixels(bytes(12), [2, 2, 3]), ints([k])) for k in range(90)
        ]
        db = Path(write_lmdb(folder / "db", contents))
        reader = ndd.readers.Caffe if kind == "caffe" else ndd.readers.Caffe2
        return Container((db / "data.mdb").read_bytes(), lambda options: reader(4, path=path, **options), lmdb_pages)
    if kind == "tfrecord":
        features = {"a": tf.FixedLenFeature([], tf.string, ""), "b": tf.FixedLenFeature([1], tf.int64, -1), "c": tf.VarLenFeature([4], tf.float32, 0)}
        write_tfrecord(
            path, [{"a": strings(bytes(range(40)) * (i + 1)), "b": int_feature([i], True), "c": floats([1.0] * 8, True)} for i in range(4)]
        )
        return Container(
            path.read_bytes(), lambda options: ndd.readers.TFRecord(4, path=path, features=features, **options), tfrecord_lengths, index.read_bytes()
        )
    if kind == "recordio":
        write_recordio(path, [(1.0, b"abc" * 30), ([1.0, 2.0], bytes.fromhex("0a23d7ce") * 5), (2.0, b""), (3.0, b"x" * 50)])
        return Container(path.read_bytes(), lambda options: ndd.readers.MXNet(4, path=path, **options), recordio_words, index.read_bytes())
    if kind in ("tar", "pax"):
        members = [(f"{'x' * (120 * (i % 2))}{i}.{ext}", bytes([i]) * 40) for i in range(4) for ext in ("jpg", "cls")]
        write_tar(path, members, tarfile.GNU_FORMAT if kind == "tar" else tarfile.PAX_FORMAT)
        from torch_ndd.index import wds

        wds(str(path), str(index))

        def webdataset(options: dict[str, Any]) -> Any:
            options = {"index_paths" if key == "index_path" else key: value for key, value in options.items()}
            return ndd.readers.Webdataset(4, paths=path, ext=["jpg", "cls"], missing_component_behavior="empty", **options)

        return Container(path.read_bytes(), webdataset, tar_headers, index.read_bytes())
    if kind == "coco":
        shapes = [[[1.5, 1, 8, 1, 8, 6, 2, 6]], {"size": [10, 20], "counts": [30, 5, 165]}, {"size": [10, 20], "counts": "n0:n0\\O0"}]
        images = [{"id": k, "file_name": f"{k}.jpg", "width": 20, "height": 10} for k in range(3)]
        boxes = [
            {"id": k, "image_id": k % 3, "category_id": k % 2, "bbox": [k, 1, 5.5, 4], "iscrowd": 0, "segmentation": shapes[k % 3]} for k in range(6)
        ]
        for k in range(3):
            (folder / f"{k}.jpg").write_bytes(b"image")
        ways = [{"polygon_masks": True, "ratio": True}, {"pixelwise_masks": True}]
        turn = iter(range(10**9))
        content = json.dumps({"images": images, "annotations": boxes, "categories": [{"id": 0}, {"id": 1}]}).encode()
        return Container(
            content, lambda options: ndd.readers.COCO(annotations_file=path, file_root=folder, **ways[next(turn) % 2], **options), json_values
        )
    if kind == "nemo":
        import soundfile

        soundfile.write(folder / "x.wav", np.arange(100, dtype=np.int16), 8000)
        lines = [{"audio_filepath": "x.wav", "text": f"t\u00e9xt {k}", "duration": 0.01 * k, "offset": 0.001} for k in range(4)]
        content = "\n".join(map(json.dumps, lines)).encode()
        return Container(content, lambda options: ndd.readers.NemoAsr(2, manifest_filepaths=path, **options), json_values)
    if kind == "npy":
        from media_headers import npy

        file = io.BytesIO()
        np.save(file, np.arange(600.0).reshape(20, 30))
        windows = {"rel_roi_start": 0.3, "rel_roi_end": 2.0, "out_of_bounds_policy": "pad"}
        return Container(file.getvalue(), lambda options: ndd.readers.Numpy(2, files=[str(path)], **windows, **options), npy)
    import pyarrow as pa
    from pyarrow import parquet as pq

    columns = {
        "number": list(range(20)),
        "text": [f"text {k}" for k in range(20)],
        "list": [[k] * (k % 4) for k in range(20)],
        "fixed": pa.array([bytes([k]) * 4 if k % 3 else None for k in range(20)], pa.binary(4)),
    }
    pq.write_table(pa.table(columns), path, row_group_size=8)
    return Container(path.read_bytes(), lambda options: ndd.readers.Parquet(2, path=path, **options), None)


def make(kind: str, way: str, seed: int, folder: Path) -> Attack:
    """Return the attack on one kind of container: its file, or its index."""
    from _mutations import mutate

    value = _container(kind, folder)
    path, index = folder / "a.bin", folder / "a.idx"

    def read(content: bytes, indexed: bytes | None, on_error: str) -> None:
        path.write_bytes(content)
        options: dict[str, Any] = {"on_error": on_error}
        if indexed is not None:
            index.write_bytes(indexed)
            options["index_path"] = index
        for outputs in value.read(options).next_epoch():
            for batch in outputs.values() if isinstance(outputs, dict) else outputs:
                for sample in getattr(batch, "tensors", [batch]):
                    np.asarray(sample).tobytes()

    read(value.content, value.index or None, "raise")

    def attack(number: int) -> bytes:
        draw = random.Random(f"{seed} {kind} {way} {number}")
        content, indexed = value.content, value.index if value.index and draw.random() < 0.5 else None
        damage = value.headers if way == "headers" and value.headers else lambda data, draw: mutate(data, number % 6, draw)
        if indexed is not None and draw.random() < 0.5:
            indexed = index_numbers(indexed, draw) if way == "headers" else mutate(indexed, number % 6, draw)
        else:
            content = damage(content, draw)
        read(content, indexed, draw.choice(("raise", "skip", "replace")))
        return content

    return attack


KINDS = ("tfrecord", "recordio", "tar", "pax", "caffe", "caffe2", "coco", "nemo", "npy", "parquet")

if __name__ == "__main__":
    main(make, __file__, dict.fromkeys(KINDS, ("mutated", "headers")), {"mutated": 10_000, "headers": 10_000}, 6 << 30)
