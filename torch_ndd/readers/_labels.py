# SPDX-License-Identifier: Apache-2.0
"""Labels as torch's losses take them."""

import numpy as np
import torch

from .._core.values.batch import Batch, new_batch
from .._core.work.bad_samples import UnreadableSamples


def scalar_labels(values: np.ndarray, lengths: np.ndarray) -> Batch:
    """Return labels of one integer each as int64 (); their numbers lie one after the other. Raise UnreadableSamples for other labels."""
    ends = np.cumsum(lengths)
    wrong = lengths != 1
    if wrong.any() or not np.issubdtype(values.dtype, np.integer):
        # The first number of each label; of one without numbers it does not matter.
        first = np.append(values, 0)[ends - lengths]
        wrong |= (first != np.floor(first)) | (np.abs(first) >= 2.0**63)
    if wrong.any():
        reasons = {}
        for k in np.flatnonzero(wrong).tolist():
            label = values[ends[k] - lengths[k] : ends[k]][:4].tolist()
            reasons[k] = f"scalar_labels=True needs one integer as a label, but it is {label}"
        raise UnreadableSamples(reasons)
    return new_batch(torch.from_numpy(values.astype(np.int64)))
