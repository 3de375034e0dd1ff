# SPDX-License-Identifier: Apache-2.0
"""Data sets of Hugging Face ``datasets``, in memory and streaming."""

import io
import json
import pickle
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import torch_ndd as ndd
from torch_ndd.readers import HuggingFace, HuggingFaceStream

datasets = pytest.importorskip("datasets")


def encode_jpeg(k: int) -> bytes:
    image = pytest.importorskip("PIL.Image").fromarray(np.full((16 + k, 24, 3), 10 * k, np.uint8))
    image.save(file := io.BytesIO(), "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Twelve images of different sizes, the odd ones stored as paths."""
    folder = tmp_path_factory.mktemp("images")
    images = []
    for k in range(12):
        (folder / f"{k}.jpg").write_bytes(encode_jpeg(k))
        images.append({"bytes": None, "path": str(folder / f"{k}.jpg")} if k % 2 else {"bytes": encode_jpeg(k), "path": None})
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=list("abc")),
            "text": datasets.Value("string"),
            "matrix": datasets.Array2D((2, 2), "float32"),
            "boxes": datasets.Sequence(datasets.Value("int64")),
        }
    )
    columns = {
        "image": images,
        "label": [k % 3 for k in range(12)],
        "text": [f"text {k}" for k in range(12)],
        "matrix": [[[k, 1], [2, 3]] for k in range(12)],
        "boxes": [list(range(k)) for k in range(12)],
    }
    return datasets.Dataset.from_dict(columns, features=features)


def test_columns_equal_those_of_the_data_set(photographs: Any) -> None:
    (batch,) = HuggingFace(dataset=photographs).next_epoch(12)
    assert list(batch) == ["image", "label", "text", "matrix", "boxes"]
    assert batch["label"].torch().tolist() == photographs["label"]
    assert [bytes(text.torch().numpy()).decode() for text in batch["text"].tensors] == photographs["text"]
    assert np.array_equal(batch["matrix"].torch().numpy(), np.asarray(photographs["matrix"]))
    assert [boxes.torch().tolist() for boxes in batch["boxes"].tensors] == photographs["boxes"]
    decoded = ndd.decoders.image(batch["image"])
    for ours, theirs in zip(decoded.tensors, photographs["image"], strict=True):
        assert np.abs(ours.torch().numpy().astype(int) - np.asarray(theirs)).max() <= 1


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="pyarrow before 16 has no views")
def test_views_of_text_are_columns() -> None:
    table = pa.table({"text": pa.array(["a", "bc" * 20, "d"], pa.string_view()), "number": [1, 2, 3]})
    dataset = datasets.Dataset(table)
    (batch,) = ndd.readers.HuggingFace(dataset=dataset.select([2, 1])).next_epoch(2)
    assert [bytes(np.asarray(text)) for text in batch["text"].tensors] == [b"d", b"bc" * 20]
    stream = ndd.readers.HuggingFaceStream(dataset.to_iterable_dataset())
    texts = [bytes(np.asarray(text)) for batch in ndd.DataLoader(stream, batch_size=3) for text in batch["text"]]
    assert texts == [b"a", b"bc" * 20, b"d"]


def test_decimals_are_float64_and_other_columns_are_refused_by_name() -> None:
    prices = pa.array([Decimal("1.25"), Decimal(-3)], pa.decimal128(9, 2))
    dataset = datasets.Dataset(pa.table({"price": prices, "boxes": [[{"x": 1}], []]}))
    reader = HuggingFace(dataset=dataset, columns="price")
    (batch,) = reader.next_epoch(2)
    assert batch["price"].torch().tolist() == reader.list_costs("price").tolist() == [1.25, -3]
    text = r"cannot convert to samples: 'boxes' \(list<.*>\); choose among the other columns: columns=\['price'\]"
    with pytest.raises(RuntimeError, match=r"readers\.HuggingFace: " + text):
        next(HuggingFace(dataset=dataset).next_epoch(2))
    with pytest.raises(RuntimeError, match=text):
        next(iter(ndd.DataLoader(ndd.readers.HuggingFaceStream(dataset.to_iterable_dataset()), batch_size=2)))


def test_selection_order_and_chosen_columns_are_respected(photographs: Any) -> None:
    selected = photographs.shuffle(seed=1).select(range(2, 9)).with_format("torch", columns=["label", "text"])
    (batch,) = HuggingFace(dataset=selected).next_epoch(7)
    assert list(batch) == ["label", "text"]
    assert batch["label"].torch().tolist() == photographs.shuffle(seed=1).select(range(2, 9))["label"]
    (batch,) = HuggingFace(dataset=photographs, columns="text").next_epoch(12)
    assert list(batch) == ["text"]


