"""The job files of launch/: Slurm's runs in a lab on this machine, Kubernetes' is held to a closed schema."""

import copy
import os
import pathlib
import re
import shutil
import sys
import unittest

import harness
import launching
import mpijob_schema
import slurm_lab

LAUNCH = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2])) / "launch"

# Takes the place of tessera: answers tsrun's question, tells its rank, and on TERM saves and ends.
STUB = """\
import os, signal, sys, time
if "--print-output-dir" in sys.argv:
    print("{lab}/run"), sys.exit(0)
def save(*_):
    print("saved"), sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", os.uname().nodename, flush=True)
time.sleep({seconds})
"""


class SlurmJob(unittest.TestCase):
    def setUp(self):
        self.lab = slurm_lab.SlurmLab(nodes=2)
        self.addCleanup(self.lab.close)
        for name in ("tsrun", "tessera"):
            shutil.copy(launching.beside_program(name), self.lab.folder / name)
        shutil.copy(launching.worker(), self.lab.folder)
        shutil.copy(LAUNCH / "slurm.sbatch", self.lab.folder)

    def provide_stub(self, seconds):
        (self.lab.folder / "stub.py").write_text(STUB.format(lab=self.lab.folder, seconds=seconds))
        (self.lab.folder / "tessera").write_text(f"#!/bin/sh\nexec {sys.executable} {self.lab.folder}/stub.py \"$@\"\n")

    def submit(self, *words):
        told = self.lab.ask("sbatch", "--parsable", "--cpus-per-task=2", "slurm.sbatch", *words, cwd=self.lab.folder,
                            environment={"PATH": f"{self.lab.folder}:{os.environ['PATH']}"})
        self.assertRegex(told, r"^\d+$", self.lab.logs())
        return told

    def output(self, job):
        path = self.lab.folder / f"tessera-{job}.out"
        return path.read_text() if path.exists() else ""

    def wait(self, holds, what, job):
        try:
            self.lab.until(holds, what)
        except RuntimeError as error:
            self.fail(f"{error}\n{self.output(job)}\n{self.lab.logs()}")

    def wait_for_state(self, job, state):
        self.wait(lambda: self.lab.state(job).get("JobState") == state, f"state {state}", job)

    def test_the_file_starts_all_workers_and_saves_and_requeues_before_the_time_limit(self):
        self.provide_stub(seconds=0)
        job = self.submit("recipe.yaml")
        self.wait_for_state(job, "COMPLETED")
        told = self.output(job)
        self.assertIn("4 workers on n1", told)
        logs = "".join(path.read_text() for path in (self.lab.folder / "run/log").glob("worker_*.log"))
        self.assertEqual(sorted(re.findall(r"rank (\d) of 4 on (n\d)", logs)), [("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2")])

        self.provide_stub(seconds=300)
        shutil.rmtree(self.lab.folder / "run")
        job = self.submit("recipe.yaml")
        # Slurm sends this by itself 300 s before the limit.
        self.wait(lambda: len(set(re.findall(r"rank \d of 4 on n", self.output(job)))) == 4, "four workers", job)
        self.lab.ask("scancel", "--signal=USR1", "--batch", job)
        self.wait(lambda: self.lab.state(job).get("Restarts") == "1", "the job queued again", job)
        self.assertIn("stopped by signal 15", self.output(job))
        logs = "".join(path.read_text() for path in (self.lab.folder / "run/log").glob("worker_*.log"))
        self.assertEqual(logs.count("saved"), 4, logs + self.output(job) + self.lab.logs())
        self.lab.ask("scancel", job)

        # A failing worker is the job's failure.
        (self.lab.folder / "stub.py").write_text(STUB.format(lab=self.lab.folder, seconds=0) + "sys.exit(7 if os.environ['RANK'] == '3' else 0)\n")
        job = self.submit("recipe.yaml")
        self.wait_for_state(job, "FAILED")
        self.assertRegex(self.output(job), "rank 3 of 4 on n2 ended with exit code 7")

    def test_the_program_runs_under_srun_and_mpirun_without_tsrun(self):
        line = [f"{self.lab.folder}/launch_worker", "5"]
        told = self.lab.ask("srun", "--nodes=2", "--ntasks=4", "--mpi=pmix", *line)
        sums = lambda words: sorted(re.findall(r"rank \d of 4: sum \S+", words))
        self.assertEqual(sums(told), [f"rank {rank} of 4: sum 90" for rank in range(4)], self.lab.logs())
        (self.lab.folder / "job").write_text("#!/bin/sh\nmpirun --allow-run-as-root --mca btl_tcp_if_include lo "
                                             f"--mca oob_tcp_if_include lo {' '.join(line)}\n")
        self.lab.ask("sbatch", "--wait", "--nodes=2", "--ntasks-per-node=2", f"--output={self.lab.folder}/job.out", "job",
                     cwd=self.lab.folder)
        self.assertEqual(sums((self.lab.folder / "job.out").read_text()), sums(told), self.lab.logs())


