"""Read images and labels from Parquet files, the form of Hugging Face's data sets."""

import sys

import torch_ndd as ndd


def prepare(batch):
    return ndd.resize(ndd.decoders.image(batch["image"]), size=[64, 64]), batch["label"]


reader = ndd.readers.Parquet(path=sys.argv[1:], columns=["image", "label"], random_shuffle=True)
for images, labels in ndd.DataLoader(reader, prepare, batch_size=4):
    print(images.shape, labels.flatten().tolist())
