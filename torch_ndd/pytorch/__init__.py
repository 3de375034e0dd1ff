# SPDX-License-Identifier: Apache-2.0
"""Parts of PyTorch's ecosystem: :mod:`.nodes` where torchdata is installed (``torch_ndd[nodes]``)."""

import importlib.util

if importlib.util.find_spec("torchdata") is not None and importlib.util.find_spec("torchdata.nodes") is not None:
    from . import nodes as nodes
