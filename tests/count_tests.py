#!/usr/bin/env python3
"""The results of a run of ctest, one test a line, as launch/test.sh counts them: "passed|failed|skipped SECONDS NAME".

    count_tests.py JUNIT CASES

JUNIT: what ctest writes with --output-junit. CASES: a folder in which a process of GoogleTest has left NAME.xml, where NAME is its test of ctest; its
cases stand for that test. A process that failed although no case of it did, as by a leak at its end, or that left no file, is a failed test."""

import pathlib
import sys
import xml.etree.ElementTree


def result_of_test(case):
    """Of a <testcase> of ctest."""
    status = case.get("status")
    return "failed" if status == "fail" or case.find("failure") is not None else "passed" if status == "run" else "skipped"


def cases_in(path):
    """(result, seconds, name) of the cases that a process of GoogleTest ran."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.get("status") == "run":
            result = "failed" if case.find("failure") is not None else "skipped" if case.get("result") == "skipped" else "passed"
            yield result, float(case.get("time")), f"{case.get('classname')}.{case.get('name')}"


def results(junit, folder):
    for test in xml.etree.ElementTree.parse(junit).iter("testcase"):
        own = result_of_test(test), float(test.get("time") or 0), test.get("name")
        path = folder / f"{own[2]}.xml"
        if not path.is_file():
            yield own
            continue
        cases = list(cases_in(path))
        yield from cases
        if own[0] == "failed" and all(result != "failed" for result, _, _ in cases):
            yield own


if __name__ == "__main__":
    for result, seconds, name in results(sys.argv[1], pathlib.Path(sys.argv[2])):
        print(result, f"{seconds:.2f}", name)
