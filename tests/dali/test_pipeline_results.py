# SPDX-License-Identifier: Apache-2.0
"""Tensors and tensor lists of pipelines in dynamic mode: the same programs under both packages, which avoid what known_differences.md lists."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _dali import assert_alike, assert_same, dali, evaluate
from _raises import Raises, raising

import torch_ndd as ndd

VALUES = np.arange(2 * 3 * 2 * 4, dtype=np.uint8).reshape(2, 3, 2, 4)


def package(module: Any) -> Any:
    """Return the package with pipelines that the module of dynamic mode belongs to."""
    result = importlib.import_module("torch_ndd.dali" if module is ndd else "nvidia.dali")
    importlib.import_module(f"{result.__name__}.tensors")
    return result


def result(module: Any, data: Any = VALUES, layout: str | None = "CHW") -> Any:
    """Return a tensor list from a pipeline."""
    dali = package(module)
    pipe = dali.Pipeline(batch_size=len(data), num_threads=1, device_id=None)
    with pipe:
        pipe.set_outputs(dali.fn.external_source(source=[data], layout=layout))
    return pipe.run()[0]


def make_list(module: Any, values: Any, layout: str = "") -> Any:
    return package(module).tensors.TensorListCPU(np.array(values), layout=layout)


def single(module: Any, values: Any, layout: str = "") -> Any:
    return package(module).tensors.TensorCPU(np.array(values), layout=layout)


def f32(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def i32(values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def images(module: Any) -> Any:
    return module.batch(np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3), layout="HWC")


KEEPING = {
    "as_batch": lambda m, out: m.as_batch(out),
    "batch": lambda m, out: m.batch(out),
    "Batch": lambda m, out: m.Batch(out),
    "as_batch with dtype": lambda m, out: m.as_batch(out, dtype=m.float32),
    "as_batch with another layout": lambda m, out: m.as_batch(out, layout="HWC"),
    "as_batch without layout": lambda m, out: m.as_batch(out, layout=""),
    "flip of the batch": lambda m, out: m.flip(m.as_batch(out)),
    "tensor": lambda m, out: m.tensor(out[0]),
    "as_tensor": lambda m, out: m.as_tensor(out[1]),
    "as_tensor with dtype": lambda m, out: m.as_tensor(out[1], dtype=m.float32),
    "as_tensor with another layout": lambda m, out: m.as_tensor(out[1], layout="HWC"),
    "Tensor": lambda m, out: m.Tensor(out[1]),
    "flip of a sample": lambda m, out: m.flip(out[0]),
    "flip of a sample for a batch": lambda m, out: m.flip(out[0], batch_size=2),
    "tensors of samples": lambda m, out: m.as_batch([m.as_tensor(out[0]), m.as_tensor(out[1])]),
    "samples with dtype": lambda m, out: m.batch([out[0], out[1]], dtype=m.float32),
    "samples with layout": lambda m, out: m.batch([out[0], out[1]], layout="CHW"),
    "broadcast": lambda m, out: m.Batch.broadcast(out[0], 3),
    "sum with a sample": lambda m, out: m.batch(VALUES) + out[0],
    "sum of a sample": lambda m, out: out[0] + m.tensor(VALUES[0]),
    "ExternalSource of samples": lambda m, out: m.ExternalSource([out[0]])(),
    "ExternalSource of samples for a batch": lambda m, out: m.ExternalSource([out[0]])(batch_size=2),
    "ExternalSource that is a list": lambda m, out: m.ExternalSource(out)(),
}


@pytest.mark.parametrize("program", KEEPING.values(), ids=KEEPING.keys())
def test_layout_of_a_pipeline_result_is_kept(program: Callable[[Any, Any], Any]) -> None:
    assert_same(lambda m: program(m, result(m)))


LISTS = {
    "flip": lambda m: m.flip(result(m)),
    "flip with batch_size": lambda m: m.flip(result(m), batch_size=2),
    "flip with another batch_size": raising(ValueError, lambda m: m.flip(result(m), batch_size=3)),
    "cast": lambda m: m.cast(result(m), dtype=m.float32),
    "several inputs": lambda m: m.cat(result(m), m.as_batch(result(m))),
    "stack": lambda m: m.stack(result(m), result(m)),
    "reduction": lambda m: m.reductions.sum(result(m)),
    "zeros_like": lambda m: m.zeros_like(result(m)),
    "property": lambda m: m.get_property(result(m), key="layout"),
    "full": lambda m: m.full(make_list(m, [1.0, 2.0]), shape=[2]),
    "angle per sample": lambda m: m.rotate(images(m), angle=make_list(m, f32([10, 90]))),
    "angle of a sample": lambda m: m.rotate(images(m), angle=single(m, np.float32(90))),
    "angles for one image": lambda m: m.rotate(m.tensor(np.zeros((4, 4, 3), np.uint8)), angle=make_list(m, f32([10, 90]))),
    "images and angles": lambda m: m.rotate(make_list(m, np.zeros((2, 4, 4, 3), np.uint8), "HWC"), angle=make_list(m, f32([10, 90]))),
    "angles for another number of images": raising(ValueError, lambda m: m.rotate(images(m), angle=make_list(m, f32([1, 2, 3])))),
    "sizes": lambda m: m.resize(images(m), size=make_list(m, f32([[2, 2], [3, 3]]))),
    "windows": lambda m: m.slice(images(m), start=make_list(m, i32([[0, 0], [1, 1]])), shape=[2, 2], axes=[0, 1]),
    "matrices": lambda m: m.warp_affine(images(m), make_list(m, np.tile(np.eye(2, 3, dtype=np.float32), (2, 1, 1)))),
    "matrices by name": lambda m: m.warp_affine(images(m), matrix=make_list(m, np.tile(np.eye(2, 3, dtype=np.float32), (2, 1, 1)))),
    "means": lambda m: m.normalize(m.cast(images(m), dtype=m.float32), mean=make_list(m, np.zeros((2, 1, 1, 1), np.float32)), stddev=1.0),
    "per_frame": lambda m: m.per_frame(make_list(m, f32([[1, 2], [3, 4]]))),
    "per_frame of frames": lambda m: m.per_frame(make_list(m, f32([[1, 2], [3, 4]]), "F")),
    "per_frame of a sample": lambda m: m.per_frame(single(m, f32([1, 2]))),
    "per_frame of another layout": raising(RuntimeError, lambda m: m.per_frame(result(m))),
    "per_frame that replaces": lambda m: m.per_frame(result(m), replace=True),
    "ExternalSource": lambda m: m.ExternalSource([result(m)])(),
    "ExternalSource with batch_size": lambda m: m.ExternalSource([result(m)])(batch_size=2),
    "ExternalSource with another batch_size": raising(ValueError, lambda m: m.ExternalSource([result(m)])(batch_size=3)),
    "ExternalSource with layout": lambda m: m.ExternalSource([result(m)], layout="HWC")(),
    "ExternalSource of two": lambda m: m.ExternalSource([(result(m), result(m))], num_outputs=2)()[1],
    "ExternalSource of a list and a sample": raising(TypeError, lambda m: m.ExternalSource([(result(m), result(m)[0])], num_outputs=2)()),
    "index per sample": lambda m: images(m).slice[make_list(m, i32([0, 1]))],
    "bound of a sample": lambda m: images(m).slice[single(m, np.int32(1)) :],
    "list as a tensor": lambda m: m.as_tensor(result(m, layout=None)),
    "list as a tensor of its own": lambda m: m.tensor(result(m, layout=None)),
    "list as a tensor with layout": lambda m: m.as_tensor(result(m), layout="NCHW"),
    "list as a tensor with dtype": lambda m: m.as_tensor(result(m, layout=None), dtype=m.float32),
    "ragged list as a tensor": raising(
        ValueError, lambda m: m.as_tensor(package(m).tensors.TensorListCPU([single(m, np.zeros(n, np.int32)) for n in (1, 2)]))
    ),
    "no image": raising(RuntimeError, lambda m: m.decoders.image(make_list(m, np.zeros((1, 20), np.uint8)))),
}


@pytest.mark.parametrize("program", LISTS.values(), ids=LISTS.keys())
def test_tensor_list_is_a_batch_for_operators(program: Callable[[Any], Any], raises: Raises | None) -> None:
    assert_same(program, raises=raises)


def test_random_numbers_take_their_shapes_from_a_tensor_list() -> None:
    assert_alike(lambda m: m.random.uniform(result(m), range=[0, 1]))
    assert_alike(lambda m: m.random.uniform(shape=make_list(m, i32([[2], [3]])), range=[0, 1]))


# The layout under torch_ndd, and the layout or the error under DALI.
OURS_ONLY: dict[str, tuple[Callable[[Any], Any], str | None, str | type[Exception] | None]] = {
    "samples": (lambda m: m.as_batch([*result(m)]), "CHW", None),
    "a sample as a batch": (lambda m: m.as_batch(result(m)[0]), "HW", ValueError),
    "a list as a tensor": (lambda m: m.as_tensor(result(m)), "NCHW", None),
    "a ragged list, padded": (
        lambda m: m.as_tensor(package(m).tensors.TensorListCPU([single(m, np.zeros(n, np.int32), "X") for n in (1, 2)]), pad=True),
        "NX",
        ValueError,
    ),
    "no layout": (lambda m: m.as_tensor(result(m)[0], layout=""), None, "CHW"),
    "a layout for one batch": (lambda m: (out := result(m), m.as_batch(out, layout="HWC"), m.as_batch(out))[-1], "CHW", "HWC"),
}


@pytest.mark.parametrize(("program", "layout", "theirs"), OURS_ONLY.values(), ids=OURS_ONLY.keys())
def test_layout_where_dali_loses_it(program: Callable[[Any], Any], layout: str | None, theirs: str | type[Exception] | None) -> None:
    assert program(ndd).layout == layout
    if isinstance(theirs, type):
        with pytest.raises(theirs):
            evaluate(program, dali)
    else:
        assert evaluate(program, dali).layout == theirs


def test_arithmetic_takes_the_samples_of_a_tensor_list_one_by_one() -> None:
    batch, samples = ndd.batch(VALUES, layout="CHW"), result(ndd)
    for value in (batch + samples, samples + batch, ndd.math.max(batch, samples) * 2, batch + samples[0] - samples[0] + samples):
        assert (value.shape, value.layout, value.torch().tolist()) == ([(3, 2, 4)] * 2, "CHW", (2 * VALUES).tolist())
    assert (samples == batch).torch().all()
    assert ndd.math.sqrt(make_list(ndd, f32([4, 9]))).torch().tolist() == [2, 3]
    assert (ndd.tensor(1) + make_list(ndd, i32([4, 9]))).torch().tolist() == [5, 10]
    with pytest.raises(ValueError, match="2 != 3"):
        _ = batch + make_list(ndd, np.zeros((3, 3, 2, 4), np.uint8))


def test_python_function_takes_a_tensor_list_per_sample() -> None:
    result = ndd.python_function(lambda image, more: image + more, make_list(ndd, i32([[1], [2]])), more=make_list(ndd, i32([10, 20])))
    assert result.torch().tolist() == [[11], [22]]


@pytest.mark.parametrize("augmented", [ndd.augment.trivial_augment, ndd.augment.random_erasing, ndd.augment.mixup])
def test_augmentation_takes_a_tensor_list(augmented: Callable[..., Any]) -> None:
    values = np.random.default_rng(1).integers(0, 256, (2, 8, 8, 3), np.uint8)
    wanted, got = (augmented(value, rng=ndd.random.RNG(3)) for value in (ndd.batch(values, layout="HWC"), make_list(ndd, values, "HWC")))
    assert torch.equal(got.torch(), wanted.torch())
    assert got.layout == "HWC"


def test_memory_of_a_tensor_list_is_shared_or_copied() -> None:
    array = np.zeros((2, 3), np.float32)
    samples = package(ndd).tensors.TensorListCPU(array)
    shared, copied = (ndd.as_batch(samples), ndd.as_tensor(samples), ndd.as_tensor(samples[0])), (ndd.batch(samples), ndd.tensor(samples))
    array[0, 0] = 7
    assert [value.torch().flatten()[0] for value in shared] == [7, 7, 7]
    assert [value.torch().flatten()[0] for value in copied] == [0, 0]


NVIDIAS = {
    "as_batch": lambda out: ndd.as_batch(out),
    "batch": lambda out: ndd.batch(out),
    "samples": lambda out: ndd.as_batch([*out]),
    "flip": lambda out: ndd.flip(ndd.flip(out)),
    "ExternalSource": lambda out: ndd.ExternalSource([out])(),
    "arithmetic": lambda out: ndd.zeros_like(out) + out,
    "a sample": lambda out: ndd.Batch.broadcast(out[0], 1),
    "a sample in arithmetic": lambda out: (ndd.as_tensor(out[0]) + 0) * ndd.batch(np.ones((1, 3, 2, 4), np.uint8)),
    "another tensor list": lambda out: ndd.as_batch(package(ndd).tensors.TensorListCPU(out)),
}


@pytest.mark.parametrize("program", NVIDIAS.values(), ids=NVIDIAS.keys())
def test_tensors_of_nvidias_package_keep_their_layouts(program: Callable[[Any], Any]) -> None:
    output = program(result(importlib.import_module("nvidia.dali.experimental.dynamic")))
    assert output.layout == "CHW"
    assert output.torch().tolist() == VALUES[: output.batch_size].tolist()


def test_ragged_and_empty_lists_of_nvidias_package() -> None:
    tensors = package(importlib.import_module("nvidia.dali.experimental.dynamic")).tensors
    ragged = tensors.TensorListCPU([tensors.TensorCPU(np.full((n, 3), n, np.float16)) for n in (1, 2)], layout="HW")
    result = ndd.as_batch(ragged)
    assert (result.shape, result.layout, result.dtype) == ([(1, 3), (2, 3)], "HW", torch.float16)
    assert [item.torch().unique().tolist() for item in result] == [[1], [2]]
    assert ndd.as_batch(tensors.TensorListCPU(np.zeros((0, 3), np.int16))).dtype == torch.int16
    assert ndd.rotate(images(ndd), angle=tensors.TensorListCPU(f32([90, 180]))).shape == [(4, 4, 3)] * 2
