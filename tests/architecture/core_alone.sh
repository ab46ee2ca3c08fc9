#!/usr/bin/env bash
# core_alone.sh SOURCE BUILD COMPILER ORDINARY: configures SOURCE with TESSERA_INTEROP=OFF in BUILD and checks what its targets would compile: every
# core component and the tests that train, save and resume with them (recipe_test), and no file of framework/interop. Then compares its test programs
# with those of the build ORDINARY, which are built and run anyway: they are linked with the same libraries of Tessera, and their objects are compiled
# with the same definitions. So what passes in ORDINARY passes without framework/interop, and nothing is compiled twice.
set -euo pipefail
source=$1 build=$2 compiler=$3 ordinary=$4
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

libraries() { ninja -C "$1" -t commands -s "$2" | grep -o 'libtessera_[a-z_]*\.a' | sort -u; }
definitions() { ninja -C "$1" -t commands "$2" | grep -o ' -DT[A-Z_]*[= ][^ ]*' | sed "s#$1#BUILD#g" | sort -u; }
programs=$(ninja -C "$build" -t targets all | sed -n 's#^\(tests/[a-z_]*_test\): CXX_EXECUTABLE.*#\1#p' | grep -v -e architecture_test -e launch_test)
[[ $programs == *recipe_test* && $programs == *training_test* ]] || { echo "TESSERA_INTEROP=OFF builds no tests of the core"; exit 1; }
for program in $programs; do
  for what in libraries definitions; do
    if ! diff <($what "$build" "$program") <($what "$ordinary" "$program") >"$build.diff"; then
      echo "$program has other $what in $ordinary (>) than with TESSERA_INTEROP=OFF (<):"
      cat "$build.diff"
      exit 1
    fi
  done
  [[ -n $(libraries "$build" "$program") ]] || { echo "$program is linked with no library of Tessera"; exit 1; }
done
