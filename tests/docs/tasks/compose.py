"""Train a detector with a Compose of Albumentations, on whole batches."""

import sys

import albumentations as A
from albumentations.pytorch import ToTensorV2

import torch_ndd as ndd
from torch_ndd.albumentations import from_albumentations

compose = A.Compose(
    [
        A.RandomSizedBBoxSafeCrop(96, 96),
        A.HorizontalFlip(p=0.5),
        A.OneOf([A.MotionBlur(), A.GaussNoise(std_range=(0.02, 0.05))], p=0.3),
        A.ColorJitter(p=0.8),
        A.Normalize(),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams("coco", label_fields=["labels"], min_visibility=0.2),
)
augment = from_albumentations(compose)  # the only line that is new
folder, annotations = sys.argv[1:]


def transform(jpegs, boxes, labels):
    batch = augment(image=jpegs, bboxes=boxes, labels=labels)
    return batch["image"], batch["bboxes"], batch["labels"]


reader = ndd.readers.COCO(file_root=folder, annotations_file=annotations, random_shuffle=True, seed=1)
for images, boxes, labels in ndd.DataLoader(reader, transform, batch_size=4):
    print(tuple(images.shape), [tuple(sample.shape) for sample in boxes], [len(sample) for sample in labels])
