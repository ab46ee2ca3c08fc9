"""Runs of several ranks without a start of processes for each."""

import os
import pathlib
import subprocess

import harness


def mpirun(ranks, folder):
    """The words that start `ranks` processes. HWLOC_COMPONENTS as tsrun sets it (launch/tsrun/worker_environment.cpp). MPI's session directories
    are below `folder`, which must be the test's own: all mpirun of a user share /tmp/ompi.HOST.UID, and the last one to end deletes it while
    another one is creating its own in it."""
    return ["env", "HWLOC_COMPONENTS=-gl,-pci,-linux:pci", "mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader,tcp",
            "--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo", "--mca", "orte_tmpdir_base", str(folder), "-n", str(ranks)]


class JobInTurn:
    """An MPI job that trains recipes in `folder` one after the other (tests/ranks/train_in_turn.cpp): a start of processes takes most of the
    processor time of such a run."""

    def __init__(self, ranks, folder):
        self.ranks, self.folder, self.told = ranks, folder, folder / "job.log"
        with open(self.told, "w") as told:
            self.process = subprocess.Popen(
                [*mpirun(ranks, folder), str(pathlib.Path(os.environ["TESSERA_BUILD"]) / "tests/train_in_turn")],
                cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, text=True)

    def train(self, ranks, file, sets=()):
        """`sets`: words of --set. Returns nothing, or what the job told when it failed."""
        try:
            self.process.stdin.write("\t".join([f"{ranks} {file}", *sets]) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the job has ended, and its output ends, too
        told = []
        for line in self.process.stdout:
            if line == f"done {file}\n":
                return ""
            told.append(line)
        return f"{file} {' '.join(sets)}:\n{''.join(told)[-6000:]}{self.told.read_text()[-6000:]}"

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=200)


class InTurn(harness.InOwnFolder):
    """Its runs are those of one job with `most_ranks`, which the first one starts."""

    most_ranks = 4
    job = None

    def train_in_turn(self, ranks, file, sets=()):
        if self.job is None:
            self.job = JobInTurn(self.most_ranks, self.folder)
            self.addCleanup(self.end_of_job)
        failure = self.job.train(ranks, file, sets)
        self.assertEqual(failure, "")

    def end_of_job(self):
        job, self.job = self.job, None
        code = job.end()
        self.assertEqual(code, 0, job.told.read_text()[-6000:])
