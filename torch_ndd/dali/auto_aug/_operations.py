# SPDX-License-Identifier: Apache-2.0
"""The augmentations of :mod:`torch_ndd.augment` as operations of a graph: a single one with its parameters, or a policy that draws them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ... import types as ndd_types
from ..._core.values.batch import Batch, as_batch
from ...augment._apply import Step as AugmentStep
from ...augment._apply import apply_steps
from ...augment._augmentations import MATRICES, VALUES, Augmentation, ByteStep, EncodedValues
from ...augment._inputs import draw_numbers
from ...ops.color._byte_steps import KINDS
from ...ops.filters.convolution import filter as correlate
from ...ops.generic.convert import cast
from .. import types
from .._graph.graph import Operation, Step
from .._graph.operations import OperatorOperation
from ..data_node import DataNode, as_node, create
from .core._augmentation import Augmentation as Pipelined


def _shear_matrix(amounts: Any, height: float, width: float) -> Any:
    del height, width
    return [[1, amounts[0], 0], [amounts[1], 1, 0]]


def _translation_matrix(offsets: Any, height: float, width: float) -> Any:
    del height, width
    return [[1, 0, offsets[0]], [0, 1, offsets[1]]]


def _filter(images: Batch, kernels: Batch) -> Batch:
    return cast(correlate(images, kernels.to_device(images.device)), dtype=images.dtype)


def _mask_bits(images: Batch, masks: Batch) -> Batch:
    return images & cast(masks, dtype=torch.uint8).to_device(images.device)


def _encode_filter(weights: Any, channels: int) -> ByteStep:
    del channels
    return (KINDS["filter"], weights.reshape(-1).tolist()) if np.shape(weights) == (3, 3) else None


def _encode_mask(mask: Any, channels: int) -> ByteStep:
    del channels
    return KINDS["mask_bits"], (mask,)


def _in_levels(name: str) -> EncodedValues:
    """Return the function of an augmentation for a parameter that is a level of 255 in DALI and a fraction in ``augment``."""
    values = VALUES[name]
    assert isinstance(values, EncodedValues)
    return EncodedValues(
        lambda images, levels: values(images, levels * (1 / 255)), lambda level, channels: values.encode(level * np.float32(1 / 255), channels)
    )


# By name: functions of images and DALI's parameters, which are numbers, pairs (x, y), 3x3 kernels or bit masks.
KERNELS = {
    "shear": Augmentation("shear", matrix=_shear_matrix),
    "translate": Augmentation("translate", matrix=_translation_matrix),
    "rotate": Augmentation("rotate", matrix=MATRICES["rotate"]),
    "sharpness": Augmentation("sharpness", values=EncodedValues(_filter, _encode_filter)),
    "posterize": Augmentation("posterize", values=EncodedValues(_mask_bits, _encode_mask)),
    **{name: Augmentation(name, values=_in_levels(name)) for name in ("solarize", "solarize_add")},
    **{name: Augmentation(name, values=VALUES[name]) for name in ("brightness", "contrast", "color", "invert", "equalize", "auto_contrast")},
    "identity": Augmentation("identity"),
}


@dataclass(frozen=True)
class Kernel:
    """The computation of an augmentation of this package.

    Attributes:
        name: Name in ``KERNELS``.
        relative: The parameter is a fraction of the extents of an image, in the argument ``shape``.
    """

    name: str
    relative: bool = False


def _apply_steps(
    title: str, images: Batch, steps: Sequence[Sequence[tuple[Kernel, Any]]], shapes: Batch | None, fill_value: Any, interp_type: Any
) -> Batch:
    """Return the images after the steps of each sample."""
    # DALI's augmentations accept images without a layout; results have the layout of the input.
    layout, original = images.layout, images
    if layout is None and images.ndim == 3:
        images = as_batch(images, layout="HWC")
    if images.layout not in ("HWC", "FHWC"):
        raise RuntimeError(f"{title}: images must have the layout HWC or FHWC, got {layout or 'no layout'} with {images.ndim} dimensions")
    used = {kernel.name for sample_steps in steps for kernel, _ in sample_steps}
    if images.dtype is not torch.uint8 and not used <= {"shear", "translate", "rotate", "identity"}:
        raise RuntimeError(f"{title}: images must be uint8, got {ndd_types.dtype_name(images.dtype)}")
    extents = None if shapes is None else [np.asarray(shape.torch()) for shape in shapes]
    augment_steps: list[list[AugmentStep]] = []
    for k, sample_steps in enumerate(steps):
        row = []
        for kernel, parameter in sample_steps:
            if kernel.relative:
                assert extents is not None
                # Parameters are pairs (x, y), shapes begin with the height.
                parameter = parameter * extents[k][[1, 0]]
            row.append((KERNELS[kernel.name], parameter))
        augment_steps.append(row)
    result = _apply_by_channels(title, images, augment_steps, fill_value, interp_type)
    return result if result.layout == original.layout else as_batch(result, layout=original.layout or "")


def _apply_by_channels(title: str, images: Batch, steps: list[list[AugmentStep]], fill_value: Any, interp_type: Any) -> Batch:
    """Return the images after their steps; images with different numbers of channels are in different calls."""
    # The usual case. A graph may mix gray and colored images, for which no operator makes one batch.
    if not images.batch_size or images.shared_extent(-1) is not None:
        return apply_steps(title, images, steps, None, None, fill_value, 0, interp_type)[0]
    groups: dict[int, list[int]] = {}
    for k, shape in enumerate(images.shape):
        groups.setdefault(shape[-1], []).append(k)
    samples: dict[int, Any] = {}
    for indices in groups.values():
        part = apply_steps(title, images.select(indices), [steps[k] for k in indices], None, None, fill_value, 0, interp_type)[0]
        samples.update(zip(indices, part, strict=True))
    return as_batch([samples[k] for k in range(images.batch_size)])


class _AugmentationOperation(Operation):
    """An augmentation with one parameter per sample."""

    kernel: Kernel
    fill_value: Any
    interp_type: Any

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Apply the augmentation."""
        images = inputs[0]
        parameter = arguments.get("parameter")
        parameters = [0.0] * images.batch_size if parameter is None else list(parameter.cpu().torch().numpy())
        steps = [[(self.kernel, parameter)] for parameter in parameters]
        return (_apply_steps(self.title, images, steps, arguments.get("shape"), self.fill_value, self.interp_type),)


