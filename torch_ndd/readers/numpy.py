# SPDX-License-Identifier: Apache-2.0
"""Arrays from ``.npy`` files."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack, override

from .._core import native
from .._core.context.device import DeviceLike
from .._core.values.batch import Batch, new_batch, ragged_batch
from .._core.values.operand import unwrap
from .._core.values.tensor import Tensor
from .._core.work.bad_samples import UnreadableSamples
from ..ops.geometry._crop_window import Policy, check_policy
from . import _gds
from ._options import LoaderOptions, find_target
from ._ranges.file_lists import FileArguments
from ._ranges.ranges import NativeRequest, Path, Ranges, Sources
from ._ranges.remote import RemoteRanges, native_request
from ._threads import BatchThreadsReader

_POLICIES = native.numbers("numpy.Policy")
_STARTS, _ENDS = ("roi_start", "rel_roi_start"), ("roi_end", "rel_roi_end", "roi_shape", "rel_roi_shape")


class Numpy(BatchThreadsReader):
    """Read arrays, or a window of each, from ``.npy`` files: 1-tuples of arrays in C order and native byte order.

    The files are given by ``file_root`` (those in it and in its subdirectories that match ``file_filter``), ``files``, or the lines of ``file_list``.
    Only the rows of the window are read. A window starts at ``roi_start``, by default 0, and ends before ``roi_end``, or has ``roi_shape``; by
    default it ends where the array does. The arguments with ``rel_`` are fractions of the array's extents; limits are rounded. A single value applies
    to all axes.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``, ``register_buffers`` and ``use_o_direct``; accepted for compatibility with DALI.
        device: Where the arrays are delivered: ``"gpu"`` reads them like ``"cpu"`` and copies each batch to the current GPU (``"gpu:1"``: to that
            GPU) on the stream of the context. With GPUDirect Storage (cuFile and the kernel module nvidia-fs; see ``python -m torch_ndd``)
            whole arrays of local files go from the disk to the GPU. Not in worker processes of a DataLoader, which must not use CUDA.
        cache_header_information: Parse the header of each file only once; the files must not change.
        file_filter: Pattern of file names in ``file_root``.
        file_list: Text file with one path per line, relative to ``file_root`` or to the text file's folder.
        file_root: A folder.
        files: Paths, relative to ``file_root``.
        fill_value: Value outside the array with ``out_of_bounds_policy="pad"``.
        out_of_bounds_policy: What to do with a window that leaves the array: ``"error"`` makes it a bad sample, ``"pad"``, ``"constant"`` or
            ``"fill"`` pads it, ``"trim_to_shape"`` trims it.
        roi_axes: Axes of the limits, by default all; negative axes count from the last.
        roi_start, roi_end, roi_shape, rel_roi_start, rel_roi_end, rel_roi_shape: The window: numbers, or an array of them; at most one start and one
            of the others. A call ``reader(batch_size=..., roi_start=...)`` takes them too, also as a Batch with those of each sample.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        ValueError: a Batch as an argument.
        RuntimeError: there is no GPU for ``device="gpu"``; at the first step, if there are no files, and for limits that exclude each other; at any
            step, for a file that cannot be read or differs in dtype or number of dimensions from the rest of its batch, and for a window outside
            the array.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a.npy"
    >>> np.save(path, np.arange(12).reshape(3, 4))
    >>> [array.torch().tolist() for (array,) in Numpy(files=[path], roi_start=[1, 0], roi_shape=[2, 3]).next_epoch()]
    [[[4, 5, 6], [8, 9, 10]]]
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        cache_header_information: bool | None = None,
        file_filter: str | None = None,
        file_list: Path | None = None,
        file_root: Path | None = None,
        files: Path | Sequence[Path] | None = None,
        fill_value: float | None = None,
        out_of_bounds_policy: Policy | None = None,
        register_buffers: bool | None = None,
        rel_roi_end: Any = None,
        rel_roi_shape: Any = None,
        rel_roi_start: Any = None,
        roi_axes: int | Sequence[int] | None = None,
        roi_end: Any = None,
        roi_shape: Any = None,
        roi_start: Any = None,
        use_o_direct: bool | None = None,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        self._target = find_target("readers.Numpy", device)
        # The files are read on the CPU whatever the device is; `finish` moves the arrays to the target.
        super().__init__(max_batch_size, "cpu", loader)
        self._files = FileArguments(file_root, file_list, files)
        self._needs = self._files.needs
        self._filter = "*.npy" if file_filter is None else file_filter
        self._fill = 0.0 if fill_value is None else float(fill_value)
        self._policy = "error" if out_of_bounds_policy is None else out_of_bounds_policy
        axes = [] if roi_axes is None else roi_axes
        self._axes = np.array([axes] if isinstance(axes, int) else list(axes), np.int64)
        limits = {"roi_start": roi_start, "roi_end": roi_end, "roi_shape": roi_shape}
        limits |= {"rel_roi_start": rel_roi_start, "rel_roi_end": rel_roi_end, "rel_roi_shape": rel_roi_shape}
        if any(isinstance(unwrap(limit), Batch) for limit in limits.values()):
            raise ValueError(f"{self._op}: Readers cannot be constructed with batch keyword arguments")
        self._limits = {key: _values(self._op, key, value) for key, value in limits.items() if value is not None}
        self._now: dict[str, np.ndarray] = {}  # limits of the running call
        self._headers = _Headers() if cache_header_information else None
        self._ranges: Ranges | None = None

    def __call__(self, *, batch_size: int | None = None, **limits: Any) -> Any:
        """Return one batch or sample, with windows of its own."""
        if not limits:
            return super().__call__(batch_size=batch_size)
        for key in limits:
            if key not in (*_STARTS, *_ENDS):
                raise TypeError(f"{self._op}: got an unexpected keyword argument {key!r}")
            if key in self._limits:
                raise ValueError(f"{self._op}: Keyword argument {key!r} cannot be passed both in the constructor and __call__.")
        with self._lock:
            self._now = {key: _values(self._op, key, value) for key, value in limits.items()}
            self._ahead.clear()  # those requests have other windows
            self._build_order()
            depth, self._depth = self._depth, 0  # requests read ahead now would have the windows of this call
            try:
                return super().__call__(batch_size=batch_size)
            finally:
                self._now, self._depth = {}, depth
                self._ahead.clear()

    @override
    def scan(self) -> int:
        if self._ranges is None:
            self._policy = check_policy(self._op, self._policy).policy
            self._ranges = self._files.find(self._op, self._filter)
        return self._ranges.size

    def _source(self, sample: int) -> str:
        assert self._ranges is not None
        return self._ranges.place(sample)

    @override
    def start(self, samples: np.ndarray) -> Any:
        assert self._ranges is not None
        roi = self._roi(len(samples))
        if isinstance(self._ranges, RemoteRanges):  # cached headers are keyed by path
            return native_request(lambda ranges, numbers: _NpyRequest(ranges, roi, None, numbers), self._ranges, samples)
        if self._target.type != "cpu" and not roi.start.size and not roi.end.size and (library := _gds.find_library()) is not None:
            headers = _NpyRequest(self._ranges, roi, self._headers, samples, only_headers=True)
            return _DirectRequest(library, self._ranges, headers, samples, self._target, self._submit)
        return _NpyRequest(self._ranges, roi, self._headers, samples)

    def _roi(self, samples: int) -> "_Roi":
        limits = {**self._limits, **self._now}
        # A start and an end may each be given in elements or relative to the shape, but not both ways.
        for names in (_STARTS, _ENDS):
            both = [name for name in names if name in limits]
            if len(both) > 1:
                raise RuntimeError(f"{self._op}: {' and '.join(both)} are mutually exclusive")
        start, end = (next((name for name in names if name in limits), None) for names in (_STARTS, _ENDS))
        first, last = (np.zeros((0, 0)) if name is None else limits[name] for name in (start, end))
        for name, rows in ((start, first), (end, last)):
            if len(rows) not in (0, 1, samples):
                raise ValueError(f"{self._op}: {name} has {len(rows)} samples for a batch of {samples}")
        # Relative start, relative end, end is a shape, axes given: the native code reads them in this order.
        flags = [(start or "").startswith("rel"), (end or "").startswith("rel"), (end or "").endswith("shape"), len(self._axes) > 0]
        return _Roi(first, last, np.array(flags, np.int64), self._axes, _POLICIES[self._policy], self._fill)

    @override
    def read_samples(self, samples: np.ndarray) -> tuple[Batch]:
        return self.finish(self.start(samples), samples)

    @override
    def finish(self, request: Any, samples: np.ndarray) -> tuple[Batch]:
        assert self._ranges is not None
        arrays = request.finish()
        if arrays is None:  # a file system or an order of elements that only the ordinary way reads
            arrays = _NpyRequest(self._ranges, self._roi(len(samples)), self._headers, samples).finish()
        if self._target.type != "cpu":
            arrays = arrays.to_device(self._target)
        arrays.sources = Sources(self._ranges.path, samples)
        return (arrays,)


