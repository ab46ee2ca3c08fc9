"""The table of faults, tests/data/faults/rows.json, names tests that exist, and its runner finds what a run loses."""

import ast
import os
import pathlib
import subprocess
import sys
import unittest

import harness

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS.parent / "faults"))
import fault_run


class FaultRows(unittest.TestCase):
    def test_every_row_says_how_it_is_tested_or_why_not(self):
        rows = fault_run.rows()
        self.assertEqual(list(rows), list(range(1, len(rows) + 1)))
        for row in rows.values():
            self.assertTrue({"inject", "tests", "programs", "soak", "not covered"} & row.keys(), row)
            for name in row.get("tests", []):
                module, *path = name.split(".")
                nodes = ast.parse((TESTS / f"{module}.py").read_text()).body
                for word in path:
                    found = [node for node in nodes if getattr(node, "name", None) == word]
                    self.assertTrue(found, f"row {row['row']}: {name} does not exist")
                    nodes = found[0].body

    def test_the_page_has_the_table(self):
        self.assertIn(fault_run.table(), (TESTS.parent.parent / "docs/resilience.md").read_text(),
                      "docs/resilience.md: replace its table by what tests/faults/fault_run.py --table prints")

    def run_row(self, row, *more):
        """The line of the table that fault_run.py prints of a row."""
        told = subprocess.run([sys.executable, "-B", TESTS.parent / "faults" / "fault_run.py", os.environ["TESSERA_BUILD"], "--rows", row, *more],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(told.returncode, 0, told.stdout)
        return told.stdout

    def test_hangs_are_injected_and_their_times_are_taken(self):
        self.assertRegex(self.run_row("9", "--on", "TP 2, PP 2"), r"\n\| 9 \| .* 4 passed \| \d+\.\d\d \| \d+\.\d\d \| \d+ \|")

    def test_kills_of_several_ranks_are_injected_and_their_times_are_taken(self):
        self.assertRegex(self.run_row("12", "--on", "TP 2, PP 2"), r"\n\| 12 \| .* 3 passed \| \d+\.\d\d \| \d+\.\d\d \| \d+ \|")

    def test_tests_of_a_row_are_run(self):
        self.assertRegex(self.run_row("4"), r"\n\| 4 \| .* \| 1 passed \|")


if __name__ == "__main__":
    harness.main()
