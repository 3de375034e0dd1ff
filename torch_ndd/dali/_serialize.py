# SPDX-License-Identifier: Apache-2.0
"""Graphs of pipelines as JSON: ``Pipeline.serialize`` and ``Pipeline.deserialize``.

Loading makes the operators again by the functions that made them, which check the arguments as in a program. Nothing in the text is executed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .._core.elementwise import operand_count
from .._core.files import read_regular, write_whole
from .._core.states import checked, equal, keys, one_of, or_none, parsed, rows, text, whole, yes_or_no
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


def save(pipeline: Defining, define_graph: Callable[[], Any] | None = None, filename: str | None = None) -> bytes:
    """Return the graph and the constructor's arguments, and write them to a file if there is a name.

    Args:
        pipeline: It need not be built: its files are not looked at.
        define_graph: Defines the graph, if the pipeline has none.
        filename: The file.

    Raises:
        RuntimeError: the graph has Python functions, or arguments that JSON cannot hold.
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
        RuntimeError: not a result of :func:`save`.
    """
    if (data is None) == (filename is None):
        raise ValueError("Pipeline.deserialize: give either serialized_pipeline or filename")
    content = _read(read_regular(filename) if filename is not None else data)
    try:
        stored = {key: _values.decoded(value) for key, value in content["arguments"].items()}
        pipeline = cls(**{**stored, **arguments})
    except (TypeError, ValueError) as error:
        if any(key not in content["arguments"] for key in arguments) and isinstance(error, TypeError):
            raise
        raise RuntimeError(f"Pipeline.deserialize: this is no pipeline: 'arguments': {error}") from error
    _define(pipeline, content)
    pipeline.build()
    return pipeline


def load_into(pipeline: Defining, data: bytes) -> None:
    """Define a pipeline by a serialized graph, and build it. Raise RuntimeError for anything else than a result of :func:`save`.

    Arguments that its constructor was not given, or given with their default, are those that were stored.
    """
    content = _read(data)
    try:
        stored = {key: _values.decoded(value) for key, value in content["arguments"].items()}
        pipeline._configure(stored)
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"Pipeline.deserialize_and_build: this is no pipeline: 'arguments': {error}") from error
    _define(pipeline, content)
    pipeline.build()


def _read(data: Any) -> dict[str, Any]:
    try:
        if not isinstance(data, bytes | bytearray | str):
            raise ValueError(f"the bytes of Pipeline.serialize are needed, got {type(data).__name__}")
        return checked("Pipeline.deserialize", _CONTENT, parsed("Pipeline.deserialize", bytes(data) if isinstance(data, bytearray) else data))
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
            except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, NotImplementedError) as error:
                raise RuntimeError(f"Pipeline.deserialize: this is no pipeline: operator {place} ({one['schema']!r:.60}): {error}") from error
        try:
            pipeline.set_outputs(*(node(one) for one in content["outputs"]))
            for one in content["sinks"]:
                pipeline.add_sink(node(one))
        except ValueError as error:
            raise RuntimeError(f"Pipeline.deserialize: this is no pipeline: {error}") from None


def _made(one: Mapping[str, Any], node: Callable[[Any], DataNode], before: Sequence[list[DataNode]]) -> list[DataNode]:
    """Make an operator and return its outputs."""
    inputs = [node(each) for each in one["inputs"]]
    arguments = {key: node(each) for key, each in one["arguments"].items()}
    constants = {key: _values.decoded(each, node) for key, each in one["constants"].items()}
    schema = one["schema"]
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
