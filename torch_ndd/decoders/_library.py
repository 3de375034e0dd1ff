# SPDX-License-Identifier: Apache-2.0
"""Find nvImageCodec in the package nvidia-nvimgcodec-cu13 or -cu12 and load it in the native library."""

import ctypes
import hashlib
import importlib.util
from pathlib import Path

import torch

from .._core import native
from .._core.native.dynamo import assume_constant_result

# The CPU extensions with decoders. The GPU extensions print to stderr on machines without a GPU. nvbmp supports neither top-down rows nor padding,
# and reads past the end of a short file.
_EXTENSIONS = ("jpeg_turbo", "tiff", "opencv")
_GPU_EXTENSIONS = ("nvjpeg",)

# The inspected release, which is patched (csrc/decoders/codecs/jpeg_extension.md): the SHA-256 of its JPEG extension for Linux on x86-64.
CHECKED_VERSION = "0.9.0.20"
CHECKED = (
    "3d7e9e4bbe69b706acb15e9b3171673e86e2fac62bf06ecd6edcc3c585311fde",  # nvidia-nvimgcodec-cu13
    "f490aaf88e17c7581fdbc2571da7f59b3ae9adc0dd148cdc2dd2e796aeab9941",  # nvidia-nvimgcodec-cu12
)

_loaded = False
_gpu_loaded = False


@assume_constant_result  # also called while tracing a graph
def load() -> bool:
    """Load the codecs once, before the first image. Raise RuntimeError if they are not installed."""
    global _loaded
    if not _loaded:
        _load()
        _loaded = True
    return _loaded


@assume_constant_result
def load_gpu() -> bool:
    """Load the GPU codecs, after :func:`load`. Raise RuntimeError if nvJPEG is not installed."""
    global _gpu_loaded
    if not _gpu_loaded:
        folder = _folder()
        _load_nvjpeg(folder)
        _load_extensions("", _paths(folder, _GPU_EXTENSIONS))
        _gpu_loaded = True
    return _gpu_loaded


def _load_nvjpeg(folder: Path) -> None:
    """Preload a library, so that the extension finds it by name."""
    name = f"libnvjpeg.so.{(torch.version.cuda or '13').partition('.')[0]}"
    installed = [str(path) for path in (*folder.parent.glob(f"cu*/lib/{name}"), *folder.parent.glob(f"nvjpeg/lib/{name}"))]
    for path in (*installed, name):
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        return
    raise RuntimeError(f'decoders.image: device="gpu" needs {name}, which is not installed: pip install nvidia-nvjpeg')


def engine_counts(device_id: int = 0) -> dict[str, int]:
    """Return how many images each engine has decoded for a GPU in this process.

    Returns:
        ``hardware``: by the JPEG engines; ``cuda``: by CUDA, with Huffman decoding on a CPU thread; ``cpu``: by the CPU, then uploaded; ``refused``:
        images that the first two could not decode, which another engine decoded and counted.

    >>> sorted(engine_counts())
    ['cpu', 'cuda', 'hardware', 'refused']
    """
    counts = (ctypes.c_int64 * 4)()
    native.c_function("ndd_gpu_decode_counts")(device_id, counts)
    return dict(zip(("hardware", "cuda", "cpu", "refused"), counts, strict=True))


def is_checked() -> bool:
    """Return whether the native library patches the installed nvImageCodec; other releases run unchanged."""
    return any(hashlib.sha256(path.read_bytes()).hexdigest() in CHECKED for path in _paths(_folder(), ("jpeg_turbo",)))


def _load() -> None:
    folder = _folder()
    _load_extensions(str(folder / "libnvimgcodec.so.0"), _paths(folder, _EXTENSIONS))


def _folder() -> Path:
    spec = importlib.util.find_spec("nvidia.nvimgcodec")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("decoders.image: the package nvidia-nvimgcodec-cu13 is not installed")
    return Path(spec.submodule_search_locations[0])


def _paths(folder: Path, extensions: tuple[str, ...]) -> list[Path]:
    # At most one file of each, in case a package left several versions.
    return [path for name in extensions for path in sorted(folder.glob(f"extensions/lib{name}_ext.so*"))[:1]]


def _load_extensions(library: str, extensions: list[Path]) -> None:
    load_codecs = native.c_function("ndd_load_image_codecs")
    reason = load_codecs(library.encode(), "\n".join(map(str, extensions)).encode(), is_checked())
    if reason is not None:
        raise RuntimeError(reason.decode())
