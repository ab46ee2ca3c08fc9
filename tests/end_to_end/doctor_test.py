"""`tessera doctor`: what the machine offers, for people and as JSON."""

import json
import os
import pathlib
import re
import subprocess

from harness import InOwnFolder, main, program


class Doctor(InOwnFolder):
    def test_the_machine_is_measured(self):
        told = json.loads(self.tessera("doctor", "--json", "--threads", "1"))
        machine, rates = told["machine"], told["per_second"]
        self.assertEqual(machine["threads"], 1)
        self.assertEqual(machine["allowed_cores"], len(os.sched_getaffinity(0)))
        self.assertEqual(machine["instruction_sets"][0], "portable")
        self.assertIn(machine["instruction_set"], machine["instruction_sets"])
        self.assertRegex(machine["blas"], r"^OpenBLAS \d")
        self.assertIn("Open MPI", machine["mpi"])
        self.assertEqual(sorted(rates["matrix_product"]), ["bfloat16", "float16", "float32"])
        for rate in [rates["fp32_multiply_adds"], *rates["matrix_product"].values(), rates["memory_read"], rates["memory_triad"],
                     rates["memory_update"]]:
            self.assertGreater(rate, 0)
        self.assertTrue(any("bf16" in note for note in told["notes"]))

    def test_little_memory_is_measured_too(self):
        # The streams are 384 MiB where there is more.
        told = self.command("bash", "-c", f"ulimit -v 500000; exec {program()} doctor --threads 1")
        self.assertRegex(told, r"memory, read +[\d.]+ GB/s")

    def test_a_forced_instruction_set_and_too_many_threads_are_told(self):
        cores = len(os.sched_getaffinity(0))
        told = self.tessera("doctor", "--threads", str(cores + 1), environment={"TESSERA_CPU": "portable"})
        self.assertRegex(told, r"used +portable \(TESSERA_CPU\)")
        self.assertRegex(told, rf"note: {cores + 1} threads share \d+ cores")

    def test_without_openblas_only_what_needs_it_is_refused(self):
        listed = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
        library = os.path.realpath(re.search(r"libopenblas\.so\.0 .*=> (\S+)", listed).group(1))

        def hidden(*words, kernels=""):
            """Run where the library is an empty file."""
            return subprocess.run(["unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {library} && exec "$@"', "sh", *words], cwd=self.folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TESSERA_CPU": kernels})
        if hidden("true").returncode != 0:
            self.skipTest("files cannot be hidden here (root is needed)")
        why = r"OpenBLAS cannot be loaded: .*Install Debian's libopenblas0"
        self.assertRegex(hidden(program(), "doctor").stdout, why)
        refused = hidden(program(), "train", "tiny.yaml", kernels="portable")
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertRegex(refused.stdout, why)
        if len(json.loads(self.tessera("doctor", "--json"))["machine"]["instruction_sets"]) > 1:
            trained = hidden(program(), "train", "tiny.yaml")
            self.assertEqual(trained.returncode, 0, trained.stdout)

    def in_a_group_of_one_core(self):
        """Moves the calling process into a control group of one core. Returns its folder, or None where none can be made."""
        version1 = pathlib.Path("/sys/fs/cgroup/cpu").is_dir()
        group = pathlib.Path("/sys/fs/cgroup/cpu" if version1 else "/sys/fs/cgroup") / f"tessera_doctor_{os.getpid()}"
        try:
            group.mkdir()
            self.addCleanup(lambda: group.exists() and group.rmdir())
            for name, words in {"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "50000"}.items() if version1 else [("cpu.max", "50000 50000")]:
                (group / name).write_text(words)
        except OSError:
            return None
        return group

    def test_a_quota_of_the_control_group_is_told_and_limits_the_threads(self):
        group = self.in_a_group_of_one_core()
        if group is None:
            self.skipTest("control groups cannot be made here")
        words = [program(), "doctor", "--json"]
        told = subprocess.run(["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *words], stdout=subprocess.PIPE,
                              text=True, check=True).stdout
        machine = json.loads(told)["machine"]
        self.assertEqual((machine["cpu_quota"], machine["usable_cores"], machine["threads"]), (1, 1, 1))
        self.assertIn(group.name, machine["cpu_quota_source"])


if __name__ == "__main__":
    main()
