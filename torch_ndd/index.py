# SPDX-License-Identifier: Apache-2.0
"""Index files in the format of DALI's wds2idx, tfrecord2idx and rec2idx: ``python -m torch_ndd.index wds|tfrecord|recordio FILE [INDEX]``.

The readers do not need them: without one they parse the headers, at about 1 us per record. An index avoids this at every start.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import pairwise

from ._core.process.files import whole_file
from .readers._ranges.records import RECORDIO, TAR, TFRECORD, Scan, scan
from .readers.webdataset._tar_headers import split_name

__all__ = ["recordio", "tfrecord", "wds"]


def wds(path: str, index: str) -> int:
    """Write the index (v1.2) of a tar archive and return the number of its samples. Raise RuntimeError if it is empty or damaged."""
    samples: list[list[bytes]] = []
    last, extensions = None, set()
    found = _whole(TAR, path)
    for name, begin, length in zip(_names(found), found.begin.tolist(), found.length.tolist(), strict=True):
        base, ext = split_name(name)
        if not base or base.endswith(b"/"):  # hidden files
            continue
        if base != last:
            last = base
            samples.append([])
            extensions = set()
        if ext in extensions:
            raise RuntimeError(f'"{path}" at byte {begin}: the sample {base.decode(errors="replace")!r} has several files with the same extension')
        extensions.add(ext)
        samples[-1].append(b"%b %d %d %b" % (ext, begin, length, name))
    if not samples:
        raise RuntimeError(f'"{path}": there are no samples in it')
    with whole_file(index) as file:
        file.write(b"v1.2 %d\n" % len(samples))
        file.writelines(b" ".join(sample) + b"\n" for sample in samples)
    return len(samples)


def tfrecord(path: str, index: str) -> int:
    """Write the index of a TFRecord file, lines of offset and size, and return the number of its records. Raise RuntimeError if it is damaged."""
    found = _whole(TFRECORD, path)
    with whole_file(index) as file:
        file.writelines(b"%d %d\n" % (begin, length) for begin, length in zip(found.begin.tolist(), found.length.tolist(), strict=True))
    return len(found.begin)


def recordio(path: str, index: str) -> int:
    """Write the index of a RecordIO file, lines of number and offset, and return the number of its records. Raise RuntimeError if it is damaged."""
    found = _whole(RECORDIO, path)
    with whole_file(index) as file:
        file.writelines(b"%d\t%d\n" % (k, begin) for k, begin in enumerate(found.begin.tolist()))
    return len(found.begin)


def _whole(kind: int, path: str) -> Scan:
    found = scan(kind, path)
    if found.damaged >= 0:
        raise RuntimeError(f'"{path}" at byte {found.damaged}: {found.reason}')
    return found


def _names(found: Scan) -> Iterator[bytes]:
    offsets = found.name_offsets.tolist()
    return (found.names[begin:end] for begin, end in pairwise(offsets))


_TOOLS = {"wds": wds, "tfrecord": tfrecord, "recordio": recordio}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 on failure."""
    parser = argparse.ArgumentParser(prog="python -m torch_ndd.index", description=__doc__)
    parser.add_argument("kind", choices=_TOOLS)
    parser.add_argument("file", help="tar archive, TFRecord or RecordIO file")
    parser.add_argument("index", nargs="?", help="by default the file with the ending .idx")
    options = parser.parse_args(arguments)
    index = options.index
    if index is None:
        folder, name = os.path.split(options.file)
        dot = name.find(".", 1)
        index = os.path.join(folder, (name if dot < 0 else name[:dot]) + ".idx")
    try:
        count = _TOOLS[options.kind](options.file, index)
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{index}: {count} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
