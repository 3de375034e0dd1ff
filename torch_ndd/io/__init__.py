# SPDX-License-Identifier: Apache-2.0
"""Reading what is named by data."""

from . import file as file
