# SPDX-License-Identifier: Apache-2.0
"""``autoserialize``, which marks the pipeline of a model for the Triton server."""

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["autoserialize"]

F = TypeVar("F", bound=Callable[..., Any])


def autoserialize(dali_pipeline: F) -> F:
    """Mark the pipeline definition of a model. A model has one.

    ``torch_ndd.dali._utils.autoserialize.invoke_autoserialize`` finds it in the model's module and writes its graph to a file.

    Raise TypeError for anything but a ``pipeline_def``.

    >>> from torch_ndd.dali import fn, pipeline_def
    >>> @autoserialize
    ... @pipeline_def(batch_size=8, num_threads=2)
    ... def model():
    ...     return fn.external_source(name="DALI_INPUT_0") / 255
    """
    if not getattr(dali_pipeline, "_is_pipeline_def", False):
        raise TypeError(f"autoserialize decorates a function with @pipeline_def, got {dali_pipeline!r}")
    dali_pipeline._is_autoserialize = True  # type: ignore[attr-defined]
    return dali_pipeline
