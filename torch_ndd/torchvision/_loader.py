# SPDX-License-Identifier: Apache-2.0
""":class:`torch_ndd.DataLoader` with the constructor of ``torch.utils.data.DataLoader``."""

from collections.abc import Callable
from typing import Any

from .._core.context.device import DeviceLike
from ..loader import DataLoader as NddLoader
from ..readers._sources.choice import Chosen
from ..readers._sources.selected import flat_dataset, is_native
from ..readers.dataset._worker_processes import Context
from ._translation import Unknown
from .datasets import ImageFolder


class DataLoader(NddLoader):
    """A :class:`torch_ndd.DataLoader` with the arguments of ``torch.utils.data.DataLoader`` and the same results.

    This is torchvision's spelling, for scripts that are not to be changed; :class:`torch_ndd.DataLoader` is the class for new programs.

    For an ``ImageFolder``, ours or torchvision's, also in ``Subset`` and ``ConcatDataset``, files are read and decoded natively, and its transform
    runs on whole batches (:func:`from_torchvision`): images (N, C, H, W) and classes, int64 (N,). Other data sets are called on ``num_workers``
    threads, or in processes with ``multiprocessing_context``.

    Args:
        dataset: a data set.
        batch_size, shuffle, drop_last, pin_memory, multiprocessing_context, persistent_workers: as in torch.
        num_workers: threads or processes that call ``dataset[i]``; an ``ImageFolder`` needs none and ignores it.
        timeout, prefetch_factor, pin_memory_device, in_order: ignored.
        sampler, batch_sampler, collate_fn, worker_init_fn, generator: only None.
        prefetch, device, seed, prefetch_bytes, return_paths: see :class:`torch_ndd.DataLoader`.
        unknown: treatment of transforms that are not torchvision's, see :func:`from_torchvision`.
        **options: options of readers, see :class:`torch_ndd.readers.LoaderOptions`.

    Raises:
        TypeError: a ``sampler``, ``collate_fn`` or another argument that is not supported; a transform that cannot be translated.

    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> from torchvision.transforms import v2
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("cat/1.png", "dog/2.png"):
    ...     (folder / name).parent.mkdir()
    ...     Image.new("RGB", (40, 20), "red").save(folder / name)
    >>> transform = v2.Compose([v2.RandomResizedCrop(8), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    >>> dataset = ndd.ImageFolder(folder, transform)
    >>> [(images.shape, labels.tolist()) for images, labels in DataLoader(dataset, batch_size=2, num_workers=4)]
    [(torch.Size([2, 3, 8, 8]), [0, 1])]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Context | None = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        prefetch: int = 2,
        device: DeviceLike | None = None,
        seed: int | None = None,
        unknown: Unknown = "raise",
        **options: Any,
    ) -> None:
        unsupported = {
            "sampler": (sampler, "pass it to torch_ndd.DataLoader"),
            "batch_sampler": (batch_sampler, "pass batch_size and a sampler to torch_ndd.DataLoader"),
            "collate_fn": (collate_fn, "pass it to torch_ndd.DataLoader, whose fn is called with whole batches"),
            "worker_init_fn": (worker_init_fn, "files are read on threads, without worker processes"),
            "generator": (generator, "use seed instead"),
        }
        for name, (value, advice) in unsupported.items():
            if value is not None:
                raise TypeError(f"torchvision.DataLoader: {name} is not supported; {advice}")
        if batch_size is None:
            raise ValueError("torchvision.DataLoader: batch_size must be a number, because transforms run on whole batches")
        # torch's default, None, means no shuffling; an iterable data set takes no order at all.
        arguments: dict[str, Any] = {"shuffle": bool(shuffle) if hasattr(dataset, "__getitem__") else shuffle, "pin_memory": pin_memory}
        arguments |= {"prefetch": prefetch, "device": device, "seed": seed, "drop_last": drop_last, **options}
        flat = flat_dataset(dataset, _as_native)
        # Files of an ImageFolder are read by native threads; all other data sets call Python.
        if not isinstance(flat, ImageFolder):
            arguments |= {"num_workers": num_workers, "multiprocessing_context": multiprocessing_context, "persistent_workers": persistent_workers}
        # Our own data sets are wrapped, so that the loader passes ``unknown`` on to the translation.
        super().__init__(_NativeDataset(flat, unknown) if is_native(flat) else dataset, batch_size=batch_size, **arguments)
        self.dataset = dataset


def _as_native(dataset: Any) -> Any:
    """Return torchvision's ``ImageFolder`` with the default loader as ours; any other data set unchanged."""
    # By name, because importing torchvision.datasets takes long, and exactly: a subclass may override __getitem__.
    is_theirs = type(dataset).__module__.startswith("torchvision.datasets.") and type(dataset).__name__ == "ImageFolder"
    return ImageFolder._of(dataset) if is_theirs and getattr(dataset.loader, "__name__", "") == "default_loader" else dataset


class _NativeDataset:
    """A data set with the loader's treatment of unknown transforms."""

    def __init__(self, dataset: Any, unknown: Unknown) -> None:
        self._dataset, self._unknown = dataset, unknown

    def choose_reader(self, arguments: Any, options: Any) -> Chosen:
        return Chosen(*self._dataset.choose_reader(arguments, options, self._unknown))
