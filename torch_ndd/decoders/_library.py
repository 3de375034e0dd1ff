# SPDX-License-Identifier: Apache-2.0
"""Finds nvImageCodec, which lies in the package nvidia-nvimgcodec-cu13 or -cu12, and hands it to the native library."""

import ctypes
import importlib.util
from pathlib import Path

import torch

from .. import _native

# The CPU extensions. The GPU ones stay out: they print to stderr where there is no GPU.
_EXTENSIONS = ("jpeg_turbo", "tiff", "nvbmp", "nvpnm", "opencv")


_loaded = False


@torch.compiler.assume_constant_result  # tracing a graph loads them too
def load() -> bool:
    """Load the codecs, once; RuntimeError when they are not installed. Nothing of them is needed before the first image."""
    global _loaded
    if not _loaded:
        _load()
        _loaded = True
    return _loaded


def _load() -> None:
    spec = importlib.util.find_spec("nvidia.nvimgcodec")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("decoders.image: the package nvidia-nvimgcodec-cu13 is not installed")
    folder = Path(spec.submodule_search_locations[0])
    paths = [path for name in _EXTENSIONS for path in sorted(folder.glob(f"extensions/lib{name}_ext.so*"))[:1]]
    load_codecs = ctypes.CDLL(str(_native.PATH)).ndd_load_image_codecs
    load_codecs.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    load_codecs.restype = ctypes.c_char_p
    reason = load_codecs(str(folder / "libnvimgcodec.so.0").encode(), "\n".join(map(str, paths)).encode())
    if reason is not None:
        raise RuntimeError(reason.decode())
