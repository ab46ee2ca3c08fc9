#!/usr/bin/env python3
"""Which unit test programs launch/test.sh --sanitize builds and runs, one a line; lines that begin with # say why.

Always: the tests of all readers of foreign input, with the inputs kept for their fuzzers. Then those of every component of
which a source, a header or a test has changed, and a third of the rest, which the commit's hash chooses.
Everything runs where the history of the commit is not there, or when CMakePresets.json changed.

    chosen_tests.py [--since COMMIT]

--since: the state to compare with. Default: where this branch left origin/main; on main itself the state before its last merge."""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).resolve().parents[2]))

# Components that read nothing but what Tessera itself has made. All others read files, settings or messages of others.
NO_READERS = ("autograd", "base", "cli", "comm", "kernels", "log", "model", "nn", "optim", "parallel", "recipe", "reporting", "resilience",
              "schedule", "tensor", "training", "worker")


def git(*words):
    """What git prints; None if it fails or is absent."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def state_before():
    """The commit to compare with; None: the history does not tell."""
    head = git("rev-parse", "HEAD")
    for branch in ("origin/main", "origin/master"):
        base = git("merge-base", "HEAD", branch)
        if base and base != head:
            return base
    if not head:
        return None
    return git("rev-parse", "--verify", "--quiet", "HEAD^1") if git("rev-parse", "--verify", "--quiet", "HEAD^2") else git(
        "rev-list", "--merges", "-n", "1", "HEAD") or None


def changed_files(base):
    """Files that differ from `base`, committed or not; None if that cannot be told."""
    different, new = git("diff", "--name-only", "--no-renames", base, "--"), git("ls-files", "--others", "--exclude-standard")
    return None if different is None or new is None else set(different.splitlines()) | set(new.splitlines())


def components():
    """Each component that has unit tests -> its own sources and tests."""
    found = {}
    for test in sorted((ROOT / "tests").rglob("*_test.cpp")):
        folder = test.parent.relative_to(ROOT / "tests").as_posix()
        sources = ROOT / ("launch/tsrun" if folder == "launch" else f"framework/{folder}")
        if sources.is_dir() and folder not in found:
            files = [*sources.rglob("*"), *test.parent.glob("*")]
            found[folder] = {path.relative_to(ROOT).as_posix() for path in files if path.suffix in (".cpp", ".h", ".inc")}
    return found


def program_of(component):
    return component.replace("/", "_") + "_test"


def choose(found, changed, commit):
    """Component -> why its tests run. `changed` None: everything runs."""
    if changed is None or "CMakePresets.json" in changed:
        return {component: "everything" for component in found}
    chosen = {component: "reads foreign input" for component in found if component not in NO_READERS}
    for component, files in found.items():
        if component not in chosen and not changed.isdisjoint(files):
            chosen[component] = "changed"
    rest = [component for component in found if component not in chosen]
    size = {component: sum((ROOT / name).stat().st_size for name in found[component]) for component in rest}
    rest.sort(key=lambda component: (-size[component], component))  # so that the largest are in different thirds
    for number, component in enumerate(rest):
        if (number + int(commit, 16)) % 3 == 0:
            chosen[component] = f"a third of the rest, by the hash of commit {commit[:8]}"
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since")
    args = parser.parse_args()
    base = args.since or state_before()
    changed, commit = changed_files(base) if base else None, git("rev-parse", "HEAD") or "0"
    found = components()
    chosen = choose(found, changed, commit)
    print(f"# compared with commit {base[:8]}: {len(changed)} files differ" if changed is not None
          else "# no commit to compare with: everything is tested")
    for why in sorted(set(chosen.values())):
        print(f"# {why}: {', '.join(component for component in sorted(chosen) if chosen[component] == why)}")
    left = [component for component in sorted(found) if component not in chosen]
    if left:
        print(f"# not tested with sanitizers this time (--all tests everything): {', '.join(left)}")
    for component in sorted(chosen):
        print(program_of(component))
    for source in sorted((ROOT / "tests/fuzz").glob("*_fuzz.cpp")):
        print(source.stem)


if __name__ == "__main__":
    sys.exit(main())
