# SPDX-License-Identifier: Apache-2.0
import pytest
import train_vlm


@pytest.mark.slow
def test_the_model_learns_more_than_the_frequency_of_words() -> None:
    """Without the images, 65 % of the words can be predicted: "a", the end, and a guess of size, color and shape."""
    assert train_vlm.main(["--steps", "60", "--images", "128"]) > 75
