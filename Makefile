# `make demo` and `make test` are each enough on a fresh machine: they make a virtual environment, install everything and run.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One build folder for `make demo`, `make test`, pip and `ninja -C build/dev` by hand: what is compiled stays compiled. The library lies in torch_ndd/.
BUILD := build/dev
# Processes that run tests. The whole suite takes 2 to 4 GB in each, a quarter of it for the 40,000 tests that are collected; a few files take 1 GB.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
# DALI is the reference of the parity tests. It has no wheel for every Python.
EXTRAS ?= $(shell $(PYTHON) -c "import sys; print('test,dali' if sys.version_info < (3, 14) else 'test')")
# CUDA kernels compile for 390 CPU seconds, by families, as in CI, for 280; everything else for 150. Without a GPU only CI and `make whole` compile them;
# `make emulated-cuda` runs them.
NVCC := $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
# An editable install, built with the packages of the virtual environment: pip's isolated one has another path each time, so everything is
# compiled again. pip configures; `ninja` in the rules below finds out what has changed since.
# pip compiles no modules of Python: that takes 65 CPU seconds in one process, and a third of them is imported.
# Vector loops are compiled for this machine only: the CPU kernels take 147 CPU seconds instead of 176. `make asan` and the wheel have all.
INSTALL := $(BIN)/python -m pip install --no-build-isolation -Cbuild-dir=$(BUILD) -Ccmake.define.TORCH_NDD_SIMD=native
PYRIGHT := $(BIN)/pyright --pythonpath $(BIN)/python
CMAKE := $(BIN)/cmake -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython3_EXECUTABLE=$(abspath $(BIN))/python

# Container images set it. The tests start hundreds of processes, each of which would compile the modules of torch_ndd again, in 0.5 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test whole build lint style types docs wheel bench asan fuzz fuzz-kernels emulated-cuda clean

demo: $(VENV)/demo.stamp build
	$(BIN)/python examples/demo.py

# Slow tests are half of the suite's time and a fiftieth of its tests. CI and `make whole` run them, and so does pytest by hand.
QUICK := $(if $(CI)$(TORCH_NDD_WHOLE),,-m "not slow")

# Types are checked beside the tests, which wait for processes and timers a fifth of the time, and are reported at the end.
test: $(VENV)/test.stamp build style
	@$(PYRIGHT) > $(BUILD)/types.log 2>&1 & checking=$$!; \
	  $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(QUICK) $(PYTEST_ARGS); tested=$$?; \
	  wait $$checking; checked=$$?; cat $(BUILD)/types.log; exit $$((tested ? tested : checked))

# The same with the slow tests, all cases through torch.compile and all damaged files, of which `make test` takes a part (tests/conftest.py), and with
# CUDA kernels where there is nvcc, also if `make test` has configured the build without them.
whole:
	$(if $(NVCC),test ! -f $(BUILD)/build.ninja || $(BIN)/cmake -DTORCH_NDD_CUDA=ON $(BUILD))
	TORCH_NDD_WHOLE=1 $(MAKE) test

build: | $(VENV)/build.stamp
	@if [ -f $(BUILD)/build.ninja ]; then $(BIN)/ninja -C $(BUILD); fi

lint: style types

style: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check torch_ndd benchmarks docs tests examples
	$(BIN)/codespell .ci .github benchmarks csrc docs examples tests torch_ndd *.md Makefile pyproject.toml
	find csrc -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' | xargs $(BIN)/clang-format --dry-run -Werror

types: $(VENV)/test.stamp
	$(PYRIGHT)

# The site, in build/docs/index.html. Nothing is downloaded; warnings are errors.
docs: $(VENV)/docs.stamp build
	$(BIN)/python -m sphinx -W --keep-going -b html -d build/doctrees docs build/docs

# One wheel for every Python and every torch from 2.11 on, in dist/, tagged for the oldest glibc that it runs on, and tried in fresh environments.
wheel: $(VENV)/test.stamp
	$(BIN)/python .ci/wheel.py $(WHEEL_ARGS)

