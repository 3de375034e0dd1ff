# SPDX-License-Identifier: Apache-2.0
"""The kinds of programs in the documentation of DALI's dynamic mode, in a plain loop, with ``compile=True`` and with ``capture=True``.

Values, order and states of generators must be equal. ``test_capture.py`` tests what the documentation does not show.
"""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import torch.utils._pytree as pytree
from _captures import Counted
from _videos import write as write_videos
from PIL import Image
from readers._files import ints, strings, write_tar, write_tfrecord

import torch_ndd as ndd
from torch_ndd import tfrecord
from torch_ndd.random import RNG

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
Program = Callable[[Path, dict[str, Any]], Iterator[Any]]  # (data, arguments of next_epoch) -> observable results


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of JPEGs, the same with boxes and as records, arrays, and audio with transcripts."""
    folder, generator = tmp_path_factory.mktemp("programs"), np.random.default_rng(0)
    images, annotations, records = [], [], []
    for k in range(14):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (6, 5, 3)).astype(np.uint8)).resize((60 + 3 * k, 50)).save(file, "JPEG")
        path = folder / "images" / ("cat", "dog")[k % 2] / f"{k:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())
        images.append({"id": k, "file_name": f"images/{path.parent.name}/{path.name}", "width": 60 + 3 * k, "height": 50})
        for box in range(1 + k % 3):
            annotations.append(
                {"image_id": k, "category_id": 1 + box, "bbox": [5 + 7 * box, 4 + 3 * k % 20, 20, 10 + 5 * box], "id": len(annotations)}
            )
        records.append({"image/encoded": strings(file.getvalue()), "image/class/label": ints([1 + k % 5])})
    document = {"images": images, "annotations": annotations, "categories": [{"id": k} for k in (1, 2, 3)]}
    (folder / "boxes.json").write_text(json.dumps(document))
    write_tfrecord(folder / "images.tfrecord", records)
    (folder / "sounds").mkdir()
    entries = []
    for k in range(9):
        loud = np.concatenate([np.zeros(400 + 50 * k), generator.standard_normal(3000 + 300 * k) * 0.2, np.zeros(500)])
        soundfile.write(folder / "sounds" / f"{k}.flac", loud, 16000 if k % 2 else 8000)
        entries.append(
            json.dumps(
                {
                    "audio_filepath": str(folder / "sounds" / f"{k}.flac"),
                    "text": "abcdefghi"[: k + 1],
                    "duration": len(loud) / (16000 if k % 2 else 8000),
                }
            )
        )
    (folder / "speech.json").write_text("\n".join(entries))
    (folder / "arrays").mkdir()
    for k in range(9):
        np.save(folder / "arrays" / f"{k}.npy", generator.standard_normal((12, 10 + k)).astype(np.float32))
    return folder


def classification(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Read, decode, resize, crop, mirror at random, normalize; torch tensors for a model."""
    reader = ndd.readers.File(file_root=str(data / "images"), random_shuffle=True, seed=1)
    for _ in range(3):
        for jpegs, labels in reader.next_epoch(batch_size=4, **how):
            images = ndd.decoders.image(jpegs, output_type=ndd.types.RGB)
            images = ndd.resize(images, resize_shorter=32)
            mirror = ndd.random.coin_flip(batch_size=jpegs.batch_size)
            images = ndd.crop_mirror_normalize(images, crop=(24, 24), mirror=mirror, dtype=ndd.float32, output_layout="CHW", mean=MEAN, std=STD)
            yield images.torch(), labels.torch()


