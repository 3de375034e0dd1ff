# SPDX-License-Identifier: Apache-2.0
"""The functions, made from those of :mod:`torch_ndd.torchvision.v2.functional`."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args

from ....._core.suggestions import check_choice
from .....torchvision.v2 import functional as base
from ._transforms import check_device, on_device

__all__ = [
    "center_crop",
    "crop",
    "gaussian_blur",
    "get_dimensions",
    "get_image_size",
    "get_size",
    "horizontal_flip",
    "normalize",
    "pad",
    "pil_to_tensor",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "to_grayscale",
    "to_pil_image",
    "to_tensor",
    "vertical_flip",
]


def _derive(function: Callable[..., Any], first: str = "inpt", device: bool = True) -> Any:
    """Return a function with DALI's name of the first parameter, and ``device``."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    head, *others = inspect.signature(function).parameters.values()
    more = [inspect.Parameter("device", kind, default="cpu")] if device else []
    signature = inspect.Signature([head.replace(name=first, kind=kind), *others, *more])

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        place = check_device(call.__name__, arguments.pop("device", "cpu"))
        return function(on_device(arguments.pop(first), place), **arguments)

    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__, call.__signature__ = function.__doc__, signature  # type: ignore[attr-defined]
    return call


center_crop = _derive(base.center_crop)
crop = _derive(base.crop)
gaussian_blur = _derive(base.gaussian_blur)
get_dimensions = base.get_dimensions
get_image_size = base.get_image_size
get_size = base.get_size
horizontal_flip = _derive(base.horizontal_flip)
normalize = _derive(base.normalize, "input_data")
pad = _derive(base.pad)
pil_to_tensor = _derive(base.pil_to_tensor, device=False)
resize = _derive(base.resize)
resized_crop = _derive(base.resized_crop)
rgb_to_grayscale = _derive(base.rgb_to_grayscale)
to_grayscale = _derive(base.to_grayscale)
to_tensor = base.to_tensor
vertical_flip = _derive(base.vertical_flip)


InputLayout = Literal["CHW", "HWC"]


def to_pil_image(inpt: Any, mode: str | None = None, input_layout: InputLayout = "CHW") -> Any:
    """Convert a tensor or an array to an image of PIL; ``input_layout`` is ``"CHW"`` or ``"HWC"``."""
    check_choice("to_pil_image", "input_layout", input_layout, get_args(InputLayout), ValueError)
    if hasattr(inpt, "permute") and input_layout == "HWC":
        inpt = inpt.permute(2, 0, 1)
    return base.to_pil_image(inpt, mode)
