# SPDX-License-Identifier: Apache-2.0
"""Graphs and their arguments as JSON."""
