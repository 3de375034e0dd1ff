# SPDX-License-Identifier: Apache-2.0
"""Colors and levels of images: adjustments, color spaces, histograms, Bayer mosaics, JPEG distortion."""
