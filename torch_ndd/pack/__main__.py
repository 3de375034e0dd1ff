# SPDX-License-Identifier: Apache-2.0
"""The command line: ``python -m torch_ndd.pack SRC DST [--shorter 320] ...``."""

import argparse
import sys
from pathlib import Path

from . import pack
from ._plan import FORMATS, ON_ERROR


def main(arguments: list[str] | None = None) -> int:
    """Pack a data set; return 1 if that failed."""
    parser = argparse.ArgumentParser(prog="python -m torch_ndd.pack", description="Prepare a data set of images once, for all epochs.")
    parser.add_argument("source", type=Path, help="a folder of images, or of a folder for each class")
    parser.add_argument("target", type=Path, help="a new folder, or one that a run with the same arguments has begun")
    parser.add_argument("--shorter", type=int, help="make images smaller until their shorter side has so many pixels; by default files are copied")
    parser.add_argument("--quality", type=int, default=90, help="of the JPEGs that are made (default 90)")
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0])
    parser.add_argument("--annotations", type=Path, help="a JSON file of COCO about these images")
    parser.add_argument("--per-shard", type=int, default=1000, help="images of a shard (default 1000)")
    parser.add_argument("--on-error", choices=ON_ERROR, default=ON_ERROR[0], help="what to do with a damaged image")
    parser.add_argument("--jobs", type=int, help="threads; by default one for each CPU")
    parser.add_argument("--ray", action="store_true", help="on all machines of a Ray cluster that see both folders")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = vars(parser.parse_args(arguments))
    progress = not options.pop("quiet")
    try:
        summary = pack(options.pop("source"), options.pop("target"), progress=progress, **options)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"pack: {error}; completed work is kept; run the same command again to resume", file=sys.stderr)
        return 1
    for path, why in summary.skipped:
        print(f"skipped {path}: {why}", file=sys.stderr)
    written = f"{summary.images} images, {summary.bytes / 1e6:.1f} MB, in {summary.shards} shards"
    print(f"{written}; {len(summary.skipped)} skipped, {summary.resumed} shards from before")
    return 0


if __name__ == "__main__":
    sys.exit(main())
