# SPDX-License-Identifier: Apache-2.0
"""Decode damaged audio, arrays, videos and FITS files in processes that may die."""

import gzip
import io
import random
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import numpy as np  # noqa: E402
from attack import Attack, main  # noqa: E402
from media_headers import CONTRADICTORY  # noqa: E402


def clear_length(file: bytes, at: int, size: int, byte: int = 0) -> bytes:
    """Return a file whose header lacks the length at this place."""
    return file[:at] + bytes([byte]) * size + file[at + size :]


def unfinished_wav() -> bytes:
    from _mutations import sound

    file = sound("WAV", "PCM_16")
    return clear_length(clear_length(file, 4, 4), file.index(b"data") + 4, 4)


def unfinished_flac() -> bytes:
    from _mutations import sound

    return clear_length(sound("FLAC", "PCM_16"), 22, 4)


def streams_of_mp3() -> list[bytes]:
    """Return MP3s without a length, from the second frame on and from within a frame."""
    from _mutations import sound

    file = sound("MP3", "MPEG_LAYER_III")
    second = file.index(file[:2], 4)
    return [file[second:], file[second + 50 :]]


def _sources(kind: str) -> list[bytes]:
    from _mutations import array, sound, video

    if kind.startswith("fits"):
        from astropy.io import fits

        pixels = np.arange(40 * 60, dtype=np.int16).reshape(40, 60)
        results = []
        for unit in (
            (fits.CompImageHDU(pixels), fits.CompImageHDU(pixels, compression_type="GZIP_1")) if kind == "fits_tiles" else (fits.ImageHDU(pixels),)
        ):
            file = io.BytesIO()
            fits.HDUList([fits.PrimaryHDU(pixels.astype(np.float32)), unit]).writeto(file)
            results.append(gzip.compress(file.getvalue()) if kind == "fits_gz" else file.getvalue())
        return results
    makers: dict[str, Callable[[], list[bytes]]] = {
        "wav": lambda: [*(sound("WAV", value) for value in ("PCM_16", "PCM_24", "FLOAT", "ULAW", "IMA_ADPCM", "MS_ADPCM")), unfinished_wav()],
        "flac": lambda: [sound("FLAC", "PCM_16"), sound("FLAC", "PCM_24"), unfinished_flac()],
        "au": lambda: [sound("AU", "PCM_16"), clear_length(sound("AU", "PCM_16"), 8, 4)],
        "caf": lambda: [sound("CAF", "PCM_16"), clear_length(sound("CAF", "PCM_16"), sound("CAF", "PCM_16").index(b"data") + 4, 8, 255)],
        "vorbis": lambda: [sound("OGG", "VORBIS")],
        "opus": lambda: [sound("OGG", "OPUS")],
        "mp3": lambda: [sound("MP3", "MPEG_LAYER_III"), *streams_of_mp3()],
        "npy": lambda: [array("C"), array("F")],
        "mp4": lambda: [video("mp4")],
        "webm": lambda: [video("webm")],
        "avi": lambda: [video("avi", codec="mpeg4", extra_options={"bf": "2"})],
        "ts": lambda: [video("mpegts", codec="h264", extra_options={"bf": "2"}), video("mpegts", codec="mpeg2video")],
    }
    return makers[kind]()


def make(kind: str, way: str, seed: int, folder: Path) -> Attack:
    """Return the attack on one kind of file: the decoder, and the reader if it has its own code."""
    from _mutations import mutate

    import torch_ndd as ndd

    files, path = _sources(kind), folder / "a"

    def decode(data: bytes) -> None:
        if kind.startswith("fits"):
            path.write_bytes(data)
            for (value,) in ndd.experimental.readers.Fits(files=[str(path)], hdu_indices=[2]).next_epoch():
                value.torch()
            return
        file = ndd.tensor(np.frombuffer(data, np.uint8))
        if kind in ("mp4", "webm", "avi", "ts"):
            np.asarray(ndd.decoders.video(file))
        elif kind == "npy":
            path.write_bytes(data)
            try:
                ndd.decoders.numpy(file).torch()
            finally:
                for (value,) in ndd.readers.Numpy(files=[str(path)]).next_epoch():
                    value.torch()
        else:
            np.asarray(ndd.decoders.audio(file)[0])

    for item in files:
        decode(item)  # undamaged files are readable

    def attack(number: int) -> bytes:
        draw = random.Random(f"{seed} {kind} {way} {number}")
        source = files[number % len(files)]
        data = mutate(source, number // len(files) % 6, draw) if way == "mutated" else CONTRADICTORY[kind](source, draw)
        decode(data)
        return data

    return attack


if __name__ == "__main__":
    every = ("mutated", "headers")
    main(make, __file__, dict.fromkeys(CONTRADICTORY, every), {"mutated": 20_000, "headers": 10_000}, 6 << 30)
