# SPDX-License-Identifier: Apache-2.0
"""Train a small object detector on a COCO data set.

    python examples/train_detection.py                    # a generated data set of colored shapes, a minute on two cores
    python examples/train_detection.py ~/coco/val2017     # a folder with images/ and instances.json

Boxes follow their images: cropped by ``random_bbox_crop``, mirrored, resized, and rotated by the matrix of the rotation. ``box_encoder`` makes the
targets. Every fifth image is held out to measure the share of objects found. One augmented batch is written as a picture with its boxes, which shows
what the network sees.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from tqdm import tqdm

import torch_ndd as ndd

HELD_OUT = 5  # every fifth image
SIDE = 128  # of the training images, in pixels
CELLS = 8  # rows and columns of the network's output
SIZES = (0.2, 0.35, 0.55)  # sides of the anchors in each cell, relative to the image
STDS = [0.1, 0.1, 0.2, 0.2]  # divisors of the differences from the anchors
MEAN, STD = [127.5, 127.5, 127.5], [63.75, 63.75, 63.75]  # of red, green and blue, in 0 to 255
FOUND = 0.5  # intersection over union of an object that counts as found
COLORS = ("#ffb000", "#ff3b6b", "#4cc2ff", "#7dff6a")


def make_shapes(folder: Path, count: int = 400) -> None:
    """Write a COCO data set: squares, circles and triangles of any color, one to three per image."""
    draw_random = random.Random(0)
    names = ("square", "circle", "triangle")
    images, annotations = [], []
    (folder / "images").mkdir(parents=True)
    for number in range(count):
        width, height = draw_random.randint(140, 200), draw_random.randint(140, 200)
        picture = Image.effect_noise((width, height), 40).convert("RGB")
        pen = ImageDraw.Draw(picture)
        for _ in range(draw_random.randint(1, 3)):
            side = draw_random.randint(30, 70)
            x, y, kind = draw_random.randint(0, width - side), draw_random.randint(0, height - side), draw_random.randrange(3)
            color, box = tuple(draw_random.randrange(256) for _ in range(3)), (x, y, x + side, y + side)
            if kind == 0:
                pen.rectangle(box, fill=color)
            elif kind == 1:
                pen.ellipse(box, fill=color)
            else:
                pen.polygon([(x, y + side), (x + side, y + side), (x + side // 2, y)], fill=color)
            annotation = {"id": len(annotations), "image_id": number, "category_id": kind + 1, "bbox": [x, y, side, side]}
            annotations.append({**annotation, "iscrowd": 0, "area": side * side})
        picture.save(folder / "images" / f"{number:04d}.jpg", quality=95)
        images.append({"id": number, "file_name": f"{number:04d}.jpg", "width": width, "height": height})
    categories = [{"id": k + 1, "name": name} for k, name in enumerate(names)]
    (folder / "instances.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


def make_anchors() -> list[float]:
    """Return left, top, right and bottom of the squares in each cell; the cells row by row."""
    anchors = []
    for row in range(CELLS):
        for column in range(CELLS):
            x, y = (column + 0.5) / CELLS, (row + 0.5) / CELLS
            for size in SIZES:
                anchors += [x - size / 2, y - size / 2, x + size / 2, y + size / 2]
    return anchors


ANCHORS = make_anchors()


class Detector(nn.Module):
    """Convolutions down to the cells; class scores and box differences for every anchor."""

    def __init__(self, classes: int) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
            return [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

        layers = [*block(3, 24, 2), *block(24, 48, 2), *block(48, 96, 2), *block(96, 128, 2), *block(128, 128, 1)]
        self.features = nn.Sequential(*layers)
        self.scores = nn.Conv2d(128, len(SIZES) * classes, 3, padding=1)
        self.boxes = nn.Conv2d(128, len(SIZES) * 4, 3, padding=1)
        self.classes = classes

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (N, anchors, classes), the first class being background, and (N, anchors, 4)."""
        features = self.features(images)
        scores, boxes = self.scores(features).permute(0, 2, 3, 1), self.boxes(features).permute(0, 2, 3, 1)
        return scores.reshape(len(images), -1, self.classes), boxes.reshape(len(images), -1, 4)