def apply(kernel: Kernel, data: Any, parameter: Any = None, fill_value: Any = 128, interp_type: Any = None, shape: Any = None) -> DataNode:
    """Return augmented images."""
    title = f"auto_aug.augmentations.{kernel.name}"
    node = as_node(data, f"{title}: data")
    arguments = {key: as_node(value, f"{title}: {key}") for key, value in (("parameter", parameter), ("shape", shape)) if value is not None}
    nodes = create(
        _AugmentationOperation,
        "AutoAugmentation",
        [node],
        arguments,
        _options(title, fill_value, interp_type) | {"kernel": kernel.name, "relative": kernel.relative},
        schema="auto_aug.augmentation",
        title=title,
        device=node.device,
        **_options(title, fill_value, interp_type),
        kernel=kernel,
    )
    return nodes[0]


def _options(title: str, fill_value: Any, interp_type: Any) -> dict[str, Any]:
    if isinstance(fill_value, DataNode) or isinstance(interp_type, DataNode):
        raise TypeError(f"{title}: fill_value and interp_type must not be a DataNode: all samples share them")
    return {"fill_value": fill_value, "interp_type": types.INTERP_LINEAR if interp_type is None else interp_type}


# --- Policies --------------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choices:
    """The choices of a policy.

    Attributes:
        kernels: Name of each kernel, whether its parameters are relative, and whether each is followed by that of the opposite magnitude.
        tables: Parameters of all magnitudes for each kernel, None without parameters.
    """

    kernels: Sequence[tuple[str, bool, bool]]
    tables: Sequence[np.ndarray | None]

    @staticmethod
    def of(augmentations: Sequence[Any], num_magnitude_bins: int) -> "Choices":
        """Return the choices among augmentations of this package."""
        tables: list[np.ndarray | None] = []
        for augmentation in augmentations:
            if augmentation.mag_range is None:
                tables.append(None)
            # A table with a row for each magnitude, twice as many if each has its negative.
            else:
                tables.append(
                    augmentation.signed_params(num_magnitude_bins) if augmentation.randomly_negate else augmentation.all_params(num_magnitude_bins)
                )
        return Choices(
            [(augmentation.op.kernel.name, augmentation.op.kernel.relative, augmentation.randomly_negate) for augmentation in augmentations], tables
        )

    def step(self, which: int, magnitude: int | None, side: float) -> tuple[Kernel, Any]:
        """Return a step with the sign that a random number chooses."""
        (name, relative, has_negatives), table = self.kernels[which], self.tables[which]
        kernel = Kernel(name, relative)
        if table is None or magnitude is None:
            return kernel, 0.0
        # Parameters that are negated come in pairs, see Augmentation.signed_params.
        return kernel, table[2 * magnitude + (side < 0.5) if has_negatives else magnitude]


def _rand(row: Sequence[float], choices: Choices, n: int, m: int) -> list[tuple[Kernel, Any]]:
    return [choices.step(int(row[2 * k] * len(choices.kernels)), m, row[2 * k + 1]) for k in range(n)]


