# SPDX-License-Identifier: Apache-2.0
"""What the items of a data set may be, and what ``ndd.DataLoader`` makes of a batch of them."""

from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
from torch_ndd.readers import EncodedFile

# Forking beside threads is what this tests.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Boxes:
    """An object that neither torch nor a Batch can hold."""

    def __init__(self, k: int) -> None:
        self.k = k


@dataclass
class Pair:
    number: Any
    text: Any


FILES = ("path", "name", "bytes", "text of a path", "plain bytes")  # decoders take lists of paths and contents


class Mixed(torch.utils.data.Dataset[Any]):
    """Every kind of value."""

    def __init__(self, images: list[Path]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, k: int) -> dict[str, Any]:
        path = self.images[k]
        pil = Image.open(path)
        return {
            "pil": pil,
            "gray": pil.convert("L"),
            "path": path,
            "name": EncodedFile(str(path)),
            "bytes": EncodedFile(path.read_bytes()),
            "text of a path": str(path),
            "plain bytes": path.read_bytes(),
            "array": np.arange(k + 1, dtype=np.int16),
            "tensor": torch.full((2,), float(k)),
            "nested": (k, {"half": k / 2, "even": k % 2 == 0}),
            "numbers": [k, k + 1],
            "text": f"number {k}",
            "objects": Boxes(k),
            "dataclass": Pair(k, f"{k}"),
        }


def test_every_kind_of_value(images: list[Path]) -> None:
    def fn(batch: dict[str, Any]) -> dict[str, Any]:
        assert batch["pil"].layout == "HWC"
        assert all(isinstance(sample, str) for sample in batch["text of a path"])
        assert all(isinstance(sample, bytes) for sample in batch["plain bytes"])
        return {**batch, **{key: ndd.decoders.image(batch[key]) for key in FILES}}

    batches = list(ndd.DataLoader(Mixed(images), fn, batch_size=4))
    assert [len(batch["text"]) for batch in batches] == [4, 4, 3]
    k = 0
    for batch in batches:
        for i in range(len(batch["text"])):
            pixels = torch.from_numpy(np.array(Image.open(images[k])))
            for key in ("pil", *FILES):
                assert torch.equal(batch[key][i], pixels)
            assert batch["gray"][i].shape == (*pixels.shape[:2], 1)
            assert batch["array"][i].tolist() == list(range(k + 1))
            assert batch["array"][i].dtype == torch.int16
            assert batch["tensor"][i].tolist() == [k, k]
            number, others = batch["nested"]
            assert (number[i].item(), others["half"][i].item(), others["even"][i].item()) == (k, k / 2, k % 2 == 0)
            assert [column[i].item() for column in batch["numbers"]] == [k, k + 1]
            assert batch["text"][i] == f"number {k}"
            assert batch["objects"][i].k == k
            assert (batch["dataclass"].number[i].item(), batch["dataclass"].text[i]) == (k, f"{k}")
            k += 1
    assert (batches[0]["nested"][0].dtype, batches[0]["nested"][1]["half"].dtype) == (torch.int64, torch.float64)


Point = namedtuple("Point", "x y")

ITEMS: dict[str, Callable[[int], Any]] = {
    "int": lambda k: k,
    "float": float,
    "bool": lambda k: k % 2 == 0,
    "mixed numbers": lambda k: 1.5 if k % 2 else 1,
    "float64": np.float64,
    "float32": np.float32,
    "int8": np.int8,
    "numpy bool": lambda k: np.bool_(k % 2),
    "text": lambda k: f"/data/{k}.jpg",
    "url": lambda k: f"https://example.org/{k}.png",
    "bytes": lambda k: b"%d" % k,
    "numpy text": lambda k: np.str_(k),
    "numpy bytes": lambda k: np.bytes_(b"%d" % k),
    "tensor": lambda k: torch.full((2, 3), k),
    "scalar tensor": torch.tensor,
    "array": lambda k: np.arange(3) + k,
    "promoted": lambda k: torch.ones(2) if k % 2 else torch.ones(2, dtype=torch.int32),
    "tuple": lambda k: (torch.full((2,), k), f"/data/img_{k}.jpg"),
    "tuple of one": lambda k: (k,),
    "list": lambda k: [k, "a"],
    "list of texts": lambda k: ["a", f"{k}"],
    "list of one": lambda k: [k],
    "lists": lambda k: [[k, 1], [2, 3]],
    "nested": lambda k: {"a": k, "b": (1, "x", [k, {"c": (2.5, b"y")}])},
    "dicts in a list": lambda k: [{"id": k}, {"id": 2}],
    "named tuple": lambda k: Point((k, "a"), {"z": [k]}),
    "ordered": lambda k: OrderedDict(b=k, a="s"),
    "default": lambda k: defaultdict(int, a=k),
    "deque": lambda k: deque([k, 2]),
    "user dict": lambda k: UserDict(a=k),
    "size": lambda k: torch.Size([k, 2]),
    "range": lambda k: range(k, k + 2),
    "empty": lambda k: {"a": [], "b": "x"},
}


