# SPDX-License-Identifier: Apache-2.0
"""Graphs as JSON: ``Pipeline.serialize`` and ``Pipeline.deserialize``.

Loading calls the functions that created the operators, which check the arguments as in a program. Nothing in the text is executed, and operators
that write files are refused.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..._core.context.states import check_state, equal, keys, one_of, or_none, parse_state, rows, text, whole, yes_or_no
from ..._core.process.files import write_whole
from ..._core.values.elementwise import operand_count
from .. import data_node
from .._conditionals import _operations as conditions
from .._functions import calls
from .._functions.schema import schemas
from .._functions.video_input import video
from .._graph.graph import DEVICES, Graph, Node, Operation
from ..auto_aug import _operations as augmentations
from ..data_node import DataNode
from ..external_source import external_source
from . import values

_KIND = "pipeline of torch_ndd.dali"
_MAX_OPERATORS = 1_000_000
# Arguments of the constructor that belong to a run and are not stored.
_RUN_ARGUMENTS = ("checkpoint", "py_callback_pickler")
# A file must not make the program start millions of threads, or read ahead without a bound.
_MAX_PARALLELISM = 1 << 16  # threads, or iterations ahead
# Arguments that make readers write files.
_WRITING = ("save_preprocessed_annotations", "dump_meta_files")
# Exceptions of operators for arguments that they do not take.
REFUSALS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, OSError, AssertionError)


def save(graph: Graph, arguments: Mapping[str, Any], filename: str | None = None) -> bytes:
    """Return a complete graph and the pipeline's arguments, and write them to a file if there is a name.

    Raises:
        RuntimeError: the graph has Python functions, operators that write files, or arguments that JSON cannot represent.
    """
    # Operators refer to each other by their place in the list, which is one of dependency.
    places = {operation.serial: k for k, operation in enumerate(graph.operations)}

    def reference(node: Node) -> list[int]:
        assert node.source is not None
        return [places[node.source.serial], node.index]

    try:
        content = {
            "kind": _KIND,
            "version": 1,
            "arguments": {key: values.encode(value) for key, value in arguments.items() if key not in _RUN_ARGUMENTS},
            "operators": [_encode_operation(operation, places, reference) for operation in graph.operations],
            "outputs": [reference(node) for node in graph.outputs],
            "sinks": [reference(node) for node in graph.sinks],
        }
    except TypeError as error:
        raise RuntimeError(f"Pipeline.serialize: {error}") from None
    serialized = json.dumps(content, indent=1)
    if filename is not None:
        write_whole(filename, serialized)
    return serialized.encode()


def _encode_operation(operation: Operation, places: Mapping[int, int], reference: Callable[[Node], list[int]]) -> dict[str, Any]:
    if operation.schema not in _CREATORS and operation.schema not in schemas() and not operation.schema.startswith("arithmetic."):
        raise TypeError(f"{operation.title} ({operation.name!r}) cannot be serialized: it calls a Python function")
    if (cause := _find_writing_argument(operation.schema, {**operation.arguments, **operation.constants})) is not None:
        raise TypeError(f"{operation.title} ({operation.name!r}) cannot be serialized: it writes files ({cause}), which a loaded graph must not")
    try:
        constants = {key: values.encode(value, reference) for key, value in operation.constants.items()}
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


_REFERENCE = rows(whole(0, _MAX_OPERATORS), 2, 2)
_OPERATOR = keys(
    schema=text,
    title=text,
    name=text,
    named=yes_or_no,
    device=one_of(*DEVICES),
    preserve=yes_or_no,
    seed=or_none(whole(-(2**63), 2**64 - 1)),
    twin=or_none(whole(0, _MAX_OPERATORS)),
    inputs=rows(_REFERENCE, 0, _MAX_OPERATORS),
    arguments=_dict,
    constants=_dict,
)
_CONTENT = keys(
    kind=one_of(_KIND),
    version=equal(1),
    arguments=_dict,
    operators=rows(_OPERATOR, 1, _MAX_OPERATORS),
    outputs=rows(_REFERENCE, 1, _MAX_OPERATORS),
    sinks=rows(_REFERENCE, 0, _MAX_OPERATORS),
)


def read(data: Any) -> dict[str, Any]:
    """Return the checked content of a serialized graph. Raise RuntimeError unless it is a result of :func:`save`."""
    try:
        if not isinstance(data, bytes | bytearray | str):
            raise ValueError(f"the bytes of Pipeline.serialize are needed, got {type(data).__name__}")
        return check_state(
            "Pipeline.deserialize", _CONTENT, parse_state("Pipeline.deserialize", bytes(data) if isinstance(data, bytearray) else data)
        )
    except ValueError as error:
        raise _invalid(str(error).removeprefix("Pipeline.deserialize: ")) from None


def read_arguments(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored arguments of the pipeline. Raise ValueError for an argument that is not stored, or a number beyond what a machine can run."""
    for key in content["arguments"]:
        if key in _RUN_ARGUMENTS:
            raise ValueError(f"{key!r:.60} is not an argument that is stored")
    arguments = {key: values.decode(value) for key, value in content["arguments"].items()}
    for key in ("num_threads", "prefetch_queue_depth", "py_num_workers"):
        for number in arguments[key].values() if isinstance(arguments.get(key), dict) else [arguments.get(key)]:
            or_none(whole(1, _MAX_PARALLELISM))(number, key)
    return arguments


