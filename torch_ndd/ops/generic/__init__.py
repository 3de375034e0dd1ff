# SPDX-License-Identifier: Apache-2.0
"""Element types, lookup tables, normalization, Python functions, and what fits nowhere else."""
