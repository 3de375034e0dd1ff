# SPDX-License-Identifier: Apache-2.0
"""Serialized pipelines: the loaded one gives what the original gives."""

import copy
import importlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from _mutations import mutate
from _pipelines import both, ours_raises, plain, show, sub
from core.context.test_hostile_states import HOSTILE, places, replace_at
from PIL import Image

import torch_ndd.dali as ours
from torch_ndd import tfrecord
from torch_ndd.dali import fn, math, newaxis, ops, types


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "class"
    folder.mkdir()
    for k in range(5):
        values = np.random.default_rng(k).integers(0, 256, (40 + 4 * k, 60, 3), dtype=np.uint8)
        Image.fromarray(values).save(folder / f"{k}.png")
    return folder.parent


def image_chain(folder: Path) -> Any:
    files, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, name="Reader", pad_last_batch=True)
    decoded = fn.decoders.image_random_crop(files, device="mixed", output_type=types.RGB, random_area=[0.1, 1.0], seed=17)
    resized = fn.resize(decoded, size=np.array([32, 48]), interp_type=types.INTERP_CUBIC)
    flip = fn.random.coin_flip(probability=0.5)
    normalized = fn.crop_mirror_normalize(resized, dtype=types.FLOAT16, mean=[1.5, 2.0, 3.0], std=[2.0] * 3, mirror=flip, output_layout="CHW")
    return normalized, labels.gpu(), resized.shape(dtype=types.INT32), flip


def arithmetic(folder: Path) -> Any:
    data = fn.random.uniform(range=[0.0, 100.0], shape=[3, 4])
    bytes_ = fn.cast(data, dtype=types.UINT8)
    constant = types.Constant(np.arange(12, dtype=np.int16).reshape(3, 4), layout="HW")
    return (
        *(data + 3, -bytes_, bytes_ + types.Constant(250).uint8(), 2.5 / (data + 1), data > [1, 2, 3, 4], bytes_ & np.uint8(7), constant * data),
        *(math.sqrt(data), math.clamp(data, 3, float("inf")), data[1:, ::2], data[:, 0], data[newaxis("C"), :, 1], constant),
    )


def indices(folder: Path) -> Any:
    data = fn.external_source(lambda _: np.arange(60, dtype=np.float32).reshape(5, 3, 4), layout="HW")
    where = fn.random.uniform(range=[0, 2], shape=[], dtype=types.INT32)
    return data[where, 1:], data[where : where + 1], where


def several_sets(folder: Path) -> Any:
    first, second = fn.random.uniform(range=[0, 1], shape=[4]), fn.random.uniform(range=[0, 1], shape=[4])
    return tuple(fn.noise.gaussian([first, second], stddev=0.5))


def classes(folder: Path) -> Any:
    read = ops.readers.File(files=[str(path) for path in sorted((folder / "class").iterdir())], labels=np.arange(5))
    files, labels = read(name="Input")
    return ops.Cast(dtype=types.FLOAT)(labels), ops.random.Normal(seed=5, mean=3.0)(), fn.peek_image_shape(files)


def conditional(folder: Path) -> Any:
    value = fn.random.uniform(range=[-1, 1], shape=[])
    if value > 0 and not value > 0.7:
        result = value * 10
    else:
        result = -value
    return value, result


def branches(folder: Path) -> Any:
    number = fn.random.uniform(range=[0, 9], dtype=types.INT32, seed=5)
    even, few = number % 2 == 0, number < 5
    if even and not few:
        order = fn.batch_permutation(seed=1)
    elif few or number > 7:
        order = fn.batch_permutation(seed=2) + number
    else:
        order = types.Constant(-1)
    if even:
        data = fn.random.normal(shape=[2, 3])
        if few:
            data = fn.stack(data, data + 1)[0]
    else:
        data = fn.random.normal(shape=[2, 3]) * 2
    return order, data, number


GRAPHS: dict[str, Callable[[Path], Any]] = {
    value.__name__: value for value in (image_chain, arithmetic, indices, several_sets, classes, conditional, branches)
}
FED = {"indices": "__ExternalSource_0"}


def factory(name: str, **options: Any) -> Any:
    return ours.pipeline_def(batch_size=5, num_threads=1, enable_conditionals=name in ("conditional", "branches"), **options)(GRAPHS[name])


