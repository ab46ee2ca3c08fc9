"""The programs of docs/tutorial_tensor_parallel.md, built from the page against an installed Tessera, show what it says."""

import os
import pathlib
import re

import harness
from launching import Launching

PAGE = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "docs" / "tutorial_tensor_parallel.md"


class Tutorial(Launching):
    def build(self):
        self.command("cmake", "--install", os.environ["TESSERA_BUILD"], "--prefix", self.folder / "prefix")
        files = re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", self.page, re.MULTILINE | re.DOTALL)
        self.assertEqual([name for name, _ in files], ["CMakeLists.txt", "cells.cpp", "simple_gpt.cpp"])
        for name, words in files:
            self.write(name, words)
        # Not Release: what is tested here is that it compiles, links and learns, and -O0 compiles in half the time.
        self.command("cmake", "-S", ".", "-B", "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.folder / 'prefix'}",
                     f"-DCMAKE_CXX_COMPILER={os.environ['TESSERA_COMPILER']}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wshadow -Werror")
        self.command("cmake", "--build", "build")

    def line_of_the_page(self, beginning):
        """Run the page's own command."""
        lines = [line for line in self.page.splitlines() if line.startswith(beginning)]
        self.assertEqual(len(lines), 1, beginning)
        return self.tsrun(*lines[0].split()[1:], timeout=200)

    def check_the_cells(self):
        told = self.line_of_the_page("tsrun --nproc_per_node 8 build/cells")
        self.assertIn("Broadcast assertion passed", told)
        self.assertIn("Reduce assertion passed", told)
        for rank in range(8):
            self.assertIn(f"rank {rank}: gradient given {rank}, gradient summed {6 if rank < 4 else 22}", told)
            even = rank // 2 * 2
            self.assertIn(f"rank {rank}: gathered 8 x {even}, 8 x {even + 1}", told)
        few = self.tsrun("--nproc_per_node", 4, "build/cells", code=134)  # a program that throws out of main is aborted
        self.assertIn("4 processes do not divide by tensor 2 x pipeline 4", few)

    def numbers(self, told, pattern):
        return [float(number) for number in re.findall(pattern + r" loss (\d+\.\d+)", told)]

    def check_the_model(self):
        trained = self.line_of_the_page("tsrun --nproc_per_node 2 build/simple_gpt")
        loaded = self.line_of_the_page("tsrun --nproc_per_node 4 build/simple_gpt")
        losses = self.numbers(trained, r"iteration \d:")
        self.assertEqual(len(losses), 5)
        for before, after in zip(losses, losses[1:]):
            self.assertLess(after, before, losses)
        said = self.numbers(self.page, r"iteration \d:") + self.numbers(self.page, "micro batch has")[:1]
        next_loss = self.numbers(trained, "micro batch has")
        # fp32 sums in another order, and six digits that are printed.
        for one, other in zip(losses + next_loss, said, strict=True):
            self.assertLess(abs(one - other), 2e-5, f"the page says {said}")
        self.assertNotIn("iteration", loaded)
        for told in (trained, loaded):
            self.assertIn("Successfully loaded the model", told)
        self.assertLess(abs(self.numbers(loaded, "micro batch has")[0] - next_loss[0]), 2e-6)
        self.check_a_single_process_trains_the_same(losses)

    def check_a_single_process_trains_the_same(self, losses):
        alone = self.command(self.folder / "build" / "simple_gpt", "train")
        for one, other in zip(self.numbers(alone, r"iteration \d:"), losses, strict=True):
            self.assertLess(abs(one - other), 2e-5)

    def test_the_page_builds_against_an_install_and_shows_what_it_says(self):
        self.page = PAGE.read_text()
        self.build()
        self.check_the_cells()
        self.check_the_model()


if __name__ == "__main__":
    harness.main()
