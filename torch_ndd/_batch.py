# SPDX-License-Identifier: Apache-2.0
"""``Batch``: samples of equal type, dimensions and layout, each with its own shape, in one buffer."""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from torch.utils import _pytree as pytree

from . import _native, types
from ._device import Device, DeviceLike, torch_device
from ._operand import Operand, TorchTensor
from ._stream import EvalMode, Pending, current_mode
from ._tensor import (
    ALL_SAMPLES,
    Tensor,
    as_tensor,
    check_layout,
    described,
    new_tensor,
    plain_keys,
    printable,
    saturated,
    sliced,
)

# Inside Batch `slice` is a property.
Slice: TypeAlias = slice


class Batch(Operand):
    """N samples in one buffer: dense (N, ...) when their shapes are equal, else one after the other.

    Made by :func:`batch` and :func:`as_batch`, by readers and by operators. Shapes, type and layout are known at once; whatever needs the values
    waits for them and raises the error of the call that should have made them.

    >>> b = batch([[1, 2, 3], [4, 5]])
    >>> b.batch_size, b.shape, b.select(1).torch().tolist(), (b + 1).tensors[0].torch().tolist()
    (2, [(3,), (2,)], [4, 5], [2, 3, 4])
    """

    # int64 on the CPU (N, ndim), or None when the buffer is dense.
    _shapes: TorchTensor | None
    _samples: list[Tensor | None] | None
    __array_ufunc__ = None  # ndarray + Batch is for Batch to compute

    def __init__(
        self, tensors: Any = None, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None, copy: bool = False
    ) -> None:
        if tensors is None:
            raise ValueError("Batch: tensors must be given")
        made = (batch if copy else as_batch)(tensors, dtype, device, layout)
        self.__dict__.update(made.__dict__)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_samples": None}

    @property
    def batch_size(self) -> int:
        """Number of samples."""
        return (self._values if self._shapes is None else self._shapes).shape[0]

    @property
    def shape(self) -> list[tuple[int, ...]]:
        """The shape of every sample."""
        if self._shapes is None:
            return [tuple(self._values.shape[1:])] * self._values.shape[0]
        return [tuple(row) for row in self._shapes.tolist()]

    @property
    def ndim(self) -> int:
        """Dimensions of a sample."""
        return self._values.dim() - 1 if self._shapes is None else self._shapes.shape[1]

    @property
    def tensors(self) -> "Samples":
        """The samples as a list of Tensors that share the batch's memory."""
        return Samples(self, range(self.batch_size))

    @property
    def slice(self) -> "SampleSlicer":
        """``batch.slice[key]`` indexes every sample."""
        return SampleSlicer(self)

    @overload
    def select(self, key: int) -> Tensor: ...
    @overload
    def select(self, key: Slice | Sequence[int]) -> "Batch": ...
    def select(self, key: Any) -> "Tensor | Batch":
        """One sample for an int, a Batch for a slice or a list of ints, in the order given and with repetitions; IndexError outside the batch.

        >>> batch([10, 20, 30]).select([2, 0]).torch().tolist()
        [30, 10]
        """
        if key is Ellipsis:
            return self
        if isinstance(key, slice):
            return self._selected(range(self.batch_size)[key])
        if isinstance(key, Sequence | np.ndarray):
            return self._selected([_sample_index(k, self.batch_size) for k in key])
        return self._sample(_sample_index(key, self.batch_size))

    def _selected(self, keys: Sequence[int]) -> "Batch":
        if isinstance(keys, range) and keys == range(self.batch_size):
            return self
        values = self._ready()
        if self._shapes is None:
            return new_batch(values[torch.tensor(keys, dtype=torch.int64, device=values.device)], None, self._layout)
        index = torch.tensor(keys, dtype=torch.int64)
        parts = [self._part(k) for k in keys]
        return new_batch(torch.cat(parts) if parts else values[:0], self._shapes[index], self._layout).densified()

    def _sample(self, i: int) -> Tensor:
        samples = self._samples
        if samples is None:
            samples = list[Tensor | None]([None] * self.batch_size)
            self._samples = samples
        made = samples[i]
        if made is None:
            values = self._values[i] if self._shapes is None else self._part(i).view(self._shapes[i].tolist())
            made = samples[i] = new_tensor(values, self._layout, self._pending, i, self._external)
            if self._sources:
                made._sources = self._sources[i : i + 1]
        return made

    def _part(self, i: int) -> TorchTensor:
        begin, end = self._offsets()[i : i + 2]
        return self._values[begin:end]

    def _offsets(self) -> list[int]:
        assert self._shapes is not None
        offsets = self.__dict__.get("_begins")
        if offsets is None:
            offsets = self.__dict__["_begins"] = [0, *self._shapes.prod(1).cumsum(0).tolist()]
        return offsets

    def densified(self) -> "Batch":
        """The same samples, as a dense buffer if their shapes turn out equal."""
        shapes = self._shapes
        if shapes is not None and len(shapes) and bool((shapes == shapes[0]).all()):
            return new_batch(self._values.view(-1, *shapes[0].tolist()), None, self._layout, self._pending, self._external)
        return self

    def __iter__(self) -> Iterator[Tensor]:
        return (self._sample(i) for i in range(self.batch_size))

    @staticmethod
    def broadcast(sample: Any, batch_size: int, device: DeviceLike | None = None, dtype: Any = None) -> "Batch":
        """A batch of ``batch_size`` times the same sample. ValueError when ``sample`` is a Batch.

        >>> Batch.broadcast([1, 2], 3).torch().tolist()
        [[1, 2], [1, 2], [1, 2]]
        """
        if isinstance(sample, Batch):
            raise ValueError("Cannot broadcast a Batch")
        one = as_tensor(sample, dtype, device)
        values = one._ready()
        return new_batch(values.expand(operator.index(batch_size), *values.shape).contiguous(), None, one.layout)

    def to_device(self, device: DeviceLike, force_copy: bool = False) -> "Batch":
        """This batch on a device: itself when it is there already and no copy is forced."""
        target = torch_device(device)
        if target == self._values.device and not force_copy:
            return self
        return new_batch(self._ready().to(target, copy=force_copy, non_blocking=True), self._shapes, self._layout)

    def cpu(self) -> "Batch":
        """This batch in host memory."""
        return self.to_device("cpu")

    def gpu(self, index: int | None = None) -> "Batch":
        """This batch on a GPU, by default the current one."""
        return self.to_device(Device("gpu", index))

    def torch(self, copy: bool | None = None, pad: bool = False) -> TorchTensor:
        """All samples as one torch tensor (N, ...), which shares memory with this batch where it can.

        Args:
            copy: True always copies; False raises ValueError where a copy would be needed.
            pad: Fill samples of different shape up with zeros; without it they raise ValueError.
        """
        if self._shapes is not None and copy is False:
            raise ValueError("The batch cannot be converted to a tensor without a copy.")
        values = self._stacked(pad)._ready()
        return values.clone() if copy and values is self._values else values

    def _stacked(self, pad: bool = False) -> Tensor:
        layout = "N" + (self._layout or "") if self._layout or self.ndim == 0 else None
        if self._shapes is None:
            return new_tensor(self._values, layout, self._pending, ALL_SAMPLES, self._external)
        if not pad:
            raise ValueError(f"The batch has a non-uniform shape {_abbreviated(self.shape)}; pad=True fills the samples up with zeros.")
        self._ready()
        largest = self._shapes.amax(0).tolist() if len(self._shapes) else [0] * self.ndim
        values = torch.zeros((self.batch_size, *largest), dtype=self.dtype, device=self._values.device)
        for i, one in enumerate(self):
            values[(i, *(slice(n) for n in one.shape))] = one._values
        return new_tensor(values, layout)

    def __repr__(self) -> str:
        samples = ",\n".join(str(printable(one)) for one in self.cpu())
        return f"Batch([{described(f'{samples}]', self)}, num_samples={self.batch_size}, shape={_abbreviated(self.shape)})"


