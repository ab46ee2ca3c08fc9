"""tsrun on several hosts: network namespaces with an address and a name of their own, joined by a switch in another one."""

import os
import re
import shutil
import signal
import subprocess
import time
import unittest

import harness
import launching
from launching import Launching


class TwoShells(Launching):
    def test_the_same_line_in_two_shells_of_one_machine(self):
        port = self.free_port()
        line = ["--worker_num=4", "--local_worker_num=2", f"--master_port={port}", launching.worker(), 5]
        second = self.start_tsrun("--node_rank=1", "--log_dir=second", *line)
        first = self.start_tsrun("--node_rank=0", "--log_dir=first", *line)
        self.assertIn("rank 0 of 4: sum 90", self.end_of(first))
        self.assertIn("[3] rank 3 of 4: sum 90", self.end_of(second))
        self.assertEqual(sorted(path.name for path in (self.folder / "second").iterdir()),
                         ["scheduler.log", "worker_2.log", "worker_3.log"])
        self.assert_nothing_left()

    def start_until_the_end(self):
        """A job that runs until there is a file `end`: the tsrun of both shells, the first one's log, and how to stop the second."""
        line = ["--nnodes=2", "--nproc_per_node=1", "--max_restarts=3", "--host_time_out=4", "--host_lease=2", "--master_addr=127.0.0.1",
                f"--master_port={self.free_port()}", launching.worker(), 100000, "until", self.folder / "end"]
        second = self.start_tsrun("--node_rank=1", "--log_dir=second", *line)
        first = self.start_tsrun("--node_rank=0", "--log_dir=first", *line)
        self.process_of(1)
        self.wait_until(lambda: self.starts() == 1, "a start")
        return first, second

    def starts(self):
        return self.log("scheduler.log", "first").count("all workers have connected")

    def test_a_shell_that_is_stopped_for_a_moment_does_not_stop_the_job(self):
        first, second = self.start_until_the_end()
        second.send_signal(signal.SIGSTOP)
        time.sleep(6)  # longer than --host_time_out, but not four times as long
        second.send_signal(signal.SIGCONT)
        time.sleep(1)
        self.assertEqual([first.poll(), second.poll(), self.starts()], [None, None, 1])
        self.write("end", "")
        for job in (first, second):
            self.end_of(job)
        self.assert_nothing_left()

    def test_a_shell_that_is_stopped_neither_stops_the_job_nor_deletes_its_folders(self):
        first, second = self.start_until_the_end()
        second.send_signal(signal.SIGSTOP)
        self.wait_until(lambda: self.starts() == 2, "a start without the second shell")
        second.send_signal(signal.SIGCONT)
        self.assertIn("this host has not responded to the leading tsrun in time", self.end_of(second, 1))
        os.kill(self.process_of(1), signal.SIGKILL)
        self.wait_until(lambda: self.starts() == 3, "another start")
        self.write("end", "")
        told = self.end_of(first)
        self.assertIn("will run on the hosts that are left", told)
        self.assertIn("all 2 workers are done", told)
        self.assert_nothing_left()

    def test_hosts_that_do_not_come_are_missed(self):
        told = self.tsrun("--nnodes=2", "--nproc_per_node=2", "--node_rank=0", "--rdzv_conf=timeout=1",
                          f"--master_port={self.free_port()}", "true", code=1)
        self.assertIn("after 1 s only 2 of 4 workers' hosts have connected", told)


