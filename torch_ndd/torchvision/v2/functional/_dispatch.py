# SPDX-License-Identifier: Apache-2.0
"""Registration of kernels, and dispatch of a functional to the kernel for its input.

The arithmetic of images is written once, for an image Batch. A torch tensor ``(..., C, H, W)`` becomes a dense Batch over the same memory: ``CHW``,
or ``HWC`` where the memory has the channels last. Masks become the channels of a Batch. PIL images are passed to torchvision's functional, which
calls Pillow.
"""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms.v2 import functional as reference

from ...._core.native.default_device import ignore_default_device
from ...._core.operators.functions import call_on_batch, call_on_tensor
from ...._core.values.batch import Batch, as_batch, new_batch
from ...._core.values.tensor import Tensor as NddTensor
from ... import tv_tensors
from ..._numbers import Number, batch_of
from ..._sample import is_pure_tensor, kind_of

_KERNELS: dict[str, dict[type, Callable[..., Any]]] = {}  # by the name of the functional and the type of the input
_BUILT_IN = (single.Image, single.Video, single.Mask, single.BoundingBoxes, single.KeyPoints)


def kernel_for(functional: Callable[..., Any], inpt: Any, passes: bool = False) -> Callable[..., Any]:
    """Return the kernel of a functional for this input; without one, the identity if ``passes``.

    Raises:
        TypeError: the functional does not work on this type.
    """
    name = functional.__name__
    kernels = _KERNELS.get(name)
    if kernels is None:
        if passes:
            raise ValueError(f"No kernel registered for functional {name}.")
        raise TypeError(f"{name} is not a functional of torch_ndd.torchvision.v2")
    # By exact type first: most inputs are plain Batches.
    if type(inpt) is Batch:
        if (found := kernels.get(Batch)) is not None:
            return found
    elif isinstance(inpt, Batch):
        found = kernels.get(Batch) if (kind := kind_of(inpt)) in (torch.Tensor, single.Image, single.Video) else kernels.get(_OF_BATCHES[kind])
        if found is not None:
            return found
    else:
        for cls in type(inpt).__mro__:
            if cls in kernels:
                return kernels[cls]
            if cls is single.TVTensor:  # torchvision never falls back to the kernel of plain tensors
                break
    if passes:
        return _pass_through
    known = ", ".join(sorted({cls.__name__ for cls in kernels}))
    raise TypeError(f"{name}: inputs of type {known} are supported, but got {type(inpt)}")


_OF_BATCHES = {single.Mask: tv_tensors.Mask, single.BoundingBoxes: tv_tensors.BoundingBoxes, single.KeyPoints: tv_tensors.KeyPoints}


def _pass_through(inpt: Any, *args: Any, **kwargs: Any) -> Any:
    return inpt


