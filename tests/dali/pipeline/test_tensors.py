# SPDX-License-Identifier: Apache-2.0
"""TensorCPU and TensorListCPU against DALI's: constructors, methods, texts, shared memory, errors."""

import copy
import ctypes
import pickle

import numpy as np
import pytest
import torch
from _pipelines import both, ours_raises, show, sub
from _raises import raising

import torch_ndd as ndd
from torch_ndd.dali import tensors

TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def array(dtype=np.uint8):
    return np.arange(24, dtype=dtype).reshape(2, 3, 4)


def capsule(values):
    return torch.from_numpy(values).__dlpack__()


def describe(value):
    """Return all properties of a tensor or a tensor list."""
    values = [np.array(part) for part in value] if hasattr(value, "at") else np.array(value)
    return [value.shape(), value.layout(), value.ndim(), value.dtype.name, values]


TENSORS = {
    "array": lambda d: d.TensorCPU(array()),
    "layout": lambda d: d.TensorCPU(array(), "HWC"),
    "keywords": lambda d: d.TensorCPU(b=array(), layout="HWC", is_pinned=False),
    "no layout": lambda d: d.TensorCPU(array(), None),
    "scalar": lambda d: d.TensorCPU(np.float32(3)),
    "no dimensions": lambda d: d.TensorCPU(np.array(3.0)),
    "bytes": lambda d: d.TensorCPU(b"abc"),
    "bytearray": lambda d: d.TensorCPU(bytearray(b"abc")),
    "memoryview": lambda d: d.TensorCPU(memoryview(b"abc")),
    "capsule": lambda d: d.TensorCPU(capsule(array()), "HWC"),
    "tensor": lambda d: d.TensorCPU(d.TensorCPU(array(), "HWC")),
    "tensor with layout": lambda d: d.TensorCPU(d.TensorCPU(array(), "HWC"), "ABC"),
    "read-only": lambda d: d.TensorCPU(np.frombuffer(b"abcd", np.uint8)),
    "empty": lambda d: d.TensorCPU(np.zeros((0, 3), np.uint8)),
    "short layout": raising(ValueError, lambda d: d.TensorCPU(array(), "HW")),
    "short layout of a capsule": raising(ValueError, lambda d: d.TensorCPU(capsule(array()), "HW")),
    "list": raising(TypeError, lambda d: d.TensorCPU([1, 2])),
    "number": raising(TypeError, lambda d: d.TensorCPU(3)),
    "text": raising(TypeError, lambda d: d.TensorCPU("abc")),
    "None": raising(TypeError, lambda d: d.TensorCPU(None)),
    "nothing": raising(TypeError, lambda d: d.TensorCPU()),
    "array of text": raising(RuntimeError, lambda d: d.TensorCPU(np.array(["a", "b"]))),
    "array of objects": raising(RuntimeError, lambda d: d.TensorCPU(np.array([{}], object))),
    **{dtype: lambda d, dtype=dtype: d.TensorCPU(np.ones(2, dtype)) for dtype in TYPES},
}
LISTS = {
    "array": lambda d: d.TensorListCPU(array()),
    "layout": lambda d: d.TensorListCPU(array(), layout="AB", is_pinned=False),
    "short layout": raising(ValueError, lambda d: d.TensorListCPU(array(), "A")),
    "one dimension": lambda d: d.TensorListCPU(np.arange(3)),
    "no dimensions": raising(RuntimeError, lambda d: d.TensorListCPU(np.array(3.0))),
    "empty": lambda d: d.TensorListCPU(np.zeros((0, 3), np.uint8)),
    "arrays": lambda d: d.TensorListCPU([array(), array()[:1]]),
    "capsule": lambda d: d.TensorListCPU(capsule(array()), "AB"),
    "capsules": lambda d: d.TensorListCPU([capsule(array()), capsule(array())]),
    "tensors": lambda d: d.TensorListCPU([d.TensorCPU(array()[0], "HW"), d.TensorCPU(array()[1, :2], "HW")]),
    "tensors with layout": lambda d: d.TensorListCPU([d.TensorCPU(array()[0]), d.TensorCPU(array()[1])], "AB"),
    "tensors with short layout": raising(ValueError, lambda d: d.TensorListCPU([d.TensorCPU(array()[0])], "ABC")),
    "different layouts": raising(TypeError, lambda d: d.TensorListCPU([d.TensorCPU(array()[0], "HW"), d.TensorCPU(array()[1], "AB")])),
    "different types": raising(TypeError, lambda d: d.TensorListCPU([d.TensorCPU(array()), d.TensorCPU(array(np.float32))])),
    "different dimensions": raising(TypeError, lambda d: d.TensorListCPU([d.TensorCPU(array()), d.TensorCPU(array()[0])])),
    "tensor": lambda d: d.TensorListCPU(d.TensorCPU(array(), "NAB")),
    "list": lambda d: d.TensorListCPU(d.TensorListCPU(array(), "AB")),
    "list with layout": lambda d: d.TensorListCPU(d.TensorListCPU(array(), "AB"), "CD"),
    "list with short layout": raising(ValueError, lambda d: d.TensorListCPU(d.TensorListCPU(array(), "AB"), "C")),
    "bytes": lambda d: d.TensorListCPU(b"abc"),
    "number": raising(TypeError, lambda d: d.TensorListCPU(3)),
    "text": raising(TypeError, lambda d: d.TensorListCPU("abc")),
    "no samples": lambda d: d.TensorListCPU([]),
    "broadcast": lambda d: d.TensorListCPU.broadcast(d.TensorCPU(array()[0], "HW"), 3),
    "broadcast to none": lambda d: d.TensorListCPU.broadcast(d.TensorCPU(array()[0]), 0),
    "broadcast to less": raising(ValueError, lambda d: d.TensorListCPU.broadcast(d.TensorCPU(array()[0]), -1)),
    "dlpack": lambda d: d.TensorListCPU.from_dlpack_list([torch.zeros(2, 3), torch.ones(1, 2)], layout="HW"),
    "dlpack of others": raising(TypeError, lambda d: d.TensorListCPU.from_dlpack_list([3])),
    "dlpack of different types": raising(TypeError, lambda d: d.TensorListCPU.from_dlpack_list([torch.zeros(2), torch.zeros(2, dtype=torch.int8)])),
}


