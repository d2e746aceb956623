#!/usr/bin/env bash
# Builds and runs the benchmarks of distributed training, and prints a table: bar, measured, met. About ten minutes; close
# everything else on the machine.
# Usage: scripts/bench_distributed.sh [options of benchmarks/distributed_bench.py, e.g. --only overlap,kill or --quick]
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

if [ ! -e build/release/CMakeCache.txt ]; then
  configure release -DMX_TESTS=OFF -DMX_BENCHMARKS=ON
fi
build release --target distributed_benchmarks

say "measuring; records go to build/release/distributed.jsonl"
exec python3 benchmarks/distributed_bench.py build/release "$@"
