# SPDX-License-Identifier: Apache-2.0
"""Integrations with PyTorch libraries: :mod:`.nodes` if torchdata is installed (``torch_ndd[nodes]``)."""

import importlib.util

__all__: list[str] = []

if importlib.util.find_spec("torchdata") is not None and importlib.util.find_spec("torchdata.nodes") is not None:
    from . import nodes

    __all__ += ["nodes"]
