# SPDX-License-Identifier: Apache-2.0
"""Augmentations: functions of data and a parameter that are called with a magnitude."""

import warnings
from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np

from ...._core.suggestions import check_choice
from ... import types
from ...data_node import DataNode
from ._args import MissingArgException, check_positional, filter_arguments, missing
from ._random import random_index

ParamDevice = Literal["cpu", "gpu", "auto"]


class _Unchanged:
    def __repr__(self) -> str:
        return "<unchanged>"


# Distinguishes an argument that was not passed from None, which restores the default.
_UNCHANGED: Any = _Unchanged()


def as_array(magnitude: float) -> np.ndarray:
    """Return the magnitude as the parameter."""
    return np.array(magnitude)


class SignedBin:
    """A magnitude and its random sign, see :func:`signed_bin`.

    Attributes:
        bin: Number of the magnitude, an int or a node.
        random_sign: Node of 0 and 1.
        signed_magnitude_idx: Index into a table of pairs: each magnitude, then its negative.
    """

    def __init__(self, magnitude_bin: Any, random_sign: DataNode, signed_magnitude_idx: Any = None) -> None:
        self.bin = magnitude_bin
        self.random_sign = random_sign
        # Tables of parameters have two rows for each magnitude, see signed_params.
        self.signed_magnitude_idx = magnitude_bin * 2 + random_sign if signed_magnitude_idx is None else signed_magnitude_idx

    def __getitem__(self, key: Any) -> "SignedBin":
        magnitude_bin = self.bin[key] if isinstance(self.bin, DataNode) else self.bin
        return SignedBin(magnitude_bin, self.random_sign[key], self.signed_magnitude_idx[key])


def signed_bin(magnitude_bin: Any, random_sign: DataNode | None = None, seed: int | None = None, shape: Any = None) -> SignedBin:
    """Combine a magnitude with a random sign per sample.

    Inside conditions an augmentation that is called with the result needs no random numbers of its own.

    Args:
        magnitude_bin: From 0 to ``num_magnitude_bins - 1``: an int, or a node of ints.
        random_sign: Node of 0 (unchanged) and 1 (negated); drawn by default.
        seed: Of the drawn signs.
        shape: Shape of the drawn signs in each sample, by default one number.
    """
    if not isinstance(magnitude_bin, int | np.integer | DataNode):
        raise Exception(f"The `magnitude_bin` must be an int or a `DataNode` of ints, got {magnitude_bin!r}")
    if random_sign is None:
        return SignedBin(magnitude_bin, random_index(2, seed, shape))
    return SignedBin(magnitude_bin, random_sign)


