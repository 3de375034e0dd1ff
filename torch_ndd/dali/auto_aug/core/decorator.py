# SPDX-License-Identifier: Apache-2.0
"""The decorator of augmentations."""

from collections.abc import Callable
from typing import Any

from ._augmentation import Augmentation, ParamDevice

__all__ = ["augmentation"]


def augmentation(
    function: Callable[..., Any] | None = None,
    *,
    mag_range: Any = None,
    randomly_negate: bool | None = None,
    mag_to_param: Callable[[float], Any] | None = None,
    param_device: ParamDevice | None = None,
    name: str | None = None,
    augmentation_cls: Any = None,
) -> Any:
    """Turn a function ``f(data, parameter, **others)`` of nodes into an augmentation.

    The augmentation is called with the index of a magnitude in place of the parameter, which is then
    ``mag_to_param(numpy.linspace(*mag_range, num_magnitude_bins)[magnitude_bin])``, or that of the negative magnitude.

    Args:
        function: The function, if the decorator is used without arguments.
        mag_range: Smallest and largest magnitude, or an array of all of them; without it the parameter is None.
        randomly_negate: Make the opposite magnitude equally likely.
        mag_to_param: Function from a magnitude to the parameter, a number or an array; called for all magnitudes when the graph is defined.
        param_device: Where the parameters are: ``"cpu"`` (default), ``"gpu"``, or ``"auto"`` for the device of the data.
        name: For messages, by default that of the function.
        augmentation_cls: Class of the result.

    Raises:
        Exception: a function with fewer than two positional parameters, or one that is already an augmentation.

    >>> from torch_ndd.dali import fn
    >>> @augmentation(mag_range=(0, 30), randomly_negate=True)
    ... def tilt(images, angle, fill_value=0):
    ...     return fn.rotate(images, angle=angle, fill_value=fill_value, keep_size=True)
    >>> tilt.name, tilt.mag_range, tilt.augmentation(mag_range=(0, 5)).mag_range
    ('tilt', (0, 30), (0, 5))
    """
    settings = {"mag_range": mag_range, "randomly_negate": randomly_negate, "mag_to_param": mag_to_param, "param_device": param_device, "name": name}

    def decorate(function: Callable[..., Any]) -> Augmentation:
        if isinstance(function, Augmentation):
            raise Exception(
                "The `@augmentation` was applied to already decorated Augmentation. Its method `augmentation` returns a copy with other settings"
            )
        return (augmentation_cls or Augmentation)(function, **settings)

    return decorate if function is None else decorate(function)