def argument_error(method: str, error: Exception) -> RuntimeError:
    """Return the error for stored arguments that the pipeline refuses."""
    return RuntimeError(f"Pipeline.{method}: not a valid serialized pipeline: 'arguments': {describe_error(error)}")


def describe_error(error: Exception) -> str:
    """Return the text of an error, or its type if it has none."""
    return str(error) or type(error).__name__


def _invalid(reason: str) -> RuntimeError:
    return RuntimeError(f"Pipeline.deserialize: not a valid serialized pipeline: {reason}")


def define(content: Mapping[str, Any]) -> tuple[list[DataNode], list[DataNode]]:
    """Add the operators to the graph that is being defined. Return the nodes of its outputs and sinks."""
    nodes: list[list[DataNode]] = []  # by operator

    def resolve(reference: Any) -> DataNode:
        place, index = _REFERENCE(reference, "a node")
        # Only to operators before: a reference to a later one could be a cycle.
        if place >= len(nodes) or index >= len(nodes[place]):
            raise ValueError(f"there is no output {index} of an operator {place} before operator {len(nodes)}")
        return nodes[place][index]

    for place, stored in enumerate(content["operators"]):
        try:
            nodes.append(_create(stored, resolve))
        except REFUSALS as error:
            raise _invalid(f"operator {place} ({stored['schema']!r:.60}): {describe_error(error)}") from error
    try:
        return [resolve(reference) for reference in content["outputs"]], [resolve(reference) for reference in content["sinks"]]
    except REFUSALS as error:
        raise _invalid(describe_error(error)) from None


def _create(stored: Mapping[str, Any], resolve: Callable[[Any], DataNode]) -> list[DataNode]:
    """Create an operator and return its outputs."""
    inputs = [resolve(reference) for reference in stored["inputs"]]
    arguments = {key: resolve(reference) for key, reference in stored["arguments"].items()}
    constants = {key: values.decode(value, resolve) for key, value in stored["constants"].items()}
    schema = stored["schema"]
    # Checked again: the text may come from anyone.
    if (cause := _find_writing_argument(schema, {**arguments, **constants})) is not None:
        raise ValueError(f"it writes files ({cause}), which a graph from a file must not")
    if schema.startswith("arithmetic."):
        creator: Callable[..., Any] = _create_arithmetic
    elif schema in _CREATORS:
        creator = _CREATORS[schema]
    elif schema in schemas():
        creator = _create_operator
    else:
        raise ValueError("there is no such operator")
    result = creator(stored, inputs, arguments, constants)
    outputs = list(result.values()) if isinstance(result, dict) else list(result) if isinstance(result, list | tuple) else [result]
    operation = outputs[0].source if outputs else None
    if operation is not None:
        # The function that created the operator may have given it another name, such as that of an input set.
        operation.name, operation.named, operation.preserve = stored["name"], stored["named"], stored["preserve"]
        for k, output in enumerate(outputs):
            output.name = operation.name if len(outputs) == 1 else f"{operation.name}[{k}]"
        if stored["twin"] is not None:
            operation.twin = resolve([stored["twin"], 0]).source
    return outputs