class KubernetesJob(unittest.TestCase):
    def job(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("needs PyYAML (python3-yaml)")
        return yaml.safe_load((LAUNCH / "kubernetes.yaml").read_text())

    def test_the_file_fits_the_schema_of_the_operator(self):
        self.assertEqual(mpijob_schema.mistakes(self.job()), [])

    def test_workers_take_what_they_may_and_the_line_names_a_recipe_that_is_mounted(self):
        spec = self.job()["spec"]
        workers = spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        self.assertEqual(int(workers["resources"]["limits"]["cpu"]), spec["slotsPerWorker"])
        launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        recipe = next(word for word in launcher["args"] if word.endswith(".yaml"))
        for container in (workers, launcher):
            self.assertTrue(any(recipe.startswith(mount["mountPath"]) for mount in container["volumeMounts"]))

    def test_the_keys_are_mounted_where_the_server_of_the_image_reads_them(self):
        folder = self.job()["spec"]["sshAuthMountPath"]
        image = (LAUNCH / "package/image_root.sh").read_text()
        self.assertIn(f"HostKey {folder}/id_rsa\n", image)
        user = re.search(r"useradd --create-home --home-dir (\S+) .*--uid (\d+) ", image)
        self.assertEqual(folder, f"{user[1]}/.ssh")
        for role, replicas in self.job()["spec"]["mpiReplicaSpecs"].items():
            self.assertEqual(replicas["template"]["spec"]["securityContext"]["fsGroup"], int(user[2]), role)

    def test_planted_typos_are_named(self):
        def planted(change):
            job = copy.deepcopy(self.job())
            change(job)
            return mpijob_schema.mistakes(job)
        replicas = lambda job, role: job["spec"]["mpiReplicaSpecs"][role]
        container = lambda job: replicas(job, "Worker")["template"]["spec"]["containers"][0]
        for change, name in (
                (lambda j: j["spec"].update(slotPerWorker=8), "slotPerWorker"),
                (lambda j: j["spec"].update(launcherCreationPolicy="WhenReady"), "launcherCreationPolicy"),
                (lambda j: j["spec"]["runPolicy"].update(cleanPodPolice="All"), "cleanPodPolice"),
                (lambda j: j["spec"]["mpiReplicaSpecs"].update(Workers={}), "Workers"),
                (lambda j: replicas(j, "Worker").update(replica=2), "replica"),
                (lambda j: container(j).update(imagePullPolice="Always"), "imagePullPolice"),
                (lambda j: container(j)["volumeMounts"][0].update(name="date"), "date"),
                (lambda j: j["spec"].update(slotsPerWorker="8"), "slotsPerWorker"),
                (lambda j: j.update(apiVersion="kubeflow.org/v1"), "apiVersion"),
                (lambda j: replicas(j, "Launcher").pop("template"), "template")):
            told = planted(change)
            self.assertEqual(len(told), 1, told)
            self.assertIn(name, told[0])


if __name__ == "__main__":
    harness.main()