@pytest.mark.parametrize("program", TENSORS.values(), ids=TENSORS)
def test_tensor_constructors_equal_dali(program, raises):
    both(lambda dali: describe(program(sub(dali, "tensors"))), raises=raises)


@pytest.mark.parametrize("program", LISTS.values(), ids=LISTS)
def test_tensor_lists(program, raises):
    both(lambda dali: describe(program(sub(dali, "backend"))), raises=raises)


def make(dali, *shapes, layout="HW"):
    result = sub(dali, "tensors")
    return result.TensorListCPU([result.TensorCPU(np.arange(np.prod(s), dtype=np.float32).reshape(s), layout) for s in shapes])


def address(values):
    return ctypes.c_void_p(values.ctypes.data)


def copy_out(value):
    out = np.zeros(100, np.float32)
    value.copy_to_external(address(out))
    return out


def change(value, method, *arguments):
    return [getattr(value, method)(*arguments), value.shape(), value.layout(), value.dtype.name, copy_out(value)]


METHODS = {
    "at": lambda tl: [tl.at(0), tl.at(np.int64(1))],
    "at the end": raising(RuntimeError, lambda tl: tl.at(2)),
    "at -1": raising(RuntimeError, lambda tl: tl.at(-1)),
    "items": lambda tl: [describe(tl[k]) for k in (0, 1, -1, np.int64(1))],
    "item 2": raising(IndexError, lambda tl: tl[2]),
    "item -3": raising(IndexError, lambda tl: tl[-3]),
    "iteration": lambda tl: [describe(value) for value in tl],
    "as_array": lambda tl: tl.as_array(),
    "as_tensor": lambda tl: describe(tl.as_tensor()),
    "dense": lambda tl: [tl.is_dense_tensor(), len(tl), bool(tl), tl.as_cpu() is tl],
    "reshaped": lambda tl: np.array(tl.as_reshaped_tensor([2, sum(int(np.prod(s)) for s in tl.shape()) // 2])),
    "reshaped to another size": raising(RuntimeError, lambda tl: tl.as_reshaped_tensor([7])),
    "reshaped to -1": raising(RuntimeError, lambda tl: tl.as_reshaped_tensor([-1])),
    "array": lambda tl: np.array(tl),
    "copy_to_external": copy_out,
    "set_layout": lambda tl: change(tl, "set_layout", "AB"),
    "set_layout to none": lambda tl: change(tl, "set_layout", ""),
    "set_layout of a wrong length": raising(ValueError, lambda tl: tl.set_layout("ABC")),
    "reset": lambda tl: [tl.reset(), len(tl), tl.shape(), tl.dtype.name, tl.layout(), tl.ndim()],
    "str": str,
    "repr": repr,
    "interfaces": lambda tl: [hasattr(tl, name) for name in ("__dlpack__", "__array_interface__", "__array__")],
    "torch": raising(RuntimeError, torch.from_dlpack),
}


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2, 3), (1, 2))], ids=["dense", "ragged"])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_methods_of_lists(method, shapes, raises):
    if shapes[0] != shapes[1]:
        raises = {METHODS["as_array"]: RuntimeError, METHODS["as_tensor"]: RuntimeError, METHODS["array"]: ValueError}.get(method, raises)
    both(lambda dali: method(make(dali, *shapes)), raises=raises)


