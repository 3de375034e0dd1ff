"""Write operators in NumPy, torch and Numba, and use them like those of the library."""

import sys

import numba
import numpy as np
import torch

import torch_ndd as ndd


@ndd.python_operator(shape="same")
def negative(image):
    return 255 - image


@ndd.python_operator(shape="same", form="torch")
def sorted_rows(image):
    return image.sort(dim=1).values


@numba.njit(nogil=True)  # without the GIL the samples of a batch run side by side
def dither(image, threshold):
    result = np.empty_like(image)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            for c in range(image.shape[2]):
                result[y, x, c] = 255 if image[y, x, c] > threshold + 32 * ((x + y) % 2) else 0
    return result


@ndd.python_operator(shape=(3,), dtype=ndd.float32, rng=True)
def color(image, rng):
    y, x = rng.integers(image.shape[0]), rng.integers(image.shape[1])
    return image[y, x].astype(np.float32)


def augment(jpegs, labels):
    images = ndd.resize(ndd.decoders.image(jpegs), size=[48, 48])
    images = negative(images)
    images = sorted_rows(images)
    images = ndd.python_function(dither, images, shape="same", threshold=ndd.random.uniform(range=[60, 180], batch_size=jpegs.batch_size))
    return images, color(images)


reader = ndd.readers.File(file_root=sys.argv[1])
for images, colors in ndd.DataLoader(reader, augment, batch_size=4, seed=1):
    print(tuple(images.shape), sorted(images.unique().tolist()), tuple(colors.shape), torch.equal(colors, colors.round()))
