# SPDX-License-Identifier: Apache-2.0
"""Graphs of pipelines as JSON: ``Pipeline.serialize`` and ``Pipeline.deserialize``.

Loading makes the operators again by the functions that made them, which check the arguments as in a program. Nothing in the text is executed, and
operators that write files are refused.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .._core.context.states import check_state, equal, keys, one_of, or_none, parse_state, rows, text, whole, yes_or_no
from .._core.process.files import read_regular, write_whole
from .._core.values.elementwise import operand_count
from . import _calls, _values, data_node
from ._conditionals import _operations as conditions
from ._defining import Defining
from ._graph import DEVICES, Node, Operation
from ._schema import schemas
from ._video_input import video
from .auto_aug import _operations as augmentations
from .data_node import DataNode
from .external_source import external_source

P = TypeVar("P", bound=Defining)

_KIND = "pipeline of torch_ndd.dali"
_MOST = 1_000_000  # operators
# Arguments of the constructor that belong to a run.
_OF_A_RUN = ("checkpoint", "py_callback_pickler")
_MAX_OF_A_RUN = 1 << 16  # threads, or iterations ahead
# Arguments that make readers write files.
_WRITING = ("save_preprocessed_annotations", "dump_meta_files")
# What operators raise for arguments that they do not take.
_REFUSALS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, OSError, AssertionError)


def save(pipeline: Defining, define_graph: Callable[[], Any] | None = None, filename: str | None = None) -> bytes:
    """Return the graph and the constructor's arguments, and write them to a file if there is a name.

    Args:
        pipeline: It need not be built: its files are not looked at.
        define_graph: Defines the graph, if the pipeline has none.
        filename: The file.

    Raises:
        RuntimeError: the graph has Python functions, operators that write files, or arguments that JSON cannot hold.
    """
    if define_graph is not None:
        with pipeline:
            made = define_graph()
        pipeline.set_outputs(*(made if isinstance(made, tuple | list) else (made,)))
    pipeline._define()
    places = {operation.serial: k for k, operation in enumerate(pipeline._operations)}

    def reference(node: Node) -> list[int]:
        assert node.source is not None
        return [places[node.source.serial], node.index]

    try:
        arguments = {key: _values.encoded(value) for key, value in pipeline._arguments.items() if key not in _OF_A_RUN}
        content = {
            "kind": _KIND,
            "version": 1,
            "arguments": arguments,
            "operators": [_described(one, places, reference) for one in pipeline._operations],
            "outputs": [reference(node) for node in pipeline._outputs],
            "sinks": [reference(node) for node in pipeline._sinks],
        }
    except TypeError as error:
        raise RuntimeError(f"Pipeline.serialize: {error}") from None
    written = json.dumps(content, indent=1)
    if filename is not None:
        write_whole(filename, written)
    return written.encode()


def _described(operation: Operation, places: Mapping[int, int], reference: Callable[[Node], list[int]]) -> dict[str, Any]:
    if operation.schema not in _MAKERS and operation.schema not in schemas() and not operation.schema.startswith("arithmetic."):
        raise TypeError(f"{operation.title} ({operation.name!r}) cannot be serialized: it calls a Python function")
    if (written := _written(operation.schema, {**operation.arguments, **operation.constants})) is not None:
        raise TypeError(f"{operation.title} ({operation.name!r}) cannot be serialized: it writes files ({written}), which a loaded graph must not")
    try:
        constants = {key: _values.encoded(value, reference) for key, value in operation.constants.items()}
    except TypeError as error:
        raise TypeError(f"{operation.title} ({operation.name!r}) cannot be serialized: {error}") from None
    return {
        "schema": operation.schema,
        "title": operation.title,
        "name": operation.name,
        "named": operation.named,
        "device": operation.device,
        "preserve": operation.preserve,
        "seed": operation.own_seed,
        "twin": None if operation.twin is None else places.get(operation.twin.serial),
        "inputs": [reference(node) for node in operation.inputs],
        "arguments": {key: reference(node) for key, node in operation.arguments.items()},
        "constants": constants,
    }


def _dict(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a dict, got {value!r:.60}")
    return value


_REFERENCE = rows(whole(0, _MOST), 2, 2)
_OPERATOR = keys(
    schema=text,
    title=text,
    name=text,
    named=yes_or_no,
    device=one_of(*DEVICES),
    preserve=yes_or_no,
    seed=or_none(whole(-(2**63), 2**64 - 1)),
    twin=or_none(whole(0, _MOST)),
    inputs=rows(_REFERENCE, 0, _MOST),
    arguments=_dict,
    constants=_dict,
)
_CONTENT = keys(
    kind=one_of(_KIND),
    version=equal(1),
    arguments=_dict,
    operators=rows(_OPERATOR, 1, _MOST),
    outputs=rows(_REFERENCE, 1, _MOST),
    sinks=rows(_REFERENCE, 0, _MOST),
)


def load(cls: type[P], data: bytes | None, filename: str | None, arguments: Mapping[str, Any]) -> P:
    """Return the built pipeline of a serialized graph. ``arguments`` override the stored ones of the constructor.

    Raises:
        ValueError: neither the bytes nor a file, or both.
        RuntimeError: not a result of :func:`save`, or a graph that cannot be built.
    """
    if (data is None) == (filename is None):
        raise ValueError("Pipeline.deserialize: give either serialized_pipeline or filename")
    content = _read(read_regular(filename) if filename is not None else data)
    try:
        pipeline = cls(**{**_arguments(content), **arguments})
    except _REFUSALS as error:
        cls(**arguments)  # raises again if they are what is wrong
        raise RuntimeError(f"Pipeline.deserialize: this is no pipeline: 'arguments': {_reason(error)}") from error
    _define_and_build(pipeline, content, "deserialize")
    return pipeline


def load_into(pipeline: Defining, data: bytes) -> None:
    """Define a pipeline by a serialized graph, and build it. Raise RuntimeError for anything else than a result of :func:`save`.

    Arguments that its constructor was not given, or given with their default, are those that were stored.
    """
    content = _read(data)
    try:
        pipeline._configure(_arguments(content))
    except _REFUSALS as error:
        raise RuntimeError(f"Pipeline.deserialize_and_build: this is no pipeline: 'arguments': {_reason(error)}") from error
    _define_and_build(pipeline, content, "deserialize_and_build")


def _arguments(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored arguments of the constructor."""
    known = inspect.signature(Defining.__init__).parameters
    for key in content["arguments"]:
        if key in _OF_A_RUN or (key not in known and "batch_size" in known):
            raise ValueError(f"{key!r:.60} is not an argument that is stored")
    stored = {key: _values.decoded(value) for key, value in content["arguments"].items()}
    for key in ("num_threads", "prefetch_queue_depth", "py_num_workers"):
        for number in stored[key].values() if isinstance(stored.get(key), dict) else [stored.get(key)]:
            or_none(whole(1, _MAX_OF_A_RUN))(number, key)
    return stored


