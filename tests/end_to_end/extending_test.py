"""The example of docs/extending.md, built from the page against an installed Tessera, trains; the public headers are what is installed."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import harness

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
sys.path.append(str(SOURCE / "tests/sanitizers"))
from chosen_tests import changed_files, git, state_before
PUBLIC = re.findall(r"[\w/]+\.h", re.sub("#.*", "", (SOURCE / "framework/public_headers.cmake").read_text().split("set(installed_headers")[0]))
PARTS = {"operations": "(autograd|tensor|kernels|base)/", "models": "(nn|model)/", "runs": "(cli|recipe|training|checkpoint|parallel|comm)/"}


def public_headers_of(part):
    """Of a part of PARTS, or those of "none"."""
    part_of = lambda header: next((name for name, folders in PARTS.items() if re.match(folders, header)), "none")
    return [header for header in PUBLIC if part_of(header) == part]


def reached_from(headers, folder):
    """The given headers, and all of ours that they include, as `folder` has them."""
    needed, reached = [f"framework/{header}" for header in headers], set()
    while needed:
        header = needed.pop()
        if header not in reached:
            reached.add(header)
            needed += re.findall(r'^#include "(framework/[^"]+)"', (folder / header).read_text(), re.MULTILINE)
    return reached


def to_compile(headers, changed, turn):
    """Of the headers those that changed since the last merge, themselves or by what they include: the others compiled then. And one of eight, by the
    number `turn`, as the compiler may have changed. All if `changed` is None: the history of the commit is not there."""
    if changed is None or "framework/public_headers.cmake" in changed:
        return headers
    return [header for number, header in enumerate(headers) if (number + turn) % 8 == 0 or not changed.isdisjoint(reached_from([header], SOURCE))]


class Extending(harness.InOwnFolder):
    def test_the_page_builds_against_an_install_and_trains(self):
        self.command("cmake", "--install", os.environ["TESSERA_BUILD"], "--prefix", self.folder / "prefix")
        self.command(self.folder / "prefix" / "bin" / "tessera", "--help")

        page = (SOURCE / "docs/extending.md").read_text()
        files = re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertEqual([name for name, _ in files], ["mine.cpp", "CMakeLists.txt", "mine.yaml"])
        for name, words in files:
            self.write(name, words)
        # Not Release: what is tested here is that it compiles, links and learns, and -O0 compiles in half the time.
        self.command("cmake", "-S", ".", "-B", "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.folder / 'prefix'}",
                     f"-DCMAKE_CXX_COMPILER={os.environ['TESSERA_COMPILER']}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wshadow -Werror")
        self.command("cmake", "--build", "build")

        mine = self.folder / "build" / "mine"
        self.assertIn("stairs", self.command(mine, "options", "stairs"))
        self.command(mine, "check", "mine.yaml")
        self.command(mine, "train", "mine.yaml")
        losses = self.losses()
        self.assertLess(losses[-1], 0.5 * losses[0], losses)

    def install_headers(self):
        self.command("cmake", "--install", os.environ["TESSERA_BUILD"], "--component", "dev", "--prefix", self.folder / "prefix")
        return self.folder / "prefix/include/tessera"

    def compile_alone(self, part):
        headers, public = self.install_headers(), public_headers_of(part)
        self.assertTrue(public)
        base = state_before()
        public = to_compile(public, changed_files(base) if base else None, int(git("rev-parse", "HEAD") or "0", 16))

        def complaint(header):
            return subprocess.run([os.environ["TESSERA_COMPILER"], "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{headers}",
                                   "-x", "c++", "-"], input=f'#include "framework/{header}"\n', text=True, stderr=subprocess.PIPE, timeout=300).stderr

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for header, words in zip(public, pool.map(complaint, public)):
                self.assertEqual(words, "", header)

    def test_what_public_headers_include_is_what_is_installed(self):
        headers = self.install_headers()
        reached = reached_from(PUBLIC, headers)
        for header in reached:
            others = re.findall(r"^#include <(.*[/.].*)>", (headers / header).read_text(), re.MULTILINE)
            self.assertEqual(others, [], f"{header} includes more than the standard library")
        self.assertEqual({str(path.relative_to(headers)) for path in headers.rglob("*.h")}, reached)

    def test_headers_are_compiled_that_a_change_reaches_and_in_turn_all_others(self):
        some = PUBLIC[:16]
        self.assertEqual(to_compile(some, None, 0), some)
        self.assertEqual(to_compile(some, {"framework/public_headers.cmake"}, 0), some)
        self.assertEqual(sorted(header for turn in range(8) for header in to_compile(some, set(), turn)), sorted(some))
        reached = [header for header in PUBLIC if "framework/base/error.h" in reached_from([header], SOURCE)]
        self.assertGreater(len(reached), 5)
        self.assertLessEqual(set(reached), set(to_compile(PUBLIC, {"framework/base/error.h"}, 0)))

    def test_each_public_header_of_operations_compiles_alone(self):
        self.compile_alone("operations")

    def test_each_public_header_of_models_compiles_alone(self):
        self.compile_alone("models")

    def test_each_public_header_of_runs_compiles_alone(self):
        self.compile_alone("runs")

    def test_each_other_public_header_compiles_alone(self):
        self.compile_alone("none")

    def test_pages_show_public_headers_only(self):
        for page in (SOURCE / "docs").glob("*.md"):
            for header in re.findall(r'#include "framework/([^"]+)"', page.read_text()):
                self.assertIn(header, PUBLIC, page.name)
        table = (SOURCE / "docs/extending.md").read_text().split("## The public headers")[1]
        named = [folder + name + ".h" for folder, names in re.findall(r"`([a-z/]+/)\{?([\w,]+)\}?\.h`", table) for name in names.split(",")]
        self.assertEqual(sorted(named), sorted(PUBLIC))


if __name__ == "__main__":
    harness.main()
