# SPDX-License-Identifier: Apache-2.0
"""``python -m torch_ndd``: what this installation can do on this machine and, for what it cannot, why and what to install."""

import base64
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from ._core import native
from ._core.context import pools
from ._core.context.device import cuda_problem, gpu_count
from ._core.operators.operator import OPERATORS
from ._core.optional import find_version
from ._core.values.batch import batch
from .decoders import _gpu_engines, _jpeg2000, _library, _nvcomp, _scale, _sndfile
from .decoders._frame_sources import find_nvdec_problem
from .decoders._video import codec
from .decoders.image import image
from .readers import _gds
from .readers.fits import _codecs as _fits_codecs


class Report(dict[str, Any]):
    """The findings of :func:`doctor`, by section; printing it returns text. ``report["missing"]`` lists what is absent: what, why, what to do."""

    def __str__(self) -> str:
        lines = [f"torch_ndd {self['versions']['torch_ndd']}"]
        for section, content in self.items():
            if section == "missing":
                continue
            lines += ["", section]
            width = max(map(len, content), default=0)
            for key, value in content.items():
                first, *rest = _text(value)
                lines.append(f"  {key:{width}}  {first}")
                lines += [f"  {'':{width}}  {line}" for line in rest]
        lines += ["", "missing"]
        for what, why, remedy in self["missing"]:
            lines += [f"  {what}: {why}", f"    {remedy}"]
        if not self["missing"]:
            lines.append("  nothing")
        return "\n".join(lines)

    __repr__ = __str__


class Missing(NamedTuple):
    """A missing feature."""

    what: str
    why: str
    remedy: str


def _text(value: Any) -> list[str]:
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, list | tuple):
        return [str(item) for item in value] or ["none"]
    return ["-" if value is None else str(value)]


def doctor() -> Report:
    """Inspect this installation: versions, kernels, CUDA, codecs and the patches of their libraries, extras, other libraries, threads.

    Nothing is changed or downloaded. Every image codec is tried on a tiny file. ``python -m torch_ndd`` prints the result.

    >>> doctor()["cpu"]["threads"] == pools.get_num_threads()
    True
    """
    missing: list[Missing] = []
    build = dict(line.split(" ", 1) for line in native.build_info().decode().splitlines())
    return Report(
        versions=_versions(build),
        kernels=_kernels(build, missing),
        cuda=_cuda(build, missing),
        codecs=_codecs(missing),
        patches=_patches(missing),
        extras=_extras(missing),
        libraries=_libraries(missing),
        cpu=_cpu(build),
        missing=missing,
    )


def _versions(build: dict[str, str]) -> dict[str, Any]:
    versions = {
        "torch_ndd": find_version("torch_ndd") or "not installed, imported from a folder",
        "folder": str(native.PATH.parent),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": f"{torch.__version__}, " + (f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"),
        "numpy": np.__version__,
        "compiler": f"gcc {build['compiler']}",
    }
    if build["sanitizer"] != "none":
        versions["sanitizer"] = f"{build['sanitizer']}: this build is for tests and slow"
    return versions


_REINSTALL = "pip install --force-reinstall --no-deps . in the source folder"


def _kernels(build: dict[str, str], missing: list[Missing]) -> dict[str, Any]:
    kernels = {name: operator.name.replace(".", "_") for name, operator in OPERATORS.items() if operator.kernel is not None}
    lacking = {backend: sorted(n for n, kernel in kernels.items() if (kernel, backend) not in native.KERNELS) for backend in ("CPU", "CUDA")}
    architectures = build["cuda_architectures"]
    facts = {
        "operators": len(OPERATORS),
        "on the CPU": len(kernels) - len(lacking["CPU"]),
        "on CUDA": len(kernels) - len(lacking["CUDA"]),
        "CUDA architectures": f"sm_{architectures.replace(', ', ', sm_')}, and PTX for later GPUs" if architectures else None,
    }
    if not architectures:
        missing.append(
            Missing(
                "CUDA kernels",
                "the library was built where there is no nvcc",
                f"for GPU operators: install the CUDA toolkit (nvcc 12.8 or later), then {_REINSTALL}",
            )
        )
    elif lacking["CUDA"]:
        facts["without a CUDA kernel"] = ", ".join(lacking["CUDA"])
    return facts


