# SPDX-License-Identifier: Apache-2.0
"""Importing this raises ImportError: there is no plugin for PaddlePaddle."""

from ._other_frameworks import import_error

raise import_error("PaddlePaddle")
