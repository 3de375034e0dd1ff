# SPDX-License-Identifier: Apache-2.0
"""Operators on images of uint8 or float32 in a graph on the CPU: a chain of them becomes one call of one kernel, ``pixel_chain``.

Inductor's vectors hold 32 bits per byte and three lanes per pixel of three channels. Its kernel of a chain that rounds to uint8 takes 5 to 50 times
as long as our kernels one by one, and one that mixes channels 2 to 3 times. Therefore a formula adds a stage to a chain: a factor and a term
(:func:`linear`), a table (:func:`by_level`, from the formula itself), or the numbers of a color matrix (:func:`twisted`). Flips are kept apart, and
``crop_mirror_normalize`` ends the chain. Every operator returns the result of the whole chain up to it, and the graph drops unused results.

What is linear in float32 stays a formula as well, which Inductor computes at the speed of memory: such a chain is called only where a color matrix or
a flip is returned, whose kernel then does not read again what Inductor has written.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..._core import native
from ..._core.native.dynamo import allow_in_graph
from ..._core.native.graph_results import in_pool, pooled_from, stack_parts
from ..._core.operators.definition import Packed
from .. import _formulas

_kernel = native.kernel("pixel_chain", writes=(-1,))
# Functional variants, which a compiler may drop when their results are unused.
_library = torch.library.Library("ndd", "FRAGMENT")
_library.define(
    "pixels_of(Tensor input, Tensor? shapes, Tensor[] stages, int[] floats, bool horizontal, Tensor? mirror, bool vertical, Tensor? upside_down, "
    "Tensor? mean, Tensor? std, float scale, float shift, str output_layout, ScalarType dtype) -> Tensor"
)
_LAYOUT = "HWC"
_TYPES = (torch.uint8, torch.float32)


def _empty_output(input: torch.Tensor, shapes: torch.Tensor | None, output_layout: str) -> list[int]:
    if shapes is not None:
        return list(input.shape)
    return [input.shape[0], *(input.shape[1 + _LAYOUT.index(letter)] for letter in output_layout)]


@torch.library.impl("ndd::pixels_of", "CPU", lib=_library)
def _(input: torch.Tensor, shapes: torch.Tensor | None, stages: Any, floats: Any, *other_arguments: Any) -> torch.Tensor:
    *arguments, output_layout, dtype = other_arguments
    out = native.empty(_empty_output(input, shapes, output_layout), dtype, input.device)
    _kernel(input.contiguous(), shapes, stages or [], floats or [], *arguments, output_layout, out)  # AOTInductor passes empty lists as None
    return out


@torch.library.register_fake("ndd::pixels_of", lib=_library)
def _(input: torch.Tensor, shapes: torch.Tensor | None, *arguments: Any) -> torch.Tensor:
    *_, output_layout, dtype = arguments
    return input.new_empty(_empty_output(input, shapes, output_layout), dtype=dtype)


@dataclass(frozen=True)
class _Chain:
    """A chain of stages on ``base``. Flips apply to all samples, or per sample if there is a tensor (rows,), combined by exclusive or.

    ``values`` is the result of the stages alone where a formula has it: of a dense batch, without stages or as long as all of them are linear in
    float32.
    """

    base: torch.Tensor
    shapes: torch.Tensor | None  # of a ragged batch
    version: int
    values: torch.Tensor | None
    stages: tuple[tuple[torch.Tensor, torch.dtype], ...] = ()  # and the types of their results
    horizontal: bool = False
    mirror: torch.Tensor | None = None
    vertical: bool = False
    upside_down: torch.Tensor | None = None


@dataclass
class _Known:
    """The chains of the live tensors in the graphs that are being traced."""

    chains: Any = field(default_factory=WeakTensorKeyDictionary)

    def of(self, input: torch.Tensor, shapes: torch.Tensor | None) -> _Chain:
        # A tensor that was moved to pool memory is known by the values that it came from.
        found, version = self.chains.get(pooled_from.get(input, input)) or (None, 0)
        if found is None or found.base._version != found.version or input._version != version:  # one of them has been written to
            return _Chain(input, shapes, input._version, input if shapes is None else None)
        return found


_known = _Known()
Images = torch.Tensor | Packed


def _buffers(input: Images) -> tuple[torch.Tensor, torch.Tensor | None]:
    return (input.values, input.shapes) if isinstance(input, Packed) else (input, None)


def takes(input: Images, layout: str | None = _LAYOUT) -> bool:
    """Return whether a formula of bytes should leave this input to a chain."""
    return _is_image(input, layout) and is_native(input)


def takes_flip(input: Images, layout: str) -> bool:
    """Return the same for a flip, of any dtype: Inductor vectorizes over the three channels and takes 2.5 ms, the kernel 0.7 ms."""
    return _is_image(input, layout) and _formulas.on_cpu(input)


def _is_image(input: Images, layout: str | None) -> bool:
    return layout == _LAYOUT and input.dim() == 4


def is_native(input: Images) -> bool:
    """Return whether our kernel beats the compiler's: for bytes on the CPU."""
    return input.dtype is torch.uint8 and _formulas.on_cpu(input)


