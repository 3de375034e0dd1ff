# SPDX-License-Identifier: Apache-2.0
"""Dynamic mode, which is :mod:`torch_ndd` itself: its names, for programs that use it beside pipelines.

>>> import torch_ndd.dali.experimental.dynamic as ndd
>>> ndd.tensor([1, 2]).shape
(2,)
"""

from typing import Any

import torch_ndd
from torch_ndd import __version__ as __version__

__all__ = torch_ndd.__all__  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # a __path__ would import the submodules a second time
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(torch_ndd, name)


def __dir__() -> list[str]:
    return dir(torch_ndd)
