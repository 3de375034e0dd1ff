# SPDX-License-Identifier: Apache-2.0
"""torchvision's transforms, data sets and loader over whole batches.

``v2`` mirrors ``torchvision.transforms.v2``, ``tv_tensors`` its types, ``datasets`` its data sets of images. :func:`from_torchvision` translates a
transform of torchvision to the function of a :class:`torch_ndd.DataLoader`, :func:`from_timm` the arguments of ``timm.data.create_transform``.

All modules are imported when they are first used; all but ``datasets`` need torchvision.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets, tv_tensors, v2
    from ._loader import DataLoader
    from ._translation.from_torchvision import from_torchvision
    from .datasets import CocoDetection, ImageFolder
    from .timm._from_timm import from_timm
    from .timm._mixup import Mixup

_MODULES = ("datasets", "tv_tensors", "v2")
_NAMES = {
    "CocoDetection": "datasets",
    "DataLoader": "_loader",
    "ImageFolder": "datasets",
    "Mixup": "timm._mixup",
    "from_timm": "timm._from_timm",
    "from_torchvision": "_translation.from_torchvision",
}

__all__ = ["CocoDetection", "DataLoader", "ImageFolder", "Mixup", "datasets", "from_timm", "from_torchvision", "tv_tensors", "v2"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _NAMES:
        return getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
