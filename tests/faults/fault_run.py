#!/usr/bin/env python3
"""The faults of tests/data/faults/rows.json, one after the other, each compared with an undisturbed run of the same command.

    fault_run.py --table
    fault_run.py BUILD_FOLDER [--rows 1,5,9 | --soak N] [--seed S] [--on CONFIGURATION ...] [--draws N]

Prints a table: for each row what was run, whether nothing was lost, the longest time from fault to detection and from detection to the
next complete step, and the number of restarts. A row has faults to inject (resilience_config.inject_fault), tests of tests/end_to_end,
or programs of the build. --soak: N faults in one job: random ranks, steps, phases and modes, one to four ranks at a time. Exit code 1
if anything was lost; the line that repeats it is printed."""

import argparse
import concurrent.futures
import datetime
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROWS = HERE.parent / "data" / "faults" / "rows.json"
sys.path.insert(0, str(HERE.parent / "end_to_end"))
STEPS = 24


def environment_of(build):
    build = pathlib.Path(build).resolve()
    os.environ.update({"TESSERA_BUILD": str(build), "TESSERA_PROGRAM": str(build / "framework" / "tessera"),
                       "TESSERA_SOURCE": str(HERE.parent.parent), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    os.environ.setdefault("TESSERA_COMPILER", "c++")
    return build


def rows():
    return {row["row"]: row for row in json.loads(ROWS.read_text())}


def table():
    """The rows as docs/resilience.md has them."""
    lines = ["| row | fault | how it is tested |", "|---|---|---|"]
    for number, row in rows().items():
        how = []
        if "inject" in row or "soak" in row:
            how.append("injected on " + "; ".join(row["on"]))
        tests = row.get("tests", [])
        if tests:
            files = sorted({f"`{name.split('.')[0]}.py`" for name in tests})
            how.append(f"{len(tests)} {'test' if len(tests) == 1 else 'tests'} of {', '.join(files)}")
        how += [f"`{line.split(' --gtest_filter=')[-1]}`" for line in row.get("programs", [])]
        if "not covered" in row:
            how.append(row["not covered"])
        lines.append(f"| {number} | {row['fault']} | {'; '.join(how)} |")
    return "\n".join(lines) + "\n"


def seconds_of(words):
    return datetime.datetime.strptime(words, "%Y-%m-%d %H:%M:%S.%f").timestamp()


class Watch(threading.Thread):
    """When each line of a file came."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.times, self.done = path, [], False
        self.start()

    def run(self):
        while not self.done:
            lines = self.path.read_bytes().count(b"\n") if self.path.exists() else 0
            self.times += [time.time()] * (lines - len(self.times))
            time.sleep(.002)

    def end(self):
        self.done = True
        self.join()
        return self.times


class Outcome:
    def __init__(self):
        self.passed, self.failed, self.skipped, self.restarts = 0, [], [], 0
        self.detection, self.recovery = [], []

    def words(self):
        most = lambda values: f"{max(values):.2f}" if values else ""
        done = f"{self.passed} passed" + (f", {len(self.failed)} FAILED" if self.failed else "") + \
            (f", {len(self.skipped)} skipped" if self.skipped else "")
        return f"{done} | {most(self.detection)} | {most(self.recovery)} | {self.restarts or ''}"


def detected_in(log):
    """The moments at which tsrun says that a rank failed, in its scheduler.log."""
    return [seconds_of(found) for found in
            re.findall(r"^([\d-]+ [\d:.]+) (?:rank|\d+ ranks|all ranks)\b.*(?:was ended|ended with|hung|stopped)", log, re.M)]


def times_of(log, workers, appended):
    """Seconds from each injected fault to its detection, and from there to the next line of metrics."""
    injected = sorted(seconds_of(found) for path in workers
                      for found in re.findall(r"^\[([\d :.-]+)\] \[rank \d+\] \[warning\] \[resilience\] injected fault", path.read_text(), re.M))
    detected = detected_in(log)
    detection, recovery = [], []
    for found in detected:
        before = [moment for moment in injected if moment <= found]
        after = [moment for moment in appended if moment >= found]
        if before:
            detection.append(found - max(before))
        if after:
            recovery.append(min(after) - found)
    return detection, recovery


ON_HOSTS = "two hosts"  # a configuration of --soak: 4 ranks with bf16 and a distributed optimizer


def job_type(on_hosts=False):
    """A test case that makes one job with faults, in a folder of its own, and leaves nothing."""
    import faults_test  # needs the environment above

    class Job(faults_test.FaultsOnHosts if on_hosts else faults_test.Faults):
        def runTest(self):
            pass

        def start(self, name, configuration, *more):
            """The tsrun processes; the first one leads."""
            if not on_hosts:
                return [self.start_tsrun(*faults_test.line_of(configuration, name, *more))]
            line = faults_test.line_of("bf16, distributed optimizer", name, *more)[2:]
            return [self.start_host(host, f"--worker_log_name={name}", program=line) for host in range(2)]

        def logs(self, name):
            if not on_hosts:
                log = self.folder / name / "log"
                return log / "scheduler.log", list(log.glob("worker_*.log"))
            return self.folder / "logs0/scheduler.log", list(self.folder.glob(f"logs?/{name}_*.log"))

        def disturbed(self, name, configuration, faults, steps, more, outcome):
            watch = Watch(self.folder / name / "metrics.jsonl")
            length = ["--set", f"training_config.training_iters={steps}"]
            jobs = self.start(name, configuration, *length, *more, *faults_test.inject(faults))
            with concurrent.futures.ThreadPoolExecutor() as pool:  # who is not read would wait
                ends = list(pool.map(lambda job: self.words_of(job, 200 + 5 * len(faults)), jobs))
            for job, words in zip(jobs, ends):
                self.assertEqual(job.returncode, 0, words[-4000:])
            told = ends[0]
            appended = watch.end()
            outcome.restarts += told.count("starting all workers again")
            scheduler, workers = self.logs(name)
            detection, recovery = times_of(scheduler.read_text(), workers, appended)
            outcome.detection += detection
            outcome.recovery += recovery
            self.assertIn("starting all workers again", told)
            self.assert_nothing_lost(name, about=told[-4000:])
            self.assert_nothing_left()

        def words_of(self, job, timeout):
            try:
                return job.communicate(timeout=timeout)[0]
            except subprocess.TimeoutExpired:
                job.kill()
                return f"still runs after {timeout} s:\n" + job.communicate()[0]

        def undisturbed(self, configuration, steps):
            jobs = self.start("undisturbed", configuration, "--set", f"training_config.training_iters={steps}")
            with concurrent.futures.ThreadPoolExecutor() as pool:
                for job, words in zip(jobs, pool.map(lambda job: self.words_of(job, 300), jobs)):
                    self.assertEqual(job.returncode, 0, words)

    return Job, faults_test


def in_a_case(job_class, configuration, steps, runs, outcome):
    """One job for each of `runs`, which are their faults, further options and what repeats them, compared with one undisturbed run."""
    case = job_class()
    try:
        case.setUp()
        case.undisturbed(configuration, steps)
    except unittest.SkipTest as reason:
        outcome.skipped.append(f"{configuration}: {reason}")
        runs = []
    except Exception as error:  # of the assertions, too
        outcome.failed.append(f"{configuration}, undisturbed\n{error}")
        runs = []
    for number, (faults, more, about) in enumerate(runs):
        try:
            case.disturbed(f"disturbed{number}", configuration, faults, steps, more, outcome)
            outcome.passed += 1
        except Exception as error:
            outcome.failed.append(f"{about}\n{error}")
            case.end_everything()
    case.doCleanups()


def injected(row, configurations, draws, seed, outcome):
    job_class, faults_test = job_type()
    draw = random.Random(seed)
    for configuration in configurations or row["on"]:
        ranks, runs = faults_test.CONFIGURATIONS[configuration][0], []
        for pattern in row["inject"]:
            for phase in row.get("phases", ["update"]) if "{phase}" in pattern else [""]:
                for _ in range(draws):
                    words = pattern.format(rank=draw.randrange(ranks), other=draw.randrange(ranks), phase=phase,
                                           step=4 * draw.randrange(1, 5) if phase == "evaluate" else 5 if phase == "save" else draw.randrange(2, STEPS),
                                           last=ranks - 1)
                    faults = [each.replace("*", str(rank), 1) for each in words.split()
                              for rank in (range(ranks) if each.startswith("*") else [0])]
                    runs.append((faults, row.get("more", []), f"{configuration}: --set 'resilience_config.inject_fault=[{', '.join(faults)}]'"))
        in_a_case(job_class, configuration, STEPS, runs, outcome)


def soak(configuration, count, seed, outcome):
    job_class, faults_test = job_type(configuration == ON_HOSTS)
    ranks = 4 if configuration == ON_HOSTS else faults_test.CONFIGURATIONS[configuration][0]
    steps = 2 * count
    without = ["update"] if "fp16" in configuration else []
    faults = faults_test.random_faults(random.Random(seed), ranks, count, without, steps)
    about = f"fault_run.py BUILD --soak {count} --seed {seed} --on '{configuration}'"
    in_a_case(job_class, configuration, steps, [(faults, [], about)], outcome)


def tests_of(row, outcome):
    for name in row["tests"]:
        suite = unittest.defaultTestLoader.loadTestsFromName(name)
        told = io.StringIO()
        result = unittest.TextTestRunner(told, verbosity=2).run(suite)
        outcome.passed += result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped)
        outcome.skipped += [f"{name}: {reason}" for _, reason in result.skipped]
        outcome.failed += [f"{case}\n{trace}" for case, trace in result.failures + result.errors]


def programs_of(row, build, outcome):
    for line in row["programs"]:
        words = [str(build / "tests" / word) if word.endswith("_test") else word for word in line.split()]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0 and "[  PASSED  ] 0 tests" not in done.stdout:
            outcome.passed += 1
        else:
            outcome.failed.append(f"{line}\n{done.stdout[-3000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?")
    parser.add_argument("--table", action="store_true", help="print the table of docs/resilience.md, and run nothing")
    parser.add_argument("--rows", help="numbers, separated by commas; default: all")
    parser.add_argument("--soak", type=int, help="this many faults in one job, instead of rows")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--on", action="append", help="inject faults only, on this configuration of tests/end_to_end/faults_test.py, "
                        "with --soak also 'two hosts' (needs root); may be repeated")
    parser.add_argument("--draws", type=int, default=1, help="random ranks and steps for each fault")
    options = parser.parse_args()
    if options.table:
        return print(table(), end="")
    if options.build is None:
        parser.error("BUILD_FOLDER is missing")
    build = environment_of(options.build)
    print(f"seed {options.seed}\n\n| row | fault | runs | T_d, s | T_r, s | restarts |\n|---|---|---|---|---|---|")
    failed = []
    if options.soak:
        for configuration in options.on or ["DP 3", "TP 2, PP 2", ON_HOSTS]:
            outcome = Outcome()
            soak(configuration, options.soak, options.seed, outcome)
            print(f"| 39 | {options.soak} random faults in one job, {configuration} | {outcome.words()} |", flush=True)
            failed += outcome.failed
        finish(failed)
    all_rows = rows()
    for number in map(int, options.rows.split(",")) if options.rows else sorted(all_rows):
        row, outcome = all_rows[number], Outcome()
        if "not covered" in row:
            print(f"| {number} | {row['fault']} | not covered: {row['not covered']} | | | |", flush=True)
            continue
        if "inject" in row:
            injected(row, options.on, options.draws, options.seed + number, outcome)
        for configuration in row["on"] if "soak" in row else []:
            soak(configuration, row["soak"], options.seed, outcome)
        if "tests" in row and not options.on:
            tests_of(row, outcome)
        if "programs" in row and not options.on:
            programs_of(row, build, outcome)
        print(f"| {number} | {row['fault']} | {outcome.words()} |", flush=True)
        for reason in outcome.skipped:
            print(f"skipped: {reason}", file=sys.stderr)
        failed += [f"row {number}: {about}" for about in outcome.failed]
    finish(failed)


def finish(failed):
    for about in failed:
        print(f"\nFAILED {about}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