def _trivial(row: Sequence[float], choices: Choices, bins: int) -> list[tuple[Kernel, Any]]:
    return [choices.step(int(row[0] * len(choices.kernels)), int(row[1] * bins), row[2])]


def _auto(row: Sequence[float], choices: Choices, sub_policies: Sequence[Sequence[Sequence[Any]]]) -> list[tuple[Kernel, Any]]:
    # One number chooses the sub-policy, then a coin and a side for each step; short sub-policies ignore the last ones.
    # Numbers 1, 3, ... are coins, 2, 4, ... are sides.
    steps = zip(sub_policies[int(row[0] * len(sub_policies))], row[1::2], row[2::2], strict=False)
    return [choices.step(which, magnitude, side) for (which, probability, magnitude), coin, side in steps if coin < probability]


# By name: the function from the random numbers of a sample, from 0 to 1, to its steps, and the count of these numbers.
_FORMS: dict[str, tuple[Callable[..., list[tuple[Kernel, Any]]], Callable[..., int]]] = {
    "rand_augment": (_rand, lambda n, m: 2 * n),
    "trivial_augment": (_trivial, lambda bins: 3),
    "auto_augment": (_auto, lambda sub_policies: 1 + 2 * max(map(len, sub_policies))),
}


class _Policy(OperatorOperation):
    """A policy, which draws the augmentations of each sample and applies them."""

    random = True
    form: str
    choices: Choices
    settings: Mapping[str, Any]
    fill_value: Any
    interp_type: Any

    def prepare(self, pipeline: Any) -> None:
        """Bind only the generator."""
        # No operator is bound: issue() calls several, as the draws require.
        self._generator = None

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Draw and apply."""
        images, (draw, count) = inputs[0], _FORMS[self.form]
        numbers = draw_numbers(self.title, self._numbers(step), images.batch_size, count(**self.settings))
        steps = [draw(row, self.choices, **self.settings) for row in numbers]
        return (_apply_steps(self.title, images, steps, arguments.get("shape"), self.fill_value, self.interp_type),)


def policy(form: str, data: Any, choices: Choices, settings: Mapping[str, Any], seed: int | None, arguments: Mapping[str, Any]) -> DataNode:
    """Return images after the steps that a policy draws. ``form`` is its name in this module, ``settings`` are the arguments of its function."""
    title = f"auto_aug.{form}"
    node, shape = as_node(data, f"{title}: data"), arguments.get("shape")
    options = _options(title, arguments.get("fill_value", 128), arguments.get("interp_type"))
    nodes = create(
        _Policy,
        "AutoAugmentPolicy",
        [node],
        {} if shape is None else {"shape": as_node(shape, f"{title}: shape")},
        {**options, "form": form, "kernels": list(choices.kernels), "tables": list(choices.tables), "settings": dict(settings)},
        schema="auto_aug.policy",
        title=title,
        device=node.device,
        form=form,
        choices=choices,
        settings=settings,
        seed=seed,
        **options,
    )
    return nodes[0]


def policy_again(data: DataNode, seed: int | None, form: str, kernels: Any, tables: Any, settings: Any, **options: Any) -> DataNode:
    """Return the :func:`policy` of a serialized graph."""
    # The graph may come from a file: only known policies run.
    if form not in _FORMS or any(name not in KERNELS for name, _, _ in kernels):
        raise ValueError(f"unknown policy {form!r} or augmentation")
    return policy(form, data, Choices(kernels, tables), settings, seed, options)


def apply_again(data: DataNode, kernel: str, relative: bool, **options: Any) -> DataNode:
    """Return the :func:`apply` of a serialized graph."""
    if kernel not in KERNELS:
        raise ValueError(f"unknown augmentation {kernel!r}")
    return apply(Kernel(kernel, relative), data, **options)


def is_known(augmentations: Sequence[Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether a policy of these augmentations, called with these arguments, can be one operation."""
    kernels = [getattr(augmentation.op, "kernel", None) for augmentation in augmentations]
    # A subclass that overrides __call__ has to be called, as part of the graph.
    if any(kernel is None or type(augmentation).__call__ is not _PLAIN_CALL for kernel, augmentation in zip(kernels, augmentations, strict=True)):
        return False
    # Per-sample fill values and other arguments of custom functions need the graph of conditions.
    if set(arguments) - {"shape", "fill_value", "interp_type"} or isinstance(arguments.get("fill_value"), DataNode):
        return False
    # Relative offsets need the shapes of the images.
    return arguments.get("shape") is not None or not any(kernel.relative for kernel in kernels if kernel is not None)


# Compared by identity in is_known.
_PLAIN_CALL = Pipelined.__call__
