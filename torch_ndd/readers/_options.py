# SPDX-License-Identifier: Apache-2.0
"""The options that all readers take."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypedDict, get_args, is_typeddict

OnError = Literal["raise", "skip", "replace"]


class LoaderOptions(TypedDict, total=False):
    """What every reader takes.

    - ``shard_id``, ``num_shards``: the shard to begin with and how many there are, one for each process; a complete epoch moves on to the next one.
    - ``stick_to_shard``: stay in the shard.
    - ``pad_last_batch``: fill the last batch by repeating the last sample, and small shards too.
    - ``pad_shards``: only the latter: a shard that has a sample less than others repeats its last one, so that all ranks take equally many steps. The
      last batch of a loop over a reader or a loader stays as small as it is.
    - ``random_shuffle``: deliver in random order, another one in each epoch: a permutation of the whole data set, whatever its size.
    - ``seed``: of that order; readers without one have the same order. With the same seed on all ranks a state fits other numbers of ranks.
    - ``shuffle_after_epoch``, ``shuffle_after_epoch_seed``: the same for readers that keep their shard number.
    - ``prefetch_queue_depth``: batches that are read ahead.
    - ``enable_checkpointing``: allow ``get_state``. ``state_dict`` needs no permission.
    - ``on_error``: what to do about samples that cannot be read. ``"raise"`` a RuntimeError; ``"skip"``: go on with the samples that follow, so that
      batches stay full; ``"replace"``: repeat another sample of the batch in its place. ``reader.errors`` lists them.
    - ``url_max_bytes``: what is at a URL may have so many bytes; by default 4 GiB, and 64 GiB for a container without an index (TFRecord, MXNet and
      Webdataset), which is copied to look for its records. More is an error of the sample.
    - ``url_stall_seconds``: give up a URL when fewer than 4096 bytes arrive in so many seconds, over all attempts; by default 30. After a third of
      that without a byte the request is made anew.
    - ``url_max_seconds``: seconds for a file, or a range of one, over all attempts; by default 600, and 3600 for a container without an index.
    - ``initial_fill``, ``read_ahead``, ``lazy_init``, ``skip_cached_images``, ``dont_use_mmap``, ``tensor_init_bytes``: accepted for DALI's sake.
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


def with_options(init: Callable[..., Any]) -> tuple[list[inspect.Parameter], frozenset[str] | None]:
    """The parameters of a reader's constructor with the options that it passes on, and the names of these; None where it does not.

    The annotation of ``**`` tells them: ``Unpack[LoaderOptions]``, or of a class that adds some.
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
