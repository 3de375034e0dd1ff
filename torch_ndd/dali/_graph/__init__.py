# SPDX-License-Identifier: Apache-2.0
"""The graph of a pipeline, and the operations that run operators, readers and arithmetic."""
