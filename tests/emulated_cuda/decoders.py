# SPDX-License-Identifier: Apache-2.0
"""Build a library whose image decoders run the code for ``device="gpu"`` on the CPU, over ``lazy_runtime.h``.

Everything except the GPU is real: the division of batches, fallbacks, staging and uploads, orientation and dtypes in the CUDA kernel, and which
stream waits for which. nvImageCodec's CPU decoders replace nvJPEG's, and functions of the tests (fake_codec.cpp) the others. Run the tests of the
image decoders with:

    python decoders.py <folder of a CPU build of csrc> <folder>
    NDD_EMULATED_DECODERS=1 TORCH_NDD_LIBRARY=<folder>/_C.so PYTHONPATH=tests/emulated_cuda pytest -p decoders_plugin tests/decoders/test_gpu.py ...
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from rewrite import rewrite

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SITE = Path(sysconfig.get_path("purelib"))
FLAGS = ["-O2", "-g", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off", "-Wno-unknown-pragmas"]
DEFINES = ["-DTORCH_TARGET_VERSION=0x020b000000000000", "-DUSE_CUDA"]

# Replacements in the rewritten sources; each must occur.
CHANGES = {
    "decoders/image.cpp": {"NDD_KERNEL(decoders_": "// NDD_KERNEL(decoders_"},  # those for a GPU take their place
    "decoders/gpu/gpu_image.cpp": {
        ", CUDA, decode_image_gpu)": ", CPU, decode_image_gpu)",
        # The CPU reads the results, and no event stops it.
        "if (--to_end_ == 0 && done_)": "if (--to_end_ == 0) lazy_finish();\n    if (to_end_ == 0 && done_)",
    },
    "decoders/gpu/gpu_decoder.cpp": {"#pragma weak aoti_": "// #pragma weak aoti_"},
    "decoders/gpu/gpu_pixels.cu": {},
    "decoders/gpu/jpeg_engine.cpp": {},
    "ndd/cuda.h": {},
    "ndd/upload.cu": {},
}


# Extensions of nvImageCodec and the format that each decodes.
FAKE_CODECS = {"nvjpeg": "jpeg", "nvtiff": "tiff", "nvjpeg2k": "jpeg2k"}


def _read_changed(file: str) -> str:
    text = (ROOT / "csrc" / file).read_text()
    for before, after in CHANGES[file].items():
        if before not in text:
            raise ValueError(f"{file}: no {before!r} to replace")
        text = text.replace(before, after)
    text = rewrite(text, file).replace("::ndd_emulator::", "::ndd_lazy::")
    return text.replace(".run([&] {", ".run([=] {")  # it runs after the launcher has returned


def _query(cpu_build: Path, target: str) -> list[str]:
    return subprocess.run(["ninja", "-t", "query", target], cwd=cpu_build, check=True, capture_output=True, text=True).stdout.split()


def link_library(cpu_build: Path, objects: list[str], replaced: tuple[str, ...], library: Path) -> None:
    """Link objects with those of a CPU build, except the ones that they replace, given by the ends of their paths."""
    inputs = _query(cpu_build, "_C.so")
    if "phony" in inputs:  # the build writes the library elsewhere
        inputs = _query(cpu_build, next(item for item in inputs if item.endswith("/_C.so")))
    others = [str(cpu_build / item) for item in inputs if item.endswith(".o") and not item.endswith(replaced)]
    jpeg = [item for item in inputs if Path(item).name.startswith("libjpeg.") and not item.endswith(".o")]
    link = ["-Wl,-Bsymbolic-functions", "-Wl,--exclude-libs,libjpeg.a", *jpeg, "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    link += ["-Wl,-z,lazy", f"-L{cpu_build}/stubs", "-ltorch", "-ltorch_cpu", "-ldl", "-lpthread"]
    subprocess.run(["g++", "-shared", "-o", str(library), *others, *objects, *link], check=True)


def build(cpu_build: Path, work: Path) -> None:
    """Recompile the decoders and link them with the rest of a CPU build."""
    for file in CHANGES:
        path = work / "csrc" / (f"{file}.cpp" if file.endswith(".cu") else file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_read_changed(file))
    include = work / "include"
    include.mkdir(exist_ok=True)
    shutil.copy(HERE / "lazy_runtime.h", include / "cuda_runtime.h")
    names = ("image.cpp", "gpu/gpu_image.cpp", "gpu/gpu_decoder.cpp", "gpu/jpeg_engine.cpp", "gpu/gpu_pixels.cu.cpp")
    sources = [*(work / "csrc" / "decoders" / name for name in names), work / "csrc" / "ndd" / "upload.cu.cpp"]
    ours = [HERE, include, work / "csrc", ROOT / "csrc", ROOT / "csrc/decoders/codecs/without_cuda"]
    folders = [*(f"-I{our}" for our in ours), "-isystem", f"{SITE}/torch/include", "-isystem", f"{SITE}/nvidia/nvimgcodec/include"]
    objects = []
    for source in [*sources, HERE / "lazy_runtime.cpp"]:
        result = work / f"{source.name}.o"
        own = ["-include", str(include / "cuda_runtime.h")] if source.name != "image.cpp" else []
        subprocess.run(["g++", *FLAGS, *DEFINES, *folders, *own, "-c", str(source), "-o", str(result)], check=True)
        objects.append(result)
    replaced = (
        "decoders/image.cpp.o",
        "decoders/gpu/gpu_image.cpp.o",
        "decoders/gpu/gpu_decoder.cpp.o",
        "decoders/gpu/jpeg_engine.cpp.o",
        "decoders/gpu/gpu_pixels.cu.o",
        "decoders/gpu/gpu_pixels.cu.cpp.o",
        "ndd/upload.cu.o",
        "ndd/upload.cu.cpp.o",
    )
    link_library(cpu_build, list(map(str, objects)), replaced, work / "_C.so")
    for extension, codec in FAKE_CODECS.items():
        fake = work / f"lib{extension}_ext.so"
        subprocess.run(["g++", *FLAGS, f'-DFAKE_CODEC="{codec}"', *folders, "-shared", str(HERE / "fake_codec.cpp"), "-o", str(fake)], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