Formula = Callable[..., torch.Tensor | None]


def by_level(formula: Callable[..., torch.Tensor]) -> Formula:
    """Let chains compute a formula that maps each value of bytes alone: its results for all values are a table.

    The formula takes ``(input, *arguments, dtype)``, and its arguments may have one number per sample.
    """

    @functools.wraps(formula)
    def choose_branch(input: Images, *arguments: Any, dtype: torch.dtype) -> torch.Tensor | None:
        if not is_native(input) or dtype is not torch.uint8:
            return None if isinstance(input, Packed) else formula(input, *arguments, dtype=dtype)
        if not takes(input):
            return None
        levels = torch.arange(256, dtype=torch.uint8).reshape(1, 256, 1, 1)
        return _add_stage(*_buffers(input), formula(levels, *arguments, dtype=dtype).reshape(-1, 256), dtype)

    return choose_branch


def linear(
    input: Images, line: Callable[..., tuple[_formulas.Number, _formulas.Number]], *arguments: _formulas.Number, dtype: torch.dtype
) -> torch.Tensor | None:
    """Compute ``factor * input + term``, where both follow from arguments with one number per sample by ``line(*arguments)``."""
    if takes_flip(input, _LAYOUT) and input.dtype is dtype and dtype in _TYPES:
        stage = _numbers(*line(*map(_one_a_sample, arguments)))
        if isinstance(input, Packed) or dtype is torch.uint8:
            return _add_stage(*_buffers(input), stage, dtype)
    elif isinstance(input, Packed) or (is_native(input) and dtype is torch.uint8):
        # Ragged bytes that change their type have no formula; the kernel takes them.
        return None
    else:
        stage = None
    factor, term = line(*(_formulas.per_sample(argument, input.dim(), torch.float32, input.device) for argument in arguments))
    if stage is not None:
        return _add_line(input, factor, term, stage)
    return _formulas.saturate(factor * (input if input.dtype.is_floating_point else input.float()) + term, dtype)


def twist(input: Images, *numbers: _formulas.Number, dtype: torch.dtype) -> torch.Tensor | None:
    """Mix colors by the numbers of ``color_twist`` and its middle. None if no chain takes this."""
    if not takes_flip(input, _LAYOUT) or input.dtype not in _TYPES or dtype not in _TYPES:
        return None
    return _add_stage(*_buffers(input), _numbers(*numbers), dtype)


def _numbers(*arguments: _formulas.Number) -> torch.Tensor:
    """Return arguments with one number per sample, or one for all, as the columns of a stage; too few for Inductor's threads."""
    return torch.stack(torch.broadcast_tensors(*map(_one_a_sample, arguments)), 1)


def _one_a_sample(argument: _formulas.Number) -> torch.Tensor:
    """Return an argument in float32 (rows,), like the kernels: Python numbers would be rounded later."""
    return argument.reshape(-1).to(torch.float32) if isinstance(argument, torch.Tensor) else torch.full((1,), float(argument))


