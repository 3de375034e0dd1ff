# SPDX-License-Identifier: Apache-2.0
"""The built site: a reference of every public name, no dead link, no missing picture; in a browser, search works and every page fits its width."""

import ast
import html
import html.parser
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import pytest
from _public_api import MODULES, definition

import torch_ndd as ndd

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WIDTHS = (400, 1280)  # CSS pixels: a phone, a laptop
CODE = re.compile(r"<(pre|code|script|style)\b.*?</\1>", re.S)
ENTRY = re.compile(r'<dl class="py (\w+)">\s*<dt class="sig[^"]*" id="([^"]+)">(.*?)</dt>', re.S)


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


def public_names() -> set[str]:
    """Return the public functions and classes, and the documented methods of those of ``torch_ndd`` itself."""
    origins: set[str] = set()
    found = set()
    for module in MODULES:
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if not callable(value) or not hasattr(value, "__qualname__"):
                continue
            origin, node = definition(value)
            if node is None or origin in origins:  # an alias has no entry of its own
                continue
            origins.add(origin)
            found.add(f"{module.__name__}.{name}")
            if isinstance(node, ast.ClassDef) and module is ndd:
                methods = [member for member in node.body if isinstance(member, ast.FunctionDef) and member.name[0] != "_"]
                texts = {method.name: ast.get_docstring(method) for method in methods}
                found |= {f"torch_ndd.{name}.{method}" for method, text in texts.items() if text and ":meta private:" not in text}
    return found


def test_every_public_name_has_an_anchor(site: Path) -> None:
    anchors = {found for path in site.rglob("*.html") for found in re.findall(r'id="(torch_ndd\.[^"]*)"', path.read_text())}
    assert {"torch_ndd.Batch.padded", "torch_ndd.Batch.nested", "torch_ndd.Batch.torch", "torch_ndd.ImageFolder", "torch_ndd.crop"} <= public_names()
    assert not sorted(public_names() - anchors)


def test_every_entry_has_a_signature(site: Path) -> None:
    entries = [found for path in site.rglob("*.html") for found in ENTRY.findall(path.read_text())]
    assert len(entries) > 500
    without = []
    for kind, name, text in entries:
        if kind in ("function", "method", "staticmethod", "classmethod") and "sig-paren" not in text:
            without.append(name)
        elif kind == "class" and "sig-paren" not in text:
            value: object = ndd
            for part in name.split(".")[1:]:
                value = getattr(value, part)
            if takes_arguments(value):
                without.append(name)
    assert not without


def takes_arguments(value: object) -> bool:
    """Return whether the constructor of a class is one of the package, with arguments."""
    method = getattr(value, "__init__", None)
    return inspect.isfunction(method) and method.__module__.startswith("torch_ndd") and len(inspect.signature(method).parameters) > 1


def test_pages_show_no_markup(site: Path) -> None:
    """Directives, roles and fences that were not understood are text."""
    shown = []
    for path in site.rglob("*.html"):
        text = html.unescape(re.sub(r"<[^>]*>", "", CODE.sub("", path.read_text())))
        shown += [f"{path.relative_to(site)}: {found}" for found in re.findall(r"\.\. [\w:-]+::.*|```.*|\{[\w:-]+\}`|:[\w:]+:`.*", text)]
    assert not shown


@pytest.fixture(scope="module")
def browser() -> str:
    """Return the program of a headless browser."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Chromium: apt-get install chromium")
        pytest.skip("no Chromium")
    return found


def examine(browser: str, folder: Path, pages: list[str], widths: tuple[int, ...], profile: Path, script: str) -> list[dict[str, Any]]:
    """Open pages in the browser at widths in pixels, one after the other, and return what a function of the document finds there."""
    handler = partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    probe = folder / "probe.html"
    probe.write_text(f"""<html><body style="margin:0"><iframe id="f" style="height:900px;border:0"></iframe><script>
        const frame = document.getElementById("f"), find = d => {{ {script} }};
        const wait = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));
        const open = page => new Promise(resolve => {{ frame.onload = resolve; frame.src = "/" + page; }});
        (async () => {{
            const found = [];
            for (const page of {json.dumps(pages)}) {{
                await open(page);
                for (const width of {json.dumps(widths)}) {{
                    frame.style.width = width + "px";
                    await wait({2500 if len(pages) == 1 else 100});
                    found.push({{page, width, ...find(frame.contentDocument)}});
                }}
            }}
            document.body.dataset.found = JSON.stringify(found);
        }})();
        </script></body></html>""")
    try:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
        options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={profile}", "--virtual-time-budget=200000", "--dump-dom"]
        run = subprocess.run([browser, *options, f"http://127.0.0.1:{server.server_port}/probe.html"], capture_output=True, text=True, timeout=300)
    finally:
        server.shutdown()
        server.server_close()
        probe.unlink()
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


def test_pages_fit_their_width(browser: str, site: Path, tmp_path: Path) -> None:
    """Nothing is cut, on a phone or a laptop: neither the page nor a table, code, printed output or a chart has to be scrolled sideways."""
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name not in ("genindex.html", "py-modindex.html"))
    script = """return {
        wide: d.documentElement.scrollWidth,
        cut: [...d.querySelectorAll("article *")].filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1
            && (getComputedStyle(e).overflowX != "visible" || e.matches("h1, h2, h3"))).concat([...d.querySelectorAll(".prev-next-area p")].filter(
            e => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > e.closest("a").getBoundingClientRect().right + 1
            )).concat([...d.querySelectorAll("article code")].filter(  // inline, without a width of its own
                e => e.getBoundingClientRect().right > d.documentElement.clientWidth + 1
            )).map(e => e.tagName + ": " + e.innerText.slice(0, 60)),
        pictures: [...d.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
        text: parseFloat(getComputedStyle(d.querySelector("article p, article td, article dd") || d.body).fontSize)}"""
    found = examine(browser, site, pages, WIDTHS, tmp_path, script)
    assert len(found) == len(pages) * len(WIDTHS)
    assert not [(page["page"], page["width"]) for page in found if page["wide"] > page["width"] + 1]
    assert not [(page["page"], page["width"], page["cut"]) for page in found if page["cut"]]
    assert not [(page["page"], page["pictures"]) for page in found if page["pictures"]]
    assert not [(page["page"], page["text"]) for page in found if page["text"] < 12]


def test_search_finds_operators(browser: str, site: Path, tmp_path: Path) -> None:
    script = "return {hits: [...d.querySelectorAll('#search-results li a, ul.search li a')].map(a => a.href)}"
    (found,) = examine(browser, site, ["search.html?q=warp_affine"], (1200,), tmp_path, script)
    assert any("geometry" in hit for hit in found["hits"])
