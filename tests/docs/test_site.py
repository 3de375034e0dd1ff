# SPDX-License-Identifier: Apache-2.0
"""The built site in a browser: no dead link, no missing picture, search works, readable on a phone's width."""

import html.parser
import json
import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = ("index.html", "gallery/color.html", "reference/operators/geometry.html", "concepts/stream.html", "migrate/dataloader.html")
PHONE = 390  # CSS pixels


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; warnings are errors."""
    pytest.importorskip("sphinx")
    out = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-b",
            "html",
            "-d",
            str(out / "doctrees"),
            str(ROOT / "docs"),
            str(out / "html"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=500,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return out / "html"


class _Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.images: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        value = dict(attrs)
        self.ids.add(value.get("id") or "")
        if tag == "a" and value.get("href"):
            self.links.append(value["href"] or "")
        if tag == "img":
            self.images.append(value.get("src") or "")
            assert value.get("alt") is not None, f"a picture without a text: {value}"


def test_links_and_pictures(site: Path) -> None:
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 40
    dead = []
    for path, page in pages.items():
        for link in page.links + page.images:
            target, fragment = urldefrag(link)
            if urlparse(link).scheme or link.startswith("//"):
                continue
            place = Path(unquote(urlparse(urljoin(path.as_uri(), target)).path)) if target else path
            if not place.exists() or (fragment and place in pages and fragment not in pages[place].ids):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert not dead
    assert not [path for path, page in pages.items() if "Annotated[" in path.read_text() or " at 0x" in path.read_text()]


@pytest.fixture(scope="module")
def browser() -> str:
    """Return the program of a headless browser."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Chromium: apt-get install chromium")
        pytest.skip("no Chromium")
    return found


def opened(browser: str, folder: Path, page: str, width: int, profile: Path, script: str) -> dict[str, object]:
    """Open a page in the browser at a width in pixels and return what a script finds there, as JSON in the page's title."""
    handler = partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    probe = folder / "probe.html"
    address = f"http://127.0.0.1:{server.server_port}/{page}"
    probe.write_text(
        f'<html><body style="margin:0"><iframe id="f" src="{address}" style="width:{width}px;height:900px;border:0"></iframe><script>'
        f'const f = document.getElementById("f"); f.onload = () => setTimeout(() => {{ const d = f.contentDocument; '
        f"document.body.dataset.found = JSON.stringify((() => {{ {script} }})()); }}, 2500);</script></body></html>"
    )
    try:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
        options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={profile}", "--virtual-time-budget=9000", "--dump-dom"]
        run = subprocess.run([browser, *options, f"http://127.0.0.1:{server.server_port}/probe.html"], capture_output=True, text=True, timeout=120)
    finally:
        server.shutdown()
        server.server_close()
    found = _Attribute(run.stdout).found
    assert found is not None, run.stderr[-2000:]
    return json.loads(found)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class _Attribute(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found = dict(attrs).get("data-found", self.found)


@pytest.mark.parametrize("page", PAGES)
def test_a_phone_shows_the_page(browser: str, site: Path, tmp_path: Path, page: str) -> None:
    script = (
        "return {wide: d.documentElement.scrollWidth, pictures: [...d.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src), "
        "title: d.querySelector('h1').innerText, text: getComputedStyle(d.querySelector('p, td')).fontSize}"
    )
    found = opened(browser, site, page, PHONE, tmp_path, script)
    assert found["pictures"] == []
    assert int(str(found["wide"])) <= PHONE + 1, "the page scrolls sideways"
    assert float(str(found["text"])[:-2]) >= 12


def test_search_finds_operators(browser: str, site: Path, tmp_path: Path) -> None:
    script = "return {hits: [...d.querySelectorAll('#search-results li a, ul.search li a')].map(a => a.href)}"
    found = opened(browser, site, "search.html?q=warp_affine", 1200, tmp_path, script)
    assert any("geometry" in str(hit) for hit in found["hits"])
