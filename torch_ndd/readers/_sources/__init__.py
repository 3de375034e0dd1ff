# SPDX-License-Identifier: Apache-2.0
"""What a loader can read: readers, data sets, iterables, external sources, and several of them in step."""