def same(ours: Any, theirs: Any) -> bool:
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(ours, Mapping):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple | deque):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


class Streamed(torch.utils.data.IterableDataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "multiprocessing_context": "fork"}], ids=str)
def test_collates_as_torch(kind: str, options: dict[str, Any]) -> None:
    if options and kind not in ("tuple", "nested", "deque", "bytes"):
        pytest.skip("items are sent to the parent in one way")
    items = [ITEMS[kind](k) for k in range(5)]
    theirs = list(torch.utils.data.DataLoader(items, batch_size=2))
    assert same(list(ndd.DataLoader(items, batch_size=2, **options)), theirs)
    assert same(list(ndd.DataLoader(Streamed(items), batch_size=2, multiprocessing_context=options.get("multiprocessing_context"))), theirs)


def test_a_function_gets_the_parts_of_items() -> None:
    for item, expected in (((1, "a"), 2), ([1, "a"], 2), (Point(1, "a"), 2), (1, 1), ("a", 1), ({"x": 1}, 1), (Pair(1, 2), 1)):
        values: list[Any] = []
        list(ndd.DataLoader([item, item], lambda *parts, value=values: value.append(parts) or parts, batch_size=2))
        assert len(values[0]) == expected


def test_sources_of_every_kind_of_item() -> None:
    for item in (1, "a", (1, "a"), [1, "a"], ["a", "b"], Pair(1, 2)):
        ((*_, paths),) = ndd.DataLoader([item, item], batch_size=2, return_paths=True)
        assert paths == ["list[0]", "list[1]"]


def test_different_items() -> None:
    for items, error in (
        ([(1, 2), (1,)], ValueError),
        ([{"a": 1}, {"b": 1}], ValueError),
        ([torch.ones(2), "text"], TypeError),
        ([torch.ones(2), torch.ones(2, 2)], RuntimeError),
        ([[1, 2], [1]], ValueError),
        ([Pair(1, 2), Boxes(1)], TypeError),
    ):
        with pytest.raises(error, match=r"^DataLoader: .*of one batch must have"):
            list(ndd.DataLoader(items, batch_size=2))


def test_items_that_are_no_samples() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2)], layout=torch.jagged)
    for item, error, text in (
        ((), ValueError, r"at least one part, got \(\)"),
        ({}, ValueError, r"at least one part, got \{\}"),
        (torch.ones(2, requires_grad=True), TypeError, "requires grad; return it detached"),
        ({"a": torch.eye(2).to_sparse()}, TypeError, r"\['a'\] of the items: a tensor has the memory layout torch.sparse_coo"),
        ({"a": nested}, TypeError, r"\['a'\] of the items: a tensor is nested; return it dense"),
        (2**70, OverflowError, "out of range for int64"),
        ((1, np.longdouble(1)), TypeError, r"\[1\] of the items: no tensor has the type float128; convert it in the data set"),
        (np.zeros(2, np.clongdouble), TypeError, "no tensor has the type complex256"),
        (np.zeros(2, "M8[s]"), TypeError, r"no tensor has the type datetime64\[s\]"),
        ({"a": np.array(["a", "b"])}, TypeError, r"\['a'\] of the items: no tensor has the type <U1"),
        (np.array([None]), TypeError, "no tensor has the type object"),
        (np.zeros(2, [("a", "i4")]), TypeError, "no tensor has the type"),
    ):
        with pytest.raises(error, match=text):
            list(ndd.DataLoader([item, item], batch_size=2))


NUMPY_NUMBERS = [*(f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)), "bool_", "float16", "float32", "float64", "complex64"]


