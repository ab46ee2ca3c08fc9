"""Disks that fail while a checkpoint is saved: errors and short writes cost nothing; what a disk claims to have written and has not is found by
its checksum when it is loaded, and the checkpoint before is used."""

import random

import faults_test
import harness
from bad_samples_test import file_fault
from faults_test import line_of
from harness import sets
from launching import Launching, compile_preloaded

ON = "bf16, distributed optimizer"  # where each rank writes a file of weights and one of optimizer state


class FailingDisk(Launching):
    state, assert_nothing_lost = faults_test.Faults.state, faults_test.Faults.assert_nothing_lost

    def setUp(self):
        super().setUp()
        self.seed = random.randrange(10**9)
        self.random = random.Random(self.seed)
        self.library = compile_preloaded(self.folder, "file_faults")
        self.tsrun(*line_of(ON, "undisturbed"))

    def test_errors_and_short_writes_while_saving(self):
        for kind, rank in (("write", self.random.randrange(3)), ("sync", self.random.randrange(3)), ("short", self.random.randrange(3))):
            with self.subTest(kind):
                fault = file_fault(self.library, rank, "iter_0000010_tmp/", f"{kind} {self.random.randrange(1, 3)}")
                self.assertNotIn("starting all workers again", self.tsrun(*line_of(ON, kind), environment=fault))
                told = (self.folder / kind / "tessera.log").read_text()
                about = f"seed {self.seed}, rank {rank}\n{told}"
                if kind == "short":
                    self.assertNotIn("could not save", told, about)
                else:
                    self.assertRegex(told, r"could not save iteration 10: .*network_iter_0000010_tmp/\S+: cannot be (written|brought to the disk): Input/output error", about)
                    self.assertRegex(told, r"The last good checkpoint is \S*network_iter_0000005; training continues", about)
                names = [path.name for path in self.checkpoints(kind)]
                self.assertEqual("network_iter_0000010" in names, kind == "short", about)
                self.assertEqual([path for path in (self.folder / kind / "checkpoints").iterdir() if path.name.endswith("_tmp")], [], about)
                self.assert_nothing_lost(kind, about=about)

    def test_a_write_that_did_not_happen_is_found_by_its_checksum(self):
        rank, number = self.random.randrange(3), self.random.randrange(1, 5)
        fault = file_fault(self.library, rank, "iter_0000010_tmp/", f"lie {number}")
        about = f"seed {self.seed}, rank {rank}, write {number}"
        self.tsrun(*line_of(ON, "lying", *sets(exit_interval=10)), environment=fault)
        self.assertEqual(self.checkpoints("lying")[-1].name, "network_iter_0000010", about)
        self.tsrun(*line_of(ON, "lying"))
        told = (self.folder / "lying/tessera.log").read_text()
        self.assertRegex(told, "network_iter_0000010.*its CRC is not the one it was saved with", f"{about}\n{told}")
        self.assertEqual(len(list((self.folder / "lying/checkpoints").glob("network_iter_0000010_damaged"))), 1, about)
        self.assert_nothing_lost("lying", about=f"{about}\n{told}")


if __name__ == "__main__":
    harness.main()