def _cuda(build: dict[str, str], missing: list[Missing]) -> dict[str, Any]:
    problem = cuda_problem()
    if problem is not None:
        missing.append(Missing("a GPU", problem, _cuda_remedy()))
        return {"usable": False, "because": problem}
    found: dict[str, Any] = {f"gpu:{k}": _gpu(k, build["cuda_architectures"], missing) for k in range(gpu_count())}
    engines: dict[str, str] = {}
    for name, remedy in _GPU_FORMATS.items():
        problem = _find_problem(lambda name=name: engines.update({name: _find_engine(_FILES[name])}))
        if problem is None and engines[name] == "cpu":
            problem = "the GPU's decoders do not accept a plain file"
        if problem is not None:
            missing.append(Missing(f"{name} images on a GPU", problem, remedy))
        found[name] = f"decoded by the engine {engines[name]!r}" if problem is None else f"does not work: {problem}"
    return {"usable": True, **found, "video": _nvdec(missing), "GPUDirect Storage": _gds.describe()}


def _find_engine(content: bytes) -> str:
    """Decode a file on the first GPU and return the engine that did it."""
    before = _gpu_engines.engine_counts()
    _decode(content, device="gpu")
    counts = _gpu_engines.engine_counts()
    return next(name for name, count in counts.items() if name != "refused" and count > before[name])


def _nvdec(missing: list[Missing]) -> str:
    """Return where videos with ``device="gpu"`` are decoded."""
    try:
        problem = find_nvdec_problem()
    except RuntimeError:  # of the extra, which has a line of its own
        return "needs torch_ndd[video]"
    if problem is None:
        return f"decoded by NVDEC, through torchcodec {find_version('torchcodec')}"
    why, remedy = problem
    missing.append(Missing("videos on a GPU", f"{why}; they are decoded on the CPU", remedy))
    return f"decoded on the CPU: {why}"


def _cuda_remedy() -> str:
    if torch.version.cuda is None:
        return "install a torch with CUDA: https://pytorch.org/get-started/locally"
    if torch.cuda._is_in_bad_fork():
        return 'multiprocessing.set_start_method("spawn"), or DataLoader(multiprocessing_context="spawn")'
    return "needed for GPU operators only; install NVIDIA's driver, and start containers with --gpus all"


def _gpu(number: int, architectures: str, missing: list[Missing]) -> str:
    properties = torch.cuda.get_device_properties(number)
    capability = properties.major * 10 + properties.minor
    built = [int("".join(filter(str.isdigit, name))) for name in architectures.split(", ") if name]
    if built and capability < min(built):
        missing.append(
            Missing(
                f"kernels for gpu:{number}",
                f"{properties.name} is sm_{capability}, the library is built for sm_{min(built)} and later",
                f"TORCH_NDD_CUDA_ARCHS={capability} {_REINSTALL}",
            )
        )
    return f"{properties.name}, sm_{capability}, {properties.total_memory / 2**30:.0f} GiB"


