# SPDX-License-Identifier: Apache-2.0
"""The programs of DALI's documentation: ResNet-50, EfficientNet, the single stage detector and RNN-T, on the files of DALI_extra.

What is random is switched off or compared by its shapes, so both packages compute the same.
"""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pipelines import both, real, sub
from _raises import Raises, raising

EXTRA = Path(os.environ.get("DALI_EXTRA_PATH", "/nowhere")) / "db"
pytestmark = pytest.mark.skipif(not EXTRA.is_dir(), reason="the files of DALI_extra are missing: set DALI_EXTRA_PATH")


def resnet50(dali: Any, is_training: bool) -> Any:
    """Return the pipeline of the ResNet-50 program."""
    fn, types = dali.fn, dali.types

    @dali.pipeline_def(batch_size=8, num_threads=2, device_id=None, seed=12, exec_dynamic=True)
    def create_dali_pipeline(data_dir: str, crop: int, size: int) -> Any:
        images, labels = fn.readers.file(file_root=data_dir, random_shuffle=False, pad_last_batch=True, name="Reader")
        if is_training:
            images = fn.decoders.image_random_crop(
                images, device="cpu", output_type=types.RGB, random_aspect_ratio=[0.8, 1.25], random_area=[0.1, 1.0], num_attempts=100
            )
            images = fn.resize(images, device="cpu", resize_x=crop, resize_y=crop, interp_type=types.INTERP_TRIANGULAR)
            mirror = fn.random.coin_flip(probability=0.5)
        else:
            images = fn.decoders.image(images, device="cpu", output_type=types.RGB)
            images = fn.resize(images, device="cpu", size=size, mode="not_smaller", interp_type=types.INTERP_TRIANGULAR)
            mirror = False
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            crop=(crop, crop),
            mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
            std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
            mirror=mirror,
        )
        return images, labels

    return create_dali_pipeline(str(EXTRA / "single" / "jpeg"), 64, 72)


def test_resnet50_validation() -> None:
    """An epoch of the classification iterator over whole images: the same pixels, labels and sizes of batches."""

    def program(dali: Any) -> Any:
        plugin, policy = sub(dali, "plugin.pytorch"), sub(dali, "plugin.base_iterator").LastBatchPolicy.PARTIAL
        loader = plugin.DALIClassificationIterator(resnet50(dali, False), reader_name="Reader", last_batch_policy=policy)
        return [[data[0]["data"], data[0]["label"].squeeze(-1).long()] for data in loader], len(loader)

    both(program, 0.08)  # in units of the standard deviation: four levels of 255, by which the decoders may differ


def test_resnet50_training() -> None:
    """Random crops and flips: the same shapes, types and labels."""

    def program(dali: Any) -> Any:
        plugin = sub(dali, "plugin.pytorch")
        loader = plugin.DALIClassificationIterator([resnet50(dali, True)], reader_name="Reader", auto_reset=True)
        found = []
        for _ in range(2):
            for data in loader:
                images = data[0]["data"]
                assert 0.5 < float(images.std()) < 2
                found.append([list(images.shape), str(images.dtype), data[0]["label"]])
        return found

    both(program)


@pytest.mark.parametrize("automatic_augmentation", ["autoaugment", "trivialaugment"])
def test_efficientnet_training_pipeline_equals_dali(automatic_augmentation: str) -> None:
    """The training pipeline with automatic augmentation, which is made of conditionals."""

    def program(dali: Any) -> Any:
        fn, types = dali.fn, dali.types
        auto_augment, trivial_augment = sub(dali, "auto_aug.auto_augment"), sub(dali, "auto_aug.trivial_augment")

        @dali.pipeline_def(enable_conditionals=True)
        def training_pipe(data_dir: str, image_size: int, layout: str) -> Any:
            jpegs, labels = fn.readers.file(name="Reader", file_root=data_dir, random_shuffle=False, pad_last_batch=True)
            images = fn.decoders.image_random_crop(jpegs, device="cpu", random_aspect_ratio=[0.75, 4.0 / 3.0], random_area=[0.08, 1.0])
            images = fn.resize(images, size=[image_size, image_size], interp_type=types.INTERP_LINEAR, antialias=False)
            coin = fn.random.coin_flip(probability=0.5)
            images = fn.flip(images, horizontal=coin)
            if automatic_augmentation == "autoaugment":
                output = auto_augment.auto_augment_image_net(images, shape=[image_size, image_size])
            else:
                output = trivial_augment.trivial_augment_wide(images, shape=[image_size, image_size])
            mean, std = [0.485 * 255, 0.456 * 255, 0.406 * 255], [0.229 * 255, 0.224 * 255, 0.225 * 255]
            output = fn.crop_mirror_normalize(output, dtype=types.FLOAT, output_layout=layout, crop=(image_size, image_size), mean=mean, std=std)
            return output, labels

        pipe = training_pipe(str(EXTRA / "single" / "jpeg"), 48, "CHW", batch_size=8, num_threads=2, device_id=None, seed=3)
        found = []
        for _ in range(3):
            images, labels = pipe.run()
            found.append([images.shape(), images.layout(), str(images.dtype), labels])
        return found

    both(program)


