# SPDX-License-Identifier: Apache-2.0
"""``next_epoch(capture=True)``: the values, order, errors and random numbers of plain execution, with calls made ahead."""

import io
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from _captures import Counted
from PIL import Image

import torch_ndd as ndd
from torch_ndd import EvalContext, EvalMode
from torch_ndd._core.operators.capture import LoopRecorder, Owner
from torch_ndd._core.values.operand import Operand, loop
from torch_ndd.random import RNG

MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
Body = Callable[..., Any]  # (step, jpegs, labels, generator) -> tensors of that step


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, generator, outputs = tmp_path_factory.mktemp("captured"), np.random.default_rng(0), []
    for k in range(26):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (6, 5, 3)).astype(np.uint8)).resize((40 + k % 5, 50)).save(file, "JPEG")
        outputs.append(folder / f"{k:02}.jpg")
        outputs[-1].write_bytes(file.getvalue())
    return outputs


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def values(value: Any) -> list[np.ndarray]:
    samples = value.tensors if isinstance(value, ndd.Batch) else [value]
    return [np.asarray(sample).copy() for sample in samples]


def run(body: Body, paths: list[Path], capture: bool, epochs: int = 2, **options: Any) -> list[Any]:
    """Return everything observable of a loop: values, states of the reader and of the generators."""
    ndd.random.set_seed(7)
    generator = RNG(5)
    reader = ndd.readers.File(files=[str(path) for path in paths], random_shuffle=True, seed=3, enable_checkpointing=True, **options)
    seen: list[Any] = []
    for _ in range(epochs):
        for step, (jpegs, labels) in enumerate(reader.next_epoch(batch_size=4, capture=capture)):
            output = body(step, jpegs, labels, generator)
            if output is None:
                break
            seen += [values(part) for part in output]
            seen += [reader.state_dict(), str(reader.get_state()), str(generator.state), str(ndd.random.get_default_rng().state)]
    return [*seen, reader.state_dict()]


def assert_same(steps: list[Any], other: list[Any]) -> None:
    assert len(steps) == len(other)
    for ours, theirs in zip(steps, other, strict=True):
        if isinstance(ours, list):
            assert [(x.shape, x.dtype) for x in ours] == [(x.shape, x.dtype) for x in theirs]
            assert all(np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))
        else:
            assert ours == theirs


