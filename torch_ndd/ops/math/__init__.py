# SPDX-License-Identifier: Apache-2.0
"""Arithmetic and functions of numbers."""
