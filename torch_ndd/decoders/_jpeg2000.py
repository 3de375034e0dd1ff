# SPDX-License-Identifier: Apache-2.0
"""JPEG 2000 samples, decoded by OpenJPEG from Python at the call.

nvImageCodec's CPU decoder for JPEG 2000 is OpenCV's, in which OpenJPEG writes through an uninitialized pointer for some damaged headers: 31 of 1,200
mutated files ended the process. OpenJPEG through pylibjpeg-openjpeg survived 4,500, but only if it gets the bare codestream: the wrapper sizes its
output before OpenJPEG applies a palette, which writes three samples where one was allocated (csrc/decoders/codecs/openjpeg_palette.md). So the boxes
around the codestream are read and applied here.
The decoded samples are passed on as files in a private raw format, so windows, output types and dtypes need no second implementation.
"""

import importlib
from typing import Any

import numpy as np

from .._core import native
from ._jpeg2000_header import Depth, Jpeg2000Header, TooShortError, UnsupportedError, read_header
from ._raw import check_pixels, pack_raw

PACKAGE = "pylibjpeg-openjpeg"
# Inspected releases, whose output to stderr is discarded (csrc/decoders/codecs/openjpeg_output.md).
CHECKED = ("2.5.0", "2.6.0")


def is_checked(module: Any) -> bool:
    """Return whether the module is an inspected release; other releases run unchanged."""
    return getattr(module, "__version__", "") in CHECKED


def _import_openjpeg() -> Any:
    try:
        return importlib.import_module("openjpeg")
    except ImportError:
        return None


def _patch(module: Any) -> bool:
    path = importlib.import_module("_openjpeg").__file__ if module is not None and is_checked(module) else None
    if path is None:
        return False
    return native.c_function("ndd_discard_output_of")(path.encode(), b"PyInit__openjpeg")


openjpeg = _import_openjpeg()
patched = _patch(openjpeg)

_MAX_CHANNELS = 1023

# A damaged header may claim more than any file can hold; a blank 48-megapixel image has 132,000 pixels per byte.
_MAX_PIXELS_PER_BYTE = 200_000

_LIBRARY_SAMPLE_BYTES = 4  # OpenJPEG holds every sample as an int32

_BYTES_OF_A_TILE = 14  # the least: its header, and the marker of its data

_CODESTREAM_FORMAT = 0  # of openjpeg.decode


def shape_of(encoded: np.ndarray) -> tuple[int, int, int]:
    """Return height, width and channels of a JPEG 2000 file or codestream, or of its beginning. Raise RuntimeError for damaged data."""
    header = _header_of(encoded, complete=False)
    return header.height, header.width, header.channels


def _header_of(encoded: np.ndarray, complete: bool) -> Jpeg2000Header:
    if openjpeg is None:
        raise RuntimeError(f"JPEG 2000 images need the package {PACKAGE}: pip install {PACKAGE}")
    try:
        header = read_header(np.ascontiguousarray(encoded).data)
        _check_codestream(header)
        if complete and header.height * header.width > _MAX_PIXELS_PER_BYTE * encoded.size:
            raise ValueError(f"{header.height * header.width} pixels in a file of {encoded.size} bytes")
    except UnsupportedError as error:
        raise RuntimeError(f"no CPU decoder for JPEG 2000 images {error}") from None
    except TooShortError as error:
        if complete:
            raise RuntimeError(f"the file is damaged ({error})") from None
        advice = f"pass {error.needed} bytes or more, or a whole file if this one is cut short"
        raise RuntimeError(f"the size lies after these {encoded.size} bytes of a JPEG 2000; {advice}") from None
    except ValueError as error:
        raise RuntimeError(f"the file is damaged ({error})") from None
    return header


def _check_codestream(header: Jpeg2000Header) -> None:
    """Raise UnsupportedError for what pylibjpeg-openjpeg would store in too few bytes, or would convert with wrong colors along the edges."""
    first = header.components[0].depth.bits
    for component in header.components:
        if component.depth.bits > 8 * _stored_bytes(first):
            raise UnsupportedError(f"with {first} bits in the first component and {component.depth.bits} in another one")
    if _is_converted(header) and any(header.y % component.dy or header.x % component.dx for component in header.components):
        raise UnsupportedError(f"with subsampled chroma at the offset {header.y}, {header.x}, which is not a multiple of its distance")
    if max(header.channels, len(header.components)) > _MAX_CHANNELS:
        raise UnsupportedError(f"of more than {_MAX_CHANNELS} channels")
    if header.palette and any(component.dx > 1 or component.dy > 1 for component in header.components):
        raise UnsupportedError("with a palette and subsampled components")


