# SPDX-License-Identifier: Apache-2.0
"""``Batch``: samples of equal type, dimensions and layout, each with its own shape, in one buffer."""

import operator
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TypeAlias, overload

import numpy as np
import torch

from ... import types
from ..context.device import DeviceLike, torch_device
from ..native import allocate_samples, check_samples, empty
from ..native.tracing import is_compiling
from ..work.pending import ALL_SAMPLES, SAME_SAMPLE, Pending
from ..work.sources import UNKNOWN, select_sources, with_source
from . import ragged
from .arithmetic import Arithmetic
from .collect import collect, fence, is_array
from .dispatch import output, run
from .extents import SharedExtents, confirm_extents, find_lasting_extents, merge_extents, shape_table, slice_extents
from .html import format_values
from .indexing import has_varying, plain_keys, remaining_layout, take, takes_all, to_numbers, whole, window, windows
from .operand import Operand, TorchTensor, unwrap
from .printing import format_batch
from .samples import Samples, SampleSlicer, sample_index
from .tensor import Tensor, as_tensor, check_layout, convert_values, load_values, new_tensor, unshare_memory

# Inside Batch `slice` is a property.
Slice: TypeAlias = slice


class Batch(Arithmetic):
    """N samples in one buffer: dense (N, ...) if their shapes are equal, otherwise packed, one after the other.

    Created by :func:`batch` and :func:`as_batch`, by readers and by operators. Shapes, dtype and layout are known immediately; access to the values
    waits for them and raises the error of the call that should have produced them.

    >>> b = batch([[1, 2, 3], [4, 5]])
    >>> b.batch_size, b.shape, b.select(1).torch().tolist(), (b + 1).tensors[0].torch().tolist()
    (2, [(3,), (2,)], [4, 5], [2, 3, 4])
    """

    _is_batch = True
    ragged_shapes: TorchTensor | None  # int64 on the CPU (N, ndim), or None if the buffer is dense
    shared_extents: SharedExtents | None  # of a ragged batch: see extents.py
    _samples: list[Tensor | None] | None
    __array_ufunc__ = None  # Batch computes ndarray + Batch

    def __init__(
        self, tensors: Any = None, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, *, copy: bool = False
    ) -> None:
        if tensors is None:
            raise ValueError("Batch: the argument 'tensors' is missing")
        result = (batch if copy else as_batch)(tensors, dtype, device, layout)
        # A class with two constructors: the functions create, and their result becomes this object.
        self.__dict__.update({**result.__dict__, "_samples": None})

    # --- shapes ---

    @property
    def batch_size(self) -> int:
        """Number of samples."""
        return (self.buffer if self.ragged_shapes is None else self.ragged_shapes).shape[0]

    @property
    def shape(self) -> list[tuple[int, ...]]:
        """Shape of every sample; known before the values."""
        if self.ragged_shapes is None:
            # The same tuple N times: samples of a dense batch need no conversion each.
            return [tuple(self.buffer.shape[1:])] * self.buffer.shape[0]
        rows = [tuple(row) for row in self.ragged_shapes.tolist()]
        # The shapes of a compiled graph are data; a shared extent in their place avoids a recompilation.
        if self.shared_extents is not None and is_compiling():  # a constant in the graph, which need not be read
            rows = [tuple(n if known is None else known for n, known in zip(row, self.shared_extents, strict=True)) for row in rows]
        return rows

    @property
    def ndim(self) -> int:
        """Number of dimensions of a sample."""
        if self.ragged_shapes is None:
            return self.buffer.dim() - 1
        # In a graph with dynamic=True the shape of the table is a symbol, which cannot be an index of a layout.
        return self.ragged_shapes.shape[1] if self.shared_extents is None else len(self.shared_extents)

    def shared_extent(self, axis: int) -> int | None:
        """Return the extent that all samples share along an axis, or None if they differ, or if it is unknown before a compiled graph runs."""
        if self.ragged_shapes is None:
            return self.buffer.shape[1:][axis]
        if self.shared_extents is not None and (extent := self.shared_extents[axis]) is not None:
            return extent
        if is_compiling() or not len(self.ragged_shapes):
            return None
        # NumPy, because torch takes several microseconds for each of these operations.
        column = self.ragged_shapes.numpy()[:, axis]
        return int(column[0]) if (column == column[0]).all() else None

    def frame_counts(self) -> "int | TorchTensor":
        """Return the first extent of the samples: a number if the batch is dense, else int64 (N,) with one per sample.

        :meta private:
        """
        return self.buffer.shape[1] if self.ragged_shapes is None else self.ragged_shapes[:, 0]

    def sample_shapes(self) -> TorchTensor:
        """Return the shapes of the samples, int64 (N, ndim), dense or not."""
        if self.ragged_shapes is not None:
            return self.ragged_shapes
        return torch.tensor([self.buffer.shape[1:]], dtype=torch.int64, device="cpu").reshape(1, -1).expand(self.buffer.shape[0], -1)

    def part(self, i: int) -> TorchTensor:
        """Return the values of one sample of a ragged batch.

        :meta private:
        """
        begin, end = self._offsets()[i : i + 2]
        return self.buffer[begin:end]

    def _offsets(self) -> list[int]:
        assert self.ragged_shapes is not None
        offsets = self.__dict__.get("_begins")
        if offsets is None:
            # Once per batch: the samples of a ragged batch are usually taken one after the other.
            offsets = self.__dict__["_begins"] = [0, *self.ragged_shapes.prod(1).cumsum(0).tolist()]
        return offsets

    # --- samples ---

    @property
    def kept(self) -> list[int]:
        """Indices of the decoder's input samples that it could decode; see :attr:`errors`. All samples for any other batch.

        After ``images = decoders.image(files, on_error="skip")`` the labels of the images are ``labels.select(images.kept)``.
        """
        self.wait()
        return self.failures.kept_samples() if self.failures else list(range(self.batch_size))

    @property
    def tensors(self) -> "Samples[Batch]":
        """The samples as a list of Tensors that share the batch's memory."""
        return Samples(self, range(self.batch_size))

    @property
    def slice(self) -> "SampleSlicer[Batch]":
        """``batch.slice[key]`` indexes every sample, like :meth:`Tensor.__getitem__`; a Batch of numbers in the key has one per sample.

        >>> b = batch([[1, 2, 3], [4, 5]])
        >>> b.slice[:-1].shape, b.slice[batch([2, 0])].torch().tolist()
        ([(2,), (1,)], [3, 4])
        """
        return SampleSlicer(self)

    @overload
    def select(self, key: int) -> Tensor: ...
    @overload
    def select(self, key: Slice | Sequence[int]) -> "Batch": ...
    def select(self, key: Any) -> "Tensor | Batch":
        """Return one sample for an int, a Batch for a slice or a list of ints, in the given order. Raise IndexError out of range.

        >>> batch([10, 20, 30]).select([2, 0]).torch().tolist()
        [30, 10]
        """
        if key is Ellipsis:
            return self
        if isinstance(key, slice):
            return self.select_samples(range(self.batch_size)[key])
        if isinstance(key, Sequence) or (isinstance(key, np.ndarray) and key.ndim):
            return self.select_samples([sample_index(k, self.batch_size) for k in key])
        return self.nth(sample_index(key, self.batch_size))

    def select_samples(self, keys: Sequence[int]) -> "Batch":
        self = self.settle()
        size = self.batch_size
        if isinstance(keys, range) and keys == range(size):
            return self
        if not keys:
            keys = range(0)
        # Consecutive samples are consecutive in the buffer as well and need no copy.
        if isinstance(keys, range) and (keys.step == 1 or len(keys) == 1):
            # The samples have other numbers here than in the pending work: readers of the part wait for all of it.
            first, last, pending = keys.start, keys.start + len(keys), fence(self, ALL_SAMPLES)
            if self.ragged_shapes is None:
                result = new_batch(self.buffer[first:last], None, self._layout, pending, self.caller_owned)
            else:
                begins = self._offsets()
                values = self.buffer[begins[first] : begins[last]]
                # Some samples of a ragged batch may have equal shapes.
                result = new_batch(values, self.ragged_shapes[first:last], self._layout, pending, self.caller_owned, self.shared_extents).densify()
        else:
            index = torch.tensor(keys, dtype=torch.int64, device="cpu")
            if self.ragged_shapes is None:
                result = new_batch(output(empty, [len(keys), *self.buffer.shape[1:]], self.buffer.dtype, self.buffer.device), None, self._layout)
            else:
                result = output(empty_packed, self.ragged_shapes[index], self.buffer.dtype, self.buffer.device, self._layout, self.shared_extents)
            self._take(index, *whole(self.ndim), result)
        result.sources = select_sources(self.sources, keys)
        return result

    def _take(self, index: TorchTensor | None, starts: TorchTensor, steps: TorchTensor, out: "Batch") -> None:
        """Fill ``out`` with parts of samples."""
        arguments = (self.buffer, self.ragged_shapes, index, starts, steps, out.buffer, out.ragged_shapes)
        out.pending = run(take, arguments, [(self, SAME_SAMPLE if index is None else ALL_SAMPLES)], out.buffer)

    def _result(self, values: TorchTensor, shapes: TorchTensor | None, layout: str | None, pending: Pending | None, shared_extents: Any) -> "Batch":
        return new_batch(values, shapes, layout, pending, shared_extents=shared_extents)

    def _over(self, values: TorchTensor) -> "Batch":
        return new_batch(values, self.ragged_shapes, self._layout, shared_extents=self.shared_extents)

    def copy_values(self) -> "Batch":
        self = self.settle()
        values = self.buffer
        # A kernel orders the copy after the pending work without waiting here.
        if self.pending is None:
            return self.with_buffer(empty(values.shape, values.dtype, values.device).copy_(values), None)
        result = self.with_buffer(output(empty, values.shape, values.dtype, values.device), None)
        self._take(None, *whole(self.ndim), result)
        return result

    def with_buffer(self, values: TorchTensor, pending: Pending | None, caller_owned: bool = False) -> "Batch":
        result = new_batch(values, self.ragged_shapes, self._layout, pending, caller_owned, self.shared_extents)
        result.sources, result.failures = self.sources, self.failures
        return result

    def nth(self, i: int) -> Tensor:
        # In a graph the sample is an operation on the batch, and a cache of objects would not outlive the trace.
        if is_compiling() and self.ragged_shapes is None:
            return new_tensor(self.settle().buffer[i], self._layout)
        # Each sample exists once, so b.tensors[0] is b.tensors[0].
        samples = self._samples
        if samples is None:
            samples = list[Tensor | None]([None] * self.batch_size)
            self._samples = samples
        result = samples[i]
        if result is None:
            values = self.buffer[i] if self.ragged_shapes is None else self.part(i).view(self.ragged_shapes[i].tolist())
            result = samples[i] = new_tensor(values, self._layout, self.pending, i, self.caller_owned)
            if self.sources is not UNKNOWN:
                result.sources = self.sources[i : i + 1]
        return result

    def densify(self) -> "Batch":
        """Return the same samples, as a dense buffer if their shapes turn out equal."""
        shapes = self.ragged_shapes
        if shapes is not None and len(shapes) and ((rows := shapes.numpy()) == rows[0]).all():
            result = new_batch(self.buffer.view(len(shapes), *shapes[0].tolist()), None, self._layout, self.pending, self.caller_owned)
            result.sources = self.sources
            return result
        return self

    def densified(self) -> "Batch":
        """Call :meth:`densify`. Deprecated."""
        warnings.warn("Batch.densified is deprecated; use Batch.densify", DeprecationWarning, stacklevel=2)
        return self.densify()

    def __bool__(self) -> bool:
        # Without this `if batch == other:` and `0 < batch < 5` would hold for every batch.
        raise ValueError(
            "The truth value of a Batch is ambiguous: each sample has its own. Write (batch > 0).torch().any() or .all(), or batch.batch_size > 0 "
            "to see whether there are samples"
        )

    def __getitem__(self, key: Any) -> NoReturn:
        raise TypeError(
            f"a Batch has no [{key!r:.40}]: batch.tensors[0] or batch.select(0) is a sample, batch.select([0, 1]) are some, "
            "and batch.slice[...] indexes every sample"
        )

    def __float__(self) -> float:
        raise TypeError(f"cannot convert a Batch of {self.batch_size} samples to a number; batch.tensors[0] is the first, batch.torch() has all")

    def __int__(self) -> int:
        return int(float(self))

    def __iter__(self) -> Iterator[Tensor]:
        return (self.nth(i) for i in range(self.batch_size))

    # --- export: samples of different shapes raise ValueError ---

    def torch(self, copy: bool | None = None, pad: bool = False) -> TorchTensor:
        """Return all samples as one torch tensor (N, ...), which shares memory with this batch if possible.

        Args:
            copy: True always copies; False raises ValueError if a copy is needed.
            pad: Pad samples of different shapes with zeros (:meth:`padded` also returns their lengths); without it they raise ValueError.
        """
        if self.ragged_shapes is not None and copy is False:
            raise ValueError("The batch cannot be converted to a tensor without a copy.")
        values = self.export_buffer()  # raises the error of the call that made this batch, not of the padding
        if self.ragged_shapes is not None:
            return self.stack(pad, lazily=False).wait()
        return values.clone() if copy and values is self.buffer else values

    def stack(self, pad: bool = False, value: float = 0, lazily: bool = True) -> Tensor:
        """Return all samples as one Tensor. If their shapes differ, raise ValueError: when the result is used or, not ``lazily``, immediately."""
        self = self.settle()
        layout = "N" + (self._layout or "") if self._layout or self.ndim == 0 else None
        if self.ragged_shapes is None:
            # All samples in one array are the buffer.
            return new_tensor(self.buffer, layout, self.pending, ALL_SAMPLES, self.caller_owned)
        if pad or not self.batch_size:
            return ragged.stack_padded(self, self.ragged_shapes, value, layout)
        # The caller's memory may change before a late error would be raised, and graphs have none.
        late = lazily and not self.caller_owned and not is_compiling()
        return ragged.refuse_stacking(self, self.shape, layout, late)

    def padded(self, value: float = 0) -> ragged.Padded:
        """Pad all samples with ``value`` to the largest extents, in one Tensor, and return it with lengths and a mask.

        Args:
            value: A number that float32 represents exactly; it is saturated if the dtype is smaller.

        Returns:
            ``values`` (N, ...); ``lengths``, the extents of each sample, int64 (N, ndim); ``mask``, bool of the shape of ``values``, True for data.
            On the device of this batch.

        >>> from torch_ndd import batch
        >>> values, lengths, mask = batch([[1, 2], [3]]).padded(-1)
        >>> values.torch().tolist(), lengths.torch().tolist(), mask.torch().tolist()
        ([[1, 2], [3, -1]], [[2], [1]], [[True, True], [True, False]])
        """
        return ragged.describe_padding(self.stack(True, ragged.check_fill("padded", value)), self.sample_shapes())

    def packed(self) -> ragged.Packed:
        """Join sequences of different lengths along their first axis, without a copy: for attention with ``cu_seqlens``.

        Returns:
            ``values`` (T, ...), which share this batch's memory and may be pending; ``cu_seqlens`` int32 (N + 1), where each sequence begins and
            the last one ends; ``max_seqlen``, the largest length; ``position_ids`` int64 (T,), positions within the sequence; ``sequence_ids`` int64
            (T,), the number of the sequence. On the device of this batch.

        Raises:
            ValueError: samples without dimensions, or that differ in another extent than the first.

        >>> from torch_ndd import batch
        >>> values, cu_seqlens, longest, positions, sequences = batch([[5, 6], [7]]).packed()
        >>> values.torch().tolist(), cu_seqlens.torch().tolist(), longest, positions.torch().tolist(), sequences.torch().tolist()
        ([5, 6, 7], [0, 2, 3], 2, [0, 1, 0], [0, 0, 1])
        """
        self = self.settle()
        shapes = self.sample_shapes()
        joined = ragged.join_sequences(self.buffer, shapes)
        return ragged.pack(new_tensor(joined, None, self.pending, ALL_SAMPLES, self.caller_owned), shapes[:, 0])

    def nested(self) -> TorchTensor:
        """Return all samples as one NestedTensor: in torch's jagged layout if at most one dimension differs, else in its strided one.

        It shares memory with this batch if the dimension that differs is the first one. Raise ValueError for samples without dimensions.

        >>> from torch_ndd import batch
        >>> batch([[1, 2], [3]]).nested().unbind()
        (tensor([1, 2], dtype=torch.int32), tensor([3], dtype=torch.int32))
        """
        return ragged.nest(self.export_buffer(), self.ragged_shapes, self.ndim)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.stack(lazily=False).__array__(dtype, copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.stack(lazily=False).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.stack(lazily=False).__dlpack_device__()

    # --- parts of samples ---

    def _slice(self, keys: tuple[Any, ...]) -> "Batch":
        if takes_all(keys):
            return self
        self = self.settle()
        # Also checks the keys.
        varying = has_varying(keys, self.batch_size)
        keys = plain_keys(keys, self.ndim, "sample", RuntimeError)
        layout = remaining_layout(self._layout, keys)
        values = self.buffer
        if self.ragged_shapes is None and not varying:
            try:
                part = window(values.shape[1:], keys)
            except IndexError as error:
                raise IndexError(f"{error}, in sample 0 of the batch") from None
            view = part.view(values, 1)
            if view is not None and is_compiling():
                return new_batch(view.contiguous(), None, layout)
            # A part of the caller's memory is copied, because the caller may overwrite it.
            if view is not None and view.is_contiguous() and not self.caller_owned:
                result = new_batch(view, None, layout, self.pending)
            else:
                result = new_batch(output(empty, [values.shape[0], *part.extents], values.dtype, values.device), None, layout)
                self._take(None, torch.tensor([part.starts], device="cpu"), torch.tensor([part.steps], device="cpu"), result)
        else:
            try:
                # Each sample has a window of its own, computed for all in one pass of NumPy.
                starts, steps, extents = windows(self.sample_shapes(), to_numbers(keys))
            except IndexError as error:
                raise IndexError(with_source(str(error), self.sources)) from None
            shared_extents = slice_extents(tuple(values.shape[1:]) if self.ragged_shapes is None else self.shared_extents, keys)
            result = output(empty_packed, extents, values.dtype, values.device, layout, shared_extents)
            self._take(None, starts, steps, result)
        result.sources = self.sources
        return result

    def _parts_of(self, whole: Tensor, keys: tuple[Any, ...]) -> "Batch":
        """Return ``whole[keys]``, where a key has one number for each sample of this batch."""
        size = self.batch_size
        has_varying(keys, size)
        keys = plain_keys(keys, whole.ndim, "Tensor", ValueError)
        shapes = torch.tensor([whole.shape], dtype=torch.int64, device="cpu").reshape(1, -1).expand(size, -1)
        starts, steps, extents = windows(shapes, to_numbers(keys))
        result = output(
            empty_packed, extents, whole.dtype, whole.buffer.device, remaining_layout(whole.layout, keys), slice_extents(whole.shape, keys)
        )
        return _take_from(whole, starts, steps, result)

    # --- elsewhere ---

    @staticmethod
    def broadcast(sample: Any, batch_size: int, device: DeviceLike | None = None, dtype: Any = None) -> "Batch":
        """Return a batch that repeats the same sample ``batch_size`` times.

        Raises:
            ValueError: ``sample`` is a Batch, or the size is negative.
            TypeError: the size is not an integer, or ``sample`` is not a tensor.

        >>> Batch.broadcast([1, 2], 3).torch().tolist()
        [[1, 2], [1, 2], [1, 2]]
        """
        if isinstance(sample, Batch):
            raise ValueError("Cannot broadcast a Batch")
        size = operator.index(batch_size)
        if size < 0:
            raise ValueError(f"batch_size must not be negative, got {size}")
        check_samples("Batch.broadcast", size)
        if sample is None:
            raise TypeError("cannot broadcast None: a sample is created from numbers, lists and arrays")
        return repeat_sample(as_tensor(sample, dtype, device), size)

    def __copy__(self) -> "Batch":
        return self.with_buffer(self.buffer, self.pending, self.caller_owned)

    def __getstate__(self) -> dict[str, Any]:
        shapes = None if self.ragged_shapes is None else unshare_memory(self.ragged_shapes)
        sources = tuple(self.sources)
        return {"values": unshare_memory(self.wait()), "shapes": shapes, "layout": self._layout, "sources": sources, "fixed": self.shared_extents}

    def __setstate__(self, state: dict[str, Any]) -> None:
        values, sources = load_values("Batch", state)
        shapes, shared_extents = ragged.check_saved_shapes(state.get("shapes"), values), state.get("fixed")
        ndim, size = (values.dim() - 1, values.shape[0]) if shapes is None else (shapes.shape[1], shapes.shape[0])
        if len(sources) not in (0, size) or not (shared_extents is None or (isinstance(shared_extents, tuple) and len(shared_extents) == ndim)):
            raise ValueError(
                f"Batch: {len(sources)} sources and the extents {shared_extents!r:.100} do not fit {size} samples with {ndim} dimensions"
            )
        Operand.__init__(self, values, check_layout("Batch", state["layout"], ndim), None, False)
        self.ragged_shapes, self._samples, self.sources = shapes, None, sources
        # A file may claim any extents, and a graph would trust them.
        self.shared_extents = None if shapes is None else confirm_extents(shared_extents, shapes.tolist())

    def __repr__(self) -> str:
        return format_batch(self)

    def _repr_html_(self) -> str:
        return format_values(self)


def new_batch(
    values: torch.Tensor,
    shapes: torch.Tensor | None = None,
    layout: str | None = None,
    pending: Pending | None = None,
    caller_owned: bool = False,
    shared_extents: SharedExtents | None = None,
) -> Batch:
    """Create a Batch over values and shapes that are valid; ``shared_extents`` are the extents that ragged samples share."""
    # Without __init__, which converts: this runs once per result.
    result = Batch.__new__(Batch)
    result.buffer = values
    result.ragged_shapes = shapes
    result.shared_extents = shared_extents
    result._layout = layout
    result.pending = pending
    result.caller_owned = caller_owned
    result._samples = None
    return result


def _take_from(sample: Tensor, starts: torch.Tensor, steps: torch.Tensor, out: Batch) -> Batch:
    """Fill a batch with parts of one sample, which is number 0 of a batch of one."""
    index = torch.zeros(out.batch_size, dtype=torch.int64, device="cpu")
    arguments = (sample.buffer[None], None, index, starts, steps, out.buffer, out.ragged_shapes)
    out.pending = run(take, arguments, [(sample, sample._sample)], out.buffer)
    return out


def repeat_sample(sample: Tensor, batch_size: int) -> Batch:
    """Return a batch of this many copies of a sample."""
    sample = sample.settle()
    result = new_batch(output(empty, [batch_size, *sample.shape], sample.dtype, sample.buffer.device), None, sample.layout)
    _take_from(sample, *whole(sample.ndim), result)
    if sample.sources is not UNKNOWN:
        result.sources = tuple(sample.sources) * batch_size
    return result


def empty_batch(batch_size: int, shape: Sequence["int | torch.Tensor"], dtype: torch.dtype, device: torch.device, layout: str | None = None) -> Batch:
    """Return an unfilled batch. An extent is a number, or an int64 tensor (N,) with one per sample; equal ones make the batch dense."""
    plain = [not isinstance(extent, torch.Tensor) for extent in shape]
    if all(plain):
        return new_batch(empty([batch_size, *shape], dtype, device), None, layout)  # type: ignore[list-item]
    shared_extents: Any = tuple([extent if known else None for extent, known in zip(shape, plain, strict=True)])
    if is_compiling():
        # Channels that only the samples determine: a graph takes equal ones, so the result stays dense.
        unknown = [k for k, extent in enumerate(shape) if isinstance(extent, torch.Tensor)]
        if layout is not None and len(unknown) == 1 and layout[unknown[0]] == "C":
            sizes = [batch_size, *(-1 if isinstance(extent, torch.Tensor) else extent for extent in shape)]
            return new_batch(torch.ops.ndd.empty_equal(sizes, shape[unknown[0]], dtype, device), None, layout)
        columns = [
            extent if isinstance(extent, torch.Tensor) else torch.full((batch_size,), extent, dtype=torch.int64, device="cpu") for extent in shape
        ]
        return empty_packed(torch.stack([column.expand(batch_size) for column in columns], 1), dtype, device, layout, shared_extents)
    return empty_packed(shape_table(batch_size, shape), dtype, device, layout, shared_extents)


def empty_packed(
    shapes: torch.Tensor, dtype: torch.dtype, device: torch.device, layout: str | None = None, shared_extents: SharedExtents | None = None
) -> Batch:
    """Return an unfilled batch with these shapes, int64 (N, ndim), and the extents ``shared_extents`` that they share; dense if they are equal."""
    values, ragged_shapes = allocate_samples(shapes, dtype, device)
    return new_batch(values, ragged_shapes, layout, shared_extents=None if ragged_shapes is None else shared_extents)


def ragged_batch(values: torch.Tensor, shapes: np.ndarray, layout: str | None = None) -> Batch:
    """Return a ragged batch over contiguous samples with these shapes, int64 (N, ndim)."""
    return new_batch(values, torch.from_numpy(shapes), layout, shared_extents=find_lasting_extents(shapes.tolist(), layout))


def batch(tensors: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None) -> Batch:
    """Create a Batch with its own memory. See :func:`as_batch`."""
    tensors = unwrap(tensors)
    result = _create(tensors, dtype, device, layout, share=False)
    # What was converted from Python numbers is new already.
    return result.copy_values() if result.caller_owned or result is tensors or isinstance(tensors, Batch | Samples | Tensor) else result


def as_batch(tensors: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None) -> Batch:
    """Create a Batch from samples, without a copy if possible.

    An array is split along its first dimension and shares its memory; each element of a list or another iterable becomes a sample, converted to the
    dtype and device of the first one; a Batch is returned unchanged, the tensor list of a pipeline as one. ``layout`` describes a sample. Samples
    that are contiguous in memory, like those of ``batch.tensors`` or ``torch.Tensor.unbind``, share their memory; all others are copied into one
    buffer.

    Raises:
        TypeError: an object that cannot be iterated over, or an element that is not a tensor.
        ValueError: no elements and no dtype, a scalar, or a layout that does not fit.
        RuntimeError: text, or samples with different numbers of dimensions.
        OverflowError: a number that does not fit the type.

    >>> as_batch(torch.zeros(4, 2, 3), layout="HW").shape[0]
    (2, 3)
    """
    return _create(tensors, dtype, device, layout, share=True)


def _create(tensors: Any, dtype: Any, device: DeviceLike | None, layout: str | None, share: bool) -> Batch:
    tensors = unwrap(tensors)
    if isinstance(tensors, Batch):
        return _convert(tensors, dtype, device, layout)
    if isinstance(tensors, Samples):
        return _convert(tensors.as_batch(), dtype, device, layout)
    if isinstance(tensors, str | bytes):
        raise RuntimeError(f"a Batch is created from tensors, not from {type(tensors).__name__}")
    if tensors is None:
        raise TypeError("a Batch is created from tensors, not from None")
    if is_array(tensors):
        array = as_tensor(tensors)
        if array.ndim == 0:
            raise ValueError("Cannot create a batch from a scalar")
        # A Tensor that is one sample of pending work becomes a batch whose samples have other numbers there.
        pending = array.pending if array.pending is None or array._sample == ALL_SAMPLES else fence(array, array._sample)
        # The first letter names the dimension that becomes the batch.
        split = new_batch(array.buffer, None, (array.layout or "N")[1:] or None, pending, array.caller_owned)
        return _convert(split, dtype, device, layout)
    samples = list(tensors)
    # Without samples there is nothing to take the type from.
    if not samples:
        if dtype is None:
            raise ValueError("Element type must be specified when creating an empty batch: pass dtype=")
        target = torch.device("cpu") if device is None else torch_device(device)
        shapes = torch.empty((0, len(layout or "")), dtype=torch.int64, device="cpu")
        return new_batch(torch.empty(0, dtype=types.to_dtype(dtype), device=target), shapes, layout or None)
    # Samples in a list may have any device, dtype and pending work; what they share is found there.
    values, shapes, layout, pending, caller_owned, shared_extents, sources = collect(samples, dtype, device, layout, share)
    result = new_batch(values, shapes, layout, pending, caller_owned, shared_extents)
    if sources is not UNKNOWN:
        result.sources = sources
    return result


def _convert(result: Batch, dtype: Any, device: DeviceLike | None, layout: str | None) -> Batch:
    if device is not None:
        result = result.to_device(device)
    target = result.dtype if dtype is None else types.to_dtype(dtype)
    if target != result.dtype:
        result = result.settle()
        result = result.with_buffer(*convert_values(result, result.buffer, result.ragged_shapes, SAME_SAMPLE, target))
    # A new object, because the given batch keeps its layout.
    if layout is not None and check_layout("batch", layout, result.ndim) != result.layout:
        result = result.with_buffer(result.buffer, result.pending, result.caller_owned)  # torch 2.11 cannot trace copy.copy
        result._layout = layout or None
        # The layout says which axis has the channels, whose number graphs may rely on.
        if result.ragged_shapes is not None and not is_compiling():
            result.shared_extents = merge_extents(result.shared_extents, find_lasting_extents(result.ragged_shapes.tolist(), result._layout))
    return result
