# SPDX-License-Identifier: Apache-2.0
"""Names that tools around DALI import from there."""
