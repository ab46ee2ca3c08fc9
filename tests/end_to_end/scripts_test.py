"""launch/install_dependencies.sh and the build of launch/common.sh, with stand-ins for apt-get and ninja."""

import os
import pathlib
import pty
import subprocess

import harness

LAUNCH = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "launch"
LOCKED = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 612 (unattended-upgr)."
# Fails as the next line of the file `answers` says; without a line it succeeds. It notes what it was called with.
APT_GET = """#!/bin/bash
echo "$*" >>calls
if [[ -s answers ]]; then read -r words <answers; sed -i 1d answers; echo "$words"; exit 100; fi
"""


class Scripts(harness.InOwnFolder):
    def install(self, answers, code=0):
        for name, words in (("apt-get", APT_GET), ("dpkg-query", "#!/bin/sh\necho 'ii base-files'\n"), ("sleep", "#!/bin/sh\n"), ("sudo", '#!/bin/sh\nexec "$@"\n')):
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

    def test_a_build_says_how_far_it_is(self):
        words = f"source {LAUNCH}/common.sh; cd {self.folder}; "
        ninja = r"printf '[%d/4] Building CXX object\n' 0 1 2 3 4 | counted log"
        reader, writer = pty.openpty()
        subprocess.run(["bash", "-c", words + ninja], stdout=writer, stderr=subprocess.STDOUT, check=True)
        os.close(writer)
        told = os.read(reader, 10000).decode()
        os.close(reader)
        for built in range(1, 5):
            self.assertIn(f"\r   built {built} of 4, about 0 s left", told)
        self.assertEqual((self.folder / "log").read_text().count("Building"), 5)
        told = subprocess.run(["bash", "-c", words + ninja], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=True).stdout
        self.assertEqual(told, "")  # in a log: a line every half minute, and nothing that overwrites a line


if __name__ == "__main__":
    harness.main()
