"""The example of docs/extending.md, built from the page against an installed Tessera, trains."""

import os
import pathlib
import re

import harness


class Extending(harness.InOwnFolder):
    def test_the_page_builds_against_an_install_and_trains(self):
        self.command("cmake", "--install", os.environ["TESSERA_BUILD"], "--prefix", self.folder / "prefix")
        self.command(self.folder / "prefix" / "bin" / "tessera", "--help")

        page = (pathlib.Path(os.environ["TESSERA_SOURCE"]) / "docs" / "extending.md").read_text()
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


if __name__ == "__main__":
    harness.main()