@pytest.mark.parametrize("dtype", ["INT32", raising(RuntimeError, "UINT8")])
def test_reinterpret_changes_the_dtype(dtype, raises):
    both(lambda dali: change(make(dali, (2, 3), (1, 2)), "reinterpret", getattr(dali.types, dtype)), raises=raises)
    both(lambda dali: change(make(dali, (2, 3))[0], "reinterpret", getattr(dali.types, dtype)), raises=raises)


TENSOR_METHODS = {
    "squeeze": lambda t: [t.squeeze(), t.shape(), t.layout(), t.squeeze()],
    "squeeze 0": lambda t: [t.squeeze(0), t.shape(), t.layout(), t.squeeze(0)],
    "squeeze -2": lambda t: [t.squeeze(-2), t.shape(), t.layout()],
    "squeeze 1": lambda t: [t.squeeze(1), t.shape(), t.layout()],
    "squeeze 9": raising(RuntimeError, lambda t: t.squeeze(9)),
    "set_layout": lambda t: [t.set_layout("WXYZ"), t.layout(), t.set_layout(None), t.layout()],
    "set_layout of a wrong length": raising(ValueError, lambda t: t.set_layout("WX")),
    "properties": lambda t: [t.source_info(), t.get_property("source_info"), t.get_property("nothing"), t.as_cpu() is t],
    "interface": lambda t: [t.__array_interface__["shape"], t.__array_interface__["data"][1], [int(n) for n in t.__dlpack_device__()]],
    "torch": torch.from_dlpack,
    "NumPy": np.from_dlpack,
    "NumPy's copy": lambda t: torch.from_dlpack(t.__dlpack__(copy=True)),
    "str": str,
    "repr": repr,
    "len": raising(TypeError, len),
    "index": raising(TypeError, lambda t: t[0]),
    "iteration": raising(TypeError, list),
    "bool": bool,
}


@pytest.mark.parametrize("method", TENSOR_METHODS.values(), ids=TENSOR_METHODS)
def test_methods_of_tensors(method, raises):
    both(lambda dali: method(sub(dali, "tensors").TensorCPU(np.ones((1, 2, 1, 3), np.uint8), "ABCD")), raises=raises)


@pytest.mark.parametrize(
    "shapes",
    [[(40, 50)] * 3, [(3, 4)] * 20, [(30, 40)] * 20, [()] * 3, [(3,), (5,)], [(3, 4, 5, 6)] * 7, [(3, 4, 5)] * 30, [(0, 3), (0, 2)]],
    ids=show,
)
def test_long_texts_are_abridged_like_dali(shapes):
    """Long samples, many samples and many shapes are abridged in the same places."""
    both(lambda dali: [f(make(dali, *shapes, layout="")) for f in (str, repr)] + [str(make(dali, *shapes, layout="")[0])])


def test_formatting_functions():
    def program(dali):
        result = sub(dali, "tensors")
        samples = make(dali, (2, 3), (1, 2))

        class Loud(result.PipelineBatchAdapter):
            def get_type_name(self, obj):
                return "Loud"

        return [
            result.format_batch(samples, show_data=False, indent="  ", adapter=Loud()),
            result.format_tensor(samples[0], show_data=False),
            result.PipelineTensorAdapter().get_device(samples[0]),
            result.PipelineBatchAdapter().to_numpy(samples, edgeitems=2),
        ]

    both(program)