# 8 x 8 red pixels in each format.
_RED = b"\xff\0\0" * 64
_JPEG = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqmx5moq6T/2wBDARwe"
    "HigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wAARCAAIAAgDAREAAhEBAxEB/8QAFAABAAAAAAAAAAAA"
    "AAAAAAAABP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/xAAVAQEBAAAAAAAAAAAAAAAAAAAEBv/EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAMAwEAAhEDEQA/AABqR//Z"
)
_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP8z4AdMDEMKQkAzUEBD7t4NqoAAAAASUVORK5CYII="
_TIFF = (
    "SUkqAAgAAAAKAAABBAABAAAACAAAAAEBBAABAAAACAAAAAIBAwADAAAAhgAAAAMBAwABAAAAAQAAAAYBAwABAAAAAgAAABEBBAABAAAAjAAAABUBAwABAAAAAwAAABYB"
    "BAABAAAACAAAABcBBAABAAAAwAAAABwBAwABAAAAAQAAAAAAAAAIAAgACAA="
)
_BMP = "Qk32AAAAAAAAADYAAAAoAAAACAAAAAgAAAABABgAAAAAAMAAAADEDgAAxA4AAAAAAAAAAAAA"
_WEBP = "UklGRhwAAABXRUJQVlA4TA8AAAAvB8ABAAcQ/Y/+ByKi/wEA"
_JPEG2000 = (
    "AAAADGpQICANCocKAAAAFGZ0eXBqcDIgAAAAAGpwMiAAAAAtanAyaAAAABZpaGRyAAAACAAAAAgAAwcHAAAAAAAPY29scgEAAAAAABAAAACkanAyY/9P/1EALwAAAAAA"
    "CAAAAAgAAAAAAAAAAAAAAAgAAAAIAAAAAAAAAAAAAwcBAQcBAQcBAf9SAAwAAAABAAMEBAAB/1wADUBASEhQSEhQSEhQ/2QAJQABQ3JlYXRlZCBieSBPcGVuSlBFRyB2"
    "ZXJzaW9uIDIuNS40/5AACgAAAAAAIwAB/5PPtAQA34AIB9+ACAeAgICAgICAgID/2Q=="
)
_FILES = {
    "JPEG": base64.b64decode(_JPEG),
    "PNG": base64.b64decode(_PNG),
    "TIFF": base64.b64decode(_TIFF) + _RED,
    "BMP": base64.b64decode(_BMP) + _RED[::-1],
    "WebP": base64.b64decode(_WEBP),
    "PNM": b"P6 8 8 255\n" + _RED,
    "JPEG 2000": base64.b64decode(_JPEG2000),
}
# Formats that a GPU decodes, and what to install if it does not.
_GPU_FORMATS = {
    "JPEG": "pip install --force-reinstall 'nvidia-nvimgcodec-cu13<0.10' nvidia-nvjpeg",
    "TIFF": "pip install torch_ndd[gpu]",
    "JPEG 2000": "pip install torch_ndd[gpu]",
}
_DECODERS = {"JPEG 2000": "pylibjpeg-openjpeg"}
_NVIMGCODEC = ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12")


class _Patch(NamedTuple):
    """Of a library that is patched in the inspected releases: whether it is now, what happens otherwise, and which release to install."""

    packages: tuple[str, ...]
    is_active: Callable[[], bool]
    otherwise: str
    release: str


_PATCHES = {
    "JPEG": _Patch(
        _NVIMGCODEC,
        _library.is_checked,
        "a damaged JPEG can leak the memory of its pixels, and codecs print about damaged images instead of the error's saying so",
        _library.CHECKED_VERSION,
    ),
    "JPEG 2000": _Patch((_jpeg2000.PACKAGE,), lambda: _jpeg2000.patched, "it prints about some damaged images", _jpeg2000.CHECKED[-1]),
    "audio": _Patch(
        ("soundfile",), lambda: _sndfile.load(), "it prints about damaged files instead of the error's saying so", _sndfile.CHECKED_PACKAGE
    ),
    "FITS": _Patch(("astropy",), _fits_codecs.is_guarded, "a damaged tile of a compressed image can end the process", _fits_codecs.CHECKED_VERSION),
}


