# SPDX-License-Identifier: Apache-2.0
"""Boxes and coordinates."""
