#!/usr/bin/env bash
# Runs a command of the README on a new machine: in a minimal Debian (only apt) with the committed files.
# Usage: scripts/fresh_root.sh bookworm|trixie COMMAND [ARGUMENT...]
#   for instance: scripts/fresh_root.sh trixie scripts/quickstart.sh
#                 scripts/fresh_root.sh bookworm bash -c 'scripts/quickstart.sh && scripts/test.sh'
# Exits with the status of the command. The system is removed afterwards, whatever happens.
# MX_FRESH_MIRROR: source of its packages; default: this machine's Debian mirror if it has one, else mmdebstrap's own.
# MX_FRESH_CCACHE: a folder of ccache that the compilers in the system read from and never write to.
# MX_FRESH_FOLDER: the folder for the system, 4 GB; default: TMPDIR, else /var/tmp.
# Needs root and the right to mount: run it as root of a machine, or in a container with CAP_SYS_ADMIN.
# shellcheck source=scripts/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

usage() { sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

case "${1-}" in
  -h | --help)
    usage
    exit 0
    ;;
  bookworm | trixie) ;;
  *)
    usage >&2
    exit 2
    ;;
esac
suite=$1
shift
if [ $# = 0 ]; then
  printf 'error: expected a command to run in %s\n' "$suite" >&2
  exit 2
fi

if [ "$(id -u)" != 0 ]; then
  kept=()
  for name in MX_FRESH_MIRROR MX_FRESH_CCACHE MX_FRESH_FOLDER TMPDIR; do
    if [ -n "${!name-}" ]; then kept+=("$name=${!name}"); fi
  done
  as_root env "${kept[@]}" "${BASH_SOURCE[0]}" "$suite" "$@"
  exit
fi

for tool in mmdebstrap git; do
  if ! command -v "$tool" >/dev/null 2>&1; then die "$tool is missing; install the package $tool"; fi
done
# Separate mount and process namespaces: when the script ends, even if it is killed, nothing stays mounted and no process
# continues.
apart=(unshare --mount --pid --fork --kill-child --propagation private)
if ! said=$("${apart[@]}" true 2>&1); then
  die "this process may not mount: $said. Run it as root of a machine, or give the container CAP_SYS_ADMIN" \
    "(docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined)"
fi

# Prints this machine's source of Debian packages, so it needs no fixed name: the first entry of Debian's main
# archive.
host_mirror() {
  if ! command -v apt-get >/dev/null 2>&1; then return; fi
  apt-get indextargets --format '$(CODENAME)|$(SUITE)|$(ORIGIN)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)' 'Created-By: Packages' 2>/dev/null |
    awk -F '|' '$4 == "main" && ($3 == "Debian" || $3 == "") && $6 ~ /^(bullseye|bookworm|trixie|forky|sid|(old|un)?stable|testing)$/ && !found++ { print $5 }'
}

# Prints the apt options with which this machine reaches that source: proxies, and how far its dates are
# trusted.
host_apt_options() {
  apt-config dump 2>/dev/null |
    grep -E '^Acquire::((https?|ftp)::Proxy(::[^ ]*)?|https::CaInfo|Check-Valid-Until|Check-Date|Retries) "..*";$' || true
}

folder=$(mktemp -d "${MX_FRESH_FOLDER:-${TMPDIR:-/var/tmp}}/mx_fresh_${suite}.XXXXXX")
root=$folder/root
child=
clean_up() {
  # unshare --kill-child ends every process that the command has started. It ignores signals other than KILL.
  if [ -n "$child" ]; then
    kill -KILL "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  rm -rf --one-file-system "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mirror=${MX_FRESH_MIRROR:-$(host_mirror)}
options=()
while IFS= read -r option; do
  if [ -n "$option" ]; then options+=("--aptopt=${option%;}"); fi
done < <(host_apt_options)
# Without certificates the new system could not get packages over TLS.
case "$mirror" in https://*) options+=(--include=ca-certificates) ;; esac

say "making a bare $suite"
# Update archives have names that not every mirror serves, so only the main archive is used.
if ! mmdebstrap --quiet --mode=root --variant=apt "${options[@]}" "$suite" "$root" ${mirror:+"$mirror"} >"$folder/log" 2>&1; then
  cat "$folder/log" >&2
  die "mmdebstrap could not make $suite${mirror:+ from $mirror}. Without a network there are no packages; a release that" \
    "this machine's debian-archive-keyring does not know cannot be checked; MX_FRESH_MIRROR names another mirror"
fi

# The tree has the same path as outside. Compilers that see the same command lines can then share the cache.
if [ -n "$(git -c safe.directory="$MX_ROOT" status --porcelain 2>/dev/null)" ]; then
  warn "changes that are not committed are left out"
fi
mkdir -p "$root$MX_ROOT"
git -c safe.directory="$MX_ROOT" archive HEAD | tar -x -C "$root$MX_ROOT"

cache=()
if [ -n "${MX_FRESH_CCACHE-}" ]; then
  mkdir -p "$root/root/.cache/ccache"
  cache=(CCACHE_DIR=/root/.cache/ccache CCACHE_READONLY=1 CCACHE_TEMPDIR=/tmp)
fi

# The script that runs in the new namespaces, as root, with the paths as its arguments.
enter=$(
  cat <<'ENTER'
set -eu
root=$1 tree=$2 ccache=$3
shift 3
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys" 2>/dev/null || mount --rbind -o ro /sys "$root/sys"
mount --rbind /dev "$root/dev"
if [ -n "$ccache" ]; then mount --bind -o ro "$ccache" "$root/root/.cache/ccache"; fi
exec chroot "$root" /usr/bin/env -i HOME=/root USER=root LOGNAME=root SHELL=/bin/bash TERM=dumb LANG=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  bash -c 'cd "$1" && shift && exec env "$@"' fresh "$tree" "$@"
ENTER
)
say "running in it: $*"
status=0
# In the background, because bash handles a signal only when its foreground command has ended.
"${apart[@]}" bash -c "$enter" enter "$root" "$MX_ROOT" "${MX_FRESH_CCACHE-}" "${cache[@]}" "$@" <&0 &
child=$!
wait "$child" || status=$?
child=
say "the command ended with status $status in the bare $suite"
exit "$status"