def random_rotations(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """A generator owned by the program."""
    reader, rng = ndd.readers.File(file_root=str(data / "images")), RNG(seed=42)
    for _ in range(2):
        for jpegs, _labels in reader.next_epoch(batch_size=4, **how):
            images = ndd.decoders.image(jpegs)
            angle = ndd.random.uniform(range=(-30.0, 30.0), batch_size=jpegs.batch_size, rng=rng)
            yield ndd.rotate(images, angle=angle, fill_value=0.0, keep_size=True), angle, str(rng.state)


def arithmetic_and_slices(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Python operators, slices of samples, samples of a batch."""
    reader = ndd.readers.File(file_root=str(data / "images"))
    for jpegs, labels in reader.next_epoch(batch_size=5, **how):
        images = ndd.decoders.image(jpegs)
        halves = images.slice[:, :30:2]
        brighter = ndd.math.clamp(images * 1.5 + 10, 0, 255)
        yield halves, ndd.cast(brighter, dtype=ndd.uint8), labels + 1, images.tensors[0], [sample.shape for sample in images.tensors]


def modes_of_evaluation(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    reader = ndd.readers.File(file_root=str(data / "images"))
    for mode in (ndd.EvalMode.deferred, ndd.EvalMode.eager, ndd.EvalMode.sync_cpu, ndd.EvalMode.sync_full):
        for jpegs, _labels in reader.next_epoch(batch_size=4, **how):
            with mode:
                images = ndd.decoders.image(jpegs)
                blurred = ndd.gaussian_blur(images, window_size=5)
            yield blurred.evaluate()


def conditions(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Python control flow: on the step, on a label, on a drawn number."""
    reader = ndd.readers.File(file_root=str(data / "images"))
    ndd.random.set_seed(11)
    for step, (jpegs, labels) in enumerate(reader.next_epoch(batch_size=2, **how)):
        images = ndd.decoders.image(jpegs)
        if step % 2:
            images = ndd.flip(images, horizontal=1)
        if labels.tensors[0].item():
            images = ndd.color_twist(images, saturation=0.0)
        if float(ndd.random.uniform(range=(0.0, 1.0)).item()) > 0.5:
            images = ndd.gaussian_blur(images, sigma=1.5)
        yield ndd.resize(images, size=(20, 20))


def colors_and_noise(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Several random arguments of one operator, and random operators."""
    reader = ndd.readers.File(file_root=str(data / "images"), random_shuffle=True, seed=9)
    for _ in range(2):
        for jpegs, labels in reader.next_epoch(batch_size=4, **how):
            images = ndd.random_resized_crop(ndd.decoders.image(jpegs), size=(24, 24))
            factors = [ndd.random.uniform(range=(0.7, 1.3), batch_size=jpegs.batch_size) for _ in ("brightness", "contrast", "saturation")]
            hue = ndd.random.uniform(range=(-20.0, 20.0), batch_size=jpegs.batch_size)
            images = ndd.color_twist(images, brightness=factors[0], contrast=factors[1], saturation=factors[2], hue=hue)
            yield ndd.noise.salt_and_pepper(ndd.noise.gaussian(images, stddev=4.0), prob=0.01), ndd.one_hot(labels, num_classes=2)


def arrays(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Another reader, batches of different shapes, statistics of samples."""
    reader = ndd.readers.Numpy(file_root=str(data / "arrays"), file_filter="*.npy", random_shuffle=True, seed=4)
    for _ in range(2):
        for (volumes,) in ((batch,) if isinstance(batch, ndd.Batch) else batch for batch in reader.next_epoch(batch_size=3, **how)):
            centered = volumes - ndd.reductions.mean(volumes)
            yield centered, ndd.pad(volumes, fill_value=-1.0), ndd.transpose(volumes, perm=[1, 0])


def early_exit(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """An epoch that is left early continues in the next loop."""
    reader = ndd.readers.File(file_root=str(data / "images"), random_shuffle=True, seed=5)
    for _ in range(3):
        for step, (jpegs, labels) in enumerate(reader.next_epoch(batch_size=3, **how)):
            yield ndd.resize(ndd.decoders.image_random_crop(jpegs), size=(16, 16)), labels
            if step == 1:
                break


def invariants(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Settings held by an object, marked as constant."""

    class Settings:
        size = ndd.capture.invariant([18, 22])
        mean = ndd.capture.invariant(MEAN)

    reader, settings = ndd.readers.File(file_root=str(data / "images")), Settings()
    for jpegs, _labels in reader.next_epoch(batch_size=4, **how):
        yield ndd.crop_mirror_normalize(ndd.resize(ndd.decoders.image(jpegs), size=settings.size), mean=settings.mean, std=STD)


def spectrograms(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Audio files: their loud part, noise of random strength, mel spectrogram in decibels, normalized, and its cepstrum."""
    reader = ndd.readers.File(file_root=str(data), dir_filters=["sounds"], file_filters=["*.flac"], random_shuffle=True, seed=2)
    for _ in range(2):
        for files, _labels in reader.next_epoch(batch_size=3, **how):
            sound, _rate = ndd.decoders.audio(files, sample_rate=16000.0, downmix=True)
            begin, length = ndd.nonsilent_region(sound, cutoff_db=-40.0, window_length=256)
            sound = ndd.slice(sound, begin, length, axes=[0])
            noise = ndd.random.normal(sound, stddev=0.01) * ndd.random.uniform(range=(0.0, 1.0), batch_size=files.batch_size)
            power = ndd.spectrogram(ndd.preemphasis_filter(sound + noise), nfft=256, window_length=200, window_step=100)
            mel = ndd.to_decibels(ndd.mel_filter_bank(power, sample_rate=16000.0, nfilter=20), cutoff_db=-80.0)
            yield ndd.normalize(mel, axes=[1]), ndd.mfcc(mel, n_mfcc=8), ndd.pad(mel, axes=[1], fill_value=-80.0).torch(), length


def speech(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """A manifest with transcripts; SpecAugment by erasing random bands and times; the length of each sample with a padded batch."""
    reader = ndd.readers.NemoAsr(manifest_filepaths=[str(data / "speech.json")], sample_rate=8000.0, read_sample_rate=False, random_shuffle=True)
    for _ in range(2):
        for sound, text in reader.next_epoch(batch_size=4, **how):
            mel = ndd.mel_filter_bank(ndd.spectrogram(sound, nfft=128, window_step=64, window_length=128), sample_rate=8000.0, nfilter=16)
            features = ndd.math.log(mel + 1e-6)
            anchor = ndd.random.uniform(range=(0.0, 0.8), shape=[1], batch_size=sound.batch_size)
            masked = ndd.erase(features, anchor=anchor, shape=[0.1], axes=[1], normalized=True)
            masked = ndd.erase(masked, anchor=[3.0], shape=[4.0], axes=[0], normalized_anchor=False, fill_value=-1.0)
            yield masked.torch(pad=True), features.shape, text


def detection(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """COCO: a random crop that shows the boxes, images and boxes mirrored alike, colors, and the boxes of anchors."""
    reader = ndd.readers.COCO(
        file_root=str(data), annotations_file=str(data / "boxes.json"), ratio=True, ltrb=True, image_ids=True, random_shuffle=True, seed=3
    )
    anchors = [x / 8 for k in range(8) for x in (k, k, k + 3, k + 3)]
    for _ in range(2):
        for jpegs, boxes, labels, numbers in reader.next_epoch(batch_size=4, **how):
            images = ndd.decoders.image(jpegs, output_type=ndd.types.RGB)
            crop = {"aspect_ratio": [0.5, 2.0], "scaling": [0.4, 1.0], "thresholds": [0.0, 0.1, 0.3], "num_attempts": 20, "bbox_layout": "xyXY"}
            begin, size, boxes, labels = ndd.random_bbox_crop(boxes, labels, quiet=True, **crop)
            images = ndd.resize(ndd.slice(images, begin, size), size=[30, 30])
            mirror = ndd.random.coin_flip(probability=0.5, batch_size=jpegs.batch_size)
            boxes = ndd.bb_flip(boxes, horizontal=mirror, ltrb=True)
            images = ndd.hsv(images, hue=ndd.random.uniform(range=(-18.0, 18.0), batch_size=jpegs.batch_size))
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=MEAN, std=STD, dtype=ndd.float32, output_layout="CHW")
            yield images, boxes, labels, numbers, *ndd.box_encoder(boxes, labels, anchors=anchors, criteria=0.5)


def records(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """TFRecord: a dict of outputs, labels from 1, a random window decoded from each image; training and validation in turn."""
    features = {
        "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
    }
    files = {"path": str(data / "images.tfrecord"), "index_path": str(data / "images.idx"), "features": features}
    training = ndd.readers.TFRecord(**files, random_shuffle=True, seed=6)
    validation = ndd.readers.TFRecord(**files, pad_last_batch=True)
    for _ in range(2):
        for batch in training.next_epoch(batch_size=4, **how):
            images = ndd.decoders.image_random_crop(batch["image/encoded"], random_area=[0.2, 1.0])
            images = ndd.flip(ndd.resize(images, size=[20, 20]), horizontal=ndd.random.coin_flip(batch_size=images.batch_size))
            yield ndd.brightness_contrast(images, contrast=ndd.random.uniform(range=(0.5, 1.5), batch_size=4)), batch["image/class/label"] - 1
        for batch in validation.next_epoch(batch_size=4, **how):
            images = ndd.resize(ndd.decoders.image(batch["image/encoded"]), resize_shorter=24)
            yield ndd.crop(images, crop=[20, 20]), ndd.cast(batch["image/class/label"] - 1, dtype=ndd.int32)


def videos(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """Frame sequences: one crop and mirror per sequence, one brightness per frame, a slice of the frames in time."""
    if not (data / "videos").exists():
        write_videos(data / "videos")
    reader = ndd.readers.Video(file_root=str(data / "videos"), sequence_length=4, step=3, enable_frame_num=True, random_shuffle=True, seed=8)
    for _ in range(2):
        for frames, labels, numbers in reader.next_epoch(batch_size=3, **how):
            mirror = ndd.random.coin_flip(batch_size=frames.batch_size)
            where = [ndd.random.uniform(range=(0.0, 1.0), batch_size=frames.batch_size) for _ in "xy"]
            part = ndd.flip(ndd.crop(frames, crop=[24, 32], crop_pos_x=where[0], crop_pos_y=where[1]), horizontal=mirror)
            brighter = ndd.brightness(part, brightness=ndd.per_frame(ndd.random.uniform(range=(0.8, 1.2), shape=[4], batch_size=3)))
            yield brighter, ndd.element_extract(part, element_map=[0, 3]), ndd.reshape(part, layout="DHWC"), labels, numbers


def videos_with_padding(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """The other video reader, which pads the last sequences; resized, and normalized over time."""
    if not (data / "videos").exists():
        write_videos(data / "videos")
    reader = ndd.experimental.readers.Video(file_root=str(data / "videos"), sequence_length=6, stride=2, pad_mode="reflect_101")
    for frames, labels in reader.next_epoch(batch_size=2, **how):
        small = ndd.resize(frames, size=[16, 20])
        yield ndd.crop_mirror_normalize(small, mean=MEAN, std=STD, output_layout="CFHW"), ndd.reductions.mean(small, axis_names="F"), labels


def archives(data: Path, how: dict[str, Any]) -> Iterator[Any]:
    """WebDataset: images, and a component that some samples lack."""
    if not (data / "images.tar").exists():
        jpegs = sorted((data / "images").rglob("*.jpg"))
        write_tar(
            data / "images.tar",
            [(f"{k:03}{end}", content) for k, path in enumerate(jpegs) for end, content in ((".jpg", path.read_bytes()), (".cls", b"%d" % k))],
        )
    reader = ndd.readers.Webdataset(paths=[str(data / "images.tar")], ext=["jpg", "cls"], random_shuffle=True, seed=7)
    for _ in range(2):
        for jpegs, classes in reader.next_epoch(batch_size=4, **how):
            images = ndd.decoders.image_slice(jpegs, ndd.random.uniform(range=(0.0, 0.3), shape=[2], batch_size=4), [0.6, 0.7])
            yield ndd.warp_affine(images, ndd.transforms.rotation(angle=ndd.random.uniform(range=(-9.0, 9.0), batch_size=4))), classes


PROGRAMS: list[Program] = [
    *(classification, random_rotations, arithmetic_and_slices, modes_of_evaluation, conditions, colors_and_noise, arrays, early_exit, invariants),
    *(spectrograms, speech, detection, records, videos, videos_with_padding, archives),
]


def read_values(program: Program, data: Path, **how: Any) -> list[Any]:
    """Return what a program yields, copied immediately, and the default generator after each step and at the end."""
    ndd.random.set_seed(3)
    found: list[Any] = []
    for step in program(data, how):
        for leaf in pytree.tree_leaves(step, is_leaf=lambda value: isinstance(value, ndd.Batch | ndd.Tensor)):
            if isinstance(leaf, ndd.Batch):
                found += [leaf.layout, *(np.asarray(sample).copy() for sample in leaf.tensors)]
            else:
                found.append(np.asarray(leaf).copy() if isinstance(leaf, ndd.Tensor | torch.Tensor) else leaf)
        found.append(str(ndd.random.get_default_rng().state))
    return [*found, str(ndd.random.get_default_rng().state)]


@pytest.mark.parametrize("how", ["compile", "capture"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_captured_program_equals_plain_loop(program: Program, how: str, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    plain, other = read_values(program, data), read_values(program, data, **{how: True})
    print(f"{program.__name__}: {counted.taken} of {counted.made} calls made ahead were of use")
    assert counted.taken or program is early_exit  # whose loops end before anything is made ahead
    assert len(plain) == len(other) > 3
    for value, expected in zip(other, plain, strict=True):
        if isinstance(expected, np.ndarray):
            assert value.dtype == expected.dtype
            np.testing.assert_array_equal(value, expected)
        else:
            assert value == expected
