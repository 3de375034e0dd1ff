# SPDX-License-Identifier: Apache-2.0
"""Convolutions and rank filters of images."""
