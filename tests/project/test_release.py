# SPDX-License-Identifier: Apache-2.0
"""The workflow that publishes a tag."""

import os
import subprocess

import pytest
from conftest import ROOT

import torch_ndd as ndd


@pytest.mark.parametrize(("tag", "status"), [(f"v{ndd.__version__}", 0), (f"v{ndd.__version__}1", 1)])
def test_a_tag_must_be_the_version_of_the_package(tag: str, status: int) -> None:
    lines = (ROOT / ".github/workflows/release.yml").read_text().splitlines()
    (step,) = (k for k, line in enumerate(lines) if "The tag is the version of the package" in line)
    command = lines[step + 1].partition("run: ")[2]
    assert subprocess.run(["bash", "-c", command], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag}).returncode == status


def test_the_changelog_has_a_section_of_the_version() -> None:
    assert f"## [{ndd.__version__}] - " in (ROOT / "CHANGELOG.md").read_text()


def test_all_pages_agree_on_whether_the_version_is_published() -> None:
    """A release removes the words from all of them."""
    section = (ROOT / "CHANGELOG.md").read_text().split(f"## [{ndd.__version__}]")[1].split("\n## ")[0]
    pages = {"CHANGELOG.md": section, **{name: (ROOT / name).read_text() for name in ("README.md", "docs/install.md")}}
    assert len({"is not on PyPI yet" in text for text in pages.values()}) == 1, {name: "is not on PyPI yet" in text for name, text in pages.items()}
