#!/usr/bin/env bash
# core_alone.sh SOURCE BUILD COMPILER: configures SOURCE with TESSERA_INTEROP=OFF in BUILD and checks what its targets would compile: every core
# component and the tests that train, save and resume with them (recipe_test), and no file of framework/interop.
set -euo pipefail
source=$1 build=$2 compiler=$3
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DTESSERA_INTEROP=OFF -DTESSERA_BENCHMARKS=OFF -DTESSERA_UNITY=OFF >"$build.log" 2>&1 ||
  { cat "$build.log"; exit 1; }
ninja -C "$build" -t commands >"$build.commands"
for part in framework/training framework/recipe tests/recipe/training_loop_test.cpp; do
  grep -q "$part" "$build.commands" || { echo "$part is not built without framework/interop"; exit 1; }
done
if grep -o "$source/\(framework\|tests\)/interop/[^ ]*" "$build.commands" | sort -u | grep .; then
  echo "these files of interop are built with TESSERA_INTEROP=OFF"
  exit 1
fi
