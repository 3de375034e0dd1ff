"""Stop in the middle of an epoch, and resume with the samples that remain."""

import json
import sys
from pathlib import Path

import torch_ndd as ndd

folder, saved = sys.argv[1], Path(sys.argv[2])


def prepare(jpegs, labels):
    return ndd.resize(ndd.decoders.image_random_crop(jpegs), size=[64, 64]), labels


reader = ndd.readers.File(file_root=folder, random_shuffle=True, seed=1)
loader = ndd.DataLoader(reader, prepare, batch_size=2, seed=1)
if saved.exists():
    loader.load_state_dict(json.loads(saved.read_text()))
for step, (images, _) in enumerate(loader):
    print(images.float().mean().item())
    saved.write_text(json.dumps(loader.state_dict()))
    if step == 1 and len(sys.argv) > 3:
        break  # the power fails
