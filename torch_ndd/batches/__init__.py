# SPDX-License-Identifier: Apache-2.0
"""Batches by the costs of samples, in place of a fixed number of samples: packed sequences, padded buckets, and equal work for all ranks.

>>> lengths = [4, 5, 7, 1, 3, 6, 2]
>>> data = [torch.full((length,), length) for length in lengths]
>>> loader = ndd.DataLoader(data, batches=Packed(budget=10, cost=lengths, order="first"))
>>> for sequences, plan in loader:
...     print([len(sequence) for sequence in sequences], plan.cost, plan.step_cost)
[4, 5, 1] 10 10
[7, 3] 10 10
[6, 2] 8 8
"""

from ._costs import from_headers
from ._figures import Figures, Preview
from ._measure import measure
from ._settings import Balanced, Batches, Bucketed, Packed
from ._source import Plan

__all__ = ["Balanced", "Batches", "Bucketed", "Figures", "Packed", "Plan", "Preview", "from_headers", "measure"]