def outputs(pipe: Any, steps: int = 4, feed: str | None = None) -> Any:
    seen = []
    pipe.build()
    for _ in range(pipe._depth - 1 if feed else 0):
        pipe.feed_input(feed, np.arange(60, dtype=np.float32).reshape(5, 3, 4))
    for _ in range(steps):
        if feed:
            pipe.feed_input(feed, np.arange(60, dtype=np.float32).reshape(5, 3, 4))
        seen.append(plain(pipe.run()))
    return seen


def assert_equal(value: Any, other: Any) -> None:
    assert type(value) is type(other)
    if isinstance(value, dict | list):
        assert len(value) == len(other)
        for key in value if isinstance(value, dict) else range(len(value)):
            assert_equal(value[key], other[key])
    else:
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_loaded_pipeline_gives_the_same(name: str, images: Path) -> None:
    original = factory(name, seed=3)(images)
    data = original.serialize()
    assert isinstance(data, bytes)
    loaded = ours.Pipeline.deserialize(data)
    assert_equal(outputs(loaded, feed=FED.get(name)), outputs(original))
    assert (loaded.max_batch_size, loaded.num_threads, loaded.seed) == (5, 1, 3)
    assert ours.Pipeline.deserialize(data).serialize() == data
    again = ours.Pipeline(batch_size=5, num_threads=1, seed=3)
    again.deserialize_and_build(data)
    assert_equal(outputs(again, feed=FED.get(name)), outputs(factory(name, seed=3)(images)))


def test_deserialize_and_build_takes_the_stored_arguments_that_are_not_given(images: Path) -> None:
    data = factory("image_chain", seed=3, prefetch_queue_depth=3)(images).serialize()
    expected = outputs(factory("image_chain", seed=3)(images))
    for value in ({}, {"num_threads": 2}):
        again = ours.Pipeline(**value)
        again.deserialize_and_build(data)
        assert (again.max_batch_size, again.num_threads, again.seed, again.prefetch_queue_depth) == (5, value.get("num_threads", 1), 3, 3)
        assert again.device_id is None
        assert_equal(outputs(again), expected)
    smaller = ours.Pipeline(batch_size=2, seed=4)
    smaller.deserialize_and_build(data)
    assert (smaller.max_batch_size, smaller.seed, len(smaller.run()[0])) == (2, 4, 2)


def test_the_stored_arguments_are_checked(images: Path) -> None:
    content = json.loads(factory("arithmetic")(images).serialize())
    for wrong in ({"no_such": 1}, {"batch_size": {"is": "nothing"}}, {"prefetch_queue_depth": "a"}):
        broken = json.dumps({**content, "arguments": {**content["arguments"], **wrong}}).encode()
        with pytest.raises(RuntimeError, match="not a valid serialized pipeline"):
            ours.Pipeline().deserialize_and_build(broken)


@pytest.mark.parametrize("nodes", [0, 2])
def test_the_nodes_of_an_index_are_counted(nodes: int, images: Path) -> None:
    content = json.loads(factory("indices")(images).serialize())
    value = next(each for each in content["operators"] if each["schema"] == "tensor_subscript" and len(each["inputs"]) == 2)
    value["inputs"][1:] = value["inputs"][1:] * nodes
    with pytest.raises(RuntimeError, match="as many nodes as there are inputs"):
        ours.Pipeline.deserialize(json.dumps(content).encode())


def test_the_pipeline_need_not_work_here(tmp_path: Path) -> None:
    """Its files are not looked at, until it is loaded."""

    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def definition() -> Any:
            return dali.fn.readers.file(file_root=str(tmp_path / "missing"), name="Reader")[1]

        data = definition().serialize()
        (tmp_path / "missing" / "class").mkdir(parents=True, exist_ok=True)
        (tmp_path / "missing" / "class" / "0.jpg").write_bytes(b"0")
        loaded = dali.Pipeline.deserialize(data, batch_size=2, num_threads=1)
        (tmp_path / "missing" / "class" / "0.jpg").unlink()
        return loaded.epoch_size("Reader")

    assert both(program) == 1


