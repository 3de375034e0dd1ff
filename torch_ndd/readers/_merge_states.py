# SPDX-License-Identifier: Apache-2.0
"""One state of a reader or a loader from those of all ranks."""

from collections.abc import Sequence
from typing import Any

from ._state import merge_reader_states
from .huggingface._state import merge_stream_states


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the states of all ranks, of readers or of loaders, into one that any number of ranks can load.

    It is needed for readers that skipped different numbers of bad samples (``on_error="skip"``) and for :class:`HuggingFaceStream`. The states of
    all other readers are equal on all ranks but for the number of the shard; any of them is the merged state.

    Args:
        states: results of ``state_dict``, one per rank, in any order.

    Raises:
        ValueError: a rank is missing or occurs twice, the states are not of the same run and epoch, or one is not a state.

    >>> first = {"version": 2, "epoch": 0, "taken": [[2, 4]], "shard": 0, "skipped": 1, "errors": 1, "size": 20, "seeds": [0, 0]}
    >>> first["completed_epochs"] = 0
    >>> merge_states([first, {**first, "shard": 1, "taken": [[2, 3]], "skipped": 0, "errors": 0}])["taken"]
    [[2, [4, 3]]]
    """
    if not states:
        raise ValueError("merge_states: states must not be empty")
    if not all(isinstance(state, dict) for state in states):
        raise ValueError("merge_states: states must be results of state_dict()")
    if all(state.keys() == {"version", "reader", "seed"} for state in states):  # of loaders; each may have drawn its own seed
        return {**states[0], "reader": merge_states([state["reader"] for state in states])}
    if any("progress" in state for state in states):
        return merge_stream_states("merge_states", states)
    if all("at" in state or "units" in state for state in states) and all(state == states[0] for state in states):  # of shared steps
        return states[0]
    return merge_reader_states(states)
