"""Read a COCO data set, and flip and shrink images with their boxes."""

import sys

import torch_ndd as ndd

root, annotations = sys.argv[1:]
reader = ndd.readers.COCO(file_root=root, annotations_file=annotations, ltrb=True, ratio=True, shuffle_after_epoch=True)


def augment(jpegs, boxes, labels):
    mirrored = ndd.random.coin_flip(batch_size=jpegs.batch_size)
    decoded = ndd.decoders.image(jpegs, adjust_orientation=False)  # boxes are about the pixels as they are stored
    images = ndd.flip(decoded, horizontal=mirrored)
    boxes = ndd.bb_flip(boxes, ltrb=True, horizontal=mirrored)
    return ndd.resize(images, size=[96, 96]), boxes, labels


loader = ndd.DataLoader(reader, augment, batch_size=4)
for images, boxes, _ in loader:  # boxes and labels are lists: each image has its own number of them
    print(tuple(images.shape), [tuple(box.shape) for box in boxes])
first, boxes, labels = next(iter(loader))
ndd.show(first, "detection.png" if len(sys.argv) > 3 else None, boxes=boxes, labels=[str(len(label)) for label in labels])
