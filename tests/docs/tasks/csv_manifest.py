"""Read images and labels that a CSV file lists."""

import csv
import sys
from pathlib import Path

import torch_ndd as ndd

manifest = Path(sys.argv[1])
with manifest.open(newline="", encoding="utf-8-sig") as file:  # Excel writes a mark of the encoding
    rows = list(csv.DictReader(file))
classes = sorted({row["label"] for row in rows})
reader = ndd.readers.File(
    files=[manifest.parent / row["path"] for row in rows],  # or URLs
    labels=[classes.index(row["label"]) for row in rows],
    random_shuffle=True,
    seed=1,
)


def augment(jpegs, labels):
    return ndd.resize(ndd.decoders.image(jpegs), size=[64, 64]), labels


for images, labels in ndd.DataLoader(reader, augment, batch_size=4):
    print(tuple(images.shape), [classes[k] for k in labels.flatten()])
