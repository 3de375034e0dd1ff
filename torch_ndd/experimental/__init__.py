# SPDX-License-Identifier: Apache-2.0
"""Names that DALI keeps under ``experimental``."""

from . import decoders as decoders