def _abbreviated(shapes: list[tuple[int, ...]]) -> str:
    shown = [str(shape) for shape in shapes]
    if len(shown) > 16:
        shown[2:-2] = ["..."]
    return f"[{', '.join(shown)}]"


def _sample_index(key: Any, size: int) -> int:
    index = operator.index(key)
    if not -size <= index < size:
        raise IndexError(f"sample {index} is out of range for a batch of {size}")
    return index % size if size else index


class Samples(Sequence[Tensor]):
    """The samples of a batch as a list. Each Tensor is made once, when it is asked for."""

    def __init__(self, owner: Batch, indices: Sequence[int]) -> None:
        self._owner = owner
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, key: int) -> Tensor: ...
    @overload
    def __getitem__(self, key: "slice | list[int]") -> "Samples": ...
    def __getitem__(self, key: Any) -> "Tensor | Samples":
        if isinstance(key, slice):
            return Samples(self._owner, self._indices[key])
        if isinstance(key, list):
            return Samples(self._owner, [self._indices[_sample_index(k, len(self))] for k in key])
        return self._owner._sample(self._indices[_sample_index(key, len(self))])

    def tolist(self) -> list[Tensor]:
        """An ordinary list."""
        return list(self)

    def select(self, key: Any) -> "Tensor | Samples":
        """The same as indexing."""
        return self[key]

    def as_batch(self, copy: bool = False) -> Batch:
        """These samples as a Batch: the batch itself when they are all of it."""
        made = self._owner._selected(self._indices)
        return batch(made) if copy else made


