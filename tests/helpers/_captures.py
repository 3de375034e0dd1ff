# SPDX-License-Identifier: Apache-2.0
"""Count the calls that loops with ``next_epoch(capture=True)`` issue ahead."""

from typing import Any

import pytest

from torch_ndd._core.operators import capture


class Counted:
    """How many calls were replaced by results made ahead, and of how many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken = self.made = 0
        is_usable, issue = capture.LoopRecorder._is_usable, capture.LoopRecorder._issue

        def counting(recorder: Any, *arguments: Any) -> bool:
            self.taken += (taken := is_usable(recorder, *arguments))
            return taken

        def making(recorder: Any, *arguments: Any) -> Any:
            self.made += (result := issue(recorder, *arguments)) is not None
            return result

        monkeypatch.setattr(capture.LoopRecorder, "_is_usable", counting)
        monkeypatch.setattr(capture.LoopRecorder, "_issue", making)
