"""Find what makes a loader slow."""

import sys
import time

import torch_ndd as ndd


def augment(jpegs, labels):
    images = ndd.resize(ndd.decoders.image(jpegs), size=[64, 64])
    time.sleep(0.05)  # Python that should not be here
    return images, labels


reader = ndd.readers.File(file_root=sys.argv[1])
loader = ndd.DataLoader(reader, augment, batch_size=2)
for _ in loader:
    pass  # a model without work
print(loader.diagnose())
