"""A host is lost while a run trains on two: it continues with the other one from that very step. Every number of the run and every
byte of its last checkpoint are those of an undisturbed run of the same command."""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile

import faults_test
import harness
import launch_hosts_test
from harness import sets
from launching import Launching

STEPS, EVALUATIONS, SAVES = 16, 4, 5
# Names of docs/resilience.md: four ranks, the first two on the first host.
TENSOR = ["--set", "parallel_config.tensor_model_parallel_size=2"]  # each host has all weights
SHARDS = ["--set", "training_config.use_distributed_optimizer=true"]
REPLICA = ["--set", "resilience_config.policy=replica"]
STAGES = ["--set", "parallel_config.tensor_model_parallel_size=2", "--set", "parallel_config.pipeline_model_parallel_size=2",
          "--set", "dataset_config.micro_batch_num=2"]  # each rank alone has its part
BF16 = ["--set", "training_config.bf16=true", "--set", "training_config.overlap_grad_reduce=true", "--set", "optimizer_config.overlap_param_gather=true"]
# Processes of other hosts are none of this one: a host that is back finds its own ended.
OWN_PROCESSES = ["unshare", "--pid", "--fork", "--kill-child"]
PHASES = ["forward", "reduce", "commit", "update", "report", "gather"]


class LostHosts(launch_hosts_test.Hosts):
    """Hosts have /dev/shm and TMPDIR of their own, which are lost with their last process."""
    state, assert_nothing_lost = faults_test.Faults.state, faults_test.Faults.assert_nothing_lost

    def setUp(self):
        super().setUp()
        self.write("host.sh", 'mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs "$TMPDIR" && exec "$@"\n')

    def on(self, host):
        return [*super().on(host), "sh", str(self.folder / "host.sh")]

    def program(self, run, *more):
        length = sets(training_iters=STEPS, eval_interval=EVALUATIONS, save_interval=SAVES, output_dir=run)
        return ["tessera", "train", "tiny.yaml", *length, *more]

    counts = (2, 2)  # ranks of each host

    def start(self, run, *more):
        line = lambda host: [f"--worker_num={sum(self.counts)}", f"--local_worker_num={self.counts[host]}", f"--node_rank={host}",
                             "--master_addr=10.77.0.1", "--master_port=8848", f"--log_dir=logs{host}", "--tail_worker_log=0",
                             f"--worker_log_name={run}"]
        return [self.start_tsrun(*line(host), *self.program(run, *more), before=self.on(f"h{host}")) for host in range(2)]

    def undisturbed(self, *more):
        """Numbers do not depend on hosts: on this machine, which cannot have copies on another one."""
        more = [word.replace("policy=replica", "policy=memory") for word in more]
        self.tsrun(f"--worker_num={sum(self.counts)}", "--tail_worker_log=9", *self.program("undisturbed", *more))

    def processes_on(self, host):
        listed = subprocess.run(["ip", "netns", "pids", f"{self.mark}h{host}"], check=True, capture_output=True, text=True)
        return [int(pid) for pid in listed.stdout.split()]

    def kill_all_on(self, host):
        for pid in self.processes_on(host):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended with another one

    def wait_for_stopped(self, rank, start=0):
        """For the injected fault `stop`."""
        def stopped():
            for pid, variables in self.processes("tessera").items():
                if variables.get("RANK") == str(rank) and variables.get("TESSERA_LAUNCH_JOB", "").endswith(f":{start}"):
                    try:
                        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
                    except OSError:
                        pass
            return False
        self.wait_until(stopped, f"rank {rank} stops")

    def assert_covered(self, told):
        self.assertIn("process loss: covered; host loss: covered", told)
        self.assertRegex(told, r"is left out; its ranks? 2( to 3)? will run on the hosts that are left")
        self.assertIn("with the state in memory: no step is lost", told)
        self.assertNotIn("cannot be used", told)


