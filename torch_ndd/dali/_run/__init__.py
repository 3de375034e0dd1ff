# SPDX-License-Identifier: Apache-2.0
"""Running a built graph: issuing and delivering iterations, checks of their use and of their outputs, checkpoints."""
