# SPDX-License-Identifier: Apache-2.0
"""Tensor and Batch: buffers, shapes and layouts, indexing, arithmetic, and exchange with other libraries."""
