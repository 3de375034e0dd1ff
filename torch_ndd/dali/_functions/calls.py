# SPDX-License-Identifier: Apache-2.0
"""One call of a function of ``fn`` or an operator of ``ops``: from its arguments to nodes of the graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..._core.operators.arguments import Argument, Call, Role, check_plain, prepare_argument
from ..._core.suggestions import similar
from .. import types
from .._conditionals import find_branch_size
from .._graph.errors import UnknownArgumentError, warn_deprecated
from .._graph.graph import check_device, current_graph
from .._graph.operations import OperatorOperation, ReaderOperation
from ..data_node import DataNode, as_node, create
from .schema import DEPRECATED_ARGUMENTS, Schema


def call(
    schema: Schema,
    title: str,
    inputs: Sequence[Any],
    arguments: Mapping[str, Any],
    default_device: str | None = None,
    branch: Sequence[DataNode] | None = None,
) -> Any:
    """Add an operator to the graph and return its node, or a list of nodes if it has several outputs; with several input sets, a list with the
    results of each.

    A deprecated operator warns.

    ``branch`` is a list with a node that has the samples of the branch that the operator is in; None for the branch that is being traced.

    Raises:
        ValueError: a wrong number of inputs, an unknown device, an argument on the GPU, or a value that the operator does not take.
        TypeError: an input or an argument of another type.
        UnknownArgumentError: an argument that the operator does not have.
    """
    if schema.replacement is not None:
        warn_deprecated(f"{title} is deprecated" + (f"; use fn.{schema.replacement}" if schema.replacement else ""))
    least, most = schema.inputs
    if not least <= len(inputs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ValueError(f"{title}: the operator takes {wanted} inputs by position, got {len(inputs)}")
    keywords = _resolve_names(schema, title, arguments)
    graph = current_graph()
    # Debug mode: batches of the program become nodes with data.
    if graph is not None and graph.runs_immediately:
        inputs = [graph.adopt(title, value) for value in inputs]
        keywords = {key: graph.adopt(title, value) if key in schema.nodes else value for key, value in keywords.items()}
    sets = input_sets(title, inputs)
    device = device_of(title, keywords.pop("device", None), sets[0] if sets else [], default_device)
    name, preserve = keywords.pop("name", None), keywords.pop("preserve", False)
    keywords.pop("bytes_per_sample_hint", None)
    seed = keywords.pop("seed", None)
    seed = None if seed is None else seed_of(title, seed)
    nodes, constants = _split_arguments(schema, title, keywords)
    missing = [key for key in schema.missing if key not in nodes and key not in constants]
    has_features = schema.is_reader and "features" in constants
    names = list(constants["features"]) if has_features else []
    outputs: int | list[str] = names if has_features else schema.count(constants, len(inputs))
    results: list[Any] = []
    first = None
    branch_size: Sequence[DataNode] = []
    if schema.name == "batch_permutation":  # it has no input, but in a branch it permutes the samples of the branch
        branch_size = find_branch_size() if branch is None else branch
    # One operator for each input set. `twin` gives them the same random numbers.
    for k, input_set in enumerate(sets if inputs else [[]]):
        created = create(
            ReaderOperation if schema.is_reader else OperatorOperation,
            schema.class_name.rpartition(".")[2],
            [*branch_size] or [as_node(value, f"{title}: input {position}") for position, value in enumerate(input_set)],
            nodes,
            constants,
            schema=schema.name,
            title=title,
            outputs=outputs,
            name=name if k == 0 or name is None else f"{name}_{k}",
            device=device,
            preserve=preserve,
            call=schema.target,
            random=schema.random or schema.is_reader,
            seed=seed,
            twin=first,
            missing=missing,
            sized=bool(branch_size),
        )
        first = created[0].source if first is None and created else first
        results.append(dict(zip(names, created, strict=True)) if has_features else created if outputs != 1 else created[0])
    if len(results) == 1:
        return results[0]
    return results if has_features or outputs == 1 else [list(output) for output in zip(*results, strict=True)]  # by output, not by input set


def has_nodes(value: Any) -> bool:
    """Return whether a list or tuple contains nodes."""
    return isinstance(value, list | tuple) and any(isinstance(item, DataNode) for item in value)


def input_sets(title: str, inputs: Sequence[Any]) -> list[list[Any]]:
    """Return the inputs of each operator that a call creates: several if an input is a list of nodes."""
    # A list of nodes means one operator for each of its elements.
    lengths = {len(value) for value in inputs if has_nodes(value)}
    if len(lengths) > 1:
        raise ValueError(f"{title}: input sets must have equal lengths, got {sorted(lengths)}")
    count = lengths.pop() if lengths else 1
    return [[value[k] if has_nodes(value) else value for value in inputs] for k in range(count)]


def device_of(title: str, device: Any, inputs: Sequence[Any], default: str | None = None) -> str:
    """Return the device of an operator: by default the GPU if an input is there."""
    if device is None:
        if default is not None:
            return default
        return "gpu" if any(isinstance(node, DataNode) and node.device == "gpu" for node in inputs) else "cpu"
    return check_device(title, device)


def seed_of(title: str, seed: Any) -> int | None:
    """Return a checked seed; None for -1, DALI's default."""
    if isinstance(seed, DataNode):
        raise TypeError(f"{title}: the argument 'seed' should not be a 'DataNode'")
    if not hasattr(seed, "__index__"):
        raise TypeError(f"{title}: seed must be an int, got {seed!r}")
    return None if int(seed) == -1 else int(seed)


