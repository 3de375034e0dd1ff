# SPDX-License-Identifier: Apache-2.0
"""Transforms of torchvision translated to steps over whole batches."""

from typing import Literal

Unknown = Literal["raise", "per_sample"]  # what to do with a transform that cannot be translated
