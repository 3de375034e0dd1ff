# SPDX-License-Identifier: Apache-2.0
"""Operators, one module or folder per family."""
