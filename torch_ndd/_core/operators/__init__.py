# SPDX-License-Identifier: Apache-2.0
"""Operators: from a handwritten function to checked arguments, launches, and repeated calls."""