def test_memory_is_shared():
    """Arrays, tensors, NumPy's views, torch's tensors and samples are one memory, which can be written to."""

    def program(dali):
        result = sub(dali, "tensors")
        values = np.zeros((2, 3), np.float32)
        tensor = result.TensorCPU(values)
        np.array(tensor, copy=False)[0] = 1
        torch.from_dlpack(tensor)[1] = 2
        samples = result.TensorListCPU(values)
        np.array(samples[0], copy=False)[0] = 3
        np.array(samples.as_tensor(), copy=False)[1, 1] = 4
        return [values, tensor.data_ptr() == values.ctypes.data, samples.data_ptr() == values.ctypes.data]

    both(program)


def test_arrays_of_a_list_are_views():
    """DALI copies in `at` and `as_array`."""
    values = np.zeros((2, 3), np.float32)
    samples = tensors.TensorListCPU(values)
    samples.at(0)[0] = 1
    samples.as_array()[1] = 2
    np.testing.assert_array_equal(values, [[1, 0, 0], [2, 2, 2]])


def test_outputs_are_not_waited_for():
    """Shapes, types and layouts of queued results are known; values are waited for."""
    batch = ndd.batch([np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)], layout="HW")
    samples = tensors.as_tensor_list(batch * 2)
    assert isinstance(samples, tensors.TensorListCPU)
    assert (samples.shape(), samples.layout(), samples.dtype.name) == ([(2, 3), (1, 3)], "HW", "FLOAT")
    assert samples.as_reshaped_tensor([9]).as_cpu().shape() == [9]
    np.testing.assert_array_equal(samples.at(1), [[2, 2, 2]])


def test_errors_of_queued_work_come_with_the_values():
    samples = tensors.as_tensor_list(ndd.batch([np.ones(3, np.int32)]) // ndd.batch([np.zeros(3, np.int32)]))
    assert samples.shape() == [(3,)]
    with pytest.raises(ValueError, match="zero"):
        samples.at(0)


def test_what_dali_refuses():
    """Strided arrays and torch tensors make tensors, slices make lists, lists can be copied and pickled."""
    np.testing.assert_array_equal(np.array(tensors.TensorCPU(array()[:, ::2])), array()[:, ::2])
    np.testing.assert_array_equal(np.array(tensors.TensorCPU(torch.arange(3))), [0, 1, 2])
    samples = tensors.TensorListCPU(array(), "AB")
    assert [value.shape() for value in (samples[1:], samples[::-1], samples[:0])] == [[(3, 4)], [(3, 4), (3, 4)], []]
    np.testing.assert_array_equal(samples[::-1].as_array(), array()[::-1])
    again = pickle.loads(pickle.dumps(samples))
    assert (again.layout(), again.as_array().tolist()) == ("AB", array().tolist())
    copy.copy(samples).set_layout("CD")
    assert samples.layout() == "AB"


def test_gpu_tensors_need_a_gpu():
    for kind in (tensors.TensorGPU, tensors.TensorListGPU):
        with pytest.raises(TypeError, match="GPU memory"):
            kind(array())


@pytest.mark.parametrize("pointer", [None, "x", 0, True])
def test_invalid_addresses_are_refused(pointer):
    ours_raises(lambda dali: make(dali, (2, 3)).copy_to_external(pointer), TypeError, "ptr must be an address")


def test_an_address_as_int():
    out = np.zeros(6, np.float32)
    tensors.TensorListCPU(np.arange(6, dtype=np.float32)).copy_to_external(out.ctypes.data)
    np.testing.assert_array_equal(out, np.arange(6))


def test_source_info(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.bin").write_bytes(b"abc")

    def program(dali):
        @dali.pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def define():
            return dali.fn.readers.file(file_root=str(tmp_path))

        return define().run()[0][0].source_info()

    both(program, raises=TypeError)


def test_results_keep_the_source_info_of_their_input(tmp_path):
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"abc")

    def program(dali):
        fn = dali.fn

        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def define():
            data, _ = fn.readers.file(files=[str(tmp_path / name) for name in ("a.bin", "b.bin")])
            two = fn.python_function(data, function=lambda x: (x, x[:1]), num_outputs=2)
            results = (data, data + 1, data[0], data.shape(), *two, fn.python_function(data, function=lambda x: x, batch_processing=True))
            return tuple(fn.get_property(result, key="source_info") for result in results)

        return [[bytes(value.at(i)) for i in range(2)] for value in define().run()]

    assert len({str(names) for names in both(program)}) == 1
