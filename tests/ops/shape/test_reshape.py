# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, Samples, arrays, images

import torch_ndd as ndd


def pairs(shape: tuple[int, ...], dtype: str = "uint8", axis: int | None = None, count: int = 2) -> Callable[[bool], tuple[Samples, ...]]:
    """Several inputs with different extents along ``axis``."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        outputs = []
        for k in range(count):
            extents = tuple(n + (k if d == axis else 0) for d, n in enumerate(shape))
            outputs.append([values + k for values in arrays(extents, dtype, axes=(0, 1), high=100)(ragged)[0]])
        return tuple(outputs)

    return make


CASES = [
    *(
        Case(
            "transpose",
            f"{layout} {perm} {dtype}",
            images(layout, dtype),
            {"perm": perm},
            layout=layout,
            out_layout="".join(layout[axis] for axis in perm),
            reference=lambda image, perm, **_: np.ascontiguousarray(image.transpose(perm)),
        )
        for layout, perm, dtype in (
            ("HWC", [2, 0, 1], "uint8"),
            ("CHW", [1, 2, 0], "uint8"),
            ("HWC", [1, 0, 2], "uint8"),
            ("HWC", [2, 1, 0], "float32"),
            ("FHWC", [0, 3, 1, 2], "int16"),
            ("DHWC", [3, 2, 0, 1], "float64"),
            ("HWC", [0, 1, 2], "bool"),
        )
    ),
    Case(
        "transpose",
        "labeled",
        images("HWC"),
        {"output_layout": "ABC"},
        layout="HWC",
        out_layout="ABC",
        reference=lambda image, **_: np.ascontiguousarray(image.transpose()),
    ),
    Case(
        "reshape",
        "wildcard",
        images("HWC"),
        {"shape": [-1, 3], "layout": "WC"},
        layout="HWC",
        out_layout="WC",
        reference=lambda image, **_: image.reshape(-1, 3),
    ),
    Case(
        "reshape",
        "shapes",
        arrays((6, 4), "float32"),
        {"shape": Each([[4, 6], [-1, 12], [24, 1]])},
        ragged=False,
        reference=lambda image, shape: image.reshape(shape),
    ),
    Case(
        "reshape",
        "relative",
        images("HWC", "int32", H=18, W=24),
        {"rel_shape": Each([[1.0, -1.0], [1.0, 3.0], [-1.0, 3.0]])},
        layout="HWC",
        out_layout=None,
        reference=lambda image, **_: image.reshape(image.shape[0], -1),
    ),
    Case(
        "reshape",
        "sources",
        images("HWC"),
        {"src_dims": Each([[1, 0, 2], [1, 0, 2], [0, 1, 2]])},
        layout="HWC",
        reference=lambda image, src_dims: image.reshape([image.shape[d] for d in src_dims]),
    ),
    Case(
        "reinterpret",
        "bytes",
        images("HWC", "float32"),
        {"dtype": ndd.uint8},
        layout="HWC",
        reference=lambda image, **_: image.view(np.uint8),
    ),
    Case(
        "reinterpret",
        "shapes",
        arrays((6, 4), "uint8"),
        {"dtype": ndd.int16, "shape": Each([[4, 3], [-1, 6], [12, 1]])},
        ragged=False,
        reference=lambda image, shape, **_: image.view(np.int16).reshape(shape),
    ),
    Case(
        "reinterpret",
        "relative",
        arrays((6, 4), "int16", axes=(0,)),
        {"dtype": ndd.int32, "rel_shape": Each([[0.5, 1.0]] * 3), "src_dims": Each([[0, 1]] * 3)},
        ragged=False,
        reference=lambda image, **_: image.view(np.int32).reshape(3, 4),
    ),
    Case(
        "squeeze",
        "axes",
        images("FHWC", F=1, C=1),
        {"axes": [0, -1]},
        layout="FHWC",
        out_layout="HW",
        reference=lambda image, **_: image[0, ..., 0],
    ),
    Case("squeeze", "names", images("HWC", C=1), {"axis_names": "C"}, layout="HWC", out_layout="HW", reference=lambda image, **_: image[..., 0]),
    Case(
        "squeeze",
        "axes of samples",
        arrays((1, 5, 1), "int64", axes=(1,)),
        {"axes": Each([[0], [2], [0]])},
        reference=lambda image, axes: image.squeeze(axes[0]),
        uncompiled="axes decide about shapes, so they must be known when a graph is traced",
    ),
    Case(
        "expand_dims",
        "named",
        images("HWC"),
        {"axes": [4, 0], "new_axis_names": "DF"},
        layout="HWC",
        out_layout="FHWCD",
        reference=lambda image, **_: image[None, ..., None],
    ),
    Case("expand_dims", "one", images("HW"), {"axes": 1}, layout="HW", out_layout=None, reference=lambda image, **_: image[:, None]),
    *(
        Case(
            "cat",
            f"axis {axis} {dtype}",
            pairs((5, 6, 3), dtype, axis, count),
            {"axis": axis},
            layout="HWC",
            reference=lambda *inputs, axis: np.concatenate(inputs, axis),
        )
        for axis, dtype, count in ((0, "uint8", 2), (1, "uint8", 3), (2, "float32", 2), (2, "uint8", 2))
    ),
    Case("cat", "name", pairs((5, 6)), {"axis_name": "W"}, layout="HW", reference=lambda *inputs, **_: np.concatenate(inputs, 1)),
    *(
        Case(
            "stack",
            f"axis {axis} {dtype}",
            pairs((5, 6, 3), dtype, count=3),
            {"axis": axis, "axis_name": "F"},
            layout="HWC",
            out_layout="HWC"[:axis] + "F" + "HWC"[axis:],
            reference=lambda *inputs, axis, **_: np.stack(inputs, axis),
        )
        for axis, dtype in ((0, "uint8"), (1, "int16"), (3, "float32"))
    ),
    Case("copy", "images", images("HWC"), layout="HWC", reference=lambda image: image),
    Case("copy", "float64", images("CHW", "float64"), layout="CHW", reference=lambda image: image),
    Case(
        "get_property",
        "layout",
        images("HWC"),
        {"key": "layout"},
        layout="HWC",
        out_layout=None,
        reference=lambda image, **_: np.frombuffer(b"HWC", np.uint8),
    ),
]

VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: ndd.reshape(x, shape=[-1]),
    "reinterpret": lambda x: ndd.reinterpret(x, dtype=ndd.uint8),
    "squeeze": lambda x: ndd.squeeze(ndd.expand_dims(x, axes=[0]), axes=[0]),
    "expand_dims": lambda x: ndd.expand_dims(x, axes=[0]),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_share_memory_and_pending_work(view: Callable[[Any], Any]) -> None:
    values = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    for make in (lambda: ndd.tensor(values), lambda: ndd.batch([values, values]), lambda: ndd.batch([values, values[:1].copy()])):
        source = make()
        assert view(source).buffer.data_ptr() == source.buffer.data_ptr()
        with ndd.EvalMode.deferred:
            pending = source + 1
            result = view(pending)
            assert pending.pending is not None
            assert result.pending is not None
            assert not result.pending.done()
        shown = np.concatenate([np.asarray(value).ravel() for value in ([result] if isinstance(result, ndd.Tensor) else result)])
        expected = np.concatenate([np.asarray(value).ravel() for value in ([pending] if isinstance(pending, ndd.Tensor) else pending)])
        assert np.array_equal(shown, expected.view(shown.dtype))


def test_view_of_a_sample_that_is_pending() -> None:
    with ndd.EvalMode.deferred:
        batch = ndd.batch([np.zeros((2, 3), np.float32), np.ones((4, 1), np.float32)]) + 1.0
        flat = ndd.reshape(batch.tensors[1], shape=[-1])
    assert flat.torch().tolist() == [2.0] * 4


def test_view_of_memory_of_the_caller_is_external() -> None:
    values = np.zeros((2, 3), np.float32)
    flat = ndd.reshape(ndd.as_tensor(values), shape=[6])
    assert flat.caller_owned
    with ndd.EvalMode.deferred:
        sums = flat + 1.0
    values[:] = 5
    assert flat.torch().tolist() == [5.0] * 6
    assert sums.torch().tolist() == [1.0] * 6


def test_reinterpreted_samples_of_a_ragged_batch_may_be_unaligned() -> None:
    batch = ndd.batch([np.arange(3, dtype=np.uint8), np.arange(4, dtype=np.uint8)])
    assert ndd.reinterpret(batch.tensors[1], dtype=ndd.int32).torch().tolist() == [0x03020100]


@pytest.mark.parametrize("item", ["uint8", "uint16", "float32", "float64"])
def test_every_small_size(item: str) -> None:
    """Blocks of the driver overlap at the edges and must not write out of bounds."""
    generator = np.random.default_rng(0)
    for height in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 70):
        for width in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 70):
            batch = [generator.integers(0, 255, (height, width)).astype(item) for _ in range(3)]
            for sample, turned in zip(batch, ndd.transpose(ndd.batch(batch)), strict=True):
                assert np.array_equal(np.asarray(turned), sample.T)
            stacked = np.stack(batch)
            for perm in ([1, 2, 0], [2, 0, 1], [1, 0, 2], [2, 1, 0]):
                assert np.array_equal(np.asarray(ndd.transpose(ndd.tensor(stacked), perm=perm)), stacked.transpose(perm))


@pytest.mark.parametrize("item", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 17])
def test_pixels_in_several_tiles(item: str, channels: int) -> None:
    generator = np.random.default_rng(0)
    for height, width in ((64, 16), (65, 17), (131, 77), (200, 129), (3, 300), (300, 3)):
        image = generator.integers(0, 255, (height, width, channels)).astype(item)
        for perm in ([1, 0, 2], [2, 0, 1], [2, 1, 0], [1, 2, 0]):
            assert np.array_equal(np.asarray(ndd.transpose(ndd.tensor(image), perm=perm)), image.transpose(perm))


def test_source_info() -> None:
    batch = ndd.batch([[1], [2]])
    batch.sources = ("a.jpg", "bcd.jpg")
    names = ndd.get_property(batch, key="source_info")
    assert [bytes(name.torch().tolist()) for name in names] == [b"a.jpg", b"bcd.jpg"]
    assert bytes(ndd.get_property(batch.tensors[1], key="source_info").torch().tolist()) == b"bcd.jpg"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ndd.transpose([[1, 2]], perm=[0, 0]), r"transpose: perm=\[0, 0\] is not a permutation"),
        (lambda: ndd.transpose([[1, 2]], output_layout="A"), "transpose: output_layout='A' must have a letter for each of the 2 axes"),
        (lambda: ndd.reshape([1, 2, 3], shape=[2]), r"reshape: sample 0: shape \(3,\) of 4-byte items and shape \(2,\) .* same number of bytes"),
        (lambda: ndd.reshape(ndd.batch([[1, 2], [3]]), shape=[2]), "reshape: sample 1"),
        (lambda: ndd.squeeze(ndd.batch([[[1]], [[1], [2]]]), axes=[0]), "squeeze: sample 1: axis 0 has the extent 2"),
        (lambda: ndd.expand_dims([1], axes=[0, 0]), "expand_dims: axes has duplicates"),
        (lambda: ndd.cat([[1, 2]], [[1, 2, 3]]), "cat: sample 0: .* only along axis 0"),
        (lambda: ndd.cat([1], [1.0]), "cat: All inputs must have the same type"),
        (lambda: ndd.stack([1, 2], [1]), "stack: sample 0: all inputs must have the same shape"),
        (lambda: ndd.get_property([1], key="color"), "get_property: key must be"),
    ],
)
def test_bad_arguments_are_rejected(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call()


def test_cat_and_stack_take_many_inputs_of_one_batch_size() -> None:
    parts = [ndd.tensor([k, k + 1]) for k in range(40)]
    assert ndd.cat(*parts).torch().tolist() == [n for k in range(40) for n in (k, k + 1)]
    assert ndd.stack(*parts, axis=-1).torch().tolist() == [list(range(40)), list(range(1, 41))]
    with pytest.raises(ValueError, match="cat: Inconsistent batch size: 2 != 3"):
        ndd.cat(ndd.batch([[1], [2]]), ndd.batch([[1], [2], [3]]))
    with pytest.raises(TypeError, match="cat: input 1 must be a Tensor"):
        ndd.cat([1], None)


def test_views_in_a_compiled_graph() -> None:
    def program(values: torch.Tensor) -> torch.Tensor:
        batch = ndd.as_batch(values, layout="HW")
        return ndd.squeeze(ndd.reshape(ndd.expand_dims(batch, axes=[0]), shape=[1, -1]), axes=[0]).torch()

    values = torch.arange(24.0).reshape(2, 3, 4)
    assert torch.compile(program, fullgraph=True, backend="eager")(values).equal(program(values))
