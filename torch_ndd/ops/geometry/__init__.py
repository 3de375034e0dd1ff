# SPDX-License-Identifier: Apache-2.0
"""Crops, slices, pads, pastes, flips, resizing and warps."""
