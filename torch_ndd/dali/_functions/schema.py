# SPDX-License-Identifier: Apache-2.0
"""The operators of pipelines, derived from the registry of operators and the readers: names, signatures, numbers of outputs.

Tables hold only what the registry does not have: DALI's other names, its default values where ours is None, and numbers of outputs that depend on
arguments.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch_ndd

from ..._core.operators.arguments import Argument, Role
from ..._core.operators.definition import OPERATORS, Operator
from ...readers import Reader
from .. import types
from .sequence_reader import Sequence

MODULES = ("", "decoders", "io.file", "noise", "random", "readers", "reductions", "segmentation", "transforms")
EXPERIMENTAL = ("experimental", "experimental.decoders", "experimental.readers")

# Deprecated names of operators, and their replacements.
_READERS = ("caffe", "caffe2", "coco", "file", "mxnet", "nemo_asr", "numpy", "sequence", "tfrecord", "video")
_IMAGE_DECODERS = ("image", "image_crop", "image_random_crop", "image_slice")
_NO_LONGER_EXPERIMENTAL = ("audio_resample", "debayer", "equalize", "filter", "peek_image_shape", "tensor_resize")
DEPRECATED = {
    **{f"{name}_reader": f"readers.{name}" for name in _READERS},
    **{name.replace("image", "image_decoder"): f"decoders.{name}" for name in _IMAGE_DECODERS},
    **{f"experimental.decoders.{name}": f"decoders.{name}" for name in (*_IMAGE_DECODERS, "video")},
    **{f"experimental.{name}": name for name in _NO_LONGER_EXPERIMENTAL},
    "audio_decoder": "decoders.audio",
    "coin_flip": "random.coin_flip",
    "experimental.inflate": "decoders.inflate",
    "fast_resize_crop_mirror": "resize_crop_mirror",
    "normal_distribution": "random.normal",
    "transform_translation": "transforms.translation",
    "uniform": "random.uniform",
    "video_reader_resize": "readers.video_resize",
}
# Deprecated arguments and their replacements, "" if they have no effect. torch_ndd has the same names.
DEPRECATED_ARGUMENTS = {
    "dump_meta_files": "save_preprocessed_annotations",
    "dump_meta_files_path": "save_preprocessed_annotations_dir",
    "masks": "",
    "memory_stats": "",
    "meta_files_path": "preprocessed_annotations",
    "normalize_text": "",
    "output_dtype": "dtype",
    "output_format": "output_grid",
    "save_img_ids": "image_ids",
    "split_stages": "",
    "use_chunk_allocator": "",
}
# Operators whose `image_type` is deprecated; in others it is a regular argument.
_DEPRECATED_IMAGE_TYPE = ("crop", "crop_mirror_normalize", "experimental.resize", "resize", "slice")

# Per-sample arguments whose annotations do not say so.
_PER_SAMPLE: dict[str, tuple[str, ...]] = {
    "normalize": ("mean", "stddev"),
    "random.uniform": ("values",),
    "readers.numpy": ("rel_roi_end", "rel_roi_shape", "rel_roi_start", "roi_end", "roi_shape", "roi_start"),
    "readers.video_resize": torch_ndd.readers.VideoResize.PER_SAMPLE,
}

# Parts of names with their own capitals in the names of classes.
_CAPITALS = {
    "bbox": "BBox",
    "coco": "COCO",
    "dl": "DL",
    "mfcc": "MFCC",
    "mxnet": "MXNet",
    "rms": "RMS",
    "roi": "ROI",
    "ssd": "SSD",
    "tfrecord": "TFRecord",
}

# Defaults of DALI where those of torch_ndd are None or have another form: of all readers, of all operators, and of single ones.
_READER_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(
        (
            *("avoid_class_remapping", "bbox", "cache_header_information", "case_sensitive_filter", "dont_use_mmap", "enable_timestamps"),
            *("file_list_frame_num", "file_list_include_preceding_frame", "image_ids", "lazy_init", "normalized", "pad_last_batch", "pad_sequences"),
            *("pad_shards", "pixelwise_masks", "polygon_masks", "random_shuffle", "ratio", "read_ahead", "read_idxs", "roi_relative"),
            *("save_preprocessed_annotations", "shuffle_after_epoch", "skip_cached_images", "skip_empty", "skip_vfr_check", "stick_to_shard"),
            *("uniform_sample", "use_o_direct", "ltrb"),
        ),
        False,
    ),
    **dict.fromkeys(
        (
            *("antialias", "case_sensitive_extensions", "downmix", "file_list_include_end", "image_available", "include_iscrowd"),
            *("label_available", "read_sample_rate", "read_text", "register_buffers", "subpixel_scale"),
        ),
        True,
    ),
    "additional_decode_surfaces": 2,
    "additional_inputs": 0,
    "annotations_file": "",
    "channels": 3,
    "enable_frame_num": "none",
    "file_list_format": "timestamps",
    "file_list_rounding": "start_down_end_up",
    "hdu_indices": [2],
    "initial_fill": 1024,
    "label_type": 0,
    "max_duration": 0.0,
    "min_duration": 0.0,
    "minibatch_size": 32,
    "missing_component_behavior": "",
    "num_labels": 1,
    "num_shards": 1,
    "on_error": "raise",
    "out_of_bounds_policy": "error",
    "pad_mode": "none",
    "prefetch_queue_depth": 1,
    "preprocessed_annotations": "",
    "quality": 50.0,
    "roi_axes": [],
    "sample_rate": -1.0,
    "save_preprocessed_annotations_dir": "",
    "seed": -1,
    "shard_id": 0,
    "size_threshold": 0.1,
    "step": -1,
    "stride": 1,
    "temp_buffer_hint": 0,
    "tensor_init_bytes": 1048576,
}
_VIDEO_DEFAULTS = {"dtype": types.UINT8, "file_list": "", "file_root": "", "filenames": [], "image_type": types.RGB}
_FILTER_DEFAULTS = {"interp_type": types.INTERP_LINEAR, "mag_filter": types.INTERP_LINEAR, "min_filter": types.INTERP_LINEAR}
# Sizes for which 0, although it is the default, means the whole extent: crop_h=3, crop_w=0.
_SIZES = ("crop_d", "crop_h", "crop_w", "resize_longer", "resize_shorter", "resize_x", "resize_y", "resize_z")
# A background that the program passes must not be a class, also if it is the default.
_PASSED_DEFAULTS = frozenset([*_SIZES, "background"])
_OPERATOR_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(_SIZES, 0.0),
    **_FILTER_DEFAULTS,
    "contrast_center": 0.5,
    "image_type": types.RGB,
    "mode": "default",
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "bbox_rotate": {"size": []},
    "box_encoder": {"means": [0.0, 0.0, 0.0, 0.0], "stds": [1.0, 1.0, 1.0, 1.0]},
    "crop": {"fill_values": [0.0]},
    "crop_mirror_normalize": {"dtype": types.FLOAT, "fill_values": [0.0], "mean": [0.0], "std": [1.0], "output_layout": "CHW"},
    "decoders.image_slice": {"axes": [1, 0], "axis_names": "WH"},
    "decoders.video": {"fill_value": [0]},
    "erase": {
        **{"anchor": [], "shape": [], "axes": [1, 0], "axis_names": "HW", "fill_value": [0.0]},
        **dict.fromkeys(("normalized", "normalized_anchor", "normalized_shape"), False),
    },
    "experimental.dilate": {"anchor": [-1, -1], "mask_size": [3, 3]},
    "experimental.erode": {"anchor": [-1, -1], "mask_size": [3, 3]},
    "experimental.median_blur": {"window_size": [3, 3]},
    "experimental.readers.fits": {"file_filter": "*.fits"},
    "experimental.readers.video": {**_VIDEO_DEFAULTS, "fill_value": [0]},
    "experimental.warp_perspective": {"fill_value": [], "matrix": [], "size": []},
    "fast_resize_crop_mirror": {"antialias": False},
    "filter": {"anchor": [-1]},
    "gaussian_blur": {"sigma": [0.0], "window_size": [0]},
    "laplacian": {"scale": [1.0], "window_size": [3]},
    "lookup_table": {"keys": [], "values": [], "dtype": types.FLOAT},
    "one_hot": {"dtype": types.FLOAT},
    "ones": {"dtype": types.INT32},
    "preemphasis_filter": {"dtype": types.FLOAT},
    "random_bbox_crop": {
        **{"aspect_ratio": [1.0, 1.0], "scaling": [1.0, 1.0], "thresholds": [0.0], "total_num_attempts": -1, "ltrb": True},
    },
    "readers.coco": {"file_root": None},
    "readers.file": {"file_filters": [f"*.{ending}" for ending in torch_ndd.readers.file.ENDINGS]},
    "readers.nemo_asr": {"dtype": types.FLOAT},
    "readers.numpy": {"file_filter": "*.npy", "fill_value": 0.0},
    "readers.video": _VIDEO_DEFAULTS,
    "readers.video_resize": {**_VIDEO_DEFAULTS, **_OPERATOR_DEFAULTS},
    "rotate": {"size": []},
    "segmentation.random_mask_pixel": {"threshold": 0.0},
    "segmentation.random_object_bbox": {"background": 0},
    "slice": {"axes": [1, 0], "axis_names": "WH", "fill_values": [0.0]},
    "tensor_resize": {"alignment": [0.5]},
    "transforms.crop": {"from_end": [1.0], "from_start": [0.0], "to_end": [1.0], "to_start": [0.0]},
    "warp_affine": {"matrix": [], "size": []},
    "zeros": {"dtype": types.INT32},
}

OutputCount = Callable[[Mapping[str, Any], int], int]


def _count_flags(first: int, **added: tuple[int, bool]) -> OutputCount:
    """Return the count ``first`` plus that of each argument that is true: (outputs, default)."""
    return lambda arguments, inputs: first + sum(count for key, (count, default) in added.items() if arguments.get(key, default))


def _count_coco(arguments: Mapping[str, Any], inputs: int) -> int:
    masks = 2 if arguments.get("polygon_masks") or arguments.get("masks") else 1 if arguments.get("pixelwise_masks") else 0
    return 3 + masks + bool(arguments.get("image_ids") or arguments.get("save_img_ids"))


def _count_caffe2(arguments: Mapping[str, Any], inputs: int) -> int:
    return (
        bool(arguments.get("image_available", True))
        + {0: 1, 1: 1, 2: 2, 3: 2, 4: 0}.get(arguments.get("label_type", 0), 1)
        + sum((arguments.get("additional_inputs", 0), bool(arguments.get("bbox"))))
    )


def _count_video(arguments: Mapping[str, Any], inputs: int) -> int:
    frames = arguments.get("enable_frame_num", False)
    labels = arguments.get("labels") is not None or bool(arguments.get("file_list")) or bool(arguments.get("file_root"))
    return 1 + labels + (frames not in (False, "none", None)) + bool(arguments.get("enable_timestamps"))


def _count_list(argument: str, default: int) -> OutputCount:
    def count(arguments: Mapping[str, Any], inputs: int) -> int:
        value = arguments.get(argument)
        return default if value is None else 1 if isinstance(value, str | int) else len(value)

    return count


# Numbers of outputs that depend on the arguments and the number of inputs. All others follow from the annotations.
_OUTPUT_COUNTS: dict[str, OutputCount] = {
    "bbox_rotate": lambda arguments, inputs: inputs,
    "element_extract": _count_list("element_map", 1),
    "experimental.readers.fits": _count_list("hdu_indices", 1),
    "experimental.readers.video": _count_video,
    "random_bbox_crop": lambda arguments, inputs: 2 + inputs + bool(arguments.get("output_bbox_indices")),
    "readers.caffe": _count_flags(0, image_available=(1, True), label_available=(1, True)),
    "readers.caffe2": _count_caffe2,
    "readers.coco": _count_coco,
    "readers.file": _count_flags(2),
    "readers.mxnet": _count_flags(2),
    "readers.nemo_asr": _count_flags(1, read_sample_rate=(1, True), read_text=(1, True), read_idxs=(1, False)),
    "readers.numpy": _count_flags(1),
    "readers.parquet": _count_list("columns", 1),
    "readers.video": _count_video,
    "readers.video_resize": _count_video,
    "readers.webdataset": _count_list("ext", 1),
    "segmentation.random_object_bbox": lambda arguments, inputs: (arguments.get("format") != "box") + 1 + bool(arguments.get("output_class")),
}
_HIDDEN = ("batch_size", "rng", "max_batch_size", "num_inputs", "enable_checkpointing", "name", "device")
_MAX_INPUTS = 999  # DALI's bound for operators with any number of inputs
_COMMON_ARGUMENTS = {"bytes_per_sample_hint": [0], "preserve": False}


@dataclass(frozen=True)
class Schema:
    """The description of an operator for pipelines.

    Attributes:
        name: Name in ``fn``: ``decoders.image``.
        class_name: Name in ``ops``: ``decoders.Image``.
        target: The operator, a function with the same parameters, or a class of reader.
        signature: That of the function in ``fn``.
        inputs: Smallest and largest number of inputs.
        described: Descriptions of the arguments of operators.
        deprecated: Deprecated arguments, and their replacements.
        missing: Required arguments.
        nodes: Arguments that may be DataNodes.
        unset: Values that mean "not given", by argument.
        count: Number of outputs, from the arguments and the number of inputs.
        random: Whether it draws random numbers.
        is_reader: Whether it is a reader.
        replacement: The replacement of a deprecated operator, "" if it has none; None if the operator is not deprecated.
        doc: Docstring of the target, without its examples.
    """

    name: str
    class_name: str
    target: Any
    signature: inspect.Signature
    inputs: tuple[int, int]
    described: Mapping[str, Argument]
    deprecated: Mapping[str, str]
    missing: tuple[str, ...]
    nodes: frozenset[str]
    unset: Mapping[str, Any]
    count: OutputCount
    random: bool
    is_reader: bool
    replacement: str | None
    doc: str

    @functools.cached_property
    def accepted(self) -> frozenset[str]:
        """All keyword arguments, the deprecated ones included."""
        keywords = {parameter.name for parameter in self.signature.parameters.values() if parameter.kind is parameter.KEYWORD_ONLY}
        return frozenset(keywords | set(self.deprecated))


def class_name(name: str) -> str:
    """Return the name of an operator's class.

    >>> class_name("decoders.image_random_crop"), class_name("readers.coco"), class_name("mfcc")
    ('decoders.ImageRandomCrop', 'readers.COCO', 'MFCC')
    """
    *path, last = name.split(".")
    return ".".join([*path, "".join(_CAPITALS.get(part, part.capitalize()) for part in last.split("_"))])


def _reader_name(cls: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


def _targets() -> dict[str, Any]:
    """Return the operators, functions and readers that pipelines run, by name in ``fn``."""
    # The public functions wrap the bodies of operators: a module's name for an operator is found by its body.
    bodies = {op.body: op for name, op in OPERATORS.items() if name != "arithmetic"}
    targets: dict[str, Any] = {}
    for path in (*MODULES, *EXPERIMENTAL):
        module = functools.reduce(getattr, path.split("."), torch_ndd) if path else torch_ndd
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Reader) and value is not Reader and path.endswith("readers"):
                targets[f"{path}.{_reader_name(value)}"] = value
            elif (op := bodies.get(getattr(value, "__wrapped__", _targets))) is not None:
                targets[f"{path}.{name}" if path else name] = op
    for name, op in OPERATORS.items():
        if name != "arithmetic":
            targets.setdefault(name, op)
    targets["per_frame"] = torch_ndd.per_frame
    targets["readers.sequence"] = Sequence
    return targets


@functools.cache
def schemas() -> dict[str, Schema]:
    """Return all operators by name in ``fn``."""
    found = {name: _make_schema(name, target, "" if name == "readers.sequence" else None) for name, target in _targets().items()}
    for name, replacement in DEPRECATED.items():
        found[name] = _make_schema(name, found[replacement].target, replacement)
    return dict(sorted(found.items()))


def _function(target: Any) -> Callable[..., Any]:
    return target.body if isinstance(target, Operator) else target


def _make_schema(name: str, target: Any, replacement: str | None = None) -> Schema:
    current_name = replacement or name
    function = _function(target)
    parameters = list(inspect.signature(function).parameters.values())
    is_reader, is_operator = isinstance(target, type), isinstance(target, Operator)
    described = {**target.positional, **target.arguments} if is_operator else {}
    own_defaults = {**_DEFAULTS.get(current_name, {}), **_DEFAULTS.get(name, {})}
    defaults = {**(_READER_DEFAULTS if is_reader else _OPERATOR_DEFAULTS), **own_defaults}
    deprecated = {parameter.name: DEPRECATED_ARGUMENTS[parameter.name] for parameter in parameters if parameter.name in DEPRECATED_ARGUMENTS}
    if current_name in _DEPRECATED_IMAGE_TYPE:
        deprecated["image_type"] = ""
    keyword = inspect.Parameter.KEYWORD_ONLY
    keywords: dict[str, inspect.Parameter] = {}
    unset: dict[str, Any] = {}
    for parameter in parameters:
        # All parameters of a reader's constructor are keywords in fn.
        if (is_reader or parameter.kind is keyword) and parameter.name not in _HIDDEN and parameter.name not in deprecated:
            keywords[parameter.name] = _with_default(parameter, defaults, own_defaults, unset)
    random = is_operator and target.draws
    for key, value in {**_COMMON_ARGUMENTS, **({"seed": -1} if random else {})}.items():
        keywords[key] = inspect.Parameter(key, keyword, default=value)
    positional = [parameter for parameter in parameters if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL)]
    head = [inspect.Parameter(key, keyword, default=None) for key in ("device", "name")]
    most = _MAX_INPUTS if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in positional) else len(positional)
    least = sum(parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_ONLY for parameter in positional)
    per_sample = [key for key, argument in described.items() if argument.role in (Role.per_sample, Role.shape)]
    return Schema(
        name=name,
        class_name=class_name(name),
        target=target,
        signature=inspect.Signature([*positional, *head, *(keywords[key].replace(kind=keyword) for key in sorted(keywords))]),
        inputs=(least, most),
        described=described,
        deprecated=deprecated,
        missing=tuple(key for key, parameter in keywords.items() if parameter.default is parameter.empty),
        nodes=frozenset([*per_sample, *_PER_SAMPLE.get(current_name, ())]),
        unset=unset,
        count=_OUTPUT_COUNTS.get(current_name) or _count_from_annotation(target, parameters),
        random=random,
        is_reader=is_reader,
        replacement=replacement,
        doc=_doc(function),
    )


def _with_default(parameter: inspect.Parameter, defaults: Mapping[str, Any], own: Mapping[str, Any], unset: dict[str, Any]) -> inspect.Parameter:
    """Return a parameter with DALI's default. If that default means "not given" here, add it to ``unset``."""
    # Defaults that several operators share apply where torch_ndd has None; those of one operator also to required and other defaults.
    if parameter.name not in own and (parameter.name not in defaults or parameter.default is not None):
        return parameter
    default = defaults[parameter.name]
    if default in (0.0, -1, -1.0, "", []) and parameter.default is None and parameter.name not in _PASSED_DEFAULTS:
        unset[parameter.name] = default
    return parameter.replace(default=default)


def _count_from_annotation(target: Any, parameters: list[inspect.Parameter]) -> OutputCount:
    hint = inspect.signature(_function(target)).return_annotation
    first = len(getattr(hint, "__args__", ())) if getattr(hint, "__origin__", None) is tuple else 1
    if any(parameter.name == "save_attrs" for parameter in parameters):
        return _count_flags(first, save_attrs=(1, False))
    return _count_flags(first)


def _doc(function: Any) -> str:
    """Return the docstring without its examples."""
    text = inspect.getdoc(function) or ""
    return text.split("\n>>>")[0].rstrip()
