"""Export the preprocessing of an image file of any size, and run it in another process."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import torch_ndd as ndd


class Preprocessing(torch.nn.Module):
    def forward(self, file):
        images = ndd.decoders.image(ndd.as_batch(file[None]))
        images = ndd.resize(images, resize_shorter=256)
        return ndd.crop_mirror_normalize(images, crop=[224, 224], mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4]).torch()


def read(path):
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)


photos = sorted(Path(sys.argv[1]).rglob("*.jpg"))[:3]
folder = Path(tempfile.mkdtemp())
size = torch.export.Dim("size", min=64, max=1 << 30)  # in bytes
program = torch.export.export(Preprocessing(), (read(photos[0]),), dynamic_shapes=({0: size},))
torch.export.save(program, folder / "program.pt2")
torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "package.pt2"))

# In another process:
script = """
import sys, torch, torch_ndd
program = torch.export.load(sys.argv[1]).module()
package = torch._inductor.aoti_load_package(sys.argv[2])
for path in sys.argv[3:]:
    file = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8)
    assert torch.equal(program(file), package(file))
    print(tuple(package(file).shape), round(package(file).mean().item(), 4))
"""
command = [sys.executable, "-c", script, folder / "program.pt2", folder / "package.pt2", *photos]
print(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout, end="")