class Hosts(Launching):
    """Hosts h0, h1, h2 are 10.77.0.1 to 3; the switch has 10.77.0.254."""

    def setUp(self):
        super().setUp()
        self.mark = f"ts{os.getpid()}"
        if os.geteuid() != 0 or shutil.which("ip") is None or self.ip("netns", "add", f"{self.mark}s", check=False) != 0:
            self.skipTest("network namespaces cannot be made here (root and iproute2 are needed)")
        self.names = [f"{self.mark}s"]
        self.addCleanup(self.remove_hosts)
        self.ip("-n", self.names[0], "link", "set", "lo", "up")
        self.ip("-n", self.names[0], "link", "add", "switch", "type", "bridge")
        self.ip("-n", self.names[0], "addr", "add", "10.77.0.254/24", "dev", "switch")
        self.ip("-n", self.names[0], "link", "set", "switch", "up")
        for host in range(2):
            self.add_host(host)

    def ip(self, *words, check=True):
        return subprocess.run(["ip", *words], check=check, stderr=subprocess.DEVNULL).returncode

    def add_host(self, host):
        name, switch = f"{self.mark}h{host}", self.names[0]
        self.ip("netns", "add", name)
        self.names.append(name)
        self.ip("-n", name, "link", "set", "lo", "up")
        self.ip("link", "add", f"port{host}", "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", name)
        self.ip("-n", switch, "link", "set", f"port{host}", "master", "switch")
        self.ip("-n", switch, "link", "set", f"port{host}", "up")
        self.ip("-n", name, "addr", "add", f"10.77.0.{host + 1}/24", "dev", "eth0")
        self.ip("-n", name, "link", "set", "eth0", "up")

    def remove_hosts(self):
        self.end_everything()
        for name in self.names:
            self.ip("netns", "del", name, check=False)

    def on(self, host):
        return ["ip", "netns", "exec", f"{self.mark}{host}"]

    def start_host(self, host, *words, total=4, program=None, **more):
        """The same line on every host but for --node_rank (and the logs' folder, as hosts here share their files)."""
        words = [*words] if any("--node_rank" in str(word) for word in words) else [f"--node_rank={host}", *words]
        line = [f"--worker_num={total}", "--local_worker_num=2", "--master_addr=10.77.0.1", "--master_port=8848", f"--log_dir=logs{host}"]
        return self.start_tsrun(*line, *words, *(program or [launching.worker(), 5]), before=self.on(f"h{host}"), **more)

    def cut(self, host):
        self.ip("-n", self.names[0], "link", "set", f"port{host}", "down")


