# SPDX-License-Identifier: Apache-2.0
"""Speech: recordings, or parts of them, with transcripts."""

from .lhotse import Lhotse as Lhotse
from .nemo_asr import NemoAsr as NemoAsr