class Augmentation:
    """A function of data and a parameter, called with the index of a magnitude; the result of the decorator ``augmentation``.

    Attributes:
        op: The function.
        mag_range: Smallest and largest magnitude, an array of all magnitudes, or None for a function without a parameter.
        randomly_negate: Whether the opposite magnitude is equally likely.
        mag_to_param: Function from a magnitude to the parameter.
        param_device: Where the parameters are: ``"cpu"``, ``"gpu"``, or ``"auto"`` for the device of the data.
        name: For messages.
    """

    def __init__(
        self,
        op: Callable[..., Any],
        mag_range: Any = None,
        randomly_negate: bool | None = None,
        mag_to_param: Callable[[float], Any] | None = None,
        param_device: ParamDevice | None = None,
        name: str | None = None,
    ) -> None:
        check_positional(op)
        if param_device is not None:
            check_choice("augmentation", "param_device", param_device, get_args(ParamDevice), Exception)
        self._op = op
        # Settings as they were passed: a copy with other settings keeps the defaults of the rest.
        self._config = {
            "mag_range": mag_range,
            "randomly_negate": randomly_negate,
            "mag_to_param": mag_to_param,
            "param_device": param_device,
            "name": name,
        }

    @property
    def op(self) -> Callable[..., Any]:
        """The decorated function."""
        return self._op

    @property
    def name(self) -> str:
        """Name for messages: by default that of the function."""
        return self._config["name"] or getattr(self._op, "__name__", repr(self._op))

    @property
    def mag_range(self) -> Any:
        """Smallest and largest magnitude, an array of all of them, or None."""
        return self._config["mag_range"]

    @property
    def randomly_negate(self) -> bool:
        """Whether the opposite magnitude is equally likely."""
        return bool(self._config["randomly_negate"])

    @property
    def mag_to_param(self) -> Callable[[float], Any]:
        """Function from a magnitude to the parameter: by default the magnitude itself as an array."""
        return self._config["mag_to_param"] or as_array

    @property
    def param_device(self) -> str:
        """Where the parameters are."""
        return self._config["param_device"] or "cpu"

    def __repr__(self) -> str:
        settings = "".join(f", {key}={value!r}" for key, value in self._config.items() if value is not None)
        return f"Augmentation({self._op!r}{settings})"

    def augmentation(
        self,
        mag_range: Any = _UNCHANGED,
        randomly_negate: Any = _UNCHANGED,
        mag_to_param: Any = _UNCHANGED,
        param_device: Any = _UNCHANGED,
        name: Any = _UNCHANGED,
        augmentation_cls: Any = None,
    ) -> "Augmentation":
        """Return an augmentation with the same function and other settings; None stands for the default."""
        changed = {
            "mag_range": mag_range,
            "randomly_negate": randomly_negate,
            "mag_to_param": mag_to_param,
            "param_device": param_device,
            "name": name,
        }
        return (augmentation_cls or type(self))(
            self._op, **{key: self._config[key] if value is _UNCHANGED else value for key, value in changed.items()}
        )

    def __call__(self, data: Any, *, magnitude_bin: Any = None, num_magnitude_bins: int | None = None, **kwargs: Any) -> Any:
        """Return the augmented data.

        Args:
            data: Node of the samples.
            magnitude_bin: From 0 to ``num_magnitude_bins - 1``: an int, a node of ints, or a result of :func:`signed_bin`.
            num_magnitude_bins: Number of magnitudes.
            kwargs: Other arguments of the function; those that are not its parameters are ignored.

        Raises:
            Exception: an argument is missing, or a magnitude out of range.
        """
        absent = missing(self._op, kwargs)
        if absent:
            raise MissingArgException(
                f"The augmentation `{self.name}` requires arguments that were not provided to the call: {', '.join(absent)}", self.name, absent
            )
        parameter = None if self.mag_range is None else self._parameter(data, magnitude_bin, num_magnitude_bins)
        return self._op(data, parameter, **filter_arguments(self._op, kwargs))

    # --- Parameters

    def _parameter(self, data: Any, magnitude_bin: Any, num_magnitude_bins: int | None) -> Any:
        if magnitude_bin is None:
            raise Exception(f"The augmentation `{self.name}` has magnitudes: `magnitude_bin` is required")
        magnitudes = self._get_magnitudes(num_magnitude_bins)
        index = magnitude_bin.bin if isinstance(magnitude_bin, SignedBin) else magnitude_bin
        if not isinstance(index, DataNode) and not (isinstance(index, int | np.integer) and 0 <= index < len(magnitudes)):
            raise Exception(
                f"The augmentation `{self.name}`: the `magnitude_bin` must be an int from `[0, {len(magnitudes) - 1}]` range. Got `{index}`"
            )
        # Constants of the graph: a parameter, or a table of all parameters that the node of the magnitude indexes.
        device = self._device(data)
        if not self.randomly_negate:
            if not isinstance(index, DataNode):
                return types.Constant(self._map_mag_to_param(magnitudes[index]), device=device)
            return types.Constant(self.all_params(num_magnitude_bins), device=device)[index]
        if not isinstance(magnitude_bin, SignedBin):
            warnings.warn(
                f"The augmentation `{self.name}` was declared with `random_negate=True`, but unsigned `magnitude_bin` was passed to the augmentation "
                "call. The sign is drawn; pass a result of `signed_bin` to choose it",
                stacklevel=3,
            )
            magnitude_bin = signed_bin(magnitude_bin)
        return types.Constant(self.signed_params(num_magnitude_bins), device=device)[magnitude_bin.signed_magnitude_idx]

    def _device(self, data: Any) -> str:
        return getattr(data, "device", "cpu") if self.param_device == "auto" else self.param_device

    def all_params(self, num_magnitude_bins: int | None) -> np.ndarray:
        """Return the parameters of all magnitudes."""
        return self._map_mags_to_params(self._get_magnitudes(num_magnitude_bins))

    def signed_params(self, num_magnitude_bins: int | None) -> np.ndarray:
        """Return the parameters of all magnitudes, each followed by that of its negative."""
        # The layout that SignedBin.signed_magnitude_idx indexes.
        magnitudes = self._get_magnitudes(num_magnitude_bins)
        return self._map_mags_to_params([signed for magnitude in magnitudes for signed in (magnitude, -magnitude)])

    def _get_magnitudes(self, num_magnitude_bins: int | None) -> Any:
        """Return all magnitudes; None without a range."""
        limits = self.mag_range
        if limits is None:
            return None
        if isinstance(limits, np.ndarray):
            if num_magnitude_bins is not None and num_magnitude_bins != len(limits):
                raise Exception(
                    f"The augmentation `{self.name}` has its own list of {len(limits)} magnitudes: `num_magnitude_bins` must be None, got "
                    f"{num_magnitude_bins}"
                )
            return limits
        if num_magnitude_bins is None:
            raise Exception(f"The augmentation `{self.name}` has a range of magnitudes: `num_magnitude_bins` is required")
        low, high = limits
        return np.linspace(low, high, num_magnitude_bins, dtype=np.float32)

    def _map_mag_to_param(self, magnitude: float) -> np.ndarray:
        value = self.mag_to_param(magnitude)
        # A tensor of DALI or a node has no values while the graph is defined.
        parameter = np.array(value) if not isinstance(value, DataNode) and not hasattr(value, "source") else np.array(None)
        if parameter.dtype.kind not in "biuf":
            raise Exception(
                f"The `mag_to_param` callback must return parameter that is `np.ndarray` or can be converted to one. The callback of the "
                f"augmentation `{self.name}` returned {value!r} for the magnitude {magnitude}"
            )
        return parameter

    def _map_mags_to_params(self, magnitudes: Any) -> np.ndarray:
        """Return the parameters of magnitudes as one array."""
        parameters = [self._map_mag_to_param(magnitude) for magnitude in magnitudes]
        first = parameters[0]
        for parameter, magnitude in zip(parameters, magnitudes, strict=True):
            if (parameter.shape, parameter.dtype) != (first.shape, first.dtype):
                raise Exception(
                    f"The `mag_to_param` callback of the `{self.name}` augmentation must return the arrays of the same type and shape for "
                    f"all magnitudes. The parameter of the magnitude {magnitudes[0]} has shape {first.shape} and type {first.dtype}, that of "
                    f"{magnitude} has shape {parameter.shape} and type {parameter.dtype}."
                )
        return np.stack(parameters)
