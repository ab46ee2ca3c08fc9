"""Index files of the samples in runs on two hosts (launch_hosts_test.py), with storage that they share and without."""

import array
import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import struct
import time

import harness
from harness import sets
from launch_hosts_test import Hosts

ARRAYS = ["document_index", "sample_index", "shuffle_index"]


class Renames:
    """The files that got their names in a folder, as (old name, new name), from when this is made."""

    MOVED_FROM, MOVED_TO = 0x40, 0x80

    def __init__(self, folder):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.file = self.libc.inotify_init1(os.O_NONBLOCK)
        if self.file < 0 or self.libc.inotify_add_watch(self.file, os.fsencode(folder), self.MOVED_FROM | self.MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), "inotify")
        self.old, self.all = {}, []

    def read(self):
        while True:
            try:
                content = os.read(self.file, 65536)
            except BlockingIOError:
                return self.all
            at = 0
            while at < len(content):
                _, mask, cookie, length = struct.unpack_from("iIII", content, at)
                name = content[at + 16:at + 16 + length].rstrip(b"\0").decode()
                at += 16 + length
                if mask & self.MOVED_FROM:
                    self.old[cookie] = name
                else:
                    self.all.append((self.old.get(cookie, ""), name))


class LaunchData(Hosts):
    """`disk` holds data.bin, data.idx and the cache; a host without shared storage has a file system of its own there."""

    def setUp(self):
        super().setUp()
        self.plant(self.folder / "kept", 2000)
        shutil.copytree(self.folder / "kept", self.folder / "disk")
        self.recipe(dataset_type="gpt", dataset_config__data_path="disk/data", dataset_config__split='"90,5,5"',
                    dataset_config__data_cache_path="disk/cache", eval_interval=80, training_iters=200, log_interval=10)

    @staticmethod
    def plant(folder, documents):
        """Documents of 3 to 19 tokens below 64."""
        folder.mkdir(exist_ok=True)
        lengths = array.array("i", (3 + i * 7 % 17 for i in range(documents)))
        starts, tokens = array.array("q"), 0
        for length in lengths:
            starts.append(2 * tokens)
            tokens += length
        (folder / "data.bin").write_bytes(array.array("H", (i * i % 61 for i in range(tokens))).tobytes())
        (folder / "data.idx").write_bytes(
            b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1) + lengths.tobytes() + starts.tobytes() +
            array.array("q", range(documents + 1)).tobytes())

    def named(self, host):
        """Runs the rest on a host with a name of its own."""
        return [*self.on(f"h{host}"), "unshare", "--uts", "sh", "-c", f'hostname h{host} && exec "$@"', "sh"]

    def apart(self, host):
        """The same with a file system of its own, whose index files are listed when all is over."""
        script = (f'hostname h{host} && mount -t tmpfs -o size=16m tmpfs "$0" && cp kept/* "$0" && {{ "$@"; code=$?; }}; '
                  f'cd "$0/cache" && sha256sum * > "{self.folder}/built.h{host}"; exit $code')
        return [*self.on(f"h{host}"), "unshare", "--uts", "--mount", "sh", "-c", script, str(self.folder / "disk")]

    def start(self, run, before, **changes):
        """Two ranks on each of two hosts; `before` makes the command of a host."""
        return [self.start_tsrun("--worker_num=4", "--local_worker_num=2", "--master_addr=10.77.0.1", "--master_port=8848",
                                 f"--log_dir=logs_{run}{host}", f"--node_rank={host}", "tessera", "train", "tiny.yaml",
                                 *sets(output_dir=run, **changes), before=before(host)) for host in range(2)]

    def on_one_host(self, **changes):
        self.tsrun("--worker_num=4", "--log_dir=logs_alone", "tessera", "train", "tiny.yaml", *sets(output_dir="alone", **changes))
        # Three arrays, a description and a file of checksums of train, valid and test.
        self.assertEqual(len(self.cache()), 15)
        return self.metrics("alone")

    def cache(self):
        return sorted(path.name for path in (self.folder / "disk/cache").iterdir())

    def empty_cache(self):
        for path in (self.folder / "disk/cache").iterdir():
            path.unlink()

    def mapped(self, pid, name):
        """Device and inode of a file that a process maps."""
        try:
            lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
        except OSError:
            return None
        return next((tuple(line.split()[3:5]) for line in lines if line.endswith(name)), None)

    def test_hosts_with_shared_storage_build_the_index_once_and_map_the_same_files(self):
        alone, files = self.on_one_host(), self.cache()
        self.empty_cache()
        train = next(name for name in files if name.endswith("GPTDataset-train-document_index.npy"))
        renames = Renames(self.folder / "disk/cache")
        with open(self.folder / "disk/cache" / train.replace("document_index.npy", "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as if another run was building
            jobs = self.start("shared", self.named)
            log = self.folder / "logs_shared0/worker_0.log"
            self.wait_until(lambda: log.exists() and "waiting for the index of the samples (GPTDataset-train)" in log.read_text(),
                            "a rank that waits")
            self.assertEqual(renames.read(), [])
        inodes = {}

        def all_map_it():
            inodes.update({pid: self.mapped(pid, train) for pid in self.processes("tessera")})
            return len([inode for inode in inodes.values() if inode]) == 4
        self.wait_until(all_map_it, "four ranks that map the index")
        self.assertEqual(len({inode for inode in inodes.values() if inode}), 1, inodes)
        for job in jobs:
            self.end_of(job)
        self.assertIn("for the index of the samples", log.read_text())
        self.assertEqual(sorted(new for _, new in renames.read()), files, "each file was written once")
        for split in ("train", "valid", "test"):
            builders = {tuple(old.split(".")[-3:-1]) for old, _ in renames.read() if f"GPTDataset-{split}-" in old}
            self.assertEqual(len(builders), 1, renames.read())
            self.assertIn(builders.pop()[0], ("h0", "h1"))
        self.assertEqual(self.cache(), files)
        self.assertEqual(self.metrics("shared"), alone)
        self.assert_nothing_left()

    def test_hosts_with_separate_storage_build_the_index_each_for_itself(self):
        fewer = dict(training_iters=40, eval_interval=16)
        alone = self.on_one_host(**fewer)
        self.empty_cache()
        for job in self.start("separate", self.apart, **fewer):
            self.end_of(job)
        built = [(self.folder / f"built.h{host}").read_text() for host in range(2)]
        self.assertEqual(len(built[0].splitlines()), 15, built[0])
        self.assertEqual(built[0], built[1])
        self.assertEqual(self.cache(), [])  # below the file systems of the hosts
        self.assertEqual(self.metrics("separate"), alone)
        self.assert_nothing_left()

    def test_a_builder_that_is_killed_leaves_nothing_that_a_later_run_takes(self):
        self.plant(self.folder / "disk", 200000)
        much = dict(training_iters=400000, exit_interval=20, eval_interval=0)  # 6.4 million samples: the build takes a while
        caught = None
        for attempt in range(20):
            shutil.rmtree(self.folder / "disk/cache", ignore_errors=True)
            (self.folder / "disk/cache").mkdir()
            jobs = self.start(f"killed{attempt}", self.named, **much)
            caught = self.stop_builder()
            if caught:
                break
            for job in jobs:
                self.end_of(job)
        self.assertTrue(caught, "no builder was met while it was building")
        left = self.cache()
        self.assertFalse([name for name in left if name.endswith("description.txt")], left)
        os.kill(caught, signal.SIGKILL)
        for job in jobs:
            self.end_of(job, code=137)
        for job in self.start("again", self.named, **much):
            self.end_of(job)
        self.assertEqual([name.split("-", 2)[2] for name in self.cache()],
                         ["train-checked.txt", "train-description.txt", *[f"train-{name}.npy" for name in ARRAYS]])
        again = self.metrics("again")
        self.tsrun("--worker_num=4", "--log_dir=logs_alone", "tessera", "train", "tiny.yaml",
                   *sets(output_dir="alone", **much, **{"eval_iters": 1}))
        self.assertEqual(again, self.metrics("alone"))
        self.assert_nothing_left()

    def stop_builder(self):
        """The process that builds, stopped in the middle of it; None if it was done before that."""
        cache, until = self.folder / "disk/cache", time.monotonic() + 200
        while time.monotonic() < until:
            names = os.listdir(cache)
            if any(name.endswith("description.txt") for name in names):
                return None
            for name in names:
                if not name.endswith("lock"):
                    continue
                try:
                    words = (cache / name).read_text().split()
                except OSError:
                    continue
                found = [int(word) for word in words if word.isdigit() and int(word) in self.processes("tessera")]
                if found:
                    os.kill(found[0], signal.SIGSTOP)
                    done = any(other.endswith("description.txt") for other in os.listdir(cache))
                    if not done:
                        return found[0]
                    os.kill(found[0], signal.SIGCONT)
                    return None
            time.sleep(.001)
        return None


if __name__ == "__main__":
    harness.main()
