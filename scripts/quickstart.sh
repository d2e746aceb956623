#!/usr/bin/env bash
# From a fresh clone to a result: installs what is missing, builds, and runs a real job on the engine.
# Usage: scripts/quickstart.sh [options of hello_engine, e.g. --n 8192 --threads 4]
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build

# Tests and benchmarks are left out unless the build folder already has them: this is the short way.
options=()
if [ ! -e build/release/CMakeCache.txt ]; then options=(-DMX_TESTS=OFF -DMX_BENCHMARKS=OFF); fi
configure release "${options[@]}"
build release --target hello_engine first_program

say "the 20-line program of the README"
build/release/examples/first_program

say "the main job"
build/release/examples/hello_engine --trace build/release/hello_engine.trace.json "$@"
say "done; scripts/test.sh runs the tests, README.md says where to go next"
