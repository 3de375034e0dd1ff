# SPDX-License-Identifier: Apache-2.0
"""Names, parameters and defaults are torchvision's."""

import inspect
from typing import Any

import pytest
from torchvision.transforms import v2 as reference

from torch_ndd.torchvision import v2
from torch_ndd.torchvision.v2 import functional as F

OWN = {"from_torchvision", "from_timm"}


def _parameters(function: Any) -> list[tuple[str, str, str]]:
    found = inspect.signature(function).parameters.values()
    return [(value.name, str(value.kind), "" if value.default is value.empty else repr(value.default)) for value in found]


def _public(module: Any) -> list[str]:
    return sorted(name for name, value in vars(module).items() if not name.startswith("_") and callable(value) and not inspect.ismodule(value))


def test_v2_has_every_class_of_torchvision() -> None:
    assert len([name for name in _public(reference) if inspect.isclass(getattr(reference, name))]) >= 57
    assert set(_public(reference)) <= set(_public(v2))
    assert {name for name in _public(v2) if name not in _public(reference)} <= OWN


def test_functional_has_every_function_of_torchvision() -> None:
    assert len(_public(reference.functional)) >= 160
    assert set(_public(reference.functional)) <= set(_public(v2.functional))


@pytest.mark.parametrize("name", _public(reference))
def test_classes_have_the_parameters_of_torchvision(name: str) -> None:
    assert _parameters(getattr(v2, name)) == _parameters(getattr(reference, name))


@pytest.mark.parametrize("name", _public(reference.functional))
def test_functionals_have_the_parameters_of_torchvision(name: str) -> None:
    theirs = [(value, default) for value, _, default in _parameters(getattr(reference.functional, name))]
    assert [(value, default) for value, _, default in _parameters(getattr(v2.functional, name))] == theirs


@pytest.mark.parametrize("name", [name for name in _public(reference) if inspect.isclass(getattr(reference, name))])
def test_classes_are_subclasses_of_torchvision(name: str) -> None:
    theirs = getattr(reference, name)
    assert issubclass(getattr(v2, name), theirs)
    assert hasattr(getattr(v2, name), "get_params") == hasattr(theirs, "get_params")


def test_repr_equals_torchvision() -> None:
    assert repr(v2.Resize(20)) == repr(reference.Resize(20))
    assert repr(v2.Compose([v2.CenterCrop(3), v2.RandomInvert(0.2)])) == repr(
        reference.Compose([reference.CenterCrop(3), reference.RandomInvert(0.2)])
    )
    assert repr(v2.ToDtype({int: None})) == repr(reference.ToDtype({int: None}))


_SUFFIXES = ("_image", "_video", "_mask", "_bounding_boxes", "_keypoints")
_KERNELS = [(name.removesuffix(end), name) for name in dir(F) for end in _SUFFIXES if name.endswith(end) and name.removesuffix(end) in dir(F)]


@pytest.mark.parametrize(("functional", "kernel"), _KERNELS, ids=[name for _, name in _KERNELS])
def test_kernels_have_the_parameters_of_their_functionals(functional: str, kernel: str) -> None:
    of_functional, of_kernel = (inspect.signature(getattr(F, name)).parameters for name in (functional, kernel))
    for name, parameter in list(of_kernel.items())[1:]:
        if name in of_functional:
            assert parameter == of_functional[name]
