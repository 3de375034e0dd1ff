# SPDX-License-Identifier: Apache-2.0
"""Calling operators: inputs, constants, several input sets, arguments, deprecated names, classes."""

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from _pipelines import both, ours_raises
from _raises import Raises, raising

import torch_ndd.dali as ours

IMAGE = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def run(dali, define, batch_size=2, **more):
    """Return the outputs of one iteration of ``define(dali)``."""
    return dali.pipeline_def(define)(dali, batch_size=batch_size, num_threads=1, device_id=None, **more).run()


@pytest.mark.parametrize(
    "value", ["5", "[1, 2]", "[1.5, 2]", "np.arange(3, dtype=np.int16)", "dali.types.Constant(7).uint8()", "np.float64(2.5)", "True"]
)
def test_constants_as_inputs(value):
    """Data may be a number, a list of numbers, an array or a typed scalar."""
    both(lambda dali: run(dali, lambda dali: dali.fn.cast(eval(value, {"dali": dali, "np": np}), dtype=dali.types.FLOAT)))


@pytest.mark.parametrize("border", ["edge", "reflect", "reflect_101", "101", "wrap", "Clamp"])
def test_borders_of_windows_and_filters(border):
    def define(dali):
        image = dali.fn.reshape(IMAGE, layout="HWC")
        window = dali.fn.slice(image, start=[-3, -8], shape=[9, 20], axis_names="HW", out_of_bounds_policy=border)
        weights = np.float32([[0, 0, 0, 0, 1]])
        return window, dali.fn.crop(image, crop=[9, 5], out_of_bounds_policy=border), dali.fn.filter(image, weights, border=border)

    both(lambda dali: run(dali, define))


@pytest.mark.parametrize(
    "call",
    [
        *(
            raising(ValueError, "fn.resize(size=[2, 2])"),
            raising(ValueError, "fn.resize(image, image, size=[2, 2])"),
            raising(ValueError, "fn.resize(input=image, size=[2, 2])"),
            raising(TypeError, "fn.resize('a', size=[2, 2])"),
        ),
        *(
            raising(TypeError, "fn.resize(None, size=[2, 2])"),
            raising(TypeError, "fn.resize({}, size=[2, 2])"),
            raising(ValueError, "fn.resize(image, size='a')"),
            raising(TypeError, "fn.resize(image, size=[2, image])"),
        ),
        *(
            raising(KeyError, "fn.resize(image, nothing=1)"),
            raising(ValueError, "fn.resize(image, size=[2, 2], device='tpu')"),
            raising(TypeError, "fn.resize(image, size=[2, 2], antialias=image)"),
        ),
        *(
            "fn.resize(image, size=[2, 2], name=None)",
            raising(RuntimeError, "fn.cast(image)"),
            raising(TypeError, "fn.random.uniform(range=[image, 1])"),
            raising(ValueError, "fn.cast(image, dtype='x')"),
        ),
        *(
            raising(TypeError, "fn.readers.file(file_root='/nowhere/at/all')"),
            raising(TypeError, "fn.readers.file()"),
            raising(ValueError, "fn.cat()"),
            raising(ValueError, "fn.crop(image, crop='abc')"),
            "fn.flip(image, horizontal=None)",
        ),
        *(
            raising(TypeError, "fn.flip(image, horizontal=[1, 2])"),
            raising(RuntimeError, "fn.transpose(image, perm=[0, 0, 1])"),
            raising(TypeError, "fn.rotate(image, angle=(image, ))"),
        ),
        raising(TypeError, "fn.random.uniform(seed=image)"),
    ],
)
def test_wrong_calls(call, raises):
    """Classes of errors, at the definition, at build or from run."""
    both(lambda dali: run(dali, lambda dali: eval(call, {"fn": dali.fn, "image": dali.types.Constant(IMAGE, layout="HWC")})), raises=raises)


def test_an_unknown_argument_names_the_nearest():
    """A KeyError, as in DALI, and a TypeError, as in Python."""
    error = ours_raises(
        lambda dali: dali.fn.resize(IMAGE, sizes=[2, 2]), KeyError, "fn.resize got an unexpected argument 'sizes'; did you mean 'size'"
    )
    assert isinstance(error, TypeError)


def test_several_input_sets():
    """A list of nodes gives a list of results, with the same random numbers."""

    def program(dali):
        def define(dali):
            image = dali.types.Constant(IMAGE, layout="HWC")
            flip = dali.fn.random.coin_flip()
            a, b = dali.fn.flip([image, image], horizontal=flip)
            first, second = dali.fn.noise.gaussian([image, image], stddev=20.0)
            return a == b, first == second

        return [bool(np.all(output.as_array())) for output in run(dali, define)]

    assert both(program) == [True, True]


