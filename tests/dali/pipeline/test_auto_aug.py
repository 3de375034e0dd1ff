# SPDX-License-Identifier: Apache-2.0
"""nvidia.dali.auto_aug: single augmentations against DALI, tables of policies, and what policies do."""

import importlib
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _pipelines import both, ours, ours_raises, real, sub
from _raises import catch_error

BINS = 11
MOVES = ["shear_x", "shear_y", "translate_x", "translate_y", "translate_x_no_shape", "translate_y_no_shape", "rotate"]
EXACT = ["contrast", "posterize", "solarize", "solarize_add", "invert", "equalize", "identity"]
ALL = [*MOVES, "brightness", "color", "sharpness", "auto_contrast", *EXACT]


def images(count: int = BINS) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    results = []
    for k in range(count):
        shape = 40 + 3 * k, 60 - k, 3
        results.append(np.clip(rng.normal(128, 18, shape) + np.linspace(-128, 60, shape[1])[None, :, None], 0, 255).astype(np.uint8))
    return results


def augment(dali: Any, name: str, negated: int, change: dict[str, Any] | None = None, data: Any = None, layout: str = "HWC", **arguments: Any) -> Any:
    """Return the images of an augmentation at all magnitudes."""
    module, core, fn = sub(dali, "auto_aug.augmentations"), sub(dali, "auto_aug.core"), dali.fn
    given_data = images() if data is None else data

    @dali.pipeline_def(batch_size=len(given_data), num_threads=2, device_id=None, enable_conditionals=True)
    def pipeline() -> Any:
        image = fn.external_source(source=lambda: given_data, layout=layout)
        magnitude = fn.external_source(source=lambda info: np.array(info.idx_in_batch % BINS, np.int32), batch=False)
        sign = fn.external_source(source=lambda info: np.array(negated, np.int32), batch=False)
        extra = {"shape": image.shape()} if name in ("translate_x", "translate_y") else {}
        value = getattr(module, name).augmentation(**(change or {}))
        return value(image, magnitude_bin=core.signed_bin(magnitude, sign), num_magnitude_bins=BINS, **extra, **arguments)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe = pipeline()
        pipe.build()
        return pipe.run()


@pytest.mark.parametrize("negated", [0, 1])
@pytest.mark.parametrize("name", ALL)
def test_augmentations_equal_dali(name: str, negated: int) -> None:
    both(lambda dali: augment(dali, name, negated), tolerance=0 if name in EXACT else 1)


@pytest.mark.parametrize("name", ["shear_x", "rotate", "translate_y_no_shape"])
@pytest.mark.parametrize("fill_value", [17, None])
def test_fill_value_equals_dali(name: str, fill_value: int | None) -> None:
    both(lambda dali: augment(dali, name, 1, fill_value=fill_value), tolerance=1)


@pytest.mark.parametrize("name", ["shear_x", "rotate", "translate_y_no_shape"])
def test_nearest_neighbor_equals_dali(name: str) -> None:
    got, wanted = (augment(value, name, 1, interp_type=value.types.INTERP_NN)[0] for value in (ours, real()))
    # A position between two pixels may fall on either.
    assert np.mean([(np.array(got.at(k)) != np.array(wanted.at(k))).mean() for k in range(BINS)]) < 0.01


def test_videos_and_gray_images_are_accepted() -> None:
    rng = np.random.default_rng(1)
    frames = [rng.integers(0, 256, (3, 20, 24 + k, 3), np.uint8) for k in range(4)]
    for name in ("shear_y", "rotate", "solarize", "contrast", "invert"):
        both(lambda dali, name=name: augment(dali, name, 0, data=frames, layout="FHWC"), tolerance=1)
    gray = [rng.integers(0, 256, (20, 24 + k, 1), np.uint8) for k in range(4)]
    for name in ("rotate", "posterize", "auto_contrast", "brightness"):
        both(lambda dali, name=name: augment(dali, name, 0, data=gray), tolerance=1)
    mixed = [gray[0], images()[0], np.full((8, 9, 3), 7, np.uint8)]
    both(lambda dali: augment(dali, "auto_contrast", 0, data=mixed), tolerance=1)