def _stored_bytes(bits: int) -> int:
    """Return how many bytes pylibjpeg-openjpeg gives each sample, by the bits of the first component."""
    return 1 if bits <= 8 else 2 if bits <= 16 else 4


def decode_to_raw(encoded: np.ndarray, max_pixels: int, output_type: str) -> np.ndarray:
    """Decode one JPEG 2000 file or codestream to the raw format. Raise RuntimeError or MemoryError for damaged data and for too many pixels.

    CMYK becomes RGB unless the ``output_type`` is ``ANY_DATA``.
    """
    header = read_checked_header(encoded, max_pixels)
    channels = _channels_of(header, _decode_components(header))
    return pack_raw(channels if channels.shape[2] == 1 else _convert_colors(header, channels, output_type))


def read_checked_header(encoded: np.ndarray, max_pixels: int) -> Jpeg2000Header:
    """Return the header of a complete file. Raise RuntimeError or MemoryError for damaged data and for too many pixels or tiles."""
    header = _header_of(encoded, complete=True)
    _check_pixels(header, max_pixels)
    # OpenJPEG allocates for each tile that the header promises.
    if header.tiles * _BYTES_OF_A_TILE > len(header.codestream):
        raise RuntimeError(f"the header promises {header.tiles} tiles, which {len(header.codestream)} bytes cannot hold")
    return header