def test_input_sets_of_several_outputs():
    """Each output gives a list over the sets; other inputs are shared by all."""

    def program(dali):
        def define(dali):
            short, long = dali.types.Constant(np.eye(1, 4000, 2000, dtype=np.float32)[0]), dali.types.Constant(np.ones(5000, np.float32))
            result = dali.fn.nonsilent_region([short, long])
            assert [type(item) for item in result] == [list, list]
            joined = dali.fn.cat([short, long], long)
            return (*result[0], *result[1], *joined)

        return run(dali, define)

    both(program)


def test_a_single_input_set():
    """A list of one node is that node."""

    def program(dali):
        def define(dali):
            image = dali.types.Constant(IMAGE, layout="HWC")
            start, length = dali.fn.nonsilent_region([dali.types.Constant(np.ones(50, np.float32))])
            return dali.fn.flip([image]), dali.ops.Flip(horizontal=0)([image]), start, length

        return run(dali, define)

    both(program)


def test_a_truth_value_is_a_seed():
    """A bool is an int."""

    def program(dali):
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None, seed=True)
        def draw():
            return dali.fn.random.uniform(), dali.fn.random.uniform(seed=True)

        pipe = draw()
        pipe.build()
        return [output.as_array().shape for output in pipe.run()]

    both(program)


def test_input_sets_of_different_lengths():
    """Sets must match."""

    def program(dali):
        def define(dali):
            value = dali.types.Constant(np.ones(7, np.float32))
            return tuple(dali.fn.cat([value, value], [value, value, value]))

        return run(dali, define)

    both(program, raises=ValueError)


def test_arguments_per_sample():
    """Nodes and arrays as arguments."""

    def program(dali):
        def define(dali):
            image = dali.types.Constant(IMAGE, layout="HWC")
            numbers = dali.fn.external_source(lambda i: [np.float32(1), np.float32(3)])
            size = dali.fn.stack(numbers + 1, numbers + 2)
            return (
                dali.fn.resize(image, size=size),
                dali.fn.brightness(image, brightness=numbers),
                dali.fn.crop(image, crop=np.array([2, 3], np.float32)),
            )

        return run(dali, define)

    both(program, 1)


def test_arguments_are_not_on_a_gpu():
    """An argument on the GPU must be moved first."""

    def program(dali):
        return run(dali, lambda dali: dali.fn.rotate(IMAGE, angle=dali.fn.random.uniform().gpu()))

    ours_raises(program, ValueError, r"must be on the CPU.*\.cpu\(\)")


