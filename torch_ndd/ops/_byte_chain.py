# SPDX-License-Identifier: Apache-2.0
"""Operators on uint8 images in a graph on the CPU: a chain of them becomes one call of one kernel, ``byte_chain``.

Inductor's vectors hold 32 bits per byte and three lanes per pixel of three channels, so that its kernel of a chain that rounds to uint8 takes 5 to 50
times as long as our kernels one by one. Therefore a formula that maps bytes to bytes adds a stage to a chain instead: a factor and a term, a table,
or the numbers of a color matrix; flips are kept apart, and ``crop_mirror_normalize`` ends the chain. Every operator returns the result of the whole
chain up to it, and the graph drops unused results.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .._core import native
from .._core.dynamo import allow_in_graph
from .._core.graph_results import in_pool, stacked
from . import _formulas

_kernel = native.kernel("byte_chain", writes=(-1,))
# Functional variants, which a compiler may drop when their results are unused.
_library = torch.library.Library("ndd", "FRAGMENT")
_library.define(
    "bytes_of(Tensor input, Tensor[] stages, bool horizontal, Tensor? mirror, bool vertical, Tensor? upside_down, Tensor? mean, Tensor? std, "
    "float scale, float shift, str output_layout, ScalarType dtype) -> Tensor"
)
_LAYOUT = "HWC"


def _unfilled(input: torch.Tensor, output_layout: str) -> list[int]:
    return [input.shape[0], *(input.shape[1 + _LAYOUT.index(letter)] for letter in output_layout)]


@torch.library.impl("ndd::bytes_of", "CPU", lib=_library)
def _(input: torch.Tensor, *given: Any) -> torch.Tensor:
    *arguments, output_layout, dtype = given
    out = native.empty(_unfilled(input, output_layout), dtype, input.device)
    _kernel(input.contiguous(), *arguments, output_layout, out)
    return out


@torch.library.register_fake("ndd::bytes_of", lib=_library)
def _(input: torch.Tensor, *given: Any) -> torch.Tensor:
    *_, output_layout, dtype = given
    return input.new_empty(_unfilled(input, output_layout), dtype=dtype)


@dataclass(frozen=True)
class _Chain:
    """A chain of stages on ``base``. Flips apply to all samples, or per sample if there is a tensor (rows,), combined by exclusive or."""

    base: torch.Tensor
    version: int
    stages: tuple[torch.Tensor, ...] = ()
    horizontal: bool = False
    mirror: torch.Tensor | None = None
    vertical: bool = False
    upside_down: torch.Tensor | None = None


@dataclass
class _Known:
    """The chains of the live tensors in the graphs that are being traced."""

    chains: Any = field(default_factory=WeakTensorKeyDictionary)

    def of(self, input: torch.Tensor) -> _Chain:
        found, version = self.chains.get(input) or (None, 0)
        if found is None or found.base._version != found.version or input._version != version:  # one of them has been written to
            return _Chain(input, input._version)
        return found


_known = _Known()


def takes(input: torch.Tensor, layout: str | None = _LAYOUT) -> bool:
    """Return whether a formula should leave this input to a chain."""
    return layout == _LAYOUT and input.dim() == 4 and is_native(input)


def takes_flip(input: torch.Tensor, layout: str) -> bool:
    """Return the same for a flip, of any dtype: Inductor vectorizes over the three channels and takes 2.5 ms, the kernel 0.7 ms."""
    return layout == _LAYOUT and input.dim() == 4 and _formulas.on_cpu(input)


def is_native(input: torch.Tensor) -> bool:
    """Return whether our kernel beats the compiler's: for bytes on the CPU."""
    return input.dtype is torch.uint8 and _formulas.on_cpu(input)


def levels() -> torch.Tensor:
    """Return all values of a byte, as an image."""
    return torch.arange(256, dtype=torch.uint8).reshape(1, 256, 1, 1)


def numbers(*arguments: torch.Tensor | float) -> torch.Tensor:
    """Return arguments with one number per sample, or one for all, as the columns of a stage; too few for Inductor's threads."""
    return torch.stack(torch.broadcast_tensors(*map(one_a_sample, arguments)), 1)


def one_a_sample(argument: torch.Tensor | float) -> torch.Tensor:
    """Return an argument in float32 (rows,), like the kernels: Python numbers would be rounded later."""
    return argument.reshape(-1).to(torch.float32) if isinstance(argument, torch.Tensor) else torch.full((1,), float(argument))


