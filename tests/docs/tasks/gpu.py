"""Prepare batches on the GPU where there is one, and on the CPU elsewhere."""

import sys

import torch

import torch_ndd as ndd

device = "cuda" if torch.cuda.is_available() else "cpu"


def augment(jpegs, labels):
    images = ndd.decoders.image_random_crop(jpegs)  # on the CPU; device="gpu" decodes on the GPU
    images = images.to_device(device)  # bytes, before they become floats of four times the size
    images = ndd.resize(images, size=[64, 64])
    return ndd.crop_mirror_normalize(images, mean=127.5, std=63.75), labels


loader = ndd.DataLoader(ndd.ImageFolder(sys.argv[1]), augment, batch_size=4, device=device)  # the labels too
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 2)).to(device)
for images, labels in loader:
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    print(tuple(images.shape), images.device.type == labels.device.type == device)
print(ndd.uploads().pageable, "copies for which the host waited")