CHANGES = {
    "brightness": {"mag_range": (0.1, 1.9), "randomly_negate": False, "mag_to_param": None},
    "rotate": {"mag_range": np.array([0, 1, 5, 20, 45, 90.5, 91, 120, 180, 200, 300], np.float32)},
    "posterize": {"mag_range": (8, 2)},
    "solarize": {"mag_range": (0, 256)},
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_augmentations_equal_dali(name: str) -> None:
    both(lambda dali: augment(dali, name, 0, CHANGES[name]), tolerance=1)


def describe(augmentations: Any) -> Any:
    def parameter(item: Any) -> Any:
        table = item._get_magnitudes(BINS)
        return None if table is None else np.array([item._map_mag_to_param(value) for value in table], np.float64)

    return [
        [augmentation.name, str(augmentation.mag_range), augmentation.randomly_negate, augmentation.param_device, parameter(augmentation)]
        for augmentation in augmentations
    ]


SUITES: list[tuple[str, str]] = [
    ("rand_augment", "get_rand_augment_suite"),
    ("rand_augment", "get_rand_augment_non_monotonic_suite"),
    ("trivial_augment", "get_trivial_augment_wide_suite"),
    ("auto_augment", "get_image_net_policy"),
    ("auto_augment", "get_svhn_policy"),
    ("auto_augment", "get_reduced_cifar10_policy"),
]


@pytest.mark.parametrize(
    "arguments", [{}, {"use_shape": True}, {"max_translate_abs": (7, 9)}, {"use_shape": True, "max_translate_rel": 0.3}], ids=str
)
@pytest.mark.parametrize(("module", "name"), SUITES, ids=lambda value: value)
def test_tables_of_augmentations_equal_dali(module: str, name: str, arguments: dict[str, Any]) -> None:
    def program(dali: Any) -> Any:
        result = getattr(sub(dali, f"auto_aug.{module}"), name)(**arguments)
        if not hasattr(result, "sub_policies"):
            return describe(result)
        steps = [[(value.name, probability, magnitude) for value, probability, magnitude in several] for several in result.sub_policies]
        return result.name, result.num_magnitude_bins, describe(result.augmentations.values()), steps

    both(program, tolerance=1e-6)


def test_reduced_image_net_table_equals_dali() -> None:
    def program(dali: Any) -> Any:
        result = sub(dali, "auto_aug.auto_augment").get_reduced_image_net_policy()
        steps = [[(value.name, probability, magnitude) for value, probability, magnitude in several] for several in result.sub_policies]
        return result.name, result.num_magnitude_bins, describe(result.augmentations.values()), steps

    both(program, tolerance=1e-6)


# --- Policies --------------------------------------------------------------------------------------------------------------------------------------


def run(definition: Callable[[Any], Any], data: Any, runs: int = 1, layout: str = "HWC", **arguments: Any) -> list[np.ndarray]:
    """Return the samples of a definition of images."""
    options = {"batch_size": len(data), "num_threads": 2, "seed": 7, "enable_conditionals": True, **arguments}

    @ours.pipeline_def(**options)
    def pipeline() -> Any:
        return definition(ours.fn.external_source(source=lambda: data, layout=layout))

    pipe = pipeline()
    return [np.array(output) for _ in range(runs) for output in pipe.run()[0]]


POLICIES: dict[str, Callable[[Any], Any]] = {
    "rand": lambda x: sub(ours, "auto_aug.rand_augment").rand_augment(x, n=3, m=17),
    "rand_shape": lambda x: sub(ours, "auto_aug.rand_augment").rand_augment(x, 2, 9, shape=x.shape(), fill_value=0, monotonic_mag=False, seed=3),
    "trivial": lambda x: sub(ours, "auto_aug.trivial_augment").trivial_augment_wide(x, excluded=["rotate", "shear_x"]),
    "trivial_shape": lambda x: sub(ours, "auto_aug.trivial_augment").trivial_augment_wide(x, num_magnitude_bins=5, shape=x.shape(), fill_value=None),
    "image_net": lambda x: sub(ours, "auto_aug.auto_augment").auto_augment(x),
    "image_net_shape": lambda x: sub(ours, "auto_aug.auto_augment").auto_augment_image_net(x, shape=x.shape(), max_translate_rel=0.5),
    "reduced_image_net": lambda x: sub(ours, "auto_aug.auto_augment").auto_augment(x, "reduced_image_net", interp_type=ours.types.INTERP_NN),
    "svhn": lambda x: sub(ours, "auto_aug.auto_augment").auto_augment(x, "svhn", max_translate_abs=[10, 20]),
    "cifar10": lambda x: sub(ours, "auto_aug.auto_augment").auto_augment(x, "reduced_cifar10"),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_run(name: str) -> None:
    source = images(7)
    first, again = run(POLICIES[name], source, 3), run(POLICIES[name], source, 3)
    assert [value.shape for value in first] == [value.shape for value in source] * 3
    assert all(value.dtype == np.uint8 for value in first)
    for item, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(item, other)
    if "shape" not in name or name == "rand_shape":
        other_seed = run(POLICIES[name], source, 3, seed=8)
        same = all(np.array_equal(value, other) for value, other in zip(first, other_seed, strict=True))
        assert same == (name == "rand_shape")  # which has a seed of its own


@pytest.mark.parametrize("name", ["rand", "image_net"])
def test_policies_run_in_a_branch(name: str) -> None:
    def definition(x: Any) -> Any:
        position = ours.fn.external_source(source=lambda info: np.array(info.idx_in_batch % 2 == 0), batch=False)
        if position:
            x = POLICIES[name](x)
        return x

    value = images(8)
    output = run(definition, value, 2)
    assert all(np.array_equal(result, other) for result, other in zip(output[1::2], [*value, *value][1::2], strict=True))
    assert not all(np.array_equal(result, other) for result, other in zip(output[::2], [*value, *value][::2], strict=True))


def make_tag(core: Any, k: int, negate: bool = False) -> Any:
    """Return an augmentation of int32 (n,) that appends its number and its magnitude."""

    @core.augmentation(mag_range=(0, 9), randomly_negate=negate, mag_to_param=lambda magnitude: np.array([k, magnitude], np.int32))
    def one(data: Any, pair: Any) -> Any:
        return ours.fn.cat(data, pair)

    return one


def count_outputs(definition: Callable[[Any], Any], size: int) -> Counter[tuple[int, ...]]:
    data = [np.array([7], np.int32)] * size
    return Counter(tuple(output[1:].tolist()) for output in run(definition, data, layout=""))


def test_custom_augmentations_are_drawn_with_their_probability() -> None:
    core, size = sub(ours, "auto_aug.core"), 4000
    several = [make_tag(core, 0, True), make_tag(core, 1), make_tag(core, 2)]
    rand = count_outputs(lambda x: sub(ours, "auto_aug.rand_augment").apply_rand_augment(several, x, 2, 4, num_magnitude_bins=10, seed=11), size)
    parts = {(0, 4): 1 / 6, (0, -4): 1 / 6, (1, 4): 1 / 3, (2, 4): 1 / 3}
    assert set(rand) == {(*a, *b) for a in parts for b in parts}
    for key, count in rand.items():
        expected = size * parts[key[0], key[1]] * parts[key[2], key[3]]
        assert abs(count - expected) < 5 * np.sqrt(expected)
    trivial = count_outputs(lambda x: sub(ours, "auto_aug.trivial_augment").apply_trivial_augment(several, x, num_magnitude_bins=10), size)
    assert {key[1] for key in trivial if key[0] == 0} == set(range(-9, 10))
    assert abs(sum(count for key, count in trivial.items() if key[0] == 1) - size / 3) < 5 * np.sqrt(size / 3)
    policy = core.Policy("mine", 10, [[(several[0], 0.5, 3), (several[1], 1, 4)], [(several[2], 0.25, 5)]])
    auto = count_outputs(lambda x: sub(ours, "auto_aug.auto_augment").apply_auto_augment(policy, x), size)
    expected_parts = {(1, 4): 0.25, (0, 3, 1, 4): 0.125, (0, -3, 1, 4): 0.125, (2, 5): 0.125, (): 0.375}
    assert set(auto) == set(expected_parts)
    for key, count in auto.items():
        assert abs(count - size * expected_parts[key]) < 5 * np.sqrt(size * expected_parts[key])


def test_one_operation_equals_conditions() -> None:
    """With one augmentation to choose from, both forms do the same."""
    a, core, rand = (sub(ours, f"auto_aug.{name}") for name in ("augmentations", "core", "rand_augment"))
    source = images(3)
    for name in ("posterize", "sharpness", "contrast", "equalize"):
        item = getattr(a, name).augmentation(randomly_negate=False)

        @core.augmentation(mag_range=item.mag_range, mag_to_param=item.mag_to_param)
        def same(data: Any, parameter: Any, value: Any = item) -> Any:
            return value.op(data, parameter)

        fused = run(lambda x, value=item: rand.apply_rand_augment([value], x, 2, 7), source)
        tree = run(lambda x, same=same: rand.apply_rand_augment([same], x, 2, 7), source)
        for left, right in zip(fused, tree, strict=True):
            np.testing.assert_array_equal(left, right)


def test_builtin_policies_are_one_operation() -> None:
    @ours.pipeline_def(batch_size=2, enable_conditionals=True)
    def pipeline() -> Any:
        return POLICIES["image_net"](POLICIES["rand"](ours.fn.constant(idata=[3], shape=[4, 5, 3], dtype=ours.types.UINT8, layout="HWC")))

    pipe = pipeline()
    pipe.build()
    assert [operation.kind for operation in pipe._graph.operations] == ["Constant", "AutoAugmentPolicy", "AutoAugmentPolicy"]


def test_select_applies_the_chosen_operation() -> None:
    def program(dali: Any) -> Any:
        core, fn = sub(dali, "auto_aug.core"), dali.fn
        choices = [lambda x, k=k, **more: x * 10 + k + more["bias"] for k in range(5)]

        @dali.pipeline_def(batch_size=10, num_threads=2, device_id=None, enable_conditionals=True)
        def pipeline() -> Any:
            x = fn.external_source(source=lambda info: np.array([info.idx_in_batch], np.int32), batch=False)
            index = fn.external_source(source=lambda info: np.array(info.idx_in_batch * 3 % 5, np.int32), batch=False)
            return core.select(choices, index, x, bias=x * 1000)

        pipe = pipeline()
        pipe.build()
        return pipe.run()

    both(program)


# --- Own augmentations -----------------------------------------------------------------------------------------------------------------------------


def magnitudes(dali: Any, call: Callable[[Any, Any, Any], Any], **arguments: Any) -> Any:
    core, fn = sub(dali, "auto_aug.core"), dali.fn

    @core.augmentation(**arguments)
    def parameter_of(data: Any, parameter: Any) -> Any:
        return parameter

    @dali.pipeline_def(batch_size=6, num_threads=2, device_id=None, enable_conditionals=True, seed=1)
    def pipeline() -> Any:
        index = fn.external_source(source=lambda info: np.array(info.idx_in_batch, np.int32), batch=False)
        return call(core, parameter_of, index)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipe = pipeline()
        pipe.build()
        return pipe.run()


def signs(index: Any) -> Any:
    return index % 2


PARAMETERS: dict[str, tuple[Callable[[Any, Any, Any], Any], dict[str, Any]]] = {
    "constant": (lambda core, value, index: value(index, magnitude_bin=2, num_magnitude_bins=5), {"mag_range": (100, 110)}),
    "varying": (lambda core, value, index: value(index, magnitude_bin=index, num_magnitude_bins=6), {"mag_range": (100, 110)}),
    "list": (lambda core, value, index: value(index, magnitude_bin=index), {"mag_range": np.array([1, 1, 2, 3, 5, 8, 13])}),
    "signed": (
        lambda core, value, index: value(index, magnitude_bin=core.signed_bin(index, signs(index)), num_magnitude_bins=7),
        {"mag_range": (1, 7), "randomly_negate": True},
    ),
    "signed_constant": (
        lambda core, value, index: value(index, magnitude_bin=core.signed_bin(3, signs(index)), num_magnitude_bins=7),
        {"mag_range": (1, 7), "randomly_negate": True},
    ),
    "unsigned": (lambda core, value, index: value(index, magnitude_bin=core.signed_bin(index), num_magnitude_bins=7), {"mag_range": (1, 7)}),
    "arrays": (
        lambda core, value, index: value(index, magnitude_bin=index, num_magnitude_bins=9),
        {"mag_range": (1, 9), "mag_to_param": lambda magnitude: np.array([magnitude, 42], np.uint16)},
    ),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_magnitudes_equal_dali(name: str) -> None:
    call, value = PARAMETERS[name]
    both(lambda dali: magnitudes(dali, call, **value))


def test_augmentation_exposes_its_settings() -> None:
    def program(dali: Any) -> Any:
        core = sub(dali, "auto_aug.core")

        @core.augmentation(mag_range=(0, 10), randomly_negate=True, param_device="gpu", name="other")
        def one(data: Any, parameter: Any) -> Any:
            return data

        @core.augmentation
        def two(data: Any, parameter: Any) -> Any:
            return data

        several = [
            one,
            two,
            one.augmentation(mag_range=(3, 4)),
            one.augmentation(name=None, randomly_negate=None),
            one.augmentation(param_device=None),
        ]
        return [[x.name, x.mag_range, x.randomly_negate, x.param_device, x.op is one.op] for x in several]

    both(program)


WRONG: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "empty policy": lambda core, a, m, x: m.auto.apply_auto_augment(core.Policy("p", 9, []), x),
    "unused argument": lambda core, a, m, x: m.auto.apply_auto_augment(m.auto.get_image_net_policy(), x, misspelled=1),
    "missing shape": lambda core, a, m, x: m.auto.apply_auto_augment(m.auto.get_image_net_policy(use_shape=True), x),
    "missing shape of a list": lambda core, a, m, x: m.rand.apply_rand_augment(m.rand.get_rand_augment_suite(True), x, 1, 20),
    "n": lambda core, a, m, x: m.rand.rand_augment(x, None, 1),
    "m": lambda core, a, m, x: m.rand.rand_augment(x, 1, 15, num_magnitude_bins=15),
    "bins": lambda core, a, m, x: m.rand.rand_augment(x, 1, 1, num_magnitude_bins=None),
    "no augmentations": lambda core, a, m, x: m.rand.apply_rand_augment([], x, 1, 20),
    "excluded": lambda core, a, m, x: m.rand.rand_augment(x, 1, 1, excluded=["unknown"]),
    "policy name": lambda core, a, m, x: m.auto.auto_augment(x, "unknown"),
    "translation": lambda core, a, m, x: m.rand.rand_augment(x, 1, 1, max_translate_rel=0.5),
    "magnitude": lambda core, a, m, x: a.rotate(x, magnitude_bin=11, num_magnitude_bins=11),
    "no magnitude": lambda core, a, m, x: a.rotate(x),
    "no number of bins": lambda core, a, m, x: a.rotate(x, magnitude_bin=3),
    "decorated twice": lambda core, a, m, x: core.augmentation(a.rotate, mag_range=(0, 1)),
    "one parameter": lambda core, a, m, x: core.augmentation(lambda data: data),
    "missing argument": lambda core, a, m, x: core.augmentation(lambda data, _, more: data)(x),
    "bins of a policy": lambda core, a, m, x: core.Policy("p", 0.25, []),
    "sub-policies": lambda core, a, m, x: core.Policy("p", 9, a.rotate),
    "sub-policy": lambda core, a, m, x: core.Policy("p", 9, [a.rotate]),
    "step": lambda core, a, m, x: core.Policy("p", 9, [(a.rotate, a.shear_x)]),
    "no augmentation": lambda core, a, m, x: core.Policy("p", 9, [[(0.5, a.rotate, 3)]]),
    "probability": lambda core, a, m, x: core.Policy("p", 9, [[(a.rotate, 2, 2)]]),
    "magnitude of a step": lambda core, a, m, x: core.Policy("p", 9, [[(a.rotate, 1, -1)]]),
    "no magnitude of a step": lambda core, a, m, x: core.Policy("p", 9, [[(a.rotate, 0.5, None)]]),
    "node as parameter": lambda core, a, m, x: core.augmentation(lambda data, _: data, mag_range=(0, 1), mag_to_param=lambda _: x)(
        x, magnitude_bin=1, num_magnitude_bins=2
    ),
}


# Where DALI's AutoGraph wraps the error: the name of ours. Everywhere else both raise a bare Exception.
STAGED = {"unused argument": "UnusedArgException", "magnitude": "Exception", "missing argument": "MissingArgException"}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_policies_raise_like_dali(name: str) -> None:
    class Modules:
        def __init__(self, dali: Any) -> None:
            self.auto, self.rand = (sub(dali, f"auto_aug.{name}") for name in ("auto_augment", "rand_augment"))

    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None, enable_conditionals=True)
        def pipeline() -> Any:
            x = dali.fn.external_source(source=lambda: images(2), layout="HWC")
            return WRONG[name](sub(dali, "auto_aug.core"), sub(dali, "auto_aug.augmentations"), Modules(dali), x)

        pipe = pipeline()
        pipe.build()
        return pipe.run()

    if name in STAGED:
        with pytest.raises(importlib.import_module("nvidia.dali._autograph.impl.api").StagingError):
            program(real())
    else:
        catch_error(lambda: program(real()), Exception)
    error = catch_error(lambda: program(ours), Exception, exact=False)
    assert type(error).__name__ == STAGED.get(name, "Exception")


def test_data_must_be_uint8_images() -> None:
    def program(data: np.ndarray, layout: str) -> Any:
        return lambda _: run(POLICIES["image_net"], [data, data], layout=layout, runs=2)

    ours_raises(program(np.zeros((4, 5, 3), np.float32), "HWC"), RuntimeError, "must be uint8, got f32")
    ours_raises(program(np.zeros((3, 4, 5), np.uint8), "CHW"), RuntimeError, "must have the layout HWC or FHWC, got CHW")


def test_policy_names_equal_dali() -> None:
    def program(dali: Any) -> Any:
        a, core = sub(dali, "auto_aug.augmentations"), sub(dali, "auto_aug.core")
        others = [a.rotate.augmentation(mag_range=(0, k + 1)) for k in range(12)]
        policy = core.Policy("p", 20, [[(a.invert, 0.5, None), (other, 0.25, 3)] for other in others])
        steps = [[(value.name, probability, magnitude) for value, probability, magnitude in several] for several in policy.sub_policies]
        return list(policy.augmentations), steps, str(core.Policy("e", 3, []))

    both(program)


def test_unsigned_magnitudes_warn() -> None:
    with pytest.warns(UserWarning, match="unsigned `magnitude_bin`"):
        run(lambda x: sub(ours, "auto_aug.augmentations").rotate(x, magnitude_bin=3, num_magnitude_bins=5), images(2))


def test_policies_are_serialized() -> None:
    value = images(3)

    def definition() -> Any:
        x = ours.fn.external_source(name="x", layout="HWC")
        return POLICIES["image_net"](POLICIES["rand_shape"](x)), sub(ours, "auto_aug.augmentations").posterize(
            x, magnitude_bin=2, num_magnitude_bins=5
        )

    pipe = ours.pipeline_def(definition)(batch_size=3, seed=5, enable_conditionals=True, prefetch_queue_depth=1)
    again = ours.Pipeline.deserialize(pipe.serialize())
    for _ in range(2):
        for output, other in zip(pipe.run(x=value), again.run(x=value), strict=True):
            for k in range(3):
                np.testing.assert_array_equal(output.at(k), other.at(k))


@pytest.mark.parametrize("form", ["rand", "trivial", "auto"])
def test_custom_policies_are_serialized(form: str) -> None:
    """As trees of conditions: no function is stored."""
    value = images(4)

    def program(dali: Any) -> Any:
        core, known = sub(dali, "auto_aug.core"), sub(dali, "auto_aug.augmentations")

        @core.augmentation(mag_range=(0, 30), randomly_negate=True)
        def tilt(data: Any, angle: Any) -> Any:
            return dali.fn.rotate(data, angle=angle, fill_value=0, keep_size=True)

        @core.augmentation
        def mirror(data: Any, _: Any) -> Any:
            return dali.fn.flip(data)

        def definition() -> Any:
            x = dali.fn.external_source(name="x", layout="HWC")
            if form == "rand":
                return sub(dali, "auto_aug.rand_augment").apply_rand_augment([tilt, mirror, known.invert], x, n=2, m=4, num_magnitude_bins=9)
            if form == "trivial":
                return sub(dali, "auto_aug.trivial_augment").apply_trivial_augment([tilt, mirror, known.invert], x, num_magnitude_bins=9)
            policy = core.Policy("mine", 9, [[(tilt, 0.5, 3), (known.invert, 1, None)], [(mirror, 0.7, None)]])
            return sub(dali, "auto_aug.auto_augment").apply_auto_augment(policy, x)

        def make_pipe() -> Any:
            options = {"batch_size": 4, "num_threads": 1, "device_id": None, "seed": 5, "prefetch_queue_depth": 1}
            return dali.pipeline_def(definition, enable_conditionals=True)(**options)

        pipes = make_pipe(), dali.Pipeline.deserialize(make_pipe().serialize())
        results = []
        for pipe in pipes:
            for _ in range(3):
                pipe.feed_input("x", value)
                (made_of,) = pipe.run()
                results.append(np.concatenate([np.array(made_of.at(k)).ravel() for k in range(4)]))
        return [bool((result == other).all()) for result, other in zip(results[:3], results[3:], strict=True)]

    assert both(program) == [True] * 3
