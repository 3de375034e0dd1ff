"""Read clips of 6 frames from videos, and augment all frames of a clip alike."""

import sys

import torch_ndd as ndd


def augment(clips):
    n = clips.batch_size
    clips = ndd.resize(clips, size=[64, 64])
    return ndd.crop_mirror_normalize(clips, mirror=ndd.random.coin_flip(batch_size=n), mean=127.5, std=63.75, output_layout="CFHW")


reader = ndd.readers.Video(filenames=sys.argv[1:], sequence_length=6, stride=1, step=2)
for clips in ndd.DataLoader(reader, augment, batch_size=1):
    print(clips.shape)  # (clips, 3, 6, 64, 64)
