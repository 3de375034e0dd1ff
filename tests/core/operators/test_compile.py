# SPDX-License-Identifier: Apache-2.0
"""Properties of compiled graphs only: the number of compilations, fusion, random numbers, and export.

``test_operators.py`` tests that every operator compiles, dense and ragged; ``UNCOMPILED`` below lists the exceptions with the reasons.
"""

import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _forks import Forks
from PIL import Image
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

import torch_ndd as ndd
from torch_ndd import Batch, EvalMode
from torch_ndd._core.native import graph_results
from torch_ndd._core.native.tracing import is_compiling
from torch_ndd._core.values import elementwise
from torch_ndd._core.work import cuda_work
from torch_ndd._core.work.cuda_work import StreamWork
from torch_ndd.random import RNG
from torch_ndd.testing._properties import assert_compiles

pytestmark = pytest.mark.usefixtures("new_compiler")

# Operators that torch.compile(fullgraph=True) rejects for all inputs.
UNCOMPILED = {
    "decoders.inflate": "it runs in Python",
    "decoders.numpy": "it runs in Python, and the file says of which type the result is",
    "decoders.video": "it runs in Python",
    "dump_image": "it writes files",
    "optical_flow": "OpenCV is called from Python",
}
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def compile_function(function: Callable[..., Any], backend: str = "aot_eager") -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend=backend)


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def images(*shapes: tuple[int, int], seed: int = 0, dtype: str = "uint8") -> Batch:
    generator = np.random.default_rng(seed)
    return ndd.batch([generator.integers(0, 256, (*shape, 3)).astype(dtype) for shape in shapes], layout="HWC")


def files(count: int, size: tuple[int, int] = (60, 50)) -> Batch:
    """JPEGs of different sizes."""
    generator = np.random.default_rng(count)
    outputs = []
    for k in range(count):
        file = io.BytesIO()
        pixels = generator.integers(0, 256, (size[0] // 8 + k, size[1] // 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((size[1] + k, size[0])).save(file, "JPEG")
        outputs.append(np.frombuffer(file.getvalue(), np.uint8))
    return ndd.batch(outputs)


def normalize_reference(x: Any, mirror: Any = 1) -> Any:
    return ndd.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD)


def test_every_operator_compiles() -> None:
    """The generic suite compiles all cases except those with a reason; the operators in the list have no other cases."""
    from test_operators import CASES

    compiles = {case.operator for case in CASES if not case.uncompiled}
    assert sorted({case.operator for case in CASES} - compiles) == sorted(UNCOMPILED)


@pytest.mark.parametrize("kind", [pytest.param("dense", marks=pytest.mark.slow), "ragged", "sample"])
def test_one_compilation_for_changing_contents_and_two_for_changing_shapes(kind: str) -> None:
    def augment(x: Any) -> Any:
        return normalize_reference(ndd.resize(ndd.brightness(x, brightness=1.2), size=[20, 30]))

    def make_input(count: int, height: int, seed: int) -> Any:
        batch = images(*((height + k * (kind == "ragged"), 40) for k in range(count)), seed=seed)
        return batch.tensors[0] if kind == "sample" else batch

    run = compile_function(augment)
    for seed in range(3):
        batch = make_input(4, 30, seed)
        torch.testing.assert_close(run(batch).torch(), augment(batch).torch())
    assert graphs() == 1
    for count, height in ((5, 33), (6, 35), (3, 50)):
        batch = make_input(count, height, 0)
        torch.testing.assert_close(run(batch).torch(), augment(batch).torch())
    assert graphs() == 2


DYNAMIC: dict[str, Any] = {
    "default numbers": lambda images: ndd.brightness(images, brightness=1.2),
    "lists": lambda images: ndd.crop_mirror_normalize(images, mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4], mirror=1),
    "default ranges": lambda images: ndd.random_resized_crop(images, size=[8, 8]),
    "window": lambda images: ndd.crop(images, crop=[4, 5], crop_pos_x=0.2),
    "a side": lambda images: ndd.resize(images, resize_shorter=20.0),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_graphs_with_dynamic_true(name: str) -> None:
    """The default numbers of operators are symbols there."""
    call = DYNAMIC[name]
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="eager")
    for count, height in ((4, 24), (3, 24), (5, 26)):
        batch = ndd.batch([torch.randint(0, 256, (height, 30, 3), dtype=torch.uint8) for _ in range(count)], layout="HWC")
        ndd.random.set_seed(1)
        expected = call(batch).torch()
        ndd.random.set_seed(1)
        torch.testing.assert_close(compiled(batch).torch(), expected, rtol=1e-4, atol=1)


