"""Make augmentation stronger from epoch to epoch, and in step with the training within an epoch."""

import sys

import torch_ndd as ndd


class Augment:
    """The function of the loader, with numbers that the training sets."""

    magnitude = 0
    flips = 0.0

    def __call__(self, jpegs, labels):
        images = ndd.resize(ndd.decoders.image(jpegs), size=[64, 64])
        images = ndd.flip(images, horizontal=ndd.random.coin_flip(probability=self.flips, batch_size=images.batch_size))
        images = ndd.augment.rand_augment(images, n=2, m=self.magnitude)
        return images, ndd.batch([self.magnitude] * images.batch_size)


augment = Augment()
reader = ndd.readers.File(file_root=sys.argv[1], random_shuffle=True, seed=1)
loader = ndd.DataLoader(reader, augment, batch_size=4)
for epoch in range(3):
    augment.magnitude, augment.flips = 4 * epoch, 0.5 * (epoch > 0)  # before the loop: it holds for the whole epoch
    print(epoch, [magnitudes.tolist() for _, magnitudes in loader])
