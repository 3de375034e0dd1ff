# SPDX-License-Identifier: Apache-2.0
"""``torchvision``: the transforms of ``nvidia.dali.experimental.torchvision``; ``dynamic``: the names of :mod:`torch_ndd`."""
