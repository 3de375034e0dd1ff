"""Split a folder of images into training and validation."""

import sys

import torch

import torch_ndd as ndd

images = ndd.ImageFolder(sys.argv[1])
training, validation = torch.utils.data.random_split(images, [0.75, 0.25], torch.Generator().manual_seed(1))


def augment(jpegs, labels):
    return ndd.resize(ndd.decoders.image_random_crop(jpegs), size=[64, 64]), labels


def evaluate(jpegs, labels):
    return ndd.crop(ndd.resize(ndd.decoders.image(jpegs), resize_shorter=72.0), crop=[64, 64]), labels


for name, loader in (
    ("training", ndd.DataLoader(training, augment, batch_size=3, shuffle=True, seed=1)),
    ("validation", ndd.DataLoader(validation, evaluate, batch_size=3)),
):
    print(name, sum(len(labels) for _, labels in loader), loader.reader)
