# SPDX-License-Identifier: Apache-2.0
"""Operators of pipelines as functions: they take and return nodes of the graph.

The functions are those of :mod:`torch_ndd` under DALI's names, generated from the registry of its operators and from its readers. They take data by
position and everything else by keyword. Data may also be a number, a list of numbers or an array, which every sample shares, or a list of nodes, for
which the operator runs on each node with the same arguments and the same random numbers and returns a list.

All functions take

- ``name``: name of the operator, for example for ``Pipeline.reader_meta``;
- ``device``: ``"cpu"``, ``"gpu"`` or ``"mixed"``; by default that of the inputs;
- ``preserve``: run the operator even if nothing uses its results;
- ``seed``, if it draws random numbers: the same seed gives the same numbers in every pipeline.

Without effect, accepted for compatibility with DALI: ``bytes_per_sample_hint`` everywhere; ``affine``, ``cache_*`` and
``*_memory_padding_jpeg2k`` of image decoders; ``minibatch_size`` and ``temp_buffer_hint`` of resizing; ``initial_fill`` (shuffling permutes the whole
data set), ``read_ahead``, ``lazy_init``, ``skip_cached_images``, ``dont_use_mmap``, ``tensor_init_bytes``, ``use_o_direct``, ``register_buffers``,
``cache_header_information``, ``additional_decode_surfaces`` and ``skip_vfr_check`` of readers.

>>> from torch_ndd.dali import pipeline_def, types
>>> @pipeline_def(batch_size=2)
... def numbers():
...     return cast([1.5, 2.5], dtype=types.INT32)
>>> numbers().run()[0].as_array().tolist()
[[2, 3], [2, 3]]
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._functions import special as _special
from .._functions.calls import call as _call
from .._functions.schema import Schema as _Schema
from .._functions.schema import schemas as _schemas
from .._functions.submodules import set_in_module as _set_in_module


def _function(schema: _Schema) -> Callable[..., Any]:
    title = f"fn.{schema.name}"

    def function(*inputs: Any, **arguments: Any) -> Any:
        return _call(schema, title, inputs, arguments)

    *path, name = schema.name.split(".")
    function.__name__ = function.__qualname__ = name
    function.__module__ = ".".join([__name__, *path])
    function.__doc__ = schema.doc
    function.__signature__ = schema.signature  # type: ignore[attr-defined]
    return function


def _fill() -> None:
    for name, schema in _schemas().items():
        _set_in_module(__name__, name, _function(schema))
    for name, function in _special.functions().items():
        _set_in_module(__name__, name, function)


_fill()

# The names depend on the registry of operators.
__all__ = sorted(name for name in globals() if name[0] != "_" and name not in ("Any", "Callable", "TYPE_CHECKING"))  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
