#!/usr/bin/env bash
# Builds Tessera and runs its tests. The last line is "N passed, N failed[, N skipped]"; before it come the seconds of each part and the
# slowest tests. The exit code is 0 if no test failed.
#
#   launch/test.sh [--quick] [--sanitize [--all | --since COMMIT]] [--slow] [--golden DIR] [--label NAME] [--preset NAME] [--no-install]
#
#   --quick         only the unit tests (no program is started)
#   --sanitize      smoke and unit tests under AddressSanitizer and UndefinedBehaviorSanitizer, compiled by Clang (preset asan-ubsan): unit tests of
#                   all readers of foreign input, of what changed since the last merge, and of a third of the rest, chosen by the commit
#                   (tests/sanitizers/chosen_tests.py); whether sources include what they use (tests/sanitizers/compile_alone.py)
#   --all           with --sanitize: all unit tests, and no smoke tests
#   --since COMMIT  with --sanitize: what changed since COMMIT
#   --slow          slow tests in full: layouts of ranks train 50 steps instead of 10
#   --golden DIR    also run every recorded case below DIR (or set the environment variable TESSERA_GOLDEN)
#   --label NAME    only tests with this label: unit, ranks, architecture, end_to_end, golden, smoke, slow, threads (only in the preset tsan),
#                   package: makes packages and an image (launch/package.sh --oci) and tests them in a bare Debian (root and a network only),
#                   site: installs mkdocs, builds the documentation site and tests it (without mkdocs, the whole suite skips this test)
#   --preset NAME   CMake preset to build: release (default), debug, asan-ubsan, tsan, clang. tsan builds and runs only the tests with the
#                   label threads, under ThreadSanitizer: log, comm, thread pool, reading ahead, pipeline, gradient reduction
#   --no-install    do not install missing Debian and Python packages
#
# TESSERA_PEER_PYTHON names a Python with torch and transformers (some gigabytes, never installed by this script): tests that check Tessera's
# files with these programs run with it, and are skipped without it. TESSERA_PACKAGES, set by --label package, names the folder of the packages.
set -euo pipefail
source "$(dirname "$0")/common.sh"

preset=release label='' chosen=false since=() golden=${TESSERA_GOLDEN:-} install=true
while (($#)); do
  case "$1" in
    --quick) label=unit ;;
    --sanitize) preset=asan-ubsan label=unit chosen=true ;;
    --all) chosen=false ;;
    --since) since=(--since "$(value_of "$@")"); shift ;;
    --slow) export TESSERA_SLOW_TESTS=1 ;;
    --golden) golden=$(path_of "$@"); shift ;;
    --label) label=$(value_of "$@"); shift ;;
    --preset) preset=$(value_of "$@"); shift ;;
    --no-install) install=false ;;
    -h | --help) show_help; exit ;;
    *) stop "no option '$1'; see --help" 2 ;;
  esac
  shift
done
if [[ -n $golden ]]; then
  [[ -d $golden ]] || stop "--golden: there is no folder '$golden'" 2
  golden=$(realpath "$golden")
fi

# Python packages that read Tessera's files, in a virtual environment outside the source tree. Tests that need one are skipped without it.
python_clients=(tensorboard wandb prometheus_client jsonschema tokenizers safetensors pyarrow numpy jinja2)
provide_python_clients() {
  local venv=$cache/venv
  local stamp="$venv/clients: ${python_clients[*]}"
  if [[ ! -f $stamp ]]; then
    say "installing Python clients for the tests into $venv"
    if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "${python_clients[@]}" && touch "$stamp"; }; then
      say "pip could not install ${python_clients[*]} (no network?); the tests that read our files with them are skipped"
    fi
  fi
  [[ ! -f $stamp ]] || export TESSERA_TEST_PYTHON=$venv/bin/python
}

if [[ $preset == tsan ]]; then label=${label:-threads}; fi

parts=()
# part NAME COMMAND ...: runs it and notes how long it took
part() {
  local name=$1 began=$SECONDS status=0
  shift
  "$@" || status=$?
  parts+=("$name $((SECONDS - began)) s")
  return "$status"
}

