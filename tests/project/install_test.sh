#!/usr/bin/env bash
# The installed tree is complete: an outside program builds against it, even after the tree has been moved.
# Usage: install_test.sh BUILD_DIR SOURCE_DIR WORK_DIR [options of the outside configure step...]
set -euo pipefail
build=$1 source=$2 work=$(realpath -m -- "$3")
shift 3

rm -rf -- "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"

# Move the tree, so that a path of the build or of the first prefix is detected.
mv "$work/first" "$work/prefix"
if grep -rlF -e "$build" -e "$source" -e "$work/first" "$work/prefix" --include='*.cmake'; then
  echo "FAIL: these installed files name the folders of this build" >&2
  exit 1
fi
for header in mx/mx.h mx/engine.h engine/engine.h engine/base/error.h engine/device/device.h ndarray/ndarray.h \
  operators/operator.h; do
  [ -f "$work/prefix/include/mxrun/$header" ] || { echo "FAIL: $header is not installed" >&2 && exit 1; }
done

cmake -S "$source/tests/project/outside" -B "$work/outside" "-DCMAKE_PREFIX_PATH=$work/prefix" "$@"
cmake --build "$work/outside"
"$work/outside/outside"
"$work/outside/outside_all"
(cd "$work/outside" && ./outside_custom)
# The module for MPI, if it was built, is found without any variable, although the program lies elsewhere.
# Sanitizers take the place of dlopen(), so that the run path of the program does not count there.
if [ -n "$(find "$work/prefix" -name libmx_comm_mpi.so)" ] && ! grep -q 'fsanitize=' <<<"$*"; then
  env -u MX_MODULE_PATH "$work/outside/outside_modules" mpi
fi
