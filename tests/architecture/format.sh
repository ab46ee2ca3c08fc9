#!/usr/bin/env bash
# Fails when clang-format 14 would change a source. Exit 77, a skipped test, where there is no clang-format 14.
set -euo pipefail
cd "$1"
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $formatter ]] || ! "$formatter" --version | grep -q 'version 14\.'; then
  echo "no clang-format 14 here; launch/install_dependencies.sh test installs it"
  exit 77
fi
find framework launch tests benchmarks \( -name '*.cpp' -o -name '*.h' \) -print0 | xargs -0 -n 20 -P 2 "$formatter" --dry-run --Werror
