# SPDX-License-Identifier: Apache-2.0
"""Train a small vision-language model on images of their own size, packed without padding.

    python examples/train_vlm.py               # a minute on two cores
    python examples/train_vlm.py --steps 40

Images of shapes with captions such as "a small red circle" are drawn and written as PNG files of different sizes. Each becomes as many patches as its
size needs (`ndd.sizes.budget`, `ndd.patchify`), and the patches of a batch are joined (`tokens.packed()`): attention sees `sequence_ids` and no
padding. A network of random weights reads the patches and writes the caption.

With a model of Hugging Face, one line replaces `prepare`: `torch_ndd.transformers.from_processor(AutoImageProcessor.from_pretrained(...))`.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

import torch_ndd as ndd

PATCH, MERGE = 8, 2
COLORS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 80, 220), "yellow": (230, 210, 40)}
SHAPES, SIZES = ("circle", "square"), ("small", "large")
WORDS = ["<start>", "<end>", "a", *SIZES, *COLORS, *SHAPES]
Prepared = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def write_images(folder: Path, count: int) -> tuple[list[str], list[list[int]]]:
    """Write images of different sizes; return their files and captions."""
    generator = np.random.default_rng(0)
    kinds = list(itertools.product(SIZES, COLORS, SHAPES))
    files, captions = [], []
    for k in range(count):
        size, color, shape = kinds[k % len(kinds)]
        width, height = generator.integers(48, 160, 2).tolist()
        image = Image.new("RGB", (width, height), tuple(generator.integers(0, 60, 3).tolist()))
        radius = min(width, height) * (0.15 if size == "small" else 0.4)
        x, y = width * generator.uniform(0.45, 0.55), height * generator.uniform(0.45, 0.55)
        draw = ImageDraw.Draw(image).ellipse if shape == "circle" else ImageDraw.Draw(image).rectangle
        draw((x - radius, y - radius, x + radius, y + radius), fill=COLORS[color])
        files.append(str(folder / f"{k}.png"))
        image.save(files[-1])
        captions.append([WORDS.index(word) for word in ("<start>", "a", size, color, shape, "<end>")])
    return files, captions


def prepare(files: ndd.Batch, numbers: ndd.Batch) -> tuple[ndd.Tensor, ndd.Tensor, ndd.Batch, ndd.Batch]:
    """Return the patches of all images, which image each belongs to, their positions, and the images' numbers."""
    images = ndd.decoders.image(files)
    size = ndd.sizes.budget(images, multiple_of=PATCH * MERGE, min_pixels=32 * 32, max_pixels=96 * 96)
    images = ndd.resize(images, size=size, rule="torch", interp_type=ndd.types.INTERP_CUBIC)
    images = ndd.crop_mirror_normalize(images, mean=127.5, std=63.75)
    tokens, grid = ndd.patchify(images, patch_size=PATCH, merge_size=MERGE)
    patches = tokens.packed()
    positions = ndd.patch_positions(grid, merge_size=MERGE).packed().values
    return patches.values, patches.sequence_ids, positions, numbers


class CaptionModel(nn.Module):
    """Patches with positions, two layers of attention within each image, and a caption from their mean."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * PATCH * PATCH, width)
        self.position = nn.Linear(2, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True) for _ in range(2))
        self.words = nn.Embedding(len(WORDS), width)
        self.decode = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, patches: torch.Tensor, images: torch.Tensor, positions: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
        """Return the logits of the words that follow those of ``captions``."""
        x = (self.embed(patches) + self.position(positions.float() / 16))[None]
        others = images[:, None] != images[None, :]  # with flash_attn_varlen_func, cu_seqlens takes the place of this mask
        for layer in self.layers:
            x = layer(x, src_mask=others)
        counts = torch.bincount(images, minlength=len(captions)).clamp(min=1)
        means = torch.zeros(len(captions), x.shape[-1]).index_add(0, images, x[0]) / counts[:, None]
        return self.head(self.decode(self.words(captions), means[None].contiguous())[0])


def main(arguments: list[str] | None = None) -> float:
    """Train and return the share of words that the model predicts in the last steps, in percent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=160)
    options = parser.parse_args(arguments)
    if not 1 <= options.batch_size <= options.images:
        parser.error(f"--batch-size must be from 1 to the {options.images} images: batches that are not full are left out")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        files, texts = write_images(Path(folder), options.images)
        captions = torch.tensor(texts)
        reader = ndd.readers.File(files=files, labels=list(range(len(files))), random_shuffle=True, seed=0)
        loader = ndd.DataLoader(reader, prepare, batch_size=options.batch_size, drop_last=True, seed=0)
        model = CaptionModel()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        right, begin, tokens = [], time.perf_counter(), 0
        for step, (patches, images, positions, numbers) in zip(
            range(options.steps), itertools.chain.from_iterable(itertools.repeat(loader)), strict=False
        ):
            words = captions[numbers.flatten().long()]
            logits = model(patches, images, positions, words[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tokens += len(patches)
            right.append(float((logits.argmax(-1) == words[:, 1:]).float().mean()))
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item():.3f}, {len(patches)} patches of {len(words)} images")
        seconds = time.perf_counter() - begin
    accuracy = 100 * float(np.mean(right[-10:]))
    print(f"{len(right) * options.batch_size / seconds:.0f} images and {tokens / seconds:.0f} patches per second, training included")
    print(f"words predicted in the last steps: {accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main()
