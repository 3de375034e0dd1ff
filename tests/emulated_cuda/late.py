# SPDX-License-Identifier: Apache-2.0
"""Build a library and a CUDA runtime under which torch and torch_ndd use a GPU that does not exist, with streams that are late.

Everything above CUDA's runtime is real: Python, torch's allocator for CUDA, its streams and events, the queue of launches. The kernels are those of
the CPU, run when the stream comes to them (``late_kernels.cpp``); torch's own kernels do nothing. Run with:

    python late.py <folder of a build of csrc> <folder>
    <the variables that late.py prints> pytest tests/emulated_cuda/running_ahead.py tests/emulated_cuda/uploads_ahead.py
"""

import subprocess
import sys
from pathlib import Path

from decoders import FLAGS, HERE, ROOT, SITE, link_library

# Of the package of CUDA's runtime, which lacks crt/, and of Triton, both of which torch brings.
CUDA = ["-isystem", f"{SITE}/nvidia/cu13/include", "-isystem", f"{SITE}/triton/backends/nvidia/include"]
# Replacements in copies of the sources; each must occur once.
CHANGES = {
    "ndd/kernel.cpp": {
        '#include "ndd/kernel.h"\n': '#include "ndd/kernel.h"\n#include "late_kernels.h"\n',
        "  else return false;\n": "  else return late::launch(kernel, types, stack, arguments);\n",
        "  if (!is_new(": "  if (late::takes_the_place_of(backend)) return;\n  if (!is_new(",
        "  kernel_ = library;\n": """  kernel_ = library;
  late::note(name, kernel);
  if (std::string(backend) == "CPU") {
    const late::Registering ours;
    Registration* cuda = new Registration(name, "CUDA", schema, late::cuda_kernel(name, kernel, types), types, file, line);
    (void)cuda;
  }
""",
    },
    "ndd/stream/cuda_streams.cpp": {},
    "ndd/stream/launches.cpp": {},
    "ndd/stream/repeat.cpp": {},
    "ndd/stream_scope.cu": {"#ifdef __CUDACC__\n": "#if 1\n"},
    "ndd/tensor.cpp": {},
}


def build(build_of_csrc: Path, work: Path) -> dict[str, str]:
    """Build both, and return the environment that uses them. The CUDA kernels of a build that has them are not registered."""
    sources = [HERE / "late_kernels.cpp"]
    for file, changes in CHANGES.items():
        text = (ROOT / "csrc" / file).read_text()
        for before, after in changes.items():
            if text.count(before) != 1:
                raise ValueError(f"{file}: {text.count(before)} times {before!r}")
            text = text.replace(before, after)
        sources.append(work / "csrc" / file)
        sources[-1].parent.mkdir(parents=True, exist_ok=True)
        sources[-1].write_text(text)
    folders = [f"-I{HERE}", f"-I{ROOT / 'csrc'}", "-isystem", f"{SITE}/torch/include", *CUDA]
    objects = []
    for source in sources:
        objects.append(str(work / f"{source.name}.o"))
        defines = ["-DTORCH_TARGET_VERSION=0x020b000000000000", "-DUSE_CUDA"]
        subprocess.run(["g++", *FLAGS, *defines, *folders, "-x", "c++", "-c", str(source), "-o", objects[-1]], check=True)
    link_library(build_of_csrc, objects, tuple(f"{file}.o" for file in CHANGES), work / "_C.so")
    # torch looks for the driver under the second name
    ours = [HERE / "late_device.cpp", HERE / "late_graphs.cpp"]
    runtimes = {"liblate.so": ours, "libcuda.so.1": [ROOT / "benchmarks" / "cuda" / "no_device.cpp"]}
    for name, sources in runtimes.items():
        subprocess.run(["g++", *FLAGS[:3], "-fPIC", "-shared", *CUDA, *map(str, sources), "-o", str(work / name)], check=True)
    return {
        "LD_PRELOAD": ":".join(str(work / name) for name in runtimes),
        "LD_LIBRARY_PATH": str(work),
        "TORCH_NDD_LIBRARY": str(work / "_C.so"),
    }


if __name__ == "__main__":
    environment = build(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    print(" ".join(f"{name}={value}" for name, value in environment.items()))
