"""Bad input ends in one clear error, exit code 2, and nothing lost."""

import gzip
import json
import os
import re
import resource
import struct

import harness
from harness import sets


class BadInput(harness.InOwnFolder):
    def refused(self, *words, says, command="train", lines=12):
        """The command ends with code 2 and one report that matches every pattern of `says`; no trace, no half-made run."""
        told = self.tessera(command, *words, code=2)
        for pattern in [says] if isinstance(says, str) else says:
            self.assertRegex(told, pattern)
        self.assertNotRegex(told, r"(?i)(terminate called|segmentation|bad_alloc|internal error|core dumped)")
        self.assertLess(len(told.splitlines()), lines, told)
        return told

    def test_missing_recipe(self):
        self.refused("nowhere.yaml", says="nowhere.yaml")

    def test_recipe_that_is_a_folder(self):
        (self.folder / "folder.yaml").mkdir()
        self.refused("folder.yaml", says="folder.yaml")

    def test_empty_recipe(self):
        self.write("empty.yaml", "")
        self.refused("empty.yaml", says="empty.yaml")

    def test_tab_in_yaml(self):
        self.write("tab.yaml", "training_config:\n\ttraining_iters: 3\n")
        self.refused("tab.yaml", says=["tab.yaml:2", "(?i)tab"])

    def test_unknown_group(self):
        self.write("group.yaml", harness.to_yaml({**harness.TINY, "trainig_config": {"seed": 1}}))
        self.refused("group.yaml", says=[r"group.yaml:\d+", "trainig_config", "training_config"])

    def test_unknown_key_names_the_nearest(self):
        self.recipe("key.yaml", optimizer_config__lerning_rate="1e-3")
        self.refused("key.yaml", says=[r"key.yaml:\d+", "lerning_rate", "learning_rate"])

    def test_key_given_twice(self):
        self.write("twice.yaml", harness.to_yaml(harness.TINY).replace("  seed: 7\n", "  seed: 7\n  seed: 8\n"))
        self.refused("twice.yaml", says=[r"twice.yaml:4", "seed"])

    def test_wrong_type(self):
        self.recipe("type.yaml", training_iters="many")
        self.refused("type.yaml", says=["type.yaml:2", "training_iters", "many"])

    def test_number_out_of_range(self):
        self.recipe("range.yaml", learning_rate="-1e-3")
        self.refused("range.yaml", says=[r"range.yaml:\d+", "learning_rate"])

    def test_heads_that_do_not_divide(self):
        self.recipe("heads.yaml", num_attention_heads=5)
        self.refused("heads.yaml", says=["num_attention_heads", "32", "5"])

    def test_batch_sizes_that_do_not_divide(self):
        self.recipe("batch.yaml", dataset_config__global_batch_size=6)
        self.refused("batch.yaml", says=["global_batch_size", "6", "4"])

    def test_sequence_longer_than_positions(self):
        self.recipe("long.yaml", seq_length=32)
        self.refused("long.yaml", says=["32", "16", "position"])

    def test_a_run_that_needs_more_memory_than_there_is(self):
        for what, changes in {"optimizer state": dict(num_layers=100, hidden_size=1048576),
                              "activations": dict(dataset_config__batch_size=1048576, num_layers=100, hidden_size=4096),
                              "data": dict(training_iters=10 ** 11)}.items():
            self.recipe("huge.yaml", **changes)
            self.refused("huge.yaml", says=["huge.yaml: rank 0 needs", what + r" [0-9.]+ \w+ \(the largest part\)", r"may have [0-9.]+ \w+ \("])
            self.assertRegex(self.tessera("check", "huge.yaml"), r"note: huge.yaml: this run needs [0-9.]+ \w+( at least)?: weights")
            self.assertFalse((self.folder / "run").exists())

    def test_text_files_that_are_compressed_or_no_json(self):
        self.write("x.jsonl.gz", gzip.compress(b'{"text": "1"}'))
        self.write("chat.jinja", "x")
        self.write("chat.jsonl", '{"messages": [{"role": "user", "content": "x"}]}\n{"messages": [}\n')
        for words in ["train-bpe", "--input", "x.jsonl.gz", "--output-dir", "b"], ["render-chat", "--chat-template", "chat.jinja", "--input", "x.jsonl.gz"]:
            self.refused(*words, command="data", says=r"x.jsonl.gz: is compressed \(gzip\); unpack it first")
        self.refused("render-chat", "--chat-template", "chat.jinja", "--input", "chat.jsonl", command="data",
                     says="chat.jsonl:2: is not JSON: line 1, column 15: .*; correct or remove the line")
        self.write("chat.jsonl", '{"messages": [{"role": "user", "content": "x"}], "tools": "[]"}\n')
        self.refused("render-chat", "--chat-template", "chat.jinja", "--input", "chat.jsonl", command="data",
                     says="'tools' is not a list of objects")
        self.refused("train-bpe", "--input", "chat.jsonl", "--output-dir", "b", "--min-frequency", "-3", command="data", says="min-frequency")

    def test_outputs_that_are_inputs(self):
        self.write("text.jsonl", '{"text": "1 2 3"}\n')
        plain = ["--tokenizer-type", "NullTokenizer", "--vocab-size", "60"]
        self.tessera("data", "preprocess", "--input", "text.jsonl", "--output-prefix", "a", *plain)
        (self.folder / "hard.bin").hardlink_to(self.folder / "a_text_document.bin")
        (self.folder / "soft.idx").symlink_to("a_text_document.idx")
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        merge = ["merge", "a_text_document", "a_text_document", "--output-prefix"]
        for output in ["a_text_document", "./a_text_document", "hard", "soft"]:
            self.refused(*merge, output, command="data", says="overwrite the input")
        self.refused("preprocess", "--input", "a_text_document.bin", "--format", "file", "--output-prefix", "a_text_document", *plain,
                     command="data", says="overwrite the input")
        self.refused("preprocess", "--input", "text.jsonl", "--output-prefix", "b", "--json-keys", "text", "text", *plain, command="data",
                     says="two outputs")
        self.refused("train-bpe", "--input", "vocab.json", "--output-dir", ".", command="data", says="vocab.json")
        self.write("vocab.json", "{}")
        self.refused("train-bpe", "--input", "vocab.json", "--output-dir", ".", command="data", says="overwrite the input")
        self.write("base.sh", "LR=1e-3\n")
        self.write("run.sh", "source base.sh\ntorchrun pretrain_gpt.py --lr $LR --num-layers 2\n")
        for output in ["run.sh", "./base.sh"]:
            self.refused("run.sh", "-o", output, command="convert", says="overwrite the input")
            self.refused("run.sh", "--report", output, command="convert", says="overwrite the input")
        self.refused("run.sh", "-o", "x.yaml", "--report", "./x.yaml", command="convert", says="two outputs")
        self.tessera("train", "tiny.yaml", *sets(training_iters=2, output_dir="saved_tmp"))
        checkpoint = self.checkpoints("saved_tmp")[-1]
        for program, output in [("hf", "saved"), ("hf", "saved_tmp"), ("hf", "./saved_tmp/checkpoints"), ("megatron", checkpoint)]:
            self.refused("convert", "--from", "tessera", "--to", program, checkpoint, output, command="checkpoint", says="overwrite the input")
        self.refused("reshard", checkpoint, "saved_tmp", command="checkpoint", says="overwrite the input")
        for name, data in before.items():
            self.assertEqual((self.folder / name).read_bytes(), data, name)
        self.tessera("checkpoint", "verify", checkpoint)

    def test_generating_says_why_it_ends(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=2))
        generate = ["generate", "run", "--prompt-tokens", "1 2 3", "--tokens", "50"]
        self.assertRegex(self.tessera(*generate), "stopped at the maximum sequence length 16, after 14 of 50 tokens")
        self.assertNotIn("stopped", self.tessera(*generate[:-1], "5"))
        for flag, value in [("--temperature", "nan"), ("--temperature", "inf"), ("--top-p", "nan"), ("--threads", "1000000")]:
            self.refused(*generate[1:], flag, value, command="generate", says=value)
        self.tessera("train", "tiny.yaml", *sets(training_iters=6, learning_rate="1e38", check_for_nan_in_grad="false", output_dir="lost"))
        self.assertRegex(self.tessera("generate", "lost", "--prompt-tokens", "1 2 3", code=1), "logits after 3 tokens are not finite")

    def test_missing_data_file(self):
        self.recipe("data.yaml", dataset_type="gpt", dataset_config__data_path="absent/text")
        self.refused("data.yaml", says="absent/text")

    def test_seven_mistakes_over_a_recipe_and_its_base_give_seven_messages(self):
        self.write("base.yaml", "model_config:\n  num_layers: two\n  hidden_size: 32\n  num_attention_heads: 4\n"
                                "  seq_length: 16\n  vocab_size: 64\n  hiden_act: gelu\n"
                                "optimizer_config:\n  betas: [0.9, 1.5]\n")
        self.write("run.yaml", "base: base.yaml\ntraining_config:\n  training_iters: -3\n  log_style: shouting\n"
                               "dataset_config:\n  dataset_type: mock\n  batch_size: 1.5\nmodle_config:\n  num_layers: 2\n")
        told = self.tessera("check", "run.yaml", code=2)
        expected = [("base.yaml:2", "two"), ("base.yaml:7", "hidden_act"), ("base.yaml:9", "betas"),
                    ("run.yaml:3", "training_iters"), ("run.yaml:4", "shouting"), ("run.yaml:7", "1.5"),
                    ("run.yaml:8", "model_config")]
        self.assertEqual(len(told.splitlines()), len(expected), told)
        for where, what in expected:
            lines = [line for line in told.splitlines() if re.match(re.escape(where) + r"\b", line)]
            self.assertEqual(len(lines), 1, f"{where} in:\n{told}")
            self.assertIn(what, lines[0])

    def test_run_folder_not_writable(self):
        self.write("wall", "a file where a folder should be")
        self.refused("tiny.yaml", *sets(output_dir="wall/run"), says="wall/run")
        if os.geteuid() == 0:
            return  # root may write anywhere
        closed = self.folder / "closed"
        closed.mkdir(mode=0o500)
        self.refused("tiny.yaml", *sets(output_dir="closed/run"), says="closed")

    def test_run_folder_in_use_by_a_living_process(self):
        process = self.start("train", "tiny.yaml", *sets(training_iters=1000000))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.wait_until(lambda: self.steps_logged() >= 1, "a first step")
        self.refused("tiny.yaml", says=["(?i)in use|another|running", str(process.pid)])
        self.assertIsNone(process.poll(), "the first run must go on")

    def test_checkpoint_of_another_shape_names_the_tensors(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=2))
        before = self.last_checkpoint()
        self.refused("tiny.yaml", *sets(training_iters=4, hidden_size=64),
                     says=["another model", r"embedding.word_embeddings.weight: \[64, 64\] .*\[64, 32\]"])
        self.assertEqual(before, self.last_checkpoint())

    def test_unreadable_checkpoint(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=2))
        folder = self.checkpoints()[-1]
        for path in folder.rglob("*"):
            if path.is_file():
                path.write_bytes(b"not what it was")
        told = self.tessera("checkpoint", "verify", folder, code=24)
        self.assertIn(folder.name, told)