def test_none_means_not_given():
    """None as an argument, and the values that DALI's signatures show."""

    def program(dali):
        def define(dali):
            image = dali.types.Constant(IMAGE, layout="HWC")
            return (
                dali.fn.resize(image, size=[2, 3], resize_x=None, mode=None),
                dali.fn.resize(image, resize_x=3.0, resize_y=0.0),
                dali.fn.crop(image, crop_h=2.0, crop_w=2.0, crop_d=0.0),
            )

        return run(dali, define)

    both(program, 1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("fn.coin_flip()", "fn.random.coin_flip"),
        ("fn.uniform(range=[0.0, 1.0])", "fn.random.uniform"),
        ("fn.transform_translation(offset=[1, 2])", "fn.transforms.translation"),
        ("ops.Uniform(range=[0.0, 1.0])()", "fn.random.uniform"),
        ("ops.experimental.Equalize()(image)", "fn.equalize"),
        ("fn.crop(image, crop=[2, 2], output_dtype=types.FLOAT)", "'dtype'"),
        ("fn.crop_mirror_normalize(image, output_dtype=types.FLOAT, image_type=types.RGB)", "'dtype'"),
        ("fn.resize(image, size=[2, 2], image_type=types.RGB)", "no effect"),
        ("fn.shapes(image)", "shape()"),
        ("fn.rotate(image, angle=10.0, output_dtype=types.FLOAT)", "'dtype'"),
        ("fn.resize(image, size=[2, 2], seed=3)", "no effect"),
    ],
)
def test_deprecated_names_work_and_warn(call, text):
    """Former names of operators and arguments."""
    both(
        lambda dali: [
            output.shape()
            for output in run(
                dali,
                lambda dali: eval(call, {"fn": dali.fn, "ops": dali.ops, "types": dali.types, "image": dali.types.Constant(IMAGE, layout="HWC")}),
            )
        ]
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        eval(call, {"fn": ours.fn, "ops": ours.ops, "types": ours.types, "image": ours.types.Constant(IMAGE, layout="HWC")})
    assert any(text in str(value.message) and value.category is DeprecationWarning and value.filename == "<string>" for value in caught)


def test_a_passed_background_must_not_be_a_class():
    """The default background gives way to a class 0; one that the program passes does not, also if it is the default."""
    labels = np.int32([[0, 1, 1], [2, 2, 3]])

    def program(dali, **arguments):
        def define(dali):
            mask = dali.types.Constant(labels)
            return tuple(dali.fn.segmentation.random_object_bbox(mask, classes=[0, 1, 2, 3], foreground_prob=1.0, **arguments))

        return [output.shape() for output in run(dali, define)]

    both(program)
    both(lambda dali: program(dali, background=0), raises=(RuntimeError, "background 0 is among the classes"))


def test_both_names_of_an_argument():
    """The old and the new name together are a TypeError."""
    both(lambda dali: dali.fn.crop(IMAGE, crop=[2, 2], output_dtype=dali.types.FLOAT, dtype=dali.types.FLOAT), raises=TypeError)


def test_modules_can_be_imported():
    """Submodules of fn and ops in every form of import."""
    import torch_ndd.dali.fn.experimental.readers as readers
    import torch_ndd.dali.fn.io.file
    from torch_ndd.dali.fn.readers import file
    from torch_ndd.dali.ops.random import CoinFlip

    assert file is ours.fn.readers.file
    assert CoinFlip is ours.ops.random.CoinFlip
    assert readers.fits is ours.fn.experimental.readers.fits
    assert torch_ndd.dali.fn.io.file.read is ours.fn.io.file.read
    assert file.__module__ == "torch_ndd.dali.fn.readers"
    assert "file_root" in (file.__doc__ or "")
    assert list(inspect.signature(ours.fn.resize).parameters)[:4] == ["input", "device", "name", "antialias"]


# Legacy classes.


def test_class_arguments_go_to_the_constructor_or_the_call():
    """Arguments in the constructor or at the call; each call is an operator."""

    def program(dali):
        def define(dali):
            ops, types = dali.ops, dali.types
            image = types.Constant(IMAGE, layout="HWC")
            resize = ops.Resize(device="cpu", size=[2, 2], interp_type=types.INTERP_TRIANGULAR)
            normalize = ops.CropMirrorNormalize(device="cpu", output_layout=types.NCHW, crop=(2, 2), mean=[1.0, 2.0, 3.0], std=[2.0, 2.0, 2.0])
            small = resize(image)
            return small, resize(image), normalize(image, mirror=1), ops.Cast(dtype=types.FLOAT)(small), ops.reductions.Mean(axes=[0, 1])(image)

        return run(dali, define)

    both(program, 1)


@pytest.mark.parametrize(
    "call",
    [
        *(
            raising(ValueError, "ops.Resize(size=[2, 2])(image, size=[1, 1])"),
            raising(KeyError, "ops.Resize(sizes=[2, 2])(image)"),
            raising(ValueError, "ops.Resize()(image, image)"),
            raising(ValueError, "ops.Resize(size=[2, 2])()"),
            raising(KeyError, "ops.Resize(sizes=[2, 2])"),
            raising(TypeError, "dali.math.sqrt('a')"),
            raising(ValueError, "dali.math.sqrt(3)"),
            raising(TypeError, "dali.math.max(3, None)"),
        ),
        "ops.Resize(size=[2, 2], device='mixed')(image)",
    ],
)
def test_wrong_calls_of_classes(call, raises):
    """Classes of errors."""

    def program(dali):
        return run(dali, lambda dali: eval(call, {"dali": dali, "ops": dali.ops, "image": dali.types.Constant(IMAGE, layout="HWC")}))

    if "mixed" in call:  # DALI has no such operator
        assert run(ours, lambda dali: dali.ops.Resize(size=[2, 2], device="mixed")(IMAGE))[0].shape() == [(2, 2, 3)] * 2
    else:
        both(program, raises=raises)


def test_compose_chains_operators():
    """Operators one after the other."""

    def program(dali):
        def define(dali):
            ops = dali.ops
            return ops.Compose([ops.Resize(size=[2, 2]), ops.Cast(dtype=dali.types.FLOAT)])(dali.types.Constant(IMAGE, layout="HWC"))

        return run(dali, define)

    both(program, 1)


@pytest.mark.parametrize("name", ["FileReader", "COCOReader", "ImageDecoder", "ImageDecoderRandomCrop", "Uniform", "CoinFlip", "NormalDistribution"])
def test_flat_names(name):
    """The oldest names of operators."""
    assert both(lambda dali: getattr(dali.ops, name).__name__) == name


def test_a_pipeline_of_classes(tmp_path):
    """The oldest form of program: a subclass with operators as attributes."""
    for k in range(5):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{k}.jpg").write_bytes(bytes([k] * (k + 1)))

    def program(dali):
        ops, types = dali.ops, dali.types

        class Files(dali.pipeline.Pipeline):
            def __init__(self, batch_size):
                super().__init__(batch_size, 1, None, seed=12)
                self.input = ops.FileReader(file_root=str(tmp_path))
                self.cast = ops.Cast(dtype=types.INT32)
                self.coin = ops.CoinFlip(probability=1.0)

            def define_graph(self):
                files, labels = self.input(name="Reader")
                return [self.cast(files), labels, self.coin()]

        pipe = Files(batch_size=3)
        pipe.build()
        return pipe.run(), pipe.run(), pipe.epoch_size("Reader"), pipe.epoch_size()

    both(program)


def test_ssd_random_crop():
    def program(dali):
        boxes = np.float32([[0.0, 0.0, 1.0, 1.0]])

        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None, seed=1)
        def crop():
            images = dali.types.Constant(np.zeros((40, 60, 3), np.uint8), device="cpu")
            found = dali.fn.ssd_random_crop(
                images, dali.types.Constant(boxes, device="cpu"), dali.types.Constant(np.int32([5]), device="cpu"), num_attempts=3
            )
            return tuple(found)

        images, boxes_, labels = crop().run()
        return [np.array(images.at(0)).ndim, np.array(boxes_.at(0)).shape, np.array(labels.at(0)).tolist(), np.array(labels.at(1)).tolist()]

    both(program)


