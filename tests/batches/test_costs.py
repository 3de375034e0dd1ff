# SPDX-License-Identifier: Apache-2.0
"""Where the costs of samples come from: arrays, columns, headers, functions, files."""

import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _forks import Forks, torchrun_variables
from PIL import Image

import torch_ndd as ndd
from torch_ndd.batches import Balanced, Bucketed, Packed, from_headers, measure


def units(reader: Any, batches: Any, **options: Any) -> list[tuple[list[int], Any]]:
    return [(plan.places.tolist(), plan.cost) for plan in ndd.DataLoader(reader, lambda *parts: parts[-1], batches=batches, **options)]


def plans(reader: Any, batches: Any, **options: Any) -> list[tuple[list[int], Any]]:
    """The same of readers with named outputs."""
    return [(plan.places.tolist(), plan.cost) for plan in ndd.DataLoader(reader, lambda parts: parts["plan"], batches=batches, **options)]


def jpegs(folder: Path, sizes: list[tuple[int, int]]) -> list[Path]:
    paths = []
    for k, (height, width) in enumerate(sizes):
        paths.append(folder / f"{k}.jpg")
        Image.fromarray(np.full((height, width, 3), 7 * k, np.uint8)).save(paths[-1])
    return paths


SIZES = [(10, 20), (30, 10), (8, 8), (5, 40), (12, 12)]
PIXELS = [200, 300, 64, 200, 144]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda costs: np.array(costs, np.float32), lambda costs: np.array(costs, np.uint16)])
def test_arrays_of_any_kind(kind: Any) -> None:
    found = units(range(5), Packed(400, kind(PIXELS), order="first"))
    assert found == [([0, 2], 264), ([1], 300), ([3, 4], 344)]


def test_pixels_come_from_headers(tmp_path: Path) -> None:
    reader = ndd.readers.File(files=jpegs(tmp_path, SIZES))
    assert units(reader, Packed(400, "pixels", order="first")) == [([0, 2], 264), ([1], 300), ([3, 4], 344)]
    loader = ndd.DataLoader(reader, batches=Packed(400, "pixels"))
    with pytest.raises(TypeError, match=r"number of batches is unknown.*batches.measure"):
        len(loader)
    assert len(ndd.DataLoader(reader, batches=Balanced(2, "pixels"))) == 3


