"""Read images and classes from tar files, each sample once per epoch."""

import sys

import torch_ndd as ndd


def prepare(jpegs, labels):
    return ndd.resize(ndd.decoders.image_random_crop(jpegs), size=[64, 64]), labels


# paths may be "train-{0000..0127}.tar", also as a URL, "*.tar", or a folder
reader = ndd.readers.Webdataset(paths=sys.argv[1:], ext=["jpg", "cls"], decode=True, random_shuffle=True)
for images, labels in ndd.DataLoader(reader, prepare, batch_size=4):
    print(images.shape, labels.tolist())
