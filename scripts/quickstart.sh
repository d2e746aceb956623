#!/usr/bin/env bash
# From a fresh clone to a result: installs what is missing, builds, and trains a network.
# Usage: scripts/quickstart.sh [options of train_mnist, e.g. --epochs 10 --rate 0.1]
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build

# Tests and benchmarks are left out unless the build folder already has them, to keep the first build short.
options=()
if [ ! -e build/release/CMakeCache.txt ]; then options=(-DMX_TESTS=OFF -DMX_BENCHMARKS=OFF); fi
configure release "${options[@]}"
build release --target hello_engine first_program hello_ndarray train_mnist mxrun

say "the 20-line program of the README"
build/release/examples/first_program

say "the engine alone: factorises a matrix, tile by tile"
build/release/examples/hello_engine --trace build/release/hello_engine.trace.json

say "arrays: what does not depend on each other runs at the same time"
build/release/examples/hello_ndarray --trace build/release/hello_ndarray.trace.json

say "the main job: a network learns to read handwritten digits"
build/release/examples/train_mnist --save build/release/mnist.safetensors --curve build/release/mnist_loss.svg \
  --trace build/release/train_mnist.trace.json "$@"
say "two processes, each with half of every batch; they end with the same weights as one process with --parts 2"
build/release/mxrun -n 2 build/release/examples/train_mnist --epochs 3 --save build/release/mnist_two.safetensors \
  --curve build/release/mnist_two_loss.svg

say "done; scripts/test.sh runs the tests, README.md says where to go next"
