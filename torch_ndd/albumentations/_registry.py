# SPDX-License-Identifier: Apache-2.0
"""Which transforms of Albumentations are translated, and why others are not. The table in docs/migrate/albumentations.md is tested against it."""

from . import _colors, _conversions, _crops, _distortions, _dropout, _filters, _flips, _levels, _noise, _resizes, _warps
from ._step import Step

# Transforms whose steps have the same names, by the modules of the steps.
_NAMESAKES = {
    _colors: ("ChannelShuffle", "ColorJitter", "HueSaturationValue", "ToGray", "ToRGB", "ToSepia"),
    _conversions: ("Downscale", "FromFloat", "ImageCompression", "Normalize", "ToFloat", "ToTensorV2"),
    _crops: (
        *("AtLeastOneBBoxRandomCrop", "BBoxSafeRandomCrop", "CenterCrop", "Crop", "CropAndPad", "CropNonEmptyMaskIfExists", "Pad"),
        *("PadIfNeeded", "RandomCrop", "RandomCropFromBorders", "RandomResizedCrop", "RandomSizedBBoxSafeCrop", "RandomSizedCrop"),
    ),
    _distortions: ("ElasticTransform", "GridDistortion", "OpticalDistortion"),
    _dropout: ("CoarseDropout", "Erasing", "GridDropout", "XYMasking"),
    _filters: ("AdvancedBlur", "Blur", "Defocus", "Emboss", "GaussianBlur", "MedianBlur", "MotionBlur", "RingingOvershoot", "Sharpen", "UnsharpMask"),
    _flips: ("D4", "HorizontalFlip", "NoOp", "RandomRotate90", "Transpose", "VerticalFlip"),
    _levels: (
        *("ChannelDropout", "Equalize", "InvertImg", "MultiplicativeNoise", "PlanckianJitter", "Posterize", "RGBShift"),
        *("RandomBrightnessContrast", "RandomGamma", "RandomToneCurve", "Solarize"),
    ),
    _noise: ("GaussNoise", "PixelDropout", "SaltAndPepper"),
    _resizes: ("LongestMaxSize", "RandomScale", "Resize", "SmallestMaxSize"),
    _warps: ("Affine", "Perspective", "Rotate", "SafeRotate"),
}

STEPS: dict[str, type[Step]] = {
    **{name: getattr(module, name) for module, names in _NAMESAKES.items() for name in names},
    "AdditiveNoise": _noise.GaussNoise,
    "CLAHE": _colors.Clahe,
    "FrequencyMasking": _dropout.XYMasking,
    "ShiftScaleRotate": _warps.Affine,
    "SquareSymmetry": _flips.D4,
    "TimeMasking": _dropout.XYMasking,
    "TimeReverse": _flips.HorizontalFlip,
}

_PAINTED = "it paints lines, circles or clouds, for which there are no operators"
_OTHER_IMAGES = "it needs other images, which a batch of samples does not have; see torch_ndd.augment for mixing within a batch"
_VOLUMES = "volumes are not translated"
_PIECES = "there is no operator that moves pieces of an image"
_STATISTICS = "it needs statistics of colors that no operator computes"

REFUSED: dict[str, str] = {
    "AutoContrast": "its histogram leaves out level 255, which no operator does",
    "CenterCrop3D": _VOLUMES,
    "ChromaticAberration": "channels would have to be distorted separately",
    "CoarseDropout3D": _VOLUMES,
    "ConstrainedCoarseDropout": "its holes follow the objects of masks",
    "CubicSymmetry": _VOLUMES,
    "FDA": _OTHER_IMAGES,
    "FancyPCA": _STATISTICS,
    "GlassBlur": "it exchanges pixels one after the other",
    "GridElasticDeform": _PIECES,
    "HEStain": _STATISTICS,
    "HistogramMatching": _OTHER_IMAGES,
    "ISONoise": "it adds noise in the HLS color space, for which there is no operator",
    "Illumination": "there is no operator that multiplies an image by a gradient",
    "Lambda": "it calls Python functions of single images; use ndd.python_function",
    "MaskDropout": "its holes are the objects of a mask",
    "Morphological": "its structuring element is an ellipse; ndd.experimental.dilate and erode have rectangles",
    "Mosaic": "it needs other images; use ndd.augment.mosaic",
    "OverlayElements": _OTHER_IMAGES,
    "Pad3D": _VOLUMES,
    "PadIfNeeded3D": _VOLUMES,
    "PiecewiseAffine": _PIECES,
    "PixelDistributionAdaptation": _OTHER_IMAGES,
    "PlasmaBrightnessContrast": _PAINTED,
    "PlasmaShadow": _PAINTED,
    "RandomCrop3D": _VOLUMES,
    "RandomCropNearBBox": "it needs a box of its own for each sample; crop with ndd.slice",
    "RandomFog": _PAINTED,
    "RandomGravel": _PAINTED,
    "RandomGridShuffle": _PIECES,
    "RandomRain": _PAINTED,
    "RandomShadow": _PAINTED,
    "RandomSnow": _PAINTED,
    "RandomSunFlare": _PAINTED,
    "ShotNoise": "it adds noise after a gamma correction; ndd.noise.shot adds it without",
    "Spatter": _PAINTED,
    "Superpixels": "there is no operator that divides an image into superpixels",
    "TextImage": _PAINTED,
    "ThinPlateSpline": "there is no operator that solves for a spline",
    "ToTensor3D": _VOLUMES,
    "ZoomBlur": "there is no operator that adds many zoomed copies",
    "ReplayCompose": "draws are not recorded; a seed repeats them",
    "SelectiveChannelTransform": "transforms change all channels",
}
