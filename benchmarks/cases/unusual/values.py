# SPDX-License-Identifier: Apache-2.0
"""Statistics, arithmetic, types, random numbers and audio."""

import numpy as np

from ._inputs import arguments, each, on

_ALL = ("CHW", "4 channels", "uint16", "float32", "7x5 pixels", "ragged", "videos")
_TYPES = ("uint16", "int32", "float32", "videos")
_SIGNALS, _SPECTRA = "speech", "spectra"

CASES = (
    *on("normalize", lambda ndd, types, x: ndd.normalize(x), "CHW", "uint16", "float32", "ragged", "videos", tolerance=0.01),
    *on("normalize by channels", lambda ndd, types, x: ndd.normalize(x, axis_names="HW"), *_ALL, tolerance=0.01),
    *arguments(
        "normalize",
        {
            "by rows": lambda ndd, types, x: ndd.normalize(x, axes=[1]),
            "by columns": lambda ndd, types, x: ndd.normalize(x, axes=[0]),
            "by pixels": lambda ndd, types, x: ndd.normalize(x, axes=[2]),
            "width and channels": lambda ndd, types, x: ndd.normalize(x, axes=[1, 2]),
            "height and channels": lambda ndd, types, x: ndd.normalize(x, axes=[0, 2]),
            "by the batch": lambda ndd, types, x: ndd.normalize(x, batch=True, axes=[0, 1]),
            "mean given": lambda ndd, types, x: ndd.normalize(x, mean=120.0),
            "mean and deviation given": lambda ndd, types, x: ndd.normalize(x, mean=120.0, stddev=50.0),
            "to uint8": lambda ndd, types, x: ndd.normalize(x, scale=64.0, shift=128.0, dtype=ndd.uint8),
        },
        tolerance=1.0,
    ),
    *on("reductions.sum", lambda ndd, types, x: ndd.reductions.sum(x), *_TYPES, tolerance=1e4),
    *on("reductions.mean of height and width", lambda ndd, types, x: ndd.reductions.mean(x, axes=[-3, -2]), "uint8", "4 channels", *_TYPES),
    *on("reductions.mean of channels", lambda ndd, types, x: ndd.reductions.mean(x, axes=[-1]), "4 channels", *_TYPES),
    *on("reductions.max", lambda ndd, types, x: ndd.reductions.max(x), *_TYPES),
    *on("reductions.min of height", lambda ndd, types, x: ndd.reductions.min(x, axes=[0]), "uint8", *_TYPES),
    *arguments(
        "reductions",
        {
            "max of width": lambda ndd, types, x: ndd.reductions.max(x, axes=[1]),
            "max of channels": lambda ndd, types, x: ndd.reductions.max(x, axes=[2]),
            "max of height and channels": lambda ndd, types, x: ndd.reductions.max(x, axes=[0, 2], keep_dims=True),
            "mean of height and channels": lambda ndd, types, x: ndd.reductions.mean(x, axes=[0, 2]),
            "mean of width and channels": lambda ndd, types, x: ndd.reductions.mean(x, axes=[1, 2]),
            "mean of height": lambda ndd, types, x: ndd.reductions.mean(x, axes=[0]),
            "sum of height and width, float32": lambda ndd, types, x: ndd.reductions.sum(x, axes=[0, 1], dtype=ndd.float32),
            "sum of height and channels": lambda ndd, types, x: ndd.reductions.sum(x, axes=[0, 2]),
            "mean_square of channels": lambda ndd, types, x: ndd.reductions.mean_square(x, axes=[2]),
            "mean_square of height and channels": lambda ndd, types, x: ndd.reductions.mean_square(x, axes=[0, 2]),
            "rms of width": lambda ndd, types, x: ndd.reductions.rms(x, axes=[1]),
            "rms of height": lambda ndd, types, x: ndd.reductions.rms(x, axes=[0]),
            "std_dev of width": lambda ndd, types, x: ndd.reductions.std_dev(x, ndd.reductions.mean(x, axes=[1]), axes=[1]),
            "variance of channels": lambda ndd, types, x: ndd.reductions.variance(x, ndd.reductions.mean(x, axes=[2]), axes=[2]),
            "variance, all": lambda ndd, types, x: ndd.reductions.variance(x, 120.0),
        },
        tolerance=1.0,
    ),
    *on("arithmetic, x * 0.5 + 3", lambda ndd, types, x: x * 0.5 + 3, "CHW", *_TYPES),
    *on("arithmetic, x + x", lambda ndd, types, x: x + x, "CHW", *_TYPES),
    *on("arithmetic, x // 3", lambda ndd, types, x: x // 3, "uint8", "uint16", "int32"),
    *on("arithmetic, x / x", lambda ndd, types, x: x / x, "uint8", "uint16", "int32", "float32", tolerance=float("inf")),
    *on("arithmetic, -x", lambda ndd, types, x: -x, "uint8", "uint16", "int32", "float32"),
    *on("comparison, x < 100", lambda ndd, types, x: x < 100, "uint16", "int32", "float32", "7x5 pixels"),
    *on("comparison, x == x", lambda ndd, types, x: x == x, "uint8", "float32"),
    *arguments(
        "arithmetic",
        {
            "a number a sample": lambda ndd, types, x: x * each(ndd, 0.5, 1.5, 0.9, 1.1, 1.3, 0.7, 2.0, 1.0),
            "a number a channel": lambda ndd, types, x: x - ndd.tensor([1.0, 2.0, 3.0], dtype=ndd.float32),
            "x & 15": lambda ndd, types, x: x & 15,
            "x | x": lambda ndd, types, x: x | x,
        },
    ),
    *arguments(
        "math",
        {
            "sqrt": lambda ndd, types, x: ndd.math.sqrt(x),
            "log": lambda ndd, types, x: ndd.math.log(x + 1),
            "sin": lambda ndd, types, x: ndd.math.sin(x),
            "tanh": lambda ndd, types, x: ndd.math.tanh(x),
            "atan2": lambda ndd, types, x: ndd.math.atan2(x, x),
            "pow": lambda ndd, types, x: ndd.math.pow(x, 0.45),
            "pow 2": lambda ndd, types, x: ndd.math.pow(x, 2),
            "floor": lambda ndd, types, x: ndd.math.floor(x * 0.3),
            "abs": lambda ndd, types, x: ndd.math.abs(x),
            "max": lambda ndd, types, x: ndd.math.max(x, 100),
            "clamp": lambda ndd, types, x: ndd.math.clamp(x, 20.0, 200.0),
        },
        "float32",
        tolerance=0.01,
    ),
    *arguments(
        "math",
        {
            "sqrt": lambda ndd, types, x: ndd.math.sqrt(x),
            "log10": lambda ndd, types, x: ndd.math.log10(x + 1),
            "cbrt": lambda ndd, types, x: ndd.math.cbrt(x),
            "atan": lambda ndd, types, x: ndd.math.atan(x),
            "pow": lambda ndd, types, x: ndd.math.pow(x, 0.45),
            "max": lambda ndd, types, x: ndd.math.max(x, 100),
        },
        tolerance=0.01,
    ),
    *on("cast to uint8", lambda ndd, types, x: ndd.cast(x, dtype=ndd.uint8), "uint16", "int16", "int32", "float16", "float32"),
    *on("cast to float16", lambda ndd, types, x: ndd.cast(x, dtype=ndd.float16), "uint8", "int16", "int32", "float32"),
    *on("cast to float32", lambda ndd, types, x: ndd.cast(x, dtype=ndd.float32), "uint16", "float16", "7x5 pixels", "ragged"),
    *on("cast to int64", lambda ndd, types, x: ndd.cast(x, dtype=ndd.int64), "uint8", "float32"),
    *on("copy", lambda ndd, types, x: ndd.copy(x), "7x5 pixels", "ragged", "videos"),
    *arguments(
        "one_hot",
        {
            "of uint8": lambda ndd, types, x: ndd.one_hot(x, num_classes=20),
            "in front": lambda ndd, types, x: ndd.one_hot(x, num_classes=20, axis=0, dtype=ndd.uint8, on_value=9.0),
        },
        "7x5 pixels",
    ),
    *arguments(
        "random",
        {
            "uniform, int32": lambda ndd, types, x: ndd.random.uniform(range=[0.0, 99.0], shape=[213, 321], dtype=ndd.int32, batch_size=8),
            "uniform, uint8": lambda ndd, types, x: ndd.random.uniform(range=[0.0, 99.0], shape=[213, 321], dtype=ndd.uint8, batch_size=8),
            "uniform, values": lambda ndd, types, x: ndd.random.uniform(values=[1.0, 2.0, 5.0], shape=[213, 321], batch_size=8),
            "uniform, like x": lambda ndd, types, x: ndd.random.uniform(x, range=[0.0, 1.0]),
            "normal, a mean a sample": lambda ndd, types, x: ndd.random.normal(
                mean=each(ndd, 1, 2, 3, 4, 5, 6, 7, 8), shape=[213, 321], batch_size=8
            ),
            "coin_flip, bool": lambda ndd, types, x: ndd.random.coin_flip(shape=[213, 321], dtype=ndd.bool, batch_size=8),
            "beta": lambda ndd, types, x: ndd.random.beta(alpha=2.0, beta=5.0, shape=[101, 103], batch_size=8),
            "choice of rows": lambda ndd, types, x: ndd.random.choice(100, shape=[101, 103], batch_size=8),
        },
        tolerance=float("inf"),
    ),
    *arguments(
        "spectrogram",
        {
            "power 1": lambda ndd, types, x: ndd.spectrogram(x, window_length=512, window_step=256, power=1),
            "nfft 1000": lambda ndd, types, x: ndd.spectrogram(x, nfft=1000, window_length=400, window_step=160),
            "a window of 400": lambda ndd, types, x: ndd.spectrogram(x, nfft=400, window_length=400, window_step=160, window_fn=[1.0] * 400),
            "no center": lambda ndd, types, x: ndd.spectrogram(x, window_length=512, window_step=256, center_windows=False),
            "zeros outside": lambda ndd, types, x: ndd.spectrogram(x, window_length=512, window_step=256, reflect_padding=False),
            "nfft 401": lambda ndd, types, x: ndd.spectrogram(x, nfft=401, window_length=401, window_step=160),
        },
        _SIGNALS,
    ),
    *arguments(
        "audio",
        {
            "preemphasis, zeros": lambda ndd, types, x: ndd.preemphasis_filter(x, border="zero"),
            "preemphasis a sample": lambda ndd, types, x: ndd.preemphasis_filter(x, preemph_coeff=each(ndd, *[0.9 + k / 1000 for k in range(64)])),
            "preemphasis to int16": lambda ndd, types, x: ndd.preemphasis_filter(x, dtype=ndd.int16),
            "nonsilent_region, reset": lambda ndd, types, x: ndd.nonsilent_region(x, reset_interval=4096, reference_power=0.5)[0],
            "audio_resample, quality 0": lambda ndd, types, x: ndd.audio_resample(x, scale=0.7, quality=0.0),
            "audio_resample, quality 100": lambda ndd, types, x: ndd.audio_resample(x, scale=0.7, quality=100.0),
            "audio_resample, a length": lambda ndd, types, x: ndd.audio_resample(x, out_length=50001),
            "audio_resample, a rate": lambda ndd, types, x: ndd.audio_resample(x, in_rate=16000.0, out_rate=22050.0),
            "power_spectrum, nfft 65536": lambda ndd, types, x: ndd.power_spectrum(x, nfft=65536, power=1),
        },
        _SIGNALS,
        outliers=0.01,
    ),
    *arguments(
        "audio",
        {
            "mel, HTK, not normalized": lambda ndd, types, x: ndd.mel_filter_bank(x, nfilter=40, mel_formula="htk", normalize=False, freq_low=100.0),
            "to_decibels, reference": lambda ndd, types, x: ndd.to_decibels(x, multiplier=20.0, reference=1.0, cutoff_db=-60.0),
            "mfcc, type 1": lambda ndd, types, x: ndd.mfcc(x, dct_type=1, n_mfcc=13),
            "mfcc, type 3, lifter": lambda ndd, types, x: ndd.mfcc(x, dct_type=3, n_mfcc=30, normalize=True, lifter=22.0),
            "mfcc along time": lambda ndd, types, x: ndd.mfcc(x, axis=1, n_mfcc=13),
            "power_spectrum, first axis": lambda ndd, types, x: ndd.power_spectrum(x, axis=0),
        },
        _SPECTRA,
        tolerance=0.1,
        outliers=0.01,
    ),
    *arguments(
        "points and boxes",
        {
            "coord_transform, M and T": lambda ndd, types, x: ndd.coord_transform(x, M=[0.8, 0.1, -0.2, 1.1], T=[5.0, 7.0]),
            "coord_flip about a center": lambda ndd, types, x: ndd.coord_flip(x, center_x=0.3, flip_y=1, center_y=0.7),
        },
        "points",
    ),
    *arguments(
        "points and boxes",
        {
            "bb_flip a sample": lambda ndd, types, x: ndd.bb_flip(x, vertical=each(ndd, *[k % 2 for k in range(64)], dtype=np.int32)),
            "bbox_paste a sample": lambda ndd, types, x: ndd.bbox_paste(x, ratio=each(ndd, *[1.0 + k / 10 for k in range(64)])),
        },
        "boxes",
    ),
)