install_all() {
  launch/install_dependencies.sh || return
  [[ $label != site ]] || launch/install_dependencies.sh docs || return
  [[ $label == unit || $label == threads ]] || provide_python_clients
}
if $install; then part packages install_all; fi
# Only the targets of the selected tests are built. The smoke tests are Python programs: they need only the executables.
labels=$label
case "$label" in
  smoke | package | site) targets=(tessera tsrun) ;;
  unit) targets=(unit_tests) labels='unit\..*' ;;
  threads) targets=(threads_tests) ;;
  *) targets=() ;;
esac
if $chosen; then
  choice=$(python3 -B tests/sanitizers/chosen_tests.py "${since[@]}") || stop "tests/sanitizers/chosen_tests.py failed"
  grep '^#' <<<"$choice"
  mapfile -t targets < <(grep -v '^#' <<<"$choice")
  labels="(smoke|unit\.($(IFS='|' && echo "${targets[*]}")))"
  targets+=(tessera tsrun)
fi
part build build "$preset" "${targets[@]}" || { echo "0 passed, 1 failed"; exit 1; }
passed=0 failed=0 skipped=0
if $chosen; then
  if part includes python3 -B tests/sanitizers/compile_alone.py "build/$preset" "${since[@]}"; then passed=1; else failed=1; fi
fi

# Only their label selects the tests of packages: they install hundreds of Debian packages.
others=(--label-exclude '^package$')
if [[ $label == package ]]; then
  others=()
  part packaging launch/package.sh --oci || { echo "0 passed, 1 failed"; exit 1; }
  export TESSERA_PACKAGES=$PWD/build/packages
fi

report=$PWD/build/$preset/tests.xml cases=$PWD/build/$preset/cases results=''
rm -rf "$report" "$cases"
status=0
# PROCESSORS of a test counts half cores (tests/CMakeLists.txt): many wait more than they compute.
# Signals that nohup or a background shell ignores act again: tests send them.
part tests env --default-signal=HUP,INT,QUIT -u TESSERA_GOLDEN ctest --test-dir "build/$preset" --parallel "$((2 * cores))" --output-on-failure --no-tests=error \
  --exclude-regex '^golden\.given$' "${others[@]}" --output-junit "$report" ${labels:+--label-regex "^$labels\$"} || status=$?
if [[ -f $report ]]; then
  results=$(python3 -B tests/count_tests.py "$report" "$cases") || failed=1
  while read -r result _; do
    case "$result" in
      passed) passed=$((passed + 1)) ;;
      failed) failed=$((failed + 1)) ;;
      skipped) skipped=$((skipped + 1)) ;;
    esac
  done <<<"$results"
else
  failed=1
fi
((status == 0 || failed > 0)) || failed=1

# Prints a line for each recorded case below the folder; cases of unknown kinds count as skipped.
if [[ -n $golden ]]; then
  say "recorded cases below $golden"
  status=0 began=$SECONDS
  "build/$preset/tests/golden/golden_runner" "$golden" | tee "build/$preset/golden.txt" || status=$?
  if [[ $(tail -n 1 "build/$preset/golden.txt") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ not\ supported$ ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
    ((status == 0 || BASH_REMATCH[2] > 0)) || failed=$((failed + 1))
  else
    failed=$((failed + 1))
  fi
  parts+=("recorded cases $((SECONDS - began)) s")
fi

sed -n 's/^failed [^ ]* /failed /p' <<<"$results"
say "seconds by part: $(printf '%s, ' "${parts[@]}")${SECONDS} s in all; the slowest tests:"
# Of a test that takes longer than 5 s, docs/adding_things.md says why; under sanitizers many take that.
explained=$(sed -n '/^| tests | why/,/^$/s/^| \(.*\) | .*/\1/p' docs/adding_things.md | grep -o '`[^`]*`' | tr -d '`' | paste -sd '|') || true
sort -k 2 -rg <<<"$results" | awk -v explained="(^|[ ./])($explained)([./]|$)" -v chosen=$chosen 'NF > 2 && NR <= 10 { seconds = $2; $1 = $2 = ""; sub(/^ +/, " ")
  printf "%8.2f s %s%s\n", seconds, $0, (chosen == "false" && seconds > 5 && $0 !~ explained ? " (docs/adding_things.md does not say why it takes more than 5 s)" : "") }'
echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
((failed == 0))
