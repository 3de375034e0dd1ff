# SPDX-License-Identifier: Apache-2.0
"""The operator is checked as torch_ndd's own are."""

import numpy as np
import pytest
from ndd_threshold import threshold

from torch_ndd.testing import Case, Each, check_operator, images


def reference(image: np.ndarray, at: float, below: float = 0.0) -> np.ndarray:
    """Return the same by NumPy."""
    return np.where(image >= np.float32(at), image, np.float32(below)).astype(image.dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_threshold_equals_the_reference(dtype: str) -> None:
    arguments = {"at": Each([10.0, 100.0, 200.0]), "below": Each([1.0, 2.0, 3.0])}
    check_operator(Case("threshold", dtype, images("HWC", dtype), arguments, layout="HWC", reference=reference, call=threshold))
