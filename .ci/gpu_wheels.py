# SPDX-License-Identifier: Apache-2.0
"""Make what a GPU machine without a network lacks small enough to travel: in ``.gpu`` codecs, rivals, the library, kernels, and DALI in parts.

The machine is assumed to take 64 MiB per transfer, including the repository. DALI's and CV-CUDA's wheels have 199 and 128 MB, most of it code for
other GPUs and other Python versions, which is left out, or zeroed where the file's addresses must not change. The library is compiled here,
for every Python, every torch from 2.11 on and all instruction sets of CPUs. With ``--before`` another commit is packed too, with its library and its
benchmarks, for a comparison.
"""

import argparse
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PYTHON, ARCHITECTURE = "312", 90
CODECS = ("nvidia-nvimgcodec-cu13<0.10", "nvidia-nvjpeg", "pylibjpeg-openjpeg", "soundfile", "cffi", "pycparser")
CODECS += ("nvidia-nvjpeg2k-cu13<1", "nvidia-nvtiff-cu13<1", "nvidia-libnvcomp-cu13<6")  # 5 MB packed
RIVALS = ("kornia", "kornia-rs", "cvcuda-cu13")
DALI = ("nvidia-dali-cuda130==2.4.0", "astunparse", "gast", "optree", "nvtx", "makefun", "libcst")
PART = 40 << 20  # with the repository, the codecs and the library under 64 MiB
ROOT = Path(__file__).parents[1]
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
_FATBIN = struct.pack("<I", 0xBA55ED50)
_PTX, _CUBIN = 1, 2


def download(packages: tuple[str, ...], folder: Path) -> list[Path]:
    """Their wheels for the machine's Python, without what they need themselves."""
    folder.mkdir()
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    options = ["--no-deps", "--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp", *platforms, "-d", str(folder)]
    for name in packages:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", *options, name], check=True)
    return sorted(folder.glob("*.whl"))


def is_needed(name: str) -> bool:
    """Whether a file is of use there: not the modules of other versions of Python."""
    _, mark, rest = name.rpartition(".cpython-")
    return not mark or rest.startswith(f"{PYTHON}-")


def strip_code(data: bytes) -> bytes:
    """A library with the code for other GPUs overwritten with zeros, in every bundle that has code for this one.

    A bundle is a header (magic, version, its size, the size of what follows) and its parts, each with a header of its own: kind, version, the sizes
    of header and code, and at byte 28 the architecture.
    """
    output, at = bytearray(data), 0
    while (at := data.find(_FATBIN, at)) >= 0:
        _, version, header, size = struct.unpack_from("<IHHQ", data, at)
        if version != 1 or header != 16 or at + header + size > len(data):
            at += 4
            continue
        parts, part, end = [], at + header, at + header + size
        while part + 32 <= end:
            kind, _, begin, length = struct.unpack_from("<HHIQ", data, part)
            parts.append((kind, struct.unpack_from("<I", data, part + 28)[0], part + begin, length))
            part += begin + length
        if any((kind, architecture) == (_CUBIN, ARCHITECTURE) for kind, architecture, _, _ in parts):
            for kind, architecture, begin, length in parts:
                if kind in (_PTX, _CUBIN) and architecture != ARCHITECTURE:
                    output[begin : begin + length] = bytes(length)
        at = end
    return bytes(output)


def pack(wheels: list[Path], archive: Path) -> None:
    """The wheels' files as one archive."""
    with tempfile.TemporaryDirectory() as folder, lzma.open(archive, "wb", preset=5) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as files:
                for name in filter(is_needed, files.namelist()):
                    if name.endswith("/"):
                        continue
                    data = files.read(name)
                    path = Path(folder) / "file"
                    path.write_bytes(strip_code(data) if ".so" in Path(name).name else data)
                    tar.add(path, name)


def build_library(root: Path, to: Path) -> None:
    """Compile the library of a working tree for the GPU, in its build/gpu, and write it without symbols."""
    build = root / "build" / "gpu"
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DTORCH_NDD_SIMD=all", "-DTORCH_NDD_CUDA=ON", f"-DTORCH_NDD_CUDA_ARCHS={ARCHITECTURE}-real"]
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}  # cmake and ninja are packages of the virtual environment
    options += [f"-DPython3_EXECUTABLE={sys.executable}"]
    subprocess.run(["cmake", "-G", "Ninja", *options, "-S", str(root / "csrc"), "-B", str(build)], check=True, env=environment)
    subprocess.run(["ninja", "-C", str(build)], check=True, env=environment)
    subprocess.run(["strip", "--strip-unneeded", "-o", str(to), str(build / "_C.so")], check=True)


def pack_revision(revision: str, archive: Path) -> None:
    """Pack the package and the benchmarks of another commit, with its library."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), revision], check=True, cwd=ROOT)
        try:
            build_library(tree, tree / "torch_ndd" / "_C.so")
            with lzma.open(archive, "wb", preset=5) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
                for name in ("torch_ndd", "benchmarks"):
                    tar.add(tree / name, name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True, cwd=ROOT)


def main() -> None:
    """Write the archives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=Path(".gpu"))
    parser.add_argument("--before", metavar="REVISION", help="a commit whose main job is compared with the current one")
    options = parser.parse_args()
    target = options.to
    target.mkdir(exist_ok=True)
    library = target / "_C.so"
    build_library(ROOT, library)
    Path(f"{library}.xz").write_bytes(lzma.compress(library.read_bytes()))
    library.unlink()
    shutil.rmtree(target / "variants", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "benchmarks.cuda.variants", "build", str(target.resolve() / "variants")], check=True, cwd=ROOT)
    if options.before is not None:
        pack_revision(options.before, target / "before.tar.xz")
    with tempfile.TemporaryDirectory() as folder:
        pack(download(CODECS, Path(folder) / "codecs"), target / "codecs.tar.xz")
        pack(download(RIVALS, Path(folder) / "rivals"), target / "rivals.tar.xz")
        whole = Path(folder) / "dali.tar.xz"
        pack(download(DALI, Path(folder) / "dali"), whole)
        data = whole.read_bytes()
    for old in target.glob("dali.*"):
        old.unlink()
    for k in range(-(-len(data) // PART)):
        (target / f"dali.{k}").write_bytes(data[k * PART : (k + 1) * PART])
    (target / "dali.parts").write_text(f"{-(-len(data) // PART)}\n")
    for path in sorted(path for path in target.rglob("*") if path.is_file()):
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
