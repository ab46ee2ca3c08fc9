"""Samples that cannot be used are replaced on all ranks: every number of the run and its last checkpoint are those of a run on intact
data that was given their list from the beginning."""

import json
import os
import random
import signal
import struct

import faults_test
import harness
from faults_test import inject
from launching import Launching, compile_preloaded

TRAIN_ITERS = faults_test.STEPS
DOCUMENTS, LENGTH, VOCABULARY = 150, 60, 64


def file_fault(library, rank, path, words):
    return {"LD_PRELOAD": str(library), "FILE_FAULT_RANK": str(rank), "FILE_FAULT_PATH": path, "FILE_FAULT": words}


class BadSamples(Launching):
    assert_nothing_lost = faults_test.Faults.assert_nothing_lost

    def state(self, run):
        """As of other faults, without the list of what was found: a run that was given it found nothing."""
        state = faults_test.Faults.state(self, run)
        for name in state:
            if name.endswith("progress.json"):
                content = json.loads(state[name])
                content.pop("quarantine", None)
                state[name] = json.dumps(content).encode()
        return state

    def setUp(self):
        super().setUp()
        self.seed = random.randrange(10**9)
        self.random = random.Random(self.seed)
        tokens = [self.random.randrange(VOCABULARY) for _ in range(DOCUMENTS * LENGTH)]
        self.write("data.bin", struct.pack(f"<{len(tokens)}H", *tokens))
        self.write("data.idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, DOCUMENTS, DOCUMENTS + 1) +
                   struct.pack(f"<{DOCUMENTS}i", *[LENGTH] * DOCUMENTS) +
                   struct.pack(f"<{DOCUMENTS}q", *[2 * LENGTH * i for i in range(DOCUMENTS)]) +
                   struct.pack(f"<{DOCUMENTS + 1}q", *range(DOCUMENTS + 1)))
        self.intact = (self.folder / "data.bin").read_bytes()

    def damage(self, *positions):
        """Tokens at these positions become one that is outside the vocabulary."""
        data = bytearray(self.intact)
        for position in positions:
            data[2 * position:2 * position + 2] = struct.pack("<H", 999)
        self.write("data.bin", bytes(data))

    def line(self, configuration, run, *more, limit=100):
        data = {"dataset_type": "gpt", "data_path": "data", "split": '"8,2,0"', "bad_sample_limit": limit}
        return faults_test.line_of(configuration, run, *[word for key, value in data.items()
                                                         for word in ("--set", f"dataset_config.{key}={value}")], *more)

    def quarantine(self, run):
        return [json.loads(line) for line in (self.folder / run / "quarantine.jsonl").read_text().splitlines()]

    def compare_with_intact(self, configuration, run, *more):
        """With a run on intact data that is given what `run` found."""
        self.write("data.bin", self.intact)
        self.tsrun(*self.line(configuration, "given", "--set", f"dataset_config.quarantine_file={run}/quarantine.jsonl", *more, limit=0))
        self.assertFalse((self.folder / "given/quarantine.jsonl").exists())
        self.assert_nothing_lost(run, "given", f"seed {self.seed}")

    def test_tokens_outside_the_vocabulary_also_when_ranks_are_killed(self):
        on = self.random.choice(["DP 3", "bf16, distributed optimizer"])
        train, valid = int(DOCUMENTS * .8) * LENGTH, DOCUMENTS * LENGTH
        # So many that the run certainly reads some of each split, of which it reads two thirds.
        self.damage(*self.random.sample(range(train), 20), *self.random.sample(range(train, valid), 20))
        self.tsrun(*self.line(on, "damaged"))
        found = self.quarantine("damaged")
        self.assertEqual({one["split"] for one in found}, {"train", "valid"})
        for one in found:
            self.assertIn("holds token 999, but the model's vocabulary has", one["reason"])
        first = min(one["iteration"] for one in found if one["split"] == "train")
        last = max(one["iteration"] for one in found)
        steps = [first, min(last + 1, TRAIN_ITERS)]
        told = self.tsrun(*self.line(on, "killed", *inject([f"1:{steps[0]}:update:kill:0", f"2:{steps[1]}:commit:kill:1"])))
        self.assertEqual(told.count("starting all workers again"), 2, told)
        self.assertEqual(self.metrics("killed"), self.metrics("damaged"), f"seed {self.seed}")
        self.assertEqual(faults_test.Faults.state(self, "killed"), faults_test.Faults.state(self, "damaged"), f"seed {self.seed}")
        key = lambda one: (one["split"], one["sample"])
        self.assertEqual(sorted(map(key, self.quarantine("killed"))), sorted(map(key, found)))
        self.compare_with_intact(on, "damaged")
        self.tsrun(*self.line(on, "intact"))
        chain = lambda run: [line["sample_chain"] for line in self.metrics(run)]
        self.assertEqual([one == other for one, other in zip(chain("damaged"), chain("intact"))],
                         [step < first for step in range(1, TRAIN_ITERS + 1)], "the chain differs from the first replacement on")

    def test_one_rank_cannot_read_part_of_the_file(self):
        more = ["--set", "dataset_config.mmap_bin_files=false"]
        rank, first = self.random.choice([0, 1, 2, 3]), self.random.randrange(0, int(DOCUMENTS * .6) * LENGTH * 2)
        fault = file_fault(compile_preloaded(self.folder, "file_faults"), rank, "data.bin", f"unreadable {first} {first + 900}")
        self.tsrun(*self.line("TP 2, PP 2", "damaged", *more), environment=fault)
        found = self.quarantine("damaged")
        self.assertEqual({one["rank"] for one in found}, {rank})
        for one in found:
            self.assertRegex(one["reason"], r"data.bin: cannot be read: Input/output error\n  while reading data.bin: document \d+, token")
        self.compare_with_intact("TP 2, PP 2", "damaged", *more)

    def test_a_file_that_is_truncated_while_it_is_read(self):
        more = ["--set", 'dataset_config.split="1,0,0"']
        stops = inject([f"{rank}:0:start:stop" for rank in range(3)])
        job = self.start_tsrun(*self.line("DP 3", "damaged", *more, *stops, "--set", "resilience_config.step_time_out=60", limit=100))
        logs = [self.folder / f"damaged/log/worker_{rank}.log" for rank in range(3)]
        self.wait_until(lambda: all(log.exists() and "injected fault" in log.read_text() for log in logs), "the stops")
        os.truncate(self.folder / "data.bin", 4 * 4096)
        for rank in range(3):
            os.kill(self.process_of(rank, "tessera"), signal.SIGCONT)
        told = self.end_of(job)
        self.assertNotIn("starting all workers again", told)
        for one in self.quarantine("damaged"):
            self.assertIn("cannot be read (SIGBUS); it was truncated after it was opened", one["reason"])
        self.compare_with_intact("DP 3", "damaged", *more)

    def test_the_limit(self):
        self.damage(*range(0, DOCUMENTS * LENGTH, 300))
        told = self.tsrun(*self.line("DP 3", "damaged", limit=2), code=2)
        self.assertRegex(told, r"\d+ samples cannot be used, and dataset_config.bad_sample_limit is 2; damaged/quarantine.jsonl lists them")
        self.assertGreater(len(self.quarantine("damaged")), 2)
        told = self.tsrun(*self.line("DP 3", "strict", limit=0), code=2)
        self.assertRegex(told, r"data.bin: document \d+, token \d+ \(both from 0\): holds token 999, but the model's vocabulary has 64")
        self.assertFalse((self.folder / "strict/quarantine.jsonl").exists())

    def test_a_bit_that_flips_is_found_by_its_checksum(self):
        self.tessera("data", "checksum", "data")
        self.tessera("data", "checksum", "--verify", "data")
        data = bytearray(self.intact)
        data[self.random.randrange(len(data) // 2) * 2] ^= 1  # still a token of the vocabulary
        self.write("data.bin", bytes(data))
        told = self.tessera("data", "checksum", "--verify", "data", code=2)
        self.assertRegex(told, r"data.bin: bytes 0 to 18000 have the checksum [0-9a-f]{8}, but data.crc says [0-9a-f]{8}")
        told = self.tessera(*self.line("DP 3", "strict", limit=0)[3:], code=2)
        self.assertIn("data.bin: bytes 0 to 18000 have the checksum", told)


if __name__ == "__main__":
    harness.main()