def test_arguments_override_the_stored_ones(images: Path, tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    data = factory("image_chain", seed=3, prefetch_queue_depth=3)(images).serialize(filename=str(file))
    assert file.read_bytes() == data
    loaded = ours.Pipeline.deserialize(filename=str(file), batch_size=2, seed=4, num_threads=2)
    assert [loaded.max_batch_size, loaded.num_threads, loaded.seed, loaded.prefetch_queue_depth] == [2, 2, 4, 3]
    assert len(loaded.run()[0]) == 2
    assert loaded.epoch_size("Reader") == 5

    class Own(ours.Pipeline):
        pass

    assert type(Own.deserialize(data)) is Own


def test_own_seeds_are_kept_and_the_others_drawn_anew(images: Path) -> None:
    @ours.pipeline_def(batch_size=3)
    def definition() -> Any:
        return fn.random.uniform(seed=11), fn.random.uniform()

    data = definition().serialize()
    (first, other), (same, another) = (plain(ours.Pipeline.deserialize(data).run()) for _ in range(2))
    assert_equal(first, same)
    assert not np.array_equal(other["samples"], another["samples"])
    assert json.loads(data)["operators"][0]["seed"] == 11


def test_checkpoints_fit_the_loaded_pipeline(images: Path) -> None:
    original = factory("image_chain", enable_checkpointing=True)(images)
    data = original.serialize()
    original.run()
    loaded = ours.Pipeline.deserialize(data, checkpoint=original.checkpoint())
    assert_equal(outputs(loaded), outputs(original))


def test_what_is_serialized(images: Path) -> None:
    value = json.loads(factory("image_chain", seed=3)(images).serialize())
    assert (value["kind"], value["version"]) == ("pipeline of torch_ndd.dali", 1)
    assert [item["schema"] for item in value["operators"]][:3] == ["readers.file", "decoders.image_random_crop", "resize"]
    assert value["operators"][0]["constants"] == {"file_root": str(images), "random_shuffle": True, "pad_last_batch": True}
    assert "checkpoint" not in value["arguments"]


def test_pruned_operators_are_not_serialized() -> None:
    @ours.pipeline_def(batch_size=3)
    def definition() -> Any:
        fn.random.uniform()
        fn.random.normal(preserve=True)
        return fn.random.coin_flip()

    value = json.loads(definition().serialize())
    assert [item["schema"] for item in value["operators"]] == ["random.normal", "random.coin_flip"]
    assert json.loads(ours.Pipeline.deserialize(definition().serialize()).serialize()) == value


def test_python_functions_cannot_be_serialized() -> None:
    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=3, num_threads=1, device_id=None)
        def definition() -> Any:
            return dali.fn.python_function(dali.fn.random.uniform(), function=lambda x: x)

        return definition().serialize()

    both(program, raises=RuntimeError)


def test_sources_become_inputs() -> None:
    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None, prefetch_queue_depth=1)
        def definition() -> Any:
            return dali.fn.external_source(lambda _: np.ones((2, 3), np.float32), name="input") * 2

        loaded = dali.Pipeline.deserialize(definition().serialize())
        loaded.feed_input("input", np.full((2, 3), 4, np.float32))
        return loaded.run()

    both(program)


def test_define_graph_is_given_to_serialize() -> None:
    pipe = ours.Pipeline(batch_size=2, num_threads=1)
    data = pipe.serialize(define_graph=lambda: [fn.constant(idata=[1, 2]), fn.constant(fdata=[1.5])])
    assert plain(ours.Pipeline.deserialize(data).run())[1]["samples"][0].tolist() == [1.5]


@pytest.mark.parametrize("arguments", [{}, {"serialized_pipeline": b"x", "filename": "x"}])
def test_bytes_or_a_file(arguments: dict[str, Any]) -> None:
    both(lambda dali: dali.Pipeline.deserialize(**arguments), raises=ValueError)


def test_refused_files(images: Path, tmp_path: Path) -> None:
    data = factory("arithmetic")(images).serialize()
    for bad in (b"", b"garbage", b"\x80\x04}.", b"{}", b"[]", b"null", data[:-9], b"[" * 100_000, 5):
        ours_raises(lambda dali, bad=bad: dali.Pipeline.deserialize(bad), RuntimeError, "not a valid serialized pipeline")
    with pytest.raises(FileNotFoundError):
        ours.Pipeline.deserialize(filename=str(tmp_path / "missing"))
    with pytest.raises(TypeError, match="other"):
        ours.Pipeline.deserialize(data, other=3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["arithmetic", "indices", "several_sets"])
def test_hostile_files(name: str, images: Path) -> None:
    """Each change of a valid file is refused, or is a pipeline that runs or raises."""
    state = json.loads(factory(name, seed=3)(images).serialize())
    draw = random.Random(5)
    everywhere = [path for path in places(state) if path]
    refused = taken = 0
    for _ in range(300):
        path = draw.choice(everywhere)
        value = draw.choice([*HOSTILE, "python_function", "torch_python_function", "__import__", "arithmetic.eval", "constant", draw.randrange(9)])
        try:
            text = json.dumps(replace_at(copy.deepcopy(state), path, value))
        except (TypeError, ValueError):
            continue
        try:
            pipe = ours.Pipeline.deserialize(text.encode(), py_num_workers=1)
            # A huge shape is a program that needs more memory, and a blocking input waits for one that feeds it.
            if not any(digit * 4 in text for digit in "0123456789") and "blocking" not in path:
                pipe.run()
            taken += 1
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, MemoryError, OverflowError):
            refused += 1
    assert refused > 50
    assert taken > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GRAPHS)
