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
    """Return the device. Raise ValueError for another one than DALI's two."""
    if device not in _DEVICES:
        raise ValueError(f'{name}: device must be "cpu" or "gpu", got {device!r}')
    return device


def on_device(value: Any, device: str) -> Any:
    """Return a tensor on the GPU for ``"gpu"``, if there is one; anything else as it is."""
    return value.cuda() if device == "gpu" and gpu_count() and isinstance(value, torch.Tensor) else value


def _made(base: type, added: Mapping[str, Any] | None = None, renamed: Mapping[str, str] | None = None, dropped: Sequence[str] = ()) -> Any:
    """Return a transform whose parameters are those of ``base`` and ``device``, then those in ``added``, with their defaults."""
    renamed, name = renamed or {}, base.__name__
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [one for one in inspect.signature(base.__init__).parameters.values() if one.name not in dropped]
    more = [inspect.Parameter(key, kind, default=value) for key, value in {"device": "cpu", **(added or {})}.items()]
    signature = inspect.Signature([*(one.replace(name=renamed.get(one.name, one.name)) for one in own), *more])
    old = {new: old for old, new in renamed.items()}

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        del given["self"]
        device = check_device(name, given.pop("device", "cpu"))
        if given.pop("seed", -1) != -1:
            raise ValueError(f"{name}: a transform has no seed of its own; call torch.manual_seed")
        base.__init__(self, **{old.get(key, key): value for key, value in given.items()})  # type: ignore[misc]
        self.device = device

    def __call__(self: Any, *inputs: Any) -> Any:
        return base.__call__(self, *(on_device(one, self.device) for one in inputs))  # type: ignore[operator]

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return type(name, (base,), {"__init__": __init__, "__call__": __call__, "__doc__": base.__doc__, "__module__": __name__})


CenterCrop = _made(v2.CenterCrop)
ColorJitter = _made(v2.ColorJitter)
GaussianBlur = _made(v2.GaussianBlur, {"seed": -1})
Grayscale = _made(v2.Grayscale)
Normalize = _made(v2.Normalize)
Pad = _made(v2.Pad)
PILToTensor = _made(v2.PILToTensor)
RandomApply = _made(v2.RandomApply, renamed={"transforms": "op_list"})
RandomCrop = _made(v2.RandomCrop)
RandomGrayscale = _made(v2.RandomGrayscale)
RandomHorizontalFlip = _made(v2.RandomHorizontalFlip)
RandomResizedCrop = _made(v2.RandomResizedCrop)
RandomVerticalFlip = _made(v2.RandomVerticalFlip)
Resize = _made(v2.Resize)
ToPILImage = _made(v2.ToPILImage, dropped=("mode",))
ToPureTensor = _made(v2.ToPureTensor)


class Compose:
    """Apply transforms one after the other to an image of PIL, a tensor (C, H, W), or a batch of tensors (N, C, H, W).

    Random transforms draw for every sample of a batch. An image of PIL stays one, unless a transform makes tensors of it: ``PILToTensor`` and
    ``ToPureTensor`` do, and ``ToPILImage`` makes images of tensors, a list of them for a batch.

    Args:
        op_list: The transforms.
        batch_size: Largest batch that is accepted.
        num_threads, **dali_pipeline_kwargs: Ignored: there is no pipeline.

    Raises:
        TypeError: ``op_list`` is not a list of callables; something else than an image or a tensor is given.
        ValueError: a larger batch.

    >>> Compose([CenterCrop(2), Normalize([0.5], [2.0])])(torch.ones(3, 1, 4, 4)).shape
    torch.Size([3, 1, 2, 2])
    """

    def __init__(self, op_list: Sequence[Callable[..., Any]], batch_size: int = 16, num_threads: int = 1, **dali_pipeline_kwargs: Any) -> None:
        if not isinstance(op_list, list | tuple) or not all(callable(one) for one in op_list):
            raise TypeError(f"Compose: op_list must be a list of transforms, got {op_list!r:.100}")
        self.op_list, self.batch_size, self.num_threads = list(op_list), batch_size, num_threads
        last = [type(one) for one in self.op_list if isinstance(one, PILToTensor | ToPureTensor | ToPILImage)]
        self._tensors, self._images = bool(last) and last[-1] is not ToPILImage, bool(last) and last[-1] is ToPILImage
        self._steps = [one for one in self.op_list if not isinstance(one, PILToTensor | ToPureTensor | ToPILImage)]

    def __call__(self, data_input: Any) -> Any:
        if isinstance(data_input, torch.Tensor):
            made = self._of_tensor(data_input)
            if not self._images:
                return made
            images = [v2.functional.to_pil_image(one) for one in (made if made.dim() == 4 else made[None])]
            return images if len(images) > 1 else images[0]
        if not hasattr(data_input, "mode"):
            raise TypeError(f"Compose takes an image of PIL or a tensor, got {type(data_input).__name__}")
        made = self._of_tensor(v2.functional.pil_to_tensor(data_input))
        return made if self._tensors else v2.functional.to_pil_image(made)

    def _of_tensor(self, given: torch.Tensor) -> torch.Tensor:
        """Return the transformed tensor."""
        if given.dim() not in (3, 4):
            raise TypeError(f"Compose takes tensors (C, H, W) or (N, C, H, W), got {given.dim()} dimensions")
        if given.dim() == 4 and len(given) > self.batch_size:
            raise ValueError(f"Compose: {len(given)} samples are more than batch_size={self.batch_size}")
        value = as_batch(given if given.dim() == 4 else given[None], layout="CHW")
        for step in self._steps:
            value = step(value)
        made = value.torch() if isinstance(value, Batch) else value
        return made if given.dim() == 4 else made[0]
