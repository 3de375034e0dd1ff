# SPDX-License-Identifier: Apache-2.0
"""Audio kernels called through torch.ops with tensors of the wrong size, as Python never passes them: errors, no reads or writes out of bounds."""

import io
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd

SIGNALS = torch.zeros(3, 64)
SPECTRA = torch.zeros(3, 16, 5)
WORDS = torch.zeros(7, dtype=torch.int64)
PLAN = torch.tensor([[16, 16, 16, 1]] * 3)
EACH = torch.ones(3)


def whole(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32)


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("time_mask", (SPECTRA, None, 1, EACH[:2], EACH, 1, False, EACH, WORDS, SPECTRA.clone(), None), "the widest mask must have 1 numbers"),
        ("time_mask", (SPECTRA, None, 1, EACH, EACH[:2], 1, False, EACH, WORDS, SPECTRA.clone(), None), "p must have 1 numbers"),
        ("time_mask", (SPECTRA, None, 1, EACH, EACH, 1, False, EACH[:2], WORDS, SPECTRA.clone(), None), "mask_value must have 1 numbers"),
        ("time_mask", (SPECTRA, None, 1, EACH, EACH, 1, False, EACH, WORDS[:3], SPECTRA.clone(), None), "rng gave too few words"),
        ("time_mask", (SPECTRA, None, 1, EACH, EACH, 1, False, EACH, WORDS, SPECTRA[:2].clone(), None), "the output must have 3 samples, got 2"),
        ("time_mask", (SPECTRA, None, 1, EACH, EACH, 1, False, EACH, WORDS, SPECTRA.half(), None), "must have the type of the input"),
        ("frequency_mask", (SPECTRA, None, 0, EACH, EACH, 1, False, EACH, WORDS, torch.zeros(3, 79), None), "must have 80 elements, got 79"),
        ("spec_augment", (SPECTRA, None, PLAN[:2], 1, 2.0, WORDS, 1, EACH, WORDS, SPECTRA.clone(), None), "plan must have 4 numbers"),
        ("spec_augment", (SPECTRA, None, PLAN[:, :3].clone(), 1, 2.0, WORDS, 1, EACH, WORDS, SPECTRA.clone(), None), "plan must have 4 numbers"),
        ("spec_augment", (SPECTRA, None, PLAN, 1, 2.0, WORDS, 1, EACH[:2], WORDS, SPECTRA.clone(), None), "widest must have 1 numbers"),
        ("spec_augment", (SPECTRA, None, PLAN, 65, 2.0, WORDS, 1, EACH, WORDS, SPECTRA.clone(), None), "the number of masks must be 0 to 64"),
        ("spec_augment", (SPECTRA, None, PLAN, 1, 2.0, WORDS, 1, EACH, WORDS[:2], SPECTRA.clone(), None), "rng gave too few words"),
        ("spec_augment", (SPECTRA, None, PLAN, 1, 2.0, WORDS, 1, EACH, WORDS, SPECTRA[:, :15].clone(), None), "must have 80 elements, got 75"),
        ("spec_augment", (SPECTRA, None, PLAN + 1, 1, 2.0, WORDS, 1, EACH, WORDS, SPECTRA.clone(), None), "outside of the sample"),
        ("spec_augment", (SPECTRA, None, PLAN * torch.tensor([1, 0, 1, 1]), 1, 2.0, WORDS, 1, EACH, WORDS, SPECTRA.clone(), None), "outside"),
        ("spec_augment", (SPECTRA.int(), None, PLAN, 1, 2.0, WORDS, 1, EACH, WORDS, SPECTRA.int(), None), "must be floating-point"),
        ("preemphasis_filter", (SIGNALS, None, EACH[:2], 0, SIGNALS.clone(), None), "the coefficient must have 1 numbers"),
        ("preemphasis_filter", (SIGNALS, None, EACH, 0, SIGNALS[:, :9].clone(), None), "must have 64 elements, got 9"),
        ("to_decibels", (SIGNALS, None, -80.0, 10.0, 1.0, SIGNALS[:2].clone(), None), "the output must have 3 samples, got 2"),
        ("mel_filter_bank", (SPECTRA, None, 0, 16000.0, 0.0, 8000.0, 8, False, True, torch.zeros(3, 7, 5), None), "must have 40 elements, got 35"),
        ("mfcc", (SPECTRA, None, 0, 2, 0.0, 20, False, torch.zeros(3, 17, 5), None), "must have 80 elements, got 85"),
        ("nonsilent_region", (SIGNALS, None, -60.0, 0.0, 8, whole(2), None, whole(3), None), "a number for each of 3 samples"),
        ("nonsilent_region", (SIGNALS, None, -60.0, 0.0, 8, whole(3), None, torch.zeros(3, dtype=torch.int16), None), "must be int32"),
        ("power_spectrum", (SIGNALS, None, 0, 64, 2, torch.zeros(3, 32), None), "must have 33 elements, got 32"),
        ("power_spectrum", (SIGNALS, None, 0, 0, 2, torch.zeros(66), torch.tensor([[33]] * 2)), "the output must have 3 samples, got 2"),
        ("spectrogram", (SIGNALS, None, EACH, 32, 4, 4, 2, True, True, False, torch.zeros(3, 17, 17), None), "window_length values"),
        ("spectrogram", (SIGNALS, None, EACH.half(), 32, 3, 4, 2, True, True, False, torch.zeros(3, 17, 17), None), "window_length values"),
        ("spectrogram", (SIGNALS, None, None, 32, 4, 4, 2, True, True, False, torch.zeros(2, 17, 17), None), "the output must have 3 samples"),
        ("audio_resample", (SIGNALS, None, EACH[:2], 50.0, True, SIGNALS.clone(), None), "the ratio of the rates must have 1 numbers"),
        ("audio_resample", (SIGNALS, None, EACH, 50.0, True, torch.zeros(3, 64, 2), None), "as many dimensions"),
        ("audio_resample", (SIGNALS[:, :, None], None, EACH, 50.0, True, torch.zeros(3, 64, 0), None), "must have 64 elements, got 0"),
    ],
)
def test_kernel_rejects_tensors_of_the_wrong_size(op: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RuntimeError, match=f"{op}: .*{message}"):
        getattr(torch.ops.ndd, op)(*arguments)


