# SPDX-License-Identifier: Apache-2.0
"""For pytest, with NDD_EMULATED_DECODERS in the environment: loads what the decoders of a GPU need, and asks for the upsampling that the CPU has.

See decoders.py.
"""

import pytest

from torch_ndd.decoders import _decode, _library

# Options of nvImageCodec that its GPU decoders do not have.
_NOT_ON_A_GPU = ("test_fast_idct_is_close",)


def _options(target: _decode.Target) -> str:
    return f":fancy_upsampling=1 :hybrid_huffman_threshold={target.hybrid_huffman_threshold}"


def pytest_configure() -> None:
    """Before the first test."""
    _library.load()
    _library.load_gpu()
    _decode.Target.options = property(_options)  # type: ignore[method-assign, assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is for the CPU alone."""
    items[:] = [item for item in items if item.name not in _NOT_ON_A_GPU]
