"""Train on a folder of images: one folder per class."""

import sys

import torch

import torch_ndd as ndd

images = ndd.ImageFolder(sys.argv[1])
print(images.classes)


def augment(jpegs, labels):
    pixels = ndd.decoders.image_random_crop(jpegs)  # decodes only the window
    pixels = ndd.resize(pixels, size=[64, 64])
    pixels = ndd.crop_mirror_normalize(pixels, mirror=ndd.random.coin_flip(batch_size=jpegs.batch_size), mean=[124, 116, 104], std=[58, 57, 57])
    return pixels, labels


loader = ndd.DataLoader(images, augment, batch_size=4, shuffle=True, seed=1)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, len(images.classes)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for pixels, labels in loader:
    loss = torch.nn.functional.cross_entropy(model(pixels), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(tuple(pixels.shape), labels.dtype)