@pytest.mark.parametrize(
    "factors",
    [
        [1, 1, -1],
        [0.5, 1, -1],
        [1, 0.5, -1],
        raising(RuntimeError, [1, -1, 1]),
        raising(RuntimeError, [1, 1, 1]),
        raising(RuntimeError, [1, 1, 1, -1]),
    ],
)
def test_wildcard_after_the_axes(factors: list[float], raises: Raises | None) -> None:
    """A last extent of -1 in rel_shape adds an axis; other values behind the axes of the input are refused."""

    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def graph() -> Any:
            return dali.fn.reshape(dali.types.Constant(np.arange(24, dtype=np.float32).reshape(4, 6)), rel_shape=factors)

        return np.array(graph().run()[0].as_tensor()).tolist()

    both(program, raises=raises)


@pytest.mark.parametrize("elements", [[0, 2], (1, 1, 0), [2], 1])
@pytest.mark.parametrize("debug", [False, True])
def test_elements_of_sequences_are_outputs(elements: list[int] | tuple[int, ...] | int, debug: bool) -> None:
    def extract(dali: Any) -> Any:
        sequence = dali.fn.reshape(np.arange(6, dtype=np.uint8).reshape(3, 2), layout="FW")
        results = [dali.fn.element_extract(sequence, element_map=elements)]
        if not debug:
            results.append(dali.ops.ElementExtract(element_map=elements)(sequence))
        return tuple(node for result in results for node in (result if isinstance(result, list | tuple) else [result]))

    both(lambda dali: run(dali, extract, debug=debug))


@pytest.mark.parametrize(
    "call",
    [
        "crop(image, crop_h=3, crop_w=0)",
        "crop_mirror_normalize(image, crop_w=2, crop_h=0)",
        "resize(image, resize_shorter=0)",
        "resize(image, resize_x=0)",
        "resize_crop_mirror(image, resize_longer=0, crop_h=2, crop_w=3)",
        raising(RuntimeError, "resize(image, size=[3, 3], resize_x=0)"),
        raising(RuntimeError, "crop(image, crop=[3, 3], crop_w=0)"),
    ],
)
def test_a_size_of_zero_is_the_whole_extent(call: str, raises: Raises | None) -> None:
    both(lambda dali: run(dali, lambda dali: eval(f"fn.{call}", {"fn": dali.fn, "image": IMAGE})), tolerance=1, raises=raises)
