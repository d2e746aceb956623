#!/usr/bin/env bash
# Runs the programs of this bundle, from any folder, on a machine with nothing else installed.
#
#   run.sh tests|benchmarks|all [OUT]   logs, and benchmarks.jsonl, go to OUT (default ./bundle-results)
#   run.sh NAME [arguments...]          one program of bin/, tests/ or benchmarks/
#
# Exit status 0 if every test program passed and every benchmark succeeded. Tests that find no GPU skip
# themselves; the table counts them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shopt -s nullglob

usage() {
  sed -n '4,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  echo "programs here:"
  for program in "$here"/{bin,tests,benchmarks}/*; do echo "  ${program#"$here"/}"; done
}

bad=0

# Prints the number of lines of file $2 that begin with the text $1.
count() { awk -v text="$1" 'index($0, text) == 1 { n++ } END { print n + 0 }' "$2"; }

run_tests() {
  local program name log result
  for program in "$here"/tests/*; do
    name=${program##*/}
    log=$out/$name.log
    result=PASS
    if ! "$program" --gtest_color=no "--gtest_output=json:$out/$name.json" >"$log" 2>&1 </dev/null; then
      result=FAIL
      bad=$((bad + 1))
    fi
    # GoogleTest repeats skipped and failed tests in its summary; only the lines of the run have a time.
    printf '%-5s %-28s %4d passed, %d failed, %d skipped\n' "$result" "$name" \
      "$(awk '/^\[       OK \]/ { n++ } END { print n + 0 }' "$log")" \
      "$(awk '/^\[  FAILED  \].*ms\)$/ { n++ } END { print n + 0 }' "$log")" \
      "$(awk '/^\[  SKIPPED \].*ms\)$/ { n++ } END { print n + 0 }' "$log")"
    if [ "$result" = FAIL ]; then awk '{ line[NR] = $0 } END { for (i = NR > 30 ? NR - 29 : 1; i <= NR; i++) print "    " line[i] }' "$log"; fi
  done
}

run_benchmarks() {
  local program name log
  : >"$out/benchmarks.jsonl"
  for program in "$here"/benchmarks/*; do
    name=${program##*/}
    log=$out/$name.log
    if "$program" >"$log" 2>&1 </dev/null; then
      printf 'DONE  %-28s %4d results\n' "$name" "$(count '{' "$log")"
    else
      printf 'FAIL  %-28s see %s\n' "$name" "$log"
      bad=$((bad + 1))
    fi
    awk '/^\{/' "$log" >>"$out/benchmarks.jsonl"
  done
}

case "${1-}" in
  "" | -h | --help)
    usage
    exit 0
    ;;
  tests | benchmarks | all)
    out=${2:-bundle-results}
    mkdir -p "$out"
    if [ "$1" != benchmarks ]; then run_tests; fi
    if [ "$1" != tests ]; then run_benchmarks; fi
    if [ "$bad" != 0 ]; then
      echo "$bad programs failed"
      exit 1
    fi
    echo "all programs ended well; results in $out"
    ;;
  *)
    for program in "$here"/{bin,tests,benchmarks}/"$1"; do
      if [ -x "$program" ]; then
        shift
        exec "$program" "$@"
      fi
    done
    echo "no program '$1' in this bundle" >&2
    usage >&2
    exit 2
    ;;
esac