def default_boxes() -> list[float]:
    """Return the 8732 anchors of SSD300: left, top, right, bottom."""
    sizes, steps = [21, 45, 99, 153, 207, 261, 315], [8, 16, 32, 64, 100, 300]
    ratios, found = [[2], [2, 3], [2, 3], [2, 3], [2], [2]], []
    for k, cells in enumerate([38, 19, 10, 5, 3, 1]):
        side, next_side = sizes[k] / 300, math.sqrt(sizes[k] * sizes[k + 1]) / 300
        shapes = [(side, side), (next_side, next_side)]
        for ratio in ratios[k]:
            wide, high = side * math.sqrt(ratio), side / math.sqrt(ratio)
            shapes += [(wide, high), (high, wide)]
        for row in range(cells):
            for column in range(cells):
                x, y = (column + 0.5) * steps[k] / 300, (row + 0.5) * steps[k] / 300
                for wide, high in shapes:
                    box = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
                    found += [min(max(value, 0.0), 1.0) for value in box]
    return found


def detector(dali: Any, is_training: bool) -> Any:
    """Return the pipeline of the single stage detector; without its random crops and colors if it is not for training."""
    fn, types = dali.fn, dali.types

    @dali.pipeline_def
    def create_coco_pipeline() -> Any:
        images, bboxes, labels = fn.readers.coco(
            file_root=str(EXTRA / "coco" / "images"),
            annotations_file=str(EXTRA / "coco" / "instances.json"),
            skip_empty=True,
            shard_id=0,
            num_shards=1,
            ratio=True,
            ltrb=True,
            random_shuffle=False,
            shuffle_after_epoch=False,
            name="Reader",
        )
        flip_coin: Any = 1
        if is_training:
            crop_begin, crop_size, bboxes, labels = fn.random_bbox_crop(
                bboxes,
                labels,
                device="cpu",
                aspect_ratio=[0.5, 2.0],
                thresholds=[0, 0.1, 0.3, 0.5, 0.7, 0.9],
                scaling=[0.3, 1.0],
                bbox_layout="xyXY",
                allow_no_crop=True,
                num_attempts=50,
            )
            images = fn.decoders.image_slice(images, crop_begin, crop_size, device="cpu", output_type=types.RGB)
            flip_coin = fn.random.coin_flip(probability=0.5)
        else:
            images = fn.decoders.image(images, device="cpu", output_type=types.RGB)
        images = fn.resize(images, resize_x=300, resize_y=300, min_filter=types.DALIInterpType.INTERP_TRIANGULAR)
        if is_training:
            saturation, contrast = fn.random.uniform(range=[0.5, 1.5]), fn.random.uniform(range=[0.5, 1.5])
            brightness, hue = fn.random.uniform(range=[0.875, 1.125]), fn.random.uniform(range=[-0.5, 0.5])
        else:
            saturation, contrast, brightness, hue = 1.2, 0.9, 1.1, 0.3
        images = fn.hsv(images, dtype=types.FLOAT, hue=hue, saturation=saturation)
        images = fn.brightness_contrast(images, contrast_center=128, dtype=types.UINT8, brightness=brightness, contrast=contrast)
        bboxes = fn.bb_flip(bboxes, ltrb=True, horizontal=flip_coin)
        images = fn.crop_mirror_normalize(
            images,
            mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
            std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
            mirror=flip_coin,
            dtype=types.FLOAT,
            output_layout="CHW",
            pad_output=False,
        )
        bboxes, labels = fn.box_encoder(bboxes, labels, criteria=0.5, anchors=default_boxes())
        return images, bboxes, labels

    return create_coco_pipeline(batch_size=4, num_threads=2, device_id=None, seed=5)


