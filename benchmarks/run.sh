#!/usr/bin/env bash
# Builds the benchmarks, measures the figures that have a target, and writes them beside it.
#
#   benchmarks/run.sh [--python PYTHON_WITH_TORCH] [--llmc CHECKOUT_OF_LLM.C] [--pairs N] [--seconds S] [--no-long]
#                     [--only WORD ...] [--output FILE]
#
# The result is benchmarks/results/<processor>-<date>.json unless --output names another file; benchmarks/compare.py OLD NEW
# compares two. Without a Python that has torch, figures relative to PyTorch are skipped, and without --llmc those relative to
# llm.c. With --pairs 2 --seconds 8 it takes about half an hour on two cores, a third of it for the two shapes of 8192 tokens,
# which --no-long leaves out. The machine should be otherwise idle: disturbed pairs are left out where others remain.
set -euo pipefail
source "$(dirname "$0")/../launch/common.sh"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then show_help && exit 0; fi
build release
suite=$PWD/benchmarks/suite.py
cd "$started"  # paths are relative to the folder of the caller
exec python3 "$suite" "$@"
