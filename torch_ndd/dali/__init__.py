# SPDX-License-Identifier: Apache-2.0
"""Pipelines: programs written for ``nvidia.dali`` run after ``nvidia.dali`` is replaced by ``torch_ndd.dali``, without DALI and without a GPU.

A pipeline is a graph of the operators and readers of :mod:`torch_ndd`, defined once and run batch by batch:

>>> from torch_ndd.dali import fn, pipeline_def, types
>>> @pipeline_def(batch_size=4, num_threads=2, seed=1)
... def numbers():
...     values = fn.random.uniform(range=[0, 10], shape=[2])
...     return fn.cast(values, dtype=types.INT32), values * 2
>>> integers, doubled = numbers().run()
>>> integers.shape(), doubled.dtype
([(2,), (2,), (2,), (2,)], <DALIDataType.FLOAT: 9>)

Modules: ``fn`` and ``ops`` (operators as functions and as classes), ``types``, ``math``, ``pipeline``, ``plugin.pytorch`` (iterators), ``auto_aug``,
``tensors`` (results), ``tfrecord``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        auto_aug,
        backend,
        data_node,
        external_source,
        fn,
        math,
        ops,
        pickling,
        pipeline,
        plugin,
        plugin_manager,
        sysconfig,
        tensors,
        tfrecord,
        types,
    )
    from .data_node import newaxis
    from .pipeline import OperatorConcurrency, Pipeline, StreamPolicy, pipeline_def

# fmt: off
__all__ = [
    "OperatorConcurrency", "Pipeline", "StreamPolicy", "__version__", "auto_aug", "backend", "data_node", "external_source", "fn", "math",
    "newaxis", "ops", "pickling", "pipeline", "pipeline_def", "plugin", "plugin_manager", "sysconfig", "tensors", "tfrecord", "types",
]
# fmt: on

__version__ = "2.4.0"  # of the DALI whose programs run

_NAMES = {
    "OperatorConcurrency": "pipeline",
    "Pipeline": "pipeline",
    "StreamPolicy": "pipeline",
    "newaxis": "data_node",
    "pipeline_def": "pipeline",
}
_MODULES = (
    *("auto_aug", "backend", "data_node", "external_source", "fn", "math", "ops", "pickling", "pipeline", "plugin", "plugin_manager"),
    *("sysconfig", "tensors", "tfrecord", "types"),
)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