@pytest.mark.slow
def test_loader_reads_in_random_order_and_resumes(photographs: Any) -> None:
    def make_loader(rank: int, world: int, batch_size: int) -> Any:
        reader = HuggingFace(dataset=photographs, columns=["matrix"], random_shuffle=True, shard_id=rank, num_shards=world)
        return ndd.DataLoader(reader, lambda batch: batch["matrix"], batch_size=batch_size)

    assert ndd.testing.assert_resumable(make_loader, batch_sizes=(1, 5)).cuts > 20


def test_labels_and_costs_are_known_without_reading_samples(photographs: Any) -> None:
    weighted = ndd.readers.Weighted(HuggingFace(dataset=photographs), balanced="label", samples_per_epoch=30, seed=1)
    labels = torch.cat([batch["label"].torch() for batch in weighted.next_epoch(10)])
    assert set(labels.tolist()) == {0, 1, 2}
    packed = ndd.DataLoader(HuggingFace(dataset=photographs, columns=["label"]), batches=ndd.batches.Packed(3, "label"))
    assert sum(len(batch["label"]) for batch in packed) == 12
    with pytest.raises(ValueError, match=r"there is no column 'text' of numbers; available: label"):
        HuggingFace(dataset=photographs).list_costs("text")


def test_missing_number_names_the_row() -> None:
    dataset = datasets.Dataset.from_dict({"x": [1, None, 3]})
    reader = HuggingFace(dataset=dataset)
    with pytest.raises(RuntimeError, match=r"row 1 of .*column 'x': a number is missing"):
        next(reader.next_epoch(3))
    skipping = HuggingFace(dataset=dataset, on_error="skip")
    assert [batch["x"].tolist() for batch in ndd.DataLoader(skipping, batch_size=3)] == [[1, 3]]


def test_pickled_reader_reads(photographs: Any) -> None:
    reader = HuggingFace(4, dataset=photographs, columns=["label"])
    next(iter(reader))
    copy = pickle.loads(pickle.dumps(reader))
    assert [batch["label"].torch().tolist() for batch in copy] == [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda data: HuggingFace(dataset=[1]), TypeError, "must be a data set of Hugging Face datasets, got list"),
        (lambda data: HuggingFace(data), TypeError, r"(?s)'max_batch_size' must be int \| None, got Dataset.*; give the data by name: dataset="),
        (lambda data: HuggingFace(dataset={"train": data}), TypeError, r"dataset has several splits; choose one: dataset\['train'\]"),
        (lambda data: HuggingFace(dataset=data.to_iterable_dataset()), TypeError, "use readers.HuggingFaceStream"),
        (lambda data: HuggingFaceStream(data), TypeError, "use readers.HuggingFace"),
        (lambda data: HuggingFace(dataset=data.with_transform(lambda rows: rows)), ValueError, "has a transform"),
        (lambda data: HuggingFace(dataset=data, columns=["color"]).scan(), RuntimeError, "column 'color' not found; available: image, label"),
        (lambda data: HuggingFaceStream(data.to_iterable_dataset(), parallel=0), ValueError, "parallel must be from 1 to 256, got 0"),
        (lambda data: ndd.DataLoader(HuggingFaceStream(data.to_iterable_dataset(num_shards=2)), batch_size=1, num_shards=3), ValueError, "2 shards"),
        (lambda data: ndd.DataLoader(HuggingFaceStream(data.to_iterable_dataset()), batch_size=1, sampler=[0]), TypeError, "sampler does not apply"),
    ],
)  # fmt: skip
def test_other_arguments_are_errors(photographs: Any, make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(photographs)


# Streaming.


def numbers_in(count: int, shards: int) -> Any:
    return datasets.Dataset.from_dict({"x": list(range(count))}).to_iterable_dataset(num_shards=shards)


def make_stream_loader(stream: Any, batch_size: int = 4, **options: Any) -> Any:
    return ndd.DataLoader(HuggingFaceStream(stream, parallel=3), lambda batch: batch["x"], batch_size=batch_size, **options)


def test_stream_takes_a_sample_of_each_open_shard_in_turn() -> None:
    batches = [batch.tolist() for batch in make_stream_loader(numbers_in(14, 4))]  # shards of 4, 4, 3 and 3
    assert batches == [[0, 4, 8, 1], [5, 9, 2, 6], [10, 3, 7, 11], [12, 13]]


def test_stream_decodes_images_that_map_and_filter_have_seen(photographs: Any) -> None:
    stream = photographs.to_iterable_dataset(num_shards=3).map(lambda row: {"label": (row["label"] + 1) % 3}).filter(lambda row: row["label"] != 2)
    loader = ndd.DataLoader(HuggingFaceStream(stream), lambda batch: (ndd.decoders.image(batch["image"]), batch["label"]), batch_size=12)
    ((images, labels),) = loader
    expected = sorted((16 + k, (k + 1) % 3) for k in range(12) if (k + 1) % 3 != 2)
    assert sorted((image.shape[0], label) for image, label in zip(images, labels.tolist(), strict=True)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_stream_resumes_on_any_number_of_ranks(shuffle: bool) -> None:
    stream = numbers_in(70, 9)
    if shuffle:
        stream = stream.shuffle(seed=4, buffer_size=5)

    def make_loader(rank: int, world: int, batch_size: int) -> Any:
        return make_stream_loader(stream, batch_size, shard_id=rank, num_shards=world, shuffle=shuffle, seed=7)

    worlds = ((2, 2), (8, 3), (3, 5))
    assert (
        ndd.testing.assert_resumable(make_loader, cuts=(0, 2, 5), worlds=worlds, batch_sizes=(1, 4), merge=ndd.readers.merge_states).state_bytes
        < 1500
    )


def test_stream_resumes_after_several_changes_of_ranks() -> None:
    stream, seen, state = numbers_in(400, 40), [], None
    for world, steps in ((8, 2), (3, 5), (5, 3), (1, None)):
        loaders = [make_stream_loader(stream, shard_id=rank, num_shards=world, shuffle=True, seed=1) for rank in range(world)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(json.loads(state))
            seen += [number for batch in islice(iter(loader), steps) for number in batch.tolist()]
        state = json.dumps(ndd.readers.merge_states([loader.state_dict() for loader in loaders]))
    assert sorted(seen) == list(range(400))


def test_state_of_one_rank_needs_merging_for_another_number() -> None:
    loader = make_stream_loader(numbers_in(20, 4), shard_id=0, num_shards=2)
    next(iter(loader))
    with pytest.raises(ValueError, match=r"that of 1 of 2 ranks; .*merge_states"):
        make_stream_loader(numbers_in(20, 4)).load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match=r"one state of each of 2 ranks, got those of \[0\]"):
        ndd.readers.merge_states([loader.state_dict()])
    with pytest.raises(ValueError, match=r"for 4 shards .* here are 5"):
        make_stream_loader(numbers_in(20, 5), shard_id=0, num_shards=2).load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 2),
        ("epoch", -1),
        ("ranks", 0),
        ("queue", {"done": [[0, 9]], "begun": [], "delivered": 0}),
        ("queue", {"done": [[2, 1]], "begun": [], "delivered": 0}),
        ("queue", {"done": [[0, 2]], "begun": [[1, 5]], "delivered": 0}),
        ("queue", {"done": [], "begun": [[1, 5], [1, 6]], "delivered": 0}),
        ("progress", {"1": {"taken": 0, "slots": [], "turn": 0, "samples": 0}}),
        ("progress", {"0": {"taken": 5, "slots": [], "turn": 0, "samples": 0}}),
        ("progress", {"0": {"taken": 1, "slots": [[1, 0]], "turn": 0, "samples": 0}}),
        ("progress", {"0": {"taken": 2, "slots": [[1, 0], [1, 1]], "turn": 0, "samples": 0}}),
        ("progress", {"x": {}}),
        ("progress", []),
    ],
)
def test_hostile_stream_state_is_rejected(key: str, value: object) -> None:
    loader = make_stream_loader(numbers_in(20, 4))
    state = loader.state_dict()
    with pytest.raises(ValueError, match=key):
        loader.load_state_dict({**state, "reader": {**state["reader"], key: value}})
    assert sum(len(batch) for batch in loader) == 20


