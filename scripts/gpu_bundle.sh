#!/usr/bin/env bash
# Packs programs with every shared library that a minimal machine lacks into one folder that runs from anywhere,
# also on another distribution if its C library is not older than this machine's.
#
#   scripts/gpu_bundle.sh [--preset NAME] [--no-build] [--out DIR]   the tests and benchmarks
#   scripts/gpu_bundle.sh --program PATH... --out DIR                programs of your own
#
#   --preset NAME   which build to pack (default release; CUDA is in it when the toolkit was found)
#   --no-build      pack what is built already
#   --out DIR       where to (default build/bundle); replaced when it is a bundle already
#
# The folder contains run.sh, lib/, tests/ and benchmarks/ or bin/, and MANIFEST. The programs find lib/ by a path
# relative to themselves. Not packed: the C library, which belongs to the system, and libcuda.so.1, which belongs
# to the driver.
caller=$PWD
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

preset=release
out=
make=1
programs=()
while [ $# -gt 0 ]; do
  case "$1" in
    --preset | --out | --program)
      [ $# -ge 2 ] || die "$1 needs a value"
      case "$1" in
        --preset) preset=$2 ;;
        --out) out=$(cd "$caller" && realpath -m -- "$2") ;;
        --program) programs+=("$(cd "$caller" && realpath -m -- "$2")") ;;
      esac
      shift 2
      ;;
    --no-build) make=0 && shift ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) die "unknown option '$1'; --help lists them" ;;
  esac
done
if [ -z "$out" ]; then
  [ ${#programs[@]} = 0 ] || die "--program needs --out DIR"
  out=$MX_ROOT/build/bundle
fi
for program in "${programs[@]}"; do
  [ -f "$program" ] || die "there is no program $program"
done
for tool in patchelf readelf ldd strip; do
  command -v "$tool" >/dev/null || die "$tool is missing; scripts/test.sh installs it"
done
if [ -e "$out" ] && [ ! -e "$out/MANIFEST" ]; then
  die "$out exists and is not a bundle; name a new folder"
fi

# One "folder path" per program. The user's programs are arguments; ours are listed by the build.
listing=()
if [ ${#programs[@]} -gt 0 ]; then
  for program in "${programs[@]}"; do listing+=("bin $program"); done
else
  if [ "$make" = 1 ]; then
    configure "$preset" -DMX_TESTS=ON -DMX_BENCHMARKS=ON
    build "$preset"
  fi
  list=build/$preset/programs.txt
  [ -s "$list" ] || die "$list is missing or empty; build the $preset preset with its tests first"
  mapfile -t listing <"$list"
fi

is_of_system() {
  case "$1" in
    ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | \
      libutil.so.* | libanl.so.* | linux-vdso.so.* | libcuda.so.1 | libnvidia-*) return 0 ;;
  esac
  return 1
}

# Prints the libraries that the loader finds for $1, transitively, as "soname path".
closure() {
  local missing
  missing=$(ldd "$1" | awk '$3 == "not" { print $1 }' | grep -v '^libcuda\.so\.1$' || true)
  [ -z "$missing" ] || die "$1 needs ${missing//$'\n'/, }, which this machine does not have either"
  ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }'
}

# Prints the libraries that a library opens by name at run time, which the loader therefore does not list.
opened_at_run_time() {
  local folder version
  folder=$(dirname "$2")
  version=${1##*.so.}
  case "$1" in
    libcudnn.so.*) ls "$folder"/libcudnn_*.so."$version" 2>/dev/null ;;
    libnvrtc.so.*) ls "$folder"/libnvrtc-builtins.so."$version"* 2>/dev/null ;;
  esac || true
}

add_library() {
  local soname=$1 path=$2 part
  if is_of_system "$soname" || [ -e "$out/lib/$soname" ]; then return 0; fi
  cp -L -- "$path" "$out/lib/$soname"
  chmod u+w "$out/lib/$soname"
  while read -r part; do
    add_library "$(basename "$part")" "$part"
    add_closure "$part"
  done < <(opened_at_run_time "$soname" "$path")
}

add_closure() {
  local soname path
  while read -r soname path; do add_library "$soname" "$path"; done < <(closure "$1")
}

say "packing ${#listing[@]} programs into $out"
rm -rf -- "$out"
mkdir -p "$out/lib"
for entry in "${listing[@]}"; do
  kind=${entry%% *}
  path=${entry#* }
  [ -f "$path" ] || die "$path does not exist; is it built?"
  readelf -h "$path" >/dev/null 2>&1 || die "$path is not a program (an ELF file)"
  mkdir -p "$out/$kind"
  target=$out/$kind/$(basename "$path")
  [ ! -e "$target" ] || die "two programs are called $(basename "$path")"
  closure "$path" >/dev/null
  add_closure "$path"
  cp -L -- "$path" "$target"
  chmod u+wx "$target"
  strip "$target"
  # DT_RPATH, not DT_RUNPATH: it also applies to the dependencies of libraries, and is searched before LD_LIBRARY_PATH, so
  # a stray module of the host cannot take precedence.
  # shellcheck disable=SC2016  # $ORIGIN is for the loader
  patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$target"
done

shopt -s nullglob
for library in "$out"/lib/*; do
  # NVIDIA's libraries find each other already, and may not be modified.
  case "$(basename "$library")" in
    libcudart.* | libcublas* | libcudnn* | libcufft* | libcurand* | libcusolver* | libcusparse* | libnv* | \
      libnccl*) continue ;;
  esac
  strip --strip-unneeded "$library"
  # shellcheck disable=SC2016
  patchelf --force-rpath --set-rpath '$ORIGIN' "$library"
done

# Every library must now be found without this machine's library folders in the search path.
for file in "$out"/{bin,tests,benchmarks,lib}/*; do
  while read -r soname; do
    if is_of_system "$soname" || [ -e "$out/lib/$soname" ]; then continue; fi
    die "$file needs $soname, which is not in the bundle"
  done < <(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
done

glibc=$(readelf -V "$out"/{bin,tests,benchmarks,lib}/* 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
{
  echo "mxrun bundle"
  echo "needs: Linux $(uname -m), C library ${glibc#GLIBC_} or newer; NVIDIA's driver for the parts that use a GPU"
  (cd "$out" && find . -mindepth 2 -type f -printf '%P %s bytes\n' | sort)
} >"$out/MANIFEST"
cp scripts/lib/bundle_run.sh "$out/run.sh"
chmod +x "$out/run.sh"
say "$(du -sh "$out" | cut -f1) in $out; needs C library ${glibc#GLIBC_}; start it with run.sh"
