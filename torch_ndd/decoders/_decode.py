# SPDX-License-Identifier: Apache-2.0
"""The common part of the image decoders: headers, the shapes of the output, and the launch of the decoding."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from .._core import native
from .._core.native.tracing import is_compiling
from .._core.operators.operator import OPERATORS, launch
from .._core.process.limits import limit
from .._core.suggestions import check_choice
from .._core.values.batch import Batch, empty_batch, empty_packed, new_batch
from .._core.values.dispatch import submit
from .._core.values.extents import SharedExtents
from .._core.work.bad_samples import ON_ERROR, Failures, OnError
from .._core.work.cuda_work import record_event
from .._core.work.diagnosis import note_decoding
from ..ops._arguments import FLOATS, INTEGERS
from ..ops._columns import rows
from ..ops.geometry._crop_window import CropWindow
from . import _by_python, _gpu_engines, _scale
from ._cache import CacheArguments, reduced_shapes
from ._exported import load_codecs
from ._files import check_encoded, sample_name

# The parameters that the kernels write: the errors, and the output.
FILLS = (-6, -2)
_read_shapes = native.kernel("image_shapes", writes=(-3, -2, -1))

OUTPUT_TYPES = ("RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA")  # in the order of types.RGB to types.ANY_DATA, which are 0 to 4
_OUTPUT_NUMBERS = tuple(range(len(OUTPUT_TYPES)))
_CHANNELS = {"RGB": 3, "BGR": 3, "GRAY": 1, "YCbCr": 3}  # ANY_DATA has those of the file
DTYPES = (*INTEGERS[:6], *FLOATS)  # integers of up to 32 bits

# Three times Pillow's limit for a warning (89 million: a gigabyte of 32-bit pixels, divided by three); as RGB this is 805 MB.
MAX_PIXELS = 1 << 28
MAX_GPU_MEMORY = 1 << 32  # bytes, or pixels of a side; of a hint


class GpuMemory(NamedTuple):
    """What a GPU's decoders allocate beforehand, so they need not allocate again for each larger image."""

    device_memory_padding: int
    host_memory_padding: int
    preallocate_height_hint: int
    preallocate_width_hint: int

    def check(self, op: str) -> None:
        """Raise ValueError for a size that is negative or absurd."""
        for name, value in self._asdict().items():
            if not 0 <= value <= MAX_GPU_MEMORY:
                raise ValueError(f"{op}: {name} must be from 0 to {MAX_GPU_MEMORY}, got {value}")


class Target(NamedTuple):
    """The output device and the options that apply to a GPU only."""

    device: Any  # a torch.device, as resolved by the operator
    hw_decoder_load: float
    hybrid_huffman_threshold: int
    jpeg_fancy_upsampling: bool
    memory: GpuMemory

    @property
    def options(self) -> str:
        """Return the options of the library's GPU decoders."""
        memory = self.memory
        options = {
            ":fancy_upsampling": int(self.jpeg_fancy_upsampling),
            ":hybrid_huffman_threshold": self.hybrid_huffman_threshold,
            "nvjpeg_cuda_decoder:device_memory_padding": memory.device_memory_padding,
            "nvjpeg_cuda_decoder:host_memory_padding": memory.host_memory_padding,
            # Buffers of these sizes come with the first image. Otherwise the library would also allocate them for a second thread, which a decoder of
            # ours does not have. The number of images of the engine is rounded up to that of its cores by the library.
            "nvjpeg_cuda_decoder:preallocate_buffers": 0,
            "nvjpeg_hw_decoder:preallocate_height_hint": memory.preallocate_height_hint,
            "nvjpeg_hw_decoder:preallocate_width_hint": memory.preallocate_width_hint,
        }
        return " ".join(f"{name}={value}" for name, value in options.items())


class DecodeArguments(NamedTuple):
    """Options of all image decoders."""

    output_type: int
    dtype: torch.dtype
    adjust_orientation: bool
    use_fast_idct: bool
    max_pixels: int | None
    on_error: OnError
    target: Target
    caching: CacheArguments
    at_least: Any = None  # one or two numbers, or a tensor with those of each sample


class Options(NamedTuple):
    """The options in the form that the kernels take."""

    op: str
    output_type: str
    adjust_orientation: bool


WindowsOf = Callable[[torch.Tensor], CropWindow | torch.Tensor]


