#!/usr/bin/env python3
"""Plants faults in the sources, one at a time, and tells which of them a test notices.

faults.tsv has one fault a line, five columns between tabs:

    file       a source, from the root of the repository
    text       what stands there once
    fault      what is put in its place: the program then does something else, visibly
    program    the test program that must notice it, as CMake calls it
    tests      which of its tests, as --gtest_filter takes them

races.tsv has data races and missing synchronization in the same form; they are built with ThreadSanitizer (CMake preset
tsan), whose reports make a test program fail.

    plant.py --check               every row of both applies: the text occurs exactly once, and the tests are there
    plant.py [--races] [--only WORDS] [--limit N] [--folder DIR]
                                   build each fault in a copy of the repository and run its tests

--only takes rows where file, text, fault, program or tests contain WORDS. The copy and its build folder lie in DIR
(default: build/faults below the root) and are used again by the next call. A fault is `killed` when its tests fail or
run longer than ten minutes, `survived` when they pass, `invalid` when it does not compile. Exit code 1 when one survived
or is invalid."""

import argparse
import collections
import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTS, RACES = (pathlib.Path(__file__).with_name(name) for name in ("faults.tsv", "races.tsv"))
COLUMNS = ("file", "text", "fault", "program", "tests")
LONGEST = 600  # seconds

Fault = collections.namedtuple("Fault", COLUMNS + ("where",))


def read_table(table):
    faults = []
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != len(COLUMNS):
            sys.exit(f"{table.name}:{number}: has {len(fields)} columns, expected {len(COLUMNS)}: {', '.join(COLUMNS)}")
        faults.append(Fault(*fields, f"{table.name}:{number}: "))
    return faults


def names_of_tests(program):
    """The tests of tests/<component>/*_test.cpp, as gtest names them; one of each parameter."""
    component = program.removesuffix("_test")
    folder = ROOT / "tests" / component.replace("interop_", "interop/", 1)
    names = set()
    for source in folder.glob("*_test.cpp"):
        for kind, suite, name in re.findall(r"^TEST(_F|_P)?\((\w+),\s*(\w+)\)", source.read_text(encoding="utf-8"), re.M):
            names.add(f"Any/{suite}.{name}/any" if kind == "_P" else f"{suite}.{name}")
    return names


def problems(faults):
    """What is wrong with the rows, a line each."""
    known = {}
    for fault in faults:
        where = fault.where
        path = ROOT / fault.file
        if not path.is_file():
            yield where + f"no file {fault.file}; name another, or delete the row"
            continue
        count = path.read_text(encoding="utf-8").count(fault.text)
        if count != 1:
            yield where + f"{fault.file} has the text {count} times, expected once: {fault.text}"
        if fault.text == fault.fault:
            yield where + "the fault is the text itself; change it"
        names = known.setdefault(fault.program, names_of_tests(fault.program))
        for pattern in fault.tests.split(":"):
            if not fnmatch.filter(names, pattern):
                yield where + f"{fault.program} has no test {pattern}; name one that notices the fault"
    for fault, times in collections.Counter((f.file, f.text, f.fault) for f in faults).items():
        if times > 1:
            yield f"{times} rows for one fault in {fault[0]}: {fault[1]}"


class Copy:
    """A copy of the repository with a build folder of its own."""

    def __init__(self, folder, configuration):
        self.tree, self.build = folder / "tree", folder / "build"
        self.bring()
        done = subprocess.run(["cmake", "-S", self.tree, "-B", self.build, *configuration], cwd=self.tree,
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)

    def bring(self):
        """The files of the repository as they are; those that did not change keep their time."""
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                capture_output=True, check=True).stdout.decode().split("\0")
        names = {name for name in listed if name and (ROOT / name).is_file()}
        for name in names:
            source, target = ROOT / name, self.tree / name
            if target.is_file() and target.read_bytes() == source.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)
        for target in self.tree.rglob("*"):
            if target.is_file() and target.relative_to(self.tree).as_posix() not in names:
                target.unlink()

    def make(self, program):
        done = subprocess.run(["ninja", "-C", self.build, program], capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout[-2000:]

    def passes(self, fault):
        program = next(path for path in self.build.rglob(fault.program) if path.is_file())
        words = [program, f"--gtest_filter={fault.tests}"]
        try:
            return subprocess.run(words, cwd=self.build, capture_output=True, timeout=LONGEST).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def judge(self, fault):
        path = self.tree / fault.file
        sound = path.read_text(encoding="utf-8")
        try:
            path.write_text(sound.replace(fault.text, fault.fault), encoding="utf-8")
            if self.make(fault.program):
                return "invalid"
            return "survived" if self.passes(fault) else "killed"
        finally:
            path.write_text(sound, encoding="utf-8")


def plant(faults, copy):
    for program in sorted({fault.program for fault in faults}):
        if said := copy.make(program):
            sys.exit(f"{program} does not build as it is:\n{said}")
    verdicts = collections.Counter()
    failing = {fault for fault in faults if not copy.passes(fault)}  # without a fault
    for fault in faults:
        verdict = "invalid" if fault in failing else copy.judge(fault)
        verdicts[verdict] += 1
        print(f"{verdict:9}{fault.file}: {fault.text}  ->  {fault.fault}"
              f"{'; its tests fail without it' if fault in failing else ''}", flush=True)
    print(", ".join(f"{verdicts[verdict]} {verdict}" for verdict in ("killed", "survived", "invalid")))
    return 1 if verdicts["survived"] or verdicts["invalid"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only whether every row applies")
    parser.add_argument("--races", action="store_true", help="the rows of races.tsv, with ThreadSanitizer")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows with these words")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="the first N of them")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "faults", help="where copies are built")
    flags = parser.parse_args()
    faults, races = read_table(FAULTS), read_table(RACES)
    wrong = list(problems(faults + races))
    if wrong:
        sys.exit("\n".join(wrong))
    if flags.check:
        print(f"{len(faults)} faults and {len(races)} races apply")
        return 0
    chosen = [fault for fault in (races if flags.races else faults) if any(flags.only in field for field in fault[:-1])]
    configuration = ["--preset", "tsan"] if flags.races else ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                                                              "-DTESSERA_BENCHMARKS=OFF"]
    copy = Copy(flags.folder.resolve() / ("races" if flags.races else "."), configuration)
    return plant(chosen[:flags.limit] if flags.limit else chosen, copy)


if __name__ == "__main__":
    sys.exit(main())
