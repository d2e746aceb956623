#!/usr/bin/env bash
# Compiles every CUDA source of the libraries to PTX for an architecture that the build does not have: a build for 90 does
# not show that a kernel uses what 80 lacks. No machine code is made: all of them take about 100 seconds of one processor.
#
#   scripts/cuda_ptx.sh [--preset NAME] [ARCHITECTURE [SOURCE...]]     default: release, 80, all sources of kernels
#
# Needs a configured build folder, for the headers that it generates. Exit status 1 if a source does not compile.
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

preset=release
if [ "${1-}" = --preset ]; then
  [ $# -ge 2 ] || die "--preset needs a value"
  preset=$2
  shift 2
fi
if [ "${1-}" = -h ] || [ "${1-}" = --help ]; then
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi
architecture=${1-80}
shift || true
generated=build/$preset/generated
[ -d "$generated" ] || die "$generated is missing; configure the $preset preset first"
nvcc=$(command -v nvcc || sed -n 's/^CMAKE_CUDA_COMPILER:[^=]*=//p' "build/$preset/CMakeCache.txt")
[ -x "$nvcc" ] || die "nvcc is missing; install the CUDA toolkit"
if [ $# -gt 0 ]; then sources=("$@"); else mapfile -t sources < <(git ls-files '*/cuda/*.cu' ':!tests' ':!benchmarks'); fi
logs=$(mktemp -d)
trap 'rm -rf -- "$logs"' EXIT

# The options are those of mx_cuda_kernels() in cmake/MxTargets.cmake.
compile() {
  local log=$logs/${1//\//_}
  if ! "$nvcc" --ptx -arch="compute_$architecture" -std=c++20 --expt-relaxed-constexpr -diag-suppress=1835,20050 \
    --Werror all-warnings -I. -I"$generated" "$1" -o /dev/null >"$log" 2>&1; then
    printf '%s does not compile for %s without warnings:\n' "$1" "$architecture"
    head -n 20 "$log"
    return 1
  fi
}
export -f compile
export nvcc architecture generated logs
# shellcheck disable=SC2016  # the inner shell expands it
printf '%s\n' "${sources[@]}" | xargs -P "$(build_jobs)" -I{} bash -c 'compile "$1"' _ {} ||
  die "not all of the ${#sources[@]} sources compile for $architecture"
say "${#sources[@]} sources compile to PTX for compute capability ${architecture%?}.${architecture: -1}"
