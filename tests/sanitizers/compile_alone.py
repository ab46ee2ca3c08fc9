#!/usr/bin/env python3
"""Checks that sources include what they use: compiles each by itself and without precompiled headers, without writing an object. Checked are those that
changed, and a sixteenth of the rest, which the commit's hash chooses. Builds compile sources of a folder together (framework/unity.cmake), where one
may rest on the #include of another. The last line is the total; what the compiler says stands before it.

    compile_alone.py BUILD [--since COMMIT]

BUILD: the build folder whose commands are taken. --since: as for chosen_tests.py."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from chosen_tests import ROOT, changed_files, git, state_before


def sources_to_check(changed, commit):
    """Sources of the programs."""
    sources = sorted(path.relative_to(ROOT).as_posix() for folder in ("framework", "launch") for path in (ROOT / folder).rglob("*.cpp"))
    rest = [source for source in sources if source not in (changed or ())]
    return sorted({*sources} - {*rest} | {*rest[int(commit, 16) % 16::16]})


def commands(build):
    """Source -> (compiler, its options of language, processor, includes and warnings), of the groups of sources that a build compiles together, too."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        sources = [path.relative_to(ROOT).as_posix()] if path.is_relative_to(ROOT) else []
        if path.is_relative_to(build / "unity"):
            sources = re.findall(r'^#include "([^"]+\.cpp)"', path.read_text(), re.M)
        words = shlex.split(entry["command"])
        compiler = next(at for at, word in enumerate(words) if pathlib.Path(word).name != "ccache")
        options = [word for word in words[compiler + 1:] if re.match(r"-[DIWm]|-std=", word) and word != "-Winvalid-pch"]
        options += [option for at, word in enumerate(words) if word == "-isystem" for option in words[at:at + 2]]
        for source in sources:
            found.setdefault(source, [words[compiler], *options])
    return found


def check(command, source):
    """What the compiler says of the source; None: it has no fault."""
    done = subprocess.run([*command, "-Wshadow", "-fsyntax-only", ROOT / source], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout + f"{source} does not compile by itself" if done.returncode != 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--since")
    args = parser.parse_args()
    base = args.since or state_before()
    changed, commit = changed_files(base) if base else None, git("rev-parse", "HEAD") or "0"
    compiled = commands(args.build)
    chosen = [source for source in sources_to_check(changed, commit) if source in compiled]
    print(f"== parsing {len(chosen)} sources by themselves", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [words for words in pool.map(lambda source: check(compiled[source], source), chosen) if words]
    print("\n".join([*said, f"{len(chosen) - len(said)} sources compile by themselves, {len(said)} do not"]))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
