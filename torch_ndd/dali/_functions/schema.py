# SPDX-License-Identifier: Apache-2.0
"""The operators of pipelines, derived from the registry of operators and the readers: names, signatures, numbers of outputs.

Tables hold only what the registry cannot know: DALI's other names, its default values where ours is None, and outputs that depend on arguments.
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

# Deprecated names of operators, and the present ones.
DEPRECATED = {
    "audio_decoder": "decoders.audio",
    "caffe2_reader": "readers.caffe2",
    "caffe_reader": "readers.caffe",
    "coco_reader": "readers.coco",
    "coin_flip": "random.coin_flip",
    "experimental.audio_resample": "audio_resample",
    "experimental.debayer": "debayer",
    "experimental.decoders.image": "decoders.image",
    "experimental.decoders.image_crop": "decoders.image_crop",
    "experimental.decoders.image_random_crop": "decoders.image_random_crop",
    "experimental.decoders.image_slice": "decoders.image_slice",
    "experimental.decoders.video": "decoders.video",
    "experimental.equalize": "equalize",
    "experimental.filter": "filter",
    "experimental.inflate": "decoders.inflate",
    "experimental.peek_image_shape": "peek_image_shape",
    "experimental.tensor_resize": "tensor_resize",
    "fast_resize_crop_mirror": "resize_crop_mirror",
    "file_reader": "readers.file",
    "image_decoder": "decoders.image",
    "image_decoder_crop": "decoders.image_crop",
    "image_decoder_random_crop": "decoders.image_random_crop",
    "image_decoder_slice": "decoders.image_slice",
    "mxnet_reader": "readers.mxnet",
    "nemo_asr_reader": "readers.nemo_asr",
    "normal_distribution": "random.normal",
    "numpy_reader": "readers.numpy",
    "sequence_reader": "readers.sequence",
    "tfrecord_reader": "readers.tfrecord",
    "transform_translation": "transforms.translation",
    "uniform": "random.uniform",
    "video_reader": "readers.video",
    "video_reader_resize": "readers.video_resize",
}
# Deprecated arguments and the present ones, "" if they have no effect. They are those of torch_ndd with the same names.
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
# There `image_type` is deprecated; elsewhere it is an argument.
_OLD_IMAGE_TYPE = ("crop", "crop_mirror_normalize", "experimental.resize", "resize", "slice")

# Arguments that may have a value for each sample although their annotations do not say so.
_NODES: dict[str, tuple[str, ...]] = {
    "normalize": ("mean", "stddev"),
    "random.uniform": ("values",),
    "readers.numpy": ("rel_roi_end", "rel_roi_shape", "rel_roi_start", "roi_end", "roi_shape", "roi_start"),
    "readers.video_resize": torch_ndd.readers.VideoResize.PER_SAMPLE,
}

# Parts of names that do not become Capitalized in the names of classes.
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

# Defaults that DALI spells out and torch_ndd has as None or in another form: of all operators, and of single ones.
_READERS: dict[str, Any] = {
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
_VIDEO = {"dtype": types.UINT8, "file_list": "", "file_root": "", "filenames": [], "image_type": types.RGB}
_FILTERS = {"interp_type": types.INTERP_LINEAR, "mag_filter": types.INTERP_LINEAR, "min_filter": types.INTERP_LINEAR}
_COMMON: dict[str, Any] = {
    **dict.fromkeys(("crop_d", "crop_h", "crop_w", "resize_longer", "resize_shorter", "resize_x", "resize_y", "resize_z"), 0.0),
    **_FILTERS,
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
    "experimental.readers.video": {**_VIDEO, "fill_value": [0]},
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
    "readers.video": _VIDEO,
    "readers.video_resize": {**_VIDEO, **_COMMON},
    "rotate": {"size": []},
    "segmentation.random_mask_pixel": {"threshold": 0.0},
    "segmentation.random_object_bbox": {"background": 0},
    "slice": {"axes": [1, 0], "axis_names": "WH", "fill_values": [0.0]},
    "tensor_resize": {"alignment": [0.5]},
    "transforms.crop": {"from_end": [1.0], "from_start": [0.0], "to_end": [1.0], "to_start": [0.0]},
    "warp_affine": {"matrix": [], "size": []},
    "zeros": {"dtype": types.INT32},
}

Outputs = Callable[[Mapping[str, Any], int], int]


def _flags(first: int, **added: tuple[int, bool]) -> Outputs:
    """Return the count ``first`` plus that of each argument that is true: (outputs, default)."""
    return lambda given, inputs: first + sum(count for key, (count, default) in added.items() if given.get(key, default))


def _coco(given: Mapping[str, Any], inputs: int) -> int:
    masks = 2 if given.get("polygon_masks") or given.get("masks") else 1 if given.get("pixelwise_masks") else 0
    return 3 + masks + bool(given.get("image_ids") or given.get("save_img_ids"))


def _caffe2(given: Mapping[str, Any], inputs: int) -> int:
    return (
        bool(given.get("image_available", True))
        + {0: 1, 1: 1, 2: 2, 3: 2, 4: 0}.get(given.get("label_type", 0), 1)
        + sum((given.get("additional_inputs", 0), bool(given.get("bbox"))))
    )


def _video(given: Mapping[str, Any], inputs: int) -> int:
    frames = given.get("enable_frame_num", False)
    labels = given.get("labels") is not None or bool(given.get("file_list")) or bool(given.get("file_root"))
    return 1 + labels + (frames not in (False, "none", None)) + bool(given.get("enable_timestamps"))


def _list(argument: str, default: int) -> Outputs:
    def count(given: Mapping[str, Any], inputs: int) -> int:
        value = given.get(argument)
        return default if value is None else 1 if isinstance(value, str | int) else len(value)

    return count


# Numbers of outputs that follow from the arguments and the number of inputs. All others follow from the annotations.
_OUTPUTS: dict[str, Outputs] = {
    "bbox_rotate": lambda given, inputs: inputs,
    "experimental.readers.fits": _list("hdu_indices", 1),
    "experimental.readers.video": _video,
    "random_bbox_crop": lambda given, inputs: 2 + inputs + bool(given.get("output_bbox_indices")),
    "readers.caffe": _flags(0, image_available=(1, True), label_available=(1, True)),
    "readers.caffe2": _caffe2,
    "readers.coco": _coco,
    "readers.file": _flags(2),
    "readers.mxnet": _flags(2),
    "readers.nemo_asr": _flags(1, read_sample_rate=(1, True), read_text=(1, True), read_idxs=(1, False)),
    "readers.numpy": _flags(1),
    "readers.parquet": _list("columns", 1),
    "readers.video": _video,
    "readers.video_resize": _video,
    "readers.webdataset": _list("ext", 1),
    "segmentation.random_object_bbox": lambda given, inputs: (given.get("format") != "box") + 1 + bool(given.get("output_class")),
}
_NOT_SHOWN = ("batch_size", "rng", "max_batch_size", "num_inputs", "enable_checkpointing", "name", "device")
_TAIL = {"bytes_per_sample_hint": [0], "preserve": False}


@dataclass(frozen=True)
class Schema:
    """An operator as pipelines see it.

    Attributes:
        name: Name in ``fn``: ``decoders.image``.
        class_name: Name in ``ops``: ``decoders.Image``.
        target: The operator, a function with the same parameters, or a class of reader.
        signature: That of the function in ``fn``.
        inputs: Smallest and largest number of inputs.
        described: Descriptions of the arguments of operators.
        deprecated: Deprecated arguments, and the present ones.
        missing: Arguments that must be given.
        nodes: Arguments that may be DataNodes.
        unset: Values that mean "not given", by argument.
        count: Number of outputs, from the arguments and the number of inputs.
        random: Whether it draws random numbers.
        is_reader: Whether it is a reader.
        replacement: The present name of a deprecated operator, "" if there is none.
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
    count: Outputs
    random: bool
    is_reader: bool
    replacement: str | None
    doc: str

    @functools.cached_property
    def accepted(self) -> frozenset[str]:
        """All keyword arguments, the deprecated ones included."""
        keywords = {one.name for one in self.signature.parameters.values() if one.kind is one.KEYWORD_ONLY}
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
    """Return what pipelines run, by name in ``fn``."""
    bodies = {op.body: op for name, op in OPERATORS.items() if name != "arithmetic"}
    found: dict[str, Any] = {}
    for path in (*MODULES, *EXPERIMENTAL):
        module = functools.reduce(getattr, path.split("."), torch_ndd) if path else torch_ndd
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Reader) and value is not Reader and path.endswith("readers"):
                found[f"{path}.{_reader_name(value)}"] = value
            elif (op := bodies.get(getattr(value, "__wrapped__", _targets))) is not None:
                found[f"{path}.{name}" if path else name] = op
    for name, op in OPERATORS.items():
        if name != "arithmetic":
            found.setdefault(name, op)
    found["per_frame"] = torch_ndd.per_frame
    found["readers.sequence"] = Sequence
    return found