def _define_and_build(pipeline: Defining, content: Mapping[str, Any], method: str) -> None:
    _define(pipeline, content)
    try:
        pipeline.build()
    except RuntimeError:
        raise
    except _REFUSALS as error:
        raise RuntimeError(f"Pipeline.{method}: the pipeline cannot be built: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _read(data: Any) -> dict[str, Any]:
    try:
        if not isinstance(data, bytes | bytearray | str):
            raise ValueError(f"the bytes of Pipeline.serialize are needed, got {type(data).__name__}")
        return check_state(
            "Pipeline.deserialize", _CONTENT, parse_state("Pipeline.deserialize", bytes(data) if isinstance(data, bytearray) else data)
        )
    except ValueError as error:
        raise RuntimeError(f"Pipeline.deserialize: this is no pipeline: {str(error).removeprefix('Pipeline.deserialize: ')}") from None


def _define(pipeline: Defining, content: Mapping[str, Any]) -> None:
    """Make the operators in a pipeline."""
    made: list[list[DataNode]] = []

    def node(reference: Any) -> DataNode:
        place, index = _REFERENCE(reference, "a node")
        if place >= len(made) or index >= len(made[place]):
            raise ValueError(f"there is no output {index} of an operator {place} before operator {len(made)}")
        return made[place][index]

    with pipeline:
        for place, one in enumerate(content["operators"]):
            try:
                made.append(_made(one, node, made))
            except _REFUSALS as error:
                raise RuntimeError(
                    f"Pipeline.deserialize: this is no pipeline: operator {place} ({one['schema']!r:.60}): {_reason(error)}"
                ) from error
        try:
            pipeline.set_outputs(*(node(one) for one in content["outputs"]))
            for one in content["sinks"]:
                pipeline.add_sink(node(one))
        except _REFUSALS as error:
            raise RuntimeError(f"Pipeline.deserialize: this is no pipeline: {_reason(error)}") from None


def _made(one: Mapping[str, Any], node: Callable[[Any], DataNode], before: Sequence[list[DataNode]]) -> list[DataNode]:
    """Make an operator and return its outputs."""
    inputs = [node(each) for each in one["inputs"]]
    arguments = {key: node(each) for key, each in one["arguments"].items()}
    constants = {key: _values.decoded(each, node) for key, each in one["constants"].items()}
    schema = one["schema"]
    if (written := _written(schema, {**arguments, **constants})) is not None:
        raise ValueError(f"it writes files ({written}), which a graph from a file must not")
    if schema.startswith("arithmetic."):
        maker: Callable[..., Any] = _arithmetic
    elif schema in _MAKERS:
        maker = _MAKERS[schema]
    elif schema in schemas():
        maker = _operator
    else:
        raise ValueError("there is no such operator")
    result = maker(one, inputs, arguments, constants)
    outputs = list(result.values()) if isinstance(result, dict) else list(result) if isinstance(result, list | tuple) else [result]
    operation = outputs[0].source if outputs else None
    if operation is not None:
        operation.name, operation.named, operation.preserve = one["name"], one["named"], one["preserve"]
        for k, output in enumerate(outputs):
            output.name = operation.name if len(outputs) == 1 else f"{operation.name}[{k}]"
        if one["twin"] is not None:
            operation.twin = node([one["twin"], 0]).source
    return outputs


def _written(schema: str, arguments: Mapping[str, Any]) -> str | None:
    """Return what makes an operator write files; None if it does not."""
    if schema in schemas() and schemas()[schema].name == "dump_image":
        return "dump_image"
    return next((key for key in _WRITING if not (isinstance(value := arguments.get(key), int | None) and not value)), None)


def _operator(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    given = {**arguments, **constants, "device": one["device"], "name": one["name"], "preserve": one["preserve"]}
    schema = schemas()[one["schema"]]
    if one["seed"] is not None and "seed" in schema.accepted:
        given["seed"] = one["seed"]
    if schema.name == "batch_permutation":  # its input, if it has one, is the branch that it permutes
        return _calls.call(schema, one["title"], [], given, branch=inputs)
    return _calls.call(schema, one["title"], inputs, given)


def _arithmetic(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    operation, operands = one["schema"].removeprefix("arithmetic."), constants["operands"]
    wanted = operand_count(operation)
    if not isinstance(operands, tuple) or len(operands) != wanted or sum(each is None for each in operands) != len(inputs):
        raise ValueError(f"{operation} has {wanted} operands, got {operands!r:.60} and {len(inputs)} nodes")
    nodes = iter(inputs)
    return data_node.arithmetic(operation, *[next(nodes) if each is None else each for each in operands], title=one["title"])


def _subscript(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    key = constants["key"]
    # Of a key defined in a branch the inputs are the samples of that branch, the nodes in the key all samples.
    if not isinstance(key, tuple) or sum(map(_nodes_in, key)) != len(inputs) - 1:
        raise ValueError(f"an index must have as many nodes as there are inputs after the first one, got {key!r:.60}")
    nodes = iter(inputs[1:])
    return data_node.subscript(inputs[0], tuple([_with_nodes(part, nodes) for part in key]))


def _nodes_in(part: Any) -> int:
    return sum(map(_nodes_in, (part.start, part.stop, part.step))) if isinstance(part, slice) else isinstance(part, DataNode)


def _with_nodes(part: Any, nodes: Iterator[DataNode]) -> Any:
    if isinstance(part, slice):
        return slice(*[_with_nodes(bound, nodes) for bound in (part.start, part.stop, part.step)])
    return next(nodes) if isinstance(part, DataNode) else part


def _shapes(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return data_node.shapes(inputs[0], constants.get("dtype"), one["device"], one["title"])


def _constant(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    value = constants["value"]
    return data_node.constant_node(value, value.dtype, None, constants["layout"], one["device"], one["title"])


def _input(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return external_source(name=one["name"], device=one["device"], **constants)


def _video_input(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return video(name=one["name"], device=one["device"], **constants)


def _move(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return data_node.moved(inputs[0], one["device"])


def _condition(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    function = getattr(conditions, _CONDITIONS[one["schema"]])
    return function(*inputs, *arguments.values(), *constants.values())


def _augmentation(one: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    if one["schema"] == "auto_aug.policy":
        return augmentations.policy_again(inputs[0], one["seed"], **arguments, **constants)
    return augmentations.apply_again(inputs[0], **arguments, **constants)


_CONDITIONS = {
    "_conditional.split": "split",
    "_conditional.merge": "merge",
    "_conditional.negated": "negated",
    "_conditional.condition": "condition_of",
    "_conditional.operand": "checked",
}
_MAKERS: dict[str, Callable[..., Any]] = {
    "constant": _constant,
    "external_source": _input,
    "experimental.inputs.video": _video_input,
    "move.cpu": _move,
    "move.gpu": _move,
    "shapes": _shapes,
    "tensor_subscript": _subscript,
    "auto_aug.augmentation": _augmentation,
    "auto_aug.policy": _augmentation,
    **dict.fromkeys(_CONDITIONS, _condition),
}