def test_a_function_of_sizes(tmp_path: Path) -> None:
    reader = ndd.readers.File(files=jpegs(tmp_path, SIZES))
    tokens = from_headers(lambda sizes: ((sizes + 9) // 10).prod(1))
    assert units(reader, Packed(5, tokens, order="first")) == [([0, 1], 5), ([2, 3], 5), ([4], 4)]
    assert "from_headers" in repr(tokens)
    with pytest.raises(TypeError, match="function must be callable"):
        from_headers(3)  # type: ignore[arg-type]


def test_tokens_of_a_translated_processor(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from torch_ndd.transformers import from_naflex, from_processor

    fn = from_processor(transformers.Qwen2VLImageProcessor(), check=False)
    reader = ndd.readers.File(files=jpegs(tmp_path, [(56, 56), (112, 56), (90, 140)]))
    tokens = fn.tokens(torch.tensor([[56, 56], [112, 56], [90, 140]])).tolist()
    loader = ndd.DataLoader(reader, lambda files, labels, plan: (fn(files), plan), batches=Packed(10**6, from_headers(fn.tokens), order="first"))
    ((outputs, plan),) = loader
    assert plan.cost == sum(tokens)
    assert len(outputs["pixel_values"]) == 4 * plan.cost
    for other in (fn, from_naflex(14, 64)):
        with pytest.raises(TypeError, match=r"batches.Packed: .*a function of the sizes of images; pass cost=from_headers\(.*tokens\)"):
            units(reader, Packed(10**6, other.tokens))


def test_headers_that_cannot_be_read(tmp_path: Path) -> None:
    paths = jpegs(tmp_path, SIZES)
    paths[1].write_bytes(b"not an image")
    paths[3].unlink()
    with pytest.raises(RuntimeError, match=r"1\.jpg|3\.jpg"):
        units(ndd.readers.File(files=paths), Packed(400, "pixels"))
    for on_error, places in (("skip", [0, 1, 2]), ("replace", [0, 1, 2, 0])):
        (first, cost), (second, other) = units(ndd.readers.File(files=paths, on_error=on_error), Packed(400, "pixels", order="first"))
        assert (first, cost) == (places, 264)  # the unreadable ones cost nothing
        assert (second, other) == ([4], 144)


def test_files_are_read_as_far_as_their_size_is(tmp_path: Path) -> None:
    """A JPEG may have metadata in front of its size; a PNG may have its orientation behind its pixels."""
    paths = jpegs(tmp_path, SIZES)
    content = paths[1].read_bytes()
    comments = b"".join(b"\xff\xfe" + (60_002).to_bytes(2, "big") + bytes(60_000) for _ in range(6))
    paths[1].write_bytes(content[:2] + comments + content[2:])
    turned = Image.fromarray(np.zeros((30, 70, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "5.jpg", exif=exif)
    turned.save(tmp_path / "6.png", exif=exif)
    noise = np.random.default_rng(0).integers(0, 256, (90, 80, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "7.png")
    reader = ndd.readers.File(files=[*paths, *(tmp_path / name for name in ("5.jpg", "6.png", "7.png"))])
    seen = []

    def area(sizes: Any) -> Any:
        seen.extend(sizes.tolist())
        return sizes.prod(1)

    assert measure(reader, from_headers(area), tmp_path / "costs.npy").tolist() == [*PIXELS, 2100, 2100, 7200]
    assert seen[-8:] == [[10, 20], [30, 10], [8, 8], [5, 40], [12, 12], [70, 30], [70, 30], [90, 80]]


def wav(seconds: float) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(np.zeros(int(seconds * 8000), np.int16).tobytes())
    return file.getvalue()


@pytest.mark.parametrize("costs", [[1, None, 2], [1.5, 2.0, None], np.array([None, 1, 2])], ids=["whole", "floats", "array"])
def test_none_is_a_missing_cost(costs: Any) -> None:
    sample = list(costs).index(None)
    with pytest.raises(ValueError, match=rf"the cost of sample {sample} .*is missing"):
        Bucketed(4.5).preview(costs)
    with pytest.raises(ValueError, match=rf"the cost of sample {sample} .*is missing"):
        ndd.DataLoader([5, 6, 7], batches=Bucketed(4.5, costs))
    with pytest.raises(TypeError, match="costs must be numbers"):
        Bucketed(4.5).preview([1, "2", None])


def test_seconds_come_from_headers_or_a_manifest(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    seconds, entries = [2.0, 0.5, 1.0, 1.5], []
    for k, length in enumerate(seconds):
        (tmp_path / f"{k}.wav").write_bytes(wav(length))
        entries.append({"audio_filepath": f"{k}.wav", "duration": length, "text": "a"})
    expected = [([0], 2.0), ([1, 2, 3], 3.0)]
    batches = Bucketed(4.5, "seconds", order="first", max_samples=3)
    assert Bucketed(4.5).preview(seconds)[0].tolist() in ([1, 2], [0, 3])
    files = ndd.readers.File(files=sorted(tmp_path.glob("*.wav")))
    manifest = tmp_path / "manifest.json"
    manifest.write_text("\n".join(map(json.dumps, entries)))
    found = units(files, batches)
    assert found == [([0, 3], 3.5), ([1, 2], 1.5)] != expected
    reader = ndd.readers.NemoAsr(manifest_filepaths=manifest)
    assert units(reader, batches) == found
    assert len(ndd.DataLoader(reader, batches=batches)) == 2
    del entries[2]["duration"]
    manifest.write_text("\n".join(map(json.dumps, entries)))
    with pytest.raises(ValueError, match=r"the cost of sample 2 \(.*2\.wav\) is nan: it is missing"):
        units(ndd.readers.NemoAsr(manifest_filepaths=manifest), batches)


def test_columns_of_parquet_files(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {"text": ["a"] * 5, "n": PIXELS, "missing": [1, None, 1, 1, 1], "info": [{"tokens": n // 2} for n in PIXELS]}
    parquet.write_table(arrow.table(table), tmp_path / "0.parquet", row_group_size=2)
    parquet.write_table(arrow.table(table), tmp_path / "1.parquet")
    reader = ndd.readers.Parquet(path=tmp_path, columns=["text"])
    expected = [([0, 2], 264), ([1], 300), ([3, 4], 344), ([5, 7], 264), ([6], 300), ([8, 9], 344)]
    assert plans(reader, Packed(400, "n", order="first", window=5)) == expected
    assert len(ndd.DataLoader(reader, batches=Packed(400, "n", window=5))) == 6
    assert plans(reader, Packed(200, "info.tokens", order="first", window=5))[0] == ([0, 2], 132)
    with pytest.raises(ValueError, match=r"has no column 'm' of numbers; it has n, missing, info.tokens"):
        plans(reader, Packed(400, "m"))
    with pytest.raises(ValueError, match=r"the cost of sample 1 \(.*0\.parquet at row 1\) is nan: it is missing"):
        plans(reader, Packed(400, "missing"))
    reader = ndd.readers.Parquet(path=tmp_path, columns=["text"])
    both = ndd.DataLoader({"rows": reader, "more": range(10)}, lambda parts: parts["plan"].cost, batches=Packed(400, "n", order="first", window=5))
    assert list(both) == [cost for _, cost in expected]


def test_columns_of_a_data_set() -> None:
    class Columns(list[Any]):
        column_names = ("n", "text")

        def __getitem__(self, key: Any) -> Any:
            return {"n": PIXELS, "text": ["a"] * 5}[key] if isinstance(key, str) else super().__getitem__(key)

    data = Columns([{"n": n} for n in PIXELS])
    assert plans(data, Packed(400, "n", order="first")) == [([0, 2], 264), ([1], 300), ([3, 4], 344)]
    with pytest.raises(ValueError, match="column 'text' holds <U1, not numbers"):
        plans(data, Packed(400, "text"))
    with pytest.raises(ValueError, match="it has no column 'tokens' of numbers"):
        plans(data, Packed(400, "tokens"))


def test_a_function_of_the_outputs() -> None:
    data = [(np.zeros(n), k) for k, n in enumerate(PIXELS)]
    calls: list[int] = []

    def count(values: Any, numbers: Any) -> list[int]:
        calls.append(numbers.batch_size)
        return [len(value) for value in values]

    batches = Packed(400, count, order="first")
    assert units(data, batches) == [([0, 2], 264), ([1], 300), ([3, 4], 344)]
    assert calls == [5]
    two = Packed([400, 2], lambda values, numbers: np.array([[len(value), 1] for value in values]), order="first")
    assert units(data, two)[0] == ([0, 2], (264, 2))
    with pytest.raises(ValueError, match=r"must return a number for each of 5 samples, got the shape \(3,\)"):
        units(data, Packed(400, lambda *parts: [1, 2, 3]))
    with pytest.raises(ValueError, match=r"the cost of sample 1 \(list\[1\]\) is -1"):
        units(data, Packed(400, lambda *parts: [1, -1, 3, 4, 5]))
    with pytest.raises(RuntimeError, match="mistake"):
        units(data, Packed(400, lambda *parts: (_ for _ in ()).throw(RuntimeError("mistake"))), on_error="skip")
    with pytest.raises(TypeError, match=r"batches.Packed: the cost function .*<lambda> must take the 2 outputs of the reader as arguments: too many"):
        units(data, Packed(400, lambda values: [1] * 5))


def test_a_mix_has_costs_by_source() -> None:
    def mix() -> Any:
        return ndd.readers.Mix({"a": list(range(40)), "b": list(range(100, 130))}, weights={"a": 2, "b": 1}, random_shuffle=True)

    costs = {"a": np.arange(40) % 5 + 1, "b": np.arange(30) % 7 + 1}
    seen = []
    for rank in range(2):
        loader = ndd.DataLoader(
            mix(), lambda numbers, source, plan: (numbers.torch().tolist(), plan), batches=Packed(12, costs, window=16), shard_id=rank, num_shards=2
        )
        for numbers, plan in loader:
            assert plan.cost == sum(int(costs["b"][number - 100] if number >= 100 else costs["a"][number]) for number in numbers)
            seen += [] if plan.repeated else numbers
    reader = mix()
    assert len(seen) == reader.count_epoch_samples(0)
    assert len(seen) == len(set(seen)) == 60
    with pytest.raises(ValueError, match="costs are for the sources 'a', but the mix has 'a', 'b'"):
        next(iter(ndd.DataLoader(mix(), batches=Packed(12, {"a": costs["a"]}))))
    with pytest.raises(ValueError, match="costs of 29 samples for the source 'b', which has 30"):
        next(iter(ndd.DataLoader(mix(), batches=Packed(12, {**costs, "b": costs["b"][1:]}))))
    with pytest.raises(ValueError, match=r"a dict of costs belongs to a readers\.Mix"):
        next(iter(ndd.DataLoader(range(5), batches=Packed(12, costs))))


def test_a_mix_resumes_between_epochs_and_within() -> None:
    costs = {"a": [2] * 40, "b": [3] * 30}

    def make(ranks: int, rank: int, budget: int = 12) -> ndd.DataLoader:
        mix = ndd.readers.Mix({"a": list(range(40)), "b": list(range(100, 130))}, weights={"a": 2, "b": 1}, random_shuffle=True)
        return ndd.DataLoader(
            mix,
            lambda numbers, source, plan: [] if plan.repeated else numbers.torch().tolist(),
            batches=Packed(budget, costs, window=16),
            shard_id=rank,
            num_shards=ranks,
            prefetch=0,
            seed=0,
        )

    whole = make(1, 0)
    expected = [[number for batch in whole for number in batch] for _ in range(3)]
    loops = [make(2, rank) for rank in range(2)]
    for each in loops:
        list(each)
    found: list[int] = []
    for each in loops:
        batches = iter(each)
        found += [number for _ in range(3) for number in next(batches)]
    state = json.loads(json.dumps(loops[0].state_dict()))
    assert state == loops[1].state_dict()
    later = [make(3, rank, budget=9) for rank in range(3)]
    for each in later:
        each.load_state_dict(state)
        found += [number for batch in each for number in batch]
    assert sorted(found) == sorted(expected[1])
    assert sorted(number for each in later for batch in each for number in batch) == sorted(expected[2])


def test_measured_costs_are_kept_in_a_file(tmp_path: Path) -> None:
    reader = ndd.readers.File(files=jpegs(tmp_path, SIZES))
    path = tmp_path / "costs.npy"
    assert measure(reader, "pixels", path).tolist() == PIXELS
    stored = np.load(path)
    assert (stored.tolist(), stored.dtype) == (PIXELS, np.int64)
    for image in tmp_path.glob("*.jpg"):
        image.unlink()
    assert measure(reader, "pixels", path).tolist() == PIXELS  # not computed again
    assert len(ndd.DataLoader(reader, batches=Packed(400, measure(reader, "pixels", path)))) == 3
    with pytest.raises(ValueError, match="has costs of 5 samples, but the reader has 4"):
        measure(range(4), lambda numbers: numbers, path)
    with pytest.raises(TypeError, match="needs random access"):
        measure(iter(range(4)), lambda numbers: numbers, tmp_path / "others.npy")
    with pytest.raises(ValueError, match="cost of sample 0"):
        measure(range(4), lambda numbers: numbers.torch() - 2, tmp_path / "others.npy")
    two = measure([(1, 2), (3, 4)], lambda a, b: np.stack([a.torch(), b.torch() / 2], 1), tmp_path / "others.npy")
    assert two.tolist() == [[1, 1], [3, 2]]


MEASURE = """
import sys
import torch
import torch_ndd as ndd

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
read = []
def cost(numbers):
    read.extend(numbers.torch().tolist())
    if "wrong" in sys.argv and 7 in read:
        raise ValueError("no cost of 7")
    return numbers.torch() * 2
try:
    found = ndd.batches.measure(range(10), cost, sys.argv[1])
    print(sorted(read), found.tolist(), flush=True)
except ValueError as error:
    print(error, flush=True)
torch.distributed.destroy_process_group()
"""


def test_ranks_share_the_work_of_measuring(tmp_path: Path, forks: Forks) -> None:
    for option, expected in (("", "[0, 1, 2, 3, 4] [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]"), ("wrong", "no cost of 7")):
        processes = [forks.run(MEASURE, tmp_path / f"costs{option}.npy", option, variables=variables) for variables in torchrun_variables(2)]
        for process in processes:
            assert process.wait() == 0, process.errors
        assert processes[0].output.strip() == expected
    assert np.load(tmp_path / "costs.npy").tolist() == list(range(0, 20, 2))
    assert not (tmp_path / "costswrong.npy").exists()


def test_no_output_with_encoded_files() -> None:
    with pytest.raises(TypeError, match="need a reader of encoded files"):
        units(range(4), Packed(10, "pixels"))