@pytest.mark.parametrize("item", [(1, 2), {"a": 1}, Pair(1, "text"), torch.ones(2), np.ones(2), 7], ids=lambda item: type(item).__name__)
@pytest.mark.parametrize("part", [False, True])
def test_items_that_are_none_are_refused_in_any_order(item: Any, part: bool) -> None:
    for items in ([item, None], [None, item]):
        with pytest.raises(TypeError, match=r'one type, got .*NoneType.*; to leave a sample out, raise .* on_error="skip"'):
            next(iter(ndd.DataLoader([(0, item) for item in items] if part else items, batch_size=2)))
    assert next(iter(ndd.DataLoader([None, "text"], batch_size=2))) == [None, "text"]


@pytest.mark.parametrize("name", NUMPY_NUMBERS)
def test_numbers_of_numpy_keep_their_type(name: str) -> None:
    kind = getattr(np, name)
    for values in ([kind(0), kind(1)], [np.array(0, kind), np.array(1, kind)], [np.array(0, kind), kind(1)]):
        (found,) = ndd.DataLoader(values, batch_size=2)
        assert np.array_equal(found.numpy(), np.array([0, 1], kind))
        assert found.numpy().dtype == kind


def test_numbers_of_several_types() -> None:
    large = np.uint64(2**64 - 1)
    (found,) = ndd.DataLoader([large, large], batch_size=2)
    assert found.tolist() == [2**64 - 1] * 2
    for values, dtype in (
        ([np.uint64(1), np.int64(2)], torch.int64),
        ([1, np.uint64(2)], torch.int64),
        ([np.bool_(1), np.uint8(2)], torch.uint8),
        ([np.float32(1), np.float64(2)], torch.float64),
    ):
        (found,) = ndd.DataLoader(values, batch_size=2)
        assert (found.tolist(), found.dtype) == ([1, 2], dtype)
    for values in ([1, large], [2**63, 1], [2**63, -1]):  # of the latter NumPy makes floats
        with pytest.raises(OverflowError, match="out of range for int64"):
            list(ndd.DataLoader(values, batch_size=2))


def test_arrays_of_another_byte_order() -> None:
    (found,) = ndd.DataLoader([np.array([1, 2], ">i4"), np.array([3, 4], "<i4")], batch_size=2)
    assert (found.tolist(), found.dtype) == ([[1, 2], [3, 4]], torch.int32)
    (found,) = ndd.DataLoader([np.array(0.5, ">f8")] * 2, batch_size=2)
    assert found.tolist() == [0.5, 0.5]


def test_times_of_numpy_stay_as_they_are() -> None:
    for value in (np.datetime64("2020-01-01"), np.timedelta64(3, "s")):
        (found,) = ndd.DataLoader([value, value], batch_size=2)
        assert found == [value, value]


@pytest.mark.parametrize("workers", [None, 0])
def test_items_that_begin_with_a_plain_one(workers: int | None, tmp_path: Path) -> None:
    """Which items need preparation is not taken from others of their batch: each is prepared, or found by the column that it is in."""
    path = tmp_path / "file"
    path.write_bytes(b"\3\4")

    def load(*items: Any) -> Any:
        return next(iter(ndd.DataLoader([*items] * 20, batch_size=len(items) * 20, num_workers=workers)))

    with pytest.raises(TypeError, match=r"one type, got File and int"):
        load(1, path)
    with pytest.raises(TypeError, match=r"part \['a'\].* one type, got File and NoneType"):
        load({"a": None}, {"a": path})
    with pytest.raises(TypeError, match=r"one type, got File and ndarray"):
        load((np.zeros(2),), (path,))
    texts = load(("a text", 1), (path, 2))[0]
    assert [text if isinstance(text, str) else text.content for text in texts] == ["a text", b"\3\4"] * 20
    with pytest.raises(RuntimeError, match="missing"):
        load("a text", tmp_path / "missing")


@pytest.mark.parametrize("workers", [None, 0])
def test_batches_of_plain_items_and_of_files_in_turn(workers: int | None) -> None:
    """Whether items need preparation is not taken from the batch before."""
    plain, marked = [torch.tensor([1, 2], dtype=torch.uint8)] * 4, [EncodedFile(b"\3\4\5")] * 4
    loader = ndd.DataLoader([*plain, *marked, *plain, *marked], batch_size=4, num_workers=workers)
    assert [[values.tolist() for values in batch] for batch in loader] == [[[1, 2]] * 4, [[3, 4, 5]] * 4] * 2
