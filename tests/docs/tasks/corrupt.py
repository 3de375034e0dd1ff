"""Train although some files are damaged, and list them afterwards."""

import sys

import torch_ndd as ndd

reader = ndd.readers.File(file_root=sys.argv[1], on_error="skip")
for jpegs, labels in reader.next_epoch(batch_size=4):
    images = ndd.decoders.image(jpegs, on_error="skip")
    labels = labels.select(images.kept)  # of the images that are left
    for bad in images.errors:
        print(bad.source, "-", bad.reason)
