# SPDX-License-Identifier: Apache-2.0
"""Work that may not have ended: waiting for it, its errors and the lines of its calls, on the CPU and on CUDA streams."""
