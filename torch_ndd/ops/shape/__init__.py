# SPDX-License-Identifier: Apache-2.0
"""Reshaping, joining, filling, and the frames of sequences."""
