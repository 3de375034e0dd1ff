# SPDX-License-Identifier: Apache-2.0
"""Train a small convolutional network on a folder of audio files, with one subfolder per class.

    python examples/train_speech.py                     # five kinds of synthetic sounds, less than a minute on two cores
    python examples/train_speech.py ~/speech_commands   # your own WAV, FLAC, OGG or MP3 files

Every sound becomes a log-mel spectrogram, with random time and frequency masks (SpecAugment). Every fifth file is held out to measure the accuracy.
Needs `pip install torch_ndd[audio]`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from sounds import RATE, write_sounds
from torch import nn
from tqdm import tqdm

import torch_ndd as ndd

HELD_OUT = 5  # every fifth file
BANDS = 40
SUFFIXES = {".wav", ".flac", ".ogg", ".mp3", ".aiff"}


def features(files: ndd.Batch) -> ndd.Batch:
    """Return the log-mel spectrograms of encoded audio, (bands, time), with mean 0 and standard deviation 1."""
    signals, _ = ndd.decoders.audio(files, downmix=True, sample_rate=float(RATE))
    signals = ndd.preemphasis_filter(signals)
    spectra = ndd.spectrogram(signals, nfft=512, window_length=400, window_step=160)  # 25 ms every 10 ms
    bands = ndd.mel_filter_bank(spectra, nfilter=BANDS, sample_rate=float(RATE), freq_low=20.0)
    return ndd.normalize(ndd.to_decibels(bands, cutoff_db=-80.0))


def pad(spectra: ndd.Batch) -> torch.Tensor:
    """Stack them with one channel, padded with their mean, 0, to the longest."""
    return spectra.torch(pad=True)[:, None]


def small_cnn(classes: int) -> nn.Module:
    """Three convolutions, for audio of any length."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]

    layers = [nn.AvgPool2d((1, 2)), *block(1, 8), *block(8, 16), *block(16, 32)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))


def list_sounds(folder: Path) -> tuple[list[str], list[int], list[str]]:
    """Return the audio files, their labels, and the names of the classes."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    files, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            if path.suffix.lower() in SUFFIXES:
                files.append(str(path))
                labels.append(label)
    if len(files) < HELD_OUT:
        raise SystemExit(f"{folder} needs a subfolder for each class, with at least {HELD_OUT} sounds in all; found {len(files)}")
    return files, labels, classes


def main(arguments: list[str] | None = None) -> float:
    """Train and return the accuracy on the held-out files, in percent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="one subfolder for each class; without it, made sounds")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, help="stop after this many batches")
    parser.add_argument("--threads", type=int, help="threads that decode and transform (default: all cores)")
    parser.add_argument("--made", type=int, default=60, help="how many sounds of each kind to make where there is no folder")
    options = parser.parse_args(arguments)

    if options.threads is not None:
        ndd.set_num_threads(options.threads)
    torch.manual_seed(0)
    ndd.random.set_seed(0)

    if options.folder is not None:
        return train(options, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        write_sounds(Path(folder), options.made)
        return train(options, Path(folder))


def train(options: argparse.Namespace, folder: Path) -> float:
    """Run the training loop."""
    files, labels, classes = list_sounds(folder)
    train_files = [file for i, file in enumerate(files) if i % HELD_OUT != 0]
    train_labels = [label for i, label in enumerate(labels) if i % HELD_OUT != 0]
    print(f"{len(train_files)} sounds to train on, {len(files) - len(train_files)} held out, {len(classes)} classes")

    reader = ndd.readers.File(files=train_files, labels=train_labels, random_shuffle=True, seed=0)
    model = small_cnn(len(classes))
    steps = -(-len(train_files) // options.batch_size) * options.epochs
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)

    def batches() -> Iterator[tuple[ndd.Batch, ndd.Batch]]:  # all epochs
        for _ in range(options.epochs):
            yield from reader.next_epoch(batch_size=options.batch_size)

    last = min(steps, options.steps or steps)
    with tqdm(total=last * options.batch_size, unit="sound", unit_scale=True, desc="training") as progress:
        for _, (sounds, targets) in zip(range(last), batches(), strict=False):
            spectra = features(sounds)
            spectra = ndd.time_mask(spectra, time_mask_param=20, num_masks=2)
            spectra = ndd.frequency_mask(spectra, freq_mask_param=10, num_masks=2)

            x, y = pad(spectra), targets.torch().flatten().long()
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress.update(len(y))
            progress.set_postfix(loss=f"{loss.item():.3f}")

    rate = progress.n / progress.format_dict["elapsed"]
    correct = evaluate(model, files[::HELD_OUT], labels[::HELD_OUT], options.batch_size)
    accuracy = 100 * correct / len(files[::HELD_OUT])
    print(f"{rate:.0f} sounds per second, training included")
    print(f"accuracy on the held-out sounds: {accuracy:.1f} %")
    return accuracy


@torch.no_grad()
def evaluate(model: nn.Module, files: list[str], labels: list[int], batch_size: int) -> int:
    """Return how many of the sounds the model recognizes."""
    model.eval()
    reader = ndd.readers.File(files=files, labels=labels, pad_last_batch=True)
    predictions = [model(pad(features(sounds))).argmax(1) for sounds, _ in reader.next_epoch(batch_size=batch_size)]
    # The last batch is padded with repetitions of the last sound; they do not count.
    return int((torch.cat(predictions)[: len(files)] == torch.tensor(labels)).sum())


if __name__ == "__main__":
    main()
