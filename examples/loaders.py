# SPDX-License-Identifier: Apache-2.0
"""Nine training programs' loaders, each with torch's DataLoader and with ndd.DataLoader, on small data that is made here.

    python examples/loaders.py             # all
    python examples/loaders.py ssd timm    # some

Each pair of functions makes the loader of a well-known recipe. What has no random numbers must be equal: the pixels of the validation within a level
of 255, boxes, volumes and features within rounding. The others must have the same shapes and types.
"""

import argparse
import importlib
import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from photos import write_photos
from PIL import Image
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision import tv_tensors
from torchvision.datasets import CocoDetection, ImageFolder, wrap_dataset_for_transforms_v2
from torchvision.models import ResNet18_Weights
from torchvision.transforms import v2

import torch_ndd as ndd
from torch_ndd.torchvision import datasets, from_timm, from_torchvision
from torch_ndd.torchvision import v2 as batched

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
NORMALIZED = [*FLOATS, v2.Normalize(MEAN, STD)]
BATCH = 4


class Program(NamedTuple):
    """A loader before and after, and how far apart their values may be; None: they are random."""

    before: Callable[[Path], Iterable[Any]]
    after: Callable[[Path], Iterable[Any]]
    difference: float | None = None


# --- 1 and 2: the ImageNet reference ---

TRAINING = v2.Compose([v2.RandomResizedCrop(64, antialias=True), v2.RandomHorizontalFlip(), *NORMALIZED])


def imagenet_before(root: Path) -> Iterable[Any]:
    return DataLoader(ImageFolder(str(root / "photos"), TRAINING), BATCH, shuffle=True, drop_last=True)


def imagenet_after(root: Path) -> Iterable[Any]:
    return ndd.DataLoader(ndd.ImageFolder(root / "photos"), from_torchvision(TRAINING), batch_size=BATCH, shuffle=True, drop_last=True)


def validation_before(root: Path) -> Iterable[Any]:
    return DataLoader(ImageFolder(str(root / "photos"), ResNet18_Weights.DEFAULT.transforms()), BATCH)


def validation_after(root: Path) -> Iterable[Any]:
    return ndd.DataLoader(ndd.ImageFolder(root / "photos"), from_torchvision(ResNet18_Weights.DEFAULT.transforms()), batch_size=BATCH)


# --- 3: torchvision's classification recipe: TrivialAugment, erasing, mixup ---

RECIPE = v2.Compose([v2.RandomResizedCrop(64), v2.RandomHorizontalFlip(), v2.TrivialAugmentWide(), *NORMALIZED, v2.RandomErasing(p=0.1)])


def classification_before(root: Path) -> Iterable[Any]:
    mixup = v2.MixUp(alpha=0.2, num_classes=2)
    dataset = ImageFolder(str(root / "photos"), RECIPE)
    return DataLoader(dataset, BATCH, shuffle=True, drop_last=True, collate_fn=lambda items: mixup(*default_collate(items)))


def classification_after(root: Path) -> Iterable[Any]:
    transform, mixup = from_torchvision(RECIPE), batched.MixUp(alpha=0.2, num_classes=2)
    dataset = ndd.ImageFolder(root / "photos")
    return ndd.DataLoader(dataset, lambda files, labels: mixup(*transform(files, labels)), batch_size=BATCH, shuffle=True, drop_last=True)


# --- 4: torchvision's detection recipe, with masks ---

DETECTION = v2.Compose([v2.RandomHorizontalFlip(p=1.0), *FLOATS, v2.SanitizeBoundingBoxes(), v2.ToPureTensor()])
KEYS = ("boxes", "masks", "labels")


def objects(items: Iterable[Any]) -> Any:
    images, targets = zip(*items, strict=True)
    return list(images), {key: [target[key] for target in targets] for key in KEYS if key in targets[0]}


def detection_before(root: Path) -> Iterable[Any]:
    dataset = CocoDetection(str(root / "shapes"), str(root / "shapes" / "a.json"), transforms=DETECTION)
    wrapped: Any = wrap_dataset_for_transforms_v2(dataset, target_keys=KEYS)
    return DataLoader(wrapped, 3, collate_fn=objects)


def detection_after(root: Path) -> Iterable[Any]:
    dataset = datasets.CocoDetection(root / "shapes", root / "shapes" / "a.json", DETECTION)
    return ndd.DataLoader(dataset, lambda images, target: (images, {key: target[key] for key in KEYS}), batch_size=3)


# --- 5: timm's recipe ---

# Without mstd: at magnitude 10, which it can reach, timm asks Pillow to posterize to 0 bits, an error since Pillow 13.
TIMM: dict[str, Any] = {"input_size": 64, "is_training": True, "auto_augment": "rand-m9-inc1", "re_prob": 0.25, "re_mode": "pixel"}
MIXUP: dict[str, Any] = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "num_classes": 2}


def timm_before(root: Path) -> Iterable[Any]:
    timm: Any = importlib.import_module("timm.data")
    mixup = timm.Mixup(**MIXUP)
    dataset = ImageFolder(str(root / "photos"), timm.create_transform(**TIMM))
    return DataLoader(dataset, BATCH, shuffle=True, drop_last=True, collate_fn=lambda items: mixup(*default_collate(items)))


