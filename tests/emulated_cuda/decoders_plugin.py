# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for NDD_EMULATED_DECODERS: load the libraries of the GPU decoders, and request the CPU's upsampling.

See decoders.py.
"""

import pytest

from torch_ndd._core import native
from torch_ndd.decoders import _decode, _gpu_engines, _library

# Tests of options that nvImageCodec's GPU decoders do not have.
_NOT_ON_A_GPU = ("test_fast_idct_is_close",)


def _options(target: _decode.Target) -> str:
    return f":fancy_upsampling=1 :hybrid_huffman_threshold={target.hybrid_huffman_threshold}"


def pytest_configure() -> None:
    """Before the first test."""
    _library.load()
    # Beside the emulated library: decoders.py has built them.
    _library.load_extensions("", sorted(native.PATH.parent.glob("lib*_ext.so")))
    _gpu_engines.load = lambda: None  # in place of nvJPEG, nvTIFF and nvJPEG2000
    _decode.Target.options = property(_options)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of the CPU only."""
    items[:] = [item for item in items if item.name not in _NOT_ON_A_GPU]
