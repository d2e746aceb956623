#!/usr/bin/env bash
# A bundled program contains everything it needs: it runs from a moved folder with an empty environment, and every
# library that is not the system's is found inside the bundle.
# Usage: bundle_test.sh SOURCE_DIR WORK_DIR PROGRAM [arguments...]
set -euo pipefail
source=$1 work=$(realpath -m -- "$2") program=$3
shift 3
fail() { echo "FAIL: $*" >&2 && exit 1; }

rm -rf -- "$work"
mkdir -p "$work"
"$source/scripts/gpu_bundle.sh" --program "$program" --out "$work/first"
mv "$work/first" "$work/moved"
bundled=$work/moved/bin/$(basename "$program")

libraries=$(cd / && env -i "$(command -v ldd)" "$bundled")
echo "$libraries"
if grep -q 'not found' <<<"$libraries"; then fail "a library is missing"; fi
strangers=$(awk '$2 == "=>" { print $1, $3 }' <<<"$libraries" | grep -vF "$work/moved/" |
  grep -vE '^(libc|libm|libpthread|libdl|librt|ld-linux[^ ]*|linux-vdso)\.so' || true)
[ -z "$strangers" ] || fail "these come from the machine, not from the bundle: $strangers"
grep -q 'libtbb\.so' <<<"$libraries" || fail "the program should link oneTBB; the test proves nothing without it"

(cd / && env -i "$bundled" "$@") || fail "the program does not run with an empty environment"
(cd / && env -i "$work/moved/run.sh" "$(basename "$program")" "$@") || fail "run.sh does not run the program"
if (cd / && env -i "$work/moved/run.sh" no_such_program) 2>/dev/null; then fail "run.sh accepts any name"; fi

# A folder that is not a bundle must not be replaced.
mkdir "$work/precious"
if "$source/scripts/gpu_bundle.sh" --program "$program" --out "$work/precious" 2>/dev/null; then
  fail "it replaced a folder that is not a bundle"
fi
if "$source/scripts/gpu_bundle.sh" --program "$work/none" --out "$work/none_out" 2>/dev/null; then
  fail "it packed a program that does not exist"
fi
echo "the bundle is complete"
