# SPDX-License-Identifier: Apache-2.0
"""What the operators of a thread use: devices, CPU threads, CUDA streams, modes, random generators and their saved states."""
