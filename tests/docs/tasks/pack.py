"""Make a folder of classes smaller and read it from tar files."""

import sys

import numpy as np

import torch_ndd as ndd
from torch_ndd.pack import pack, shards_of


def prepare(jpegs, classes):
    images = ndd.resize(ndd.decoders.image_random_crop(jpegs), size=[64, 64])
    labels = [int(bytes(np.asarray(text))) for text in classes.tensors]
    return images, labels


photos, packed = sys.argv[1:]
report = pack(photos, packed, shorter=80)
print(f"{report.images} images, {len(report.skipped)} skipped")

reader = ndd.readers.Webdataset(paths=shards_of(packed), ext=["jpg;png", "cls"], random_shuffle=True)
for images, labels in ndd.DataLoader(reader, prepare, batch_size=4):
    print(images.shape, labels)
