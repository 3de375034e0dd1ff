# SPDX-License-Identifier: Apache-2.0
"""Iterators and servers of pipelines: ``pytorch``, ``triton``. Those for other frameworks are not here and say so when imported."""
