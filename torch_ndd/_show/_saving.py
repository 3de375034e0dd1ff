# SPDX-License-Identifier: Apache-2.0
"""Pictures in files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .._core.process.files import whole_file

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


def save_picture(picture: Picture, path: str | os.PathLike[str]) -> None:
    """Write a picture in the format of its extension. Raise ValueError for an unknown one, OSError if it cannot be written."""
    from PIL import Image

    extension = os.path.splitext(os.fspath(path))[1].lower()
    formats = Image.registered_extensions()
    if extension not in formats:
        raise ValueError(f"show: {os.fspath(path)!r} does not end in an extension of an image format, such as .png")
    # Written whole: a picture that is being viewed is never half of one.
    with whole_file(path) as file:
        picture.save(file, formats[extension])
