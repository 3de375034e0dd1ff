# SPDX-License-Identifier: Apache-2.0
"""Copy csrc so that a C++ compiler builds its CUDA kernels for the CPU, over the emulator in ``emulated_cuda.h``.

Syntax that is not C++ and that macros cannot express is rewritten, keeping the line numbers:

- ``kernel<<<grid, block>>>(arguments)`` becomes ``ndd_emulator::Launch(...).run([&] { kernel(arguments); })``;
- ``__shared__`` variables are taken from the memory of the emulated block;
- every kernel begins with an object that checks its ``__launch_bounds__``;
- ``tensor.is_cuda()`` asks the emulator, because every tensor is one of the CPU;
- ``name.cu`` becomes ``name.cu.cpp``, beside the ``name.cpp`` that it may have. So does a ``name.cpp`` with ``NDD_HOST_KERNELS``.

    python rewrite.py csrc build/emulated_cuda/csrc
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Everything else in these folders is unchanged; files of the emulator are added.
CUDA_SOURCES = (".cu", ".cuh", ".h")
OWN = {
    "emulated_cuda.h": "cuda_runtime.h",
    "emulated_cuda.cpp": "ndd/emulated_cuda.cpp",
    "emulated_memory.h": "ndd/emulated_memory.h",
    "emulated_memory.cpp": "ndd/emulated_memory.cpp",
}

# -fsanitize=thread makes the compiler call emulated_memory.cpp at each memory access; ThreadSanitizer itself is not linked.
CMAKE = """
file(GLOB_RECURSE EMULATED CONFIGURE_DEPENDS ndd/*.cu.cpp ops/*.cu.cpp decoders/*.cu.cpp)
separate_arguments(OPTIONS NATIVE_COMMAND "$ENV{NDD_EMULATED_OPTIONS}")
set_property(SOURCE ${EMULATED} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
set_property(SOURCE ${EMULATED} APPEND PROPERTY COMPILE_OPTIONS -O1 -Wno-unused -fsanitize=thread ${OPTIONS})
"""

_CLOSING = {"(": ")", "{": "}"}
_TENSOR = r"((?:\w+(?:\(\))?(?:\.|->))*\w+(?:\(\))?)"


def _end_of(text: str, begin: int) -> int:
    """Return the position behind the bracket that closes the one at ``begin``."""
    opening, closing, depth = text[begin], _CLOSING[text[begin]], 0
    for at in range(begin, len(text)):
        depth += (text[at] == opening) - (text[at] == closing)
        if depth == 0:
            return at + 1
    raise ValueError(f"no {closing} for {text[begin : begin + 40]!r}")


def _begin_of_name(text: str, end: int) -> int:
    """Return where the kernel name that ends at ``end`` begins: identifiers, ``::`` and template arguments."""
    at = end
    while True:
        if text[at - 1] == ">":
            depth = 0
            while True:
                at -= 1
                depth += (text[at] == ">") - (text[at] == "<")
                if depth == 0:
                    break
        elif text[at - 1].isalnum() or text[at - 1] in "_:":
            at -= 1
        else:
            return at


def rewrite_launches(text: str, file: str) -> str:
    """Rewrite the launches of a file as calls of the emulator."""
    while (at := text.find("<<<")) >= 0:
        name_end = len(text[:at].rstrip())
        name_begin = _begin_of_name(text, name_end)
        configured = text.index(">>>", at)
        opening = text.index("(", configured)
        if text[configured + 3 : opening].strip():
            raise ValueError(f"{file}: what follows <<<...>>> is not a list of arguments")
        end = _end_of(text, opening)
        name, between = text[name_begin:name_end], text[name_end:at]
        where = f"{file}:{text.count(chr(10), 0, at) + 1} {re.sub(r'<.*', '', name)}"
        call = f'::ndd_emulator::Launch("{where}", {text[at + 3 : configured]}).run([&] {{ {name}{between}{text[opening:end]}; }})'
        text = text[:name_begin] + call + text[end:]
    return text


def rewrite_shared(text: str, file: str) -> str:
    """Rewrite ``__shared__`` variables as references to memory of the block."""
    text = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", r"\1* const \2 = ::ndd_emulator::dynamic_shared<\1>();", text)

    def variables(found: re.Match[str]) -> str:
        kind, names = found.groups()
        results = []
        for value in names.split(","):
            name, bracket, extent = value.strip().partition("[")
            results.append(f"auto& {name} = ::ndd_emulator::shared<{kind}{bracket}{extent}>(__COUNTER__);")
        return " ".join(results)

    text = re.sub(r"__shared__ ([\w:<> ]+?) (\w+(?:\[[^;]*\])*(?:, \w+(?:\[[^;]*\])*)*);", variables, text)
    if "__shared__" in text:
        raise ValueError(f"{file}: a __shared__ variable is declared in a way that rewrite.py does not know")
    return text


def rewrite_kernels(text: str) -> str:
    """Add to every kernel an object that checks its ``__launch_bounds__`` and marks the start of device code."""
    at = 0
    while found := re.compile(r"(?:__global__ void)( __launch_bounds__)?").search(text, at):
        at, bounds = found.end(), ""
        if found.group(1):
            at = _end_of(text, found.end())
            bounds = text[found.end() + 1 : at - 1]
        end = _end_of(text, text.index("(", at))
        if text[end:].lstrip().startswith("{"):
            body = text.index("{", end) + 1
            text = f"{text[:body]} const ::ndd_emulator::Kernel kernel_{{{bounds}}};{text[body:]}"
    return text


def rewrite(text: str, file: str) -> str:
    """Return a file of CUDA code as C++."""
    text = rewrite_kernels(rewrite_shared(rewrite_launches(text, file), file))
    text = re.sub(rf"{_TENSOR}\.is_cuda\(\)", r"::ndd_emulator::on_device(\1)", text)
    if file == "ndd/cuda.h":
        text = text.replace("cuda_tensor(", "::ndd_emulator::device_memory(").replace("current_stream_of(", "::ndd_emulator::stream_of(")
    return text


def main(source: Path, target: Path) -> None:
    """Write only files that changed, so a build after an edit compiles only those."""
    results = {target / own: (HERE / name).read_text() for name, own in OWN.items()}
    for path in sorted(source.rglob("*")):
        if not path.is_file():
            continue
        file, text = path.relative_to(source).as_posix(), path.read_text()
        both = path.suffix == ".cpp" and "NDD_HOST_KERNELS(" in text
        if both or path.suffix in CUDA_SOURCES:
            text = rewrite(text, file)
        if both or path.suffix == ".cu":
            results[(target / file).with_suffix(".cu.cpp")] = f'#include "cuda_runtime.h"\n#line 1 "{path.resolve()}"\n{text}'
        else:
            results[target / file] = text
    results[target / "CMakeLists.txt"] += CMAKE
    for path in target.rglob("*"):
        if path.is_file() and path not in results:
            path.unlink()
    for path, text in results.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
