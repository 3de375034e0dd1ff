# SPDX-License-Identifier: Apache-2.0
"""``if``, ``and``, ``or`` and ``not`` on DataNodes: ``pipeline_def(enable_conditionals=True)``.

Python decides an ``if`` once, but a batch has samples for both branches. Functions are therefore rewritten before they run (``_source.py`` finds
their syntax tree, ``_rewrite.py`` changes it, ``_convert.py`` compiles the new function), such that a statement whose condition is a DataNode traces
both branches (``_runtime.py``), each with its part of the samples, and merges what they assign (``_scopes.py``, ``_slots.py``, ``_operations.py``).
Conditions that are Python values keep their meaning.
"""

from ._convert import convert, do_not_convert
from ._operations import merge, split
from ._scopes import TracedBranches, find_branch_size, scope

__all__ = ["TracedBranches", "convert", "do_not_convert", "find_branch_size", "merge", "scope", "split"]
