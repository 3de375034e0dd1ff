# SPDX-License-Identifier: Apache-2.0
"""Transforms of torchvision translated to steps over whole batches."""