def check_known(schema: Schema, title: str, key: str) -> None:
    """Raise UnknownArgumentError for an argument that the operator does not have. All take ``seed``."""
    if key not in schema.accepted and key != "seed":
        known = [name for name in schema.accepted if name not in DEPRECATED_ARGUMENTS]
        raise UnknownArgumentError(f"{title} got an unexpected argument {key!r}{similar(key, known)}")


def _resolve_names(schema: Schema, title: str, passed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not None, under their present names. Deprecated names warn."""
    resolved: dict[str, Any] = {}
    for key, value in passed.items():
        check_known(schema, title, key)
        if key not in schema.accepted:
            warn_deprecated(f"{title}: the argument 'seed' has no effect: nothing is random here")
            continue
        if value is None:
            continue
        if key in schema.deprecated:
            present = schema.deprecated[key]
            advice = f"use {present!r}" if present else "it has no effect"
            warn_deprecated(f"{title}: the argument {key!r} is deprecated; {advice}")
            if present and passed.get(present) is not None:
                raise TypeError(f"{title}: {key!r} and {present!r} are the same argument; give one of them")
            if not present and key != "masks":
                continue
            key = present or key
        # DALI's default stands for "not given", for which our operators use None.
        if key in schema.unset and not isinstance(value, DataNode | np.ndarray | torch.Tensor) and value == schema.unset[key]:
            continue
        resolved[key] = value
    return resolved


def _split_arguments(schema: Schema, title: str, arguments: Mapping[str, Any]) -> tuple[dict[str, DataNode], dict[str, Any]]:
    """Return the arguments that are nodes, and the checked constants."""
    nodes: dict[str, DataNode] = {}
    constants: dict[str, Any] = {}
    for key, value in arguments.items():
        if isinstance(value, DataNode):
            if key not in schema.nodes:
                raise TypeError(f"{title}: the argument {key!r} should not be a 'DataNode': it is the same for all samples")
            # Per-sample arguments are read on the host.
            if value.device != "cpu":
                raise ValueError(f"{title}: the argument {key!r} must be on the CPU, but {value.name!r} is on the GPU; use .cpu()")
            nodes[key] = value
            continue
        if has_nodes(value):
            raise TypeError(f"{title}: the argument {key!r} is a list that contains a DataNode; join the values with fn.stack or fn.cat")
        value = value.value if isinstance(value, types.ScalarConstant) else value
        if key in schema.described:
            _check(title, schema.described[key], value)
        constants[key] = value
    return nodes, constants


def _check(title: str, argument: Argument, value: Any) -> None:
    """Raise the error that the operator would raise for a constant, at its definition instead of the first iteration."""
    if argument.role is Role.plain:
        check_plain(Call(title), argument, value)
    elif argument.role in (Role.per_sample, Role.shape, Role.dtype):
        if isinstance(value, list | tuple) and not argument.vector and argument.role is not Role.dtype and len(value) != 1:
            raise TypeError(f"{title}: the argument {argument.name!r} takes one number, got {value!r}")
        prepare_argument(Call(title), argument, value)