def timm_after(root: Path) -> Iterable[Any]:
    return ndd.DataLoader(ndd.ImageFolder(root / "photos"), from_timm(**TIMM, mixup=MIXUP), batch_size=BATCH, shuffle=True, drop_last=True)


# --- 6: super-resolution: a large image and its reduction, cut in step ---


class Pairs(Dataset[Any]):
    """A window of the image, and the same window of its reduction by 2."""

    def __init__(self, root: Path) -> None:
        self.large, self.small = (sorted((root / name).iterdir()) for name in ("large", "small"))

    def __len__(self) -> int:
        return len(self.large)

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        large, small = (torch.from_numpy(np.array(Image.open(paths[k]))) for paths in (self.large, self.small))
        return {"small": small[10:34, 20:44].permute(2, 0, 1) / 255, "large": large[20:68, 40:88].permute(2, 0, 1) / 255}


def super_resolution_before(root: Path) -> Iterable[Any]:
    return DataLoader(Pairs(root), BATCH)


def super_resolution_after(root: Path) -> Iterable[Any]:
    def fn(files: dict[str, tuple[ndd.Batch, ndd.Batch]]) -> dict[str, ndd.Batch]:
        outputs = {}
        for name, scale in (("small", 1), ("large", 2)):
            size = 24 * scale
            window = ndd.decoders.image_slice(
                files[name][0], start=[10 * scale, 20 * scale], shape=[size, size], axes=[0, 1]
            )  # decodes only the window
            outputs[name] = ndd.crop_mirror_normalize(window, std=255.0)
        return outputs

    readers = {name: ndd.readers.File(files=sorted((root / name).iterdir())) for name in ("small", "large")}
    return ndd.DataLoader(readers, fn, batch_size=BATCH)


# --- 7: SSD ---

SSD = v2.Compose(
    [
        v2.RandomPhotometricDistort(),
        v2.RandomZoomOut(fill={tv_tensors.Image: (123, 117, 104), "others": 0}),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(),
        v2.Resize((96, 96)),
        *FLOATS,
        v2.SanitizeBoundingBoxes(),
        v2.ToPureTensor(),
    ]
)


def ssd_before(root: Path) -> Iterable[Any]:
    dataset = CocoDetection(str(root / "shapes"), str(root / "shapes" / "a.json"), transforms=SSD)
    wrapped: Any = wrap_dataset_for_transforms_v2(dataset, target_keys=("boxes", "labels"))
    return DataLoader(wrapped, 3, shuffle=True, collate_fn=objects)


def ssd_after(root: Path) -> Iterable[Any]:
    dataset = datasets.CocoDetection(root / "shapes", root / "shapes" / "a.json", SSD, masks=False)
    fn = lambda images, target: (list(images), {key: target[key] for key in ("boxes", "labels")})  # noqa: E731
    return ndd.DataLoader(dataset, fn, batch_size=3, shuffle=True)


# --- 8: nnU-Net: patches of volumes and their segmentation ---


