# SPDX-License-Identifier: Apache-2.0
"""Names, parameters and defaults of the layer, compared with those of DALI."""

import functools
import importlib
import inspect

import pytest
import torch
from _pipelines import real

import torch_ndd
import torch_ndd.dali as ours
from torch_ndd.dali._functions.schema import schemas

# Required by DALI, and optional here; constants with more digits; not per sample in readers.
DEFAULTS = {"shape": ("decoders.inflate", "experimental.inflate"), "index_path": "", "random_aspect_ratio": "", "freq_x": "water", "freq_y": "water"}


def operators() -> list[str]:
    """Return the names of DALI's functions, ``decoders.image``; none where DALI is missing."""
    try:
        fn = importlib.import_module("nvidia.dali.fn")
    except ImportError:
        return []
    found, open_ = [], [("", fn)]
    while open_:
        path, module = open_.pop()
        for name, value in vars(module).items():
            if name.startswith("_") or name == "hidden":
                continue
            if inspect.ismodule(value) and value.__name__.startswith("nvidia.dali.fn"):
                open_.append((f"{path}{name}.", value))
            elif inspect.isfunction(value) and value.__module__.startswith("nvidia.dali"):
                found.append(path + name)
    return sorted(set(found) - {"dl_tensor_python_function", "python_function", "external_source"})


def show(value: object) -> str:
    """Return a default as text that both packages have."""
    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, torch.dtype):
        value = ours.types.to_dali_type(value)
    if type(value).__name__ in ("DALIDataType", "DALIInterpType", "DALIImageType"):
        return str(value)
    return repr(list(value) if isinstance(value, tuple | list) else value)


@pytest.mark.parametrize("name", operators() or [None])
def test_function_parameters_equal_dali(name: str | None) -> None:
    """Every function has DALI's parameters with DALI's defaults."""
    if name is None:
        pytest.skip("DALI is not installed")
    theirs = functools.reduce(getattr, name.split("."), importlib.import_module("nvidia.dali.fn"))
    result = functools.reduce(getattr, name.split("."), ours.fn)
    wanted, got = inspect.signature(theirs).parameters, inspect.signature(result).parameters
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for key, value in wanted.items():
        if value.kind in kinds and not key.startswith("_"):
            assert key in got, f"{name} has no argument {key}"
            if key not in DEFAULTS or not name.startswith(DEFAULTS[key]):
                assert show(got[key].default) == show(value.default), f"{name}: {key}"
    assert result.__doc__


@pytest.mark.parametrize("name", operators() or [None])
def test_every_function_has_a_class(name: str | None) -> None:
    """Every function has a class of DALI's name."""
    if name is None:
        pytest.skip("not compared")
    *path, last = name.split(".")
    theirs = functools.reduce(getattr, path, importlib.import_module("nvidia.dali.ops"))
    own = functools.reduce(getattr, path, ours.ops)
    short = last.replace("_", "").lower()
    wanted = {key for key in vars(theirs) if key.lower() == short and not key.startswith("_")}
    assert wanted
    assert wanted <= set(vars(own)), f"{wanted} is missing"


@pytest.mark.parametrize("name", sorted(schemas()))
def test_numbers_of_inputs_include_those_of_dali(name: str) -> None:
    """The numbers of inputs are those of DALI, or allow more."""
    dali = real()
    schema = schemas()[name]
    try:
        theirs = dali.backend.GetSchema(schema.class_name.replace(".", "__"))
    except (RuntimeError, KeyError):
        pytest.skip("not an operator of DALI")
    if theirs.IsDeprecated():
        pytest.skip("described by its replacement")
    assert schema.inputs[0] == theirs.MinNumInput()
    assert schema.inputs[1] >= min(theirs.MaxNumInput(), 999)


MODULES = {
    "backend": ["TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"],
    "data_node": ["DataNode", "newaxis"],
    "external_source": ["ExternalSource", "external_source"],
    "pickling": ["pickle_by_value"],
    "pipeline": ["DataNode", "OperatorConcurrency", "Pipeline", "StreamPolicy", "do_not_convert", "experimental", "pipeline_def"],
    "plugin_manager": ["load_directory", "load_library"],
    "tensors": ["TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU"],
    "tfrecord": ["FixedLenFeature", "VarLenFeature", "float32", "int64", "string"],
    "types": [
        *("ANY_DATA", "BGR", "BOOL", "BatchInfo", "CPU_ONLY_DEVICE_ID", "CUDAStream", "Constant", "ConstantNode", "DALIDataType", "DALIImageType"),
        *("DALIInterpType", "FLOAT", "FLOAT16", "GRAY", "INTERP_TRIANGULAR", "NCHW", "NHWC", "PipelineAPIType", "RGB", "SAME", "SampleInfo"),
        *("ScalarConstant", "TensorLayout", "YCbCr", "tfrec", "to_dali_type", "to_numpy_type"),
    ],
    "plugin.base_iterator": ["LastBatchPolicy"],
    "plugin.pytorch": ["DALIClassificationIterator", "DALIGenericIterator", "DALIRaggedIterator", "LastBatchPolicy", "feed_ndarray", "to_torch_type"],
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_have_the_public_names_of_dali(name: str) -> None:
    """Public names of modules."""
    theirs, result = importlib.import_module(f"{real().__name__}.{name}"), importlib.import_module(f"torch_ndd.dali.{name}")
    for key in MODULES[name]:
        assert hasattr(theirs, key), key
        assert hasattr(result, key), key


def test_the_package() -> None:
    """Names of the package itself."""
    modules = ("fn", "ops", "types", "math", "data_node", "backend", "pipeline")
    for key in ("Pipeline", "pipeline_def", "newaxis", "StreamPolicy", "OperatorConcurrency", *modules):
        assert hasattr(real(), key)
        assert hasattr(ours, key)
    assert ours.__version__ == "2.4.0"
    assert "Pipeline" in dir(ours)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(ours, "nothing")  # noqa: B009


def test_dynamic_mode() -> None:
    """The names of ``torch_ndd`` itself; its submodules cannot be imported a second time."""
    theirs, dynamic = (importlib.import_module(f"{value.__name__}.experimental.dynamic") for value in (real(), ours))
    for key in ("Batch", "DType", "EvalMode", "Tensor", "as_batch", "readers", "tensor"):
        assert hasattr(theirs, key)
        assert getattr(dynamic, key) is getattr(torch_ndd, key)
    assert set(dir(torch_ndd)) == set(dir(dynamic))
    with pytest.raises(ModuleNotFoundError, match="not a package"):
        importlib.import_module("torch_ndd.dali.experimental.dynamic.readers")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(dynamic, "nothing")  # noqa: B009


def test_members_of_pipelines() -> None:
    """Every public member of DALI's Pipeline exists, with its parameters."""
    theirs = real().Pipeline
    for key, value in vars(theirs).items():
        if key.startswith("_"):
            continue
        assert hasattr(ours.Pipeline, key), key
        if inspect.isfunction(value):
            wanted = [parameter.name for parameter in inspect.signature(value).parameters.values()]
            got = [parameter.name for parameter in inspect.signature(getattr(ours.Pipeline, key)).parameters.values()]
            assert got == wanted, key
    wanted_parameters, parameters = (inspect.signature(value.__init__).parameters for value in (theirs, ours.Pipeline))
    assert [(key, value.kind, repr(value.default)) for key, value in parameters.items()] == [
        (key, value.kind, repr(value.default)) for key, value in wanted_parameters.items()
    ]
