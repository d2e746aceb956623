#!/usr/bin/env bash
# run.sh of a bundle reports the results of its programs. Usage: bundle_run_test.sh SOURCE_DIR WORK_DIR
set -euo pipefail
source=$1 work=$(realpath -m -- "$2")
fail() { echo "FAIL: $*" >&2 && exit 1; }

rm -rf -- "$work"
mkdir -p "$work"/{tests,benchmarks}
cp "$source/scripts/lib/bundle_run.sh" "$work/run.sh"
program() { printf '#!/bin/sh\n%s\n' "$2" >"$work/$1" && chmod +x "$work/$1"; }
program tests/good_test "echo '[       OK ] A.b (0 ms)'; echo '[  SKIPPED ] A.c (0 ms)'; echo '[  SKIPPED ] A.c'"
program benchmarks/rate 'echo "about to start"; echo "{\"name\": \"push\", \"value\": 1}"'

cd "$work"
bash run.sh all out >all.log || fail "all programs are good, and yet: $(cat all.log)"
grep -Eq '^PASS +good_test +1 passed, 0 failed, 1 skipped' all.log || fail "table: $(cat all.log)"
[ "$(cat out/benchmarks.jsonl)" = '{"name": "push", "value": 1}' ] || fail "benchmarks.jsonl: $(cat out/benchmarks.jsonl)"

program tests/bad_test "echo '[  FAILED  ] A.d (0 ms)'; echo '[  FAILED  ] A.d'; exit 1"
if bash run.sh tests out >bad.log; then fail "a failing test goes unnoticed"; fi
grep -Eq '^FAIL +bad_test +0 passed, 1 failed' bad.log || fail "table: $(cat bad.log)"

rm tests/bad_test
program benchmarks/crash 'echo "{\"name\": \"before\"}"; kill -SEGV $$'
if bash run.sh benchmarks out >crash.log 2>&1; then fail "a crashing benchmark goes unnoticed"; fi
grep -q '^FAIL *crash' crash.log || fail "table: $(cat crash.log)"
echo "run.sh reports truthfully"