class _Roi(NamedTuple):
    """The windows of some samples in the form that the native code takes."""

    start: np.ndarray  # (rows, columns)
    end: np.ndarray
    flags: np.ndarray
    axes: np.ndarray
    policy: int
    fill: float


class _Headers:
    """Cached headers."""

    def __init__(self) -> None:
        self.handle = native.npy_headers_make()
        self._owner = native.own_handle(self.handle, native.OF_HEADERS)

    # A handle is valid in its process only; a copy begins with an empty cache.
    def __reduce__(self) -> Any:
        return _Headers, ()


class _NpyRequest(NativeRequest):
    """A request for arrays."""

    def __init__(self, ranges: Ranges, roi: _Roi, headers: _Headers | None, samples: np.ndarray, only_headers: bool = False) -> None:
        self._ranges, self._roi, self._headers, self._only_headers = ranges, roi, headers, only_headers
        # Kept as an attribute: native code reads the array until the request has ended.
        self._numbers = samples.astype(np.int32)
        super().__init__(len(samples))

    def _begin(self) -> int:
        ranges, roi = self._ranges, self._roi
        # Address, rows and columns of each limit.
        limits = [word for limit in (roi.start, roi.end) for word in (limit.ctypes.data, *limit.shape)]
        paths = ranges.root, ranges.paths, ranges.path_offsets.ctypes.data, self._numbers.ctypes.data, len(self._numbers)
        headers = None if self._headers is None else self._headers.handle
        window = roi.flags.ctypes.data, roi.axes.ctypes.data, len(roi.axes), roi.policy, roi.fill
        return native.npy_start(headers, *paths, *limits, *window, self._only_headers)

    def finish(self) -> Batch:
        """Wait and return the arrays. Raise UnreadableSamples for samples that could not be read."""
        dtype, shapes = self.wait_for_shapes()
        return _as_batch(torch.ops.ndd.npy_bytes(self._handle), dtype, shapes)

    def wait_for_shapes(self) -> tuple[torch.dtype, np.ndarray]:
        """Wait and return the dtype and the shapes of the arrays, (samples, dimensions). Raise UnreadableSamples for those that could not be read."""
        self.wait()
        kind = np.empty(1, np.int64)
        # Called twice: without a buffer it returns the number of dimensions, by which the buffer is allocated.
        ndim = native.npy_shapes(self._handle, kind.ctypes.data, None)
        shapes = np.empty((self.samples, ndim), np.int64)
        native.npy_shapes(self._handle, kind.ctypes.data, shapes.ctypes.data)
        return native.DTYPES[int(kind[0])], shapes

    def positions(self) -> np.ndarray:
        """Return where the elements of each array begin in its file, after waiting; -1 for elements in another order than a batch has them."""
        positions = np.empty(self.samples, np.int64)
        native.npy_positions(self._handle, positions.ctypes.data)
        return positions


