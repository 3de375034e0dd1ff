# SPDX-License-Identifier: Apache-2.0
"""Find nvImageCodec in the package nvidia-nvimgcodec-cu13 or -cu12 and load it in the native library."""

import hashlib
import importlib.util
from pathlib import Path

from .._core import native
from ._load_once import load_once

# The CPU extensions with decoders. The GPU extensions print to stderr on machines without a GPU. nvbmp supports neither top-down rows nor padding,
# and reads past the end of a short file.
_EXTENSIONS = ("jpeg_turbo", "tiff", "opencv")

# The inspected release, which is patched (csrc/decoders/codecs/jpeg_extension.md): the SHA-256 of its JPEG extension for Linux on x86-64.
CHECKED_VERSION = "0.9.0.20"
CHECKED = (
    "3d7e9e4bbe69b706acb15e9b3171673e86e2fac62bf06ecd6edcc3c585311fde",  # nvidia-nvimgcodec-cu13
    "f490aaf88e17c7581fdbc2571da7f59b3ae9adc0dd148cdc2dd2e796aeab9941",  # nvidia-nvimgcodec-cu12
)


@load_once
def load() -> None:
    """Load the codecs before the first image. Raise RuntimeError if they are not installed."""
    packages = folder()
    load_extensions(str(packages / "libnvimgcodec.so.0"), extension_paths(packages, _EXTENSIONS))


def is_checked() -> bool:
    """Return whether the native library patches the installed nvImageCodec; other releases run unchanged."""
    return any(hashlib.sha256(path.read_bytes()).hexdigest() in CHECKED for path in extension_paths(folder(), ("jpeg_turbo",)))


def folder() -> Path:
    """Return the folder of nvImageCodec's package. Raise RuntimeError if it is not installed."""
    spec = importlib.util.find_spec("nvidia.nvimgcodec")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("decoders.image: the package nvidia-nvimgcodec-cu13 is not installed")
    return Path(spec.submodule_search_locations[0])


def extension_paths(folder: Path, extensions: tuple[str, ...]) -> list[Path]:
    """Return the files of extensions that the package has."""
    # At most one file of each, in case a package left several versions.
    return [path for name in extensions for path in sorted(folder.glob(f"extensions/lib{name}_ext.so*"))[:1]]


def load_extensions(library: str, extensions: list[Path]) -> None:
    """Load the library with its CPU extensions, or without a library those of a GPU. Raise RuntimeError if one cannot be loaded."""
    load_codecs = native.c_function("ndd_load_image_codecs")
    reason = load_codecs(library.encode(), "\n".join(map(str, extensions)).encode(), is_checked())
    if reason is not None:
        raise RuntimeError(reason.decode())
