# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of pipelines: the position after the latest delivery, as JSON that is checked key by key."""

import json
from typing import Any

from ..._core.context.states import anything, check_state, equal, keys, one_of, or_none, parse_state
from ..._core.process.files import write_whole
from .executor import Executor

_KIND = "checkpoint of a torch_ndd.dali pipeline"
_CHECKPOINT = keys({"iterator": or_none(anything)}, kind=one_of(_KIND), version=equal(1), pipeline=anything)


def save(executor: Executor, filename: str | None = None, iterator: dict[str, Any] | None = None) -> bytes:
    """Return the state after the last batch that the user has taken, and write it to a file if there is a name.

    Args:
        executor: Executor of the pipeline.
        filename: The file, which is complete or unchanged whenever the process ends.
        iterator: The place of an iterator in its epoch.
    """
    text = json.dumps({"kind": _KIND, "version": 1, "pipeline": executor.state_dict(), "iterator": iterator})
    if filename is not None:
        write_whole(filename, text)
    return text.encode()


def restore(executor: Executor, enabled: bool, data: bytes | str) -> dict[str, Any] | None:
    """Restore a checkpoint before the first iteration, and return the place of an iterator in its epoch.

    Raise RuntimeError for anything else than a result of :func:`save` of this graph, TypeError for another type than bytes or str; the pipeline
    cannot be used then.
    """
    if not isinstance(data, bytes | bytearray | str):
        # The pipeline must not run from its beginning after a failed restore.
        raise executor.fail(TypeError(f"Pipeline: checkpoint= takes the bytes that Pipeline.checkpoint returned, got {type(data).__name__}"))
    try:
        if not enabled:
            raise ValueError("checkpoint= needs enable_checkpointing=True")
        content = check_state("Pipeline", _CHECKPOINT, parse_state("Pipeline", bytes(data) if isinstance(data, bytearray) else data))
        state = content["pipeline"]
        operations = state.get("operations") if isinstance(state, dict) else None
        if not isinstance(operations, dict):
            raise ValueError("not a valid checkpoint: the states of the operators are missing")
        # An operator without a state would start from its beginning.
        lacking = sorted(set(executor.state_dict()["operations"]) - set(operations))
        if lacking:
            raise ValueError(f"the checkpoint is of another graph: it has no state of the operator {lacking[0]!r}")
        executor.load_state_dict(state)
    except (ValueError, RuntimeError) as error:
        raise executor.fail(RuntimeError(f"Pipeline: the checkpoint cannot be restored: {error}")) from None
    return content.get("iterator")