@functools.cache
def schemas() -> dict[str, Schema]:
    """Return all operators by name in ``fn``."""
    made = {name: _made(name, target, "" if name == "readers.sequence" else None) for name, target in _targets().items()}
    for name, replacement in DEPRECATED.items():
        made[name] = _made(name, made[replacement].target, replacement)
    return dict(sorted(made.items()))


def _function(target: Any) -> Callable[..., Any]:
    return target.body if isinstance(target, Operator) else target


def _made(name: str, target: Any, replacement: str | None = None) -> Schema:
    own = replacement or name
    function = _function(target)
    parameters = list(inspect.signature(function).parameters.values())
    reader = isinstance(target, type)
    described = {**target.positional, **target.arguments} if isinstance(target, Operator) else {}
    defaults = {**(_READERS if reader else _COMMON), **_DEFAULTS.get(own, {}), **(_DEFAULTS.get(name, {}) if name != own else {})}
    own_defaults = set(_DEFAULTS.get(own, {})) | set(_DEFAULTS.get(name, {}))
    old = {one.name: DEPRECATED_ARGUMENTS[one.name] for one in parameters if one.name in DEPRECATED_ARGUMENTS}
    if own in _OLD_IMAGE_TYPE:
        old["image_type"] = ""
    shown: dict[str, inspect.Parameter] = {}
    unset: dict[str, Any] = {}
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL)]
    for one in [] if reader else parameters:
        if one.kind is not one.KEYWORD_ONLY or one.name in _NOT_SHOWN or one.name in old:
            continue
        shown[one.name] = _with_default(one, defaults, own_defaults, unset)
    for one in parameters if reader else []:
        if one.name not in _NOT_SHOWN and one.name not in old:
            shown[one.name] = _with_default(one, defaults, own_defaults, unset)
    random = isinstance(target, Operator) and target.draws
    keyword = inspect.Parameter.KEYWORD_ONLY
    for key, value in _TAIL.items():
        shown[key] = inspect.Parameter(key, keyword, default=value)
    if random:
        shown["seed"] = inspect.Parameter("seed", keyword, default=-1)
    head = [inspect.Parameter(key, keyword, default=None) for key in ("device", "name")]
    signature = inspect.Signature([*positional, *head, *(shown[key].replace(kind=keyword) for key in sorted(shown))])
    most = 999 if any(one.kind is one.VAR_POSITIONAL for one in positional) else len(positional)
    least = sum(one.default is one.empty and one.kind is one.POSITIONAL_ONLY for one in positional)
    missing = tuple(key for key, one in shown.items() if one.default is one.empty)
    nodes = frozenset(key for key, one in described.items() if one.role in (Role.per_sample, Role.shape)) | frozenset(_NODES.get(own, ()))
    return Schema(
        name,
        class_name(name),
        target,
        signature,
        (least, most),
        described,
        old,
        missing,
        nodes,
        unset,
        _OUTPUTS.get(own) or _counted(target, parameters),
        random,
        reader,
        replacement,
        _doc(function),
    )


def _with_default(one: inspect.Parameter, defaults: Mapping[str, Any], own: set[str], unset: dict[str, Any]) -> inspect.Parameter:
    """Return a parameter with DALI's default, and note the value that stands for None."""
    if one.name not in defaults or not (one.default is None or one.name in own or one.default is one.empty):
        return one
    if one.default is one.empty and one.name not in own:
        return one
    default = defaults[one.name]
    if default in (0.0, -1, -1.0, "", []) and one.default is None:
        unset[one.name] = default
    return one.replace(default=default)


def _counted(target: Any, parameters: list[inspect.Parameter]) -> Outputs:
    hint = inspect.signature(_function(target)).return_annotation
    first = len(getattr(hint, "__args__", ())) if getattr(hint, "__origin__", None) is tuple else 1
    if any(one.name == "save_attrs" for one in parameters):
        return _flags(first, save_attrs=(1, False))
    return _flags(first)


def _doc(function: Any) -> str:
    """Return the docstring without its examples."""
    text = inspect.getdoc(function) or ""
    return text.split("\n>>>")[0].rstrip()
