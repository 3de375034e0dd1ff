# SPDX-License-Identifier: Apache-2.0
"""The options that all readers take."""

import inspect
from collections.abc import Callable
from typing import Any, TypedDict, get_args, is_typeddict

from .._core.work.bad_samples import OnError


class LoaderOptions(TypedDict, total=False):
    """Options of every reader.

    - ``shard_id``, ``num_shards``: the first shard and the number of shards, one per process; after a complete epoch the reader moves to the next
      shard.
    - ``stick_to_shard``: stay in the first shard.
    - ``pad_last_batch``: fill the last batch by repeating the last sample, and pad smaller shards likewise.
    - ``pad_shards``: only pad smaller shards: a shard that is one sample short repeats its last one, so that all ranks take the same number of steps.
      The last batch of a loop over a reader or a loader is not filled.
    - ``random_shuffle``: deliver the samples in random order, a new permutation of the whole data set, whatever its size, in each epoch.
    - ``seed``: seed of that order; readers without one have the same order. A state fits other numbers of ranks if all ranks have the same seed.
    - ``shuffle_after_epoch``, ``shuffle_after_epoch_seed``: the same for readers that keep their shard number.
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
    num_shards: int | None
    on_error: OnError
    pad_last_batch: bool | None
    pad_shards: bool | None
    prefetch_queue_depth: int | None
    random_shuffle: bool | None
    read_ahead: bool | None
    seed: int | None
    shard_id: int | None
    shuffle_after_epoch: bool | None
    shuffle_after_epoch_seed: int | None
    skip_cached_images: bool | None
    stick_to_shard: bool | None
    tensor_init_bytes: int | None
    url_max_bytes: int | None
    url_max_seconds: float | None
    url_stall_seconds: float | None
    enable_checkpointing: bool


class DecodingOptions(LoaderOptions, total=False):
    """Options of the readers that decode what they read; see :class:`LoaderOptions` for the others.

    - ``max_sample_bytes``: the largest sample to decode, as a protection against small files that promise a lot; by default the environment variable
      ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB. A larger one is an error of the sample, and of all samples that are read with it.
    """

    max_sample_bytes: int | None


def with_options(init: Callable[..., Any]) -> tuple[list[inspect.Parameter], frozenset[str] | None]:
    """Return the parameters of a reader's constructor including the options it forwards, and the names of these; None if it forwards none.

    They come from the annotation of ``**``: ``Unpack[LoaderOptions]``, or a subclass with more options.
    """
    given = list(inspect.signature(init).parameters.values())[1:]
    own = [one for one in given if one.kind is not inspect.Parameter.VAR_KEYWORD]
    if len(own) == len(given):
        return own, None
    hint = get_args(given[-1].annotation)
    options = (hint[0] if hint and is_typeddict(hint[0]) else LoaderOptions).__annotations__
    known = {one.name for one in own}
    added = [name for name in sorted(options, key=LoaderOptions.__annotations__.__contains__) if name not in known]
    own += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options[name]) for name in added]
    return own, frozenset(options)
