# SPDX-License-Identifier: Apache-2.0
"""Readers of data sets: epochs of batches or samples, read ahead by native threads."""

from .file import File as File
