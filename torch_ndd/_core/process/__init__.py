# SPDX-License-Identifier: Apache-2.0
"""The process: its threads and locks, forks and exit, files, and bounds of memory."""