bench: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks main
	$(BIN)/python -m benchmarks ops

# The tests with a library that reports bad accesses to memory and undefined arithmetic: a short selection, or `make asan TESTS="tests/ops -k resize"`.
# TORCH_NDD_LIBRARY is loaded in place of the one beside the Python files. Leaks are not looked for: Python and torch have their own. Undefined arithmetic
# ends the process: beside the other sanitizer, that of undefined behavior writes to stderr whatever its log_path says, which pytest hides.
# Without optimization the library takes 234 CPU seconds instead of some 430 with -O1, the tests 81; and destructors that are inlined elsewhere are called,
# which showed two types with one name.
TESTS ?= $(addprefix tests/,core/context/test_threads.py core/context/test_context.py test_operators.py::test_equals_its_reference \
  test_bad_input.py::test_every_type_of_elements test_bad_input.py::test_images_without_pixels)
SANITIZER := $(abspath build/asan)
$(SANITIZER)/build.ninja: $(VENV)/test.stamp
	test -f $@ || $(CMAKE) -S csrc -B $(SANITIZER) -DTORCH_NDD_CUDA=OFF -DCMAKE_BUILD_TYPE=Sanitizer \
	  -DCMAKE_CXX_FLAGS="-O0 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined"
# What a command runs with.
SANITIZED = env -u CI TORCH_NDD_LIBRARY=$(SANITIZER)/_C.so \
  LD_PRELOAD="$$(for name in asan ubsan stdc++; do printf '%s ' $$($(or $(CXX),g++) -print-file-name=lib$$name.so); done)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=8000:log_path=$(SANITIZER)/report \
  UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
asan: $(SANITIZER)/build.ninja
	$(BIN)/ninja -C $(SANITIZER)
	rm -f $(SANITIZER)/report*
	$(SANITIZED) NDD_THREAD_BATCHES=$${NDD_THREAD_BATCHES:-20} \
	  $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --timeout 900 $(TESTS); status=$$?; \
	  if grep -lsE 'ERROR:|runtime error:' $(SANITIZER)/report*; then cat $(SANITIZER)/report*; exit 1; fi; exit $$status

# Damaged files by the ten thousand, in processes that may die, with checks of the heap (tests/fuzz): an hour of a core. Files of DALI_EXTRA_PATH are
# damaged too where it is set. A selection: `make fuzz FUZZ=images FUZZ_ARGS="--formats tiff --mutated 20000 --seed 2"`.
FUZZ ?= images media containers folders tiles gpu_headers
fuzz: $(VENV)/test.stamp build
	for name in $(FUZZ); do $(BIN)/python tests/fuzz/$$name.py --out build/fuzz/$$name $(FUZZ_ARGS) || exit 1; done

# Kernels called through torch.ops with arguments that Python never passes, in the library of `make asan`: half an hour of a core, or
# `make fuzz-kernels FUZZ_ARGS="--only resize"`.
fuzz-kernels: $(SANITIZER)/build.ninja
	$(BIN)/ninja -C $(SANITIZER)
	rm -f $(SANITIZER)/report*
	$(SANITIZED) $(BIN)/python tests/fuzz/kernels.py --out build/fuzz/kernels $(FUZZ_ARGS)

# The CUDA kernels, compiled for the CPU over an emulator that checks each access to memory (tests/emulated_cuda): no GPU and no nvcc are needed. A
# selection again, or `make emulated-cuda EMULATED_TESTS="ops/test_reductions.py"`. Two cores build for 6 minutes the first time; the kernels of the
# cases take 3 minutes, all properties some 6 more. Tests of work that is still pending fail there: kernels run at the call, as launches do.
# Behind them the decoders of device="gpu", over streams that are late, in half a minute; and calls that run ahead, on a device with such streams under
# torch: NDD_PROGRAMS=10000 runs as many random programs.
EMULATED_TESTS ?= $(addprefix tests/,emulated_cuda/cpu_equals_cuda.py emulated_cuda/color_steps.py emulated_cuda/kernel_variants.py emulated_cuda/tile_shapes.py \
  emulated_cuda/unusual_arguments.py emulated_cuda/random_calls.py test_operators.py::test_equals_its_reference \
  test_operators.py::test_batch_equals_its_samples_one_by_one augment/test_byte_steps.py decoders/test_yuv.py)
