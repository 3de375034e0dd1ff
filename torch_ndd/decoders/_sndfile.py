# SPDX-License-Identifier: Apache-2.0
"""Find libsndfile and load it in the native library."""

import ctypes
import ctypes.util
import importlib.util
from pathlib import Path

from .._core import native
from ._load_once import load_once

# Inspected releases. libmpg123, which they contain, prints messages about damaged files, which become part of the error.
CHECKED = ("libsndfile-1.2.2",)
CHECKED_PACKAGE = "0.14.0"  # of soundfile, whose wheel has such a release


@load_once
def load() -> bool:
    """Load libsndfile, and return whether its messages are captured; an unknown release runs unchanged. Raise RuntimeError without soundfile."""
    release = version()  # raises if it is not installed
    load_sndfile = native.c_function("ndd_load_sndfile")
    patched = ctypes.c_bool()
    # A release is patched only if it was inspected.
    if (reason := load_sndfile(_path().encode(), release in CHECKED, ctypes.byref(patched))) is not None:
        raise RuntimeError(reason.decode())
    return patched.value


def version() -> str:
    """Return the release of the installed libsndfile, such as ``libsndfile-1.2.2``. Raise RuntimeError if there is none."""
    try:
        text = ctypes.CDLL(_path()).sf_version_string
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"decoders.audio: cannot load libsndfile: {error}") from None
    text.restype = ctypes.c_char_p
    return text().decode()


def _path() -> str:
    """Return the libsndfile in soundfile's wheel, or the system's, which soundfile uses if its wheel has none."""
    path = None
    if importlib.util.find_spec("soundfile") is not None:
        data = importlib.util.find_spec("_soundfile_data")
        folders = data.submodule_search_locations if data is not None else None
        found = sorted(str(path) for folder in folders or () for path in Path(folder).glob("libsndfile*"))
        path = found[0] if found else ctypes.util.find_library("sndfile")
    if path is None:
        raise RuntimeError("decoders.audio: the package soundfile is not installed: pip install torch_ndd[audio]")
    return path
