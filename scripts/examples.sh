#!/usr/bin/env bash
# Builds the examples that learn from real data, trains each in full, and prints what each reached and must reach.
# Usage: scripts/examples.sh [NAME...]    default: all; the names are those of the table below
# Takes about half an hour on two processors. What the programs print is in build/release/examples_run/. The status is 1
# if an example misses its bar or fails.
case "${1-}" in
  -h | --help)
    sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

# name | program and options | what comes before a number in its output (the last match counts) | bar | further pairs
# of text and bar. ">= 0.9": at least; "<= 1.55": at most. "{}" is the folder of the run.
examples='
softmax_regression|mnist_regression --loss softmax|test accuracy: |>= 0.90
sigmoid_regression|mnist_regression --loss sigmoid|test accuracy: |>= 0.90
mlp|mnist_mlp|test accuracy: |>= 0.986
lenet|mnist_lenet|test accuracy: |>= 0.990
resnet_v1|mnist_resnet --block v1|test accuracy: |>= 0.993
resnet_v2|mnist_resnet --block v2|test accuracy: |>= 0.993
autoencoder|mnist_autoencoder|linear layer on the codes: |>= 0.95
gan|mnist_gan --picture {}/mnist_gan.png|rarest digit: |>= 0.02
char_lstm|char_lstm --save {}/char_lstm.safetensors|validation loss: |<= 1.55
char_gpt|char_gpt|validation loss: |<= 1.60
gcn|gcn_cora|mean test accuracy: |>= 0.81
moe_top1|moe_mnist --top-k 1|test accuracy: |>= 0.98|smallest share of an expert: |>= 0.02
moe_top2|moe_mnist --top-k 2|test accuracy: |>= 0.98|smallest share of an expert: |>= 0.02
seq2seq|seq2seq_addition|exact: |>= 0.99
'

# Returns whether the arguments of the script choose the name.
chosen() {
  local name
  [ "${#names[@]}" = 0 ] && return 0
  for name in "${names[@]}"; do [ "$name" != "$1" ] || return 0; done
  return 1
}

# The last number behind the text in the file.
last_number() { awk -v text="$1" '{ at = index($0, text) } at { split(substr($0, at + length(text)), word, /[ ,%]/); n = word[1] } END { print n }' "$2"; }

# met NUMBER SIGN LIMIT
met() { awk -v x="$1" -v sign="$2" -v bar="$3" 'BEGIN { exit !(x ~ /^-?[0-9.]+(e-?[0-9]+)?$/ && (sign == ">=" ? x + 0 >= bar + 0 : x + 0 <= bar + 0)) }'; }

names=("$@")
for name in "${names[@]}"; do
  case "$examples" in
    *$'\n'"$name|"*) ;;
    *) die "there is no example '$name'; there are:$(printf '%s' "$examples" | sed -n 's/|.*//p' | tr '\n' ' ' | sed 's/^/ /; s/ $//')" ;;
  esac
done

install_packages build
options=()
if [ ! -e build/release/CMakeCache.txt ]; then options=(-DMX_TESTS=OFF -DMX_BENCHMARKS=OFF); fi
configure release "${options[@]}"
known=$(cmake --build build/release --target help)

programs=() lines=()
while IFS='|' read -r name command checks; do
  if [ -z "$name" ] || ! chosen "$name"; then continue; fi
  program=${command%% *}
  case "$known" in
    *" $program"$'\n'* | *$'\n'"$program: "*) ;;
    *)
      [ "${#names[@]}" = 0 ] || die "this tree has no program '$program'"
      continue
      ;;
  esac
  programs+=("$program")
  lines+=("$name|$command|$checks")
done <<<"$examples"
build release --target "${programs[@]}"

folder=build/release/examples_run
mkdir -p "$folder"
table='' status=0
for line in "${lines[@]}"; do
  IFS='|' read -r name command checks <<<"$line"
  command=${command//'{}'/$folder}
  say "$command"
  started=$(date +%s.%N)
  ran=true
  # shellcheck disable=SC2086  # the options are words
  if ! build/release/examples/$command >"$folder/$name.txt" 2> >(tee "$folder/$name.log" >&2); then ran=false; fi
  seconds=$(awk -v from="$started" -v to="$(date +%s.%N)" 'BEGIN { printf "%.0f", to - from }')
  while [ -n "$checks" ]; do
    IFS='|' read -r text bar checks <<<"$checks"
    result=missed reached=-
    if [ "$ran" = false ]; then
      result=failed
    else
      reached=$(last_number "$text" "$folder/$name.txt")
      if met "$reached" "${bar% *}" "${bar#* }"; then result=met; fi
    fi
    [ "$result" = met ] || status=1
    table+=$(printf '%-20s %10s %10s %8s  %s' "$name" "${reached:--}" "$bar" "$seconds" "$result")$'\n'
  done
done

say "what the examples reached"
printf '%-20s %10s %10s %8s  %s\n' example reached bar seconds result
printf '%s' "$table"
exit "$status"
