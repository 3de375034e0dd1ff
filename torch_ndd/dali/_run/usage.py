# SPDX-License-Identifier: Apache-2.0
"""The ways of running a pipeline: a program may use only one of them."""

from ..types import PipelineAPIType


class Usage:
    """The way in which a pipeline is run; a context manager around one use, after :meth:`enter`.

    Attributes:
        checks: Whether a second way raises an error.
    """

    def __init__(self) -> None:
        self.checks = True
        self._kind: PipelineAPIType | None = None
        self._depth = 0

    def enter(self, kind: PipelineAPIType) -> "Usage":
        """Raise RuntimeError if the pipeline is run in another way. Uses inside others do not count: an iterator calls ``schedule_run``."""
        if not self._depth:
            if self._kind is None:
                self._kind = kind
            elif self._kind is not kind and self.checks:
                raise RuntimeError(
                    f"Mixing pipeline API type. Currently used: {self._kind}, but trying to use: {kind}; "
                    "use either run(), or schedule_run() with share_outputs(), or an iterator"
                )
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
