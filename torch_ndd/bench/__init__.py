# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of torch_ndd against the libraries that do the same work and are installed.

``python -m torch_ndd.bench main`` measures JPEG files -> training batches, ``python -m torch_ndd.bench ops`` every
operator, ``python -m torch_ndd.bench readers`` the readers and the image decoder alone. ``pip install
torch_ndd[bench]`` brings what the benchmark itself needs; DALI, OpenCV and torchvision take part when they are
installed.

How it measures: every competitor has a process of its own; within one run they take turns, a short round each, so that
a busy machine slows all of them alike; a figure is the median over the rounds, a ratio is the median of the ratios of
the same round.
"""
