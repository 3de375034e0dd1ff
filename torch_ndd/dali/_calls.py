# SPDX-License-Identifier: Apache-2.0
"""One call of a function of ``fn`` or an operator of ``ops``: from its arguments to nodes of the graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .._core.operators.arguments import Argument, Call, Role, check_plain, prepare_argument
from .._core.suggestions import similar
from . import types
from ._conditionals import size_of_branch
from ._errors import UnknownArgumentError, deprecated
from ._graph import checked_device, current
from ._operators import OperatorOperation, ReaderOperation
from ._schema import DEPRECATED_ARGUMENTS, Schema
from .data_node import DataNode, as_node, create

_EVERYWHERE = ("name", "device", "preserve", "bytes_per_sample_hint")


def call(
    schema: Schema,
    title: str,
    inputs: Sequence[Any],
    given: Mapping[str, Any],
    default_device: str | None = None,
    branch: Sequence[DataNode] | None = None,
) -> Any:
    """Add an operator to the graph and return its node, or a list of nodes if it has several outputs; for several input sets a list of what each
    gives.

    ``branch`` is a node with the samples of the branch that the operator is in, in a list; by default it is found.

    Raises:
        ValueError: a wrong number of inputs, an unknown device, an argument on the GPU, or a value that the operator does not take.
        TypeError: an input or an argument of another type.
        UnknownArgumentError: an argument that the operator does not have.
    """
    least, most = schema.inputs
    if not least <= len(inputs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ValueError(f"{title}: the operator takes {wanted} inputs by position, got {len(inputs)}")
    arguments = _renamed(schema, title, given)
    pipeline = current()
    if pipeline is not None and pipeline._at_once:
        inputs = [pipeline._given(title, one) for one in inputs]
        arguments = {key: pipeline._given(title, one) if key in schema.nodes else one for key, one in arguments.items()}
    sets = input_sets(title, inputs)
    device = device_of(title, arguments.pop("device", None), sets[0] if sets else [], default_device)
    name, preserve = arguments.pop("name", None), arguments.pop("preserve", False)
    arguments.pop("bytes_per_sample_hint", None)
    seed = arguments.pop("seed", None)
    seed = None if seed is None else seed_of(title, seed)
    nodes, constants = _divided(schema, title, arguments)
    missing = [key for key in schema.missing if key not in nodes and key not in constants]
    named = schema.is_reader and "features" in constants
    names = list(constants["features"]) if named else []
    outputs: int | list[str] = names if named else schema.count(constants, len(inputs))
    made: list[Any] = []
    first = None
    size: Sequence[DataNode] = []
    if schema.name == "batch_permutation":  # of the samples of the branch
        size = size_of_branch() if branch is None else branch
    for k, one in enumerate(sets if inputs else [[]]):
        operation = create(
            ReaderOperation if schema.is_reader else OperatorOperation,
            schema.class_name.rpartition(".")[2],
            [*size] or [as_node(value, f"{title}: input {position}") for position, value in enumerate(one)],
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
            sized=bool(size),
        )
        first = operation[0].source if first is None and operation else first
        made.append(dict(zip(names, operation, strict=True)) if named else operation if outputs != 1 else operation[0])
    if len(made) == 1:
        return made[0]
    return made if named or outputs == 1 else [list(one) for one in zip(*made, strict=True)]  # of each output those of all sets


def has_nodes(value: Any) -> bool:
    """Return whether a list or tuple contains nodes."""
    return isinstance(value, list | tuple) and any(isinstance(one, DataNode) for one in value)


def input_sets(title: str, inputs: Sequence[Any]) -> list[list[Any]]:
    """Return the inputs of each operator that one call makes: several if an input is a list of nodes."""
    lengths = {len(one) for one in inputs if has_nodes(one)}
    if len(lengths) > 1:
        raise ValueError(f"{title}: input sets must have equal lengths, got {sorted(lengths)}")
    count = lengths.pop() if lengths else 1
    return [[one[k] if has_nodes(one) else one for one in inputs] for k in range(count)]


def device_of(title: str, given: Any, inputs: Sequence[Any], default: str | None = None) -> str:
    """Return the device of an operator: by default the GPU if an input is there."""
    if given is None:
        if default is not None:
            return default
        return "gpu" if any(isinstance(one, DataNode) and one.device == "gpu" for one in inputs) else "cpu"
    return checked_device(title, given)


def seed_of(title: str, seed: Any) -> int | None:
    """Return a checked seed; None for -1, which means that there is none."""
    if isinstance(seed, DataNode):
        raise TypeError(f"{title}: the argument 'seed' should not be a 'DataNode'")
    if not hasattr(seed, "__index__"):
        raise TypeError(f"{title}: seed must be an int, got {seed!r}")
    return None if int(seed) == -1 else int(seed)


def check_known(schema: Schema, title: str, key: str) -> None:
    """Raise UnknownArgumentError for an argument that the operator does not have. All take ``seed``."""
    if key not in schema.accepted and key != "seed":
        known = [one for one in schema.accepted if one not in DEPRECATED_ARGUMENTS]
        raise UnknownArgumentError(f"{title} got an unexpected argument {key!r}{similar(key, known)}")


def _renamed(schema: Schema, title: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are given, under their present names."""
    arguments: dict[str, Any] = {}
    for key, value in given.items():
        check_known(schema, title, key)
        if key not in schema.accepted:
            deprecated(f"{title}: the argument 'seed' has no effect: nothing is random here")
            continue
        if value is None:
            continue
        if key in schema.deprecated:
            present = schema.deprecated[key]
            advice = f"use {present!r}" if present else "it has no effect"
            deprecated(f"{title}: the argument {key!r} is deprecated; {advice}")
            if present and given.get(present) is not None:
                raise TypeError(f"{title}: {key!r} and {present!r} are the same argument; give one of them")
            if not present and key != "masks":
                continue
            key = present or key
        if key in schema.unset and not isinstance(value, DataNode | np.ndarray | torch.Tensor) and value == schema.unset[key]:
            continue
        arguments[key] = value
    return arguments


def _divided(schema: Schema, title: str, arguments: Mapping[str, Any]) -> tuple[dict[str, DataNode], dict[str, Any]]:
    """Return the arguments that are nodes, and the checked constants."""
    nodes: dict[str, DataNode] = {}
    constants: dict[str, Any] = {}
    for key, value in arguments.items():
        if isinstance(value, DataNode):
            if key not in schema.nodes:
                raise TypeError(f"{title}: the argument {key!r} should not be a 'DataNode': it is the same for all samples")
            if value.device != "cpu":
                raise ValueError(f"{title}: the argument {key!r} must be on the CPU, but {value.name!r} is on the GPU; use .cpu()")
            nodes[key] = value
            continue
        if has_nodes(value):
            raise TypeError(f"{title}: the argument {key!r} is a list with a DataNode in it; join the values with fn.stack or fn.cat")
        value = value.value if isinstance(value, types.ScalarConstant) else value
        if key in schema.described:
            _check(title, schema.described[key], value)
        constants[key] = value
    return nodes, constants


def _check(title: str, argument: Argument, value: Any) -> None:
    """Raise what the operator would raise for a constant."""
    if argument.role is Role.plain:
        check_plain(Call(title), argument, value)
    elif argument.role in (Role.per_sample, Role.shape, Role.dtype):
        if isinstance(value, list | tuple) and not argument.vector and argument.role is not Role.dtype and len(value) != 1:
            raise TypeError(f"{title}: the argument {argument.name!r} takes one number, got {value!r}")
        prepare_argument(Call(title), argument, value)
