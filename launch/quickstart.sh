#!/usr/bin/env bash
# From a fresh Debian 12 to a trained GPT: installs packages, builds, creates a corpus from the King James Bible, trains
# configs/quickstart.yaml on it (where there is no time for all of its steps, configs/quickstart_short.yaml, a smaller model), evaluates the
# model on held-out text, and generates a sample.
#
#   launch/quickstart.sh [--seconds N] [--threads N] [--output DIR]
#
#   --seconds N    maximum training time (default 280, or less if a slow build leaves less of the ten minutes for the whole script);
#                  on a slow machine fewer steps than the recipe's are trained
#   --threads N    computing threads (default: one per core)
#   --output DIR   folder for corpus, tokenizer and run (default: quickstart)
#
# An installed tessera of the version and commit of this source tree is used instead of building (docs/installing.md).
# Finished parts are not repeated, so an interrupted quickstart continues where it stopped.
set -euo pipefail
source "$(dirname "$0")/common.sh"

seconds= threads=$cores output=quickstart
while (($#)); do
  case "$1" in
    --seconds) seconds=$(value_of "$@"); shift ;;
    --threads) threads=$(value_of "$@"); shift ;;
    --output) output=$(path_of "$@"); shift ;;
    -h | --help) show_help; exit ;;
    *) stop "no option '$1'; see --help" 2 ;;
  esac
  shift
done
[[ -z $seconds || $seconds =~ ^[1-9][0-9]*$ ]] || stop "--seconds is '$seconds'; it takes a whole number above 0" 2
[[ $threads =~ ^[1-9][0-9]*$ ]] || stop "--threads is '$threads'; it takes a whole number above 0" 2

mkdir -p "$output"
output=$(realpath "$output")
data=$output/data run=$output/run logs=$output/logs
export TESSERA_QUICKSTART=$output

# once NAME FILE COMMAND ...: runs the command unless FILE exists; the command creates FILE at its end
once() {
  local name=$1 file=$2 began=$SECONDS
  shift 2
  if [[ -e $file ]]; then
    say "$name: done before (${file#"$PWD/"})"
  else
    "$@"
    say "$name: $((SECONDS - began)) s (${file#"$PWD/"})"
  fi
}

make_corpus() {
  mkdir -p "$data"
  # One verse per line, as "Ge1:1 In the beginning ..."; the reference is part of the text.
  bible -f 'gen1:1-rev22:21' </dev/null >"$data/all.txt"
  local bytes held
  bytes=$(stat -c %s "$data/all.txt")
  held=$((bytes / 20))
  ((bytes > 4000000)) || stop "bible -f gave $bytes bytes; 4.4 million were expected"
  tail -c "$held" "$data/all.txt" >"$data/held_out.txt"
  head -c "-$held" "$data/all.txt" >"$data/train.txt.part"
  mv "$data/train.txt.part" "$data/train.txt"
}

train_tokenizer() {
  quietly "$logs/train-bpe.log" "$tessera" data train-bpe --input "$data/train.txt" --vocab-size 4096 --output-dir "$data/bpe.part"
  mv "$data/bpe.part" "$data/bpe"
}

# Converts the two texts to token ids: train.bin and .idx, held_out.bin and .idx.
preprocess() {
  local name
  for name in held_out train; do
    quietly "$logs/preprocess.log" "$tessera" data preprocess --input "$data/$name.txt" --append-eod --output-prefix "$data/$name" \
      --workers "$threads" --vocab-file "$data/bpe/vocab.json" --merge-file "$data/bpe/merges.txt"
  done
}

# Bits per byte of the held-out part for two compressors: bzip2 of it alone, and what xz adds for it after the training text.
yardsticks() {
  local held alone without with
  held=$(stat -c %s "$data/held_out.txt")
  xz -9e -c "$data/train.txt" | wc -c >"$data/without.part" & # beside the next two: xz has one thread
  alone=$(bzip2 -9 -c "$data/held_out.txt" | wc -c)
  with=$(xz -9e -c "$data/all.txt" | wc -c)
  wait $! || stop "xz failed"
  without=$(<"$data/without.part")
  rm "$data/without.part"
  awk -v h="$held" -v b="$alone" -v x="$((with - without))" 'BEGIN { printf "%.3f %.3f\n", 8 * b / h, 8 * x / h }' >"$data/yardsticks.part"
  mv "$data/yardsticks.part" "$data/yardsticks"
}

