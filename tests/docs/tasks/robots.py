"""Read windows of robot data: three frames of a camera, and the actions that follow."""

import sys

import torch_ndd as ndd

camera, rate = "observation.images.top", 10
steps = {camera: [-2 / rate, -1 / rate, 0], "action": [k / rate for k in range(4)]}
reader = ndd.readers.LeRobot(path=sys.argv[1], delta_timestamps=steps, features=[camera, "action"], random_shuffle=True)
stats = reader.stats["action"]


def prepare(batch):
    frames = ndd.crop_mirror_normalize(ndd.resize(batch[camera], size=[64, 64]), mean=127.5, std=127.5, output_layout="FCHW")
    actions = ndd.normalize(batch["action"], mean=stats["mean"][None], stddev=stats["std"][None])
    return {"frames": frames, "actions": actions, "is_pad": batch["action_is_pad"]}


for batch in ndd.DataLoader(reader, prepare, batch_size=4):
    print(batch["frames"].shape, batch["actions"].shape, batch["is_pad"].shape)  # (samples, 3, 3, 64, 64), (samples, 4, ...), (samples, 4)
