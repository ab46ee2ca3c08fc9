#!/usr/bin/env bash
# Conversations and preference pairs for configs/fine_tuning/, from the text of launch/quickstart.sh: how does a verse that
# begins so go on? The rejected answer of a pair is the end of the next verse.
#
#   launch/fine_tuning_data.sh [--output DIR]
#
#   --output DIR   folder of the quickstart (default: quickstart)
#
# TESSERA names the program (default: the release build's, else the installed one).
set -euo pipefail
source "$(dirname "$0")/common.sh"

output=quickstart
while (($#)); do
  case "$1" in
    --output) output=$(path_of "$@"); shift ;;
    -h | --help) show_help; exit ;;
    *) stop "no option '$1'; see --help" 2 ;;
  esac
  shift
done
data=$output/data
built=build/release/framework/tessera
[[ -x $built ]] || built=$(type -P tessera) || built=
tessera=${TESSERA:-$built}
[[ -n $tessera ]] || stop "there is no program: build/release/framework/tessera is not built, and no tessera is installed"
[[ -e $data/train.txt ]] || stop "there is no $data/train.txt; run launch/quickstart.sh first"

# Lines as "Ge1:1 In the beginning ...": a JSON object for each that has more than ten words. Every fourth verse is enough.
awk '
  function quoted(words) { gsub(/\\/, "\\\\", words); gsub(/"/, "\\\"", words); gsub(/\t/, " ", words); return "\"" words "\"" }
  function part(first, last,   all, i) { for (i = first; i <= last; ++i) all = all (i > first ? " " : "") $i; return all }
  NF > 10 {
    rest = part(7, NF)
    if (begin != "")
      printf "{\"instruction\": %s, \"input\": \"\", \"output\": %s, \"chosen\": %s, \"rejected\": %s}\n", quoted(begin), quoted(end), quoted(end), quoted(rest)
    begin = ""
    if (++count % 4 == 1) { begin = "How does it go on? " part(2, 6); end = rest }
  }' "$data/train.txt" >"$data/verses.jsonl.part"
mv "$data/verses.jsonl.part" "$data/verses.jsonl"

for kind in Instruction:verses Pairwise:verse_pairs; do
  "$tessera" data preprocess --handler-name "AlpacaStyle${kind%%:*}Handler" --prompt-type default --seq-length 256 \
    --input "$data/verses.jsonl" --output-prefix "$data/${kind##*:}" --vocab-file "$data/bpe/vocab.json" \
    --merge-file "$data/bpe/merges.txt"
done