def _find_writing_argument(schema: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the argument that makes an operator write files, or the operator; None if it does not write."""
    if schema in schemas() and schemas()[schema].name == "dump_image":
        return "dump_image"
    # Anything but a false number counts, also a node: its value is not known yet.
    return next((key for key in _WRITING if not (isinstance(value := arguments.get(key), int | None) and not value)), None)


def _create_operator(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    options = {**arguments, **constants, "device": stored["device"], "name": stored["name"], "preserve": stored["preserve"]}
    schema = schemas()[stored["schema"]]
    if stored["seed"] is not None and "seed" in schema.accepted:
        options["seed"] = stored["seed"]
    if schema.name == "batch_permutation":  # its input, if any, has the samples of its branch
        return calls.call(schema, stored["title"], [], options, branch=inputs)
    return calls.call(schema, stored["title"], inputs, options)


def _create_arithmetic(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    operation, operands = stored["schema"].removeprefix("arithmetic."), constants["operands"]
    count = operand_count(operation)
    if not isinstance(operands, tuple) or len(operands) != count or sum(operand is None for operand in operands) != len(inputs):
        raise ValueError(f"{operation} has {count} operands, got {operands!r:.60} and {len(inputs)} nodes")
    nodes = iter(inputs)
    return data_node.arithmetic(operation, *[next(nodes) if operand is None else operand for operand in operands], title=stored["title"])


def _create_subscript(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    key = constants["key"]
    # In a branch of a condition, the inputs have the samples of the branch, but the nodes in the key all samples: the inputs replace them.
    if not isinstance(key, tuple) or sum(map(_count_nodes, key)) != len(inputs) - 1:
        raise ValueError(f"an index must have as many nodes as there are inputs after the first one, got {key!r:.60}")
    nodes = iter(inputs[1:])
    return data_node.subscript(inputs[0], tuple([_replace_nodes(part, nodes) for part in key]))


def _count_nodes(part: Any) -> int:
    return sum(map(_count_nodes, (part.start, part.stop, part.step))) if isinstance(part, slice) else isinstance(part, DataNode)


def _replace_nodes(part: Any, nodes: Iterator[DataNode]) -> Any:
    if isinstance(part, slice):
        return slice(*[_replace_nodes(bound, nodes) for bound in (part.start, part.stop, part.step)])
    return next(nodes) if isinstance(part, DataNode) else part


def _create_shapes(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return data_node.shapes(inputs[0], constants.get("dtype"), stored["device"], stored["title"])


def _create_constant(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    value = constants["value"]
    return data_node.constant_node(value, value.dtype, None, constants["layout"], stored["device"], stored["title"])


def _create_input(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return external_source(name=stored["name"], device=stored["device"], **constants)


def _create_video_input(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return video(name=stored["name"], device=stored["device"], **constants)


def _create_move(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    return data_node.move(inputs[0], stored["device"])


def _create_condition(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    function = getattr(conditions, _CONDITIONS[stored["schema"]])
    return function(*inputs, *arguments.values(), *constants.values())


def _create_augmentation(stored: Mapping[str, Any], inputs: list[DataNode], arguments: dict[str, DataNode], constants: dict[str, Any]) -> Any:
    if stored["schema"] == "auto_aug.policy":
        return augmentations.policy_again(inputs[0], stored["seed"], **arguments, **constants)
    return augmentations.apply_again(inputs[0], **arguments, **constants)


_CONDITIONS = {
    "_conditional.split": "split",
    "_conditional.merge": "merge",
    "_conditional.negated": "negate",
    "_conditional.condition": "as_condition",
    "_conditional.operand": "check_operand",
}
_CREATORS: dict[str, Callable[..., Any]] = {
    "constant": _create_constant,
    "external_source": _create_input,
    "experimental.inputs.video": _create_video_input,
    "move.cpu": _create_move,
    "move.gpu": _create_move,
    "shapes": _create_shapes,
    "tensor_subscript": _create_subscript,
    "auto_aug.augmentation": _create_augmentation,
    "auto_aug.policy": _create_augmentation,
    **dict.fromkeys(_CONDITIONS, _create_condition),
}
