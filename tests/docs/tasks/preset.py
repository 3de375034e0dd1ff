"""Classify images with weights of torchvision and the preset that belongs to them."""

import sys
from pathlib import Path

from torchvision.models import ResNet18_Weights, resnet18

import torch_ndd as ndd
from torch_ndd.torchvision import from_torchvision

weights = ResNet18_Weights.DEFAULT
preset = from_torchvision(weights.transforms())
model = resnet18().eval()  # resnet18(weights=weights) downloads them
image = sorted(Path(sys.argv[1]).rglob("*.jpg"))[0]
print(tuple(preset(ndd.decoders.image(image)).shape))  # one image
loader = ndd.DataLoader(ndd.ImageFolder(sys.argv[1]), lambda jpegs, labels: (preset(jpegs), labels), batch_size=4)
for images, _ in loader:
    print(tuple(images.shape), tuple(model(images).shape))
