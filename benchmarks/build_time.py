#!/usr/bin/env python3
"""Where does a build spend its time?

Reads .ninja_log of a build folder and prints, for each component and for the dearest files, the seconds from the start to the end of
each command of the last build of each output. These are wall-clock times of commands that ran side by side: compare shares, and builds
of one machine with the same --parallel. Objects that ccache answered count as next to nothing, so build cold with CCACHE_DISABLE=1:

    CCACHE_DISABLE=1 cmake --build build/release --clean-first
    benchmarks/build_time.py [--build build/release] [--files 20]
"""
import argparse
import collections
import pathlib
import re
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--files", type=int, default=20, help="how many of the dearest files are listed")
args = parser.parse_args()

log = pathlib.Path(args.build) / ".ninja_log"
if not log.is_file():
    sys.exit(f"{log}: no such file; build with Ninja first (cmake --preset release && cmake --build build/release)")

seconds = {}  # output -> of its last command
for line in log.read_text().splitlines():
    if line.startswith("#"):
        continue
    begin, end, _, output, _ = line.split("\t")
    seconds[output] = (int(end) - int(begin)) / 1000


def component(output):
    """The CMake target that an object belongs to; "link" for what is linked or archived."""
    found = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
    return found.group(1) if found else "link"


parts = collections.defaultdict(lambda: [0.0, 0])
for output, took in seconds.items():
    parts[component(output)][0] += took
    parts[component(output)][1] += 1
total = sum(seconds.values())
print(f"{'component':32} {'seconds':>8} {'share':>6} {'outputs':>8}")
for name, (took, outputs) in sorted(parts.items(), key=lambda part: -part[1][0]):
    print(f"{name:32} {took:8.1f} {100 * took / total:5.1f}% {outputs:8}")
print(f"{'all':32} {total:8.1f} {100.0:5.1f}% {len(seconds):8}\n\n{'file':72} {'seconds':>8}")
for output, took in sorted(seconds.items(), key=lambda one: -one[1])[: args.files]:
    print(f"{output[-72:]:72} {took:8.1f}")
