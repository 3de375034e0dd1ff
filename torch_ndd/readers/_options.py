# SPDX-License-Identifier: Apache-2.0
"""The options that all readers take, and type checks of their arguments against the annotations."""

import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict, get_args, is_typeddict

import numpy as np
import torch

from .._core.context.device import DeviceLike, torch_device
from .._core.work.bad_samples import OnError
from ._summary import SOURCES, source_of


def find_target(op: str, device: DeviceLike) -> torch.device:
    """Return the device of a reader's outputs, the CPU or a GPU. Raise the errors of :func:`torch_device` with the name of the reader."""
    target = torch_device(device, op)
    if target.type not in ("cpu", "cuda"):
        raise ValueError(f"{op}: Invalid device {device!r}: must be the CPU or a GPU")
    return target


class StepOptions(TypedDict, total=False):
    """Options of the readers whose steps are shared by the ranks; see :class:`LoaderOptions`."""

    enable_checkpointing: bool
    num_shards: int | None
    on_error: OnError
    pad_shards: bool | None
    prefetch_queue_depth: int | None
    seed: int | None
    shard_id: int | None


class LoaderOptions(StepOptions, total=False):
    """Options of every other reader.

    - ``shard_id``, ``num_shards``: the first shard and the number of shards, one per process; after a complete epoch the reader moves to the next
      shard.
    - ``stick_to_shard``: stay in the first shard.
    - ``pad_last_batch``: fill the last batch by repeating the last sample, and pad smaller shards likewise.
    - ``pad_shards``: only pad smaller shards: a shard that is one sample short repeats its last one, so that all ranks take the same number of steps.
      The last batch of a loop over a reader or a loader is not filled.
    - ``random_shuffle``: deliver the samples in random order, a new permutation of the whole data set, whatever its size, in each epoch.
    - ``seed``: seed of that order; readers without one have the same order. A state fits other numbers of ranks if all ranks have the same seed.
    - ``shuffle_after_epoch``, ``shuffle_after_epoch_seed``: the same for readers that keep their shard number. Webdataset, TFRecord and MXNet take it
      with ``random_shuffle`` too, whose order then follows from both seeds.
    - ``prefetch_queue_depth``: number of batches to read ahead.
    - ``enable_checkpointing``: allow ``get_state``. ``state_dict`` does not need it.
    - ``on_error``: what to do with a sample that cannot be read. ``"raise"``: raise RuntimeError. ``"skip"``: continue with the following samples, so
      that batches stay full. ``"replace"``: repeat another sample of the batch in its place. ``reader.errors`` lists the bad samples.
    - ``url_max_bytes``: largest size of the data at a URL; by default 4 GiB, and 64 GiB for a container without an index (TFRecord, MXNet and
      Webdataset), which is downloaded to find its records. A larger one is an error of the sample.
    - ``url_stall_seconds``: give up on a URL when fewer than 4096 bytes arrive in this time, over all attempts; by default 30. After a third of it
      without a byte the request is repeated.
    - ``url_max_seconds``: time limit for a file or a byte range, over all attempts; by default 600, and 3600 for a container without an index.
    - ``initial_fill``, ``read_ahead``, ``lazy_init``, ``skip_cached_images``, ``dont_use_mmap``, ``tensor_init_bytes``: ignored, accepted for
      compatibility with DALI.
    """

    dont_use_mmap: bool | None
    initial_fill: int | None
    lazy_init: bool | None
    pad_last_batch: bool | None
    random_shuffle: bool | None
    read_ahead: bool | None
    shuffle_after_epoch: bool | None
    shuffle_after_epoch_seed: int | None
    skip_cached_images: bool | None
    stick_to_shard: bool | None
    tensor_init_bytes: int | None
    url_max_bytes: int | None
    url_max_seconds: float | None
    url_stall_seconds: float | None


