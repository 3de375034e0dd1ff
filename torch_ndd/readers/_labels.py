# SPDX-License-Identifier: Apache-2.0
"""Labels as torch's losses take them."""

import numpy as np


def class_number(label: np.ndarray) -> np.ndarray:
    """Return a label of one whole number as int64 (). Raise ValueError for another one."""
    values = label.reshape(-1)
    if len(values) != 1 or values[0] != np.floor(values[0]):
        raise ValueError(f"scalar_labels=True needs one whole number as a label, but it is {values[:4].tolist()}")
    return np.array(values[0], np.int64)
