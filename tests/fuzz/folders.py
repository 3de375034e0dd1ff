# SPDX-License-Identifier: Apache-2.0
"""Read data sets of several files, one of which is damaged, in processes that may die: LeRobot's folders, Lhotse's cuts, lists of files."""

import gzip
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "helpers")]

import numpy as np  # noqa: E402
from attack import Attack, main  # noqa: E402
from containers import index_numbers, json_values  # noqa: E402

Read = Callable[[], Any]


def _damage_cuts(content: bytes, draw: random.Random) -> bytes:
    """Change values of compressed JSON lines; sometimes the end is missing, or there are two parts."""
    damaged = gzip.compress(json_values(gzip.decompress(content), draw))
    return draw.choice((damaged, damaged, damaged[:-9], damaged + content, damaged + b"\x1f\x8b"))


def _data_set(kind: str, folder: Path) -> Callable[[Any], Read]:
    """Write a data set to a folder; return a function of ``on_error`` that returns how to make its reader."""
    import torch_ndd as ndd

    if kind.startswith("lerobot"):
        from _robots import CAMERAS, write_v2, write_v3, write_v3_images

        {"lerobot3": write_v3, "lerobot2": write_v2, "lerobot_images": write_v3_images}[kind](folder)
        deltas = {CAMERAS[0]: [-0.1, 0.0], "action": [0.0, 0.1]}
        return lambda on_error: lambda: ndd.readers.LeRobot(4, path=folder, delta_timestamps=deltas, on_error=on_error)
    if kind == "lhotse":
        import soundfile

        soundfile.write(folder / "a.wav", np.arange(4000, dtype=np.int16), 8000)
        source = {"type": "file", "channels": [0], "source": "a.wav"}
        recording = {"id": "r", "sources": [source], "sampling_rate": 8000, "num_samples": 4000, "duration": 0.5, "channel_ids": [0]}
        part = {"id": "s", "start": 0.0, "duration": 0.05, "text": "höre", "speaker": "anna"}
        cuts = [
            {**{"id": f"c{k}", "start": 0.1 * k, "duration": 0.1, "channel": 0, "supervisions": [part], "recording": recording}, "type": "MonoCut"}
            for k in range(4)
        ]
        (folder / "cuts.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, cuts)).encode()))
        return lambda on_error: lambda: ndd.readers.Lhotse(folder / "cuts.jsonl.gz", 2, on_error=on_error)
    for k in range(4):
        (folder / f"{k}.bin").write_bytes(bytes([k]) * 10)
    (folder / "list.txt").write_text("".join(f"{k}.bin {k}\n" for k in range(4)))
    return lambda on_error: lambda: ndd.readers.File(2, file_root=folder, file_list=folder / "list.txt", on_error=on_error)


def _read_all(read: Read) -> None:
    for outputs in read().next_epoch():
        for batch in outputs.values() if isinstance(outputs, dict) else outputs:
            for sample in getattr(batch, "tensors", [batch]):
                np.asarray(sample).tobytes()


def make(kind: str, way: str, seed: int, folder: Path) -> Attack:
    """Return the attack on one kind of data set: one of its files."""
    from _mutations import mutate

    good, damaged = folder / "good", folder / "damaged"
    good.mkdir()
    _data_set(kind, good)
    shutil.copytree(good, damaged)
    reader = _data_set(kind, damaged)
    files = sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file())
    structured = {".json": json_values, ".jsonl": json_values, ".gz": _damage_cuts, ".txt": index_numbers}
    attacked = [path for path in files if path.suffix in structured] if way == "headers" else files
    _read_all(reader("raise"))

    def attack(number: int) -> bytes:
        draw = random.Random(f"{seed} {kind} {way} {number}")
        path = draw.choice(attacked)
        content = (good / path).read_bytes()
        damage = structured[path.suffix](content, draw) if way == "headers" else mutate(content, number % 6, draw)
        (damaged / path).write_bytes(damage)
        try:
            _read_all(reader(draw.choice(("raise", "skip", "replace"))))
        finally:
            (damaged / path).write_bytes(content)
        return damage

    return attack


KINDS = ("lerobot3", "lerobot2", "lerobot_images", "lhotse", "list")

if __name__ == "__main__":
    main(make, __file__, dict.fromkeys(KINDS, ("mutated", "headers")), {"mutated": 10_000, "headers": 10_000}, 6 << 30)
