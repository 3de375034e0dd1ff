# SPDX-License-Identifier: Apache-2.0
"""Calls that repeat earlier ones do not run the operator's body, and their results are those of the first call."""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _plans import clear_plans
from _threads import run_in_threads

import torch_ndd as ndd
from torch_ndd._core.operators.definition import OPERATORS
from torch_ndd._core.operators.plans import plans
from torch_ndd._core.values.batch import Batch

CALLS = 5


cast_to_anything: Any = ndd.cast  # also to what type checkers refuse


def images(seed: int, shape: tuple[int, ...] = (3, 6, 5, 3), dtype: Any = np.uint8) -> Batch:
    return ndd.batch(np.random.default_rng(seed).integers(0, 256, shape).astype(dtype), layout="HWC")


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the operators whose bodies have run. Plans of other tests are dropped: an operator keeps those of eight shapes."""
    clear_plans()
    ran: list[str] = []
    for name in ("flip", "brightness", "crop", "pad", "resize_crop_mirror", "transforms.rotation"):
        op = OPERATORS[name]

        def body(*args: Any, _name: str = name, _body: Any = op.body, **arguments: Any) -> Any:
            ran.append(_name)
            return _body(*args, **arguments)

        monkeypatch.setattr(op, "body", body)
    return ran


def list_modules(call: Callable[[], Any]) -> set[str]:
    """Return the files of torch_ndd that a call enters."""
    root, entered = str(Path(ndd.__file__).parent), set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            entered.add(frame.f_code.co_filename.removeprefix(root))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_calls_enter_few_modules() -> None:
    with ndd.EvalMode.sync_cpu:
        for k in range(2 * CALLS):
            batch = images(k, (3, 7, 11, 3))
            modules = list_modules(lambda batch=batch: ndd.resize(batch, size=[5, 9]))
            if k == 0:
                # Each further module of the path is one more file to read for whoever follows a call.
                assert len(modules) <= 13, modules
    assert modules == {f"/_core/{name}.py" for name in ("native/tracing", "operators/plans", "operators/plan", "values/batch")}


def test_fourth_call_skips_the_body(bodies: list[str]) -> None:
    for k in range(CALLS):
        batch = images(k, (2, 7, 9, 3))
        flipped = ndd.flip(batch, horizontal=0, vertical=1)
        assert torch.equal(flipped.torch(), batch.torch().flip(1))
        assert flipped.layout == "HWC"
    assert len(bodies) <= 3


def test_plans_of_alternating_shapes_and_types(bodies: list[str]) -> None:
    shapes = [(2, 3 + k, 5, 3) for k in range(3)]
    for _ in range(CALLS):
        for shape in shapes:
            for dtype in (np.uint8, np.float32):
                batch = images(1, shape, dtype)
                output = ndd.flip(batch, horizontal=1, vertical=1)
                assert output.dtype == batch.dtype
                assert torch.equal(output.torch(), batch.torch().flip(1, 2))
    assert len(bodies) <= 3 * len(shapes) * 2


def test_plan_serves_other_numbers_of_samples(bodies: list[str]) -> None:
    for samples in (3, 3, 3, 3, 5, 2, 7, 1, 4, 3):
        batch = images(samples, (samples, 6, 5, 3))
        assert torch.equal(ndd.flip(batch, horizontal=1, vertical=1).torch(), batch.torch().flip(1, 2))
    assert len(bodies) == 4  # the last is the first call with 5 samples, which is compared with those of 3


def test_plans_of_several_shapes_serve_other_numbers_of_samples(bodies: list[str]) -> None:
    sides = range(3, 15)
    for side in sides:
        for samples in (3, 3, 3, 3, 5, 2, 7, 1, 4, 3):
            batch = images(samples, (samples, side, 5, 3))
            assert torch.equal(ndd.flip(batch, horizontal=1, vertical=1).torch(), batch.torch().flip(1, 2))
    assert len(bodies) == 4 * len(sides)
    for side in sides:
        for samples in (8, 9, 3):
            batch = images(samples, (samples, side, 5, 3))
            assert torch.equal(ndd.flip(batch, horizontal=1, vertical=1).torch(), batch.torch().flip(1, 2))
    assert len(bodies) == 4 * len(sides)


def test_plan_with_batch_size_beside_inputs_serves_other_numbers_of_samples(bodies: list[str]) -> None:
    for samples in (3, 3, 3, 3, 5, 2, 7, 1, 4, 3):
        batch = images(samples, (samples, 6, 5, 3))
        assert torch.equal(ndd.flip(batch, batch_size=samples, horizontal=1, vertical=1).torch(), batch.torch().flip(1, 2))
    assert len(bodies) == 4
    with pytest.raises(ValueError, match="batch_size"):
        ndd.flip(images(0), batch_size=4, horizontal=1, vertical=1)
    assert ndd.flip(images(0).tensors[0], batch_size=2, horizontal=1, vertical=1).batch_size == 2


@pytest.mark.parametrize("name", ["noise.gaussian", "random_resized_crop"])
def test_plan_of_a_random_operator_serves_other_numbers_of_samples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, ran = OPERATORS[name], list[int]()
    body = op.body
    function: Any = {
        "noise.gaussian": lambda batch: ndd.noise.gaussian(batch, stddev=5.0),
        "random_resized_crop": lambda batch: ndd.random_resized_crop(batch, size=[4, 4]),
    }[name]
    batches = [images(samples, (samples, 6, 5, 3)) for samples in (3, 3, 3, 3, 5, 8, 7, 1, 4, 3)]
    ndd.random.set_seed(5)
    expected = []
    for batch in batches:
        clear_plans()
        expected.append(function(batch).torch())
    clear_plans()
    monkeypatch.setattr(op, "body", lambda *args, **arguments: (ran.append(1), body(*args, **arguments))[1])
    ndd.random.set_seed(5)
    assert all(torch.equal(function(batch).torch(), other) for batch, other in zip(batches, expected, strict=True))
    assert len(ran) == 4  # the last is the first call with 5 samples


@pytest.mark.parametrize("position", [0.5, 1.0])  # a window in the middle is the same in a mirrored image: one row for all samples
def test_plan_with_derived_tables_serves_other_numbers_of_samples(bodies: list[str], position: float) -> None:
    def resize(samples: int) -> torch.Tensor:
        mirrors = ndd.batch(np.arange(samples, dtype=np.int32) % 2)
        batch, arguments = images(samples, (samples, 6, 5, 3)), {"crop_pos_x": position, "mirror": mirrors}
        return ndd.resize_crop_mirror(batch, size=[8, 9], crop=[4, 6], rule="torch", **arguments).torch()

    counts = (3, 3, 3, 3, 5, 6, 7, 1, 4, 3)
    results = [resize(samples) for samples in counts]
    assert len(bodies) == 4  # the last is the first call with 5 samples
    for samples, result in zip(counts, results, strict=True):
        plans.clear()
        assert torch.equal(result, resize(samples))


def test_plan_with_windows_that_one_sample_completes_serves_several(bodies: list[str]) -> None:
    def crop(samples: int) -> torch.Tensor:
        positions = torch.arange(samples, dtype=torch.float32) / samples
        return ndd.crop(
            images(samples, (samples, 9, 8, 3)), crop=[4, 5], crop_pos_x=ndd.batch(positions), crop_pos_y=ndd.batch(1 - positions)
        ).torch()

    counts = (3, 3, 3, 1, 5, 4, 1)  # the first call with one sample shows that the number of samples does not matter
    results = [crop(samples) for samples in counts]
    assert len(bodies) == 4
    for samples, result in zip(counts, results, strict=True):
        plans.clear()
        assert torch.equal(result, crop(samples))


def test_plan_with_a_sequence_serves_other_numbers_of_samples(bodies: list[str]) -> None:
    for samples in (3, 3, 3, 3, 5, 4, 7, 1, 3):
        batch = images(samples, (samples, 6, 5, 3))
        assert torch.equal(ndd.crop(batch, crop=[4, 2], crop_pos_x=0.0, crop_pos_y=0.0).torch(), batch.torch()[:, :4, :2])
    assert len(bodies) == 4
    # As many numbers as samples, which may be one for each.
    batch = images(2, (2, 6, 5, 3))
    assert torch.equal(ndd.crop(batch, crop=[4, 2], crop_pos_x=0.0, crop_pos_y=0.0).torch(), batch.torch()[:, :4, :2])
    assert len(bodies) == 5


def test_plan_of_other_numbers_of_samples_checks_all_operands(bodies: list[str]) -> None:
    def brighten(samples: int, factors: int) -> torch.Tensor:
        factor = ndd.batch(np.arange(1, factors + 1, dtype=np.float32))
        return ndd.brightness(images(0, (samples, 4, 4, 3), np.float32), brightness=factor).torch()

    for samples in (3, 3, 3, 3, 5, 2, 6):
        expected = images(0, (samples, 4, 4, 3), np.float32).torch() * torch.arange(1, samples + 1).view(-1, 1, 1, 1)
        assert torch.equal(brighten(samples, samples), expected)
    assert len(bodies) == 4
    with pytest.raises(ValueError, match="batch size"):
        brighten(6, 5)
    assert torch.equal(ndd.flip(images(0, (0, 6, 5, 3))).torch(), torch.empty(0, 6, 5, 3, dtype=torch.uint8))


@pytest.mark.parametrize("convert", [list, tuple, np.array, torch.tensor])
def test_calls_with_other_numbers_for_each_sample_share_a_plan(bodies: list[str], convert: Any) -> None:
    for k in range(10):
        factors = [float(k + sample) for sample in range(20)]
        values = images(k, (20, 4, 4, 3), np.float32)
        output = ndd.brightness(values, brightness=convert(factors))
        assert torch.equal(output.torch(), values.torch() * torch.tensor(factors).view(-1, 1, 1, 1))
    assert len(bodies) == 3
    with pytest.raises(ValueError, match="brightness"):
        ndd.brightness(images(0, (20, 4, 4, 3)), brightness=["bright"] * 20)


def test_arguments_for_each_sample_have_plans_by_the_number_of_samples(bodies: list[str]) -> None:
    for samples in (3, 3, 3, 3, 5, 2, 5, 2):
        batch = images(samples, (samples, 6, 5, 3))
        mirrored = [k % 2 for k in range(samples)]
        output = ndd.flip(batch, horizontal=mirrored).torch()
        for sample, image, is_mirrored in zip(output, batch.torch(), mirrored, strict=True):
            assert torch.equal(sample, image.flip(1) if is_mirrored else image)


def test_numbers_that_compare_equal_have_plans_of_their_own() -> None:
    batch = ndd.batch([np.ones(1, np.float32)])
    for _ in range(CALLS):
        for value, sign in ((0.0, False), (-0.0, True)):
            assert bool(torch.signbit(ndd.pad(batch, fill_value=value, axes=0, shape=2).torch()[0, 1])) == sign
        assert cast_to_anything(batch, dtype=ndd.types.INT32).dtype == torch.int32
    assert ndd.types.INT32 == 6
    with pytest.raises(TypeError):
        cast_to_anything(batch, dtype=6)


def test_repeated_call_reads_per_sample_arguments(bodies: list[str]) -> None:
    batch = images(0, (2, 4, 5, 3))
    for k in range(CALLS):
        output = ndd.brightness(batch, brightness=ndd.batch([1.0, k / 4]), dtype=ndd.float32).torch()
        assert torch.equal(output[0], batch.torch()[0].float())
        assert torch.equal(output[1], batch.torch()[1].float() * (k / 4))
    assert len(bodies) <= 3
    for k in range(CALLS):  # read by the body
        output = ndd.crop(batch, crop=[2, 2], crop_pos_x=ndd.batch([k / 4, 0.0]))
        assert torch.equal(output.torch()[0], batch.torch()[0, 1:3, round(k / 4 * 3) : round(k / 4 * 3) + 2])


def test_repeated_call_reads_memory_of_the_caller_immediately() -> None:
    memory = torch.zeros(2, 300, 400, 3, dtype=torch.uint8)
    batch = ndd.as_batch(memory, layout="HWC")
    for k in range(CALLS):
        memory.fill_(k)
        output = ndd.flip(batch)
        memory.fill_(99)
        assert output.torch().unique().tolist() == [k]
    for k in range(CALLS):
        memory[0, 0] = k
        turned = ndd.as_batch(memory.transpose(1, 2), layout="HWC")  # not contiguous
        assert torch.equal(ndd.flip(turned).torch(), memory.transpose(1, 2).flip(2))


@pytest.mark.parametrize("mode", list(ndd.EvalMode))
def test_repeated_call_reads_pending_inputs_in_each_mode(mode: ndd.EvalMode) -> None:
    with mode:
        for k in range(CALLS):
            batch = images(k, (4, 200, 300, 3))
            output = ndd.flip(ndd.flip(ndd.flip(batch), horizontal=0, vertical=1), vertical=1)
            assert torch.equal(output.torch(), batch.torch())


def test_operator_without_inputs_is_repeated(bodies: list[str]) -> None:
    found = [ndd.transforms.rotation(angle=30.0, batch_size=2).torch() for _ in range(CALLS)]
    assert len(bodies) <= 3
    assert all(torch.equal(result, found[0]) for result in found)
    assert ndd.transforms.rotation(angle=30.0, batch_size=3).batch_size == 3
    assert type(ndd.transforms.rotation(angle=30.0)) is ndd.Tensor


@pytest.mark.parametrize("name", ["random.coin_flip", "random.normal", "batch_permutation", "noise.gaussian", "random_resized_crop"])
def test_random_operator_draws_at_each_repeated_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, ran = OPERATORS[name], list[int]()
    body = op.body
    monkeypatch.setattr(op, "body", lambda *args, **arguments: (ran.append(1), body(*args, **arguments))[1])
    function: Any = {
        "random.coin_flip": lambda **rng: ndd.random.coin_flip(batch_size=64, **rng),
        "random.normal": lambda **rng: ndd.random.normal(batch_size=4, shape=[3], **rng),
        "batch_permutation": lambda **rng: ndd.batch_permutation(batch_size=64, **rng),
        "noise.gaussian": lambda **rng: ndd.noise.gaussian(images(0, (2, 20, 30, 3)), stddev=5.0, **rng),
        "random_resized_crop": lambda **rng: ndd.random_resized_crop(images(0, (2, 20, 30, 3)), size=[4, 4], **rng),
    }[name]

    def sequence(**rng: Any) -> list[bytes]:
        return [function(**rng).torch().numpy().tobytes() for _ in range(CALLS)]

    ndd.random.set_seed(5)
    first = sequence()
    assert len(set(first)) == CALLS
    ndd.random.set_seed(5)
    assert sequence() == first
    assert len(ran) <= 3
    first_, other = ndd.random.RNG(5), ndd.random.RNG(5)
    assert sequence(rng=first_) == sequence(rng=other)
    assert first_.state == other.state
    with pytest.raises(ValueError, match="rng"):
        function(rng=3)


def test_repeated_call_raises_the_errors_of_the_first() -> None:
    for k in range(CALLS):
        for keys in ([1, 0], [300, 0]):
            batch = ndd.batch([np.array(keys, np.int32)])
            assert ndd.lookup_table(batch, keys=[1], values=[2.0]).torch().tolist() == [[2.0 if key == 1 else 0.0 for key in keys]], k
    for _ in range(CALLS):
        for last in (1.0, 0.0):
            axes = ndd.batch([[1.0, 0.0, 0.0], [0.0, 0.0, last]])
            if last:
                ndd.transforms.rotation(angle=20.0, axis=axes).evaluate()
                continue
            with pytest.raises(RuntimeError, match=r"rotation: axis must be finite and not zero, sample 1(?s:.*)test_repeated_calls"):
                ndd.transforms.rotation(angle=20.0, axis=axes).evaluate()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("resize", {"size": [4, 4]}),
        ("resize", {"size": [4, 4], "roi_start": ndd.batch([[1.0, 1.0], [0.0, 2.0]]), "roi_end": ndd.batch([[6.0, 7.0], [5.0, 6.0]])}),
        ("resize", {"resize_x": [4.0, 5.0], "resize_y": 4.0}),
        ("random_resized_crop", {"size": [4, 4]}),
        ("random_resized_crop", {"size": [4, 4], "mean": [1.0], "mirror": [0, 1]}),
        ("resize_crop_mirror", {"size": [4, 4], "mean": [1.0]}),
        ("crop", {"crop": [4, 4], "crop_pos_x": [0.1, 0.9]}),
        ("crop_mirror_normalize", {"crop": [4, 4], "crop_pos_x": [0.1, 0.9], "mean": [1.0]}),
        ("rotate", {"angle": [10.0, 20.0], "keep_size": True}),
        ("warp_affine", {"matrix": [1.0, 0.5, 0.0, 0.0, 1.0, 0.0]}),
    ],
)
def test_repeated_call_of_videos_follows_their_numbers_of_frames(name: str, arguments: dict[str, Any]) -> None:
    operator: Any = getattr(ndd, name)

    def call(lengths: tuple[int, int], rows: int) -> Batch:
        # Of one color each, so the windows of a random operator do not matter.
        videos = [torch.full((length, rows + k, 9, 3), 7 + k, dtype=torch.uint8) for k, length in enumerate(lengths)]
        return operator(ndd.batch(videos, layout="FHWC"), **arguments).evaluate()

    others = [(2, 6), (6, 2), (4, 4)]
    expected = []
    for lengths in others:
        clear_plans()
        expected.append(call(lengths, 8))
    for k in range(CALLS):
        call((4, 4), 8 + k)  # dense results, although videos will not always have as many frames
    for lengths, first in zip(others, expected, strict=True):
        output = call(lengths, 8)
        assert output.shape == first.shape
        assert [shape[0] for shape in output.shape] == list(lengths)
        assert all(torch.equal(output.nth(i).torch(), first.nth(i).torch()) for i in range(2))


# Calls with a pair of numbers that the plan derives something from, and with numbers (N, 3) that only the kernel gets.
DERIVED: dict[str, Callable[[Batch, Batch, Batch], Batch]] = {
    "crop": lambda x, pair, numbers: ndd.crop(x, crop=[20, 20], crop_pos_x=pair, fill_values=numbers, out_of_bounds_policy="pad"),
    "slice": lambda x, pair, numbers: ndd.slice(x, rel_start=pair, shape=20, axes=[1], fill_values=numbers, out_of_bounds_policy="pad"),
    "crop_mirror_normalize": lambda x, pair, numbers: ndd.crop_mirror_normalize(x, crop=[4, 4], crop_pos_x=pair, mean=numbers),
    "resize_crop_mirror": lambda x, pair, numbers: ndd.resize_crop_mirror(x, size=[12, 13], crop=[4, 4], mirror=pair, mean=numbers),
    "rotate": lambda x, pair, numbers: ndd.rotate(x, angle=pair, fill_value=numbers),
    "rotate within the image": lambda x, pair, numbers: ndd.rotate(x, angle=pair, fill_value=numbers, keep_size=True),
}


@pytest.mark.parametrize("changes", ["pair", "numbers"])
@pytest.mark.parametrize("name", DERIVED)
def test_repeated_call_follows_numbers_that_the_caller_may_overwrite(name: str, changes: str) -> None:
    """The kernel gets a copy of them, which must not become a constant of the plan."""
    picture = ndd.batch([np.arange(height * 9 * 3, dtype=np.uint8).reshape(height, 9, 3) for height in (8, 7)], layout="HWC")

    def call(pair: list[float], value: float) -> list[torch.Tensor]:
        numbers = torch.tensor([[value, 2.0, 3.0], [4.0, value, 6.0]])
        output = DERIVED[name](picture, ndd.as_batch(torch.tensor(pair)), ndd.as_batch(numbers))
        return [sample.torch().clone() for sample in output.tensors]

    changed: tuple[list[float], float] = ([0.0, 1.0], 1.0) if changes == "pair" else ([1.0, 0.0], 9.0)
    clear_plans()
    expected = call(*changed)
    clear_plans()
    for _ in range(CALLS):
        call([1.0, 0.0], 1.0)
    for found, wanted in zip(call(*changed), expected, strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize(("name", "argument"), [("gaussian", "stddev"), ("shot", "factor"), ("salt_and_pepper", "prob")])
def test_repeated_call_compares_numbers_of_frames(name: str, argument: str) -> None:
    values = ndd.per_frame(ndd.batch([[0.1, 0.2, 0.1, 0.2], [0.2, 0.1, 0.2, 0.1]]))

    def call(lengths: tuple[int, int], rows: int) -> None:
        videos = ndd.batch([np.zeros((length, rows + k, 9, 3), np.uint8) for k, length in enumerate(lengths)], layout="FHWC")
        getattr(ndd.noise, name)(videos, **{argument: values}).evaluate()

    for k in range(CALLS):
        call((4, 4), 8 + k)
    with pytest.raises(RuntimeError, match=f"'{argument}' is for 4 frames, but sample 0 of input 0 has 2 frames"):
        call((2, 6), 8)


@pytest.mark.slow
def test_plans_keep_no_batch_alive() -> None:
    sizes = []
    for _ in range(CALLS):
        batch = images(0, (2, 40, 50, 3))
        output = ndd.flip(batch)
        output.evaluate()
        del batch, output
        gc.collect()
        sizes.append(sum(type(obj) is torch.Tensor and obj.shape == (2, 40, 50, 3) for obj in gc.get_objects()))
    assert sizes == [0] * CALLS


def test_threads_share_plans() -> None:
    def work(seed: int) -> None:
        for k in range(40):
            batch = images(seed, (2, 3 + k % 4, 5, 3))
            assert torch.equal(ndd.flip(batch, vertical=1, horizontal=0).torch(), batch.torch().flip(1))

    run_in_threads(work, 4)
