# SPDX-License-Identifier: Apache-2.0
"""Constants and types of pipelines."""

import numpy as np
import pytest
import torch
from _pipelines import both
from _raises import raising

import torch_ndd.dali as ours


def run(dali, define, batch_size=2):
    """Return the outputs of one iteration of ``define(dali)``."""
    return dali.pipeline_def(define)(dali, batch_size=batch_size, num_threads=1, device_id=None).run()


@pytest.mark.parametrize(
    "text",
    [
        *("types.Constant([1, 2])", "types.Constant([1, 2.5])", "types.Constant([True, False])", "types.Constant([])", "types.Constant((1, 2))"),
        *(
            raising(TypeError, "types.Constant([[1, 2], [3, 4]])"),
            raising(TypeError, "types.Constant(['a'])"),
            raising(TypeError, "types.Constant('a')"),
            raising(TypeError, "types.Constant(None)"),
            raising(TypeError, "types.Constant({})"),
        ),
        *(
            "types.Constant(np.eye(2))",
            "types.Constant(np.arange(3))",
            raising(OverflowError, "types.Constant(np.array([2**40]))"),
            "types.Constant(np.array(7, np.int16))",
        ),
        *(
            "types.Constant(np.array([2**40]), dtype=types.INT64)",
            "types.Constant(3, shape=[2, 2])",
            "types.Constant(3.5, shape=(2,), dtype=types.UINT8)",
        ),
        *(
            "types.Constant([1, 2], dtype=types.FLOAT)",
            "types.Constant([1, 2, 3, 4], shape=[2, 2])",
            raising(RuntimeError, "types.Constant([1, 2, 3], shape=[2, 2])"),
        ),
        *("types.Constant(5, layout='')", "types.Constant(5, device='cpu')", "types.Constant(np.ones((2, 2)), layout='HW')"),
        *(
            raising(RuntimeError, "types.Constant(np.ones((2, 2)), layout='H')"),
            "types.Constant([2**31])",
            "types.Constant([1, 2], layout='X', name='c')",
        ),
        *(raising(TypeError, "types.Constant(types.FLOAT)"),),
        *("types.Constant(np.array([True, False]))", "types.Constant(torch.tensor([1, 2]))", "types.Constant(np.array([1, 2], np.uint64))"),
        *(
            "fn.constant(idata=[1, 2])",
            "fn.constant(fdata=[1, 2])",
            "fn.constant(fdata=2.5, shape=[2, 2])",
        ),
        *(
            "fn.constant(idata=[1, 2, 3, 4], shape=[2, 2], dtype=types.UINT8, layout='HW')",
            raising(RuntimeError, "fn.constant()"),
            raising(RuntimeError, "fn.constant(idata=[1], fdata=[1])"),
        ),
        *(
            "3",
            "2.5",
            "True",
            "[1, 2]",
            "np.eye(2)",
            "types.Constant(3)",
            "types.Constant(3).uint8()",
            raising(TypeError, "'a'"),
            raising(TypeError, "{}"),
            raising(TypeError, "None"),
            raising(TypeError, "[fn.constant(idata=[1])]"),
        ),
        *(
            raising(TypeError, "np.array(['a'])"),
            "types.Constant(2.5).int32()",
            "types.Constant(300).uint8()",
            "types.Constant(True)",
            "types.Constant(1).bool()",
        ),
    ],
)
def test_constants_as_outputs(text, raises):
    """Values, types, shapes, layouts and errors of constants."""
    both(lambda dali: run(dali, lambda dali: (eval(text, {"types": dali.types, "fn": dali.fn, "np": np, "torch": torch}), 1)), raises=raises)


@pytest.mark.parametrize("value", [5, 2.5, True, np.float16(1.5), np.int64(3), np.uint8(7)], ids=repr)
def test_scalar_constants(value):
    """Attributes of scalars."""

    def program(dali):
        constant = dali.types.Constant(value)
        return [constant.value, constant.dtype, constant.shape, str(constant), type(constant).__name__]

    both(program)


@pytest.mark.parametrize(
    "method", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)
def test_conversions_of_scalars(method):
    """Each method gives a typed scalar."""
    both(lambda dali: [getattr(dali.types.Constant(3), method)().dtype, float(getattr(dali.types.Constant(3), method)().value)])


def test_enumeration_members_are_module_attributes():
    """Members are attributes of the module, with the same names and numbers."""

    def program(dali):
        found = []
        for name in ("DALIDataType", "DALIInterpType", "DALIImageType"):
            enumeration = getattr(dali.types, name)
            found += [[name, key, int(value), str(value), value.name] for key, value in sorted(enumeration.__members__.items()) if key[0] != "_"]
            assert all(
                getattr(dali.types, key) is value or getattr(dali.types, key) == value
                for key, value in enumeration.__members__.items()
                if key[0] != "_"
            )
        return [*found, dali.types.NCHW, dali.types.NHWC, dali.types.NFCHW, dali.types.NFHWC, dali.types.SAME, dali.types.CPU_ONLY_DEVICE_ID]

    both(program)