@allow_in_graph
def _add_stage(input: torch.Tensor, shapes: torch.Tensor | None, stage: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Add a stage to a chain: a table (rows, 256) of uint8, a factor and a term (rows, 2), or the numbers of a color matrix (rows, 5)."""
    chain = _known.of(input, shapes)
    return _image(replace(chain, values=None, stages=(*chain.stages, (stage, dtype))))


@allow_in_graph
def _add_line(input: torch.Tensor, factor: _formulas.Number, term: _formulas.Number, stage: torch.Tensor) -> torch.Tensor:
    """Return ``factor * input + term`` of float32 as a formula, known as a chain. A chain without a formula continues with a stage."""
    chain = _known.of(input, None)
    if chain.values is None:
        return _add_stage(input, None, stage, torch.float32)
    output = values = factor * input + term
    # The stages of a chain precede its flips; a formula of mirrored values differs from that of the stages alone.
    if any(all_samples or each is not None for _, all_samples, each in _flips(chain)):
        values = factor * chain.values + term
    chain = replace(chain, values=values, stages=(*chain.stages, (stage, torch.float32)))
    _known.chains[output] = chain, output._version
    return output


def _flips(chain: _Chain) -> list[tuple[int, bool, torch.Tensor | None]]:
    return [(1, chain.vertical, chain.upside_down), (2, chain.horizontal, chain.mirror)]


def flip(input: Images, horizontal: torch.Tensor | int, vertical: torch.Tensor | int) -> torch.Tensor:
    """Mirror where the numbers, (rows,) if they are tensors, are not 0."""
    return _turn_twist(*_buffers(input), horizontal, vertical)


@allow_in_graph
def _turn_twist(input: torch.Tensor, shapes: torch.Tensor | None, horizontal: torch.Tensor | int, vertical: torch.Tensor | int) -> torch.Tensor:
    return _image(_flip_chain(_known.of(input, shapes), horizontal, vertical))


def _flip_chain(chain: _Chain, horizontal: torch.Tensor | int, vertical: torch.Tensor | int) -> _Chain:
    both = _exclusive(chain.horizontal, chain.mirror, horizontal), _exclusive(chain.vertical, chain.upside_down, vertical)
    return replace(chain, horizontal=both[0][0], mirror=both[0][1], vertical=both[1][0], upside_down=both[1][1])


def _exclusive(all_samples: bool, each: torch.Tensor | None, wanted: torch.Tensor | int) -> tuple[bool, torch.Tensor | None]:
    if not isinstance(wanted, torch.Tensor):
        return all_samples != bool(wanted), each
    wanted = wanted.reshape(-1) != 0
    return all_samples, (wanted if each is None else (each != 0) != wanted).to(torch.int64)


def normalize(input: Images, *arguments: Any) -> torch.Tensor:
    """End a chain with crop_mirror_normalize of whole images: ``mirror``, ``mean``, ``std``, ``scale``, ``shift``, ``output_layout``, ``dtype``."""
    return _normalize_chain(*_buffers(input), *arguments)


@allow_in_graph
def _normalize_chain(
    input: torch.Tensor,
    shapes: torch.Tensor | None,
    mirror: torch.Tensor | int,
    mean: torch.Tensor | float,
    std: torch.Tensor | float,
    scale: float,
    shift: float,
    output_layout: str,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Normalize by the kernel, or leave floats that a formula has to the compiler.

    Its loop per channel is vectorized along the width and takes 1.1 ms; interleaved pixels of three channels, in vectors of 16, take 2.9 ms.
    """
    chain = _flip_chain(_known.of(input, shapes), mirror, 0)
    if is_native(input) or chain.values is None:
        return _compute(chain, _rows(mean), _rows(std), scale, shift, output_layout, dtype)
    flips = [(axis, all_samples if each is None else (each != 0) != all_samples) for axis, all_samples, each in _flips(chain)]

    def normal(values: torch.Tensor, layout: str, mean: torch.Tensor | float, std: torch.Tensor | float) -> torch.Tensor:
        for axis, wanted in flips:
            values = _formulas.mirror_axis(values, axis, wanted.reshape(-1, *(1,) * len(layout)) if isinstance(wanted, torch.Tensor) else wanted)
        values = _formulas.normal(values, mean, std, scale, shift)
        order = [1 + layout.index(letter) for letter in output_layout if letter in layout]
        return _formulas.saturate(values.permute(0, *order), dtype)

    if output_layout[-1] == "C":
        output = normal(chain.values, _LAYOUT, *(_formulas.per_channel(argument, 4, 3) for argument in (mean, std))).contiguous()
    else:
        # One expression for each plane, so Inductor vectorizes along the rows.
        planes = [normal(chain.values.select(-1, c), "HW", _of_channel(mean, c), _of_channel(std, c)) for c in range(input.shape[-1])]
        output = stack_parts(planes, 1 + output_layout.index("C"))
    in_pool[output] = None
    return output


def _of_channel(values: torch.Tensor | float, channel: int) -> torch.Tensor | float:
    if not isinstance(values, torch.Tensor):
        return values
    rows = _rows(values)
    return rows[:, channel if rows.shape[1] > 1 else 0].reshape(-1, 1, 1)


def _rows(values: torch.Tensor | float) -> torch.Tensor:
    return values.reshape(values.shape[0], -1).to(torch.float32) if isinstance(values, torch.Tensor) else torch.full((1, 1), float(values))


def _image(chain: _Chain) -> torch.Tensor:
    dtype = chain.stages[-1][1] if chain.stages else chain.base.dtype
    output = _compute(chain, None, None, 1.0, 0.0, _LAYOUT, dtype)
    _known.chains[output] = chain, output._version
    in_pool[output] = None
    return output


def _compute(
    chain: _Chain, mean: torch.Tensor | None, std: torch.Tensor | None, scale: float, shift: float, output_layout: str, dtype: torch.dtype
) -> torch.Tensor:
    flips = (chain.horizontal, chain.mirror, chain.vertical, chain.upside_down)
    stages, floats = [stage for stage, _ in chain.stages], [int(kind is torch.float32) for _, kind in chain.stages]
    return torch.ops.ndd.pixels_of(chain.base, chain.shapes, stages, floats, *flips, mean, std, scale, shift, output_layout, dtype)
