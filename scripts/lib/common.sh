# shellcheck shell=bash
# Shared by the scripts: finds the root of the tree, prints messages, installs missing packages.
# Source it; it changes to the root of the tree.
set -euo pipefail

MX_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$MX_ROOT"

say() { printf '== %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Prints how many jobs of 1.5 GB the free memory has room for, at least one.
jobs_by_memory() {
  local memory_kb
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  echo $((memory_kb < 3000000 ? 1 : memory_kb / 1500000))
}

# Prints the number of compile jobs: one per processor, and at most one per 1.5 GB of free memory. Otherwise large
# translation units on a small machine would end in the out-of-memory killer.
build_jobs() {
  local jobs
  jobs=$(jobs_by_memory)
  echo $(($(nproc) < jobs ? $(nproc) : jobs))
}

# test_jobs PRESET: prints the number of tests that run at the same time, at most one per 1.5 GB of free memory. Two per
# processor, because most wait for threads, processes or time limits more than they compute; with sanitizers, which make
# programs compute several times as long, three per two processors.
test_jobs() {
  local jobs by_memory
  jobs=$((2 * $(nproc)))
  if [ "$1" = asan ] || [ "$1" = tsan ]; then jobs=$(((3 * $(nproc) + 1) / 2)); fi
  by_memory=$(jobs_by_memory)
  echo $((jobs < by_memory ? jobs : by_memory))
}

# packages_for data|build|test|ci: prints packages, one per line: name, how to check that it is installed, purpose. The
# check is a command, or several of which one is enough, or "@" for "ask dpkg". "test" includes "build" and "data", "ci"
# includes "test". The names are the same on Debian 12, Debian 13 and Ubuntu 24.04.
packages_for() {
  if [ "$1" != data ]; then
    cat <<'LIST'
cmake|cmake|configures the build (3.24 or newer)
ninja-build|ninja|runs the build
g++|g++|compiles C++20
ccache|ccache|makes repeated builds fast
libtbb-dev|@|oneTBB, hosts the engine's workers
libcli11-dev|@|command-line options of the examples
libhwy-dev|@|vector kernels with run-time dispatch
liblapack-dev|@|LAPACK, singular values and eigenvalues
zlib1g-dev|@|compression and checksums of .npz files
nlohmann-json3-dev|@|JSON of safetensors files and vocabularies
libjpeg-dev|@|JPEG images of data sets
libpng-dev|@|PNG images of data sets
libboost1.81-dev/libboost-dev|@|Boost.Asio, the network of distributed jobs
libssl-dev|@|OpenSSL, authenticates and encrypts the connections of a job
LIST
  fi
  if [ "$1" = build ]; then return; fi
  cat <<'LIST'
curl|curl,wget|fetches data sets
ca-certificates|@|tells whether a server of data sets is the right one
LIST
  if [ "$1" = data ]; then return; fi
  cat <<'LIST'
libgtest-dev|@|GoogleTest, the test framework
libgmock-dev|@|GoogleTest's matchers
python3|python3|checks the layers
python3-numpy|@|reads and writes the files that interchange tests exchange
openssl|openssl|makes certificates for tests
patchelf|patchelf|makes bundled programs relocatable
binutils|readelf|reads what a program links to
LIST
  if [ "$1" = test ]; then return; fi
  cat <<'LIST'
git|git|lists the sources to check
clang-format-14|clang-format-14|checks the formatting
clang-16|clang++-16|compiles once more, with other warnings
lld|ld.lld|links programs with sanitizers in a quarter of the time
mmdebstrap|mmdebstrap|makes bare systems to build in
libopenmpi-dev|@|the module for MPI is built
openmpi-bin|mpirun|starts the tests of MPI and of the launcher mpi
iproute2|ip|makes the network namespaces that stand for hosts
slurm-wlm|slurmctld,srun|the cluster of a test
munge|munged|who is who on that cluster
libpmix2|@|how processes of srun --mpi=pmix find each other
LIST
}

# grep reads all: with -q it would end early, and apt-cache, cut off, would make the pipe fail.
knows_package() { apt-cache show --no-all-versions "$1" 2>/dev/null | grep '^Package:' >/dev/null; }

is_there() {
  local package=$1 test=$2 command commands name names
  if [ "$test" != @ ]; then
    IFS=, read -r -a commands <<<"$test"
    for command in "${commands[@]}"; do
      if command -v "$command" >/dev/null 2>&1; then return 0; fi
    done
    return 1
  elif command -v dpkg-query >/dev/null 2>&1; then
    IFS=/ read -r -a names <<<"$package"
    for name in "${names[@]}"; do
      if [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ]; then
        # A later name may be installed where the first one is needed, in an older version.
        [ "$name" = "${names[0]}" ] || ! knows_package "${names[0]}" || continue
        return 0
      fi
    done
    return 1
  else
    return 0 # not a Debian: the configure step finds out what is missing and reports it
  fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    die "this needs root to run '$*', and there is no sudo; run it as root once, then start again"
  fi
}

# install_packages data|build|test|ci: installs the missing packages for that purpose; prints nothing if none
# is missing.
install_packages() {
  local level=$1 package test why
  local missing=()
  while IFS='|' read -r package test why; do
    if ! is_there "$package" "$test"; then
      if [ ${#missing[@]} = 0 ]; then say "installing from the distribution's packages:"; fi
      printf '   %-16s %s\n' "$package" "$why"
      missing+=("$package")
    fi
  done < <(packages_for "$level")
  if [ ${#missing[@]} = 0 ]; then return 0; fi
  if ! command -v apt-get >/dev/null 2>&1; then
    die "no apt-get here; install the equivalents of: ${missing[*]}"
  fi
  as_root apt-get update -q
  local i
  for i in "${!missing[@]}"; do
    package=${missing[$i]}
    if [ "$package" != "${package%%/*}" ]; then
      if knows_package "${package%%/*}"; then missing[i]=${package%%/*}; else missing[i]=${package#*/}; fi
    fi
  done
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# configure PRESET [CMake options...]: adds the options in MX_CMAKE_OPTIONS, which are separated by spaces.
configure() {
  local preset=$1 first=() more
  shift
  # The first build in a folder compiles every source; several sources at a time then take two thirds of the time. The
  # preset dev is for changes, after which a build with MX_UNITY would compile more than it has to.
  if [ "$preset" != dev ] && [ ! -e "build/$preset/CMakeCache.txt" ]; then first=(-DMX_UNITY=ON); fi
  read -r -a more <<<"${MX_CMAKE_OPTIONS-}"
  say "configuring build/$preset"
  cmake --preset "$preset" "${first[@]}" "$@" "${more[@]}"
}

# build PRESET [ninja options or targets...]
build() {
  local preset=$1 jobs
  shift
  jobs=$(build_jobs)
  say "building build/$preset with $jobs jobs"
  cmake --build "build/$preset" --parallel "$jobs" "$@"
}
