# SPDX-License-Identifier: Apache-2.0
"""The version of torch_ndd, which pyproject.toml reads here too."""

__version__ = "0.1.0"
