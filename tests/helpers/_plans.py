# SPDX-License-Identifier: Apache-2.0
"""The plans of repeated calls, which all tests of a process share."""

from torch_ndd._core.operators import plans
from torch_ndd._core.values import arithmetic


def clear_plans() -> None:
    """Clear all plans, and what was learned of calls that have none."""
    plans.plans.clear()
    plans._forms.clear()
    plans._computed.clear()
    arithmetic._kernel._plans.clear()
