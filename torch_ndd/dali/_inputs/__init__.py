# SPDX-License-Identifier: Apache-2.0
"""Data from the program's Python code: batches that are fed, sources that are called, and worker processes that call them."""