def _codecs(missing: list[Missing]) -> dict[str, Any]:
    nvimgcodec = next(((name, version) for name in _NVIMGCODEC if (version := find_version(name)) is not None), None)
    codecs: dict[str, Any] = {}
    for name, content in _FILES.items():
        package, version = (_DECODERS[name], find_version(_DECODERS[name])) if name in _DECODERS else nvimgcodec or (_NVIMGCODEC[0], None)
        problem = _find_problem(lambda content=content: _decode(content))
        codecs[name] = f"{package} {version or ''}".strip() if problem is None else f"does not work: {problem}"
        if problem is not None:
            wanted = f"'{package}<0.10'" if package in _NVIMGCODEC else package  # as in pyproject.toml
            remedy = f"pip install {wanted}" if version is None else f"pip install --force-reinstall {wanted}"
            missing.append(Missing(f"{name} images", problem, remedy))
    return codecs


def _patches(missing: list[Missing]) -> dict[str, Any]:
    patches: dict[str, Any] = {}
    for name, patch in _PATCHES.items():
        package = next((package for package in patch.packages if find_version(package) is not None), None)
        if package is None:
            patches[name] = None
            continue
        installed = f"{package} {find_version(package)}"
        try:
            active = patch.is_active()
        except RuntimeError as error:  # the library cannot be loaded
            patches[name] = f"does not work: {error}"
            continue
        patches[name] = f"active in {installed}" if active else f"not active in {installed}"
        if not active:
            remedy = f"pip install {package}=={patch.release}"
            missing.append(Missing(f"a known {package}", f"{installed} runs as it is: {patch.otherwise}", remedy))
    return patches


def _decode(content: bytes, device: str = "cpu") -> None:
    pixels = image(batch([np.frombuffer(content, np.uint8)]), device=device).tensors[0].cpu()
    red = np.asarray(pixels).astype(int).mean((0, 1))
    if pixels.shape != (8, 8, 3) or np.abs(red - [255, 0, 0]).max() > 20:
        raise RuntimeError(f"8 x 8 red pixels became {pixels.shape} with the mean {red.round()}")


def _find_problem(attempt: Callable[[], Any]) -> str | None:
    try:
        attempt()
    except Exception as error:
        # The cause says what is missing; the error on top of it only that decoding failed.
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}".partition("\n")[0]
    return None


class _Extra(NamedTuple):
    packages: dict[str, str]  # modules, and the distributions that have them
    use: str


_EXTRAS = {
    "audio": _Extra({"soundfile": "soundfile"}, "decoders.audio, readers.NemoAsr, readers.Lhotse"),
    "video": _Extra({"torchcodec": "torchcodec"}, "decoders.video, readers.Video and VideoResize, GIF, AVIF and HEIC images"),
    "remote": _Extra({"fsspec": "fsspec", "aiohttp": "aiohttp"}, "readers and imread of URLs"),
    "parquet": _Extra({"pyarrow": "pyarrow"}, "readers.Parquet"),
    "huggingface": _Extra({"datasets": "datasets"}, "readers.HuggingFace"),
    "coco": _Extra({"pycocotools": "pycocotools"}, "readers.COCO with pixelwise_masks"),
    "albumentations": _Extra({"albumentations": "albumentations"}, "torch_ndd.albumentations"),
    "fits": _Extra({"astropy": "astropy"}, "readers.Fits"),
    "lz4": _Extra({"lz4": "lz4"}, "decoders.inflate"),
    "lmdb": _Extra({}, "readers.Caffe and Caffe2"),
    "gpu": _Extra(
        {"nvidia.nvjpeg2k": "nvidia-nvjpeg2k-cu13", "nvidia.nvtiff": "nvidia-nvtiff-cu13", "nvidia.libnvcomp": "nvidia-libnvcomp-cu13"},
        "JPEG 2000, TIFF and decoders.inflate on a GPU",
    ),
    "flow": _Extra({"cv2": "opencv-python-headless"}, "optical_flow"),
    "lightning": _Extra({"lightning": "lightning"}, "torch_ndd.lightning"),
    "nodes": _Extra({"torchdata": "torchdata"}, "torch_ndd.pytorch.nodes"),
    "ray": _Extra({"ray": "ray"}, "torch_ndd.ray"),
    "demo": _Extra({"PIL": "pillow", "skimage": "scikit-image", "sklearn": "scikit-learn", "tqdm": "tqdm"}, "show, the examples"),
}


