# SPDX-License-Identifier: Apache-2.0
"""Signatures of operators for type checkers and editors: a Batch results in a Batch, and anything that converts to a Tensor in a Tensor."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeAlias, overload

import numpy as np
import torch

from ..values.batch import Batch
from ..values.tensor import Tensor

P = ParamSpec("P")

FileLike: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
ArrayLike: TypeAlias = Tensor | torch.Tensor | np.ndarray | float | Sequence[Any]


class TakesMany(Protocol):
    """A function with any number of inputs; it keeps its own signature."""

    def __call__(self, first: Any, second: Any, third: Any, fourth: Any, /, *, batch_size: int | None = None) -> Any: ...


class OfOneInput(Protocol[P]):
    """An operator with one input."""

    @overload
    def __call__(self, input: Batch, /, *args: P.args, **kwargs: P.kwargs) -> Batch: ...
    @overload
    def __call__(self, input: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...


class OfTwoInputs(Protocol[P]):
    """An operator with two inputs."""

    @overload
    def __call__(self, input_0: Batch, input_1: Batch | ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> Batch: ...
    @overload
    def __call__(self, input_0: ArrayLike, input_1: Batch, /, *args: P.args, **kwargs: P.kwargs) -> Batch: ...
    @overload
    def __call__(self, input_0: ArrayLike, input_1: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...


class PairOfOneInput(Protocol[P]):
    """An operator with two outputs."""

    @overload
    def __call__(self, input: Batch, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Batch, Batch]: ...
    @overload
    def __call__(self, input: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Tensor, Tensor]: ...


class OfShapeLike(Protocol[P]):
    """An operator that needs no input: with ``batch_size=`` it returns a Batch, else a Tensor."""

    @overload
    def __call__(self, shape_like: Batch, /, *args: P.args, **kwargs: P.kwargs) -> Batch: ...
    @overload
    def __call__(self, shape_like: ArrayLike | None = None, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class OfOptionalInput(Protocol[P]):
    """An operator whose second positional value is optional."""

    @overload
    def __call__(self, input: Batch, second: Any = None, /, *args: P.args, **kwargs: P.kwargs) -> Batch: ...
    @overload
    def __call__(self, input: ArrayLike, second: Any = None, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class OfAnyOutputs(Protocol[P]):
    """An operator whose number of outputs depends on its arguments."""

    def __call__(self, input: Batch | ArrayLike, second: Any = None, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class OfFiles(Protocol[P]):
    """An operator on encoded files: a path or the contents of a file result in a Tensor, a list of files in a Batch."""

    @overload
    def __call__(self, input: Batch, /, *args: P.args, **kwargs: P.kwargs) -> Batch: ...
    @overload
    def __call__(self, input: list[str] | list[Path] | list[bytes] | list[FileLike], /, *args: P.args, **kwargs: P.kwargs) -> Batch: ...
    @overload
    def __call__(self, input: ArrayLike | FileLike, /, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...


class PairOfFiles(Protocol[P]):
    """An operator on encoded files with two outputs."""

    @overload
    def __call__(self, input: Batch, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Batch, Batch]: ...
    @overload
    def __call__(self, input: list[str] | list[Path] | list[bytes] | list[FileLike], /, *args: P.args, **kwargs: P.kwargs) -> tuple[Batch, Batch]: ...
    @overload
    def __call__(self, input: ArrayLike | FileLike, /, *args: P.args, **kwargs: P.kwargs) -> tuple[Tensor, Tensor]: ...