def augment_batch(jpegs: ndd.Batch, boxes: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch, ndd.Batch]:
    """Return normalized images, and the boxes and labels that they still show; all boxes are relative to the image's size."""
    images = ndd.decoders.image(jpegs, adjust_orientation=False)  # boxes are about the pixels as they are stored

    # A random window that shows some of the boxes; boxes of objects outside it are dropped.
    start, shape, boxes, labels = ndd.random_bbox_crop(
        boxes,
        labels,
        scaling=[0.5, 1.0],
        aspect_ratio=[0.75, 1.33],
        thresholds=[0.5, 0.9],
        threshold_type="overlap",
        all_boxes_above_threshold=False,
        num_attempts=20,
    )
    images = ndd.slice(images, start, shape, axis_names="WH", normalized_anchor=True, normalized_shape=True)
    images = ndd.resize(images, size=[SIDE, SIDE])  # relative boxes do not change

    # Boxes follow any pixel operator by its matrix.
    angle = ndd.random.uniform(range=[-10.0, 10.0], batch_size=images.batch_size)
    turn = ndd.transforms.of(ndd.rotate, images, angle=angle, keep_size=True)
    images = ndd.rotate(images, angle=angle, keep_size=True, fill_value=127.5)
    boxes, labels = ndd.bbox_transform(
        boxes,
        labels,
        MT=turn,
        bbox_normalized=True,
        input_shape=[SIDE, SIDE],
        output_shape=[SIDE, SIDE],
        remove_threshold=0.3,
    )

    mirror = ndd.random.coin_flip(batch_size=images.batch_size)
    images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=MEAN, std=STD)
    return images, ndd.bb_flip(boxes, horizontal=mirror, ltrb=True), labels


def draw_boxes(images: ndd.Batch, boxes: ndd.Batch, labels: ndd.Batch, names: list[str], path: Path) -> None:
    """Write the images as one picture, with a box around every object and the names of the objects below."""
    pictures, texts = [], []
    for image, rows, numbers in zip(images, boxes, labels, strict=True):
        pixels = image.torch().permute(1, 2, 0) * torch.tensor(STD) + torch.tensor(MEAN)
        picture = Image.fromarray(pixels.clamp(0, 255).round().to(torch.uint8).numpy())
        pen = ImageDraw.Draw(picture)
        classes = numbers.torch().flatten().tolist()
        for row, label in zip((rows.torch() * SIDE).tolist(), classes, strict=True):
            pen.rectangle(row, outline=COLORS[label % len(COLORS)], width=2)
        pictures.append(torch.from_numpy(np.array(picture)))
        texts.append(", ".join(names[label] for label in classes))
    ndd.show(pictures, path, labels=texts)