RAGGED_AXES: dict[str, Any] = {
    "slice": lambda images: ndd.slice(images, start=[2, 3], shape=[10, 12], axes=[0, -2]),
    "erase": lambda images: ndd.erase(images, anchor=[2, 3], shape=[4, 5], axes=[0, 1]),
    "tensor_resize": lambda images: ndd.tensor_resize(images, sizes=[10, 12], axes=[0, 1]),
    "slice of a result": lambda images: ndd.slice(ndd.transpose(images, perm=[1, 0, 2]), rel_start=[0.1], axes=[1]),
}


@pytest.mark.parametrize("name", RAGGED_AXES)
def test_axes_of_ragged_batches_with_dynamic_true(name: str) -> None:
    """The number of dimensions is a constant there, although the table of shapes has symbols as its own."""
    call = RAGGED_AXES[name]
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="eager")
    for count, height in ((2, 20), (3, 24), (4, 33)):
        batch = ndd.batch([torch.randint(0, 256, (height + k, 30, 3), dtype=torch.uint8) for k in range(count)], layout="HWC")
        for result, expected in zip(compiled(batch).tensors, call(batch).tensors, strict=True):
            torch.testing.assert_close(result.torch(), expected.torch(), rtol=0, atol=1)


def test_another_thread_calls_operators_while_this_one_compiles() -> None:
    """As a loader's function does while the program compiles its step: ``torch.compiler.is_compiling()`` is of the process."""
    images = ndd.batch([torch.full((20, 30, 3), 7, dtype=torch.uint8)] * 2, layout="HWC")
    blur = torch.compile(lambda images: ndd.gaussian_blur(images, sigma=1.0).torch(), fullgraph=True)
    expected = blur(images)
    found: list[Any] = []

    def call() -> None:
        found.append(is_compiling())
        found.append(blur(images))  # a graph that is there already
        for _ in range(4):
            found.append(ndd.gaussian_blur(images, sigma=1.0).torch())
        with pytest.raises(RuntimeError, match="sample 1"):
            ndd.slice(images, ndd.batch([0, 40]), ndd.batch([5, 5]), axes=[0]).evaluate()

    def compile_elsewhere(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(call).result()
        return graph.forward

    compiled = torch.compile(lambda images: ndd.brightness(images, brightness=2.0).torch(), backend=compile_elsewhere)
    assert torch.equal(compiled(images), ndd.brightness(images, brightness=2.0).torch())
    assert found[0] is False
    assert all(torch.equal(result, expected) for result in found[1:])


def test_tensors_and_batches_keep_layout_and_type_in_and_out() -> None:
    def both(sample: ndd.Tensor, batch: Batch) -> dict[str, Any]:
        return {"sample": ndd.flip(sample), "batch": [ndd.rotate(batch, angle=90.0), batch + 1], "torch": batch.torch() * 2}

    batch = images((8, 9), (8, 9))
    output, expected = compile_function(both)(batch.tensors[1], batch), both(batch.tensors[1], batch)
    assert isinstance(output["sample"], ndd.Tensor)
    assert output["sample"].layout == "HWC"
    assert torch.equal(output["sample"].torch(), expected["sample"].torch())
    assert torch.equal(output["torch"], expected["torch"])
    for ours, theirs in zip(output["batch"], expected["batch"], strict=True):
        assert isinstance(ours, Batch)
        assert (ours.layout, ours.dtype, ours.shape) == (theirs.layout, theirs.dtype, theirs.shape)
        assert all(torch.equal(sample.torch(), other.torch()) for sample, other in zip(ours.tensors, theirs.tensors, strict=True))


CHAINS: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda x: normalize_reference(ndd.flip(ndd.contrast(ndd.brightness(x, brightness=1.2), contrast=0.8), vertical=1)),
    "floats": lambda x: normalize_reference(ndd.flip(ndd.hue(ndd.brightness_contrast(ndd.cast(x, dtype=torch.float32), contrast=0.8), hue=20.0))),
    "a value a sample": lambda x: normalize_reference(ndd.flip(ndd.brightness(x[0], brightness=x[1])), mirror=x[2]),
    "arithmetic": lambda x: (ndd.flip(x) * 0.5 + 3) / 7,
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_a_chain_is_one_kernel(chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formulas only, as on a GPU."""
    monkeypatch.setattr(elementwise, "kernels_on_cpu", False)
    batch: Any = images((24, 32), (24, 32))
    if chain == "a value a sample":
        batch = (batch, ndd.batch([0.5, 1.25]), ndd.batch([0, 1]))
    output, (code,) = run_and_get_code(compile_function(CHAINS[chain], "inductor"), batch)
    assert code.count("async_compile.cpp_pybinding(") == 1
    assert "torch.ops.ndd" not in code
    torch.testing.assert_close(output.torch(), CHAINS[chain](batch).torch(), atol=1e-4, rtol=0)


FLOATS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "to planes": lambda x, f, m: normalize_reference(ndd.flip(ndd.contrast(ndd.brightness(x, brightness=1.2), contrast=0.8), vertical=1), mirror=0),
    "a value a sample": lambda x, f, m: normalize_reference(ndd.flip(ndd.brightness(x, brightness=f), horizontal=m), mirror=m),
    "pointwise": lambda x, f, m: ndd.crop_mirror_normalize(ndd.brightness_contrast(x, brightness=f), mean=MEAN, std=STD, output_layout="HWC"),
    "arithmetic": lambda x, f, m: (x * 0.5 + 3) / 7,
}


@pytest.mark.parametrize("chain", FLOATS)
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_a_chain_of_floats_is_one_kernel_on_the_cpu(chain: str) -> None:
    """Vectorized over 16 pixels, not over the three channels of one."""
    values = ndd.cast(images((24, 32), (24, 32)), dtype=torch.float32), ndd.batch([0.5, 1.25]), ndd.batch([0, 1])
    output, (code,) = run_and_get_code(compile_function(FLOATS[chain], "inductor"), *values)
    assert code.count("async_compile.cpp_pybinding(") == 1
    assert "torch.ops.ndd" not in code
    assert "Vectorized<float>" in code or chain == "pointwise"  # the compiler vectorizes a loop over pixels and channels
    torch.testing.assert_close(output.torch(), FLOATS[chain](*values).torch(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("chain", [pytest.param("to planes", marks=pytest.mark.slow), "arithmetic"])
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_large_results_are_in_the_memory_of_the_pool(chain: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The one kernel writes there; a value that the graph does not return is not a result."""
    monkeypatch.setattr(graph_results, "_MAPPED_BYTES", 1000)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # the keys of what is cached do not know that number

    def step(*inputs: Any) -> tuple[Any, torch.Tensor]:
        output = FLOATS[chain](*inputs)
        return output, (output * 2).torch().sum()

    values = ndd.cast(images((24, 32), (24, 32)), dtype=torch.float32), ndd.batch([0.5, 1.25]), ndd.batch([0, 1])
    (output, total), (code,) = run_and_get_code(compile_function(step, "inductor"), *values)
    assert code.count("torch.ops.ndd.empty_pooled.default([2, ") == 1
    assert "empty_strided_cpu((2, " not in code
    expected, its_total = step(*values)
    torch.testing.assert_close(output.torch(), expected.torch(), atol=1e-4, rtol=0)
    torch.testing.assert_close(total, its_total, rtol=1e-4, atol=1e-2)


BYTES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "constants": lambda x, f, m: normalize_reference(ndd.flip(ndd.contrast(ndd.brightness(x, brightness=1.2), contrast=0.8)), mirror=0),
    "a value a sample": lambda x, f, m: normalize_reference(
        ndd.contrast(ndd.flip(ndd.brightness(x, brightness=f), horizontal=m), contrast=f), mirror=m
    ),
    "colors": lambda x, f, m: normalize_reference(ndd.flip(ndd.color_twist(x, hue=f * 30, saturation=f, brightness=1.1), horizontal=m), mirror=1),
    "colors and tables": lambda x, f, m: ndd.hsv(ndd.brightness(ndd.hue(ndd.contrast(x, contrast=f), hue=f * 50), brightness=1.3), saturation=f),
    "flips": lambda x, f, m: ndd.flip(ndd.flip(ndd.flip(x, vertical=m), horizontal=m, vertical=1), horizontal=0, vertical=m),
    "table": lambda x, f, m: ndd.flip(ndd.lookup_table(x, keys=[*range(256)], values=[255.0 - k for k in range(256)], dtype=torch.uint8)),
    "to pixels": lambda x, f, m: ndd.crop_mirror_normalize(
        ndd.brightness_contrast(x, brightness=f, brightness_shift=0.1, contrast=1.3),
        mirror=m,
        mean=10.0,
        std=[f_ / 50 for f_ in STD],
        output_layout="HWC",
    ),
    "to bytes": lambda x, f, m: ndd.crop_mirror_normalize(
        ndd.saturation(x, saturation=f), mirror=m, mean=MEAN, scale=2.5, shift=9, dtype=torch.uint8
    ),
    "to halves": lambda x, f, m: ndd.crop_mirror_normalize(ndd.brightness(x, brightness=f), mean=MEAN, std=STD, dtype=torch.float16),
}


@pytest.mark.slow
@pytest.mark.parametrize("chain", BYTES)
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_a_chain_of_bytes_is_one_kernel_on_the_cpu(chain: str) -> None:
    """The kernel is ours, with identical results; Inductor makes only the tables."""
    batch = images(*[(70, 130)] * 3)  # rows for more than one block
    batch = batch, ndd.batch([0.5, 1.25, 0.9]), ndd.batch([0, 1, 1])
    output, (code,) = run_and_get_code(compile_function(BYTES[chain], "inductor"), *batch)
    assert code.count("torch.ops.ndd.") - code.count("'torch.ops.ndd.") - code.count("(op: torch.ops.ndd.") == 1
    assert code.count("torch.ops.ndd.pixels_of.default(") == 1
    assert code.count("async_compile.cpp_pybinding(") <= 1
    expected = BYTES[chain](*batch)
    assert (output.dtype, output.layout) == (expected.dtype, expected.layout)
    assert torch.equal(output.torch(), expected.torch())


MIXED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "to bytes": lambda x, f, m: ndd.flip(ndd.hsv(ndd.contrast(ndd.brightness(x, brightness=f), contrast=0.8), hue=f * 30), horizontal=m),
    "bytes go on": lambda x, f, m: ndd.posterize(ndd.brightness(ndd.hsv(ndd.brightness(x, brightness=f), saturation=f), brightness=1.2), bits=5),
    "floats": lambda x, f, m: ndd.brightness(ndd.hue(ndd.flip(ndd.contrast(x, contrast=f), vertical=m), hue=f * 40), brightness=0.5),
    "to planes": lambda x, f, m: normalize_reference(
        ndd.flip(ndd.color_twist(ndd.brightness(x, brightness=f), hue=f * 30, contrast=f), vertical=m), mirror=m
    ),
    "to pixels": lambda x, f, m: ndd.crop_mirror_normalize(ndd.saturation(x, saturation=f), mirror=m, mean=MEAN, std=STD, output_layout="HWC"),
    "flipped": lambda x, f, m: ndd.flip(ndd.brightness(ndd.flip(ndd.contrast(x, contrast=f), horizontal=m), brightness=f), vertical=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("chain", MIXED)
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_a_chain_of_floats_with_colors_or_a_flip_at_the_end_is_one_kernel(chain: str) -> None:
    """Inductor makes only the numbers; nothing of an image is in its code."""
    values = ndd.cast(images(*[(70, 130)] * 3), dtype=torch.float32), ndd.batch([0.5, 1.25, 0.9]), ndd.batch([0, 1, 1])
    output, (code,) = run_and_get_code(compile_function(MIXED[chain], "inductor"), *values)
    assert code.count("torch.ops.ndd.pixels_of.default(") == 1
    assert code.count("async_compile.cpp_pybinding(") <= 1
    assert "27300L" not in code  # a loop over the values of an image, or of all
    assert "81900L" not in code
    expected = MIXED[chain](*values)
    assert (output.dtype, output.layout) == (expected.dtype, expected.layout)
    most = 1 if output.dtype is torch.uint8 else 1e-3  # a linear function's numbers may be rounded otherwise
    assert (output.torch().float() - expected.torch().float()).abs().max() <= most


@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_planes_after_a_flip_of_floats_use_the_formula() -> None:
    def chain(x: Any, f: Any, m: Any) -> Any:
        return normalize_reference(ndd.brightness(ndd.flip(ndd.contrast(x, contrast=f), horizontal=m), brightness=0.9), mirror=0)

    values = ndd.cast(images((24, 32), (24, 32)), dtype=torch.float32), ndd.batch([0.5, 1.25]), ndd.batch([0, 1])
    output, (code,) = run_and_get_code(compile_function(chain, "inductor"), *values)
    assert "torch.ops.ndd" not in code
    torch.testing.assert_close(output.torch(), chain(*values).torch(), atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("chain", [*BYTES, *(f"{name}, float32" for name in MIXED)])
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_a_chain_of_ragged_images_is_one_kernel(chain: str) -> None:
    """With identical results: nothing is left to the compiler but the numbers."""
    function = BYTES[chain] if chain in BYTES else MIXED[chain.removesuffix(", float32")]
    batch = images((70, 130), (9, 31), (64, 90))
    values = batch if chain in BYTES else ndd.cast(batch, dtype=torch.float32), ndd.batch([0.5, 1.25, 0.9]), ndd.batch([0, 1, 1])
    output, (code,) = run_and_get_code(compile_function(function, "inductor"), *values)
    assert code.count("torch.ops.ndd.pixels_of.default(") == 1
    assert not re.findall(r"torch\.ops\.ndd\.(?!pixels_of|empty_packed)\w+\.default\(", code)
    expected = function(*values)
    assert (output.dtype, output.layout, output.shape) == (expected.dtype, expected.layout, expected.shape)
    for sample, other in zip(output.tensors, expected.tensors, strict=True):
        assert (sample.torch().float() - other.torch().float()).abs().max() <= (0 if chain in BYTES else 1 if output.dtype is torch.uint8 else 1e-3)


def with_writes(x: Batch) -> tuple[Any, ...]:
    bright = ndd.brightness(x, brightness=1.5)
    dark = ndd.contrast(bright, contrast=0.5)
    used = ndd.flip(dark)
    dark.torch().zero_()
    after = ndd.contrast(dark, contrast=0.5), ndd.contrast(bright, contrast=0.5)
    bright.torch().fill_(7)
    return (*after, ndd.flip(bright), ndd.flip(dark), normalize_reference(used))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_a_chain_ends_where_its_values_are_written_to(backend: str) -> None:
    batch = images((20, 30), (20, 30))
    for ours, theirs in zip(compile_function(with_writes, backend)(batch), with_writes(batch), strict=True):
        assert torch.equal(ours.torch(), theirs.torch())


@pytest.mark.slow
def test_chains_of_bytes_take_batches_of_any_size() -> None:
    run = compile_function(BYTES["colors"])
    for count, height in ((2, 20), (3, 30), (5, 21), (1, 40), (7, 33)):
        batch = images(*[(height, 30)] * count, seed=count), ndd.batch([0.5 + k / 10 for k in range(count)]), ndd.batch([k % 2 for k in range(count)])
        assert torch.equal(run(*batch).torch(), BYTES["colors"](*batch).torch())
    assert graphs() <= 3  # a batch of one has its own graph


_CPU_PREFERS_KERNELS = {
    *("brightness", "contrast", "brightness_contrast", "color_twist", "hsv", "hue", "saturation"),
    *("color_space_conversion", "cast", "cast_like", "lookup_table", "normalize", "flip", "crop_mirror_normalize"),
}


@pytest.mark.slow
@pytest.mark.parametrize("operator", sorted(_CPU_PREFERS_KERNELS))
@pytest.mark.usefixtures("pause_gc")
def test_formulas_that_only_gpus_use(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU most of these cases use the kernel, so the generic suite does not see their formulas."""
    from test_operators import CASES

    monkeypatch.setattr(elementwise, "kernels_on_cpu", False)
    cases = [case for case in CASES if case.operator == operator and not case.uncompiled]
    assert cases
    for case in cases[:4]:
        assert_compiles([(case, False)], "eager", "cpu")


def randomly(batch: Batch, rng: RNG | None) -> Any:
    factor = ndd.random.uniform(range=[0.5, 1.5], batch_size=batch.batch_size, rng=rng)
    mirror = ndd.random.coin_flip(batch_size=batch.batch_size)
    noisy = ndd.noise.gaussian(ndd.brightness(batch, brightness=factor), stddev=5.0, rng=rng)
    return normalize_reference(noisy, mirror=mirror), factor, ndd.random_resized_crop(batch, size=[9, 9], rng=rng)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("has_generator", [False, True], ids=["default generator", "rng="])
@pytest.mark.filterwarnings("ignore")  # Inductor's own
def test_random_operators_draw_the_same_numbers(backend: str, has_generator: bool) -> None:
    batch = images((24, 32), (24, 32), (24, 32))
    run = compile_function(randomly, backend)
    for seed in range(3):  # a new object each time: the generator is an input of the graph
        results = []
        for function in (randomly, run):
            ndd.random.set_seed(seed)
            rng = RNG(seed=seed) if has_generator else None
            first, second = function(batch, rng), function(batch, rng)
            results.append((*first, *second))
            results[-1] += (str(ndd.random.get_default_rng().state), rng and str(rng.state))
        for ours, theirs in zip(*results, strict=True):
            if isinstance(ours, Batch):
                torch.testing.assert_close(ours.torch(), theirs.torch(), atol=0.02, rtol=0)  # one of 255 levels
            else:
                assert ours == theirs
    assert graphs() == 1


def test_a_graph_draws_in_the_order_of_the_calls() -> None:
    """Unused draws and equal draws still advance the generator."""

    def draws() -> tuple[Any, Any]:
        first = ndd.random.uniform(shape=[3])
        ndd.random.uniform(shape=[5])
        return ndd.random.uniform(shape=[3]), first

    for backend in ("aot_eager", "inductor"):
        ndd.random.set_seed(1)
        expected = draws()
        state = str(ndd.random.get_default_rng().state)
        ndd.random.set_seed(1)
        output = compile_function(draws, backend)()
        assert str(ndd.random.get_default_rng().state) == state
        for ours, theirs in zip(output, expected, strict=True):
            assert torch.equal(ours.torch(), theirs.torch())


def test_graph_rejects_a_wrong_generator() -> None:
    with pytest.raises(Exception, match=r"rng must be an instance of random\.RNG"):
        compile_function(lambda: ndd.random.uniform(shape=[2], rng=ndd))()


def decode(encoded: Batch) -> Batch:
    return normalize_reference(
        ndd.resize(ndd.decoders.image_random_crop(encoded), size=[32, 48]), ndd.random.coin_flip(batch_size=encoded.batch_size)
    )


@pytest.mark.slow
def test_from_bytes_to_normalized_planes() -> None:
    run = compile_function(decode)
    for count, size in ((3, (60, 50)), (4, (70, 90)), (5, (40, 30))):
        encoded = files(count, size)
        ndd.random.set_seed(count)
        expected = decode(encoded).torch()
        ndd.random.set_seed(count)
        process = run(encoded).torch()
        assert process.shape == (count, 3, 32, 48)
        torch.testing.assert_close(process, expected, atol=0.02, rtol=0)
    assert graphs() <= 2


class Preprocessing(torch.nn.Module):
    """From images of one shape to a model's input."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        batch = ndd.as_batch(pixels, layout="HWC")
        return normalize_reference(ndd.resize(ndd.brightness(batch, brightness=1.1), size=[16, 24])).torch()


def test_exported_program_runs_in_another_process(tmp_path: Path, forks: Forks) -> None:
    pixels = images((30, 40), (30, 40)).torch()
    batches = torch.export.Dim("batches", min=1, max=64)
    program = torch.export.export(Preprocessing(), (pixels,), dynamic_shapes=({0: batches},))
    torch.export.save(program, tmp_path / "program.pt2")
    more = images(*[(30, 40)] * 5, seed=2).torch()
    torch.save((more, Preprocessing()(more)), tmp_path / "expected.pt")
    script = (
        "import sys, torch, torch_ndd\n"
        "program = torch.export.load(sys.argv[1] + '/program.pt2').module()\n"
        "pixels, expected = torch.load(sys.argv[1] + '/expected.pt')\n"
        "torch.testing.assert_close(program(pixels), expected)\n"
        "print('equal')"
    )
    done = forks.run(script, tmp_path)
    assert (done.wait(), done.output) == (0, "equal\n"), done.errors


@pytest.mark.parametrize("size", [{"size": [16, 24]}, {"resize_shorter": 40}, {"resize_longer": 90, "mode": None}], ids=str)
def test_exported_program_takes_any_height_and_width(size: dict[str, Any]) -> None:
    class AnySize(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            batch = ndd.resize(ndd.as_batch(pixels, layout="HWC"), **size)
            return ndd.crop_mirror_normalize(batch, crop=[16, 24], mean=[100.0], std=[50.0]).torch()

    height, width = torch.export.Dim("height", min=2, max=4096), torch.export.Dim("width", min=2, max=4096)
    program = torch.export.export(AnySize(), (images((50, 70)).torch(),), dynamic_shapes=({1: height, 2: width},)).module()
    for height, width in ((50, 70), (70, 50), (40, 100), (64, 64)):
        pixels = images((height, width), seed=3).torch()
        torch.testing.assert_close(program(pixels), AnySize()(pixels))


PENDING: dict[str, Callable[..., Any]] = {
    "operator": lambda x, y: ndd.brightness(x, brightness=1.5),
    "kernel": lambda x, y: ndd.gaussian_blur(x, window_size=3),
    "argument": lambda x, y: ndd.brightness(x, brightness=y),
    "arithmetic": lambda x, y: x * 2 - y,
    "part": lambda x, y: x.slice[1:3, ::2],
    "samples": lambda x, y: x.select([2, 0, 1]),
    "sample": lambda x, y: x.tensors[1],
    "part of a sample": lambda x, y: x.tensors[1][2:5, 1],
    "converted": lambda x, y: ndd.as_batch(x, dtype=torch.float32),
    "torch": lambda x, y: ndd.as_batch(x.torch() + 1),
}


@pytest.mark.parametrize("function", PENDING)
def test_a_graph_waits_for_pending_inputs(function: str) -> None:
    """Nothing starts before somebody waits for it."""
    run, images_ = compile_function(PENDING[function]), images((40, 50), (40, 50), (40, 50))
    for count in range(3):
        results = []
        for program in (PENDING[function], run):
            with EvalMode.deferred:
                values = ndd.brightness(images_, brightness=0.5 + count), ndd.cast(ndd.batch([1, 2, 3]), dtype=torch.float32)
                assert values[0].pending is not None
                results.append(program(*values))
        ours, theirs = (result.tensors if isinstance(result, Batch) else [result] for result in results)
        for result, expected in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))
    assert graphs() <= 2


class Late(StreamWork):
    """A stand-in for work on a GPU: the values are there once a stream waits for them."""

    def __init__(self, values: torch.Tensor) -> None:
        self._target, self._content = values, values.clone()
        values.zero_()
        self._handle = next(cuda_work._numbers)
        cuda_work._alive[self._handle] = self

    def wait(self) -> None:
        self._target.copy_(self._content)


@pytest.mark.parametrize("function", PENDING)
def test_a_graph_waits_for_inputs_pending_on_a_gpu(function: str) -> None:
    run = compile_function(PENDING[function])
    for count in range(3):
        values = ndd.brightness(images((40, 50), (40, 50), (40, 50)), brightness=0.5 + count).evaluate(), ndd.batch([1.0, 2.0, 3.0])
        expected = [np.array(value) for value in as_list(PENDING[function](*values))]
        for value in values:
            value.pending = Late(value.buffer)
        for result, wanted in zip(as_list(run(*values)), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(result), wanted)
    assert graphs() <= 2


def as_list(result: Any) -> list[Any]:
    return result.tensors if isinstance(result, Batch) else [result]


def test_a_failure_before_the_graph_is_raised() -> None:
    numbers = ndd.batch([[1, 2], [3, 4]])
    with EvalMode.deferred:
        wrong = numbers // ndd.cast(ndd.batch([[1, 1], [1, 0]]), dtype=torch.int32)
        with pytest.raises(ValueError, match="zero"):
            compile_function(lambda x: ndd.flip(ndd.reshape(x, shape=[1, 2, 1], layout="HWC")))(wrong)
