# SPDX-License-Identifier: Apache-2.0
"""What only a GPU has: CUDA graphs, torch's allocator, and formulas with arguments on the host."""

import dataclasses
import os
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case
from test_operators import CASES, parametrize
from torch._subclasses import FakeTensorMode

import torch_ndd as ndd
from benchmarks.cuda import graph as graph_bench
from benchmarks.cuda import memory as memory_bench
from torch_ndd._core.operators.arguments import Call


@pytest.fixture
def gpu(device: str) -> torch.device:
    if device == "cpu":
        pytest.skip("needs --device=cuda")
    return torch.device("cuda", torch.cuda.current_device())


# --- kernels, a few of each kind: what compute-sanitizer runs ---

FAMILIES = (
    "audio_resample", "mel_filter_bank", "mfcc", "nonsilent_region", "preemphasis_filter", "spectrogram", "time_mask", "to_decibels",
    "brightness", "clahe", "color_space_conversion", "color_twist", "debayer", "equalize", "jpeg_compression_distortion",
    "bbox_paste", "box_encoder", "coord_transform", "experimental.dilate", "experimental.median_blur", "filter", "gaussian_blur", "laplacian",
    "cast", "lookup_table", "normalize", "crop_mirror_normalize", "erase", "flip", "grid_mask", "multi_paste", "pad", "paste", "slice",
    "experimental.remap", "experimental.warp_perspective", "resize", "rotate", "sphere", "water", "noise.gaussian", "noise.shot",
    "permute_batch", "random.beta", "random.choice", "random.uniform", "reductions.max", "reductions.mean", "reductions.variance",
    "segmentation.random_mask_pixel", "segmentation.random_object_bbox", "segmentation.select_masks", "cat", "one_hot", "transpose",
    "transforms.combine", "transforms.rotation",
)  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_of_kernels(gpu: torch.device, name: str) -> None:
    case = next(case for case in CASES if case.operator == name)
    for ragged in {False, case.ragged}:
        for result in case.run(ragged, "gpu"):
            result.cpu().evaluate()


def test_families_exist() -> None:
    assert set(FAMILIES) <= {case.operator for case in CASES}


# --- CUDA graphs ---


@pytest.mark.parametrize(("count", "side"), [(4, 64), (200, 32)])
def test_a_replay_equals_the_calls_on_new_images(gpu: torch.device, count: int, side: int) -> None:
    images = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, device=gpu)
    graph, result = graph_bench.captured(images)
    for _ in range(3):
        images.random_(0, 256)
        graph.replay()
        expected = graph_bench.chain(ndd.as_batch(images, layout="HWC")).torch()
        assert torch.equal(result, expected)
    assert result.std() > 0.1


def _normalize(batch: ndd.Batch) -> ndd.Batch:
    return ndd.normalize(batch, mean=ndd.as_batch(torch.arange(5.0).reshape(5, 1, 1, 1)), stddev=2.0)


GRAPHED: dict[str, Any] = {
    "a table of 256 KB": lambda batch: ndd.lookup_table(ndd.cast(batch, dtype=ndd.uint16), keys=[*range(65536)], values=[*range(65536)][::-1]),
    "values of the host": _normalize,
    "ragged results": lambda batch: ndd.resize(batch, size=ndd.as_batch(torch.tensor([[20, 30], [31, 20], [8, 9], [64, 64], [1, 1]]))),
    "warps": lambda batch: ndd.warp_affine(ndd.rotate(batch, angle=ndd.as_batch(torch.arange(5.0) * 20)), matrix=[1.0, 0.1, 2.0, 0.0, 0.9, 1.0]),
    "stencils": lambda batch: ndd.gaussian_blur(ndd.laplacian(batch, dtype=ndd.float32), sigma=ndd.as_batch(torch.arange(1.0, 6.0))),
    "reductions": lambda batch: ndd.reductions.mean(batch, axes=[0, 1]),
    "arithmetic": lambda batch: (batch + 1) * 0.5 - batch,
}


@pytest.mark.parametrize("name", GRAPHED)
def test_what_graphs_capture(gpu: torch.device, name: str) -> None:
    """The memory of host tables is reused long before the graph is replayed."""
    images = torch.randint(0, 256, (5, 40, 50, 3), dtype=torch.uint8, device=gpu)
    batch = ndd.as_batch(images, layout="HWC")
    function = GRAPHED[name]
    function(batch).evaluate()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(batch)
    noise = [np.random.default_rng(k).bytes(1 << k) for k in range(4, 20) for _ in range(20)]
    for _ in range(2):
        images.random_(0, 256)
        graph.replay()
        torch.cuda.synchronize()
        for ours, theirs in zip(result.cpu(), function(batch).cpu(), strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    del noise


# --- memory ---


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="other processes use the GPU's memory")
def test_device_memory_is_torchs_and_stays_flat(gpu: torch.device) -> None:
    """The whole length is that of ``python -m benchmarks memory --device cuda``."""
    figures = memory_bench.measured(400)
    assert figures["growth beyond torch"] <= memory_bench.BAR_MB
    assert figures["growth of reserved, a batch"] * 200 < figures["reserved"] / 5


# --- formulas ---


@parametrize([case for case in CASES if case.definition.options.formula is not None])
def test_formulas_take_values_of_the_host(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled graph on a GPU has its per-sample arguments on the host."""
    formula, results = case.definition.options.formula, []
    assert formula is not None
    make = Call.__init__

    def compiling(self: Call, name: str, **options: Any) -> None:
        make(self, name, **options)
        self.compiling = True

    def on_a_gpu(values: Any, *arguments: Any, dtype: torch.dtype) -> torch.Tensor | None:
        with FakeTensorMode(allow_non_fake_inputs=True):
            fakes = [
                value if value is None else torch.empty(value.shape, dtype=value.dtype, device="cuda")
                for value in (values if isinstance(values, list) else [values])
            ]
            results.append(formula(fakes if isinstance(values, list) else fakes[0], *arguments, dtype=dtype))
        return formula(values, *arguments, dtype=dtype)

    monkeypatch.setattr(Call, "__init__", compiling)
    monkeypatch.setattr(case.definition, "options", dataclasses.replace(case.definition.options, formula=on_a_gpu))
    case.run()
    assert all(result is None or result.device.type == "cuda" for result in results)