class HostLoss(LostHosts):
    def check(self, *options, faults=None, ranks=(2, 3)):
        """The second host is lost while its rank 2 or 3 is anywhere in a step."""
        seed = random.randrange(10**9)
        draw = random.Random(seed)
        self.undisturbed(*options)
        for i, fault in enumerate(faults or [f"{draw.choice(ranks)}:{draw.randrange(1, STEPS)}:{phase}:stop" for phase in draw.sample(PHASES, 2)]):
            with self.subTest(f"seed {seed}: {fault}"):
                jobs = self.start(f"lost{i}", *options, *faults_test.inject([fault]))
                self.wait_for_stopped(fault.split(":")[0])
                self.kill_all_on(1)
                told = self.end_of(jobs[0])
                self.end_of(jobs[1], code=-signal.SIGKILL)
                self.assert_covered(told)
                self.assert_nothing_lost(f"lost{i}", about=f"seed {seed}: {fault}\n{told}")
        self.assert_nothing_left()

    def test_replicas_of_data_parallel_ranks_are_enough(self):
        self.check(*TENSOR)

    def test_copies_of_the_shards_of_a_distributed_optimizer(self):
        self.check(*SHARDS, *BF16, *REPLICA)

    def test_copies_for_an_odd_number_of_ranks(self):
        self.counts = (2, 1)
        self.check(*SHARDS, *REPLICA, ranks=[2])

    def test_copies_without_data_parallelism(self):
        self.check(*STAGES, *REPLICA)

    def test_copies_of_whole_matrices(self):
        self.check(*STAGES[2:], "--set", "optimizer_config.optimizer_type=muon", *REPLICA, faults=["2:6:update:stop"])

    def test_processes_die_before_the_host_does(self):
        """Copies survive the restarts of their holders, at any point of a step."""
        self.undisturbed(*SHARDS)
        faults = ["1:4:update:kill:0", "3:6:commit:kill:1", "0:8:update:kill:2", "2:9:update:stop:3"]
        jobs = self.start("disturbed", *SHARDS, *REPLICA, *faults_test.inject(faults))
        self.wait_for_stopped(2, start=3)
        self.kill_all_on(1)
        told = self.end_of(jobs[0])
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.assert_covered(told)
        self.assert_nothing_lost("disturbed", about=told)

    def test_copies_on_one_host_are_refused(self):
        told = self.tsrun("--worker_num=2", "--tail_worker_log=9", *self.program("refused", *REPLICA), code=2)
        self.assertIn("resilience_config.policy replica keeps copies on another host, but all ranks are on one", told)

    def test_while_it_evaluates_or_saves_and_with_zeros_counted(self):
        self.check("--set", "training_config.log_num_zeros_in_grad=true", *sets(log_interval=3),
                   faults=["3:8:evaluate:stop", "2:10:save:stop"])

    def test_while_it_starts_again(self):
        self.undisturbed()
        faults = ["1:7:update:kill:0", "2:0:start:stop:1"]
        jobs = self.start("disturbed", *faults_test.inject(faults))
        self.wait_for_stopped(2, start=1)
        self.kill_all_on(1)
        told = self.end_of(jobs[0])
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.assert_covered(told)
        self.assert_nothing_lost("disturbed", about=told)

    def test_a_cable_that_is_cut_ends_the_side_that_is_cut_off(self):
        self.undisturbed(*TENSOR)
        jobs = self.start("disturbed", *TENSOR, *faults_test.inject(["2:7:commit:stop"]))
        self.wait_for_stopped(2)
        self.cut(1)
        told = self.end_of(jobs[1], code=1)
        self.assertRegex(told, "the leading tsrun, on 10.77.0.1, has not responded for 6 s")
        self.assertEqual(self.processes_on(1), [])
        self.wait_until(lambda: "starting all workers again" in self.log("scheduler.log", "logs0"), "another start")
        self.ip("-n", self.names[0], "link", "set", "port1", "up")  # has no effect any more
        told = self.end_of(jobs[0])
        self.assertRegex(told, r"host \S+ \(10.77.0.2\) with ranks 2, 3 on \S+ has not responded for 8 s")
        self.assert_covered(told)
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_where_nobody_has_the_same_the_lost_steps_are_named(self):
        self.undisturbed(*SHARDS)
        jobs = self.start("disturbed", *SHARDS, *faults_test.inject(["2:13:forward:stop"]))
        self.wait_for_stopped(2)
        self.kill_all_on(1)
        told = self.end_of(jobs[0])
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.assertIn("host loss: NOT covered, because no other host has state that ranks 0, 1, 2, 3 have", told)
        self.assertIn("the state of rank 2 is lost, and no rank that is left has the same", told)
        self.assertIn("iterations 11 to 12 are lost and will be repeated", told)
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_what_is_not_covered_can_be_refused(self):
        required = ["--set", "resilience_config.require_host=true"]
        jobs = self.start("refused", *SHARDS, *required)
        told = [self.end_of(job, code=2) for job in jobs][0]
        self.assertIn("resilience_config.require_host: the loss of a host would lose steps, because no other host has state that "
                      "ranks 0, 1, 2, 3 have", told)
        for job in self.start("taken", *TENSOR, *required):
            self.end_of(job)


