"""What the end-to-end tests share: a folder of their own, a tiny recipe, and the tessera program."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

# Metrics that a clock or the machine decides. Everything else must repeat to the bit.
CLOCKS = {"step_seconds", "tokens_per_second", "data_wait_seconds", "memory_bytes", "activation_bytes", "workspace_bytes",
          "message_bytes", "model_flops_utilization", "exposed_communication_seconds", "fastest_rank_seconds", "slowest_rank_seconds",
          "slowest_rank", "rank_seconds"}

# resolved.yaml repeats the command's own words (the run folder, where to stop), and the manifest has its checksum.
WORDS_OF_THE_COMMAND = {"resolved.yaml", "manifest.json"}


def without_run_id(path):
    """The bytes of a checkpoint's file; progress.json without the id of its run, which is random."""
    if path.name != "progress.json":
        return path.read_bytes()
    content = json.loads(path.read_text())
    content.pop("run")
    return json.dumps(content).encode()


# A GPT that trains some steps in a second, with dropout, so that random numbers matter. Few documents, because the index of mock data has a row
# for each sample: with Megatron-LM's 100000 documents it has 150 MB, which take two thirds of the processor time of such a run.
TINY = {
    "training_config": {"training_iters": 20, "seed": 7, "output_dir": "run", "log_interval": 1,
                        "eval_interval": 8, "eval_iters": 1, "tensorboard": "false"},
    "model_config": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "seq_length": 16,
                     "max_position_embeddings": 16, "vocab_size": 64, "hidden_dropout_rate": 0.1, "attention_dropout_rate": 0.1},
    "optimizer_config": {"optimizer_type": "adamw", "learning_rate": 1e-3},
    "dataset_config": {"dataset_type": "mock", "mock_documents": 300, "batch_size": 4, "data_cache_path": "cache"},
}


def read_terminal(master):
    """All that was written to a pseudo terminal, whose other end is closed. One read may give a part."""
    content = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # EIO: nobody can write any more
            return content
        if not part:
            return content
        content += part


def program():
    return os.environ["TESSERA_PROGRAM"]


def to_yaml(groups):
    lines = []
    for group, options in groups.items():
        lines.append(f"{group}:")
        lines += [f"  {key}: {value}" for key, value in options.items()]
    return "\n".join(lines) + "\n"


def sets(**changes):
    """training_iters=3 -> --set training_config.training_iters=3, in the group where TINY or the caller has the key."""
    words = []
    for key, value in changes.items():
        group = next((g for g, options in TINY.items() if key in options), "training_config")
        words += ["--set", f"{group}.{key}={value}"]
    return words


class InOwnFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.write("tiny.yaml", to_yaml(TINY))

    def write(self, name, words):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(words, bytes):
            path.write_bytes(words)
        else:
            path.write_text(words)
        return path

    def recipe(self, name="tiny.yaml", **changes):
        """Write TINY with some options changed; None leaves one out."""
        groups = {group: dict(options) for group, options in TINY.items()}
        if "dataset_type" in changes:
            del groups["dataset_config"]["mock_documents"]
        for key, value in changes.items():
            group = next((g for g, options in groups.items() if key in options), None)
            if group is None:
                group, key = key.split("__")
            if value is None:
                del groups[group][key]
            else:
                groups[group][key] = value
        self.write(name, to_yaml(groups))
        return name

    def start(self, *words, environment=None, **popen):
        return subprocess.Popen([program(), *map(str, words)], cwd=self.folder, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}, **popen)

    def tessera(self, *words, code=0, environment=None, timeout=120):
        """Run to the end; returns stdout + stderr. Fails when the exit code is another than `code`."""
        process = self.start(*words, environment=environment)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"tessera {' '.join(map(str, words))} still runs after {timeout} s")
        told = out + err
        self.assertEqual(process.returncode, code, f"tessera {' '.join(map(str, words))}:\n{told}")
        return told

    def processor_seconds(self, act):
        """Processor time of the programs that `act` runs: unlike the clock, it does not depend on what else the machine does."""
        used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        before = used()
        act()
        return used() - before

    def command(self, *words):
        """Run any program to its good end; returns what it told."""
        done = subprocess.run([str(word) for word in words], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, f"{words}:\n{done.stdout[-6000:]}")
        return done.stdout

    def metrics(self, run="run"):
        """The lines of metrics.jsonl without clocks."""
        lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
        return [{key: value for key, value in line.items() if key not in CLOCKS} for line in lines]

    def checkpoints(self, run="run"):
        """Folders of finished checkpoints, the newest last."""
        return sorted(path for path in (self.folder / run / "checkpoints").glob("*iter_*")
                      if re.search(r"iter_\d+$", path.name))

    def tensors(self, folder, pattern):
        """Name -> bytes of those tensors in files of safetensors whose names begin so."""
        found = {}
        for path in folder.glob("*.safetensors"):
            data = path.read_bytes()
            begin = 8 + int.from_bytes(data[:8], "little")
            for name, facts in json.loads(data[8:begin]).items():
                if re.match(pattern, name):
                    found[name] = data[begin + facts["data_offsets"][0]:begin + facts["data_offsets"][1]]
        return found

    def last_checkpoint(self, run="run"):
        """Relative name -> bytes of every file of the newest checkpoint but those that repeat the command."""
        newest = self.checkpoints(run)[-1]
        return {str(path.relative_to(newest.parent)): without_run_id(path)
                for path in sorted(newest.rglob("*")) if path.is_file() and path.name not in WORDS_OF_THE_COMMAND}

    def assert_same_run(self, one, other):
        """Two runs have the same metrics but for clocks, and the same last checkpoint to the byte."""
        self.assertEqual(self.metrics(one), self.metrics(other))
        self.assertGreater(len(self.metrics(one)), 0)
        files, others = self.last_checkpoint(one), self.last_checkpoint(other)
        self.assertEqual(sorted(files), sorted(others))
        for name, data in files.items():
            self.assertTrue(data == others[name], f"{name} differs between {one} and {other}")

    def wait_until(self, holds, what, seconds=200, job=None):
        """Fails after `seconds` of waiting, or as soon as `job`, a process whose output is a pipe, has ended without it. Time in which this
        process could not look, because the machine stood still, does not count: what it waits for stood still, too."""
        waited, last = 0.0, time.monotonic()
        while not holds():
            if job is not None and job.poll() is not None and not holds():
                self.fail(f"ended with exit code {job.returncode} before {what}:\n{job.communicate()[0]}")
            if waited > seconds:
                self.fail(f"not within {seconds} s: {what}")
            time.sleep(0.005)
            now = time.monotonic()
            waited, last = waited + min(now - last, 1), now

    def is_stopped(self, pid):
        """Whether a signal such as SIGSTOP has stopped the process; false when it has ended, also while this reads."""
        try:
            return re.search(r"State:\t[Tt]", pathlib.Path(f"/proc/{pid}/status").read_text()) is not None
        except OSError:
            return False

    def is_pending(self, pid, number):
        """Whether the stopped process was sent the signal, which it meets when it continues; false when it has ended."""
        try:
            pending = re.search(r"ShdPnd:\t(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)
        except OSError:
            return False
        return int(pending, 16) >> number - 1 & 1 == 1

    def losses(self, run="run"):
        """The training loss of every step."""
        return [line["loss"] for line in self.metrics(run) if "loss" in line]

    def steps_logged(self, run="run"):
        """How many steps metrics.jsonl holds of a run that may be writing it."""
        path = self.folder / run / "metrics.jsonl"
        return path.read_bytes().count(b'"loss"') if path.exists() else 0


def ignore_file_size_signal():
    """A write beyond a file size limit then fails as one on a full disk does, instead of ending the process."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def limit_file_size(pid, size):
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def main():
    unittest.main(verbosity=2)
