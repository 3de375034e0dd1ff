# SPDX-License-Identifier: Apache-2.0
"""timm's transforms, policies and Mixup over whole batches. timm itself is not needed.

:func:`torch_ndd.torchvision.from_timm` makes the function of a loader from the arguments of ``timm.data.create_transform``;
:func:`torch_ndd.torchvision.from_torchvision` converts the objects that ``create_transform`` returns.
"""

__all__: list[str] = []  # in torch_ndd.torchvision