@pytest.mark.parametrize("name", ["UINT8", "INT16", "INT64", "FLOAT16", "FLOAT", "FLOAT64", "BOOL", "UINT64", raising(KeyError, "STRING")])
def test_numpy_types(name, raises):
    """Both directions, and types that have none."""
    both(lambda dali: str(np.dtype(dali.types.to_numpy_type(getattr(dali.types, name)))), raises=raises)


@pytest.mark.parametrize(
    "python_type",
    [
        np.uint8,
        np.dtype("float32"),
        "int16",
        torch.float64,
        torch.bool,
        raising(TypeError, complex),
        raising(TypeError, "nothing"),
        raising(TypeError, 3),
        float,
        raising(TypeError, int),
        bool,
    ],
    ids=str,
)
def test_dali_types(python_type, raises):
    """NumPy's, torch's and Python's types and their names."""
    both(lambda dali: dali.types.to_dali_type(python_type).name, raises=raises)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (np.float64(3), ["v - x", "v / y", "v", "fn.copy(v)"]),
        (np.int64(3), ["x * v", "v - x", "v // y", "v", "fn.copy(v)", "types.Constant(v)", "types.Constant(v, device='cpu')"]),
        (np.uint64(3), ["x * v", "v - x", "v", "fn.copy(v)", "types.Constant(v)", "types.Constant(v, device='cpu')"]),
        (np.uint8(3), ["x * v", "v - x", "v", "fn.copy(v)", "types.Constant(v)", "types.Constant(v, device='cpu')"]),
        (np.array(3), ["x * v", "v - x", "y ** v", "v", "fn.copy(v)", "types.Constant(v)", "types.Constant(v, device='cpu')"]),
        (np.array(3.0), ["x * v", "v - x", "y / v", "v", "fn.copy(v)", "types.Constant(v, dtype=types.FLOAT)"]),
        (np.array(3, np.int16), ["x * v", "v - x", "v", "types.Constant(v)", "types.Constant(v, device='cpu')"]),
        (2**31, ["x * v", "v - x", "y > v", "x * types.Constant(v, types.INT64)"]),
        (-(2**31) - 1, ["x + v"]),
    ],
    ids=repr,
)
def test_numbers_of_numpy_and_large_ones(value, texts):
    """Types of results; Python's integers that do not fit into 32 bits are an error."""
    for text in texts:

        def program(dali, text=text):
            def define(dali):
                names = {"x": dali.fn.constant(idata=[1], dtype=dali.types.UINT8), "y": dali.fn.constant(fdata=[2]), "v": value}
                return eval(text, {"types": dali.types, "fn": dali.fn, **names}), 1

            return run(dali, define)

        both(program, raises=OverflowError if isinstance(value, int) and "INT64" not in text else None)


def test_sample_and_batch_info_have_the_fields_of_dali():
    """What sources are told."""

    def program(dali):
        sample, batch = dali.types.SampleInfo(1, 2, 3, 4), dali.types.BatchInfo(5, 6)
        return [sample.idx_in_epoch, sample.idx_in_batch, sample.iteration, sample.epoch_idx, batch.iteration, batch.epoch_idx]

    both(program)


def test_outputs_do_not_share_memory():
    """Writing to an output of a constant changes nothing else."""
    pipe = ours.pipeline_def(lambda: ours.types.Constant([1, 2]))(batch_size=2, num_threads=1)
    (first,) = pipe.run()
    first.at(0)[:] = 9
    (second,) = pipe.run()
    assert second.as_array().tolist() == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    "call",
    [
        "fn.reductions.mean(fn.ones(shape=[2, 3]), axes=np.array([1]))",
        "fn.reductions.sum(fn.ones(shape=[2, 3]), axes=[np.int64(0), np.int64(1)])",
        "fn.paste(fn.ones(shape=[2, 2, 3], dtype=types.UINT8), ratio=np.float32(2), fill_value=np.array([7]))",
        "fn.transpose(fn.ones(shape=[2, 3, 4]), perm=[np.int64(2), np.int64(0), np.int64(1)])",
        "fn.expand_dims(fn.ones(shape=[2, 3]), axes=np.int64(1))",
        "fn.cat(fn.ones(shape=[2, 3]), fn.ones(shape=[2, 3]), axis=np.array([1]))",
        "fn.lookup_table(fn.ones(shape=[2], dtype=types.UINT8), keys=[np.int64(1)], values=[np.float32(5)])",
        "fn.power_spectrum(fn.ones(shape=[50], dtype=types.FLOAT), nfft=2 ** np.ceil(np.log2(50)))",
        "fn.resize(fn.ones(shape=[8, 8, 3], dtype=types.UINT8), size=[np.int64(4), np.int64(3)], antialias=np.bool_(False))",
        "fn.readers.file(files=['a'], labels=list(np.arange(1)))[1]",
    ],
)
def test_numpy_values_as_arguments(call, tmp_path):
    (tmp_path / "a").write_bytes(b"x")

    def program(dali):
        return run(dali, lambda dali: eval(call.replace("'a'", repr(str(tmp_path / "a"))), {"fn": dali.fn, "types": dali.types, "np": np}))

    both(program, tolerance=1e-3)