class _DirectRequest:
    """A request for whole arrays that are read to a GPU without passing through host memory, on a thread."""

    def __init__(
        self,
        library: Any,
        ranges: Ranges,
        headers: _NpyRequest,
        samples: np.ndarray,
        device: torch.device,
        submit: Callable[[Callable[[], Batch | None]], "Future[Batch | None]"],
    ) -> None:
        self._library, self._ranges, self._headers, self._device = library, ranges, headers, device
        self._samples, self._process = samples.tolist(), os.getpid()
        self._arrays = submit(self._read)

    def _read(self) -> Batch | None:
        with torch.cuda.device(self._device):  # cuFile reads into the memory of the thread's current GPU
            return self._read_to_gpu()

    def _read_to_gpu(self) -> Batch | None:
        dtype, shapes = self._headers.wait_for_shapes()
        positions = self._headers.positions()
        if (positions < 0).any():
            return None
        sizes = shapes.prod(axis=1) * dtype.itemsize
        buffer = _gds.new_buffer(int(sizes.sum()), self._device)
        reasons, address = {}, buffer.data_ptr()
        for k, (sample, position, size) in enumerate(zip(self._samples, positions.tolist(), sizes.tolist(), strict=True)):
            try:
                with _gds.DirectFile(self._library, self._ranges.path(sample)) as file:
                    file.read(address, size, position)
            except _gds.NotDirectError as error:
                _gds.warn_of_ordinary_reads(str(error))
                return None
            except OSError as error:
                reasons[k] = str(error)
            address += size
        if reasons:
            raise UnreadableSamples(reasons)
        return _as_batch(buffer, dtype, shapes)

    def finish(self) -> Batch | None:
        """Wait and return the arrays, or None if they cannot be read this way. Raise UnreadableSamples for samples that could not be read."""
        if self._process != os.getpid():  # a forked child has no threads
            return None
        arrays = self._arrays.result()
        if arrays is not None and arrays.buffer.device.type == "cuda":
            # The memory belongs to the stream on which it was allocated.
            arrays.buffer.record_stream(torch.cuda.current_stream(self._device))
        return arrays


