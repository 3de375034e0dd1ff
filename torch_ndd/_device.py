# SPDX-License-Identifier: Apache-2.0
"""Devices: where data is."""

from typing import TypeAlias

import torch


class Device:
    """A place of data: ``cpu``, or ``gpu`` with a number.

    >>> Device("cuda:0") == Device("gpu", 0), str(Device("cpu"))
    (True, 'cpu')
    """

    def __init__(self, name: str, device_id: int | None = None) -> None:
        kind, _, number = name.partition(":")
        if kind not in ("cpu", "gpu", "cuda"):
            raise ValueError(f'Invalid device type "{kind}": it must be "cpu", "gpu" or "cuda"')
        if number:
            if device_id is not None:
                raise ValueError(f'Invalid device name "{name}": the number is given twice')
            device_id = int(number)
        self.device_type = "cpu" if kind == "cpu" else "gpu"
        if self.device_type == "cpu" and device_id is not None:
            raise ValueError(f"Invalid device id {device_id} for the CPU: it must be None")
        if self.device_type == "gpu" and device_id is None:
            device_id = torch.cuda.current_device() if torch.cuda.is_available() else 0
        if device_id is not None and (device_id < 0 or 0 < torch.cuda.device_count() <= device_id):
            raise ValueError(f"Invalid device id {device_id}: this machine has {torch.cuda.device_count()} GPUs")
        self.device_id = device_id

    def __str__(self) -> str:
        return "cpu" if self.device_id is None else f"gpu:{self.device_id}"

    def __repr__(self) -> str:
        return f"Device(device_type={self.device_type!r}, device_id={self.device_id})"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Device) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


DeviceLike: TypeAlias = str | torch.device | Device


def torch_device(device: DeviceLike) -> torch.device:
    """The torch device that a name, a ``Device`` or a torch device means. ValueError for an unknown name, TypeError for anything else."""
    if isinstance(device, torch.device):
        return device
    if isinstance(device, str):
        device = Device(device)
    if not isinstance(device, Device):
        raise TypeError(f"Cannot convert {device!r} to Device")
    return torch.device("cpu") if device.device_id is None else torch.device("cuda", device.device_id)