class DecodingOptions(LoaderOptions, total=False):
    """Options of the readers that decode what they read; see :class:`LoaderOptions` for the others.

    - ``max_sample_bytes``: the largest sample to decode, to guard against small files that declare large data; by default the environment variable
      ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB. A larger one is an error of the sample, and of all samples that are read with it.
    """

    max_sample_bytes: int | None


def with_options(init: Callable[..., Any]) -> tuple[list[inspect.Parameter], frozenset[str] | None]:
    """Return the parameters of a reader's constructor including the options it forwards, and the names of these; None if it forwards none.

    They come from the annotation of ``**``: ``Unpack[LoaderOptions]``, or a subclass with more options.
    """
    parameters = list(inspect.signature(init).parameters.values())[1:]
    own = [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    if len(own) == len(parameters):
        return own, None
    hint = get_args(parameters[-1].annotation)
    options = (hint[0] if hint and is_typeddict(hint[0]) else LoaderOptions).__annotations__
    known = {parameter.name for parameter in own}
    # Options of the class itself come before those of all readers in the signature.
    added = sorted(set(options) - known, key=lambda name: (name in LoaderOptions.__annotations__, name))
    own += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options[name]) for name in added]
    return own, frozenset(options)


# Checking all of a million paths would take seconds; a bad element beyond these is found when it is used.
MAX_CHECKED_ELEMENTS = 16


def check_arguments(op: str, parameters: Collection[inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument that does not fit its annotation."""
    for parameter in parameters:
        value = arguments.get(parameter.name, parameter.default)
        if value is parameter.default or _fits(value, parameter.annotation):
            continue
        # Users see `Sequence[str]`, not the module that defines it.
        wanted = re.sub(r"(collections\.abc|torch_ndd)\.(_?[a-z]\w*\.)*", "", inspect.formatannotation(parameter.annotation))
        # As in DALI the batch size comes first, where programs for other libraries have the data.
        data = list_data_arguments(parameters) if parameter.name == "max_batch_size" else []
        hint = f"; give the data by name: {' or '.join(f'{name}=' for name in data)}" if data else ""
        raise TypeError(f"{op}: argument {parameter.name!r} must be {wanted}, got {value!r:.200}{hint}")


def list_data_arguments(parameters: Collection[inspect.Parameter]) -> list[str]:
    """Return the names of the arguments that say where the data are: of those that describe the source, those that take a path, or anything."""
    return [parameter.name for parameter in parameters if parameter.name in SOURCES and _fits(Path(), parameter.annotation)]


def check_init_arguments(init: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Return a reader's constructor that checks its arguments first."""

    @functools.wraps(init)
    def init_with_checks(self: Any, *args: Any, **kwargs: Any) -> None:
        # Bind loosely: a wrong call is left to Python, whose TypeError names the constructor.
        names = [parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        check_arguments(f"readers.{type(self).__name__}", parameters, arguments)
        self.__dict__.setdefault("_brief", source_of(arguments))  # the outermost class comes first
        init(self, *args, **kwargs)

    return init_with_checks


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value fits an annotation; True for annotations that are not analyzed."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in inner)
    if kind is typing.Literal:  # the reader checks which of the strings it is
        return isinstance(value, str)
    if kind is Any or not isinstance(kind, type) or typing.is_typeddict(kind):
        return True
    if kind is bool:
        return isinstance(value, bool | np.bool_ | int)
    if kind is int:
        # Every NumPy array has __index__; only those without dimensions are numbers.
        return hasattr(value, "__index__") and not getattr(value, "ndim", 0)
    if kind is float:
        return hasattr(value, "__float__") and not getattr(value, "ndim", 0)
    if kind is os.PathLike:
        return isinstance(value, os.PathLike | bytes)
    if kind in (Sequence, list, tuple):
        # A string is a sequence of strings too, and a mapping of its keys; neither is what the caller meant.
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__") or not hasattr(value, "__len__"):
            return False
        return not inner or all(_fits(element, inner[0]) for element in islice(value, MAX_CHECKED_ELEMENTS))
    return isinstance(value, kind)
