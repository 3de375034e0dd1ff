# SPDX-License-Identifier: Apache-2.0
"""Whole programs on a GPU: pipelines, loaders and compiled steps give what they give on the CPU. They run with ``--device=cuda``."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
import torch_ndd.dali as dali
from torch_ndd.dali import fn, types
from torch_ndd.dali.auto_aug import auto_augment, rand_augment, trivial_augment
from torch_ndd.dali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator, LastBatchPolicy

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
LEVELS = 4 / 57  # by which JPEG decoders differ at most, in units of STD


@pytest.fixture(autouse=True)
def _gpu(device: str) -> None:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 24 smooth JPEGs of several sizes in 3 classes."""
    root = tmp_path_factory.mktemp("photos")
    for k in range(24):
        y, x = np.mgrid[: 180 + 7 * k, : 260 - 5 * k]
        values = np.stack([127 + 100 * np.sin(x / (40 + c) + k) * np.cos(y / (50 - c)) for c in range(3)], -1)
        packed = io.BytesIO()
        Image.fromarray(values.astype(np.uint8)).save(packed, "JPEG", quality=95)
        (root / str(k % 3)).mkdir(exist_ok=True)
        (root / str(k % 3) / f"{k:02}.jpg").write_bytes(packed.getvalue())
    return root


def validation(photos: Path, where: str) -> Any:
    """Return the pipeline of a validation epoch, decoded and augmented on a device."""

    @dali.pipeline_def(batch_size=7, num_threads=3, device_id=0, seed=5)
    def pipe() -> Any:
        files, labels = fn.readers.file(file_root=str(photos), name="Reader", pad_last_batch=True)
        images = fn.decoders.image(files, device="mixed" if where == "gpu" else "cpu", jpeg_fancy_upsampling=True)
        images = fn.resize(images, resize_shorter=80)
        images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", crop=(64, 64), mean=MEAN, std=STD)
        return images, labels.gpu() if where == "gpu" else labels

    return pipe()


def test_a_pipeline_gives_the_pixels_of_the_cpu(photos: Path) -> None:
    result, expected = (validation(photos, where) for where in ("gpu", "cpu"))
    for _ in range(5):
        (ours, labels), (theirs, classes) = result.run(), expected.run()
        assert type(ours).__name__ == "TensorListGPU"
        difference = np.abs(ours.as_cpu().as_array() - theirs.as_array())
        assert difference.max() <= LEVELS
        assert difference.mean() < 0.02
        np.testing.assert_array_equal(labels.as_cpu().as_array(), classes.as_array())


def test_iterators_deliver_tensors_of_the_gpu(photos: Path) -> None:
    loader = DALIClassificationIterator(validation(photos, "gpu"), reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True)
    for _ in range(2):
        count = 0
        for (batch,) in loader:
            assert batch["data"].is_cuda
            assert batch["label"].is_cuda
            assert 0.1 < batch["data"].std().item() < 3
            count += len(batch["data"])
        assert count == 24


@pytest.mark.parametrize("policy", ["auto", "rand", "trivial"])
def test_automatic_augmentation(photos: Path, policy: str) -> None:
    """The same draws on both devices: pictures that are nearly the same."""

    def run_pipe(where: str) -> list[np.ndarray]:
        @dali.pipeline_def(batch_size=8, num_threads=2, device_id=0, seed=9, enable_conditionals=True)
        def pipe() -> Any:
            files, _ = fn.readers.file(file_root=str(photos))
            images = fn.resize(fn.decoders.image(files), size=[64, 64])
            images = images.gpu() if where == "gpu" else fn.copy(images)  # seeds follow from the number of operators before
            if policy == "auto":
                return auto_augment.auto_augment_image_net(images, shape=[64, 64])
            if policy == "rand":
                return rand_augment.rand_augment(images, n=2, m=9, shape=[64, 64])
            return trivial_augment.trivial_augment_wide(images, shape=[64, 64])

        built = pipe()
        return [built.run()[0].as_cpu().as_array() for _ in range(3)]

    for ours, theirs in zip(run_pipe("gpu"), run_pipe("cpu"), strict=True):
        difference = np.abs(ours.astype(int) - theirs.astype(int))
        assert difference.mean() < 1.0
        assert (difference > 4).mean() < 0.01  # equalize and posterize have steps


def test_sources_and_functions_of_the_gpu() -> None:
    """Tensors of the GPU go in, functions on them are called, tensors of the GPU come out."""

    def source() -> list[torch.Tensor]:
        return [torch.full((4, 5), float(k), device="cuda") for k in range(3)]

    @dali.pipeline_def(batch_size=3, num_threads=1, device_id=0)
    def pipe() -> Any:
        value = fn.external_source(source, device="gpu", dtype=types.FLOAT)
        return value * 2 + 1, fn.reductions.sum(value)

    built = pipe()
    for _ in range(4):
        doubled, total = built.run()
        np.testing.assert_array_equal(doubled.as_cpu().as_array()[:, 0, 0], [1, 3, 5])
        np.testing.assert_array_equal(total.as_cpu().as_array().ravel(), [0, 20, 40])


