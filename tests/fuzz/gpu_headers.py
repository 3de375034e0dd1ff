# SPDX-License-Identifier: Apache-2.0
"""Choose the GPU's decoder for damaged files, in front of a guard page. No GPU is needed: only our own reading of the headers runs."""

import random
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

from attack import Attack, main  # noqa: E402
from headers import CONTRADICTORY  # noqa: E402
from sources import files_of  # noqa: E402
from tiles import Guarded  # noqa: E402

KINDS = ("jpeg", "tiff", "jpeg2000")


def make(kind: str, way: str, seed: int, _: Path) -> Attack:
    """Return the attack on the choice for one format: a file that no decoder of a GPU gets counts as refused."""
    from _mutations import mutate

    from torch_ndd._core import native
    from torch_ndd.decoders import _library
    from torch_ndd.decoders._gpu_jpeg2000 import is_plain
    from torch_ndd.decoders._jpeg2000 import read_checked_header

    _library.load()
    find_codec, memory = native.c_function("ndd_gpu_codec_of"), Guarded()
    sources = files_of(kind)

    def suits(file: bytes) -> bool:
        content = memory(file)
        if kind == "jpeg2000":
            return is_plain(read_checked_header(content, 1 << 28))
        codec = find_codec(content.ctypes.data, len(content))
        assert codec != -2, "the copy for the codec has another header"
        return codec > 0

    assert any(suits(file) for file in sources[:3])

    def attack(number: int) -> bytes:
        draw = random.Random(f"{seed} {kind} {way} {number}")
        file = draw.choice(sources)
        damaged = mutate(file, number % 6, draw) if way == "mutated" else CONTRADICTORY[kind](file, draw)
        memory.at_the_end = number % 3 != 0
        if not suits(damaged):
            raise ValueError("not for a GPU")
        return damaged

    return attack


if __name__ == "__main__":
    main(make, __file__, dict.fromkeys(KINDS, ("mutated", "headers")), {"mutated": 60_000, "headers": 60_000}, 6 << 30)