def test_mutated_files_raise_runtime_errors(name: str, images: Path) -> None:
    """Bytes that are changed, lost or repeated, and values of other types anywhere: RuntimeError or a pipeline, and no other exception."""
    data, draw = factory(name, seed=3)(images).serialize(), random.Random(7)
    refused = 0
    for k in range(200):
        text = mutate(data, k % 6, draw)
        if k % 2:
            state = json.loads(data)
            path = draw.choice([path for path in places(state) if path])
            value = draw.choice([*HOSTILE, {"is": "node", "value": [0, 0]}, {"is": "slice", "values": [1]}, "readers.coco", "constant"])
            try:
                text = json.dumps(replace_at(state, path, value)).encode()
            except (TypeError, ValueError):
                continue
        for load in (ours.Pipeline.deserialize, ours.Pipeline(py_num_workers=1).deserialize_and_build):
            try:
                load(text)
            except RuntimeError:
                refused += 1
    assert refused > 100


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("key", ["save_preprocessed_annotations", "dump_meta_files"])
def test_graphs_that_write_files_are_refused(key: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    annotations = tmp_path / "annotations.json"
    annotations.write_text(json.dumps({"images": [{"id": 1, "file_name": "0.png"}], "annotations": [], "categories": []}))
    folder = "dump_meta_files_path" if key == "dump_meta_files" else f"{key}_dir"

    @ours.pipeline_def(batch_size=1)
    def definition(saved: dict[str, Any]) -> Any:
        return fn.readers.coco(annotations_file=str(annotations), file_root=str(images / "class"), **saved)[0]

    with pytest.raises(RuntimeError, match=r"serialize: .*writes files \(save_preprocessed_annotations\)"):
        definition({key: True, folder: str(tmp_path)}).serialize()
    content = json.loads(definition({}).serialize())
    content["operators"][0]["constants"] |= {key: True, folder: str(tmp_path)}
    for load in (ours.Pipeline.deserialize, ours.Pipeline().deserialize_and_build):
        with pytest.raises(RuntimeError, match=f"not a valid serialized pipeline: operator 0 .*writes files .{key}"):
            load(json.dumps(content).encode())
    assert [path.name for path in tmp_path.iterdir()] == ["annotations.json"]
    content["operators"][0]["constants"] |= {key: False}
    ours.Pipeline.deserialize(json.dumps(content).encode())


def test_graphs_that_dump_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @ours.pipeline_def(batch_size=1)
    def definition() -> Any:
        return fn.flip(types.Constant(np.zeros((2, 2, 3), np.uint8), layout="HWC"))

    content = json.loads(definition().serialize())
    flip = next(value for value in content["operators"] if value["schema"] == "flip")
    flip["schema"], flip["constants"] = "dump_image", {"suffix": "/../../x"}
    with pytest.raises(RuntimeError, match="writes files"):
        ours.Pipeline.deserialize(json.dumps(content).encode())
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "stored",
    [{"checkpoint": "x"}, {"py_callback_pickler": "os"}, {"no_such": 1}, {"num_threads": 10**9}, {"prefetch_queue_depth": 10**9}, {"seed": [1]}],
)
def test_stored_arguments_are_bounded(stored: dict[str, Any], images: Path) -> None:
    content = json.loads(factory("arithmetic")(images).serialize())
    content["arguments"] |= stored
    with pytest.raises(RuntimeError, match="not a valid serialized pipeline: 'arguments'"):
        ours.Pipeline.deserialize(json.dumps(content).encode())


def test_files_load_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pickle.loads", None)
    monkeypatch.setattr("pickle.load", None)
    for schema in (
        "python_function",
        "torch_python_function",
        "os.system",
        "readers.__class__",
        "_conditional._Split",
        "external_source.__globals__",
    ):
        content = {
            "kind": "pipeline of torch_ndd.dali", "version": 1, "arguments": {"batch_size": 1}, "outputs": [[0, 0]], "sinks": [],
            "operators": [{
                "schema": schema, "title": "fn.x", "name": "x", "named": True, "device": "cpu", "preserve": False, "seed": None, "twin": None,
                "inputs": [], "arguments": {}, "constants": {"function": "print"},
            }],
        }  # fmt: skip
        with pytest.raises(RuntimeError, match="there is no such operator"):
            ours.Pipeline.deserialize(json.dumps(content).encode())


