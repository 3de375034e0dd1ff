# SPDX-License-Identifier: Apache-2.0
"""``ImageFolder``, ``CocoDetection`` and ``torchvision.DataLoader`` against torchvision's, in a real torch ``DataLoader``."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photos import write_photos
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

torchvision = pytest.importorskip("torchvision")

from torchvision.datasets import CocoDetection as TheirCoco  # noqa: E402
from torchvision.datasets import ImageFolder as TheirFolder  # noqa: E402
from torchvision.datasets import wrap_dataset_for_transforms_v2  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

import torch_ndd as ndd  # noqa: E402
from torch_ndd.readers._sources.selected import Selected  # noqa: E402
from torch_ndd.testing import assert_resumable  # noqa: E402
from torch_ndd.torchvision.datasets import CocoDetection, ImageFolder  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")  # of pycocotools
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    write_photos(root, 14)
    (root / "china" / "deep").mkdir()
    os.rename(root / "china" / "0000.jpg", root / "china" / "deep" / "0000.JPEG")
    (root / "china" / "notes.txt").write_text("no image")
    os.symlink(root / "flower", root / "linked")
    return root


def test_image_folder_equals_torchvision(folder: Path) -> None:
    theirs, ours = TheirFolder(str(folder)), ndd.ImageFolder(folder)
    for name in ("classes", "class_to_idx", "samples", "imgs", "targets"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert len(ours) == len(theirs) == 21
    for k in (0, 9, -1):
        assert ours[k][1] == theirs[k][1]
        assert np.array_equal(np.asarray(ours[k][0]), np.asarray(theirs[k][0]))
    only = ImageFolder(folder, is_valid_file=lambda path: path.endswith("3.jpg"), allow_empty=True)
    assert only.samples == TheirFolder(str(folder), is_valid_file=lambda path: path.endswith("3.jpg"), allow_empty=True).samples
    doubled = ImageFolder(folder, transform=lambda image: image.size, target_transform=lambda target: 2 * target)
    assert doubled[20] == (theirs[20][0].size, 4)
    assert repr(doubled) == f"ImageFolder({str(folder)!r}, function: 21 images of 3 classes)"


def test_image_folder_rejects_empty_folders(folder: Path, tmp_path: Path) -> None:
    for make in (ImageFolder, TheirFolder):
        with pytest.raises(FileNotFoundError):
            make(str(tmp_path))
    (tmp_path / "empty").mkdir()
    for make in (ImageFolder, TheirFolder):
        with pytest.raises(FileNotFoundError, match="empty"):
            make(str(tmp_path))
        assert make(str(tmp_path), allow_empty=True).samples == []
    with pytest.raises(FileNotFoundError):
        ImageFolder(tmp_path / "nothing")


def test_loader_reads_image_folder_natively(folder: Path) -> None:
    dataset = ndd.ImageFolder(folder)
    loader = ndd.DataLoader(dataset, lambda files, labels: (ndd.decoders.image(files), labels), batch_size=4, shuffle=True, return_paths=True)
    assert isinstance(loader.reader, ndd.readers.File)
    assert loader.dataset is dataset
    assert loader.reader.classes == dataset.classes
    seen = []
    for images, labels, paths in loader:
        assert labels.dtype == torch.int64
        assert labels.shape == (len(paths),)
        for image, label, path in zip(images, labels.tolist(), paths, strict=True):
            assert np.array_equal(image.numpy(), np.asarray(Image.open(path).convert("RGB")))
            seen.append((path, label))
    assert sorted(seen) == dataset.samples != seen


def test_image_folder_loader_resumes(folder: Path) -> None:
    def make(rank: int, world: int, size: int) -> ndd.DataLoader:
        return ndd.DataLoader(ImageFolder(folder), lambda files, labels: labels, batch_size=size, shuffle=True, shard_id=rank, num_shards=world)

    assert_resumable(make, worlds=[(1, 2), (2, 2)], batch_sizes=[3])


def test_samplers_and_collate_functions_read_image_folders(folder: Path) -> None:
    dataset = ImageFolder(folder)
    expected = [label for _, label in dataset.samples]
    sampled = ndd.DataLoader(dataset, batch_size=21, sampler=range(20, -1, -1), return_paths=True)
    for files, labels, paths in sampled:
        assert labels.tolist() == expected[::-1]
        assert paths == [path for path, _ in dataset.samples][::-1]
        assert [len(file) for file in files] == [os.path.getsize(path) for path in paths]
    collated = ndd.DataLoader(dataset, batch_size=21, collate_fn=lambda items: [image.size for image, _ in items])
    assert list(collated) == [[dataset[k][0].size for k in range(21)]]
    own = ImageFolder(folder, loader=lambda path: np.full(3, len(path)))
    assert [x[0, 0].item() for x, _ in ndd.DataLoader(own, batch_size=21)] == [len(dataset.samples[0][0])]
    subset = torch.utils.data.Subset(dataset, [3, 20])
    images, labels = next(iter(ndd.DataLoader(subset, lambda files, labels: (ndd.decoders.image(files), labels), batch_size=2)))
    assert labels.tolist() == [expected[3], expected[20]]
    assert np.array_equal(images[1].numpy(), np.asarray(dataset[20][0]))


def nest(dataset: Any) -> Any:
    """Return a data set of 0, 1, 2, 3, 20, 19, 18, 1 of a data set."""
    first, last = Subset(dataset, range(4)), Subset(Subset(dataset, range(10, len(dataset))), torch.tensor([-1, -2, -3]))
    return ConcatDataset([ConcatDataset([first, last]), Subset(dataset, np.array([1]))])


NESTED = [0, 1, 2, 3, 20, 19, 18, 1]


@pytest.mark.parametrize("make", [ImageFolder, TheirFolder])
def test_subsets_and_concatenations_are_read_natively(folder: Path, make: Any) -> None:
    dataset = make(str(folder), VALIDATION)
    whole = torch.cat([images for images, _ in ndd.torchvision.DataLoader(dataset, batch_size=21)])
    loader = ndd.torchvision.DataLoader(nest(dataset), batch_size=3, return_paths=True)
    assert isinstance(loader.reader, ndd.readers.File)
    assert len(loader) == 3
    images, labels, paths = zip(*loader, strict=True)
    assert torch.equal(torch.cat(images), whole[NESTED])
    assert torch.cat(labels).tolist() == [dataset.targets[k] for k in NESTED]
    assert [path for part in paths for path in part] == [dataset.samples[k][0] for k in NESTED]
    train, rest = torch.utils.data.random_split(dataset, [15, 6])
    loaders = [ndd.torchvision.DataLoader(value, batch_size=4, shuffle=True, return_paths=True) for value in (train, rest)]
    assert all(isinstance(loader.reader, ndd.readers.File) for loader in loaders)
    assert sorted(path for loader in loaders for *_, part in loader for path in part) == [path for path, _ in dataset.samples]
    dataset.transform = v2.Compose([v2.CenterCrop(8), v2.ToImage()])  # seen by the next epoch, as in torch
    assert {images.shape[-1] for images, *_ in loader} == {8}


@pytest.mark.parametrize("make", [ndd.DataLoader, ndd.torchvision.DataLoader])
def test_an_empty_part_of_a_split_yields_nothing(folder: Path, make: Any) -> None:
    dataset = ImageFolder(folder, v2.Compose([v2.Resize(8), v2.CenterCrop(8), v2.ToImage()]))
    for part in (Subset(dataset, []), Subset(TheirFolder(str(folder), dataset.transform), [])):
        loader = make(part, batch_size=4, shuffle=True, num_shards=2, shard_id=1)
        assert (len(loader), list(loader), list(loader)) == (0, [], [])
    assert isinstance(make(ConcatDataset([dataset, Subset(dataset, [])]), batch_size=4).reader, ndd.readers.File)


def test_subsets_of_custom_data_sets_are_called(folder: Path) -> None:
    class Named(ImageFolder):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return os.path.basename(self.samples[index][0]), index

    expected = [os.path.basename(path) for path, _ in ImageFolder(folder).samples]
    for dataset in (Named(folder), Subset(Named(folder), range(21))):
        ((names, numbers),) = ndd.DataLoader(dataset, batch_size=21)
        assert (list(names), numbers.tolist()) == (expected, list(range(21)))
    crops = [v2.Compose([v2.CenterCrop(size), v2.ToImage()]) for size in (8, 8)]
    mixed = ConcatDataset([ImageFolder(folder, crop) for crop in crops])  # one transform each: samples are transformed one by one
    assert [images.shape for images, _ in ndd.DataLoader(mixed, batch_size=42)] == [(42, 3, 8, 8)]
    with pytest.raises(IndexError, match="the Subset has index 21, but its data set has only 21 items"):
        ndd.DataLoader(Subset(ImageFolder(folder), [0, 21]), batch_size=2)


def test_subsets_of_coco_are_read_natively(coco: Path, tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    flip = v2.Compose([v2.Resize([20, 30]), v2.ToImage()])
    value, other = (CocoDetection(coco, coco / "a.json", flip) for _ in range(2))
    mixed = ConcatDataset([Subset(value, [3, 0]), Subset(ConcatDataset([other, value]), [1, 4, 5, 2])])
    loader = ndd.DataLoader(mixed, batch_size=4)
    assert isinstance(loader.reader, Selected)
    ((everything, target),) = ndd.DataLoader(value, batch_size=4)
    k = 0
    for images, found in loader:
        for i in range(len(images)):
            at = [3, 0, 1, 0, 1, 2][k]
            assert found["image_id"][i] == target["image_id"][at] == mixed[k][1]["image_id"]
            assert torch.equal(images[i], everything[at])
            for name in ("boxes", "masks", "labels"):
                assert torch.equal(found[name][i], target[name][at])
            k += 1
    assert k == 6
    assert CocoDetection(coco, coco / "a.json").ids == [3, 5, 7, 11]

    def make(rank: int, world: int, size: int) -> ndd.DataLoader:
        return ndd.DataLoader(mixed, lambda _, target: target["image_id"], batch_size=size, shuffle=True, shard_id=rank, num_shards=world)

    assert_resumable(make, worlds=[(1, 2)], batch_sizes=[2])
    (tmp_path / "lost").mkdir()
    skipping = ndd.DataLoader(
        Subset(CocoDetection(tmp_path / "lost", coco / "a.json"), [1, 0]), lambda _, target: target["image_id"], batch_size=2, on_error="skip"
    )
    with pytest.raises(RuntimeError, match=r"none of the 2 samples can be read"):
        list(skipping)


def test_damaged_file_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bad.jpg").write_bytes(b"no image")
    with pytest.raises(RuntimeError, match=r"bad\.jpg"):
        list(ndd.torchvision.DataLoader(ImageFolder(tmp_path, v2.CenterCrop(4)), batch_size=1))


VALIDATION = v2.Compose([v2.Resize(64), v2.CenterCrop(56), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


@pytest.mark.parametrize("make", [ImageFolder, TheirFolder])
def test_data_loader_equals_torch(folder: Path, make: Any) -> None:
    dataset = make(str(folder), VALIDATION)
    theirs = torch.utils.data.DataLoader(TheirFolder(str(folder), VALIDATION), batch_size=8)
    ours = ndd.torchvision.DataLoader(dataset, batch_size=8, num_workers=4, pin_memory=True, timeout=3, prefetch_factor=4, persistent_workers=True)
    assert len(ours) == len(theirs)
    assert ours.dataset is dataset
    for (x, y), (a, b) in zip(ours, theirs, strict=True):
        assert (x.shape, x.dtype, y.dtype) == (a.shape, a.dtype, b.dtype)
        assert torch.equal(y, b)
        assert ((x - a).abs() * torch.tensor(STD)[:, None, None] * 255).max() < 1.01
    shuffled = ndd.torchvision.DataLoader(dataset, 21, True)
    assert [y.tolist() for _, y in shuffled] != [[label for _, label in dataset.samples]]
    ((_, labels),) = ndd.DataLoader(ImageFolder(folder, VALIDATION, target_transform=lambda target: target + 5), batch_size=21)
    assert labels.tolist() == [label + 5 for _, label in dataset.samples]


def test_data_loader_rejects_unsupported_arguments(folder: Path) -> None:
    dataset = ImageFolder(folder, VALIDATION)
    for name, value in (("sampler", [1]), ("batch_sampler", [1]), ("collate_fn", len), ("worker_init_fn", len), ("generator", torch.Generator())):
        with pytest.raises(TypeError, match=name):
            ndd.torchvision.DataLoader(dataset, **{name: value})
    with pytest.raises(ValueError, match="batch_size"):
        ndd.torchvision.DataLoader(dataset, None)
    with pytest.raises(TypeError, match="is not a transform of torchvision"):
        ndd.torchvision.DataLoader(ImageFolder(folder, lambda image: image))
    loader = ndd.torchvision.DataLoader(ImageFolder(folder, lambda image: image[:, :4, :4]), batch_size=21, unknown="per_sample")
    assert next(iter(loader))[0].shape[-1] == 4


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with boxes, polygons, run lengths and crowds; one image has none."""
    root = tmp_path_factory.mktemp("coco")
    random = np.random.default_rng(0)
    images, annotations = [], []
    for number in (7, 3, 5, 11):
        height, width = (int(integer) for integer in random.integers(30, 50, 2))
        Image.fromarray(random.integers(0, 255, (height, width, 3), np.uint8)).save(root / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": height, "width": width})
        for k in range(0 if number == 5 else 3):
            x, y, w, h = 2.5 + 3 * k, 4.0 + k, 9.5, 7.0
            polygon = [x, y, x + w, y, x + w, y + h, x + w / 2, y + h + 2]
            mask: Any = [polygon, [1, 1, 4, 1, 4, 5]] if k == 0 else [polygon]
            if k == 2:
                mask = {"size": [height, width], "counts": [5, 20, height * width - 25]}
            annotations.append({"id": len(annotations) + 1, "image_id": number, "category_id": 10 * k + 3, "bbox": [x, y, w, h], "area": w * h,
                                "iscrowd": int(k == 2), "segmentation": mask})  # fmt: skip
    categories = [{"id": 10 * k + 3, "name": str(k)} for k in range(3)]
    (root / "a.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return root


def test_coco_equals_torchvision(coco: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pycocotools")
    keys = ("image_id", "boxes", "masks", "labels")
    theirs = wrap_dataset_for_transforms_v2(TheirCoco(str(coco), str(coco / "a.json")), target_keys=keys)
    ours = CocoDetection(coco, coco / "a.json")
    assert len(ours) == len(theirs)
    assert ours.ids == [3, 5, 7, 11]
    loader = ndd.DataLoader(ours, lambda images, target: (images, target), batch_size=3)
    rows: list[Any] = []
    for images, target in loader:
        columns = [images, target["image_id"], target["boxes"], target["masks"], target["labels"]]
        rows += list(zip(*(list(column) for column in columns), strict=True))
    assert len(rows) == 4
    for k, (image, target) in enumerate(theirs):
        mine, found = ours[k]
        assert np.array_equal(np.asarray(mine), np.asarray(image))
        assert np.array_equal(rows[k][0].numpy(), np.asarray(image))
        assert found["image_id"] == rows[k][1].item() == target["image_id"]
        if k == 1:  # torchvision leaves the keys out
            assert found["boxes"].shape == rows[k][2].shape == (0, 4)
            assert found["masks"].shape == rows[k][3].shape == (0, *np.asarray(image).shape[:2])
            continue
        assert (found["boxes"].format, found["boxes"].canvas_size) == (target["boxes"].format, target["boxes"].canvas_size)
        for value, name in ((rows[k][2], "boxes"), (rows[k][3], "masks"), (rows[k][4], "labels")):
            assert torch.equal(torch.as_tensor(found[name]).as_subclass(torch.Tensor), target[name].as_subclass(torch.Tensor)), name
            assert torch.equal(value, target[name].as_subclass(torch.Tensor)), name
            assert value.dtype == target[name].dtype


def test_coco_transforms_run_on_batches(coco: Path) -> None:
    pytest.importorskip("pycocotools")
    flip = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.Resize([20, 30]), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    theirs = wrap_dataset_for_transforms_v2(TheirCoco(str(coco), str(coco / "a.json"), transforms=flip), target_keys=("boxes", "masks", "labels"))
    ((images, target),) = ndd.DataLoader(CocoDetection(coco, coco / "a.json", flip), batch_size=4)
    assert images.shape == (4, 3, 20, 30)
    for k in (0, 2, 3):
        image, expected = theirs[k]
        assert (images[k] - image).abs().max() * 255 < 8
        torch.testing.assert_close(target["boxes"][k], expected["boxes"].as_subclass(torch.Tensor), atol=0.02, rtol=0)
        assert torch.equal(target["masks"][k], expected["masks"].as_subclass(torch.Tensor))
    assert target["boxes"][1].shape == (0, 4)


def test_exif_orientation_is_not_applied(tmp_path: Path) -> None:
    """As by torchvision: boxes and masks belong to the stored pixels, and ``dataset[i]`` and the loader agree."""
    (tmp_path / "a").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    Image.new("RGB", (40, 20), "red").save(tmp_path / "a" / "1.jpg", exif=exif)
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 10], "area": 300, "iscrowd": 0, "segmentation": []}
    images = [{"id": 1, "file_name": "1.jpg", "height": 20, "width": 40}]
    (tmp_path / "a.json").write_text(json.dumps({"images": images, "annotations": [box], "categories": [{"id": 1, "name": "x"}]}))
    detections = CocoDetection(tmp_path / "a", tmp_path / "a.json", masks=False)
    ((decoded, target),) = ndd.DataLoader(detections, lambda image, target: (image, target["boxes"].canvas_size), batch_size=1)
    assert decoded.shape[1:] == np.asarray(detections[0][0]).shape == (20, 40, 3)
    assert [int(value) for value in target[0]] == list(detections[0][1]["boxes"].canvas_size) == [20, 40]
    for options in ({"target_transform": lambda label: label + 1}, {"transform": v2.Compose([v2.ToImage()])}):
        ((transformed, _),) = ndd.DataLoader(ImageFolder(tmp_path, **options), batch_size=1)
        assert sorted(transformed.shape[1:])[1:] == [20, 40]
        assert transformed.shape.index(20) < transformed.shape.index(40)


def test_coco_without_masks_is_sharded(coco: Path) -> None:
    dataset = CocoDetection(coco, coco / "a.json", masks=False)
    ids = [[target["image_id"].tolist() for _, target in ndd.DataLoader(dataset, batch_size=2, shard_id=k, num_shards=2)] for k in range(2)]
    assert ids == [[[3, 5]], [[7, 11]]]
    assert "masks" not in dataset[0][1]


def test_file_reader_returns_scalar_labels_and_classes(folder: Path) -> None:
    reader = ndd.readers.File(21, file_root=folder, scalar_labels=True)
    _, labels = next(iter(reader))
    assert (labels.dtype, labels.shape[0]) == (torch.int64, ())
    assert reader.classes == ["china", "flower", "linked"]
    with pytest.raises(RuntimeError, match="classes are the subdirectories of file_root"):
        _ = ndd.readers.File(files=[folder / "flower" / "0001.jpg"]).classes
