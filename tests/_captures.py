# SPDX-License-Identifier: Apache-2.0
"""Counts what loops with ``next_epoch(capture=True)`` make ahead."""

from typing import Any

import pytest

from torch_ndd import _capture


class Counted:
    """How many calls were replaced by what was made ahead, of how many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = self.made = 0
        fits, made_ahead = _capture.Recorder._fits, _capture.Recorder._made_ahead

        def counting(recorder: Any, *arguments: Any) -> bool:
            self.taken += (taken := fits(recorder, *arguments))
            return taken

        def making(recorder: Any, *arguments: Any) -> Any:
            self.made += (made := made_ahead(recorder, *arguments)) is not None
            return made

        monkeypatch.setattr(_capture.Recorder, "_fits", counting)
        monkeypatch.setattr(_capture.Recorder, "_made_ahead", making)
