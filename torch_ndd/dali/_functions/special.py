# SPDX-License-Identifier: Apache-2.0
"""Functions of ``fn`` that are not operators or readers of :mod:`torch_ndd`."""

from collections.abc import Callable, Sequence
from typing import Any

from .. import external_source, types
from .._conditionals import merge as _merge
from .._conditionals import split as _split
from .._functions import video_input as _video_input
from .._graph.errors import UnknownArgumentError, warn_deprecated
from ..data_node import DataNode, as_node, constant_node
from ..data_node import shapes as node_of_shapes
from . import calls as _calls
from . import python_function as _python_function
from .schema import schemas


def constant(
    *,
    device: str | None = None,
    name: str | None = None,
    bytes_per_sample_hint: Any = (0,),
    dtype: Any = None,
    fdata: Sequence[float] | float | None = None,
    idata: Sequence[int] | int | None = None,
    layout: str = "",
    preserve: bool = False,
    shape: Sequence[int] | int | None = None,
) -> DataNode:
    """Return the same values in every sample: ``fdata`` as float32 or ``idata`` as int32 unless ``dtype`` is given.

    Args:
        device, name, preserve: See :mod:`torch_ndd.dali.fn`.
        bytes_per_sample_hint: Ignored.
        dtype: Element type.
        fdata: The values as floats; one value fills ``shape``.
        idata: The values as integers.
        layout: Layout of a sample.
        shape: Extents; by default one dimension.

    Raises:
        RuntimeError: both ``fdata`` and ``idata``, neither of them, or a number of values that does not fit ``shape``.
    """
    if (fdata is None) == (idata is None):
        raise RuntimeError("fn.constant: pass either fdata or idata")
    values = fdata if fdata is not None else idata
    values = [values] if isinstance(values, int | float) else list(values)  # type: ignore[arg-type]
    wanted = dtype if dtype is not None else types.FLOAT if fdata is not None else types.INT32
    place = _calls.device_of("fn.constant", device, ())
    return constant_node(values, wanted, shape, layout or None, place, "fn.constant", name=name, preserve=preserve)


def shapes(
    input: Any,
    /,
    *,
    device: str | None = None,
    name: str | None = None,
    bytes_per_sample_hint: Any = (0,),
    dtype: Any = types.INT64,
    preserve: bool = False,
    **former: Any,
) -> Any:
    """Return the shapes of the samples, one-dimensional; deprecated, use ``node.shape()``.

    Args:
        input: Node of any type.
        device, name, preserve: See :mod:`torch_ndd.dali.fn`.
        bytes_per_sample_hint: Ignored.
        dtype: ``INT64``, ``INT32``, ``UINT32``, ``UINT64``, ``FLOAT`` or ``FLOAT64``.
        former: ``type``, the deprecated name of ``dtype``.
    """
    warn_deprecated("fn.shapes is deprecated; use the method shape() of the node")
    for key, value in former.items():
        if key != "type":
            raise UnknownArgumentError(f"fn.shapes got an unexpected argument {key!r}")
        warn_deprecated("fn.shapes: the argument 'type' is deprecated; use 'dtype'")
        dtype = value
    sets = _calls.input_sets("fn.shapes", [input])
    place = _calls.device_of("fn.shapes", device, ()) if device is not None else "cpu"
    nodes = [node_of_shapes(as_node(value), dtype, place, "fn.shapes", "Shapes", name=name, preserve=preserve) for (value,) in sets]
    return nodes if len(nodes) > 1 else nodes[0]


# Smallest overlaps of a crop with an object, from the paper on SSD (Liu et al., 2016, section 2.2); 0 keeps the whole image.
_SSD_OVERLAPS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]


def ssd_random_crop(
    input_0: Any,
    input_1: Any,
    input_2: Any,
    /,
    *,
    device: str | None = None,
    name: str | None = None,
    bytes_per_sample_hint: Any = (0,),
    num_attempts: int = 1,
    preserve: bool = False,
    seed: int = -1,
) -> list[DataNode]:
    """Crop images around objects as SSD's training does; deprecated, use ``random_bbox_crop`` and ``slice``.

    Args:
        input_0: Images, HWC.
        input_1: Boxes (N, 4), relative, left, top, right, bottom.
        input_2: Labels (N,), int32.
        device, name, preserve, seed: See :mod:`torch_ndd.dali.fn`.
        bytes_per_sample_hint: Ignored.
        num_attempts: Attempts to find a crop per threshold.

    Returns:
        Images, boxes and labels.
    """
    warn_deprecated("fn.ssd_random_crop is deprecated; use fn.random_bbox_crop")
    crop = {
        **{"thresholds": _SSD_OVERLAPS, "scaling": [0.3, 1.0], "aspect_ratio": [0.5, 2.0], "bbox_layout": "xyXY"},
        **{"allow_no_crop": True, "num_attempts": num_attempts, "seed": seed, "name": name, "preserve": preserve, "device": device},
    }
    begin, size, boxes, labels = _calls.call(schemas()["random_bbox_crop"], "fn.ssd_random_crop", [input_1, input_2], crop)
    images = _calls.call(schemas()["slice"], "fn.ssd_random_crop", [input_0, begin, size], {})
    return [images, boxes, labels]


def split(input: Any, /, *, predicate: Any) -> list[DataNode]:
    """Return the samples of a batch for which ``predicate`` holds, and the others, as an `if` gives them to its branches.

    Args:
        input: Any data.
        predicate: One number or bool per sample, without dimensions.
    """
    return _split(as_node(input), as_node(predicate, "predicate"))


def merge(first: Any, second: Any, /, *, predicate: Any) -> DataNode:
    """Join two batches that `split` separated: the next sample of ``first`` where ``predicate`` holds, that of ``second`` elsewhere.

    Args:
        first, second: As many samples as ``predicate`` is true, and false. They have one type, layout and number of dimensions.
        predicate: One number or bool per sample, without dimensions.
    """
    return _merge(as_node(first), as_node(second), as_node(predicate, "predicate"))


def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions by name in ``fn``."""
    return {
        "_conditional.merge": merge,
        "_conditional.split": split,
        "constant": constant,
        "dl_tensor_python_function": _python_function.dl_tensor_python_function,
        "experimental.inputs.video": _video_input.video,
        "external_source": external_source.external_source,
        "python_function": _python_function.python_function,
        "shapes": shapes,
        "ssd_random_crop": ssd_random_crop,
    }


def classes() -> dict[str, type]:
    """Return the classes of ``ops`` that have their own constructor, by name in ``fn``."""
    return {
        "dl_tensor_python_function": _python_function.DLTensorPythonFunction,
        "external_source": external_source.ExternalSource,
        "python_function": _python_function.PythonFunction,
    }
