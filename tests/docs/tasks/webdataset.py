"""Read images and classes from tar files, each sample once per epoch."""

import sys

import numpy as np

import torch_ndd as ndd


def prepare(jpegs, classes):
    images = ndd.resize(ndd.decoders.image_random_crop(jpegs), size=[64, 64])
    labels = [int(bytes(np.asarray(text))) for text in classes.tensors]
    return images, labels


reader = ndd.readers.Webdataset(paths=sys.argv[1:], ext=["jpg", "cls"], random_shuffle=True)
for images, labels in ndd.DataLoader(reader, prepare, batch_size=4):
    print(images.shape, labels)
