"""Load from a data set of your own, with its augmentation as batches."""

import sys
from pathlib import Path

import torch

import torch_ndd as ndd


class Photos(torch.utils.data.Dataset):
    """Paths and a number for each."""

    def __init__(self, root):
        self.paths = sorted(Path(root).rglob("*.jpg"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.paths[index], len(self.paths[index].name)  # the file of a pathlib.Path is read and decoded natively


def prepare(files, lengths):
    return ndd.resize(ndd.decoders.image(files), size=[64, 64]), lengths


loader = ndd.DataLoader(Photos(sys.argv[1]), prepare, batch_size=3, shuffle=True, num_workers=2)
for images, lengths in loader:
    print(tuple(images.shape), lengths.dtype)
position = loader.state_dict()  # to be saved with the model; load_state_dict() resumes with exactly the remaining samples
