# SPDX-License-Identifier: Apache-2.0
"""Importing this raises ImportError: there is no plugin for PaddlePaddle."""

from ._other_frameworks import refused

raise refused("PaddlePaddle")