# Prints the path of an installed tessera of the version and, where both are recorded, the commit of this source tree; fails without one.
installed_tessera() {
  local program record version commit='' tree=''
  program=$(type -P tessera) || return 1
  program=$(realpath "$program")
  version=$(sed -n 's/^project(tessera VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  [[ $("$program" --version 2>/dev/null) == "tessera $version" ]] || return 1
  record=$(dirname "$program")/../share/tessera/version
  [[ ! -f $record ]] || read -r version commit <"$record" || return 1
  if tree=$(git_here rev-parse HEAD 2>/dev/null) && [[ -n $(git_here status --porcelain 2>/dev/null) ]]; then tree+=-modified; fi
  [[ -z $commit || -z $tree || $commit == "$tree" && $commit != *-modified ]] || return 1
  printf '%s' "$program"
}

say "installing what is missing"
if tessera=$(installed_tessera); then
  launch/install_dependencies.sh run
  installed=$SECONDS
  say "using the installed $tessera, which is of the version of this source tree: nothing is built"
else
  launch/install_dependencies.sh build run
  installed=$SECONDS
  build release tessera || stop "the build failed"
  tessera=$PWD/build/release/framework/tessera
fi
once corpus "$data/train.txt" make_corpus
once tokenizer "$data/bpe" train_tokenizer
once "token ids" "$data/train.idx" preprocess
once yardsticks "$data/yardsticks" yardsticks

settings=(--set "training_config.num_threads=$threads" --set "training_config.output_dir=$run")

# Ten minutes from the start, without downloads; of these, 15 s to determine the number of steps and 15 s for evaluation and generation.
if [[ -z $seconds ]]; then
  left=$((600 - (SECONDS - installed) - 30))
  seconds=$((left < 60 ? 60 : left < 280 ? left : 280))
fi

planned_steps() { sed -n 's/^ *training_iters: *\([0-9]*\).*/\1/p' "$1"; }

# Sets fit to the number of steps of the recipe $1 that this machine can do in the given time. Of $2 steps, the first third is slower.
count_steps() {
  local trial=$output/trial
  rm -rf "$trial"
  quietly "$logs/trial.log" "$tessera" train "$1" "${settings[@]}" --set "training_config.output_dir=$trial" \
    --set training_config.log_interval=1 --set "training_config.exit_interval=$2" --set training_config.eval_iters=0
  fit=$(sed -n 's/.*"step_seconds": *\([0-9.e+-]\{1,\}\).*/\1/p' "$trial/metrics.jsonl" | tail -n $(($2 * 2 / 3)) | sort -g |
    awk -v s="$seconds" '{ times[NR] = $1 } END { if (NR > 0) printf "%d", 0.9 * s / times[int((NR + 1) / 2)] }')  # the median
  rm -rf "$trial"
  [[ -n $fit ]] && ((fit >= 1)) || stop "could not tell from $logs/trial.log how long a step takes"
}

# Chooses the recipe and the number of steps: all of the first recipe's, or of the smaller model's as many as fit.
choose_steps() {
  local recipe=configs/quickstart.yaml planned fit
  planned=$(planned_steps "$recipe")
  count_steps "$recipe" 9
  if ((fit < planned)); then
    say "$fit of the $planned steps of $recipe fit into $seconds s on this machine: a smaller model is trained"
    recipe=configs/quickstart_short.yaml
    planned=$(planned_steps "$recipe")
    count_steps "$recipe" 45
    if ((fit < planned)); then say "$fit of the $planned steps of $recipe fit into $seconds s on this machine"; fi
  fi
  echo "$recipe" >"$output/recipe"
  echo $((fit < planned ? fit : planned)) >"$output/steps"
}

# A folder of before there was a choice has no file recipe.
chosen_recipe() { cat "$output/recipe" 2>/dev/null || echo configs/quickstart.yaml; }

train() {
  "$tessera" train "$(chosen_recipe)" "${settings[@]}" --set "training_config.training_iters=$(<"$output/steps")"
  # Ctrl-C also exits with code 0, but before the last step.
  [[ $(cat "$run"/checkpoints/*latest_checkpointed_iteration.txt) == "$(<"$output/steps")" ]] ||
    stop "training was stopped; the same command continues it" 130
  touch "$run/finished"
}

evaluate() {
  quietly "$logs/eval.log" "$tessera" eval "$run" --text "$data/held_out.txt" --threads "$threads"
  sed -n 's/.*bits per byte[^0-9]*\([0-9.]*\).*/\1/p' "$logs/eval.log" | tail -n 1 >"$output/bits.part"
  [[ -s $output/bits.part ]] || stop "tessera eval told no bits per byte; see $logs/eval.log"
  mv "$output/bits.part" "$output/bits_per_byte"
}

once "length of the run" "$output/steps" choose_steps
once training "$run/finished" train
once evaluation "$output/bits_per_byte" evaluate

say "the model writes"
"$tessera" generate "$run" --prompt 'Joh3:16 For God so' --tokens 120 --temperature 0.8 --seed 1 --threads "$threads" || stop "tessera generate failed"

read -r bzip2_bits xz_bits <"$data/yardsticks"
recipe=$(chosen_recipe) steps=$(<"$output/steps")
planned=$(planned_steps "$recipe")
# Paths as they would be typed in the root of the source tree.
printf -v here %q "${output#"$PWD/"}"
printf -v program %q "${tessera#"$PWD/"}"
where=
[[ $here == quickstart ]] || where="TESSERA_QUICKSTART=$here "
unfinished=
if ((steps < planned)); then
  unfinished="This machine had time for $steps of the $planned steps of $recipe. To continue this run to the last one:
  ${where}$program train $recipe --set optimizer_config.override_opt_param_scheduler=true

"
fi
cat <<END

Bits per byte of the last 5 % of the text, which the model has not seen:
  Tessera, this model                       $(<"$output/bits_per_byte")
  bzip2 -9 of that part alone               $bzip2_bits
  xz -9e with the training text given to it $xz_bits

${unfinished}The run is in $here/run: resolved.yaml repeats it, metrics.jsonl has its numbers, checkpoints/ its weights.
Four things to try next:
  $program generate $here/run --prompt 'In the beginning' --temperature 0.5
  ${where}$program check $recipe --set model_config.hidden_size=384
  ${where}$program train $recipe --set training_config.output_dir=$here/longer --set training_config.training_iters=$((2 * planned))
  ${where}$program train configs/quickstart_experts.yaml
total: $SECONDS s
END
