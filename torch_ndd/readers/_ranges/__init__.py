# SPDX-License-Identifier: Apache-2.0
"""Byte ranges of local and remote files: where the samples are, and reading them."""