def test_single_stage_detector() -> None:
    """Images, encoded boxes and labels without random crops: the same."""
    outputs = both(lambda dali: detector(dali, False).run(), 0.1)
    assert sum(int((labels > 0).sum()) for labels in outputs[2]["samples"]) > 0


def test_single_stage_detector_in_training() -> None:
    """With random crops: the same shapes, and some boxes."""

    def program(dali: Any) -> Any:
        pipe = detector(dali, True)
        found = [pipe.run() for _ in range(3)]
        assert any(int(labels.as_array().max()) > 0 for _, _, labels in found)
        return [[[output.shape(), str(output.dtype)] for output in outputs] for outputs in found], pipe.epoch_size("Reader")

    both(program)


@pytest.mark.parametrize(
    "options", [{}, {"step": 3}, {"stride": 2, "step": 2, "image_type": "GRAY"}, raising(RuntimeError, {"sequence_length": 100})], ids=str
)
def test_sequences_of_files(options: dict[str, Any], raises: Raises | None) -> None:
    """The deprecated reader of folders of frames."""

    def program(dali: Any) -> Any:
        values = {key: getattr(dali.types, value) if key == "image_type" else value for key, value in options.items()}

        @dali.pipeline_def(batch_size=2, num_threads=2, device_id=None)
        def sequences() -> Any:
            frames = dali.fn.readers.sequence(**{"file_root": str(EXTRA / "sequence" / "frames"), "sequence_length": 3, "name": "Reader", **values})
            return frames[:, ::20, ::20]

        pipe = sequences()
        return [pipe.run() for _ in range(2)], pipe.reader_meta("Reader")

    both(program, raises=raises)


def test_rnn_t() -> None:
    """Speech features: decoded, trimmed, emphasized, log mel spectrograms, normalized, stacked and padded."""
    files = sorted(str(path) for path in (EXTRA / "audio" / "wav").rglob("*.wav"))[:6]
    real()
    assert files

    def program(dali: Any) -> Any:
        fn, types = dali.fn, dali.types

        @dali.pipeline_def(batch_size=len(files), num_threads=2, device_id=None, seed=1)
        def speech() -> Any:
            encoded, label = fn.readers.file(name="file_reader", files=files, labels=list(range(len(files))), pad_last_batch=True)
            audio, rate = fn.decoders.audio(encoded, dtype=types.FLOAT, downmix=True, sample_rate=16000)
            begin, length = fn.nonsilent_region(audio, cutoff_db=-80)
            audio = fn.slice(audio, begin, length, axes=[0], normalized_anchor=False, normalized_shape=False)
            audio = fn.preemphasis_filter(audio, preemph_coeff=0.97)
            spectrogram = fn.spectrogram(audio, nfft=512, window_length=320, window_step=160)
            mel = fn.mel_filter_bank(spectrogram, sample_rate=16000, nfilter=80, normalize=True, freq_high=8000.0)
            log_features = fn.to_decibels(mel + 1e-20, multiplier=math.log(10), reference=1.0, cutoff_db=-80)
            log_features_len = fn.slice(log_features.shape(), start=[1], end=[2], axes=[0])
            normalized = fn.normalize(log_features, axes=[1], device="cpu", epsilon=4e-5, ddof=1)
            stacked = fn.stack(normalized, normalized * 0.5, axis=1)
            padded = fn.pad(stacked, fill_value=0, axes=[0, 1, 2], shape=[80, 2, -1])
            return padded, log_features_len, label, rate

        return speech().run()

    outputs = both(program, 2e-2)
    lengths = np.concatenate(outputs[1]["samples"])
    assert (lengths > 1).all()
