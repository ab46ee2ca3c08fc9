"""launch/install_dependencies.sh, launch/test.sh and the build of launch/common.sh, with stand-ins for apt-get, cmake, ctest and ninja."""

import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

import harness

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
LAUNCH = SOURCE / "launch"
LOCKED = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 612 (unattended-upgr)."
# Fails as the next line of the file `answers` says; without a line it succeeds. It notes what it was called with.
APT_GET = """#!/bin/bash
echo "$*" >>calls
if [[ -s answers ]]; then read -r words <answers; sed -i 1d answers; echo "$words"; exit 100; fi
"""
# Components of which nothing else is included in the tree of ChosenTests.
REST = ("autograd", "comm", "nn", "optim", "parallel", "worker")


class Scripts(harness.InOwnFolder):
    def install(self, answers, code=0):
        for name, words in (("apt-get", APT_GET), ("dpkg-query", "#!/bin/sh\necho 'installed base-files'\n"), ("sleep", "#!/bin/sh\n"), ("sudo", '#!/bin/sh\nexec "$@"\n')):
            self.write(f"bin/{name}", words).chmod(0o755)
        self.write("answers", "".join(f"{answer}\n" for answer in answers))
        (self.folder / "calls").unlink(missing_ok=True)
        done = subprocess.run([LAUNCH / "install_dependencies.sh", "run"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout, (self.folder / "calls").read_text().splitlines()

    def test_another_program_that_uses_apt_is_waited_for(self):
        told, calls = self.install([LOCKED] * 7)
        self.assertEqual(told.count("another program uses apt (held by process 612 (unattended-upgr))"), 1, told)
        self.assertNotIn("trying again", told)
        self.assertEqual(len(calls), 9)  # seven that found the lock, update, install
        self.assertRegex(calls[-1], "install bible-kjv bzip2 xz-utils$")

    def test_a_mirror_that_fails_is_tried_three_times(self):
        lost = "Err:1 deb bookworm InRelease: connection timed out"
        told, calls = self.install([lost, lost])
        self.assertEqual((told.count("trying again: Err:1"), len(calls)), (2, 4), told)
        told, calls = self.install([lost] * 3, code=1)
        self.assertIn("connection timed out\ninstall_dependencies: 'apt-get update' failed", told)
        self.assertEqual(["Error-Mode=any" in call for call in calls], [True, True, False])

    def test_wrong_words_for_packages_are_told_before_anything_is_built(self):
        shutil.copytree(LAUNCH, self.folder / "launch")
        for words, told in ((["--rpm"], "no option '--rpm'"), (["--output"], "--output needs a value"), (["--site", "nowhere"], "there is no folder")):
            done = subprocess.run(["launch/package.sh", *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(told, done.stdout)
        self.assertFalse((self.folder / "build").exists())

    def test_help_is_told_in_every_folder_and_nothing_else_is_done(self):
        shutil.copytree(LAUNCH, self.folder / "launch")
        for script in sorted((self.folder / "launch").glob("*.sh")):
            if "source \"$(dirname \"$0\")/common.sh\"" not in script.read_text():
                continue
            for folder, name in ((self.folder, f"launch/{script.name}"), (self.folder / "launch", f"./{script.name}"), ("/", script)):
                done = subprocess.run([name, "--help"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                with self.subTest(script=script.name, folder=folder):
                    self.assertEqual(done.returncode, 0, done.stdout)
                    self.assertEqual(done.stdout.splitlines()[0], script.read_text().splitlines()[1].removeprefix("# "))
                    self.assertNotIn("==", done.stdout)

    def test_a_build_says_how_far_it_is(self):
        words = f"source {LAUNCH}/common.sh; cd {self.folder}; "
        ninja = r"printf '[%d/4] Building CXX object\n' 0 1 2 3 4 | counted log"
        reader, writer = pty.openpty()
        subprocess.run(["bash", "-c", words + ninja], stdout=writer, stderr=subprocess.STDOUT, check=True)
        os.close(writer)
        told = harness.read_terminal(reader).decode()
        os.close(reader)
        for built in range(1, 4):  # whole seconds, which may change in between: "about 3 s left"
            self.assertRegex(told, rf"\r   built {built} of 4, about \d+ \w+ left")
        self.assertIn("\r   built 4 of 4, about 0 s left", told)
        self.assertEqual((self.folder / "log").read_text().count("Building"), 5)
        told = subprocess.run(["bash", "-c", words + ninja], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=True).stdout
        self.assertEqual(told, "")  # in a log: a line every half minute, and nothing that overwrites a line

    def test_seconds_by_part_and_the_slowest_tests_are_printed_before_the_total(self):
        shutil.copytree(LAUNCH, self.folder / "launch")
        self.write("tests/count_tests.py", (LAUNCH.parent / "tests/count_tests.py").read_text())
        self.write("docs/adding_things.md", "| tests | why they take longer |\n|---|---|\n| `Other`, `Test4998` | they are `Test4997` |\n\n`Test4996`\n")
        # More than a pipe holds: a reader that stops after ten lines would end the script.
        cases = "".join(f'<testcase name="Some.Test{n:04}" classname="x" time="{n}.5" status="run"/>\n' for n in range(4994))
        # Three processes of GoogleTest: one whose cases tell, one that failed at its end, one that left no file.
        cases += "".join(f'<testcase name="unit.x.{n}" classname="x" time="1" status="{status}"/>\n' for n, status in ((1, "fail"), (2, "fail"), (3, "fail")))
        cases += "".join(f'<testcase name="not.{n}" classname="x" time="0" status="{status}"/>\n' for n, status in ((1, "notrun"), (2, "disabled")))
        self.write("junit.xml", f"<testsuite>\n{cases}</testsuite>\n")
        ran = '<testcase name="Test{}" classname="Some" status="run" result="{}" time="{}.5">{}</testcase>\n'
        other = '<testcase name="Another" classname="Some" status="notrun" result="suppressed" time="0"/>\n'  # of another process
        self.write("given/unit.x.1.xml", "<testsuites>" + other + "".join(ran.format(*case) for case in (
            (4996, "completed", 4996, ""), (4997, "completed", 4997, '<failure message="no"/>'), (4998, "completed", 4998, ""),
            (4999, "completed", 4999, ""), (1, "skipped", 0, "<skipped/>"))) + "</testsuites>\n")
        self.write("given/unit.x.2.xml", "<testsuites>" + ran.format(4995, "completed", 4995, "") + "</testsuites>\n")
        self.write("bin/cmake", "#!/bin/sh\nexit 0\n").chmod(0o755)
        self.write("bin/ctest", "#!/bin/bash\nwhile [[ $1 != --output-junit ]]; do shift; done\ncp junit.xml \"$2\"\ncp -r given build/release/cases\n"
                   "exit 8\n").chmod(0o755)
        (self.folder / "build/release").mkdir(parents=True)
        done = subprocess.run(["launch/test.sh", "--no-install"], cwd=self.folder, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, lines[-1]), (1, "4998 passed, 3 failed, 3 skipped"), done.stdout)
        self.assertEqual([line for line in lines if line.startswith("failed ")], ["failed Some.Test4997", "failed unit.x.2", "failed unit.x.3"])
        self.assertRegex(lines[-12], r"^== seconds by part: build \d+ s, tests \d+ s, \d+ s in all; the slowest tests:$")
        unexplained = " (docs/adding_things.md does not say why it takes more than 5 s)"
        self.assertEqual(lines[-11:-1], [f"{n + .5:8.2f} s  Some.Test{n:04}{unexplained if n != 4998 else ''}" for n in [4999, 4998, 4997, 4996, 4995, 4993, 4992, 4991, 4990, 4989]])

    def test_the_tests_of_which_the_page_says_why_they_take_long_exist(self):
        tests = LAUNCH.parent / "tests"
        words = "".join(path.read_text() for pattern in ("*_test.cpp", "*_test.py", "CMakeLists.txt") for path in tests.rglob(pattern))
        named = set(re.findall(r"^class (\w+)|\bTEST(?:_[FP])?\((\w+),|add_test\(NAME (\w+)|^ranks_program\((\w+)", words, re.MULTILINE))
        named = {name for names in named for name in names}
        rows = re.search(r"\| tests \| why.*?\n\n", (LAUNCH.parent / "docs/adding_things.md").read_text(), re.DOTALL)[0].strip().splitlines()[2:]
        for row in rows:
            for name in re.findall(r"`(\w+)`", row.split("|")[1]):
                self.assertIn(re.sub(r"_on_\d+_ranks$", "", name), named)


class ChosenTests(harness.InOwnFolder):
    """tests/sanitizers/chosen_tests.py and compile_alone.py: a tree of components, each with a test."""

    def setUp(self):
        super().setUp()
        for name, words in (("framework/tensor/l.h", ""), ("framework/tensor/l.cpp", '#include "framework/tensor/l.h"\n'), ("tests/tensor/l_test.cpp", ""),
                            ("framework/kernels/m.h", '#include "framework/tensor/l.h"\n'), ("tests/kernels/m_test.cpp", ""),
                            ("framework/model/h.cpp", '#include "framework/kernels/m.h"\n'), ("tests/model/h_test.cpp", ""),
                            *((f"framework/{n}/x.cpp", "") for n in REST), *((f"tests/{n}/x_test.cpp", "") for n in REST),
                            ("framework/interop/shell/s.cpp", ""), ("tests/interop/shell/s_test.cpp", ""), ("tests/fuzz/zip_fuzz.cpp", "")):
            self.write(name, words)
        self.git("init", "-q", "-b", "work")
        self.commit("first")

    def git(self, *words):
        return self.command("git", "-c", "user.name=x", "-c", "user.email=x@x", *words)

    def commit(self, words):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", words)

    def chosen(self, *words):
        done = subprocess.run([sys.executable, "-B", SOURCE / "tests/sanitizers/chosen_tests.py", *words], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, check=True, env={**os.environ, "TESSERA_SOURCE": str(self.folder)})
        return done.stdout

    def programs(self, *words):
        return {line for line in self.chosen(*words).splitlines() if line[0] != "#"}

    def test_what_changed_is_tested_and_all_readers(self):
        self.write("framework/tensor/l.h", "int changed();\n")
        self.assertIn("\n# changed: tensor\n", self.chosen("--since", "HEAD"))
        self.assertLessEqual({"tensor_test", "interop_shell_test", "zip_fuzz"}, self.programs("--since", "HEAD"))
        self.git("checkout", "-q", ".")
        self.write("framework/kernels/n.cpp", "")  # a new file
        told = self.chosen("--since", "HEAD")
        self.assertIn("\n# changed: kernels\n", told)
        self.assertIn("\n# reads foreign input: interop/shell\n", told)

    def test_commits_choose_a_third_of_the_rest(self):
        seen = set()
        for commit in range(40):
            programs = self.programs("--since", "HEAD") - {"interop_shell_test", "zip_fuzz"}
            self.assertEqual(len(programs), 3, programs)  # of nine
            seen |= programs
            self.commit(f"commit {commit}")
            if len(seen) == 9:
                break
        self.assertEqual(len(seen), 9, seen)

    def test_sources_that_changed_and_a_sixteenth_of_the_rest_are_compiled_by_themselves(self):
        words = ("import sys; sys.path.insert(0, sys.argv[1]); import compile_alone\n"
                 "for commit in range(16): print(*compile_alone.sources_to_check({'framework/tensor/l.cpp'}, f'{commit:x}'))")
        for number in range(16):
            self.write(f"framework/tensor/more{number}.cpp", "")
        done = subprocess.run([sys.executable, "-B", "-c", words, SOURCE / "tests/sanitizers"], stdout=subprocess.PIPE, text=True, check=True,
                              env={**os.environ, "TESSERA_SOURCE": str(self.folder)})
        chosen = [set(line.split()) for line in done.stdout.splitlines()]
        sources = {path.relative_to(self.folder).as_posix() for path in (self.folder / "framework").rglob("*.cpp")}
        self.assertEqual(set.union(*chosen), sources)
        self.assertEqual(set.intersection(*chosen), {"framework/tensor/l.cpp"})
        self.assertEqual(sum(len(names) - 1 for names in chosen), len(sources) - 1)

    def test_a_source_that_does_not_include_what_it_uses_is_told_although_its_group_compiles(self):
        self.write("framework/tensor/a.cpp", "#include <string>\nstd::string a();\n")
        self.write("framework/tensor/l.cpp", "std::string l();\n")
        self.write("framework/tensor/n.cpp", "int n(int x) { { int x = 1; return x; } }\n")
        group = self.write("build/unity/tensor/tensor_0.cpp", "".join(f'#include "framework/tensor/{name}.cpp"\n' for name in "aln"))
        command = f"{os.environ['TESSERA_COMPILER']} -I{self.folder} -isystem {self.folder}/framework -std=c++20 -Wall -Werror -include no.h -o {self.folder}/x.o -c {group}"
        self.write("build/compile_commands.json", json.dumps([{"file": str(group), "command": command}]))
        done = subprocess.run([sys.executable, "-B", SOURCE / "tests/sanitizers/compile_alone.py", "build", "--since", "HEAD"], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, env={**os.environ, "TESSERA_SOURCE": str(self.folder)})
        self.assertEqual(done.returncode, 1, done.stdout)
        for name in "ln":  # a missing #include; a name that shadows another
            self.assertIn(f"framework/tensor/{name}.cpp does not compile by itself\n", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "1 sources compile by themselves, 2 do not")

    def test_the_last_merge_is_compared_with_and_without_history_everything_is_tested(self):
        self.assertIn("everything is tested", self.chosen())  # no merge yet
        self.assertEqual(len(self.programs()), 11)
        self.git("checkout", "-q", "-b", "part")
        self.write("framework/model/h.cpp", "")
        self.commit("part")
        self.git("checkout", "-q", "work")
        self.git("merge", "-q", "--no-ff", "-m", "merge", "part")
        self.assertIn("\n# changed: model\n", self.chosen())
        self.commit("after the merge")
        self.assertNotIn("# changed", self.chosen())
        shutil.rmtree(self.folder / ".git")
        self.assertEqual(len(self.programs()), 11)


if __name__ == "__main__":
    harness.main()
