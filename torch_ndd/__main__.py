# SPDX-License-Identifier: Apache-2.0
"""``python -m torch_ndd [--json]``: print the report of :func:`torch_ndd.doctor`."""

import argparse
import json

from ._doctor import doctor


def main(arguments: list[str] | None = None) -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m torch_ndd", description="What this installation can do, and what is missing.")
    parser.add_argument("--json", action="store_true", help="for programs")
    report = doctor()
    print(json.dumps(report, indent=1) if parser.parse_args(arguments).json else report)


if __name__ == "__main__":
    main()
