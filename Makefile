# `make demo` and `make test` are each enough on a fresh machine: they make a virtual environment, install everything and run.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What a rebuild depends on; edits of Python files alone need none, because tests run on the installed package only after `pip install`.
SOURCES := pyproject.toml $(shell find csrc torch_ndd -type f -not -name '*.pyc' -not -name '*.so')
# Processes that run tests; each takes 1 to 2 GB.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
# DALI is the reference of the parity tests. It has no wheel for every Python.
EXTRAS ?= $(shell $(PYTHON) -c "import sys; print('test,dali' if sys.version_info < (3, 14) else 'test')")

.PHONY: demo test lint bench asan fuzz emulated-cuda clean

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/train_images.py

test: $(VENV)/test.stamp lint
	cd tests && ../$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check torch_ndd tests examples
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(VENV)/test.stamp
	$(BIN)/python -m torch_ndd.bench main
	$(BIN)/python -m torch_ndd.bench ops

# The tests with a library that reports bad accesses to memory and undefined arithmetic: a short selection, or `make asan TESTS="ops -k resize"`.
# PYTHONPATH puts that library before the installed one. Leaks are not looked for: Python and torch have their own. No nvcc: kernels for the CPU only.
TESTS ?= test_threads.py test_context.py test_operators.py::test_equals_its_reference test_bad_input.py::test_every_type_of_elements \
  test_bad_input.py::test_images_without_pixels
SANITIZER := $(abspath build/asan)
asan: $(SANITIZER)/torch_ndd.stamp
	rm -f $(SANITIZER)/report*
	libraries=$$(for name in asan ubsan stdc++; do $(or $(CXX),g++) -print-file-name=lib$$name.so; done) && cd tests && \
	  env -u CI PYTHONPATH=$(SANITIZER)/package LD_PRELOAD="$$(echo $$libraries)" NDD_THREAD_BATCHES=$${NDD_THREAD_BATCHES:-20} \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path=$(SANITIZER)/report UBSAN_OPTIONS=print_stacktrace=1:log_path=$(SANITIZER)/report \
	  $(abspath $(BIN))/python -m pytest -n $(JOBS) --dist worksteal --timeout 900 $(TESTS); status=$$?; \
	  if grep -lsE 'ERROR:|runtime error:' $(SANITIZER)/report*; then cat $(SANITIZER)/report*; exit 1; fi; exit $$status

$(SANITIZER)/torch_ndd.stamp: $(VENV)/test.stamp
	$(BIN)/python -m pip install --quiet cmake ninja
	TORCH_NDD_WITHOUT_CUDA=1 $(BIN)/cmake -S csrc -B $(SANITIZER) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Sanitizer \
	  -DCMAKE_CXX_FLAGS="-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined" -DPython3_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/ninja -C $(SANITIZER)
	rm -rf $(SANITIZER)/package
	mkdir -p $(SANITIZER)/package
	cp -r torch_ndd $(SANITIZER)/package/
	cp --remove-destination $(SANITIZER)/_C.so $(SANITIZER)/package/torch_ndd/_C.so
	touch $@

# Damaged images by the ten thousand, in processes that may die, with checks of the heap (tests/fuzz): half an hour of a core. Files of DALI_EXTRA_PATH
# are damaged too where it is set. Another selection: `make fuzz FUZZ="--formats tiff --mutated 20000 --seed 2"`.
FUZZ ?= --mutated 8000 --headers 3000
fuzz: $(VENV)/test.stamp
	$(BIN)/python tests/fuzz/images.py --out build/fuzz $(FUZZ)

# The CUDA kernels, compiled for the CPU over an emulator that checks each access to memory (tests/emulated_cuda): no GPU and no nvcc are needed. A
# selection again, or `make emulated-cuda EMULATED_TESTS="ops/test_reductions.py"`. Two cores build for 6 minutes the first time; the kernels of the
# cases take 3 minutes, all properties some 6 more. Tests of work that is still pending fail there: kernels run at the call, as launches do.
# Behind them the decoders of device="gpu", over streams that are late, in half a minute.
EMULATED_TESTS ?= emulated_cuda/cpu_equals_cuda.py test_operators.py::test_equals_its_reference test_operators.py::test_batch_equals_its_samples_one_by_one
DECODER_TESTS := test_gpu_decoders.py test_decoder_errors.py ops/test_decoders.py ops/test_image_windows.py ops/test_image_types.py
EMULATED := $(abspath build/emulated_cuda)
emulated-cuda: $(EMULATED)/torch_ndd.stamp
	cd tests && PYTHONPATH=$(EMULATED)/package:emulated_cuda $(abspath $(BIN))/python -m pytest -p emulated_plugin -n $(JOBS) --dist worksteal $(EMULATED_TESTS)
	cd tests && NDD_EMULATED_DECODERS=1 PYTHONPATH=$(EMULATED)/decoders:emulated_cuda $(abspath $(BIN))/python -m pytest -p decoders_plugin $(DECODER_TESTS)

$(EMULATED)/torch_ndd.stamp: $(VENV)/test.stamp $(wildcard tests/emulated_cuda/*)
	$(BIN)/python -m pip install --quiet cmake ninja
	$(BIN)/python tests/emulated_cuda/rewrite.py csrc $(EMULATED)/csrc
	TORCH_NDD_WITHOUT_CUDA=1 $(BIN)/cmake -S $(EMULATED)/csrc -B $(EMULATED)/build -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DPython3_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/ninja -C $(EMULATED)/build
	rm -rf $(EMULATED)/package
	mkdir -p $(EMULATED)/package
	cp -r torch_ndd $(EMULATED)/package/
	cp --remove-destination $(EMULATED)/build/_C.so $(EMULATED)/package/torch_ndd/_C.so
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python tests/emulated_cuda/decoders.py $(EMULATED)/build $(EMULATED)/decoders
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/demo.stamp: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install ".[demo]"
	touch $@

$(VENV)/test.stamp: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) build dist
