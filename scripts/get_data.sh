#!/usr/bin/env bash
# Fetches all of MNIST, 60,000 training and 10,000 test images (12 MB), and checks it: examples/data/mnist.sha256.
# Usage: scripts/get_data.sh [FOLDER]    default: build/data/mnist; then train_mnist --data FOLDER
# MX_DATA_URLS: the addresses to try instead, one after another, separated by spaces.
# A file that exists and is correct is kept; a file that is not correct never gets its final name.
given=${1-}
case "$given" in # a relative path is relative to the caller's folder
  -h | --help)
    sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*)
    printf 'error: expected a folder, got %s; --help says more\n' "$given" >&2
    exit 2
    ;;
  '' | /*) ;;
  *) given=$PWD/$given ;;
esac
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

folder=${given:-$MX_ROOT/build/data/mnist}
sums=$MX_ROOT/examples/data/mnist.sha256
read -r -a mirrors <<<"${MX_DATA_URLS:-https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist}"

partial=
trap 'rm -f ${partial:+"$partial"}' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# fetch ADDRESS FILE
fetch() {
  if command -v curl >/dev/null 2>&1; then
    curl --fail --silent --show-error --location --connect-timeout 20 --speed-limit 1000 --speed-time 60 \
      --output "$2" -- "$1"
  else
    wget --no-verbose --tries=2 --timeout=60 --output-document="$2" -- "$1"
  fi
}

sum_of() {
  local line
  line=$(sha256sum <"$1")
  printf '%s' "${line%% *}"
}

# get NAME SUM: fetches the file from the first mirror that has it with the right checksum.
get() {
  local name=$1 sum=$2 mirror found
  if [ -f "$folder/$name" ] && [ "$(sum_of "$folder/$name")" = "$sum" ]; then
    say "$name is there"
    return
  fi
  for mirror in "${mirrors[@]}"; do
    say "fetching ${mirror%/}/$name"
    partial=$(mktemp "$folder/.$name.XXXXXX.tmp")
    if fetch "${mirror%/}/$name" "$partial"; then
      found=$(sum_of "$partial")
      if [ "$found" = "$sum" ]; then
        chmod "$(printf '%o' $((0666 & ~$(umask))))" "$partial"
        sync "$partial"
        mv -f "$partial" "$folder/$name"
        partial=
        return
      fi
      warn "${mirror%/}/$name is another file than expected: its SHA-256 is $found, not $sum"
    fi
    rm -f "$partial"
    partial=
  done
  die "could not get $name from any of: ${mirrors[*]}. Without a network use examples/data/mnist, a third of the" \
    "training images, or copy the four files of examples/data/mnist.sha256 to $folder"
}

install_packages data
mkdir -p "$folder" || die "cannot make the folder $folder"
while read -r sum name; do
  get "$name" "$sum"
done <"$sums"
say "all of MNIST is in $folder; build/release/examples/train_mnist --data $folder"