DECODER_TESTS := $(addprefix tests/decoders/test_,gpu.py gpu_engines.py gpu_jpeg2000.py gpu_dali_files.py errors.py images.py image_windows.py image_types.py) tests/core/test_table_uploads.py
EMULATED := $(abspath build/emulated_cuda)
emulated-cuda: $(VENV)/test.stamp
	$(BIN)/python tests/emulated_cuda/rewrite.py csrc $(EMULATED)/csrc
	test -f $(EMULATED)/build/build.ninja || $(CMAKE) -S $(EMULATED)/csrc -B $(EMULATED)/build -DTORCH_NDD_CUDA=OFF -DTORCH_NDD_SIMD=native
	$(BIN)/ninja -C $(EMULATED)/build
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python tests/emulated_cuda/decoders.py $(EMULATED)/build $(EMULATED)/decoders
	TORCH_NDD_WHOLE=1 PYTHONPATH=tests/emulated_cuda TORCH_NDD_LIBRARY=$(EMULATED)/build/_C.so \
	  $(BIN)/python -m pytest -p emulated_plugin -n $(JOBS) --dist worksteal $(EMULATED_TESTS)
	PYTHONPATH=tests/emulated_cuda TORCH_NDD_LIBRARY=$(EMULATED)/decoders/_C.so NDD_EMULATED_DECODERS=1 \
	  $(BIN)/python -m pytest -p decoders_plugin $(DECODER_TESTS)
	test -f $(EMULATED)/cpu/build.ninja || $(CMAKE) -S csrc -B $(EMULATED)/cpu -DTORCH_NDD_CUDA=OFF -DTORCH_NDD_SIMD=native
	$(BIN)/ninja -C $(EMULATED)/cpu && mkdir -p $(EMULATED)/late
	environment=$$(PATH=$(abspath $(BIN)):$$PATH $(BIN)/python tests/emulated_cuda/late.py $(EMULATED)/cpu $(EMULATED)/late) && \
	  env $$environment $(BIN)/python -m pytest $(addprefix tests/emulated_cuda/,random_programs.py running_ahead.py uploads_ahead.py videos.py)

$(VENV)/build.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=26.3"  # for --only-deps
	$(BIN)/python -m pip install --no-compile --group build
	touch $@

# The library compiles while pip brings the packages of the extras: pip keeps one core busy for a minute, and waits for the network.
define INSTALLED_WITH
	$(INSTALL) $(2) --no-deps --editable . & compiling=$$!; \
	  $(BIN)/python -m pip install --no-compile --no-build-isolation --only-deps ".[$(1)]"; brought=$$?; \
	  wait $$compiling && exit $$brought
	touch $@
endef

# Where there is no GPU, the demo does without CUDA kernels, which take most of the time to compile (csrc/cuda/wanted.cmake).
$(VENV)/demo.stamp: $(VENV)/build.stamp
	$(call INSTALLED_WITH,demo)

# The library that the demo or the tests have built is not built again, with or without CUDA kernels.
define PACKAGES_FOR
	$(BIN)/python -m pip install --no-compile --no-build-isolation --only-deps ".[$(1)]"
	touch $@
endef
$(VENV)/docs.stamp: $(VENV)/build.stamp
	$(if $(wildcard torch_ndd/_C.so),$(call PACKAGES_FOR,docs),$(call INSTALLED_WITH,docs))

$(VENV)/test.stamp: $(VENV)/build.stamp
	$(call INSTALLED_WITH,$(EXTRAS),$(if $(and $(NVCC),$(CI)$(TORCH_NDD_WHOLE)),-Ccmake.define.TORCH_NDD_CUDA=ON) $(if $(CI),-Ccmake.define.TORCH_NDD_UNITY=ON))

clean:
	rm -rf $(VENV) build dist torch_ndd/_C.so
