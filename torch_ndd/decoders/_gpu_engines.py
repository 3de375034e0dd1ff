# SPDX-License-Identifier: Apache-2.0
"""Find the libraries with which nvImageCodec decodes on a GPU, check their versions, and load them: nvJPEG, nvJPEG2000, nvTIFF (with nvCOMP).

A missing library costs a GPU engine, not an image: the CPU decodes what no engine can. Only nvJPEG is required.
"""

import ctypes
import warnings
from pathlib import Path
from typing import NamedTuple

import torch

from .._core import native
from . import _library
from ._load_once import load_once

Version = tuple[int, ...]

# The counters of ndd_gpu_decode_counts; `cuda` is the codec for JPEG.
_CODECS = [name for name in native.numbers("decoders.GpuCodec") if name not in ("none", "jpeg")]
ENGINES = ("hardware", "cuda", *_CODECS, "cpu", "refused")


class Engine(NamedTuple):
    """A library that an extension of nvImageCodec calls."""

    name: str
    extension: str
    file: str  # of the library; {cuda} is the major version of torch's CUDA
    folders: tuple[str, ...]  # in the folder of NVIDIA's packages, as patterns
    package: str
    decodes: str
    version_function: str | None = None  # int(int part, int* value): part 0 is the major version, 1 the minor one
    versions: tuple[Version, Version] | None = None  # from the first one, below the second one


JPEG = Engine("jpeg", "nvjpeg", "libnvjpeg.so.{cuda}", ("cu*/lib", "nvjpeg/lib"), "nvidia-nvjpeg", "JPEG")
# Their interfaces change below 1.0; nvImageCodec 0.9 is built for these.
OPTIONAL = (
    Engine(
        "jpeg2000", "nvjpeg2k", "libnvjpeg2k.so.0", ("nvjpeg2k/lib",), "nvidia-nvjpeg2k-cu13", "JPEG 2000", "nvjpeg2kGetProperty", ((0, 9), (1, 0))
    ),
    Engine("tiff", "nvtiff", "libnvtiff.so.0", ("nvtiff/lib",), "nvidia-nvtiff-cu13", "TIFF", "nvtiffGetProperty", ((0, 8), (1, 0))),
)


class MissingLibraryError(RuntimeError):
    """A library that is not installed."""


class WrongLibraryError(RuntimeError):
    """A library that is installed and cannot be used."""


def load_library(packages: Path, file: str, folders: tuple[str, ...], package: str) -> ctypes.CDLL:
    """Load a library from NVIDIA's packages, or from the system. Raise MissingLibraryError or WrongLibraryError."""
    installed = [str(path) for folder in folders for path in sorted(packages.glob(f"{folder}/{file}"))]
    reason = None
    for path in (*installed, file):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reason = reason or (str(error) if path in installed else None)
    if reason is not None:
        raise WrongLibraryError(f"{file} cannot be loaded: {reason}")
    raise MissingLibraryError(f"{file} is not installed: pip install {package}")


def check_version(what: str, found: Version, versions: tuple[Version, Version], package: str) -> None:
    """Raise WrongLibraryError unless a version lies in a range."""
    first, last = versions
    if not first <= found < last:
        text, at_least, below = (".".join(map(str, version)) for version in (found, first, last))
        raise WrongLibraryError(
            f"{what} has version {text}; needed is {at_least} or later, below {below}: pip install '{package}>={at_least},<{below}'"
        )


def version_of(engine: Engine, library: ctypes.CDLL) -> Version:
    """Return the major and minor version of a library. Raise WrongLibraryError if it does not tell."""
    name = engine.version_function
    assert name is not None
    try:
        function = getattr(library, name)
    except AttributeError:
        raise WrongLibraryError(f"{engine.file} has no function {name}: it is not the library of {engine.package}") from None
    function.argtypes, function.restype = [ctypes.c_int, ctypes.POINTER(ctypes.c_int)], ctypes.c_int
    version = []
    for part in (0, 1):
        value = ctypes.c_int(-1)
        if function(part, ctypes.byref(value)) != 0 or value.value < 0:
            raise WrongLibraryError(f"{engine.file} does not tell its version")
        version.append(value.value)
    return tuple(version)


def open_engine(engine: Engine, packages: Path) -> str:
    """Load the library of an engine and return its version, or an empty string if it is not known. Raise MissingLibraryError or WrongLibraryError.

    The extension of nvImageCodec then finds the loaded library by its name.
    """
    file = engine.file.format(cuda=(torch.version.cuda or "13").partition(".")[0])
    library = load_library(packages, file, engine.folders, engine.package)
    if engine.version_function is None or engine.versions is None:
        return ""
    found = version_of(engine, library)
    check_version(file, found, engine.versions, engine.package)
    return ".".join(map(str, found))


@load_once
def load() -> None:
    """Load the GPU codecs before the first image is decoded on a GPU. Raise RuntimeError if nvJPEG is not installed."""
    folder = _library.folder()
    try:
        open_engine(JPEG, folder.parent)
    except RuntimeError as error:
        raise RuntimeError(f'decoders.image: device="gpu" needs nvJPEG: {error}') from None
    extensions = [JPEG.extension]
    for engine in OPTIONAL:
        try:
            open_engine(engine, folder.parent)
        except MissingLibraryError:
            continue
        except WrongLibraryError as error:
            warnings.warn(f"decoders.image: the CPU decodes {engine.decodes} images: {error}", RuntimeWarning, stacklevel=2)
            continue
        extensions.append(engine.extension)
    _library.load_extensions("", _library.extension_paths(folder, tuple(extensions)))


def is_loaded(name: str) -> bool:
    """Return whether an optional engine can be used, after :func:`load`."""
    extension = next(engine.extension for engine in OPTIONAL if engine.name == name)
    return bool(native.c_function("ndd_has_gpu_extension")(extension.encode()))


def engine_counts(device_id: int = 0) -> dict[str, int]:
    """Return how many images each engine has decoded for a GPU in this process.

    Returns:
        ``hardware``: by the JPEG engines; ``cuda``: JPEGs by CUDA, with Huffman decoding on a CPU thread; ``lossless_jpeg``, ``tiff`` and
        ``jpeg2000``: by CUDA; ``cpu``: by the CPU, then uploaded; ``refused``: images that an engine of the GPU could not decode, which another
        engine decoded and counted.

    >>> sorted(engine_counts())
    ['cpu', 'cuda', 'hardware', 'jpeg2000', 'lossless_jpeg', 'refused', 'tiff']
    """
    counts = (ctypes.c_int64 * len(ENGINES))()
    native.c_function("ndd_gpu_decode_counts")(device_id, counts)
    return dict(zip(ENGINES, counts, strict=True))
