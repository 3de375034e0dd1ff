# SPDX-License-Identifier: Apache-2.0
# Mix three data sets in given proportions, change them between epochs, and resume on any number of processes.
import sys
from pathlib import Path

import torch_ndd as ndd

root = Path(sys.argv[1])  # folders web/, docs/ and chat/, each with one folder of images per class
SIZE = [64, 64]


def make_mix(weights: dict[str, float]) -> ndd.readers.Mix:
    sources = {name: ndd.readers.File(file_root=root / name) for name in ("web", "docs", "chat")}
    return ndd.readers.Mix(sources, weights=weights, random_shuffle=True, seed=1, **ndd.distributed.shard())


def decode(jpegs: ndd.Batch, labels: ndd.Batch, source: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch, ndd.Batch]:
    return ndd.resize(ndd.decoders.image(jpegs), size=SIZE), labels, source


mix = make_mix({"web": 5, "docs": 3, "chat": 2})
loader = ndd.DataLoader(mix, decode, batch_size=10)
for images, _, source in loader:
    print(tuple(images.shape), [mix.names[k] for k in source.tolist()])

mix.set_weights({"web": 1, "docs": 1, "chat": 2})  # sources go on where they are
batches = iter(loader)
next(batches)
state = loader.state_dict()  # of a few hundred bytes, the same on all processes

resumed = ndd.DataLoader(make_mix({"web": 1, "docs": 1, "chat": 2}), decode, batch_size=4)
resumed.load_state_dict(state)
print([len(images) for images, _, _ in resumed])