class LaunchHosts(Hosts):
    def test_the_same_line_on_each_host(self):
        alone = self.tsrun("--worker_num=4", launching.worker(), 5)
        jobs = [self.start_host(host) for host in (1, 0)]
        told = [self.end_of(job) for job in jobs]
        self.assertIn("eth0 10.77.0.1", told[1])
        self.assertIn("eth0 10.77.0.2", told[1])
        sums = lambda words: set(re.findall(r"rank \d of 4: sum \S+", words))
        self.assertEqual(sums(told[0]) | sums(told[1]), sums(alone))
        self.assertIn("rank 2 of 4", self.log("worker_2.log", "logs1"))
        self.assertEqual(len(self.assert_nothing_left()), 2)

    def test_a_cut_cable_names_the_host_behind_it(self):
        jobs = [self.start_host(host, "--tail_worker_log=9", program=[launching.worker(), 100000]) for host in range(2)]
        self.process_of(3)
        self.wait_until(lambda: "all workers have connected" in self.log("scheduler.log", "logs0"), "a start")
        time.sleep(.5)
        self.cut(1)
        told = [self.end_of(job, code=1) for job in jobs]
        self.assertRegex(told[0], r"tsrun: host \S+ \(10.77.0.2\) with ranks 2, 3 on \S+ has not responded for 8 s; check cable")
        self.assertRegex(told[1], r"the leading tsrun, on 10.77.0.1, has not responded for 6 s")
        self.assert_nothing_left()

    def test_time_outs_that_differ_between_hosts_are_refused(self):
        jobs = [self.start_host(host, f"--host_lease={2 + host}", "--host_time_out=30") for host in range(2)]
        told = [self.end_of(job, code=2) for job in jobs][0]
        same = r"lease, host_time_out, host_lease, leader_time_out and stop_time_out: 15, 30, {}, 15 and 30 s"
        self.assertRegex(told, rf"not the same on all hosts: \S+ \(10.77.0.1\) has {same.format(2)}; \S+ \(10.77.0.2\) has {same.format(3)}")

    def start_with(self, *time_outs):
        """A job with these time-outs, which has started, and the process of its rank 3. Its workers send each other nothing, so that only
        tsrun misses a host."""
        jobs = [self.start_host(host, *time_outs, program=["sleep", 100000]) for host in range(2)]
        worker = self.process_of(3, "sleep")
        self.wait_until(lambda: "all workers have connected" in self.log("scheduler.log", "logs0"), "a start")
        return jobs, worker

    def test_time_outs_are_not_shorter_than_those_that_were_given(self):
        jobs, worker = self.start_with("--host_lease=25", "--host_time_out=30", "--leader_time_out=40")
        self.cut(1)
        time.sleep(9.5)  # longer than the default of --host_time_out, and 1 s more for a worker
        self.ip("-n", self.names[0], "link", "set", "port1", "up")
        time.sleep(2)
        self.assertEqual([job.poll() for job in jobs], [None, None])
        os.kill(worker, signal.SIGKILL)
        for told in [self.end_of(job, code=137) for job in jobs]:
            self.assertRegex(told, r"rank 3 of 4 on \S+ .*was ended by signal 9")
        self.assert_nothing_left()

    def test_time_outs_are_not_longer_than_those_that_were_given(self):
        jobs, _ = self.start_with("--host_lease=2", "--host_time_out=4")
        self.cut(1)
        told = [self.end_of(job, code=1) for job in jobs]
        self.assertRegex(told[0], r"with ranks 2, 3 on \S+ has not responded for 4 s")
        self.assertRegex(told[1], r"the leading tsrun, on 10.77.0.1, has not responded for 2 s")
        self.assert_nothing_left()

    def test_a_worker_killed_on_the_other_host_is_named_on_both(self):
        jobs = [self.start_host(host, "--tail_worker_log=9", program=[launching.worker(), 100000]) for host in range(2)]
        os.kill(self.process_of(3), signal.SIGKILL)
        for told in [self.end_of(job, code=137) for job in jobs]:
            self.assertRegex(told, r"rank 3 of 4 on \S+ .*was ended by signal 9")
        self.assert_nothing_left()

    def test_interrupting_any_host_ends_all(self):
        for host in range(2):
            jobs = [self.start_host(h, "--tail_worker_log=9", program=[launching.worker(), 100000]) for h in range(2)]
            self.process_of(3)
            self.process_of(0)
            time.sleep(.3)
            jobs[host].send_signal(signal.SIGINT)
            for job in jobs:
                self.end_of(job, code=128 + signal.SIGINT)
            self.assert_nothing_left()

    def test_a_tsrun_killed_on_the_other_host_ends_all(self):
        jobs = [self.start_host(host, "--tail_worker_log=9", program=[launching.worker(), 100000]) for host in range(2)]
        self.process_of(3)
        jobs[1].kill()
        told = self.end_of(jobs[0], code=1)
        self.assertRegex(told, r"tsrun on \S+ \(10.77.0.2\) has ended")
        self.end_of(jobs[1], code=-signal.SIGKILL)
        self.assert_nothing_left()

    def refused(self, *jobs):
        """What the one tsrun said that says why; all end with exit code 2."""
        told = [self.end_of(job, code=2) for job in jobs]
        speaking = [words for words in told if "says why" not in words]
        self.assertEqual(len(speaking), 1, told)
        return speaking[0]

    def test_what_differs_between_hosts_is_refused_everywhere_and_told_once(self):
        (self.folder / "other").mkdir()
        program = self.folder / "other" / "launch_worker"
        shutil.copy(launching.worker(), program)
        with open(program, "ab") as file:
            file.write(b"x")
        path = {"PATH": f"{program.parent}:{self.environment()['PATH']}"}
        told = self.refused(self.start_host(0, program=["launch_worker", 5]),
                            self.start_host(1, program=["launch_worker", 5], environment=path))
        self.assertRegex(told, r"10.77.0.1\) has program launch_worker: .*10.77.0.2\) has program launch_worker: ")
        self.write("other/r.yaml", "a: 2\n")
        self.write("r.yaml", "a: 1\n")
        told = self.refused(self.start_host(0, program=["cat", "r.yaml"]),
                            self.start_host(1, program=["cat", "r.yaml"], cwd=self.folder / "other"))
        self.assertIn("file r.yaml", told)
        told = self.refused(self.start_host(0, program=["cat", "r.yaml"]), self.start_host(1, program=["cat", "x.yaml"]))
        self.assertIn("program line: cat r.yaml", told)
        self.assert_nothing_left()

    def test_hosts_that_do_not_add_up_are_refused_everywhere(self):
        self.assertIn("node_rank 0 was started twice", self.refused(self.start_host(0), self.start_host(1, "--node_rank=0")))
        self.assertIn("it is 0 to 1", self.refused(self.start_host(0), self.start_host(1, "--node_rank=5")))
        told = self.refused(self.start_host(0), self.start_host(1, program=["no_such_program"]))
        self.assertIn("no_such_program", told)

    def test_a_host_too_many_is_sent_away_and_the_others_go_on(self):
        program = [launching.worker(), 100000, "until", self.folder / "over"]
        jobs = [self.start_host(host, program=program) for host in range(2)]
        self.process_of(3)
        late = self.start_tsrun("--worker_num=4", "--local_worker_num=2", "--master_addr=10.77.0.1", "--master_port=8848",
                                "--node_rank=1", "--log_dir=late", *program, before=self.on("h1"))
        self.assertIn("has all its hosts already", self.end_of(late, code=2))
        self.write("over", "")
        for job in jobs:
            self.end_of(job)

    def test_a_pair_that_cannot_talk_is_named(self):
        self.add_host(2)
        self.ip("-n", f"{self.mark}h1", "route", "add", "unreachable", "10.77.0.3")
        told = self.refused(*[self.start_host(host, total=6) for host in range(3)])
        self.assertRegex(told, r"10.77.0.2\) cannot connect to \S+ \(10.77.0.3\)")

    def agent(self):
        return self.script("agent.sh", f'''host=$1; shift
case $host in 10.77.0.[123]) n=$((${{host##*.}} - 1)) ;; *) echo "no host $host" >&2; exit 255 ;; esac
exec ip netns exec {self.mark}h$n unshare --uts sh -c "hostname h$n; $*"''')

    def test_a_list_of_hosts_is_started_from_one_of_them_or_from_outside(self):
        agent = self.agent()
        for here in ("s", "h0"):
            told = self.tsrun("--hosts=10.77.0.1:2,10.77.0.2:1", "--agent", agent, f"--log_dir=from_{here}", launching.worker(), 5,
                              before=self.on(here))
            for rank in range(3):
                self.assertIn(f"rank {rank} of 3: sum 60", told)
        self.write("hosts", "10.77.0.1 slots=1\n10.77.0.2 slots=1  # the other\n")
        self.assertIn("rank 1 of 2: sum 35", self.tsrun("--hostfile=hosts", "--agent", agent, launching.worker(), 5, before=self.on("s")))
        self.assert_nothing_left()

    def give_ipv6(self):
        """fd77::1 and fd77::2, next to the addresses of version 4; nodad: usable at once."""
        for host in range(2):
            if self.ip("-n", f"{self.mark}h{host}", "addr", "add", f"fd77::{host + 1}/64", "dev", "eth0", "nodad", check=False) != 0:
                self.skipTest("no IPv6 here")
        self.ip("-n", self.names[0], "addr", "add", "fd77::254/64", "dev", "switch", "nodad")

    def test_hosts_with_ipv6_addresses(self):
        self.give_ipv6()
        jobs = [self.start_host(host, "--master_addr=fd77::1") for host in (1, 0)]
        told = "".join(self.end_of(job) for job in jobs)
        self.assertIn("eth0 fd77::1", told)
        self.assertIn("eth0 fd77::2", told)
        self.assertEqual(len(set(re.findall(r"rank \d of 4: sum 90", told))), 4)
        agent = self.script("agent.sh", f'''host=$1; shift
exec ip netns exec {self.mark}h$((${{host##*:}} - 1)) unshare --uts sh -c "hostname h${{host##*:}}; $*"''')
        self.write("hosts", "root@fd77::1 slots = 1\n[fd77::2]:1\nfd77::2 slots=1\n")
        told = self.tsrun("--hostfile=hosts", "--agent", agent, launching.worker(), 5, before=self.on("s"))
        for rank in range(3):
            self.assertIn(f"rank {rank} of 3: sum 60", told)
        self.assert_nothing_left()

    def test_a_list_with_a_host_that_is_not_there_is_refused(self):
        agent = self.agent()
        told = self.tsrun("--hosts=10.77.0.1:2,10.77.0.9:2", "--agent", agent, "true", before=self.on("s"), code=2)
        self.assertIn("10.77.0.9", told)
        self.assertIn("no host", self.tsrun("--hosts=10.77.0.1:2,no..where:2", "true", before=self.on("s"), code=2))
        self.assert_nothing_left()


if __name__ == "__main__":
    harness.main()
