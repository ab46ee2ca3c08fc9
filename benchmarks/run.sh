#!/usr/bin/env bash
# Builds the benchmarks, measures the figures that have a target, and writes them beside it.
#
#   benchmarks/run.sh [--python PYTHON_WITH_TORCH] [--pairs N] [--seconds S] [--only WORD ...] [--output FILE]
#
# The result is benchmarks/results/<processor>-<date>.json unless --output names another file; benchmarks/compare.py OLD NEW
# compares two. Without a Python that has torch, figures relative to PyTorch are skipped. Takes about 40 minutes with 3 pairs;
# the machine should be otherwise idle.
set -euo pipefail
source "$(dirname "$0")/../launch/common.sh"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then show_help && exit 0; fi
build release
exec python3 benchmarks/suite.py "$@"