@pytest.fixture
def sounds() -> tuple[torch.Tensor, torch.Tensor]:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, np.zeros((64, 2)), 8000, format="WAV")
    contents = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    ndd.decoders.audio(contents)  # loads the library
    return contents.repeat(3), torch.tensor([[len(contents)]] * 3)


def test_decoder_rejects_arguments_of_the_wrong_size(sounds: tuple[torch.Tensor, torch.Tensor]) -> None:
    whole = torch.tensor([[0.0, 0.0, 1.0]] * 3, dtype=torch.float64)  # rates, starts and durations
    tables = {"shapes": torch.zeros(3, 2, dtype=torch.int64), "rates": torch.zeros(3), "opened": torch.zeros(3, 3, dtype=torch.int64)}

    def decode(
        out: torch.Tensor, shapes: torch.Tensor | None = None, parts: torch.Tensor = whole, opened: torch.Tensor = tables["opened"]
    ) -> torch.Tensor:
        torch.ops.ndd.decoders_audio(*sounds, "decoders.audio", False, parts, False, 50.0, opened, out, shapes)
        return out

    def find_shapes(parts: torch.Tensor = whole, **changed: torch.Tensor) -> None:
        torch.ops.ndd.audio_shapes(*sounds, "decoders.audio", False, parts, False, False, 4, 1 << 20, False, *(tables | changed).values())

    find_shapes()
    assert tables["shapes"].tolist() == [[64, 2]] * 3
    assert tables["rates"].tolist() == [8000] * 3
    assert tables["opened"][:, 0].tolist() == [8000] * 3
    assert (decode(torch.ones(3, 64, 2)) == 0).all()
    for parts in (whole[:2], whole[:, :2].contiguous()):
        with pytest.raises(RuntimeError, match=r"parts must have 3 numbers for each of 3 samples, got [23] rows"):
            decode(torch.zeros(3, 64, 2), parts=parts)
        with pytest.raises(RuntimeError, match=r"parts must have 3 numbers for each of 3 samples, got [23] rows"):
            find_shapes(parts)
    for name, table in tables.items():
        with pytest.raises(RuntimeError, match=f"the table of {name}.* must have {table.numel()} numbers, contiguous and on the CPU"):
            find_shapes(**{name: table[:2]})
        with pytest.raises(RuntimeError, match=f"the table of {name}.* must have numbers of another type"):
            find_shapes(**{name: table.int()})
    with pytest.raises(RuntimeError, match="the table of opened sounds must have 9 numbers"):
        decode(torch.zeros(3, 64, 2), opened=tables["opened"][:2])
    with pytest.raises(RuntimeError, match="the output must have frames of 3 sounds"):
        decode(torch.zeros(2, 64, 2))
    for out in (torch.zeros(3, 64, 2, 0), torch.zeros(3, 128, 1), torch.zeros(3, 64)):
        with pytest.raises(RuntimeError, match="the encoded sound changed"):
            decode(out)
    with pytest.raises(RuntimeError, match="sounds must be float32, int16 or int32"):
        decode(torch.zeros(3, 64, 2, dtype=torch.uint8))
    for rate in (2.0**31, float("inf")):
        with pytest.raises(RuntimeError, match="the sampling rate must be positive"):
            decode(torch.zeros(3, 64, 2), parts=torch.tensor([[rate, 0.0, 1.0]]))
    for rate in (2.0**31, float("inf"), float("nan")):
        with pytest.raises(RuntimeError, match=r"sample_rate must be finite and less than 2\*\*31"):
            find_shapes(torch.tensor([[rate, 0.0, 1.0]]))
    with pytest.raises(RuntimeError, match="start must be a number of seconds"):
        decode(torch.zeros(3, 64, 2), parts=torch.tensor([[0.0, -1.0, 1.0]]))
