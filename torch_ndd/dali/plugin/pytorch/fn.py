# SPDX-License-Identifier: Apache-2.0
"""Operators of pipelines that call torch."""

from ..._functions.python_function import torch_python_function as torch_python_function

__all__ = ["torch_python_function"]
