# SPDX-License-Identifier: Apache-2.0
"""The parameters of a torchvision transform, read from the object."""

import inspect
from typing import Any

# Attributes with another name than their parameter; the first that there is counts.
_ATTRIBUTES = {
    ("RandomIoUCrop", "sampler_options"): ("options",),
    ("MixUp", "labels_getter"): ("_labels_getter",),
    ("CutMix", "labels_getter"): ("_labels_getter",),
}
# Of the classes of torchvision.transforms, which lack parameters of v2.
_ABSENT = {"antialias": True, "expand": False, "center": None, "max_size": None, "inplace": False, "num_output_channels": 1}
_MISSING = object()


def parameters_of(transform: Any, like: type) -> dict[str, Any]:
    """Return the arguments of ``like`` that make a transform of the same name.

    Raises:
        TypeError: a parameter that the object does not tell.
    """
    name = type(transform).__name__
    made: dict[str, Any] = {}
    for parameter in inspect.signature(like).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value: Any = _MISSING
        for attribute in (*_ATTRIBUTES.get((name, parameter.name), ()), parameter.name):
            value = getattr(transform, attribute, _MISSING)
            if value is not _MISSING:
                break
        if value is _MISSING:
            if parameter.name not in _ABSENT:
                raise TypeError(f"from_torchvision: {name} has no attribute {parameter.name!r}; this version of torchvision is not known")
            value = _ABSENT[parameter.name]
        made[parameter.name] = value
    if name == "RandomErasing" and made.get("value") is None:
        made["value"] = "random"
    if name == "RandomCrop" and ".v2" in type(transform).__module__ and made["padding"] is not None:  # it stores left, right, top, bottom
        left, right, top, bottom = made["padding"]
        made["padding"] = [left, top, right, bottom]
    if name == "Normalize":
        made |= {key: [float(one) for one in made[key]] for key in ("mean", "std")}
    return made
