# SPDX-License-Identifier: Apache-2.0
"""torchvision's transforms with the parameters that DALI's classes add."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ....._core.context.device import gpu_count
from ....._core.values.batch import Batch, as_batch
from .....torchvision import v2
from .....torchvision.v2 import InterpolationMode as InterpolationMode

_DEVICES = ("cpu", "gpu")


def check_device(name: str, device: Any) -> str:
    """Return the device. Raise ValueError unless it is ``"cpu"`` or ``"gpu"``."""
    if device not in _DEVICES:
        raise ValueError(f'{name}: device must be "cpu" or "gpu", got {device!r}')
    return device


def on_device(value: Any, device: str) -> Any:
    """Return a tensor on the GPU for ``"gpu"``, if there is a GPU; other values unchanged."""
    return value.cuda() if device == "gpu" and gpu_count() and isinstance(value, torch.Tensor) else value


def _derive(base: type, added: Mapping[str, Any] | None = None, renamed: Mapping[str, str] | None = None, dropped: Sequence[str] = ()) -> Any:
    """Return a transform whose parameters are those of ``base`` and ``device``, then those in ``added``, with their defaults."""
    renamed, name = renamed or {}, base.__name__
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [parameter for parameter in inspect.signature(base.__init__).parameters.values() if parameter.name not in dropped]
    more = [inspect.Parameter(key, kind, default=value) for key, value in {"device": "cpu", **(added or {})}.items()]
    signature = inspect.Signature([*(parameter.replace(name=renamed.get(parameter.name, parameter.name)) for parameter in own), *more])
    # From DALI's names back to those of the base class.
    original_names = {new: original for original, new in renamed.items()}

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(self, *args, **kwargs).arguments
        del arguments["self"]
        device = check_device(name, arguments.pop("device", "cpu"))
        if arguments.pop("seed", -1) != -1:
            raise ValueError(f"{name}: a transform has no seed; call torch.manual_seed")
        base.__init__(self, **{original_names.get(key, key): value for key, value in arguments.items()})  # type: ignore[misc]
        self.device = device

    def __call__(self: Any, *inputs: Any) -> Any:
        return base.__call__(self, *(on_device(parameter, self.device) for parameter in inputs))  # type: ignore[operator]

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    # A new class of the same name, so repr() and messages look like DALI's.
    return type(name, (base,), {"__init__": __init__, "__call__": __call__, "__doc__": base.__doc__, "__module__": __name__})


CenterCrop = _derive(v2.CenterCrop)
ColorJitter = _derive(v2.ColorJitter)
GaussianBlur = _derive(v2.GaussianBlur, {"seed": -1})
Grayscale = _derive(v2.Grayscale)
Normalize = _derive(v2.Normalize)
Pad = _derive(v2.Pad)
PILToTensor = _derive(v2.PILToTensor)
RandomApply = _derive(v2.RandomApply, renamed={"transforms": "op_list"})
RandomCrop = _derive(v2.RandomCrop)
RandomGrayscale = _derive(v2.RandomGrayscale)
RandomHorizontalFlip = _derive(v2.RandomHorizontalFlip)
RandomResizedCrop = _derive(v2.RandomResizedCrop)
RandomVerticalFlip = _derive(v2.RandomVerticalFlip)
Resize = _derive(v2.Resize)
ToPILImage = _derive(v2.ToPILImage, dropped=("mode",))
ToPureTensor = _derive(v2.ToPureTensor)


class Compose:
    """Apply transforms one after the other to an image of PIL, a tensor (C, H, W), or a batch of tensors (N, C, H, W).

    Random transforms draw for every sample of a batch. ``PILToTensor`` and ``ToPureTensor`` convert images to tensors, ``ToPILImage`` tensors to
    images, a batch to a list of images; otherwise the output has the type of the input.

    Args:
        op_list: The transforms.
        batch_size: Largest batch that is accepted.
        num_threads, **dali_pipeline_kwargs: Ignored: no pipeline is involved.

    Raises:
        TypeError: ``op_list`` is not a list of callables; the input is neither an image nor a tensor.
        ValueError: a larger batch.

    >>> Compose([CenterCrop(2), Normalize([0.5], [2.0])])(torch.ones(3, 1, 4, 4)).shape
    torch.Size([3, 1, 2, 2])
    """

    def __init__(self, op_list: Sequence[Callable[..., Any]], batch_size: int = 16, num_threads: int = 1, **dali_pipeline_kwargs: Any) -> None:
        if not isinstance(op_list, list | tuple) or not all(callable(step) for step in op_list):
            raise TypeError(f"Compose: op_list must be a list of transforms, got {op_list!r:.100}")
        self.op_list, self.batch_size, self.num_threads = list(op_list), batch_size, num_threads
        last = [type(step) for step in self.op_list if isinstance(step, PILToTensor | ToPureTensor | ToPILImage)]
        # The last conversion in the list decides what is returned; without one, what was passed.
        self._tensors, self._images = bool(last) and last[-1] is not ToPILImage, bool(last) and last[-1] is ToPILImage
        self._steps = [step for step in self.op_list if not isinstance(step, PILToTensor | ToPureTensor | ToPILImage)]

    def __call__(self, data_input: Any) -> Any:
        if isinstance(data_input, torch.Tensor):
            tensor = self._of_tensor(data_input)
            if not self._images:
                return tensor
            images = [v2.functional.to_pil_image(image) for image in (tensor if tensor.dim() == 4 else tensor[None])]
            return images if len(images) > 1 else images[0]
        if not hasattr(data_input, "mode"):
            raise TypeError(f"Compose takes an image of PIL or a tensor, got {type(data_input).__name__}")
        tensor = self._of_tensor(v2.functional.pil_to_tensor(data_input))
        return tensor if self._tensors else v2.functional.to_pil_image(tensor)

    def _of_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the transformed tensor."""
        if tensor.dim() not in (3, 4):
            raise TypeError(f"Compose takes tensors (C, H, W) or (N, C, H, W), got {tensor.dim()} dimensions")
        if tensor.dim() == 4 and len(tensor) > self.batch_size:
            raise ValueError(f"Compose: {len(tensor)} samples are more than batch_size={self.batch_size}")
        # One image is a batch of one, so random transforms draw once for each sample.
        value = as_batch(tensor if tensor.dim() == 4 else tensor[None], layout="CHW")
        for step in self._steps:
            value = step(value)
        output = value.torch() if isinstance(value, Batch) else value
        return output if tensor.dim() == 4 else output[0]