VALUES = [
    None, True, 3, 2.5, float("inf"), "text", [1, [2.5, "x"]], (1, 2), {"a": [1]}, types.UINT8, types.INTERP_CUBIC, types.RGB, slice(1, None, 2),
    newaxis("C"), types.Constant(3).uint8(), np.float32(1.5), np.int64(7), torch.int16, np.arange(6, dtype=np.uint16).reshape(2, 3),
    torch.tensor([[1.5, float("nan")]]), torch.tensor(True), np.zeros((0, 3)),
    tfrecord.FixedLenFeature([2], tfrecord.int64, 0), tfrecord.VarLenFeature(tfrecord.string, ""),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=show)
def test_values_survive_serialization(value: Any) -> None:
    from torch_ndd.dali._serialization.values import decode, encode

    result = decode(json.loads(json.dumps(encode(value))))
    assert type(result) is type(value)
    if isinstance(value, np.ndarray | torch.Tensor):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(*(np.asarray(torch.as_tensor(value).double()) for value in (result, value)))
    elif isinstance(value, type(newaxis) | type(types.Constant(3))):
        assert vars(result) == vars(value)
    else:
        assert result == value


@pytest.mark.parametrize("value", [object(), print, b"x", {3: 1}, np.array(["x"]), 1j])
def test_values_that_cannot_be_stored(value: Any) -> None:
    from torch_ndd.dali._serialization.values import encode

    with pytest.raises(TypeError, match="cannot be stored"):
        encode(value)


def test_encoded_images_are_decoded_after_loading(images: Path) -> None:
    """The pipeline of a server: an input, decoding, resizing."""

    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None, prefetch_queue_depth=1)
        def definition() -> Any:
            files = dali.fn.external_source(name="DALI_INPUT_0", dtype=dali.types.UINT8, ndim=1)
            return dali.fn.flip(dali.fn.decoders.image(files, output_type=dali.types.RGB))

        loaded = dali.Pipeline.deserialize(definition().serialize(), batch_size=2)
        loaded.feed_input("DALI_INPUT_0", [np.frombuffer((images / "class" / f"{k}.png").read_bytes(), np.uint8) for k in range(2)])
        return loaded.run()

    both(program)


def test_autoserialize_finds_the_marked_pipeline(tmp_path: Path) -> None:
    def program(dali: Any, count: int) -> Any:
        triton = sub(dali, "plugin.triton")
        invoke = sub(dali, "_utils.autoserialize").invoke_autoserialize

        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def definition(value: int = 3) -> Any:
            return dali.fn.constant(idata=[value])

        module = ModuleType("model")
        module.other = dali.pipeline_def(lambda: dali.fn.constant(idata=[2]))
        if count:
            module.one = triton.autoserialize(definition)
        if count > 1:
            module.two = triton.autoserialize(dali.pipeline_def(lambda: dali.fn.constant(idata=[1])))
        invoke(module, str(tmp_path / "model.dali"))
        return dali.Pipeline.deserialize(filename=str(tmp_path / "model.dali")).run()

    both(lambda dali: program(dali, 1))
    for count in (0, 2):
        both(lambda dali, count=count: program(dali, count), raises=RuntimeError)
    both(lambda dali: sub(dali, "plugin.triton").autoserialize(lambda: None), raises=TypeError)


def test_autoserialize_searches_the_folder_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model_for_a_test").mkdir()
    (tmp_path / "model_for_a_test" / "__init__.py").write_text("import os\nfrom . import graph, other\n")
    (tmp_path / "model_for_a_test" / "other.py").write_text("from . import graph\nfrom .graph import definition\n")
    (tmp_path / "model_for_a_test" / "graph.py").write_text(
        "from torch_ndd.dali import fn, pipeline_def\n"
        "from torch_ndd.dali.plugin.triton import autoserialize\n"
        "@autoserialize\n"
        "@pipeline_def(batch_size=2)\n"
        "def definition():\n"
        "    return fn.constant(idata=[5])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    sub(ours, "_utils.autoserialize").invoke_autoserialize(importlib.import_module("model_for_a_test"), str(tmp_path / "model.dali"))
    assert plain(ours.Pipeline.deserialize(filename=str(tmp_path / "model.dali")).run())[0]["samples"][0].tolist() == [5]