def test_a_generic_iterator_resumes(photos: Path) -> None:
    def make(checkpoint: str | None = None) -> Any:
        @dali.pipeline_def(batch_size=6, num_threads=2, device_id=0, seed=3, enable_checkpointing=True)
        def pipe() -> Any:
            files, labels = fn.readers.file(file_root=str(photos), random_shuffle=True, name="Reader")
            images = fn.decoders.image(files, device="mixed", hw_decoder_load=0.0)  # by default engines share, whose pixels differ in the last bit
            images = fn.random_resized_crop(images, size=[32, 32])
            return fn.noise.gaussian(images, stddev=5.0), labels

        return DALIGenericIterator(pipe(checkpoint=checkpoint), ["images", "labels"], reader_name="Reader")

    first = make()
    next(first)
    state = first.checkpoints()[0]
    rest = [next(first)[0] for _ in range(2)]
    second = make(state)
    for expected in rest:
        (batch,) = next(second)
        assert torch.equal(batch["labels"], expected["labels"])
        assert torch.equal(batch["images"], expected["images"])


@pytest.mark.parametrize("decoder", ["cpu", "gpu"])
def test_a_loader_delivers_on_the_gpu(photos: Path, decoder: str) -> None:
    def augment(files: Any, labels: Any, where: str) -> Any:
        images = ndd.decoders.image(files, device=where, jpeg_fancy_upsampling=True)
        images = ndd.resize(images, size=[64, 64])
        mirror = ndd.random.coin_flip(batch_size=images.batch_size, probability=0.5)
        return ndd.crop_mirror_normalize(images, mirror=mirror, mean=MEAN, std=STD), labels

    def epoch(where: str, device: str) -> Iterator[Any]:
        reader = ndd.readers.File(file_root=str(photos), random_shuffle=True)
        return iter(ndd.DataLoader(reader, lambda files, labels: augment(files, labels, where), batch_size=8, device=device, seed=3))

    for (ours, classes), (theirs, labels) in zip(epoch(decoder, "cuda"), epoch("cpu", "cpu"), strict=True):
        assert ours.is_cuda
        assert classes.is_cuda
        assert (ours.cpu() - theirs).abs().max() <= LEVELS
        assert torch.equal(classes.cpu(), labels)


def test_a_network_learns_from_a_compiled_step(photos: Path) -> None:
    """The augmentation, the network and its gradient in one function of torch.compile."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 8, 3)).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)

    def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        batch = ndd.flip(ndd.as_batch(images, layout="HWC"), horizontal=1)
        planes = ndd.crop_mirror_normalize(ndd.brightness(batch, brightness=0.9), mean=MEAN, std=STD)
        return torch.nn.functional.cross_entropy(network(planes.torch()), labels)

    step = torch.compile(loss_of)
    reader = ndd.readers.File(file_root=str(photos))
    losses = []
    for _ in range(4):
        for files, labels in reader.next_epoch(batch_size=24):
            images = ndd.resize(ndd.decoders.image(files, device="gpu"), size=[32, 32]).torch()
            labels = labels.gpu().torch().flatten().long()
            loss = step(images, labels)
            torch.testing.assert_close(loss, loss_of(images, labels), rtol=1e-2, atol=1e-3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_late_producers_are_waited_for() -> None:
    """An input that another stream still writes, and a result that is read on a third."""
    torch.cuda.synchronize()
    late, reading = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(5):
        images = torch.zeros(4, 64, 64, 3, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(late):
            torch.cuda._sleep(50_000_000)
            images.fill_(100)
            result = ndd.brightness(ndd.as_batch(images, layout="HWC"), brightness=1.5)
        with torch.cuda.stream(reading):
            found = ndd.flip(result, horizontal=1).torch()
            assert int(found.min()) == int(found.max()) == 150


def test_arrays_are_exchanged_without_a_copy() -> None:
    images = torch.randint(0, 256, (3, 8, 9, 3), dtype=torch.uint8, device="cuda")
    batch = ndd.as_batch(images, layout="HWC")
    assert batch.torch().data_ptr() == images.data_ptr()
    value = batch.select(1)
    assert torch.from_dlpack(value).data_ptr() == images[1].data_ptr()
    cupy = pytest.importorskip("cupy")
    assert cupy.asnumpy(cupy.from_dlpack(value)).tolist() == images[1].cpu().tolist()
    assert ndd.as_tensor(cupy.arange(5)).device.device_type == "gpu"


def test_errors_name_the_sample_and_leave_the_gpu_usable(photos: Path) -> None:
    files = [np.fromfile(path, np.uint8) for path in sorted(photos.glob("*/*.jpg"))[:4]]
    files[2] = files[2][:100]
    with pytest.raises(RuntimeError, match="sample 2"):
        ndd.decoders.image(ndd.as_batch(files), device="gpu").evaluate()
    with pytest.raises((RuntimeError, ValueError)):
        ndd.slice(ndd.as_batch(torch.zeros(2, 8, 8, device="cuda")), [20, 0], [4, 4], axes=[0, 1]).evaluate()
    assert ndd.resize(ndd.decoders.image(files[0], device="gpu"), size=[9, 9]).cpu().shape == (9, 9, 3)