def _check_pixels(header: Jpeg2000Header, max_pixels: int) -> None:
    """Raise RuntimeError for more pixels than ``max_pixels``, and MemoryError for more than fit in memory, before anything is allocated."""
    shape = f"{header.height}x{header.width}"
    planes = max(header.channels, len(header.components))
    # Up to four channels count as one pixel, as in csrc/decoders/image.cpp. The library allocates from the origin of the grid, not from the offset.
    pixels = (header.y + header.height) * (header.x + header.width) * -(-planes // 4)
    what = f"{shape} = {pixels}" if planes <= 4 else f"{shape}x{planes}, which count as {pixels}"
    if header.y or header.x:
        what = f"{shape} at the offset {header.y}, {header.x}, which count as {pixels}"
    check_pixels(pixels, max_pixels, what)
    samples = (header.y + header.height) * (header.x + header.width) * planes
    native.check_memory(_LIBRARY_SAMPLE_BYTES * samples, f"{samples} samples of a JPEG 2000 image, each of {_LIBRARY_SAMPLE_BYTES} bytes in OpenJPEG")


def _decode_components(header: Jpeg2000Header) -> np.ndarray:
    """Return the samples of all components (H, W, components) as unsigned integers."""
    file = bytes(header.codestream)
    try:
        stored = openjpeg.decode(file, _CODESTREAM_FORMAT, reshape=False)
    except Exception as error:  # any error of the wrapper on a damaged file
        raise RuntimeError(f"the image data are damaged ({error})") from None
    height, width, count = header.height, header.width, len(header.components)
    size = _stored_bytes(header.components[0].depth.bits)
    # The wrapper sizes its output by its own reading of the header: ours must agree before the bytes are interpreted.
    if stored.size != (header.y + height) * (header.x + width) * count * size:
        raise RuntimeError("the file is damaged (its header can be read in two ways)")
    samples = stored[: height * width * count * size].view(f"<u{size}").reshape(height, width, count)
    for i, component in enumerate(header.components):
        _extend_to_edges(samples[..., i], -header.y % component.dy, -header.x % component.dx)
        if component.depth.signed:
            # Signed samples are moved to the unsigned range; the sum wraps around.
            samples[..., i] += samples.dtype.type(1 << (component.depth.bits - 1))
    return samples


def _extend_to_edges(plane: np.ndarray, top: int, left: int) -> None:
    """Fill the rows and columns in front of the first sample of a subsampled component, which the library leaves zero."""
    if left:
        plane[:, :left] = plane[:, left : left + 1]
    if top:
        plane[:top] = plane[top]


def _channels_of(header: Jpeg2000Header, samples: np.ndarray) -> np.ndarray:
    """Return the channels (H, W, C), after the palette, in the order of their colors and scaled to 8 or 16 bits."""
    depths = [component.depth for component in header.components]
    palette = header.palette
    planes = [samples[..., i] for i in range(len(depths))]
    if palette is not None:
        # An index beyond the palette means its last color, as in OpenJPEG.
        numbers = [np.minimum(plane, len(palette.rows) - 1) for plane in planes]
        table = np.array(palette.rows, np.uint64)
        columns = [_make_unsigned(table[:, i], depth) for i, depth in enumerate(palette.depths)]
        planes = [planes[component] if column is None else columns[column][numbers[component]] for component, column in palette.channels]
        depths = [depths[component] if column is None else palette.depths[column] for component, column in palette.channels]
    in_order = header.order == list(range(len(planes)))
    if all(depth.bits == 8 for depth in depths):
        if palette is None and in_order:
            return samples
        return np.stack([planes[channel] for channel in header.order], -1).astype(np.uint8)
    if palette is None and in_order and len(set(depths)) == 1:
        return _whole_range(samples, depths[0].bits)
    return np.stack([_whole_range(planes[channel], depths[channel].bits) for channel in header.order], -1)


def _make_unsigned(values: np.ndarray, depth: Depth) -> np.ndarray:
    """Move signed values up by half of their range."""
    mask = np.uint64((1 << depth.bits) - 1)
    return (values + np.uint64(1 << (depth.bits - 1)) if depth.signed else values) & mask


def _whole_range(samples: np.ndarray, bits: int) -> np.ndarray:
    """Scale samples of this many bits to 16 bits: 12-bit 4095 and 5-bit 31 become 65535."""
    largest = (1 << bits) - 1
    if bits == 16:
        return samples.astype(np.uint16, copy=False)
    if bits > 16:
        return (np.minimum(samples, largest).astype(np.uint64) >> np.uint64(bits - 16)).astype(np.uint16)
    # A table of at most 65,536 entries takes less time than a division per sample.
    table = (np.arange(largest + 1) * 65535 + largest // 2) // largest
    return table.astype(np.uint16)[np.minimum(samples, largest)]


def _convert_colors(header: Jpeg2000Header, channels: np.ndarray, output_type: str) -> np.ndarray:
    """Convert YCC to RGB, and CMYK unless ``ANY_DATA`` is requested."""
    count = channels.shape[2]
    if header.space == "CMYK" and count >= 4 and output_type != "ANY_DATA":
        return _rgb_of_cmyk(channels)
    if count >= 3 and _is_ycc(header) and not _is_converted(header):
        return np.concatenate([_rgb_of_ycc(channels), channels[..., 3:]], -1)
    return channels


def _is_ycc(header: Jpeg2000Header) -> bool:
    """Return whether the colors are luma and chroma: subsampled chroma implies it, as in OpenJPEG."""
    if header.space == "YCC":
        return True
    luma, *chroma = [(component.dx, component.dy) for component in header.components[:3]]
    return header.space != "CMYK" and luma == (1, 1) and len(chroma) == 2 and chroma[0] == chroma[1] != (1, 1)


def _is_converted(header: Jpeg2000Header) -> bool:
    """Return whether pylibjpeg-openjpeg has turned YCC into RGB."""
    distances = [(component.dx, component.dy) for component in header.components]
    return distances in ([(1, 1), (2, 1), (2, 1)], [(1, 1), (2, 2), (2, 2)])


def _rgb_of_ycc(channels: np.ndarray) -> np.ndarray:
    """Convert full-range YCbCr (IEC 61966-2-1, amendment 1)."""
    largest = np.iinfo(channels.dtype).max
    y = channels[..., 0].astype(np.float32)
    blue, red = (channels[..., i].astype(np.float32) - (largest + 1) // 2 for i in (1, 2))
    rgb = np.stack([y + 1.402 * red, y - 0.344136 * blue - 0.714136 * red, y + 1.772 * blue], -1)
    return np.clip(np.rint(rgb), 0, largest).astype(channels.dtype)


def _rgb_of_cmyk(channels: np.ndarray) -> np.ndarray:
    largest = int(np.iinfo(channels.dtype).max)
    # Wide enough for the product of two samples.
    light = (largest - channels[..., :4].astype(np.uint64)) if channels.dtype != np.uint8 else 255 - channels[..., :4].astype(np.uint32)
    return ((light[..., :3] * light[..., 3:] + largest // 2) // largest).astype(channels.dtype)
