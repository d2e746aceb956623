#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test.
# Usage: scripts/test.sh [--preset NAME] [options of ctest, e.g. -R Engine]
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

preset=release
case "${1-}" in
  --preset)
    preset=${2:?--preset needs a name: dev, release, asan, tsan, cuda or nocuda}
    shift 2
    ;;
  -h | --help)
    sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

install_packages test
configure "$preset" -DMX_TESTS=ON -DMX_BENCHMARKS=ON -DMX_EXAMPLES=ON
build "$preset"
say "testing build/$preset"
ctest --preset "$preset" --parallel "$(test_jobs "$preset")" "$@"