def training(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    images = ndd.decoders.image_random_crop(jpegs)
    images = ndd.resize(images, size=[24, 24])
    mirror = ndd.random.coin_flip(batch_size=4, probability=0.5)
    return ndd.crop_mirror_normalize(images, mirror=mirror, mean=MEAN, std=STD), labels


def own_generator(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    images = ndd.random_resized_crop(ndd.decoders.image(jpegs), size=[16, 16], rng=generator)
    noisy = [ndd.noise.gaussian(images, stddev=5.0, rng=generator) for _ in range(3)]
    return (*noisy, ndd.random.uniform(batch_size=4), ndd.one_hot(labels, num_classes=10))


def other_draws(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    before = generator()
    angle = ndd.random.uniform(range=[-20.0, 20.0], batch_size=4, rng=generator)
    after = [generator() for _ in range(5)]
    return ndd.rotate(ndd.decoders.image(jpegs), angle=angle), [before, *after]


def irregular_draws(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    if step % 3 == 1:
        generator()
    if step == 4:
        generator.seed = 99
    mirror = ndd.random.coin_flip(batch_size=4, rng=generator)
    return (ndd.flip(ndd.decoders.image(jpegs), horizontal=mirror),)


def changing(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    """Constants, calls and their order change."""
    images = ndd.resize(ndd.decoders.image(jpegs), size=[20, 20 + step // 3])
    if step % 2:
        images = ndd.brightness(images, brightness=1.0 + step / 10)
    blurred = ndd.gaussian_blur(images, window_size=3) if step != 3 else images
    return ndd.flip(images), blurred


def in_place(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    """Writes of the loop into a result are visible to the calls after it."""
    images = ndd.resize(ndd.decoders.image(jpegs), size=[20, 20])
    seen = ndd.hue(images, hue=30.0).evaluate(), ndd.reshape(images, layout="WHC", shape=[20, 20, 3])
    images.torch()[:, 3:9] = step
    flipped = ndd.flip(images)
    array = np.asarray(labels.tensors[1])
    output = ndd.cast(labels, dtype=torch.float32)
    output.evaluate()
    array[...] = 7 + step
    return *seen, flipped, output, ndd.cast(labels, dtype=torch.float64), ndd.cast(seen[1], dtype=torch.float32)


def through_numpy(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    images = ndd.resize(ndd.decoders.image(jpegs), size=[20, 20])
    if step == 3:
        images.torch().numpy()[:, 4:9] = 99
    if step == 4:
        np.asarray(images.tensors[2])[:7] = 98
    return ndd.flip(images), images


def earlier_batches(step: int, jpegs: Any, labels: Any, generator: RNG, kept: list[Any] = []) -> Any:  # noqa: B006
    """Values of earlier steps and from before the loop, and arrays that are written to."""
    if step == 0:
        kept[:] = [ndd.resize(ndd.decoders.image(jpegs), size=[20, 20]), np.array([1, 2, 3], np.float32), [20, 20], ndd.tensor([3.0, 2.0, 1.0])]
    kept[1][0] = step // 2
    kept[2][1] = 20 + (step == 3)
    images = ndd.resize(ndd.decoders.image(jpegs), size=kept[2])
    mixed = ndd.normalize(images, mean=100.0, stddev=20.0), ndd.flip(kept[0]), ndd.cast(kept[3], dtype=torch.float16)
    if step % 4 == 3:
        kept[0] = images
    return *mixed, ndd.crop_mirror_normalize(images, mean=kept[1])


def errors_caught(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    images = ndd.decoders.image(jpegs)
    with pytest.raises(RuntimeError, match="crop"):
        ndd.crop(images, crop=[1000, 1000]).evaluate()
    with pytest.raises(TypeError):
        ndd.flip(images, nonsense=1)
    return (ndd.flip(images),)


def modes(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    with (EvalMode.eager, EvalMode.deferred, EvalMode.sync_full)[step % 3]:
        images = ndd.decoders.image(jpegs)
    with EvalContext(num_threads=1):
        flipped = ndd.flip(images)
        EvalContext.current().evaluate_all()
    return images, flipped, images.tensors[0], ndd.brightness(images.tensors[1], brightness=0.5)


def compute(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    """Python operators and indices."""
    images = ndd.resize(ndd.decoders.image(jpegs), size=[20, 20])
    dark = ndd.math.sqrt((255 - images) * 0.5) + labels
    return dark, images.slice[2:12, ..., -1], ndd.flip(images.slice[0:20] // 2), labels == 3


def views(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    """Views that share memory with the whole, writes to them, changing numbers, and mistakes."""
    images = ndd.resize(ndd.decoders.image(jpegs), size=[20, 20])
    whole = images.slice[0:20]
    seen = (images + step % 3).evaluate(), ndd.flip(whole).evaluate()
    if step > 2:
        whole.torch()[:, 3:9] = step
    for mistake in (lambda: images.slice[30], lambda: images + np.ones(2), lambda: images.slice[None]):
        with pytest.raises((IndexError, RuntimeError, TypeError)):
            mistake()
    places = ndd.batch([[0], [step], [2], [19]]).slice[0]
    return *seen, images * 2, ndd.flip(whole), images.slice[places], images.slice[step], images.slice[..., :: step + 1]


def leaving(step: int, jpegs: Any, labels: Any, generator: RNG) -> Any:
    return training(step, jpegs, labels, generator) if step < 4 else None


BODIES = [
    training,
    own_generator,
    other_draws,
    irregular_draws,
    changing,
    in_place,
    through_numpy,
    earlier_batches,
    errors_caught,
    modes,
    compute,
    views,
    leaving,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_captured_loop_equals_plain_execution(body: Body, paths: list[Path], counter: Counted) -> None:
    plain = run(body, paths, capture=False)
    assert counter.made == 0
    assert_same(run(body, paths, capture=True), plain)
    assert body is irregular_draws or counter.taken > 0


def test_calls_are_issued_ahead(paths: list[Path], counter: Counted) -> None:
    """7 steps: the first is recorded; in the second, those of the third are made. No call is wasted."""
    for body in (training, own_generator, compute):
        counter.taken = counter.made = 0
        run(body, paths, capture=True, epochs=1)
        calls = {"training": 4, "own_generator": 7, "compute": 11}[body.__name__]
        assert (counter.made, counter.taken) == (5 * calls, 5 * calls)
    counter.taken = counter.made = 0
    run(other_draws, paths, capture=True, epochs=1)
    assert counter.taken >= 4 * 3  # the first guess of the generator's position ignores the loop's own draws


def test_call_whose_arguments_always_change_is_issued_ahead_once(paths: list[Path], counter: Counted) -> None:
    run(lambda step, jpegs, *_: (ndd.resize(ndd.decoders.image(jpegs), size=[20, 20 + step]),), paths, capture=True, epochs=1)
    assert counter.made == counter.taken + 1


def test_state_saved_in_a_captured_loop_resumes_it(paths: list[Path]) -> None:
    files = [str(path) for path in paths]
    reader = ndd.readers.File(files=files, random_shuffle=True, seed=3)
    seen, states = [], []
    for jpegs, _ in reader.next_epoch(batch_size=4, compile=True):
        seen.append(np.array(ndd.decoders.image(jpegs).tensors[0]))
        states.append(reader.state_dict())
        if len(seen) == 5:  # going back while a batch has been read early
            reader.load_state_dict(states[1])
    for again in (seen[5:], [np.array(ndd.decoders.image(jpegs).tensors[0]) for jpegs, _ in _resume(files, states[1], 4)]):
        assert len(again) >= 2
        assert all(np.array_equal(arrays, other) for arrays, other in zip(again, seen[2:5], strict=False))


def _resume(files: list[str], state: dict[str, Any], batch_size: int) -> Iterator[Any]:
    reader = ndd.readers.File(files=files, random_shuffle=True, seed=3)
    reader.load_state_dict(state)
    return reader.next_epoch(batch_size=batch_size, capture=True)


def test_errors_of_samples_appear_with_their_batch(paths: list[Path], tmp_path: Path) -> None:
    files = [str(path) for path in paths]
    files[13] = str(tmp_path / "missing.jpg")

    def errors(capture: bool, on_error: Any) -> list[Any]:
        reader = ndd.readers.File(files=files, on_error=on_error)
        seen: list[Any] = []
        try:
            for jpegs, _ in reader.next_epoch(batch_size=4, capture=capture):
                seen += [values(ndd.flip(ndd.decoders.image(jpegs))), len(reader.errors), reader.state_dict()]
        except RuntimeError as error:
            seen.append(str(error))
        return seen

    for on_error in ("raise", "skip", "replace"):
        assert_same(errors(True, on_error), errors(False, on_error))


def test_error_of_a_call_issued_ahead_shows_the_line_of_the_call(paths: list[Path], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jpg"
    image = io.BytesIO()
    Image.effect_noise((60, 60), 50).save(image, "JPEG")
    damaged.write_bytes(image.getvalue()[:700])
    files = [*(str(path) for path in paths[:16]), str(damaged), *(str(path) for path in paths[16:])]
    steps = 0
    with pytest.raises(RuntimeError) as raised:  # noqa: PT012
        for jpegs, _ in ndd.readers.File(files=files).next_epoch(batch_size=4, capture=True):
            ndd.decoders.image(jpegs).evaluate()  # this line
            steps += 1
    assert steps == 4
    assert re.fullmatch(rf"decoders\.image: sample 0 \({damaged}\): .*\ncalled at {__file__}:\d+: .*this line", str(raised.value))


def test_nested_and_interleaved_captured_loops(paths: list[Path]) -> None:
    def nest_loops(capture: bool) -> list[Any]:
        readers = [ndd.readers.File(files=[str(path) for path in paths], seed=seed, random_shuffle=True) for seed in (1, 2)]
        seen = []
        for jpegs, _ in readers[0].next_epoch(batch_size=9, capture=capture):
            for inner, _ in readers[1].next_epoch(batch_size=6, capture=capture):
                seen.append(values(ndd.flip(ndd.decoders.image(inner))))
            seen.append(values(ndd.flip(ndd.decoders.image(jpegs))))
        pairs = zip(*(reader.next_epoch(batch_size=5, capture=capture) for reader in readers), strict=True)
        for (value, _), (other, _) in pairs:
            seen += [values(ndd.flip(ndd.decoders.image(files))) for files in (value, other)]
        return seen

    assert_same(nest_loops(True), nest_loops(False))
    assert loop.recorder is None


def test_captured_loop_over_samples_and_dicts(paths: list[Path], counter: Counted) -> None:
    def decode_all(capture: bool) -> list[Any]:
        reader = ndd.readers.File(files=[str(path) for path in paths[:8]])
        return [values(ndd.flip(ndd.decoders.image(jpeg))) for jpeg, _ in reader.next_epoch(capture=capture)]

    assert_same(decode_all(True), decode_all(False))
    assert counter.taken == 2 * 6


@pytest.mark.parametrize(
    "value", [None, 3, 2.5, "HWC", [1, 2], (3, 4), {"a": 1}, np.arange(3), torch.arange(3)], ids=lambda value: type(value).__name__
)
def test_invariant_returns_its_argument(value: Any) -> None:
    marked = ndd.capture.invariant(value)
    assert isinstance(marked, type(value))
    assert ndd.capture.invariant(marked) is marked


def test_invariant_is_accepted_by_every_parameter(paths: list[Path]) -> None:
    invariant = ndd.capture.invariant
    source = ndd.ExternalSource(invariant([[1, 2], [3, 4]]), layout=invariant(None))
    assert source().torch().tolist() == [1, 2]
    assert ndd.tensor(invariant([1, 2]), dtype=invariant("f32"), device=invariant("cpu")).shape == (2,)
    assert ndd.random.uniform(range=invariant([0.0, 1.0]), batch_size=invariant(3), rng=invariant(RNG(1))).batch_size == 3
    size = invariant([20, 20])
    for jpegs, _ in ndd.readers.File(files=[str(path) for path in paths]).next_epoch(batch_size=invariant(13), capture=invariant(True)):
        assert ndd.resize(ndd.decoders.image(jpegs), size=size).torch().shape == (13, 20, 20, 3)


@pytest.mark.parametrize("kind", ["reader", "source"])
def test_stored_error_does_not_keep_the_captured_loop_alive(kind: str, paths: list[Path]) -> None:
    source = ndd.ExternalSource(lambda: np.zeros((4, 5, 3), np.uint8), layout="HWC")

    def run_loop() -> None:
        for batch in ndd.readers.File(files=paths).next_epoch(batch_size=2, capture=True) if kind == "reader" else source.captured(2):
            ndd.flip(batch[0] if kind == "reader" else batch, nonsense=1)

    with pytest.raises(TypeError, match="nonsense") as kept:
        run_loop()
    assert kept.value.__traceback__ is not None  # its frames hold the recorder
    assert loop.recorder is None
    assert isinstance(source(), ndd.Tensor)


def test_a_loop_with_results_on_a_gpu_is_executed_plainly() -> None:
    on_gpu: Any = SimpleNamespace(device=torch.device("cuda", 0), is_inference=lambda: False, _version=0)
    owner, calls = Owner(), list[int]()
    recorder = LoopRecorder(weakref.ref(owner))

    def decode(inputs: tuple[Any, ...], arguments: dict[str, Any]) -> Operand:
        calls.append(inputs[0])
        return Operand(on_gpu, None, None, False)

    for step in range(4):
        recorder.begin(ndd.tensor(np.zeros(3, np.uint8)))
        assert not recorder.has_calls
        recorder.call("decode", decode, (1,), {}, False)
        recorder.call("decode", decode, (2,), {}, False)
        assert recorder.counts_writes is False, step
    assert calls == [1, 2] * 4
