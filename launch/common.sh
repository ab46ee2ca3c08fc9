# Shared by the scripts of this folder; sourced, not run. Moves to the root of the tree.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cores=$(nproc)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tessera

say() { printf '== %s\n' "$*"; }

stop() {
  printf '%s: %s\n' "$(basename "$0" .sh)" "$1" >&2
  exit "${2:-1}"
}

# value_of OPTION [VALUE]: prints VALUE, or stops with an error if it is missing
value_of() {
  [[ -n ${2:-} ]] || stop "$1 needs a value; see --help" 2
  printf '%s' "$2"
}

# Prints the comment at the head of the calling script, which is its help text.
show_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$0"; }

# quietly LOG COMMAND ...: writes the output to LOG, and to the terminal only if the command fails
quietly() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 || status=$?
  if ((status)); then
    tail -n 60 "$log" >&2
    echo "failed: $* (all of its output: $log)" >&2
  fi
  return "$status"
}

# build PRESET [TARGET ...]: configures if that has not been done, then builds the targets
build() {
  local preset=$1 folder=build/$1 began=$SECONDS
  shift
  # The object files do not depend on the path of the source tree.
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  if [[ ! -f $folder/build.ninja ]]; then
    quietly "$folder/configure.log" cmake --preset "$preset" || return 1
  fi
  quietly "$folder/build.log" cmake --build "$folder" --parallel "$cores" ${1:+--target "$@"} || return 1
  say "built $folder in $((SECONDS - began)) s"
}
