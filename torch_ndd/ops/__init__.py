# SPDX-License-Identifier: Apache-2.0
"""Operators, one module a family."""
