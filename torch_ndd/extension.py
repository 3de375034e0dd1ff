# SPDX-License-Identifier: Apache-2.0
"""Custom operators in C++ and CUDA: the toolkit of torch_ndd's kernels, and building them.

A kernel is a function in C++ that fills outputs, registered by ``NDD_KERNELS``; an operator is a Python function with ``@operator``, whose signature
is the schema and whose body allocates the output. ``load`` compiles the kernel against the headers in ``include_folder``, which document the toolkit
(``ndd/kernel.h``, ``ndd/elementwise/pointwise.h``). ``torch_ndd.testing.check_operator`` checks the result as torch_ndd's own operators are checked.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ._core import native
from ._core.context.device import DeviceLike
from ._core.operators.arguments import Double, PerSample, Random, ShapeArg, Shared
from ._core.operators.definition import Launch, Outputs
from ._core.operators.operator import T, operator
from ._core.values.batch import Batch, empty_batch
from .ops._outputs import like, resized

# fmt: off
__all__ = [
    "Batch", "DeviceLike", "Double", "PerSample", "Random", "ShapeArg", "Shared", "T", "empty_batch", "include_folder", "launch", "like", "load",
    "load_library", "operator", "resized",
]
# fmt: on

_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off")


def launch(out: Outputs, args: Sequence[Any] = (), **options: Any) -> Any:
    """Return a :class:`Launch` from a body whose annotation is the type that the operator returns."""
    return Launch(out, args, **options)


def include_folder() -> Path:
    """Return the folder of the toolkit's headers.

    >>> (include_folder() / "ndd" / "kernel.h").exists()
    True
    """
    package = Path(__file__).parent
    installed = package / "include"
    return installed if installed.exists() else package.parent / "csrc"  # an editable install is used from the source folder


def load(
    name: str,
    sources: Sequence[str | os.PathLike[str]],
    *,
    cuda: bool | None = None,
    flags: Sequence[str] = (),
    build_folder: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> Path:
    """Compile kernels, load them, and return the library's path. The library is reused until a source, a flag or torch_ndd changes.

    Call it before the ``@operator`` that uses a kernel. A wheel may contain the compiled library and call :func:`load_library` instead.

    Args:
        name: Name of the library.
        sources: Files of C++ and CUDA. A ``.cu`` without nvcc is compiled as C++ for the CPU.
        cuda: Compile ``.cu`` for CUDA too; by default where torch_ndd has CUDA kernels and nvcc is found.
        flags: Further flags of the C++ compiler, ``-march=native`` for example.
        build_folder: Where libraries are kept, by default ``torch_ndd/extensions`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
        verbose: Print the commands.

    Raises:
        FileNotFoundError: A source that does not exist.
        RuntimeError: No compiler was found, it failed (with its output), or a kernel of this name exists.
    """
    files = [Path(source).resolve() for source in sources]
    for source in files:
        if not source.is_file():
            raise FileNotFoundError(f"extension.load: source {source} does not exist")
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise RuntimeError("extension.load: no C++ compiler found (g++, or the one that CXX names); install it with: apt-get install g++")
    nvcc = shutil.which("nvcc", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))
    has_kernels = any(backend == "CUDA" for _, backend in native.KERNELS)
    if cuda and (nvcc is None or not has_kernels):
        raise RuntimeError("extension.load: cuda=True needs nvcc, and a torch_ndd that was built with CUDA")
    for_cuda = nvcc if (cuda or (cuda is None and has_kernels)) else None
    folder = Path(build_folder or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "torch_ndd" / "extensions")
    path = folder / f"{name}-{_key(files, compiler, for_cuda, flags)}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            _build(files, Path(scratch), compiler, for_cuda, flags, verbose)
            os.replace(Path(scratch) / "library.so", path)  # atomic: another process may build the same library
    load_library(path)
    return path


def load_library(path: str | os.PathLike[str]) -> None:
    """Load a compiled library of kernels. Raise RuntimeError if a kernel of the same name exists."""
    before = len(native.find_kernels())
    torch.ops.load_library(os.fspath(path))
    refused = native.find_kernels()[before:]
    if refused:
        raise RuntimeError(f"extension.load: kernel {refused[0]} of {path} is already registered; choose another name")


def _key(files: Sequence[Path], compiler: str, nvcc: str | None, flags: Sequence[str]) -> str:
    digest = hashlib.sha256(repr((compiler, nvcc, list(flags), torch.__version__, native.PATH.stat().st_mtime_ns, str(native.PATH))).encode())
    for source in files:
        digest.update(source.read_bytes())
        for header in sorted([*source.parent.glob("*.h"), *source.parent.glob("*.cuh")]):
            digest.update(header.read_bytes())
    return digest.hexdigest()[:16]


def _build(files: Sequence[Path], scratch: Path, compiler: str, nvcc: str | None, flags: Sequence[str], verbose: bool) -> None:
    torch_folder = Path(torch.__file__).parent / "include"
    defines = ["-DTORCH_TARGET_VERSION=0x020b000000000000", *(["-DUSE_CUDA"] if nvcc else [])]
    includes = ["-I", str(include_folder()), "-isystem", str(torch_folder)]
    if nvcc:
        includes += ["-isystem", str(_toolkit(nvcc) / "include")]
    objects = []
    for k, source in enumerate(files):
        objects.append(str(scratch / f"{k}.o"))
        language = ["-x", "c++"] if source.suffix == ".cu" else []
        _run([compiler, *_FLAGS, *flags, *defines, *includes, *language, "-c", str(source), "-o", objects[-1]], verbose)
        if nvcc and source.suffix == ".cu":
            objects.append(str(scratch / f"{k}.cuda.o"))
            host = ["-Xcompiler", "-fPIC,-fvisibility=hidden,-fno-math-errno,-ffp-contract=off"]
            options = ["-O3", "-std=c++17", *_architectures(), "--expt-relaxed-constexpr", "-diag-suppress=20012", *host]
            _run([nvcc, *options, *defines, *includes, "-c", str(source), "-o", objects[-1]], verbose)
    own = [f"-L{native.PATH.parent}", f"-l:{native.PATH.name}"]
    options = [f"-rpath={native.PATH.parent}", "--allow-shlib-undefined"]
    if nvcc:  # it finds the CUDA runtime
        linked = [word for source in (own[1], *options) for word in ("-Xlinker", source)]
        _run([nvcc, "-shared", "-cudart", "static", *objects, "-o", str(scratch / "library.so"), own[0], *linked], verbose)
    else:
        _run([compiler, "-shared", *objects, "-o", str(scratch / "library.so"), *own, *(f"-Wl,{source}" for source in options)], verbose)


def _architectures() -> list[str]:
    """Return nvcc's options for TORCH_NDD_CUDA_ARCHS, written as for CMake: "90", "86;90-real"."""
    options = []
    for architecture in (os.environ.get("TORCH_NDD_CUDA_ARCHS") or "90").split(";"):
        number, _, kind = architecture.partition("-")
        code = {"": f"[sm_{number},compute_{number}]", "real": f"sm_{number}", "virtual": f"compute_{number}"}
        options.append(f"-gencode=arch=compute_{number},code={code[kind]}" if number[:1].isdigit() else f"-arch={architecture}")
    return options


def _toolkit(nvcc: str) -> Path:
    """Return the folder of the CUDA toolkit. Raise RuntimeError if it is not found."""
    candidates = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for folder in (*candidates, Path(nvcc).resolve().parents[1], Path("/usr/local/cuda")):
        if (folder / "include" / "cuda_runtime.h").exists():
            return folder
    raise RuntimeError(f"extension.load: the CUDA toolkit of {nvcc} was not found; set CUDA_HOME to its folder")


def _run(command: Sequence[str], verbose: bool) -> None:
    if verbose:
        print(" ".join(command))
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"extension.load: {' '.join(command)}\n{process.stderr.strip() or process.stdout.strip()}")