class EndlessInput(harness.InOwnFolder):
    """Input that does not fit into memory."""

    NULL = ["--output-prefix", "out", "--tokenizer-type", "NullTokenizer", "--vocab-size", "99"]

    def refused(self, *words, **popen):
        process = self.start(*words, **popen)
        told = "".join(process.communicate(timeout=120))
        self.assertEqual(process.returncode, 2, told)
        self.assertEqual([path.name for path in self.folder.glob("out*")], [], told)
        return told

    def test_compressed_text_without_a_line_end(self):
        member = gzip.compress(bytes(1 << 24), 1)
        for name, format in (("zeros.jsonl.gz", "json"), ("zeros.txt.gz", "file")):
            self.write(name, member * 64)  # 1 GiB
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
            told = self.refused("data", "preprocess", "--input", name, "--format", format, *self.NULL, preexec_fn=limit)
            self.assertRegex(told, rf"{name}.*600.00 MiB")
            self.assertNotIn("bad_alloc", told)


class BadData(harness.InOwnFolder):
    """Token files that are not what the recipe promises."""

    def setUp(self):
        super().setUp()
        tokens = [token % 60 for token in range(4000)]
        self.plant("good", tokens)

    def plant(self, name, tokens, version=1, documents=10):
        """A .bin/.idx pair as Megatron writes it: uint16 tokens, `documents` of equal length, a sequence each."""
        length = len(tokens) // documents
        self.write(name + ".bin", struct.pack(f"<{len(tokens)}H", *tokens))
        self.write(name + ".idx", b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", version, 8, documents, documents + 1) +
                   struct.pack(f"<{documents}i", *[length] * documents) +
                   struct.pack(f"<{documents}q", *[2 * length * i for i in range(documents)]) +
                   struct.pack(f"<{documents + 1}q", *range(documents + 1)))

    def train(self, name, code=0, **changes):
        self.recipe("data.yaml", dataset_type="gpt", dataset_config__data_path=name, dataset_config__split="70,30,0",
                    **changes)
        return self.tessera("train", "data.yaml", *sets(training_iters=3), code=code)

    def test_good_data_trains(self):
        self.train("good")
        self.assertEqual(len(self.losses()), 3)

    def test_run_json_has_a_checksum_of_the_index_and_the_size_of_the_tokens(self):
        self.plant("other", [0] * 4000, documents=20)
        found = []
        for name in "good", "other":
            self.train(name, output_dir=name + "_run")
            data, = json.loads((self.folder / (name + "_run") / "run.json").read_text())["data"]
            self.assertEqual((data["path"], data["tokens"], data["bin_bytes"]), (str(self.folder / name), 4000, 8000))
            sum_of_index = 0xffffffff
            for byte in (self.folder / (name + ".idx")).read_bytes():
                sum_of_index ^= byte
                for _ in range(8):
                    sum_of_index = sum_of_index >> 1 ^ (0x82f63b78 if sum_of_index & 1 else 0)  # CRC-32C
            self.assertEqual(data["index_crc32c"], f"{sum_of_index ^ 0xffffffff:08x}")
            found.append(data["index_crc32c"])
        self.assertNotEqual(*found)

    def test_truncated_bin(self):
        path = self.folder / "good.bin"
        path.write_bytes(path.read_bytes()[:5000])
        self.assertRegex(self.train("good", code=2), r"good\.bin")

    def test_idx_of_another_version(self):
        self.plant("newer", list(range(60)) * 60, version=2)
        self.assertRegex(self.train("newer", code=2), r"(?s)newer\.idx.*version")

    def test_idx_that_is_none(self):
        self.write("good.idx", b"GIF89a" + bytes(100))
        self.assertRegex(self.train("good", code=2), r"good\.idx")

    def test_token_beyond_the_vocabulary(self):
        self.plant("wide", [1, 2, 3, 500] * 1000)
        told = self.train("wide", code=2)
        self.assertRegex(told, "500")
        self.assertRegex(told, "64")


if __name__ == "__main__":
    harness.main()
