"""A Slurm of several nodes on one machine: each daemon has a host name, a /tmp and a /dev/shm of its own."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "squeue", "scancel", "unshare")

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={lab}/munge.sock
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={lab}/slurmctld.pid
SlurmdPidFile={lab}/slurmd.%n.pid
StateSaveLocation={lab}/state
SlurmdSpoolDir={lab}/spool/%n
SlurmctldLogFile={lab}/slurmctld.log
SlurmdLogFile={lab}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=5
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class SlurmLab:
    """Up after the constructor, which skips the test where that is not possible; down after close()."""

    def __init__(self, nodes=2):
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing or os.geteuid() != 0:
            raise unittest.SkipTest(f"a Slurm lab needs root and {', '.join(missing) or 'root'}: "
                                    "apt-get install slurm-wlm slurm-wlm-basic-plugins munge")
        # Not below /tmp, over which every node mounts its own.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera_slurm.", dir="/var/tmp"))
        self.processes = []
        try:
            self.begin(nodes)
        except Exception as error:
            told = self.logs()
            self.close()
            raise unittest.SkipTest(f"the Slurm lab does not come up here: {error}\n{told}")

    def begin(self, nodes):
        for name in ("state", *(f"spool/n{n}" for n in range(1, nodes + 1)), *(f"tmp/n{n}" for n in range(1, nodes + 1))):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        first = 20008 + os.getpid() % 1500 * 8  # below those that the system hands out by itself
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=os.uname().nodename.split(".")[0], lab=self.folder, port=first - 1, nodes=nodes, first=first, last=first + nodes - 1))
        self.start("munged", "--force", "--foreground", "-S", f"{self.folder}/munge.sock", f"--key-file={key}",
                   f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munge.seed")
        self.until(lambda: (self.folder / "munge.sock").exists(), "munged")
        self.start("slurmctld", "-D")
        for n in range(1, nodes + 1):
            self.start("unshare", "--mount", "--uts", "sh", "-c", f"hostname n{n}; mount --bind {self.folder}/tmp/n{n} /tmp; "
                       f"mount -t tmpfs tmpfs /dev/shm; exec slurmd -D -N n{n}")
        self.until(lambda: self.ask("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(nodes)], "idle nodes")

    def environment(self):
        return {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf"}

    def start(self, *words):
        with open(self.folder / "daemons.log", "ab") as log:
            self.processes.append(subprocess.Popen(words, env=self.environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                   cwd=self.folder))

    def ask(self, *words, **more):
        return subprocess.run(words, env={**self.environment(), **more.pop("environment", {})}, capture_output=True, text=True,
                              timeout=200, **more).stdout.strip()

    def until(self, holds, what, seconds=200):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise RuntimeError(f"not within {seconds} s: {what}")
            time.sleep(.1)

    def state(self, job):
        """The fields of `scontrol show job`."""
        return dict(word.split("=", 1) for word in self.ask("scontrol", "show", "job", job, "--oneliner").split() if "=" in word)

    def logs(self):
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}\n" for path in sorted(self.folder.glob("*.log")))

    def end_jobs(self):
        self.ask("scancel", "--user=root")
        try:
            self.until(lambda: not self.ask("squeue", "-h", "--states=RUNNING,COMPLETING"), "the end of all jobs")
        except RuntimeError:
            pass  # the lab goes down all the same

    def close(self):
        if len(self.processes) > 2:
            self.end_jobs()
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
