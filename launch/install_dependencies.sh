#!/usr/bin/env bash
# Installs the packages of Debian 12 (bookworm) that Tessera needs. This script is the only list of them.
#
#   launch/install_dependencies.sh [--list] [GROUP ...]     groups: build run test package docs (default: the first three)
#
# Prints nothing and changes nothing if all packages are installed; otherwise it needs root and a network.
# Why each package is needed: docs/dependencies.md.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build ccache pkg-config
  libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libopenblas-dev libhwy-dev
  libopenmpi-dev openmpi-bin libhwloc-dev libssl-dev libsentencepiece-dev
  zlib1g-dev libzstd-dev liblzma-dev libsnappy-dev
  libpng-dev libjpeg62-turbo-dev libwebp-dev libcpp-httplib-dev
)
run_packages=(bible-kjv bzip2 xz-utils)
test_packages=(
  libgtest-dev python3-venv python3-yaml clang lld libclang-rt-dev clang-format clang-tidy
  iproute2 strace tmux valgrind slurm-wlm slurm-wlm-basic-plugins munge
)
package_packages=(dpkg-dev python3 lintian mmdebstrap)
docs_packages=(python3 mkdocs mkdocs-material)

list_only=false
groups=()
for word in "$@"; do
  case "$word" in
    --list) list_only=true ;;
    build | run | test | package | docs) groups+=("$word") ;;
    *)
      echo "install_dependencies: '$word' is neither --list nor a group; groups are build, run, test, package and docs" >&2
      exit 2
      ;;
  esac
done
((${#groups[@]})) || groups=(build run test)

packages=()
for group in "${groups[@]}"; do
  declare -n chosen="${group}_packages"
  packages+=("${chosen[@]}")
done
if $list_only; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi

if ! command -v dpkg-query >/dev/null; then
  echo "install_dependencies: this is not Debian; install the corresponding packages of your system for: ${packages[*]}" >&2
  exit 2
fi
installed=" $(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' | tr '\n' ' ') "
missing=()
for package in "${packages[@]}"; do
  [[ $installed == *" $package "* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_dependencies: not root and no sudo here; as root, run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 2
  fi
  as_root=(sudo)
fi
echo "installing with apt-get: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# apt_get ARGUMENT ...: runs apt-get. While another program holds its lock, as apt-daily does after a boot, it waits for at most five minutes;
# after any other failure, such as a mirror that does not answer, it tries again twice. Only the last update accepts that a mirror does not
# answer: it may be one that holds none of the packages.
apt_get() {
  local until=$((SECONDS + 300)) failures=0 waits=0 strict=(-o APT::Update::Error-Mode=any)
  until "${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q "${strict[@]}" "$@" >"$log" 2>&1; do
    if grep -qiE 'could not get lock|unable to (acquire|lock)' "$log" && ((SECONDS < until)); then
      ((waits++)) || echo "another program uses apt ($(grep -oE 'held by process [^.,]*' "$log" | head -n 1)); waiting for at most five minutes"
    elif ((++failures < 3)); then
      echo "apt-get failed; trying again: $(grep -m 1 -E '^(E|Err)' "$log")"
      ((failures < 2)) || strict=()
    else
      cat "$log" >&2
      echo "install_dependencies: 'apt-get $*' failed; its output is above" >&2
      exit 1
    fi
    sleep 2
  done
}
apt_get update
apt_get -y --no-install-recommends install "${missing[@]}"