def decode(op: str, files: Any, arguments: DecodeArguments, windows_of: WindowsOf | None = None) -> Any:
    """Size the output from the headers and return the launch of the decoding.

    ``windows_of`` takes heights, widths and channels (N, 3) of the images and returns the regions to decode: a window, or y, x, height, width (N, 4).
    """
    target = arguments.target
    on_gpu = target.device.type == "cuda"
    _check_arguments(op, arguments)
    max_pixels = limit(op, "max_pixels", arguments.max_pixels, MAX_PIXELS)
    cache = arguments.caching.select_cache(op, arguments.dtype, on_gpu)
    check_encoded(op, files, "encoded images")
    files = load_codecs(files, "images")
    if on_gpu:
        _gpu_engines.load()
    failures = None if arguments.on_error == "raise" else Failures(op, files.batch_size, files.sources)
    options = Options(op, output_type_name(op, arguments.output_type), bool(arguments.adjust_orientation))
    if not is_compiling():
        # The loader's advice counts images that its function decodes more than once, or at a reduced scale.
        note_decoding(files.buffer, files.batch_size, arguments.at_least is not None)
    # The only wait of the call: the size of the output is in the headers.
    files, shapes, kinds = image_shapes(files, options, max_pixels, failures, target.device)
    least = None if arguments.at_least is None else _scale.min_extents(op, arguments.at_least, files.batch_size)
    if cache is not None:
        if least is not None:
            raise ValueError(f"{op}: at_least cannot be used with a cache; decoders.cache(shorter=...) keeps reduced images")
        shapes = reduced_shapes(shapes, cache.shorter)
    channels = _CHANNELS.get(options.output_type)
    windows: torch.Tensor | None = None
    shared_extents: SharedExtents = (None, None, channels)
    if windows_of is not None:
        windows, shared_extents = _find_windows(op, files, shapes, failures, windows_of, channels)
    # On a GPU, images are decoded at their whole size.
    if least is not None and not on_gpu:
        windows = _scale.whole_windows(shapes, kinds, least) if windows is None else _scale.scaled_windows(windows, shapes, kinds, least)
        shared_extents = (None, None, channels)
    out = _allocate(arguments, files.batch_size, shapes, windows, shared_extents)
    out.sources, out.failures = files.sources, failures
    event = record_event(torch.cuda.current_stream(target.device)) if on_gpu and not is_compiling() else None
    done = 0 if event is None else event.cuda_event
    # The threads record the event, possibly after the result was dropped. They keep its values, and the tensor keeps the event.
    if event is not None:
        out.buffer.recorded = event  # type: ignore[attr-defined]
    failed = None if failures is None else failures.table
    # Native code finds the cache by its number; 0 is none.
    number = 0 if cache is None else cache._number
    kernel_arguments = [windows, *options, bool(arguments.use_fast_idct), number, failed, target.options, target.hw_decoder_load, done]
    if arguments.on_error != "skip" or failures is None:
        return launch(out, kernel_arguments, inputs=(files,), event=event)
    # The batch size of the result depends on which samples fail, so the call waits for all of them.
    submit(OPERATORS[op].kernel, [files.buffer, files.ragged_shapes, *kernel_arguments, out.buffer, out.ragged_shapes], [], True, files.sources)
    kept = out.select(failures.kept_samples())
    kept.failures = failures
    return launch((), also=(kept,))


def _check_arguments(op: str, arguments: DecodeArguments) -> None:
    """Raise an error for options that no image could be decoded with."""
    target = arguments.target
    if target.device.type == "cuda":
        if not 0 <= target.hw_decoder_load <= 1:
            raise ValueError(f"{op}: hw_decoder_load must be from 0 to 1, got {target.hw_decoder_load}")
        target.memory.check(op)
    if arguments.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise RuntimeError(f"{op}: dtype must be one of {names}, got {arguments.dtype}")
    check_choice(op, "on_error", arguments.on_error, ON_ERROR, ValueError)
    if arguments.on_error == "skip" and is_compiling():
        raise TypeError(f'{op}: on_error="skip" cannot be used under torch.compile: the batch size would depend on the data; "replace" can')


def _find_windows(
    op: str, files: Batch, shapes: torch.Tensor, failures: Failures | None, windows_of: WindowsOf, channels: int | None
) -> tuple[torch.Tensor, SharedExtents]:
    """Return the regions to decode (N, 4), and the extents that all of them have. Raise RuntimeError for one that leaves its image."""
    window = windows_of(shapes)
    if isinstance(window, torch.Tensor):
        windows, shared_extents = window, (None, None, channels)
    else:
        windows = rows([*window.start, *window.extent]).expand(files.batch_size, 4).contiguous()
        height, width = (None if isinstance(extent, torch.Tensor) else extent for extent in window.extent)
        shared_extents = (height, width, channels)
    # A random window lies within its image, unless the image has no pixels: an unreadable header gives zeros.
    if not isinstance(window, torch.Tensor) or is_compiling() or not windows.numpy()[:, 2:].all():
        _check_inside(op, files, windows, shapes, failures)
    return windows, shared_extents


def _allocate(
    arguments: DecodeArguments, batch_size: int, shapes: torch.Tensor, windows: torch.Tensor | None, shared_extents: SharedExtents
) -> Batch:
    """Return the output, without values, for images of these shapes or for windows of them. The table of shapes becomes that of the output."""
    device = arguments.target.device
    if windows is not None:
        if is_compiling():
            shapes = torch.cat([windows[:, 2:4], shapes[:, 2:]], 1)
        else:
            shapes.numpy()[:, :2] = windows.numpy()[:, 2:4]  # in place: the table is not shared
    # With all extents known, a graph has constant shapes.
    if is_compiling() and None not in shared_extents:
        return empty_batch(batch_size, shared_extents, arguments.dtype, device, "HWC")  # type: ignore[arg-type]
    return empty_packed(shapes, arguments.dtype, device, "HWC", shared_extents)