@allow_in_graph
def staged(input: torch.Tensor, stage: torch.Tensor) -> torch.Tensor:
    """Add a stage to a chain.

    Each level is replaced by a table (rows, 256) of uint8 or by ``factor * level + term`` (rows, 2), or colors are mixed by the numbers of
    ``color_twist`` and its midpoint (rows, 5).
    """
    chain = _known.of(input)
    return _image(replace(chain, stages=(*chain.stages, stage)))


@allow_in_graph
def flipped(input: torch.Tensor, horizontal: torch.Tensor | int, vertical: torch.Tensor | int) -> torch.Tensor:
    """Mirror where the numbers, (rows,) if they are tensors, are not 0."""
    return _image(_flipped(_known.of(input), horizontal, vertical))


def _flipped(chain: _Chain, horizontal: torch.Tensor | int, vertical: torch.Tensor | int) -> _Chain:
    both = _exclusive(chain.horizontal, chain.mirror, horizontal), _exclusive(chain.vertical, chain.upside_down, vertical)
    return replace(chain, horizontal=both[0][0], mirror=both[0][1], vertical=both[1][0], upside_down=both[1][1])


def _exclusive(all_samples: bool, each: torch.Tensor | None, wanted: torch.Tensor | int) -> tuple[bool, torch.Tensor | None]:
    if not isinstance(wanted, torch.Tensor):
        return all_samples != bool(wanted), each
    wanted = wanted.reshape(-1) != 0
    return all_samples, (wanted if each is None else (each != 0) != wanted).to(torch.int64)


@allow_in_graph
def normalized(
    input: torch.Tensor,
    mirror: torch.Tensor | int,
    mean: torch.Tensor | float,
    std: torch.Tensor | float,
    scale: float,
    shift: float,
    output_layout: str,
    dtype: torch.dtype,
) -> torch.Tensor:
    """End a chain with crop_mirror_normalize of whole images.

    Floats are left to the compiler, as a formula: its loop per channel is vectorized along the width and takes 1.1 ms; interleaved pixels of three
    channels, in vectors of 16, take 2.9 ms.
    """
    chain = _flipped(_known.of(input), mirror, 0)
    if is_native(input):
        return _computed(chain, _rows(mean), _rows(std), scale, shift, output_layout, dtype)
    kept = output_layout.replace("C", "")
    planes = []
    for c in range(input.shape[-1]):
        plane = chain.base.select(-1, c)
        for axis, all_samples, each in ((1, chain.vertical, chain.upside_down), (2, chain.horizontal, chain.mirror)):
            plane = _formulas.mirrored(plane, axis, all_samples if each is None else ((each != 0) != all_samples).reshape(-1, 1, 1))
        normal = (plane.float() - _of_channel(mean, c)) * (scale / _of_channel(std, c)) + shift
        planes.append(_formulas.saturate(normal.permute(0, *(1 + _LAYOUT.index(letter) for letter in kept)), dtype))
    made = stacked(planes, 1 + output_layout.index("C"))
    in_pool[made] = None
    return made


def _of_channel(values: torch.Tensor | float, channel: int) -> torch.Tensor | float:
    if not isinstance(values, torch.Tensor):
        return values
    rows = _rows(values)
    return rows[:, channel if rows.shape[1] > 1 else 0].reshape(-1, 1, 1)


def _rows(values: torch.Tensor | float) -> torch.Tensor:
    return values.reshape(values.shape[0], -1).to(torch.float32) if isinstance(values, torch.Tensor) else torch.full((1, 1), float(values))


def _image(chain: _Chain) -> torch.Tensor:
    made = _computed(chain, None, None, 1.0, 0.0, _LAYOUT, chain.base.dtype)
    _known.chains[made] = chain, made._version
    in_pool[made] = None
    return made


def _computed(
    chain: _Chain, mean: torch.Tensor | None, std: torch.Tensor | None, scale: float, shift: float, output_layout: str, dtype: torch.dtype
) -> torch.Tensor:
    flips = (chain.horizontal, chain.mirror, chain.vertical, chain.upside_down)
    return torch.ops.ndd.bytes_of(chain.base, list(chain.stages), *flips, mean, std, scale, shift, output_layout, dtype)