def _extras(missing: list[Missing]) -> dict[str, str]:
    """Return, for each extra of the package, the versions that it found or what is missing."""
    extras = {}
    for name, extra in _EXTRAS.items():
        lacking = [distribution for module, distribution in extra.packages.items() if not _importable(module)]
        found = ", ".join(
            f"{package} {find_version(package) or 'of unknown version'}" for package in extra.packages.values() if package not in lacking
        )
        problem = _find_problem(codec) if name == "video" and not lacking else None
        extras[name] = f"{found or 'needs nothing'}; for {extra.use}"
        if lacking:
            extras[name] = f"- without {', '.join(lacking)}; for {extra.use}"
            missing.append(Missing(extra.use, f"{', '.join(lacking)} not installed", f"pip install torch_ndd[{name}]"))
        elif name == "gpu" and (reason := _find_problem(_check_gpu_libraries)) is not None:
            extras[name] = f"- {found}, which cannot be used; for {extra.use}"
            missing.append(Missing(extra.use, reason, "pip install --upgrade torch_ndd[gpu]"))
        elif problem is not None:
            extras[name] = f"- {found}, without FFmpeg; for {extra.use}"
            missing.append(Missing(extra.use, problem, "install FFmpeg: apt-get install ffmpeg, or conda install ffmpeg"))
    return extras


def _check_gpu_libraries() -> None:
    """Raise RuntimeError for a library of the extra that cannot be used. No GPU is needed."""
    for engine in _gpu_engines.OPTIONAL:
        _gpu_engines.open_engine(engine, _library.folder().parent)
    _nvcomp.open_library()


class _Library(NamedTuple):
    module: str
    distributions: tuple[str, ...]
    use: str


_LIBRARIES = (
    _Library("torchvision", ("torchvision",), "a peer of the benchmarks; models"),
    _Library("nvidia.dali", ("nvidia-dali-cuda130", "nvidia-dali-cuda120"), "the reference of tests/dali"),
    _Library("jax", ("jax",), "arrays to and from JAX"),
    _Library("numba", ("numba",), "arrays to and from Numba"),
    _Library("cupy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "GPU arrays to and from CuPy"),
)


def _libraries(missing: list[Missing]) -> dict[str, Any]:
    versions: dict[str, Any] = {}
    for library in _LIBRARIES:
        if not _importable(library.module):
            versions[library.module] = None
            missing.append(Missing(library.module, f"not installed; for {library.use}", f"pip install {library.distributions[0]}"))
        else:
            versions[library.module] = next((v for name in library.distributions if (v := find_version(name)) is not None), "of unknown version")
    versions["libjpeg-turbo"] = version = _scale.libjpeg_version()
    if version is None:
        why = "the library was built where there is no libjpeg-turbo: decoders.image(at_least=...) decodes whole images"
        missing.append(Missing("scaled decoding of JPEG", why, f"apt install libjpeg-dev, or dnf install libjpeg-turbo-devel, then {_REINSTALL}"))
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    versions["C++ compiler"] = compiler
    if compiler is None:
        missing.append(Missing("a C++ compiler", "not on the PATH; torch.compile needs one on the CPU", "apt install g++"))
    return versions


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _cpu(build: dict[str, str]) -> dict[str, Any]:
    cpu = {
        "instructions": f"{build['simd']} ({platform.machine()})",
        "cpus": os.cpu_count(),
        "cpus of this process": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": pools.get_num_threads(),
        "DALI_NUM_THREADS": os.environ.get("DALI_NUM_THREADS"),
        "torch threads": torch.get_num_threads(),
    }
    quota = _quota()
    if quota is not None:
        cpu["quota of the container"] = f"{quota:g} CPUs"
    return cpu


def _quota() -> float | None:
    """Return the number of CPUs that the control group allows; None for all."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            most, period = file.read().split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None
