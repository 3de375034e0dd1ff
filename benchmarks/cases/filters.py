# SPDX-License-Identifier: Apache-2.0
"""Operators of neighborhoods, and noise."""

import numpy as np
import torch

from ._case import Case

_SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)
_EMBOSS = np.array([[-0.4, -0.2, 0.1], [-0.3, 1.0, 0.3], [-0.1, 0.2, 0.5]], np.float32)


CASES = (
    Case(
        "gaussian_blur, sigma 1.5",
        ndd=lambda ndd, types, x: ndd.gaussian_blur(x, sigma=1.5),
        cv2=lambda cv2, x: cv2.GaussianBlur(x, (11, 11), 1.5),  # the window that DALI takes for this sigma
        tv=lambda v2, x: v2.functional.gaussian_blur(x, [11, 11], [1.5, 1.5]),
    ),
    Case(
        "gaussian_blur, sigma 1.5, exact",
        ndd=lambda ndd, types, x: ndd.gaussian_blur(x, sigma=1.5, exact=True),
        tv=lambda v2, x: v2.functional.gaussian_blur(x, [11, 11], [1.5, 1.5]),
    ),
    Case(
        "sharpness",
        ndd=lambda ndd, types, x: ndd.sharpness(x, sharpness=1.7),
        tv=lambda v2, x: v2.functional.adjust_sharpness(x, 1.7),
    ),
    Case(
        "laplacian",
        ndd=lambda ndd, types, x: ndd.laplacian(x),
        cv2=lambda cv2, x: cv2.Laplacian(x, -1, ksize=3),
    ),
    Case(
        "filter 3x3, sharpening",
        ndd=lambda ndd, types, x: ndd.filter(x, _SHARPEN),
        cv2=lambda cv2, x: cv2.filter2D(x, -1, _SHARPEN),
    ),
    Case(
        "filter 3x3, fractions",
        ndd=lambda ndd, types, x: ndd.filter(x, _EMBOSS),
        cv2=lambda cv2, x: cv2.filter2D(x, -1, _EMBOSS),
    ),
    # DALI has these three on the GPU alone.
    Case(
        "median_blur 3x3",
        ndd=lambda ndd, types, x: ndd.experimental.median_blur(x),
        cv2=lambda cv2, x: cv2.medianBlur(x, 3),
    ),
    Case(
        "median_blur 5x5",
        ndd=lambda ndd, types, x: ndd.experimental.median_blur(x, window_size=[5, 5]),
        cv2=lambda cv2, x: cv2.medianBlur(x, 5),
    ),
    Case(
        "dilate 3x3",
        ndd=lambda ndd, types, x: ndd.experimental.dilate(x),
        cv2=lambda cv2, x: cv2.dilate(x, np.ones((3, 3), np.uint8)),
    ),
    Case(
        "erode 7x7",
        ndd=lambda ndd, types, x: ndd.experimental.erode(x, mask_size=[7, 7]),
        cv2=lambda cv2, x: cv2.erode(x, np.ones((7, 7), np.uint8)),
    ),
    Case(
        "noise.gaussian",
        ndd=lambda ndd, types, x: ndd.noise.gaussian(x, stddev=10.0),
        cv2=lambda cv2, x: cv2.add(x, cv2.randn(np.empty(x.shape, np.int16), (0, 0, 0), (10, 10, 10)), dtype=cv2.CV_8U),
        tv=lambda v2, x: v2.functional.gaussian_noise(x, 0.0, 10 / 255),
    ),
    Case(
        "noise.shot",
        ndd=lambda ndd, types, x: ndd.noise.shot(x, factor=20.0),
        tv=lambda v2, x: torch.poisson(x.float() / 20).mul_(20).clamp_(max=255).to(torch.uint8),
    ),
    Case("noise.salt_and_pepper", ndd=lambda ndd, types, x: ndd.noise.salt_and_pepper(x, prob=0.05)),
)
