# SPDX-License-Identifier: Apache-2.0
"""Train a small speech recognizer on sentences of any length, in padded batches of equal cost.

    python examples/train_asr.py                             # synthetic sentences, a minute on two cores
    python examples/train_asr.py manifest.json               # a manifest in NeMo's format, 16 kHz
    torchrun --nproc-per-node 2 examples/train_asr.py        # each rank gets batches of its own, and all take the same number of steps

`Bucketed` joins sentences of like duration, so little of a batch is padding, and bounds the seconds of a padded batch.
Needs `pip install torch_ndd[audio]`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sounds import RATE
from torch import nn

import torch_ndd as ndd

LETTERS = "abcdefghijklmnopqrstuvwxyz '"
BANDS = 40
TONES = {"a": 400.0, "b": 800.0, "c": 1400.0, "d": 2200.0, "e": 3200.0}  # the letters of synthetic sentences


def write_sentences(folder: Path, count: int) -> Path:
    """Write sentences of one to twelve tones, which stand for letters, and return their manifest."""
    import soundfile

    generator = np.random.default_rng(0)
    lines = []
    for k in range(count):
        text = "".join(generator.choice(list(TONES), generator.integers(1, 13)))
        parts = []
        for letter in text:
            time = np.arange(int(RATE * generator.uniform(0.1, 0.2))) / RATE
            parts += [np.sin(2 * np.pi * TONES[letter] * generator.uniform(0.95, 1.05) * time), np.zeros(int(RATE * 0.05))]
        sound = np.concatenate(parts)
        sound = 0.3 * (sound + 0.05 * generator.standard_normal(len(sound)))
        soundfile.write(folder / f"{k}.flac", sound, RATE)
        lines.append(json.dumps({"audio_filepath": str(folder / f"{k}.flac"), "duration": len(sound) / RATE, "text": text}))
    (folder / "manifest.json").write_text("\n".join(lines))
    return folder / "manifest.json"


def prepare(sounds: ndd.Batch, texts: ndd.Batch, plan: Any) -> dict[str, Any]:
    """Return padded log-mel spectrograms (N, bands, time) and their lengths, the letters of all texts, their lengths, and the plan of the batch."""
    spectra = ndd.spectrogram(sounds, nfft=512, window_length=400, window_step=160)  # 25 ms every 10 ms
    bands = ndd.to_decibels(ndd.mel_filter_bank(spectra, nfilter=BANDS, sample_rate=float(RATE), freq_low=20.0), cutoff_db=-80.0)
    bands = ndd.normalize(bands)
    letters = [[LETTERS.index(letter) + 1 for letter in bytes(text).decode() if letter in LETTERS] for text in texts.tensors]  # 0 is CTC's blank
    return {
        "spectra": bands.torch(pad=True),
        "frames": torch.tensor([shape[1] for shape in bands.shape]),
        "letters": torch.tensor([letter for row in letters for letter in row]),
        "lengths": torch.tensor([len(row) for row in letters]),
        "plan": plan,
    }


class Recognizer(nn.Module):
    """Convolutions over 150 ms; the output has half as many frames."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv1d(BANDS, 96, 5, stride=2, padding=2), nn.ReLU()]
        for _ in range(2):
            layers += [nn.Conv1d(96, 96, 5, padding=2), nn.BatchNorm1d(96), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv1d(96, len(LETTERS) + 1, 1))

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities (time, N, letters)."""
        return self.layers(spectra).permute(2, 0, 1).log_softmax(-1)


def main(arguments: list[str] | None = None) -> list[float]:
    """Train, and return the loss per second of sound for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", nargs="?", type=Path, help="in NeMo's format; without it, synthetic sentences")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30, help="of a padded batch")
    parser.add_argument("--sentences", type=int, default=400, help="number of sentences to synthesize without a manifest")
    parser.add_argument("--checkpoint", type=Path, help="resume from this file if it exists, and write it after each epoch")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        return train(options, options.manifest or write_sentences(Path(folder), options.sentences))


def train(options: argparse.Namespace, manifest: Path) -> list[float]:
    """Run the training loop."""
    torch.manual_seed(0)
    distributed = "RANK" in os.environ
    if distributed:
        torch.distributed.init_process_group("gloo")
    shard = ndd.distributed.shard()

    reader = ndd.readers.NemoAsr(
        manifest_filepaths=str(manifest), sample_rate=float(RATE), downmix=True, read_sample_rate=False, random_shuffle=True, seed=0
    )
    batches = ndd.batches.Bucketed(budget=options.seconds, cost="seconds")
    loader = ndd.DataLoader(reader, prepare, batches=batches, seed=0, **shard)
    model: nn.Module = Recognizer()
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = 0
    if options.checkpoint is not None and options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        begin = saved["epoch"] + 1

    losses = []
    for epoch in range(begin, options.epochs):
        for batch in loader:
            plan = batch["plan"]
            frames = (batch["frames"] + 1) // 2
            loss = nn.functional.ctc_loss(model(batch["spectra"]), batch["letters"], frames, batch["lengths"], reduction="sum", zero_infinity=True)
            # The mean over the seconds of all ranks, whose gradients are averaged. A rank that had to repeat a batch does not count.
            loss = loss * (not plan.repeated) * shard["num_shards"] / plan.step_cost
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if shard["shard_id"] == 0:
            print(f"epoch {epoch}, {len(losses)} steps: loss {losses[-1]:.2f} a second of sound; {loader.diagnose()}")
            if options.checkpoint is not None:
                torch.save(
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict(), "epoch": epoch},
                    options.checkpoint,
                )
    if distributed:
        torch.distributed.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
