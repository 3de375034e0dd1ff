# SPDX-License-Identifier: Apache-2.0
"""Shapes, arithmetic, reductions and random numbers, and what a call costs."""

import numpy as np
import torch

from ._case import Case

_GENERATOR = np.random.default_rng(1)


def _window(parameters: dict[str, int]) -> torch.Tensor:
    return torch.tensor([parameters["height"], parameters["width"]], dtype=torch.int32)


CASES = (
    Case(
        "transpose to CHW",
        ndd=lambda ndd, types, x: ndd.transpose(x, perm=[2, 0, 1]),
        cv2=lambda cv2, x: cv2.split(x),
        tv=lambda v2, x: x.contiguous(),  # in memory its images have the channels last
    ),
    Case(
        "transpose, height and width",
        ndd=lambda ndd, types, x: ndd.transpose(x, perm=[1, 0, 2]),
        cv2=lambda cv2, x: cv2.transpose(x),
        tv=lambda v2, x: x.transpose(2, 3).contiguous(),
    ),
    Case(
        "cat, 2 along the width",
        ndd=lambda ndd, types, x: ndd.cat(x, x, axis=1),
        cv2=lambda cv2, x: cv2.hconcat([x, x]),
        tv=lambda v2, x: torch.cat([x, x], 3),
    ),
    Case(
        "stack, 2",
        ndd=lambda ndd, types, x: ndd.stack(x, x),
        np=lambda x: np.stack([x, x]),
        tv=lambda v2, x: torch.stack([x, x], 1),
    ),
    Case(
        "copy",
        ndd=lambda ndd, types, x: ndd.copy(x),
        np=lambda x: x.copy(),
        tv=lambda v2, x: x.clone(),
    ),
    Case("reshape", ndd=lambda ndd, types, x: ndd.reshape(x, shape=[640, 480, 3])),
    Case("reinterpret", ndd=lambda ndd, types, x: ndd.reinterpret(x, dtype=ndd.int16, shape=[-1])),
    Case("expand_dims", ndd=lambda ndd, types, x: ndd.expand_dims(x, axes=[0])),
    Case("one_hot, 1000 classes", ndd=lambda ndd, types, x: ndd.one_hot(x, num_classes=1000), data="labels"),
    Case(
        "full 480x640x3",
        ndd=lambda ndd, types, x: ndd.full_like(x, 7),
        np=lambda x: np.full_like(x, 7),
        tv=lambda v2, x: torch.full_like(x, 7),
    ),
    Case(
        "reductions.mean of height and width",
        ndd=lambda ndd, types, x: ndd.reductions.mean(x, axes=[0, 1]),
        cv2=lambda cv2, x: np.float32(cv2.mean(x)[:3]),
        tv=lambda v2, x: x.mean((2, 3), dtype=torch.float32),
    ),
    Case(
        "reductions.mean of channels",
        ndd=lambda ndd, types, x: ndd.reductions.mean(x, axes=[2]),
        tv=lambda v2, x: x.mean(1, dtype=torch.float32),
    ),
    Case(
        "reductions.mean of width",
        ndd=lambda ndd, types, x: ndd.reductions.mean(x, axes=[1]),
        cv2=lambda cv2, x: cv2.reduce(x, 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F),
        tv=lambda v2, x: x.mean(3, dtype=torch.float32),
    ),
    Case(
        "reductions.sum",
        ndd=lambda ndd, types, x: ndd.reductions.sum(x),
        cv2=lambda cv2, x: np.uint64(sum(cv2.sumElems(x))),
        tv=lambda v2, x: x.sum((1, 2, 3)).view(torch.uint64),
    ),
    Case(
        "reductions.max of height and width",
        ndd=lambda ndd, types, x: ndd.reductions.max(x, axes=[0, 1]),
        tv=lambda v2, x: x.amax((2, 3)),
    ),
    Case(
        "reductions.mean_square",
        ndd=lambda ndd, types, x: ndd.reductions.mean_square(x),
        cv2=lambda cv2, x: np.float32(cv2.norm(x, cv2.NORM_L2SQR) / x.size),
        tv=lambda v2, x: x.float().square_().mean((1, 2, 3)),
    ),
    Case(  # OpenCV's and torch's functions find the mean as well
        "reductions.std_dev of height and width",
        ndd=lambda ndd, types, x: ndd.reductions.std_dev(x, ndd.reductions.mean(x, axes=[0, 1]), axes=[0, 1]),
        cv2=lambda cv2, x: np.float32(cv2.meanStdDev(x)[1]),
        tv=lambda v2, x: x.float().std((2, 3)),
    ),
    Case(
        "arithmetic, x * 0.5",
        ndd=lambda ndd, types, x: x * 0.5,
        cv2=lambda cv2, x: cv2.multiply(x, (0.5, 0.5, 0.5, 0.5), dtype=cv2.CV_32F),
        tv=lambda v2, x: x * 0.5,
    ),
    Case(  # two operators against one fused call of OpenCV
        "arithmetic, x * 0.5 + 3",
        ndd=lambda ndd, types, x: x * 0.5 + 3,
        cv2=lambda cv2, x: cv2.addWeighted(x, 0.5, x, 0.0, 3.0, dtype=cv2.CV_32F),
        tv=lambda v2, x: x * 0.5 + 3,
    ),
    Case(
        "random.uniform 480x640",
        ndd=lambda ndd, types, x: ndd.random.uniform(range=[0.0, 1.0], shape=[480, 640], batch_size=16),
        cv2=lambda cv2, x: cv2.randu(np.empty((480, 640), np.float32), 0.0, 1.0),
        tv=lambda v2, x: x.new_empty((len(x), 480, 640), dtype=torch.float32).uniform_(),
    ),
    Case(
        "random.coin_flip 480x640",
        ndd=lambda ndd, types, x: ndd.random.coin_flip(probability=0.5, shape=[480, 640], batch_size=16),
        tv=lambda v2, x: x.new_empty((len(x), 480, 640), dtype=torch.int32).bernoulli_(0.5),
    ),
    Case(
        "random.normal 64x4096",
        ndd=lambda ndd, types, x: ndd.random.normal(shape=[4096], batch_size=64),
        np=lambda x: _GENERATOR.standard_normal(4096, np.float32),
        tv=lambda v2, x: torch.randn(64, 4096),
        data="64 rows",
    ),
    Case(
        "random.beta 64x4096",
        ndd=lambda ndd, types, x: ndd.random.beta(alpha=0.4, beta=0.4, shape=[4096], batch_size=64),
        np=lambda x: _GENERATOR.beta(0.4, 0.4, 4096).astype(np.float32),
        data="64 rows",
    ),
    Case(
        "random.choice 64x4096, with probabilities",
        ndd=lambda ndd, types, x: ndd.random.choice([1, 2, 3, 4], p=[0.1, 0.2, 0.3, 0.4], shape=[4096], batch_size=64),
        np=lambda x: _GENERATOR.choice(np.array([1, 2, 3, 4], np.int32), 4096, p=[0.1, 0.2, 0.3, 0.4]),
        data="64 rows",
    ),
    Case(
        "batch_permutation, permute_batch",
        ndd=lambda ndd, types, x: ndd.permute_batch(x, indices=ndd.batch_permutation(batch_size=16)),
        tv=lambda v2, x: x[torch.randperm(len(x))],
    ),
    Case(
        "random_crop_generator",
        ndd=lambda ndd, types, x: ndd.random_crop_generator([480, 640, 3], batch_size=16)[1],
        tv=lambda v2, x: [_window(v2.RandomResizedCrop(224).make_params([image])) for image in x],
    ),
    Case(
        "math.exp",
        ndd=lambda ndd, types, x: ndd.math.exp(x),
        cv2=lambda cv2, x: cv2.exp(x.astype(np.float32)),
        tv=lambda v2, x: x.exp(),
    ),
    Case(
        "math.clamp to 20...200",
        ndd=lambda ndd, types, x: ndd.math.clamp(x, 20, 200),
        tv=lambda v2, x: x.clamp(20, 200).int(),
    ),
    Case(
        "comparison, x < 100",
        ndd=lambda ndd, types, x: x < 100,
        cv2=lambda cv2, x: cv2.compare(x, (100.0, 100.0, 100.0, 0.0), cv2.CMP_LT).view(np.bool_),
        tv=lambda v2, x: x < 100,
    ),
    Case(
        "patchify 16",
        ndd=lambda ndd, types, x: ndd.patchify(x, patch_size=16)[0],
        tv=lambda v2, x: x.view(len(x), 3, 30, 16, 40, 16).permute(0, 2, 4, 1, 3, 5).reshape(len(x), 1200, 768),
    ),
    # What a call costs when there is next to nothing to compute.
    Case("tiny: batch + 1", ndd=lambda ndd, types, x: x + 1, data="tiny"),
    Case("tiny: ten operations in a chain", ndd=lambda ndd, types, x: ((((x + 1) * 2 - 3) / 4 + x) * 0.5 - x) * 3.0 + 2 - x, data="tiny"),
    Case("tiny: batch + 1, the call alone", ndd=lambda ndd, types, x: x + 1, data="tiny", call_only=True),
    Case(
        "tiny: cast, the call alone",
        ndd=lambda ndd, types, x: ndd.cast(x, dtype=ndd.int32),
        data="tiny",
        call_only=True,
    ),
)
