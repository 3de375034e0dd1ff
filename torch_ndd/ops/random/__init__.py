# SPDX-License-Identifier: Apache-2.0
"""Random numbers, permutations and crop windows."""
