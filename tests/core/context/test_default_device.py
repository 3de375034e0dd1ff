# SPDX-License-Identifier: Apache-2.0
"""Programs with a default device of torch: results are those without one. ``meta`` stands for any device that the CPU cannot write to."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import augment
from torch_ndd.dali import fn, pipeline_def
from torch_ndd.torchvision import v2
from torch_ndd.torchvision.v2 import functional

_PIXELS = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
_PLANES = torch.from_numpy(_PIXELS).permute(0, 3, 1, 2).contiguous()


def _images() -> ndd.Batch:
    return ndd.batch(_PIXELS, layout="HWC")


def _make_ragged() -> ndd.Batch:
    return ndd.batch([_PIXELS[0], _PIXELS[1, :10]], layout="HWC")


def _boxes() -> ndd.Batch:
    return ndd.batch([np.array([[1, 2, 9, 8]], np.float32)] * 3)


@pipeline_def(batch_size=3, num_threads=1, device_id=None)
def _pipeline() -> Any:
    pixels = fn.external_source(source=lambda: list(_PIXELS), layout="HWC")
    return fn.rotate(pixels, angle=fn.random.uniform(range=[-9.0, 9.0], seed=3), keep_size=True)


def _run_pipeline() -> np.ndarray:
    pipeline = _pipeline()
    pipeline.build()
    return np.asarray(pipeline.run()[0].as_tensor())


_PROGRAMS: dict[str, Callable[[], Any]] = {
    "batch": lambda: ndd.batch([1.5, 2.5]),
    "arithmetic": lambda: _images() * 1.5 + 2,
    "slicing": lambda: _images().slice[2:9, ::-2],
    "select": lambda: _images().select([2, 0]),
    "ragged": lambda: ndd.as_tensor(_make_ragged().select([1, 0]), pad=True),
    "padded": lambda: _make_ragged().padded().values,
    "tensor index": lambda: ndd.tensor(_PIXELS)[1, ::-1],
    "operator": lambda: ndd.resize(_images(), size=[[9, 8], [7, 6], [5, 4]]).tensors[1],
    "defaults": lambda: ndd.crop_mirror_normalize(_images(), mirror=[0, 1, 0]),
    "random": lambda: ndd.random.uniform(range=[0, 1], shape=[2], batch_size=4),
    "generator": lambda: ndd.random.RNG(seed=3).draw(4),
    "budget": lambda: ndd.sizes.budget([[40, 50], [20, 31]], multiple_of=14, max_pixels=7840, frames=[4, 6]),
    "canvas": lambda: ndd.sizes.canvas([[40, 50], [20, 31]], tile=16, max_tiles=4)[1],
    "chosen canvas": lambda: ndd.sizes.canvas([[40, 50], [20, 31]], tile=16, canvases=[[16, 32], [32, 32]])[0],
    "patches": lambda: ndd.sizes.patches([[40, 50], [20, 31]], patch_size=16, max_patches=16),
    "fit": lambda: ndd.sizes.fit(_images(), box=[24, 24]),
    "external source": lambda: ndd.ExternalSource(lambda i: np.full(2, i), per_sample=True)(batch_size=3),
    "policy": lambda: augment.rand_augment(_images(), n=2, m=9),
    "cutmix": lambda: augment.cutmix(_images(), ndd.batch([0, 1, 2]), num_classes=3, alpha=1.0)[0],
    "matrix": lambda: ndd.bbox_transform(_boxes(), MT=ndd.transforms.of(ndd.rotate, _images(), angle=10.0)),
    "functional": lambda: functional.affine(_PLANES, 10.0, [1, 2], 1.5, [3.0, 0.0]),
    "transform": lambda: v2.RandomResizedCrop(8)(_PLANES),
    "pipeline": _run_pipeline,
}


@pytest.fixture(params=["context", "set_default_device"])
def default_device(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "context":
        with torch.device("meta"):
            yield
        return
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


def _compute(program: Callable[[], Any]) -> np.ndarray:
    ndd.random.set_seed(5)
    torch.manual_seed(5)
    return np.asarray(program())


@pytest.fixture
def result_on_cpu(request: pytest.FixtureRequest) -> np.ndarray:
    return _compute(_PROGRAMS[request.getfixturevalue("name")])


@pytest.mark.parametrize("name", _PROGRAMS)
def test_default_device_changes_no_result(name: str, result_on_cpu: np.ndarray, default_device: None) -> None:
    assert torch.empty(0).is_meta
    np.testing.assert_array_equal(_compute(_PROGRAMS[name]), result_on_cpu)
    assert torch.empty(0).is_meta


def test_readers_and_loader_ignore_default_device(tmp_path: Path, default_device: None) -> None:
    for k, pixels in enumerate(_PIXELS):
        PIL.Image.fromarray(pixels).save(tmp_path / f"{k}.png")

    def read() -> ndd.readers.File:
        return ndd.readers.File(files=[str(tmp_path / f"{k}.png") for k in range(3)])

    for files, labels in read().next_epoch(batch_size=3):
        np.testing.assert_array_equal(ndd.decoders.image(files), _PIXELS)
        np.testing.assert_array_equal(labels, [[0], [1], [2]])
    for images, _ in ndd.DataLoader(read(), lambda files, labels: (ndd.flip(ndd.decoders.image(files)), labels), batch_size=3):
        np.testing.assert_array_equal(images, _PIXELS[:, :, ::-1])


_BATCHES = [ndd.batches.Packed(10), ndd.batches.Bucketed(12), ndd.batches.Balanced(samples=3)]


@pytest.mark.parametrize("batches", _BATCHES, ids=lambda batches: type(batches).__name__)
def test_batches_by_cost_ignore_default_device(batches: ndd.batches.Batches, default_device: None) -> None:
    lengths = [4, 5, 7, 1, 3, 6, 2]
    data = [torch.full((length,), length, device="cpu") for length in lengths]
    batches.cost = lengths
    delivered = [sample.tolist() for samples, _ in ndd.DataLoader(data, batches=batches) for sample in samples]
    assert sorted(map(len, delivered)) == sorted(lengths)
    assert all(sample == [len(sample)] * len(sample) for sample in delivered)


@pytest.mark.slow
def test_import_ignores_default_device() -> None:
    program = (
        "import torch\n"
        "with torch.device('meta'):\n"
        "    import torch_ndd as ndd, torch_ndd.albumentations, torch_ndd.dali, torch_ndd.torchvision.v2\n"
        "print(ndd.saturation(ndd.batch([[[[9, 9, 9]]]], dtype='u8', layout='HWC'), saturation=0.5).torch().flatten().tolist())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.stdout, result.returncode) == ("[9, 9, 9]\n", 0), result.stderr