class SeveralHosts(LostHosts):
    """Host N keeps what it has in memory when its tsrun is started again."""

    def setUp(self):
        super().setUp()
        self.memory = pathlib.Path(tempfile.mkdtemp(prefix="tessera.hosts.", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.memory, ignore_errors=True)
        self.add_host(2)
        self.write("host.sh", 'memory=$1; shift; mkdir -p "$memory" && mount --bind "$memory" /dev/shm && mount -t tmpfs tmpfs "$TMPDIR" && mount -t proc proc /proc && exec "$@"\n')
        self.before_host = []

    def on(self, host):
        return [*launch_hosts_test.Hosts.on(self, host), *self.before_host, "sh", str(self.folder / "host.sh"), str(self.memory / host)]

    options = []  # of tsrun

    def start_host(self, host, run, *more, spare=False):
        """The same command on each host."""
        rank = ["--spare"] if spare else [f"--node_rank={host}"]
        return self.start_tsrun(f"--worker_num={sum(self.counts)}", f"--local_worker_num={self.counts[0]}", *rank, *self.options, "--master_addr=10.77.0.1", "--master_port=8848",
                                f"--log_dir=logs{host}", "--tail_worker_log=0", *self.program(run, *more), before=self.on(f"h{host}"))

    def agent(self):
        return self.script("agent.sh", f'''host=$1; shift
case $host in 10.77.0.[123]) n=$((${{host##*.}} - 1)) ;; *) echo "no host $host" >&2; exit 255 ;; esac
exec ip netns exec {self.mark}h$n {" ".join(self.before_host)} sh {self.folder}/host.sh {self.memory}/h$n sh -c "$*"''')

    def fault(self, *ranks):
        """Where the host with these ranks is lost: anywhere in a step. The seed is printed if it fails."""
        seed = random.randrange(10**9)
        draw = random.Random(seed)
        fault = f"{draw.choice(ranks)}:{draw.randrange(2, STEPS)}:{draw.choice(PHASES)}:stop"
        return fault, f"seed {seed}: {fault}"

    def wait_for_spare(self, host, count=1):
        """`count`: how often it has come. It may be admitted before the job runs or later."""
        known = rf"10.77.0.{host + 1}\) has connected(, and waits)? as a spare"
        log = self.folder / "logs0" / "scheduler.log"
        self.wait_until(lambda: log.exists() and len(re.findall(known, log.read_text())) == count, f"host {host} waits as a spare")

    def lose(self, host, rank, start=0):
        self.wait_for_stopped(rank, start)
        self.kill_all_on(host)


class SpareHosts(SeveralHosts):
    """The third host waits as a spare."""

    def test_a_spare_gets_the_ranks_of_the_lost_host(self):
        self.undisturbed(*TENSOR)
        fault, about = self.fault(2, 3)
        spare = self.start_host(2, "lost", *TENSOR, *faults_test.inject([fault]), spare=True)
        jobs = [self.start_host(host, "lost", *TENSOR, *faults_test.inject([fault])) for host in range(2)]
        self.wait_for_spare(2)
        self.lose(1, fault[0])
        told = self.end_of(jobs[0])
        self.assertRegex(told, r"its ranks 2 to 3 will run on the spare host \S+ \(10.77.0.3\)", about)
        self.assertIn("with the state in memory: no step is lost", told, about)
        self.assertTrue((self.folder / "logs2" / "worker_3.log").exists(), about)
        self.assertIn("this host waits as a spare with room for 2 ranks", self.end_of(spare))
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.assert_nothing_lost("lost", about=f"{about}\n{told}")
        self.assert_nothing_left()

    def test_listed_spares_are_started_from_here(self):
        self.undisturbed(*SHARDS)
        fault, about = self.fault(2, 3)
        job = self.start_tsrun("--hosts=10.77.0.1:2,10.77.0.2:2", "--spares=10.77.0.3:2", "--agent", self.agent(), "--log_dir=logs0", "--tail_worker_log=0",
                               *self.program("lost", *SHARDS, *REPLICA, *faults_test.inject([fault])), before=self.on("h0"))
        self.lose(1, fault[0])
        told = self.end_of(job)
        self.assertRegex(told, r"workers on .*; spare: \S+ \(eth0 10.77.0.3\)", about)
        self.assertRegex(told, r"its ranks 2 to 3 will run on the spare host \S+ \(10.77.0.3\)", about)
        self.assert_nothing_lost("lost", about=f"{about}\n{told}")
        self.assert_nothing_left()

    def test_a_host_that_is_back_waits_as_a_spare(self):
        """Its state in memory is old by then, and is not continued."""
        self.undisturbed(*TENSOR)
        self.before_host = OWN_PROCESSES
        faults = ["2:3:update:stop:0", "3:9:commit:stop:1"]
        spare = self.start_host(2, "lost", *TENSOR, *faults_test.inject(faults), spare=True)
        jobs = [self.start_host(host, "lost", *TENSOR, *faults_test.inject(faults)) for host in range(2)]
        self.lose(1, 2)
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.wait_for_stopped(3, start=1)
        self.assertTrue(list(self.memory.glob("h1/tsrun.*/state.[23]")), "no old state")
        back = self.start_host(1, "lost", *TENSOR, *faults_test.inject(faults))
        self.wait_for_spare(1)
        self.kill_all_on(2)
        told = self.end_of(jobs[0])
        self.assertRegex(told, r"its ranks 2 to 3 will run on the spare host \S+ \(10.77.0.2\)")
        self.end_of(spare, code=-signal.SIGKILL)
        self.end_of(back)
        self.assertNotIn("cannot be used", told)
        self.assert_nothing_lost("lost", about=told)

    def test_a_spare_that_ends_while_it_waits_is_reported(self):
        self.undisturbed(*TENSOR)
        faults = faults_test.inject(["2:9:reduce:stop"])
        jobs = [self.start_host(host, "lost", *TENSOR, *faults) for host in range(2)]
        killed = self.start_host(2, "lost", *TENSOR, *faults, spare=True)
        self.wait_for_spare(2)
        self.process_of(3, "tessera")
        killed.kill()
        self.end_of(killed, code=-signal.SIGKILL)
        self.wait_until(lambda: "10.77.0.3) has ended; the job continues without it" in self.log("scheduler.log", "logs0"), "it is missed")
        stopped = self.start_host(2, "lost", *TENSOR, *faults, spare=True)
        self.wait_for_spare(2, count=2)
        stopped.send_signal(signal.SIGTERM)
        self.assertIn("this spare host was stopped by signal 15", self.end_of(stopped, code=128 + signal.SIGTERM))
        self.lose(1, 2)
        told = self.end_of(jobs[0])
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.assert_covered(told)
        self.assert_nothing_lost("lost", about=told)
        self.assert_nothing_left()

    def test_spares_that_cannot_be_used_are_refused(self):
        start = lambda hosts, spares: self.tsrun(f"--hosts={hosts}", f"--spares={spares}", "--agent", self.agent(), "--log_dir=logs0", "true",
                                                 before=self.on("h0"), code=2)
        self.assertIn("host 10.77.0.9: nothing could be started there", start("10.77.0.1:2,10.77.0.2:2", "10.77.0.9:2"))
        self.assertIn("no..where", start("10.77.0.1:2,10.77.0.2:2", "no..where:2"))
        self.assertIn("host 10.77.0.2 is listed twice", start("10.77.0.1:2,10.77.0.2:2", "10.77.0.2:2"))
        self.assertIn("--spares: the only host of --hosts is this one", start("10.77.0.1:2", "10.77.0.2:2"))
        held = [*faults_test.inject(["1:9:forward:stop"]), "--set", "resilience_config.step_time_out=600"]  # the spare comes before the end
        jobs = [self.start_host(host, "refused", *held) for host in range(2)]
        self.wait_for_stopped(1)
        late = self.start_host(2, "refused", *held, "--set", "training_config.seed=8", spare=True)
        self.assertRegex(self.end_of(late, code=2), "refuses this host as a spare: not the same on all hosts: .*program line")
        os.kill(self.process_of(1, "tessera"), signal.SIGCONT)
        for job in jobs:
            self.end_of(job)
        self.assert_nothing_left()


class FewerHosts(SeveralHosts):
    """--after_host_loss shrink: fewer replicas train on with the same global batch, until the lost host is back."""

    options = ["--after_host_loss=shrink"]

    def listed(self, run, *more, **popen):
        hosts = ",".join(f"10.77.0.{host + 1}:{count}" for host, count in enumerate(self.counts))
        return self.start_tsrun(f"--hosts={hosts}", *self.options, "--agent", self.agent(), "--log_dir=logs0", "--tail_worker_log=0",
                                *self.program(run, *more), before=self.on("h0"), **popen)

    def told_by_leader(self):
        return self.log("scheduler.log", "logs0")

    def proceed(self, start):
        """After the injected fault `stop`: the rank goes on."""
        for pid, variables in self.processes("tessera").items():
            if variables["TESSERA_LAUNCH_JOB"].endswith(f":{start}"):
                os.kill(pid, signal.SIGCONT)

    def assert_same_samples(self, run, switch, reference="undisturbed", about=""):
        """Every step once, in order, of the same samples. Up to iteration `switch` to the bit; later only sums are rounded otherwise."""
        ours, theirs = self.metrics(run), self.metrics(reference)
        steps = lambda lines: [line for line in lines if "loss" in line]
        losses = {"loss", "validation_loss", "final_validation_loss", "test_loss"}
        self.assertEqual([line["iteration"] for line in steps(ours)], list(range(1, STEPS + 1)), about)
        self.assertEqual([line.keys() for line in ours], [line.keys() for line in theirs], about)
        for one, other in zip(ours, theirs):
            if one["iteration"] < switch:
                self.assertEqual(one, other, about)
            for key in one.keys() - losses - {"grad_norm", "weight_bytes", "gradient_bytes", "optimizer_bytes"}:
                self.assertEqual(one[key], other[key], f"{key}: {about}")
            for key in one.keys() & losses:
                self.assertLessEqual(abs(one[key] - other[key]), 1e-3 * other[key], f"{key}: {about}")
        self.assertTrue(all("sample_chain" in line for line in steps(ours)))

    def assert_same_checkpoint(self, run, iteration, reference="undisturbed"):
        folder = lambda name: next(path for path in self.checkpoints(name) if path.name.endswith(f"{iteration:07}"))
        for name in [path.relative_to(folder(reference)) for path in folder(reference).rglob("*")
                     if path.is_file() and path.name not in harness.WORDS_OF_THE_COMMAND]:
            self.assertEqual(harness.without_run_id(folder(run) / name), harness.without_run_id(folder(reference) / name), name)

    def assert_no_bit_changes_with_the_number_of_ranks(self, checkpoint, *options):
        """Saved by 2 ranks: loaded and saved by 4, and by 2 again."""
        options = [word.replace("policy=replica", "policy=memory") for word in options]
        state = lambda folder: {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
        first = checkpoint
        for ranks in (4, 2):
            run = f"loaded_by_{ranks}"
            self.tsrun(f"--worker_num={ranks}", "--tail_worker_log=9", "tessera", "train", "tiny.yaml", *options,
                       *sets(training_iters=int(checkpoint.name[-7:]), output_dir=run, load_checkpoint=checkpoint),
                       "--set", "optimizer_config.use_checkpoint_opt_param_scheduler=true")
            checkpoint = self.checkpoints(run)[-1]
        self.assertEqual(state(checkpoint), state(first))
        self.assertTrue(state(first))

    def shrink_and_grow(self, start, back, *options):
        """The second host is lost at one step and back at a later one."""
        seed = random.randrange(10**9)
        draw = random.Random(seed)
        lost_at, back_at = draw.randrange(2, 8), draw.randrange(9, STEPS)
        faults = [f"{draw.choice((2, 3))}:{lost_at}:{draw.choice(PHASES)}:stop:0", f"1:{back_at}:forward:stop:2"]
        about = f"seed {seed}: {' '.join(faults)}"
        # A time-out that is learnt could end the rank that stays stopped for as long as another run takes.
        options = [*options, *sets(keep_checkpoint_max=100), "--set", "resilience_config.step_time_out=600"]
        jobs = start("fewer", *options, *faults_test.inject(faults))
        self.lose(1, faults[0][0])
        self.wait_for_stopped(1, start=2)
        self.assertRegex(self.told_by_leader(), "the 4 workers save their state, then 2 continue", about)
        returned = back("fewer", *options, *faults_test.inject(faults))
        self.undisturbed(*options, *sets(save_interval=1))  # listed hosts are called again 10 s after the loss
        self.wait_until(lambda: "there is room for 4 of 4 workers again" in self.told_by_leader(), "the host is back")
        rank = self.process_of(1, "tessera")
        pending = lambda: int(re.search(r"ShdPnd:\t(\w+)", pathlib.Path(f"/proc/{rank}/status").read_text())[1], 16) >> (signal.SIGTERM - 1) & 1
        self.wait_until(pending, "the request to stop, which waits for the stopped rank")
        self.proceed(start=2)
        told = self.end_of(jobs[0])
        about += "\n" + told
        for job in jobs[1:]:
            self.end_of(job, code=-signal.SIGKILL)
        for job in returned:
            self.end_of(job)
        self.assertRegex(told, r"continuing with 2 of 4 workers: 2 workers on \S+;", about)
        self.assertRegex(told, "continuing with 4 of 4 workers: .*10.77.0.2", about)
        saved = int(re.search(r"saved fewer/checkpoints/network_iter_0*(\d+) after iteration", told)[1])
        self.assertIn(saved, (lost_at - 1, lost_at), about)
        self.assertIn(f"stopped by SIGTERM after iteration {back_at} of {STEPS}, saved fewer", told, about)
        self.assert_same_samples("fewer", saved + 1, about=about)
        self.assert_same_checkpoint("fewer", saved)
        self.assert_nothing_left()
        self.assert_no_bit_changes_with_the_number_of_ranks(next(path for path in self.checkpoints("fewer") if path.name.endswith(f"{back_at:07}")),
                                                            *options)

    def test_fewer_replicas_and_back(self):
        start = lambda *program: [self.start_host(host, *program) for host in range(2)]
        self.before_host = OWN_PROCESSES
        self.shrink_and_grow(start, lambda *program: [self.start_host(1, *program)], *TENSOR)

    def test_where_no_replica_fits_the_hosts_that_are_left_run_all_ranks(self):
        self.undisturbed(*STAGES)
        fault, about = self.fault(2, 3)
        jobs = [self.start_host(host, "all", *STAGES, *REPLICA, *faults_test.inject([fault])) for host in range(2)]
        self.lose(1, fault[0])
        told = self.end_of(jobs[0])
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.assertIn("--after_host_loss shrink is not possible: with the same global batch the program needs at least 4 workers, and the hosts that "
                      "are left have room for 2; the hosts that are left run all workers", told, about)
        self.assert_covered(told)
        self.assert_nothing_lost("all", about=f"{about}\n{told}")

    def test_a_spare_is_used_first(self):
        self.undisturbed(*TENSOR)
        fault, about = self.fault(2, 3)
        spare = self.start_host(2, "spare", *TENSOR, *faults_test.inject([fault]), spare=True)
        jobs = [self.start_host(host, "spare", *TENSOR, *faults_test.inject([fault])) for host in range(2)]
        self.wait_for_spare(2)
        self.lose(1, fault[0])
        told = self.end_of(jobs[0])
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.end_of(spare)
        self.assertNotIn("save their state", told, about)
        self.assert_nothing_lost("spare", about=f"{about}\n{told}")

    def test_killed_while_it_saves_for_fewer_ranks_and_with_fewer_ranks(self):
        """And as many replicas as divide the global batch: of 3 ranks 2 are left, of which 1 can have it."""
        self.counts = (1, 1, 1)
        keep = sets(keep_checkpoint_max=100)
        self.undisturbed(*keep, *sets(save_interval=1))
        faults = ["2:4:update:stop:0", "0:4:save:kill:1", "0:7:update:kill:3"]
        jobs = [self.start_host(host, "fewer", *keep, *faults_test.inject(faults)) for host in range(3)]
        self.lose(2, 2)
        told = self.end_of(jobs[0])
        self.end_of(jobs[1])
        self.end_of(jobs[2], code=-signal.SIGKILL)
        self.assertIn("the 3 workers save their state, then 1 continue", told)
        self.assertRegex(told, r"continuing with 1 of 3 workers: 1 worker on \S+; spare: \S+ \(eth0 10.77.0.2\)")
        killed = re.findall(r"rank 0 of (\d) on .* was ended by signal 9", told)  # of the lost host's worker it may say so too
        self.assertEqual(killed, ["3", "1"], told)
        self.assert_same_samples("fewer", 5, about=told)
        self.assert_same_checkpoint("fewer", 4)
        self.assert_nothing_left()

    def test_listed_hosts_are_called_again(self):
        self.before_host = OWN_PROCESSES
        self.shrink_and_grow(lambda *program: [self.listed(*program)], lambda *program: [], *SHARDS, *BF16, *REPLICA)


class Told(Launching):
    """tessera check tells the same before a run."""

    def test_coverage_and_memory(self):
        words = self.tessera("check", "tiny.yaml", *TENSOR, "--ranks", 4, "--ranks-per-host", 2)
        self.assertIn("process loss: covered; host loss: covered", words)
        promised = int(re.search(r"state file +[^(]*\(([\d ]+) bytes\)", words)[1].replace(" ", ""))
        job = self.start_tsrun("--worker_num=4", "tessera", "train", "tiny.yaml", *TENSOR,
                               *sets(training_iters=10, output_dir="run"), *faults_test.inject(["0:3:forward:stop"]))
        self.wait_until(lambda: self.steps_logged("run") >= 2, "2 steps")
        memory = [pid for pid in self.processes("tessera").values()][0]["TESSERA_LAUNCH_FOLDER"]
        self.assertEqual(max(path.stat().st_size for path in pathlib.Path(memory).glob("state.[0-9]")), promised)
        job.send_signal(signal.SIGKILL)
        job.communicate()

    def test_what_would_be_refused(self):
        told = self.tessera("check", "tiny.yaml", *SHARDS, "--ranks", 4, "--ranks-per-host", 2, "--set", "resilience_config.require_host=true", code=2)
        self.assertIn("resilience_config.require_host: the loss of a host would lose steps", told)
        self.tessera("check", "tiny.yaml", *SHARDS, *REPLICA, "--ranks", 4, "--ranks-per-host", 2, "--set", "resilience_config.require_host=true")
        told = self.tessera("check", "tiny.yaml", "--ranks", 2, "--ranks-per-host", 2)
        self.assertIn("host loss: NOT covered, because all ranks are on one host", told)


if __name__ == "__main__":
    harness.main()