def output_type_name(op: str, output_type: int) -> str:
    """Return the name of ``types.RGB`` and so on. Raise RuntimeError for another number."""
    if output_type not in _OUTPUT_NUMBERS:
        raise RuntimeError(f"{op}: output_type must be one of types.{', types.'.join(OUTPUT_TYPES)}, got {output_type!r}")
    return OUTPUT_TYPES[int(output_type)]


def sizes_of(shapes: torch.Tensor) -> Batch:
    """Return images of these heights and widths without values, for code that computes windows."""
    return new_batch(torch.empty(0, dtype=torch.uint8), shapes[:, :2], "HW")


def image_shapes(
    files: Batch, options: Options, max_pixels: int, failures: Failures | None = None, device: torch.device | None = None
) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Return the files, with those that Python decodes replaced, heights, widths, channels (N, 3), and the kinds of the files (N).

    A sample that cannot be read gets the median height, width and channels of the others.
    """
    shapes, kinds = torch.empty((files.batch_size, 3), dtype=torch.int64), torch.empty(files.batch_size, dtype=torch.int64)
    read_headers(files, options, max_pixels, failures, shapes, kinds)
    if is_compiling():
        return files, shapes, kinds
    if by_python := np.flatnonzero(kinds.numpy() == _scale.BY_PYTHON).tolist():
        # These files are replaced by decoded ones, whose headers the kernel reads in a second pass.
        files = _decode_by_python(options, files, by_python, max_pixels, failures, device)
        read_headers(files, options, max_pixels, failures, shapes, kinds)
    if failures is not None and len(shapes) and (failed := failures.samples()):
        kept = failures.kept_samples()
        shapes[failed] = shapes[kept].median(0).values if kept else torch.ones(3, dtype=torch.int64)
        if not kept:
            shapes[:, 2] = 1 if options.output_type == "GRAY" else 3
        # As with the shapes: the scale of the decoding depends on the kind.
        kinds[failed] = kinds[kept].median() if kept else 0
    return files, shapes, kinds


def _decode_by_python(
    options: Options, files: Batch, samples: list[int], max_pixels: int, failures: Failures | None, device: torch.device | None
) -> Batch:
    """Return the files with some replaced: by their pixels in the raw format, or by files that stand for pixels in GPU memory."""
    encoded = [np.asarray(file) for file in files]
    on_gpu = []
    for i in samples:
        try:
            image = _by_python.decode_on_gpu(encoded[i], max_pixels, device)
            if image is not None:
                on_gpu.append(image)
                encoded[i] = image.file
                continue
            encoded[i] = _by_python.decode_to_raw(encoded[i], max_pixels, options.output_type, options.adjust_orientation)
        except (RuntimeError, MemoryError) as error:
            if failures is None:
                kind = MemoryError if isinstance(error, MemoryError) else RuntimeError
                raise kind(f"{options.op}: {sample_name(files, i)}: {error}") from None
            failures.note(i, str(error))
    lengths = torch.tensor([[len(file)] for file in encoded], dtype=torch.int64)
    decoded = new_batch(torch.from_numpy(np.concatenate(encoded)), lengths)
    decoded.sources = files.sources
    # The threads keep the buffer, and the tensor keeps the images.
    decoded.buffer.on_gpu = on_gpu  # type: ignore[attr-defined]
    return decoded


def read_headers(
    files: Batch,
    options: Options,
    max_pixels: int,
    failures: Failures | None,
    shapes: torch.Tensor,
    kinds: torch.Tensor,
    complete: bool = True,
) -> None:
    """Fill tables (N, 3) with height, width and channels, and (N) with the kind of the file; those that Python decodes leave the others 0.

    Files that are not ``complete`` may lack their pixels.
    """
    arguments = (files.buffer, files.ragged_shapes, *options, max_pixels, complete, None if failures is None else failures.table, shapes, kinds)
    if is_compiling():
        _read_shapes(*arguments)
    else:
        submit(_read_shapes, arguments, [], True, files.sources)


def _check_inside(op: str, files: Batch, windows: torch.Tensor, shapes: torch.Tensor, failures: Failures | None) -> None:
    """Raise RuntimeError for a window that is empty or leaves its image; an image that could not be read gets a window of zeros."""
    if is_compiling():
        return  # rejected by the kernel
    table = windows.numpy()
    start, extent = table[:, :2], table[:, 2:]
    wrong = np.any((start < 0) | (extent < 1) | (start + extent > shapes.numpy()[:, :2]), axis=1)
    if failures is not None:
        wrong[failures.samples()] = np.any(extent < 1, axis=1)[failures.samples()]
    if wrong.any():
        i = int(wrong.argmax())
        y, x, height, width = windows[i].tolist()
        what = "is empty" if min(height, width) < 1 else f"leaves the image of height {shapes[i, 0]} and width {shapes[i, 1]}"
        raise RuntimeError(f"{op}: {sample_name(files, i)}: the window y=[{y}, {y + height}) x=[{x}, {x + width}) {what}")
