"""Train on speech: read a manifest, make mel spectrograms of equal length, mask some of them."""

import sys

import torch_ndd as ndd

MEAN_DB, RATE = -40.0, 16000


def features(sounds):
    power = ndd.spectrogram(sounds, nfft=512, window_length=400, window_step=160)
    mel = ndd.mel_filter_bank(power, nfilter=80, sample_rate=RATE)
    decibels = ndd.to_decibels(mel, cutoff_db=-80.0)
    masked = ndd.frequency_mask(ndd.time_mask(decibels, time_mask_param=20), freq_mask_param=10)
    return ndd.pad(masked, axis_names="t", fill_value=-80.0) - MEAN_DB


reader = ndd.readers.NemoAsr(
    manifest_filepaths=[sys.argv[1]],
    downmix=True,
    sample_rate=RATE,
    read_sample_rate=False,
    read_text=False,
    random_shuffle=True,
)
for batch in ndd.DataLoader(reader, features, batch_size=2):
    print(batch.shape)  # (samples, 80, frames): torch tensors
