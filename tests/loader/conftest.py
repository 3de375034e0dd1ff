# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for i in range(11):
        height, width = random.integers(20, 60, 2)
        Image.fromarray(random.integers(0, 255, (height, width, 3), np.uint8)).save(folder / f"{i:02}.png")
    return sorted(folder.iterdir())
