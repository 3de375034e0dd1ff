# SPDX-License-Identifier: Apache-2.0
"""``Pipeline``, and ``pipeline_def``, which turns a function into a factory of pipelines."""

from .._policies import OperatorConcurrency, StreamPolicy
from ..data_node import DataNode
from . import experimental
from ._definition import do_not_convert, pipeline_def
from ._pipeline import Pipeline

__all__ = ["DataNode", "OperatorConcurrency", "Pipeline", "StreamPolicy", "do_not_convert", "experimental", "pipeline_def"]