def detection_loss(scores: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of anchors with an object and of three times as many hard negatives, plus the distance of the boxes."""
    entropy = nn.functional.cross_entropy(scores.flatten(0, 1), classes.flatten(), reduction="none")
    matched = classes.flatten() > 0
    count = max(1, int(matched.sum()))
    worst = entropy[~matched].topk(min(3 * count, int((~matched).sum()))).values
    distance = nn.functional.smooth_l1_loss(boxes.flatten(0, 1)[matched], encoded.flatten(0, 1)[matched], reduction="sum")
    return (entropy[matched].sum() + worst.sum() + distance) / count


def decode(boxes: torch.Tensor) -> torch.Tensor:
    """Return left, top, right and bottom from differences to the anchors: the inverse of ``box_encoder``."""
    corners = torch.tensor(ANCHORS).reshape(-1, 4)
    centers, sizes = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    differences = boxes * torch.tensor(STDS)
    centers, sizes = centers + differences[..., :2] * sizes, sizes * differences[..., 2:].clamp(max=4).exp()
    return torch.cat([centers - sizes / 2, centers + sizes / 2], -1)


def overlaps(box: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the intersection over union of a box with others."""
    low, high = torch.maximum(box[:2], others[:, :2]), torch.minimum(box[2:], others[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    return both / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - both)


@torch.no_grad()
def evaluate(model: Detector, reader: ndd.readers.COCO, batch_size: int) -> float:
    """Return the percentage of objects that one of the ten most confident boxes of an image finds, with the right class."""
    model.eval()
    found = total = 0
    for jpegs, boxes, labels in reader.next_epoch(batch_size=batch_size):
        images = ndd.resize(ndd.decoders.image(jpegs, adjust_orientation=False), size=[SIDE, SIDE])
        images = ndd.crop_mirror_normalize(images, mean=MEAN, std=STD)
        scores, differences = model(images.torch())
        surest, classes = scores.softmax(-1)[..., 1:].max(-1)
        best = surest.topk(10).indices
        for k, (rows, numbers) in enumerate(zip(boxes, labels, strict=True)):
            proposals, kinds = decode(differences[k])[best[k]], classes[k][best[k]] + 1
            for box, label in zip(rows.torch(), numbers.torch().flatten(), strict=True):
                found += bool(((overlaps(box, proposals) >= FOUND) & (kinds == label)).any())
                total += 1
    return 100 * found / max(1, total)


def main(arguments: list[str] | None = None) -> float:
    """Train and return the percentage of held-out objects that are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="images/ and instances.json; without it those of DALI_EXTRA_PATH, or colored shapes")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, help="stop after this many batches")
    parser.add_argument("--threads", type=int, help="threads that decode and augment (default: all cores)")
    parser.add_argument("--out", type=Path, default=Path("detection.png"), help="where to write the picture of one augmented batch")
    options = parser.parse_args(arguments)

    if options.threads is not None:
        ndd.set_num_threads(options.threads)
    torch.manual_seed(0)
    ndd.random.set_seed(0)

    extra = os.environ.get("DALI_EXTRA_PATH")
    if options.folder is not None:
        return train(options, options.folder)
    if extra and (Path(extra) / "db" / "coco" / "instances.json").exists():
        return train(options, Path(extra) / "db" / "coco")
    with tempfile.TemporaryDirectory() as folder:
        make_shapes(Path(folder))
        return train(options, Path(folder))


def train(options: argparse.Namespace, folder: Path) -> float:
    """Run the training loop."""
    if not (folder / "instances.json").exists():
        raise SystemExit(f"{folder} needs a file instances.json, and a folder images with what it names")
    annotations = json.loads((folder / "instances.json").read_text())
    names = ["background", *(category["name"] for category in annotations["categories"])]
    files = [image["file_name"] for image in annotations["images"]]
    train_files = [file for i, file in enumerate(files) if i % HELD_OUT != 0]
    held_out = files[::HELD_OUT]
    print(f"{len(train_files)} images to train on, {len(held_out)} held out, {len(names) - 1} classes")

    def coco(images: list[str], *, random_shuffle: bool = False) -> ndd.readers.COCO:
        return ndd.readers.COCO(
            file_root=folder / "images",
            annotations_file=folder / "instances.json",
            images=images,
            ltrb=True,  # left, top, right, bottom
            ratio=True,  # relative to the image's size
            skip_empty=True,
            random_shuffle=random_shuffle,
            seed=0,
        )

    reader = coco(train_files, random_shuffle=True)
    model = Detector(len(names))
    steps = -(-len(train_files) // options.batch_size) * options.epochs
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)

    def batches() -> Iterator[tuple[ndd.Batch, ...]]:  # all epochs
        for _ in range(options.epochs):
            yield from reader.next_epoch(batch_size=options.batch_size)

    last = min(steps, options.steps or steps)
    with tqdm(total=last * options.batch_size, unit="img", unit_scale=True, desc="training") as progress:
        for step, (jpegs, boxes, labels) in zip(range(last), batches(), strict=False):
            images, boxes, labels = augment_batch(jpegs, boxes, labels)
            encoded, classes = ndd.box_encoder(boxes, labels, anchors=ANCHORS, criteria=0.4, offset=True, stds=STDS)

            scores, differences = model(images.torch())
            loss = detection_loss(scores, differences, classes.torch().long(), encoded.torch())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

            if step == 0:
                draw_boxes(images, boxes, labels, names, options.out)
            progress.update(options.batch_size)
            progress.set_postfix(loss=f"{loss.item():.3f}")

    rate = progress.n / progress.format_dict["elapsed"]
    found = evaluate(model, coco(held_out), options.batch_size)
    print(f"{rate:.0f} images per second, training included; one augmented batch is in {options.out}")
    print(f"objects found in the held-out images: {found:.1f} %")
    return found


if __name__ == "__main__":
    main()
