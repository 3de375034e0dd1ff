# SPDX-License-Identifier: Apache-2.0
"""What tools around DALI import from there."""