class SampleSlicer:
    """What ``batch.slice`` gives: indexing it indexes every sample."""

    def __init__(self, owner: Batch) -> None:
        self._owner = owner

    def __getitem__(self, key: Any) -> Batch:
        owner = self._owner
        keys = key if isinstance(key, tuple) else (key,)
        varying = [k for k in _bounds(keys) if isinstance(k, Batch)]
        for k in varying:
            if k.batch_size != owner.batch_size:
                raise ValueError(f"Inconsistent batch size: {owner.batch_size} != {k.batch_size}")
        if len(keys) <= owner.ndim and all(map(_takes_all, keys)):
            return owner
        values = owner._ready()
        if owner._shapes is None and not varying:
            part, layout = sliced(values, "N" + owner.layout if owner.layout else None, (slice(None), *_of_sample(keys, 0)))
            return owner if part is values else new_batch(part.contiguous(), None, (layout or "N")[1:] or None)
        samples, layout = [], owner.layout
        for i, one in enumerate(owner):
            try:
                part, layout = sliced(one._values, owner.layout, _of_sample(keys, i))
            except IndexError as error:
                raise IndexError(f"{error}, in sample {i} of the batch") from None
            samples.append(part)
        return _packed(samples, layout) if samples else owner


def _takes_all(key: Any) -> bool:
    return key is Ellipsis or (isinstance(key, slice) and key.start in (None, 0) and key.stop is None and key.step in (None, 1))


def _bounds(keys: Iterable[Any]) -> Iterator[Any]:
    for key in keys:
        yield from (key.start, key.stop, key.step) if isinstance(key, slice) else (key,)


def _of_sample(keys: tuple[Any, ...], i: int) -> tuple[Any, ...]:
    return plain_keys(keys, lambda key: key._sample(i).item() if isinstance(key, Batch) else key)


def new_batch(
    values: torch.Tensor, shapes: torch.Tensor | None = None, layout: str | None = None, pending: Pending | None = None, external: bool = False
) -> Batch:
    """A Batch over values and shapes that are right already."""
    made = Batch.__new__(Batch)
    made._values = values
    made._shapes = shapes
    made._layout = layout
    made._pending = pending
    made._external = external
    made._samples = None
    return made


def empty_batch(batch_size: int, shape: Sequence["int | torch.Tensor"], dtype: torch.dtype, device: torch.device, layout: str | None = None) -> Batch:
    """An unfilled batch. An extent is a number, or an int64 tensor (N,) with one for each sample; equal ones make the batch dense."""
    if not any(isinstance(extent, torch.Tensor) for extent in shape):
        return new_batch(_native.empty([batch_size, *shape], dtype, device), None, layout)  # type: ignore[list-item]
    if torch.compiler.is_compiling():
        unknown = [k for k, extent in enumerate(shape) if isinstance(extent, torch.Tensor)]
        if layout is not None and len(unknown) == 1 and layout[unknown[0]] == "C":
            sizes = [batch_size, *(-1 if isinstance(extent, torch.Tensor) else extent for extent in shape)]
            return new_batch(torch.ops.ndd.empty_equal(sizes, shape[unknown[0]], dtype, device), None, layout)
        columns = [extent if isinstance(extent, torch.Tensor) else torch.full((batch_size,), extent, dtype=torch.int64) for extent in shape]
        return empty_packed(torch.stack([column.expand(batch_size) for column in columns], 1), dtype, device, layout)
    rows = np.empty((batch_size, len(shape)), np.int64)
    for k, extent in enumerate(shape):
        rows[:, k] = extent.numpy() if isinstance(extent, torch.Tensor) else extent
    return empty_packed(torch.from_numpy(rows), dtype, device, layout)


def empty_packed(shapes: torch.Tensor, dtype: torch.dtype, device: torch.device, layout: str | None = None) -> Batch:
    """An unfilled batch with these shapes, int64 (N, ndim); dense when they are equal."""
    if torch.compiler.is_compiling():
        return new_batch(torch.ops.ndd.empty_packed(shapes, dtype, device), shapes, layout)
    rows = shapes.numpy()
    if len(rows) and (rows == rows[0]).all():
        return new_batch(_native.empty([len(rows), *rows[0].tolist()], dtype, device), None, layout)
    return new_batch(_native.empty([_native.volume(shapes, dtype.itemsize)], dtype, device), shapes, layout)


