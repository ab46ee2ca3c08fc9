#!/usr/bin/env python3
"""Compares two files of results of benchmarks/run.sh: benchmarks/compare.py OLD NEW

Prints each figure of both, and their ratio. A figure is worse, and the exit code 1, if its new median is worse by more than --tolerance and lies
outside the range of the old one. Figures in units (tokens/s) say little unless both were measured on the same idle machine.
"""

import argparse
import json
import pathlib
import sys

from suite import AT_MOST


def read(path):
    try:
        found = json.loads(pathlib.Path(path).read_text())
        return found, {figure["name"]: figure for figure in found["figures"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{path} is not a file of results of benchmarks/run.sh: {error}")


def is_worse(old, new, tolerance):
    if any(word in old["name"] for word in AT_MOST):
        return new["median"] > old["median"] * (1 + tolerance) and new["median"] > old["largest"]
    return new["median"] < old["median"] * (1 - tolerance) and new["median"] < old["least"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--tolerance", type=float, default=0.04, help="least relative change that counts; default 0.04, as quiet figures repeat within that")
    args = parser.parse_args()
    (old, before), (new, after) = read(args.old), read(args.new)
    for what in ("processor", "instruction_set"):
        if old["machine"][what] != new["machine"][what]:
            print(f"the machines differ: {old['machine'][what]} and {new['machine'][what]}")
    worse = 0
    for name, figure in before.items():
        if name not in after:
            print(f"{name:<58} only in {args.old}")
            continue
        bad = is_worse(figure, after[name], args.tolerance)
        worse += bad
        ratio = after[name]["median"] / figure["median"] if figure["median"] else float("nan")
        print(f"{name:<58} {figure['median']:10.4g} {after[name]['median']:10.4g} {ratio:6.3f}{'  WORSE' if bad else ''}")
    for name in after.keys() - before.keys():
        print(f"{name:<58} only in {args.new}")
    print(f"{worse} worse")
    sys.exit(worse > 0)


if __name__ == "__main__":
    main()
