# SPDX-License-Identifier: Apache-2.0
"""The policies found by AutoAugment's authors (Cubuk et al., arXiv:1805.09501): pairs of "augmentation probability magnitude".

"image_net" is from their code for EfficientNet (github.com/tensorflow/tpu, policy v0), with magnitudes from 0 to 10. The others are tables 7, 8 and 9
of the paper's appendix, found on reduced CIFAR-10, reduced SVHN and reduced ImageNet, with magnitudes from 0 to 9.
"""

from ._augmentations import FOUND, FOUND_IMAGE_NET, Augmentation

Pair = tuple[tuple[str, float, int], ...]

_IMAGE_NET = """
    equalize .8, shear_y .8 4; color .4 9, equalize .6; color .4 1, rotate .6 8; solarize .8 3, equalize .4; solarize .4 2, solarize .6 2;
    color .2 0, equalize .8; equalize .4, solarize_add .8 3; shear_x .2 9, rotate .6 8; color .6 1, equalize 1; invert .4, rotate .6 0;
    equalize 1, shear_y .6 3; color .4 7, equalize .6; posterize .4 6, auto_contrast .4; solarize .6 8, color .6 9;
    solarize .2 4, rotate .8 9; rotate 1 7, translate_y .8 9; solarize .8 4; shear_y .8 0, color .6 4; color 1 0, rotate .6 2;
    equalize .8; equalize 1, auto_contrast .6; shear_y .4 7, solarize_add .6 7; posterize .8 2, solarize .6 10;
    solarize .6 8, equalize .6; color .8 6, rotate .4 5
"""
_REDUCED_IMAGE_NET = """
    posterize .4 8, rotate .6 9; solarize .6 5, auto_contrast .6; equalize .8, equalize .6; posterize .6 7, posterize .6 6;
    equalize .4, solarize .2 4; equalize .4, rotate .8 8; solarize .6 3, equalize .6; posterize .8 5, equalize 1;
    rotate .2 3, solarize .6 8; equalize .6, posterize .4 6; rotate .8 8, color .4 0; rotate .4 9, equalize .6;
    equalize .8; invert .6, equalize 1; color .6 4, contrast 1 8; rotate .8 8, color 1 2; color .8 8, solarize .8 7;
    sharpness .4 7, invert .6; shear_x .6 5, equalize 1; color .4 0, equalize .6; equalize .4, solarize .2 4;
    solarize .6 5, auto_contrast .6; invert .6, equalize 1; color .6 4, contrast 1 8; equalize .8, equalize .6
"""
_CIFAR10 = """
    invert .1, contrast .2 6; rotate .7 2, translate_x .3 9; sharpness .8 1, sharpness .9 3; shear_y .5 8, translate_y .7 9;
    auto_contrast .5, equalize .9; shear_y .2 7, posterize .3 7; color .4 3, brightness .6 7; sharpness .3 9, brightness .7 9;
    equalize .6, equalize .5; contrast .6 7, sharpness .6 5; color .7 7, translate_x .5 8; equalize .3, auto_contrast .4;
    translate_y .4 3, sharpness .2 6; brightness .9 6, color .2 8; solarize .5 2; equalize .2, auto_contrast .6;
    equalize .2, equalize .6; color .9 9, equalize .6; auto_contrast .8, solarize .2 8; brightness .1 3, color .7 0;
    solarize .4 5, auto_contrast .9; translate_y .9 9, translate_y .7 9; auto_contrast .9, solarize .8 3; equalize .8, invert .1;
    translate_y .7 9, auto_contrast .9
"""
_SVHN = """
    shear_x .9 4, invert .2; shear_y .9 8, invert .7; equalize .6, solarize .6 6; invert .9, equalize .6; equalize .6, rotate .9 3;
    shear_x .9 4, auto_contrast .8; shear_y .9 8, invert .4; shear_y .9 5, solarize .2 6; invert .9, auto_contrast .8;
    equalize .6, rotate .9 3; shear_x .9 4, solarize .3 3; shear_y .8 8, invert .7; equalize .9, translate_y .6 6;
    invert .9, equalize .6; contrast .3 3, rotate .8 4; invert .8; shear_y .7 6, solarize .4 8; invert .6, rotate .8 4;
    shear_y .3 7, translate_x .9 3; shear_x .1 6, invert .6; solarize .7 2, translate_y .6 7; shear_y .8 4, invert .8;
    shear_x .7 9, translate_y .8 3; shear_y .8 5, auto_contrast .7; shear_x .7 2, invert .1
"""


def _pairs(text: str) -> tuple[Pair, ...]:
    def step(words: list[str]) -> tuple[str, float, int]:
        return words[0], float(words[1]), int(words[2]) if len(words) > 2 else 0

    return tuple(tuple(step(part.split()) for part in pair.split(",")) for pair in text.split(";"))


# By name: the pairs, their augmentations, and the number of magnitudes.
POLICIES: dict[str, tuple[tuple[Pair, ...], tuple[Augmentation, ...], int]] = {
    "image_net": (_pairs(_IMAGE_NET), FOUND_IMAGE_NET, 11),
    "reduced_image_net": (_pairs(_REDUCED_IMAGE_NET), FOUND, 10),
    "cifar10": (_pairs(_CIFAR10), FOUND, 10),
    "svhn": (_pairs(_SVHN), FOUND, 10),
}
