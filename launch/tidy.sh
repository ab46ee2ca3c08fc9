#!/usr/bin/env bash
# clang-tidy over the sources of framework/, with the rules of .clang-tidy. A source is checked again only if it or a file
# that it includes has changed since its last check without findings.
#
#   launch/tidy.sh [--since COMMIT | FILE ...]     default: every source
#
#   --since COMMIT   only sources that differ from COMMIT
#
# The last line is "N passed, N failed".
set -euo pipefail
source "$(dirname "$0")/common.sh"

tool=$(command -v clang-tidy-14 || command -v clang-tidy) || stop "no clang-tidy here; launch/install_dependencies.sh test installs it" 2
folder=build/clang  # its compile_commands.json has each source by itself
since='' files=()
while (($#)); do
  case "$1" in
    --since) since=$(value_of "$@"); shift ;;
    -h | --help) show_help; exit ;;
    *) files+=("$1") ;;
  esac
  shift
done
if [[ -n $since ]]; then
  mapfile -t files < <(git diff --name-only --diff-filter=d "$since" -- 'framework/*.cpp')
elif ((!${#files[@]})); then
  mapfile -t files < <(find framework -name '*.cpp' | sort)
fi
[[ -f $folder/compile_commands.json ]] || quietly "$folder/configure.log" cmake --preset clang
mkdir -p "$cache/tidy"

# A checksum of everything that determines the result for a source: the rules, the tool, the source and all our files that it includes.
fingerprint() {
  { cat .clang-tidy && "$tool" --version && clang++ -MM -std=c++20 -I. -I"$folder" "$1" 2>/dev/null | tr -d '\\' | tr ' ' '\n' |
    grep -E '^(framework|tests)/' | sort -u | xargs cat "$1"; } | sha256sum | cut -d' ' -f1
}
judge() {
  local mark output
  mark=$cache/tidy/$(fingerprint "$1")
  if [[ ! -f $mark ]]; then
    if ! output=$("$tool" -p "$folder" --quiet "$1" 2>/dev/null); then
      printf 'not tidy: %s\n%s\n' "$1" "$output"
      return 1
    fi
    touch "$mark"
  fi
}
export -f judge fingerprint
export cache folder tool

failures=$(mktemp)
trap 'rm -f "$failures"' EXIT
# shellcheck disable=SC2016
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$cores" bash -c 'test -z "$1" || judge "$1"' _ | tee "$failures" || true
failed=$(grep -c '^not tidy: ' "$failures" || true)
echo "$((${#files[@]} - failed)) passed, $failed failed"
((failed == 0))