def _packed(samples: Sequence[torch.Tensor], layout: str | None) -> Batch:
    """One buffer with a copy of the samples, which have one type and number of dimensions."""
    first = samples[0]
    if all(one.shape == first.shape for one in samples):
        return new_batch(torch.stack(tuple(samples)), None, layout)
    shapes = torch.tensor([tuple(one.shape) for one in samples], dtype=torch.int64)
    return new_batch(torch.cat([one.reshape(-1) for one in samples]), shapes, layout)


def batch(tensors: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None) -> Batch:
    """A Batch with memory of its own. See :func:`as_batch`."""
    made = as_batch(tensors, dtype, device, layout)
    if made is tensors or made._external or isinstance(tensors, Batch):
        made = new_batch(made._ready().clone(), made._shapes, made._layout)
    return made


def as_batch(tensors: Any, dtype: Any = None, device: DeviceLike | None = None, layout: str | None = None) -> Batch:
    """A Batch from samples, without a copy where that is possible.

    An array is split along its first dimension and shares its memory; of a list or another iterable each element becomes a sample, converted to
    the type and device of the first one; a Batch is returned as it is. ``layout`` describes a sample.

    Raises:
        TypeError: nothing to iterate over, or an element that is no tensor.
        ValueError: no elements and no dtype, a scalar, or a layout that does not fit.
        RuntimeError: samples with different numbers of dimensions.

    >>> as_batch(torch.zeros(4, 2, 3), layout="HW").shape[0]
    (2, 3)
    """
    if isinstance(tensors, Batch):
        return _changed(tensors, dtype, device, layout)
    if isinstance(tensors, Samples):
        return _changed(tensors.as_batch(), dtype, device, layout)
    if isinstance(tensors, str | bytes) or tensors is None:
        raise TypeError(f"a Batch is made from tensors, not from {tensors!r}")
    if isinstance(tensors, Tensor | np.ndarray | torch.Tensor) or hasattr(tensors, "__dlpack__") or hasattr(tensors, "__array__"):
        whole = as_tensor(tensors)
        if whole.ndim == 0:
            raise ValueError("Cannot create a batch from a scalar")
        made = new_batch(whole._ready(), None, (whole.layout or "N")[1:] or None, external=whole._external)
        return _changed(made, dtype, device, layout)
    return _from_samples(list(tensors), dtype, device, layout)


def _changed(made: Batch, dtype: Any, device: DeviceLike | None, layout: str | None) -> Batch:
    wanted = made.dtype if dtype is None else types.to_dtype(dtype)
    if wanted != made.dtype:
        made = new_batch(saturated(made._ready(), wanted), made._shapes, made._layout)
    if device is not None:
        made = made.to_device(device)
    if layout is not None and check_layout("batch", layout, made.ndim) != made.layout:
        made = new_batch(made._values, made._shapes, layout or None, made._pending, made._external)
    return made


def _from_samples(samples: list[Any], dtype: Any, device: DeviceLike | None, layout: str | None) -> Batch:
    if not samples:
        if dtype is None:
            raise ValueError("Element type must be specified when creating an empty batch: pass dtype=")
        target = torch.device("cpu") if device is None else torch_device(device)
        shapes = torch.empty((0, len(layout or "")), dtype=torch.int64)
        return new_batch(torch.empty(0, dtype=types.to_dtype(dtype), device=target), shapes, layout or None)
    made: list[Tensor] = []
    for i, one in enumerate(samples):
        if one is None or isinstance(one, Batch):
            raise TypeError(f"sample {i} of a batch must be a tensor, got {type(one).__name__}")
        first = made[0] if made else None
        made.append(as_tensor(one, dtype if first is None else first.dtype, device if first is None else first.device))
        if first is not None and made[-1].ndim != first.ndim:
            raise RuntimeError(f"sample {i} of a batch has {made[-1].ndim} dimensions, sample 0 has {first.ndim}: the sample dimensions must agree")
    layout = check_layout("batch", next((t.layout for t in made if t.layout), None) if layout is None else layout, made[0].ndim)
    packed = _packed([one._ready() for one in made], layout)
    if current_mode() >= EvalMode.sync_cpu:
        packed.evaluate()
    return packed


def _flatten_batch(value: Batch) -> tuple[list[Any], Any]:
    return [value._ready(), value._shapes], value.layout


def _unflatten_batch(children: Iterable[Any], layout: Any) -> Batch:
    values, shapes = children
    return new_batch(values, shapes, layout)


def _register(kind: type, flatten: Callable[[Any], Any], unflatten: Callable[..., Any]) -> None:
    pytree.register_pytree_node(kind, flatten, unflatten, serialized_type_name=f"torch_ndd.{kind.__name__}")


_register(Batch, _flatten_batch, _unflatten_batch)
_register(Tensor, lambda value: ([value._ready()], value.layout), lambda children, layout: new_tensor(next(iter(children)), layout))
