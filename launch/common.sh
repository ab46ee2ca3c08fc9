# Shared by the scripts of this folder; sourced, not run. Moves to the root of the tree; `started` is the caller's folder, `script` the path of
# the script.
started=$PWD
script=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cores=$(nproc)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tessera

# Git in this tree, also for root in a folder of somebody else, as in a container; git refuses that by itself.
git_here() { git -c 'safe.directory=*' "$@"; }

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

# path_of OPTION [VALUE]: the same for a path, which is relative to the folder of the caller
path_of() {
  local value
  value=$(value_of "$@") || exit
  cd "$started" && realpath -m "$value"
}

# Prints the comment at the head of the calling script, which is its help text.
show_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$script"; }

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

# in_words SECONDS: "50 s", "4 min"
in_words() { if (($1 < 90)); then printf '%d s' "$1"; else printf '%d min' $((($1 + 30) / 60)); fi; }

# counted LOG: copies the output of ninja to LOG and prints how far it is: a line that is overwritten on a terminal, a line every 30 seconds
# elsewhere. The time left is estimated from the number of finished commands.
counted() {
  local line began=$SECONDS told=$SECONDS built total left width=0
  : >"$1"
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$1"
    [[ $line =~ ^\[([1-9][0-9]*)/([0-9]+)\] ]] || continue
    built=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    left="$(in_words $(((SECONDS - began) * (total - built) / built)))"
    if [[ -t 1 ]]; then
      line="   built $built of $total, about $left left"
      printf '\r%-*s' "$width" "$line"
      width=${#line}
    elif ((SECONDS - told >= 30)); then
      told=$SECONDS
      say "built $built of $total, about $left left"
    fi
  done
  ((width == 0)) || printf '\r%*s\r' "$width" ''
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
  # Not in the background: Ctrl-C must also reach ninja.
  if ! NINJA_STATUS='[%f/%t] ' cmake --build "$folder" --parallel "$cores" ${1:+--target "$@"} 2>&1 | counted "$folder/build.log"; then
    tail -n 60 "$folder/build.log" >&2
    echo "the build failed (all of its output: $folder/build.log)" >&2
    return 1
  fi
  say "built $folder in $((SECONDS - began)) s"
}