def test_shard_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for k in range(3):
        datasets.Dataset.from_dict({"x": [k] * 5}).to_parquet(tmp_path / f"{k}.parquet")
    stream = datasets.load_dataset("parquet", data_files=[str(tmp_path / f"{k}.parquet") for k in range(3)], split="train", streaming=True)
    loader = make_stream_loader(stream)
    assert sum(len(batch) for batch in loader) == 15
    (tmp_path / "1.parquet").write_bytes(b"damaged")
    with pytest.raises(RuntimeError, match=r"HuggingFaceStream: shard 1 cannot be read after sample 0"):
        list(loader)


def test_missing_number_in_a_stream_names_the_sample() -> None:
    stream = datasets.Dataset.from_dict({"x": [1, 2, 3, None]}).to_iterable_dataset(num_shards=2)
    with pytest.raises(RuntimeError, match=r"shard 1, sample 1 cannot be read: column 'x': a number is missing"):
        list(make_stream_loader(stream))


def test_missing_number_behind_a_chunk_is_counted_from_the_shards_begin() -> None:
    numbers = [*range(40), None, *range(41, 80)]  # threads read 32 rows at a time
    stream = datasets.Dataset.from_dict({"x": numbers}).to_iterable_dataset(num_shards=1)
    with pytest.raises(RuntimeError, match=r"shard 0, sample 40 cannot be read"):
        list(make_stream_loader(stream, batch_size=80))
    loader = make_stream_loader(stream, batch_size=10)
    next(iter(loader))
    resumed = make_stream_loader(stream, batch_size=70)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match=r"shard 0, sample 40 cannot be read"):
        list(resumed)
