# SPDX-License-Identifier: Apache-2.0
"""Finds nvImageCodec, which lies in the package nvidia-nvimgcodec-cu13 or -cu12, and hands it to the native library."""

import ctypes
import importlib.util
from pathlib import Path

import torch

from .. import _native

# The CPU extensions with decoders. The GPU ones stay out: they print to stderr where there is no GPU. So does nvbmp, which knows neither rows from
# the top nor padding, and reads behind the end of a short file.
_EXTENSIONS = ("jpeg_turbo", "tiff", "opencv")


_GPU_EXTENSIONS = ("nvjpeg",)

_loaded = False
_gpu_loaded = False


@torch.compiler.assume_constant_result  # tracing a graph loads them too
def load() -> bool:
    """Load the codecs, once; RuntimeError when they are not installed. Nothing of them is needed before the first image."""
    global _loaded
    if not _loaded:
        _load()
        _loaded = True
    return _loaded


@torch.compiler.assume_constant_result
def load_gpu() -> bool:
    """Load those for a GPU, behind :func:`load`; RuntimeError when nvJPEG is not installed."""
    global _gpu_loaded
    if not _gpu_loaded:
        folder = _folder()
        _load_nvjpeg(folder)
        _hand_over("", _paths(folder, _GPU_EXTENSIONS))
        _gpu_loaded = True
    return _gpu_loaded


def _load_nvjpeg(folder: Path) -> None:
    """The extension looks for the library by its name and finds the one that is loaded already."""
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
    """How many images each engine of a GPU has decoded in this process.

    Returns:
        ``hardware``: by the JPEG engines; ``cuda``: by CUDA, with the Huffman decoding on a CPU thread; ``cpu``: by the CPU, and uploaded;
        ``refused``: images that the first two could not decode, which are among those of the others.

    >>> sorted(engine_counts())
    ['cpu', 'cuda', 'hardware', 'refused']
    """
    counts = (ctypes.c_int64 * 4)()
    ctypes.CDLL(str(_native.PATH)).ndd_gpu_decode_counts(device_id, counts)
    return dict(zip(("hardware", "cuda", "cpu", "refused"), counts, strict=True))


def _load() -> None:
    folder = _folder()
    _hand_over(str(folder / "libnvimgcodec.so.0"), _paths(folder, _EXTENSIONS))


def _folder() -> Path:
    spec = importlib.util.find_spec("nvidia.nvimgcodec")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("decoders.image: the package nvidia-nvimgcodec-cu13 is not installed")
    return Path(spec.submodule_search_locations[0])


def _paths(folder: Path, extensions: tuple[str, ...]) -> list[Path]:
    return [path for name in extensions for path in sorted(folder.glob(f"extensions/lib{name}_ext.so*"))[:1]]


def _hand_over(library: str, extensions: list[Path]) -> None:
    load_codecs = ctypes.CDLL(str(_native.PATH)).ndd_load_image_codecs
    load_codecs.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    load_codecs.restype = ctypes.c_char_p
    reason = load_codecs(library.encode(), "\n".join(map(str, extensions)).encode())
    if reason is not None:
        raise RuntimeError(reason.decode())
