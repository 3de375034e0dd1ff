# SPDX-License-Identifier: Apache-2.0
"""Count the calls that loops with ``next_epoch(capture=True)`` issue ahead."""

from typing import Any

import pytest

from torch_ndd._core.operators import capture


class Counted:
    """How many calls were replaced by results made ahead, and of how many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = self.made = 0
        fits, made_ahead = capture.Recorder._fits, capture.Recorder._made_ahead

        def counting(recorder: Any, *arguments: Any) -> bool:
            self.taken += (taken := fits(recorder, *arguments))
            return taken

        def making(recorder: Any, *arguments: Any) -> Any:
            self.made += (made := made_ahead(recorder, *arguments)) is not None
            return made

        monkeypatch.setattr(capture.Recorder, "_fits", counting)
        monkeypatch.setattr(capture.Recorder, "_made_ahead", making)
