"""`tessera doctor`: what the machine offers, for people and as JSON."""

import json
import os

from harness import InOwnFolder, main


class Doctor(InOwnFolder):
    def test_the_machine_is_measured(self):
        told = json.loads(self.tessera("doctor", "--json", "--threads", "1"))
        machine, rates = told["machine"], told["per_second"]
        self.assertEqual(machine["threads"], 1)
        self.assertEqual(machine["allowed_cores"], len(os.sched_getaffinity(0)))
        self.assertEqual(machine["instruction_sets"][0], "portable")
        self.assertIn(machine["instruction_set"], machine["instruction_sets"])
        self.assertIn("OpenBLAS", machine["blas"])
        self.assertIn("Open MPI", machine["mpi"])
        self.assertEqual(sorted(rates["matrix_product"]), ["bfloat16", "float16", "float32"])
        # A processor that runs this program at all does 10^8 operations and reads 10^8 bytes a second.
        for rate in [rates["fp32_multiply_adds"], *rates["matrix_product"].values(), rates["memory_read"], rates["memory_triad"],
                     rates["memory_update"]]:
            self.assertGreater(rate, 1e8)
        self.assertTrue(any("bf16" in note for note in told["notes"]))

    def test_a_forced_instruction_set_and_too_many_threads_are_told(self):
        cores = len(os.sched_getaffinity(0))
        told = self.tessera("doctor", "--threads", str(cores + 1), environment={"TESSERA_CPU": "portable"})
        self.assertRegex(told, r"used +portable \(TESSERA_CPU\)")
        self.assertIn(f"note: {cores + 1} threads share {cores} cores", told)


if __name__ == "__main__":
    main()