class Volumes(Dataset[Any]):
    """The central patch of a volume, normalized, and of its labels."""

    def __init__(self, root: Path) -> None:
        self.images, self.labels = (sorted((root / name).iterdir()) for name in ("volumes", "labels"))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        image, label = np.load(self.images[k]), np.load(self.labels[k])
        image = (image - image.mean()) / image.std()
        window = tuple(slice((extent - 16) // 2, (extent - 16) // 2 + 16) for extent in image.shape)
        return image[window][None], label[window][None]


def nnunet_before(root: Path) -> Iterable[Any]:
    return DataLoader(Volumes(root), 2)


def nnunet_after(root: Path) -> Iterable[Any]:
    def fn(images: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
        images = ndd.normalize(images)
        starts = ndd.batch([[(extent - 16) // 2 for extent in shape] for shape in images.shape])
        window = {"start": starts, "shape": [16, 16, 16], "axes": [0, 1, 2]}
        return tuple(ndd.expand_dims(ndd.slice(volume, **window), axes=[0]) for volume in (images, labels))  # type: ignore[return-value]

    readers = tuple(ndd.readers.Numpy(files=sorted(map(str, (root / name).iterdir()))) for name in ("volumes", "labels"))
    return ndd.DataLoader(readers, fn, batch_size=2)


# --- 9: Jasper: features of speech, padded ---


class Speech(Dataset[Any]):
    """The spectrogram of a sound in decibels, with one row per frame."""

    def __init__(self, root: Path) -> None:
        self.files = sorted((root / "speech").iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, k: int) -> torch.Tensor:
        sound = torch.from_numpy(np.load(self.files[k]))
        sound = torch.cat([sound[:1] * (1 - 0.97), sound[1:] - 0.97 * sound[:-1]])
        power = torch.stft(sound, 512, 160, 320, torch.hann_window(320, periodic=False), return_complex=True).abs() ** 2
        return (10 * torch.log10(power.clamp(min=1e-10))).T


def pad_items(items: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.nn.utils.rnn.pad_sequence(items, batch_first=True), torch.tensor([len(item) for item in items])


def jasper_before(root: Path) -> Iterable[Any]:
    return DataLoader(Speech(root), 3, collate_fn=pad_items)


def jasper_after(root: Path) -> Iterable[Any]:
    window = torch.hann_window(320, periodic=False).tolist()

    def fn(sounds: ndd.Batch) -> tuple[Any, Any]:
        sounds = ndd.preemphasis_filter(sounds, preemph_coeff=0.97, border="clamp")
        power = ndd.spectrogram(sounds, nfft=512, window_length=320, window_step=160, window_fn=window, layout="tf")
        features, lengths, _ = ndd.to_decibels(power, multiplier=10.0, reference=1.0, cutoff_db=-100.0).padded()
        return features, lengths.torch()[:, 0]

    return ndd.DataLoader(ndd.readers.Numpy(files=sorted(map(str, (root / "speech").iterdir()))), fn, batch_size=3)


PROGRAMS = {
    "imagenet": Program(imagenet_before, imagenet_after),
    "validation": Program(validation_before, validation_after, 1.01 / 255 / min(STD)),
    "classification": Program(classification_before, classification_after),
    "detection": Program(detection_before, detection_after, 0.02),
    "timm": Program(timm_before, timm_after),
    "super-resolution": Program(super_resolution_before, super_resolution_after, 1e-5),
    "ssd": Program(ssd_before, ssd_after),
    "nnunet": Program(nnunet_before, nnunet_after, 1e-4),
    "jasper": Program(jasper_before, jasper_after, 0.05),
}


# --- the data ---


def write_data(root: Path) -> None:
    """Write a few photos, shapes with boxes and masks, pairs of images, volumes and sounds."""
    write_photos(root / "photos", 12)
    random = np.random.default_rng(0)
    for name in ("large", "small", "volumes", "labels", "speech", "shapes"):
        (root / name).mkdir()
    images, annotations = [], []
    for k in range(6):
        photo = Image.open(sorted((root / "photos").rglob("*.jpg"))[k])
        photo = photo.resize((240, 200))
        photo.save(root / "large" / f"{k}.png")
        photo.resize((120, 100)).save(root / "small" / f"{k}.png")
        width, height = 120 + 10 * k, 100
        photo.resize((width, height)).save(root / "shapes" / f"{k}.png")
        images.append({"id": k, "file_name": f"{k}.png", "width": width, "height": height})
        for box in range(2):
            x, y, w, h = 10.0 + 40 * box, 20.0, 30.0 + k, 40.0
            polygon = [x, y, x + w, y, x + w, y + h, x, y + h]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": k, "category_id": 1 + box, "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0}
                | {"segmentation": [polygon]}
            )
        shape = (20 + k, 24, 30)
        np.save(root / "volumes" / f"{k}.npy", random.normal(100, 20, shape).astype(np.float32))
        np.save(root / "labels" / f"{k}.npy", random.integers(0, 3, shape).astype(np.uint8))
        np.save(root / "speech" / f"{k}.npy", random.normal(0, 0.1, 8000 + 1600 * k).astype(np.float32))
    categories = [{"id": 1, "name": "left"}, {"id": 2, "name": "right"}]
    (root / "shapes" / "a.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


def leaves(value: Any) -> list[torch.Tensor]:
    """Return the samples of a batch in order, key by key."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in (leaves(part) if isinstance(part, dict | list | tuple) or part.dim() > 3 else [part])]
    return list(value)


def compare(name: str, program: Program, root: Path) -> float:
    """Run both loaders over an epoch; return the largest difference. Raise AssertionError if they deliver something else."""
    torch.manual_seed(0)
    batches = [list(make(root)) for make in (program.before, program.after)]
    assert len(batches[0]) == len(batches[1]), f"{name}: {len(batches[0])} and {len(batches[1])} batches"
    most = 0.0
    for theirs, ours in zip(*batches, strict=True):
        pair = leaves(theirs), leaves(ours)
        assert len(pair[0]) == len(pair[1]), f"{name}: {len(pair[0])} and {len(pair[1])} tensors"
        for a, b in zip(*pair, strict=True):
            assert a.dtype == b.dtype, f"{name}: {a.dtype} and {b.dtype}"
            if program.difference is None:
                assert a.dim() == b.dim()
                assert torch.isfinite(b.double()).all()
                continue
            assert a.shape == b.shape, f"{name}: {tuple(a.shape)} and {tuple(b.shape)}"
            most = max(most, float((a.double() - b.double()).abs().max()) if a.numel() else 0.0)
    assert program.difference is None or most <= program.difference, f"{name}: the values differ by {most:g}"
    return most


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(PROGRAMS))
    names = parser.parse_args(arguments).names or list(PROGRAMS)
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        for name in names:
            most = compare(name, PROGRAMS[name], Path(folder))
            print(f"{name}: " + ("same shapes and types" if PROGRAMS[name].difference is None else f"equal within {most:.2g}"))


if __name__ == "__main__":
    main()
