# SPDX-License-Identifier: Apache-2.0
"""Codec libraries in exported programs. The process that runs one has only imported torch_ndd, which loads no codec."""

from typing import Literal

import torch

from .._core.values.batch import Batch, new_batch
from . import _library, _sndfile

_LOAD = {"images": _library.load, "sounds": _sndfile.load}

_operators = torch.library.Library("ndd", "FRAGMENT")
_operators.define("load_codecs(Tensor files, str kind) -> Tensor")


@torch.library.impl("ndd::load_codecs", "CPU", lib=_operators)
def _(files: torch.Tensor, kind: str) -> torch.Tensor:
    _LOAD[kind]()
    return files.clone()


@torch.library.register_fake("ndd::load_codecs", lib=_operators)
def _(files: torch.Tensor, kind: str) -> torch.Tensor:
    return torch.empty_like(files)


def load_codecs(files: Batch, kind: Literal["images", "sounds"]) -> Batch:
    """Load the codecs. In an exported program return files whose use loads them when it runs: what reads the headers must take these."""
    _LOAD[kind]()
    if not torch.compiler.is_exporting():
        return files
    return new_batch(torch.ops.ndd.load_codecs(files.buffer, kind), files.ragged_shapes, files.layout)