def _as_batch(values: torch.Tensor, dtype: torch.dtype, shapes: np.ndarray) -> Batch:
    """Return the bytes of arrays, which lie one after the other, as a batch."""
    values = values.view(dtype)
    if (shapes == shapes[0]).all():
        return new_batch(values.view(len(shapes), *shapes[0].tolist()))
    return ragged_batch(values, shapes)


def _values(op: str, name: str, value: Any) -> np.ndarray:
    """Convert a limit to float64 (1, columns), or (samples, columns) for a Batch; limits in elements are rounded."""
    value = unwrap(value)
    if isinstance(value, Batch):
        rows = np.asarray(value.torch(), np.float64)
    else:
        if isinstance(value, Tensor | torch.Tensor):
            value = np.asarray(value)
        try:
            rows = np.atleast_1d(np.asarray(value, np.float64))[None]
        except (TypeError, ValueError):
            raise TypeError(f"{op}: {name} must be numbers, got {value!r}") from None
    # A Batch of scalars is one column.
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2:
        raise ValueError(f"{op}: {name} must be a number or a list of them, got {value!r}")
    # Relative limits have the precision of float32; limits in elements are rounded half away from zero.
    rows = rows.astype(np.float32).astype(np.float64) if name.startswith("rel") else np.trunc(rows + np.copysign(0.5, rows))
    return np.ascontiguousarray(rows)
