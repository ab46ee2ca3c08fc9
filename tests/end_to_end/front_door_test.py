"""The first things that a user meets: help, versions, wrong words, a first run."""

import json
import re

import harness
from harness import sets


class Smoke(harness.InOwnFolder):
    def test_help_names_the_commands(self):
        told = self.tessera("--help")
        for command in ("train", "check", "options", "data", "checkpoint", "generate", "eval"):
            self.assertIn(command, told)

    def test_tiny_gpt_learns(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=60, learning_rate="1e-2"))
        losses = self.losses()
        self.assertEqual(len(losses), 60)
        self.assertLess(losses[-1], losses[0] - 0.1)

    def test_what_the_memory_was_used_for_is_told(self):
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=2))
        self.assertRegex(told, r"memory of this rank: weights .*, gradients .*, optimizer state .*, activations .*, workspace .*; peak of the process \d")
        line = json.loads((self.folder / "run/metrics.jsonl").read_text().splitlines()[0])
        kinds = [line[f"{kind}_bytes"] for kind in ("weight", "gradient", "optimizer", "activation", "workspace", "message")]
        self.assertTrue(all(kinds[:-1]), line)
        self.assertEqual(kinds[-1], 0)  # a run of one rank has no messages
        self.assertEqual(sum(kinds), line["memory_bytes"])

    def test_unknown_command_names_what_there_is(self):
        told = self.tessera("trian", "tiny.yaml", code=2)
        self.assertIn("trian", told)

    def test_check_counts_parameters(self):
        self.assertIn("param", self.tessera("check", "tiny.yaml"))

    def test_check_draws_the_layout(self):
        cut = ["--set", "parallel_config.pipeline_model_parallel_size=2", "--set", "dataset_config.micro_batch_num=4"]
        told = self.tessera("check", "tiny.yaml", *cut, "--ranks", 4, "--ranks-per-host", 2)
        rows = [line.split() for line in told.splitlines() if re.match(r" +[0-3] ", line)]
        self.assertEqual([row[:5] for row in rows[:4]], [["0", "0", "0", "0", "0"], ["1", "0", "0", "0", "1"],
                                                     ["2", "1", "0", "1", "0"], ["3", "1", "0", "1", "1"]], told)
        self.assertIn("stage 1 | .  f0", told)
        self.assertIn("20.0 % = (p-1)/(m+p-1) of the time", told)
        self.assertIn("the run has 3", self.tessera("check", "tiny.yaml", *cut, "--ranks", 3, code=2))


class FrontDoor(harness.InOwnFolder):
    def test_from_text_to_a_sample(self):
        self.write("text.txt", "In the beginning was the word, and the word was short. " * 400)
        files = ["--vocab-file", "bpe/vocab.json", "--merge-file", "bpe/merges.txt"]
        self.tessera("data", "train-bpe", "--input", "text.txt", "--vocab-size", 300, "--output-dir", "bpe")
        self.tessera("data", "preprocess", "--input", "text.txt", "--append-eod", "--output-prefix", "text", *files)
        self.assertIn("tokens", self.tessera("data", "inspect", "text"))
        self.recipe("text.yaml", dataset_type="gpt", vocab_size=None, learning_rate="1e-2", training_iters=300,
                    hidden_dropout_rate=0, attention_dropout_rate=0,
                    dataset_config__train_data_path="text", dataset_config__valid_data_path="text",
                    dataset_config__tokenizer_type="GPT2BPETokenizer", dataset_config__vocab_file="bpe/vocab.json",
                    dataset_config__merge_file="bpe/merges.txt")
        self.tessera("check", "text.yaml")
        self.tessera("train", "text.yaml")
        self.assertIn("network_iter_0000300", self.tessera("checkpoint", "inspect", "run"))
        self.tessera("checkpoint", "verify", "run")
        # The folder alone is enough: no recipe, no data, no tokenizer files.
        for name in ("text.yaml", "bpe/vocab.json", "bpe/merges.txt", "text.bin", "text.idx"):
            (self.folder / name).unlink()
        told = self.tessera("eval", "run", "--text", "text.txt", "--json")
        self.assertLess(json.loads(told.splitlines()[-1])["bits_per_byte"], 0.5)
        sample = self.tessera("generate", "run", "--prompt", "In the", "--temperature", 0, "--tokens", 12)
        self.assertTrue(sample.startswith("In the beginning was the word"), sample)

    def test_plain_lines_in_a_pipe_follow_megatrons_format(self):
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=3))
        self.assertRegex(told, r" iteration +3/ +3 \| consumed samples: +12 \|.*learning rate: .*lm loss: ")

    def test_core_ms_style_of_log(self):
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=3, log_style="core_ms"))
        self.assertRegex(told, r"Epoch: *\d+, Step: *3, Loss: *[\d.]+, Time: *[\d.]+")

    def test_not_a_number_is_told_with_step_layer_and_tensor(self):
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=50, learning_rate="1e30"), "--set",
                            "optimizer_config.optimizer_type=sgd", "--set", "optimizer_config.clip_grad=0", code=1)
        self.assertRegex(told, r"(?i)(nan|inf|not finite)")
        self.assertRegex(told, r"(?i)step|iteration")


if __name__ == "__main__":
    harness.main()