def add_kernel(functional: Callable[..., Any] | str, *types: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the kernel of a functional for these types."""
    name = functional if isinstance(functional, str) else functional.__name__

    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        for cls in types:
            _KERNELS.setdefault(name, {})[cls] = kernel
        return kernel

    return add


def register_kernel(functional: Callable[..., Any] | str, tv_tensor_cls: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the kernel of a functional for a custom subclass of ``TVTensor``.

    Args:
        functional: a functional of this module, or its name.
        tv_tensor_cls: the custom class.

    Raises:
        ValueError: an unknown functional, a class that is not a subclass of TVTensor or that is built in.
    """
    name = functional if isinstance(functional, str) else getattr(functional, "__name__", "")
    module = "" if isinstance(functional, str) else getattr(functional, "__module__", "")
    if name not in _KERNELS or not (isinstance(functional, str) or module.startswith(("torch_ndd.torchvision.v2.functional", reference.__name__))):
        if isinstance(functional, str):
            raise ValueError(f"Could not find functional with name '{functional}' in torch_ndd.torchvision.v2.functional.")
        raise ValueError(f"Kernels can only be registered on functionals of torch_ndd.torchvision.v2.functional, but got {functional}.")
    if not (isinstance(tv_tensor_cls, type) and issubclass(tv_tensor_cls, single.TVTensor)):
        raise ValueError(f"Kernels can only be registered for subclasses of torchvision.tv_tensors.TVTensor, but got {tv_tensor_cls}.")
    if tv_tensor_cls in _BUILT_IN:
        raise ValueError(f"Kernels cannot be registered for the builtin tv_tensor classes, but got {tv_tensor_cls}")
    if tv_tensor_cls in _KERNELS[name]:
        raise ValueError(f"Functional {name} already has a kernel registered for type {tv_tensor_cls}.")
    return add_kernel(name, tv_tensor_cls)


# --- images ---


def on_images(
    functional: Callable[..., Any],
    kernel: Callable[..., Any],
    *,
    first: str = "image",
    pil: bool = True,
    view: Callable[..., Any] | None = None,
    **defaults: Any,
) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
    """Register ``kernel(batch, ...)`` as the kernel of a functional for images and videos of every type; return the functions of torch tensors.

    Args:
        functional: has the parameters and their defaults.
        kernel: takes an image Batch and the same parameters; returns a Batch, or a tuple of them.
        first: name of the first parameter of the returned function.
        pil: whether PIL images are supported.
        view: takes a torch tensor and the same parameters; returns the result as a view of it, or None if it is not a view.
        defaults: defaults of the function for images that differ.
    """

    compute = _on_tensors(kernel, view)

    def first_on_batch(inpt: Batch, *args: Any, **kwargs: Any) -> Any:
        output = kernel(as_images(functional.__name__, inpt), *args, **kwargs)
        return tuple(_restore_kind(part, inpt) for part in output) if isinstance(output, tuple) else _restore_kind(output, inpt)

    # Equal calls are recorded and repeated, like those of operators.
    batches = functools.partial(call_on_batch, first_on_batch)

    def call_on_typed(inpt: Any, *args: Any, **kwargs: Any) -> Any:
        output = compute(inpt.as_subclass(torch.Tensor), *args, **kwargs)
        if isinstance(output, tuple):
            return tuple(tv_tensors.wrap(part, like=inpt) for part in output)
        return tv_tensors.wrap(output, like=inpt)

    name = functional.__name__
    add_kernel(functional, torch.Tensor)(compute)
    add_kernel(functional, single.Image, single.Video)(call_on_typed)
    add_kernel(functional, Batch)(batches)
    add_kernel(functional, NddTensor)(functools.partial(_on_ndd, batches))
    if pil:
        add_kernel(functional, PIL.Image.Image)(getattr(reference, name))
    parameters = list(inspect.signature(functional).parameters.values())[1:]
    return _make_function(compute, f"{name}_image", first, parameters, defaults), _make_function(compute, f"{name}_video", "video", parameters, {})


def _make_function(
    compute: Callable[..., Any], name: str, first: str, parameters: Sequence[inspect.Parameter], defaults: dict[str, Any]
) -> Callable[..., Any]:
    """Return a function of torch tensors with a name and signature of torchvision's."""

    @ignore_default_device
    def function(*args: Any, **kwargs: Any) -> Any:
        if first in kwargs:
            args = (kwargs.pop(first), *args)
        image = args[0] if is_pure_tensor(args[0]) else args[0].as_subclass(torch.Tensor)
        return compute(image, *args[1:], **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "torch_ndd.torchvision.v2.functional"
    function.__doc__ = f"Apply :func:`{name.rpartition('_')[0]}` to a torch tensor ``(..., C, H, W)``."
    changed = [parameter.replace(default=defaults.get(parameter.name, parameter.default)) for parameter in parameters]
    function.__signature__ = inspect.Signature([inspect.Parameter(first, inspect.Parameter.POSITIONAL_OR_KEYWORD), *changed])  # type: ignore[attr-defined]
    return function


def _on_tensors(kernel: Callable[..., Any], view: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the function of torch tensors: a view if possible, else the result of the kernel, whose call is recorded for equal calls."""

    def first(inpt: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return _on_tensor(kernel, inpt, args, kwargs)

    def compute(inpt: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if view is not None and (output := view(inpt, *args, **kwargs)) is not None:
            return output
        return call_on_tensor(first, inpt, args, kwargs)

    return compute


def _on_tensor(kernel: Callable[..., Any], image: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if image.dim() < 2:
        raise TypeError(f"images must be tensors (..., C, H, W), got {tuple(image.shape)}")
    # Two-dimensional tensors get a channel, and lose it again at the end.
    planes = image[None] if image.dim() == 2 else image
    shape = planes.shape
    # Leading axes are merged into one, the samples.
    values = planes.reshape(math.prod(shape[:-3]), *shape[-3:]) if planes.dim() != 4 else planes
    # Memory with the channels last is passed as HWC, so it is not copied and the result has the same memory format.
    last = not values.is_contiguous() and values.is_contiguous(memory_format=torch.channels_last)
    output = kernel(as_batch(values.permute(0, 2, 3, 1), layout="HWC") if last else as_batch(values, layout="CHW"), *args, **kwargs)
    if isinstance(output, tuple):
        return tuple(_restore_shape(part, shape, image) for part in output)
    return _restore_shape(output, shape, image)


def _restore_shape(output: Batch, shape: Sequence[int], image: torch.Tensor) -> torch.Tensor:
    values = output.torch()
    if output.layout == "HWC":
        values = values.permute(0, 3, 1, 2)
    values = values.reshape(*shape[:-3], *values.shape[1:])
    return values[0] if image.dim() == 2 else values


def _on_ndd(kernel: Callable[..., Any], inpt: NddTensor, *args: Any, **kwargs: Any) -> Any:
    output = kernel(as_batch([inpt], layout=inpt.layout), *args, **kwargs)
    return tuple(part.select(0) for part in output) if isinstance(output, tuple) else output.select(0)


def as_images(op: str, inpt: Batch) -> Batch:
    """Return a Batch with an image layout; one without a layout is ``CHW`` or ``FCHW``."""
    layout = inpt.layout
    if layout is None:
        layout = {3: "CHW", 4: "FCHW"}.get(inpt.ndim)
        if layout is None:
            raise TypeError(f"{op}: images must have the layout HWC or CHW, got a Batch of {inpt.ndim} dimensions without a layout")
        return as_batch(inpt, layout=layout)
    if not layout.endswith(tv_tensors.IMAGE_ENDINGS):
        raise TypeError(f"{op}: images must have a layout that ends in HWC or CHW, got {layout!r}")
    return inpt.plain() if tv_tensors.is_typed(inpt) else inpt


def _restore_kind(output: Any, inpt: Batch) -> Any:
    """Return the Batch with the type of the input, and without a layout if the input had none."""
    if not isinstance(output, Batch):
        return output
    if tv_tensors.is_typed(inpt):
        return inpt.over(output)
    if inpt.layout is None and output.layout is not None:
        return new_batch(output.buffer, output.ragged_shapes, None, output.pending, output.caller_owned, output.shared_extents)
    return output


# --- masks ---


def on_masks(functional: Callable[..., Any], kernel: Callable[..., Any], view: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Register ``kernel(batch, ...)`` as the kernel of a functional for masks, which are the channels of its ``CHW`` input.

    Return the function of torch tensors. ``view`` is that of :func:`on_images`. Arguments of the functional that are not parameters of the kernel
    are dropped.
    """
    taken = set(list(inspect.signature(kernel).parameters)[1:])

    def filter_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in kwargs.items() if key in taken}

    compute = _on_tensors(kernel, view)

    def call_on_typed(inpt: Any, *args: Any, **kwargs: Any) -> Any:
        return tv_tensors.wrap(compute(inpt.as_subclass(torch.Tensor), *args, **filter_arguments(kwargs)), like=inpt)

    def call_on_batch(inpt: Any, *args: Any, **kwargs: Any) -> Any:
        planes, back = as_planes(inpt.plain())
        return inpt.over(back(kernel(planes, *args, **filter_arguments(kwargs))))

    add_kernel(functional, single.Mask)(call_on_typed)
    add_kernel(functional, tv_tensors.Mask)(call_on_batch)
    parameters = list(inspect.signature(kernel).parameters.values())[1:]
    return _make_function(compute, f"{functional.__name__}_mask", "mask", parameters, {})


def as_planes(masks: Batch) -> tuple[Batch, Callable[[Batch], Batch]]:
    """Return masks ``(..., H, W)`` as ``CHW``, and a function that converts results back."""
    ndim, layout = masks.ndim, masks.layout
    if ndim == 3:
        if layout == "CHW":
            return masks, lambda output: output
        planes = new_batch(masks.buffer, masks.ragged_shapes, "CHW", masks.pending, masks.caller_owned, masks.shared_extents)
        return planes, lambda output: new_batch(
            output.buffer, output.ragged_shapes, layout, output.pending, output.caller_owned, output.shared_extents
        )
    # Other axes than height and width are merged to one.
    if masks.ragged_shapes is None:
        shape = masks.buffer.shape
        planes = new_batch(masks.buffer.reshape(shape[0], -1, *shape[-2:]), None, "CHW", masks.pending, masks.caller_owned)
    else:
        rows = masks.ragged_shapes
        count = rows[:, :-2].prod(1, keepdim=True)
        planes = new_batch(masks.buffer, torch.cat([count, rows[:, -2:]], 1), "CHW", masks.pending, masks.caller_owned)

    def restore_axes(output: Batch) -> Batch:
        if output.ragged_shapes is None:
            if masks.ragged_shapes is None:
                values = output.buffer.reshape(*masks.buffer.shape[:-2], *output.buffer.shape[-2:])
                return new_batch(values, None, layout, output.pending, output.caller_owned)
            extents = torch.tensor([output.buffer.shape[1:]]).expand(len(masks.ragged_shapes), -1)
        else:
            extents = output.ragged_shapes
        # The merged axes as they were, with the new height and width.
        rows = masks.sample_shapes()
        shapes = torch.cat([rows[:, :-2], extents[:, -2:]], 1).contiguous()
        return new_batch(output.buffer.reshape(-1), shapes, layout, output.pending, output.caller_owned).densify()

    return planes, restore_axes


# --- arguments ---


def extent(images: Batch, letter: str) -> Any:
    """Return an extent: a number if the samples share it, else int64 (N,)."""
    axis = (images.layout or "").index(letter)
    shared = images.shared_extent(axis)
    return shared if shared is not None else images.ragged_shapes[:, axis]  # type: ignore[index]


def size_of(images: Batch) -> tuple[Any, Any]:
    """Return height and width."""
    return extent(images, "H"), extent(images, "W")


def rows(*columns: Number) -> Any:
    """Return an argument of several numbers: a list if all samples share them, else a Batch with a row per sample."""
    # A list is an argument that all samples share.
    if not any(isinstance(column, torch.Tensor) for column in columns):
        return list(columns)
    # One column per number: those that all samples share are repeated.
    count = max(len(column) for column in columns if isinstance(column, torch.Tensor))
    dtype = (
        torch.float64
        if any(isinstance(column, float) or (isinstance(column, torch.Tensor) and column.is_floating_point()) for column in columns)
        else torch.int64
    )
    tensors = [column.to(dtype) if isinstance(column, torch.Tensor) else torch.full((count,), column, dtype=dtype) for column in columns]
    return batch_of(torch.stack(tensors, 1))


def fills(value: Any, images: Batch, op: str) -> list[float] | None:
    """Return fill values: None, one number, or one for each channel.

    Raises:
        ValueError: another count, or values that are not numbers.
    """
    if value is None:
        return None
    if isinstance(value, int | float | np.number):
        return [float(value)]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{op}: fill must be a number, or a list or tuple of numbers, got {value!r}")
    channels = images.shared_extent((images.layout or "").index("C"))
    if len(value) > 1 and channels is not None and len(value) != channels:
        raise ValueError(f"{op}: fill must have one value, or one for each of the {channels} channels, got {len(value)}")
    return [float(channel) for channel in value]


def blend_fills(value: Any, images: Batch, op: str) -> list[float] | None:
    """Return fill values that are rounded to torchvision's integers."""
    # torchvision rounds halves to even and the operators round them up: halves are moved a little towards the even neighbor.
    fill = fills(value, images, op)
    if fill is None or images.dtype.is_floating_point:
        return fill
    # Only ties are moved, and 2**-9 decides them.
    return [channel + (round(channel) - channel) * 2**-9 if channel % 1 == 0.5 else channel for channel in fill]


@ignore_default_device
def dispatch(functional: Callable[..., Any], inpt: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the kernel of a functional for an input."""
    if type(inpt) is Batch and (kernel := _KERNELS[functional.__name__].get(Batch)) is not None:  # the most frequent type
        return kernel(inpt, *args, **kwargs)
    return kernel_for(functional, inpt)(inpt, *args, **kwargs)
