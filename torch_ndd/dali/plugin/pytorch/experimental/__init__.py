# SPDX-License-Identifier: Apache-2.0
"""``proxy``: pipelines as transforms of PyTorch data sets."""
