"""Train on images and masks that lie in two folders, with equal names."""

import sys

import torch_ndd as ndd

images, masks = (ndd.readers.File(file_root=folder, random_shuffle=True, seed=1) for folder in sys.argv[1:])


def augment(batch):
    pixels = ndd.decoders.image(batch["image"][0])
    classes = ndd.decoders.image(batch["mask"][0], output_type=ndd.types.GRAY)
    flips = ndd.random.coin_flip(batch_size=pixels.batch_size)  # one decision for both
    pixels, classes = ndd.flip(pixels, horizontal=flips), ndd.flip(classes, horizontal=flips)
    pixels = ndd.resize(pixels, size=[64, 64])
    classes = ndd.resize(classes, size=[64, 64], interp_type=ndd.types.INTERP_NN)  # never a mixture of two classes
    return {"image": ndd.crop_mirror_normalize(pixels, mean=127.5, std=63.75), "mask": classes}


for batch in ndd.DataLoader({"image": images, "mask": masks}, augment, batch_size=4):
    print(tuple(batch["image"].shape), tuple(batch["mask"].shape), batch["mask"].unique().tolist())
