# SPDX-License-Identifier: Apache-2.0
"""``Pipeline``, and ``pipeline_def``, which makes a factory of pipelines of a function."""

from ._definition import do_not_convert, experimental, pipeline_def
from ._pipeline import Pipeline
from ._policies import OperatorConcurrency, StreamPolicy
from .data_node import DataNode

__all__ = ["DataNode", "OperatorConcurrency", "Pipeline", "StreamPolicy", "do_not_convert", "experimental", "pipeline_def"]
