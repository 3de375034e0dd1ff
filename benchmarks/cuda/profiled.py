# SPDX-License-Identifier: Apache-2.0
"""One call of each of a few operators, for NVIDIA's profiler, which sees nothing else of the program.

``ncu --profile-from-start off --clock-control none python -m benchmarks.cuda.profiled brightness``
"""

from __future__ import annotations

import argparse

import torch

from . import ops
from ._cases import GPU_CASES, samples_of

WARM_UP = 3  # calls: kernels are loaded, and the memory of results is there
# One of each driver: bytes, pixels with a matrix, slices, tiles of a resampling, reductions.
CHOSEN = ("brightness", "color_jitter", "crop_mirror_normalize 224", "resize 224, linear, antialias", "reductions.mean of height and width")


def profile(name: str, device: str = "gpu") -> None:
    """Call an operator of the benchmark, the last time within the profiler's range."""
    case = GPU_CASES[name]
    call = ops.torch_ndd(case, samples_of(case.data, case.samples), device)
    for _ in range(WARM_UP):
        call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda.profiled", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="OPERATOR", help=f"as `benchmarks ops` names them; by default {', '.join(CHOSEN)}")
    for name in parser.parse_args(arguments).names or CHOSEN:
        profile(name)


if __name__ == "__main__":
    main()
