# SPDX-License-Identifier: Apache-2.0
"""Cases of operators. ``tests/ops/test_<family>.py`` lists them as ``CASES``, and ``test_operators.py`` runs each through every property.

A case calls one operator on a few samples. Its inputs are made twice, with equal shapes and with different ones, so each case serves dense and
ragged batches. A typical family module says::

    CASES = [
        Case("brightness", "uint8", images("HWC", "uint8"), {"brightness": Each([0.5, 1.0, 2.0])}, layout="HWC"),
        Case("resize", "linear", images("HWC", "float32"), {"size": [20, 31]}, layout="HWC", reference=resized, tolerance=1e-4),
    ]
"""

from torch_ndd.testing._cases import COUNT as COUNT
from torch_ndd.testing._cases import EXTENTS as EXTENTS
from torch_ndd.testing._cases import FROM_HOST as FROM_HOST
from torch_ndd.testing._cases import Case as Case
from torch_ndd.testing._cases import Each as Each
from torch_ndd.testing._cases import Inputs as Inputs
from torch_ndd.testing._cases import Samples as Samples
from torch_ndd.testing._cases import arrays as arrays
from torch_ndd.testing._cases import as_tuple as as_tuple
from torch_ndd.testing._cases import images as images
from torch_ndd.testing._cases import no_inputs as no_inputs
from torch_ndd.testing._cases import public as public

# Operators that work only in host memory, as documented.
HOST_ONLY = ("decoders.audio", "decoders.numpy", "decoders.video", "io.file.read", "optical_flow", "peek_image_shape")
