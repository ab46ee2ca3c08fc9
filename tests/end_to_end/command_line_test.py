"""What all commands share: standard output that cannot be written, names with control characters, pages of help, and the commands for
finished runs."""

import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import unittest

import harness
from harness import program, sets

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2]))
TSRUN = pathlib.Path(program()).with_name("tsrun")


class CommandLine(harness.InOwnFolder):
    def one_step(self, *changes):
        self.tessera("train", "tiny.yaml", *sets(training_iters=1, eval_iters=0), *changes)

    def to_full_disk(self, *command):
        with open("/dev/full", "w") as full:
            return subprocess.run(list(map(str, command)), cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True, timeout=200)

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_full_disk_is_an_error_of_every_command(self):
        self.one_step()
        reason = "standard output: cannot be written: No space left on device"
        for words in ("options", "options --json-schema", "options --markdown", "check tiny.yaml", "check tiny.yaml --json", "man", "--help",
                      "--version", "check --help", "completion bash", "explain seq_length", "explain seq_length tiny.yaml",
                      "diff tiny.yaml tiny.yaml --set-b training_config.seed=1", "checkpoint inspect run", "checkpoint verify run",
                      "generate run --prompt-tokens 1 --tokens 2", "convert tiny.yaml --to megatron --allow-refused", "state probe",
                      "data show tiny.yaml", "train tiny.yaml --print-output-dir", "checkpoint convert --from tessera --to megatron run out"):
            done = self.to_full_disk(program(), *words.split())
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(reason, done.stderr, words)
        for words in ("--help", "--version"):
            done = self.to_full_disk(TSRUN, words)
            self.assertEqual((done.returncode, reason in done.stderr), (1, True), words)
        told = self.tessera("convert", "tiny.yaml", "--to", "megatron", "--allow-refused", "-o", "/dev/full", code=1)
        self.assertIn("/dev/full: cannot be written: No space left on device", told)

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_job_continues_and_says_where_its_lines_are(self):
        done = self.to_full_disk(TSRUN, "--nproc_per_node", 1, "--log_dir", "logs", "/bin/echo", "a line")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("standard output: cannot be written: No space left on device"), 1, done.stderr)
        self.assertIn("a line", (self.folder / "logs/worker_0.log").read_text())

    @unittest.skipUnless(os.path.exists("/dev/full"), "this system has no /dev/full")
    def test_a_run_is_complete_although_its_output_is_lost(self):
        done = self.to_full_disk(program(), "train", "tiny.yaml", *sets(training_iters=2, eval_iters=0))
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)
        self.assertEqual(len(self.checkpoints()), 1)

    def test_a_closed_standard_output_receives_nothing_of_a_file(self):
        done = subprocess.run(["sh", "-c", '"$1" train tiny.yaml --set training_config.training_iters=1 >&-', "sh", program()], cwd=self.folder,
                              stderr=subprocess.PIPE, text=True, timeout=200)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("Bad file descriptor", done.stderr)
        self.tessera("checkpoint", "verify", "run")

    def test_names_with_control_characters_do_not_reach_the_terminal(self):
        self.one_step()
        evil = "evil\033]0;title\a\r"
        (self.folder / "run").rename(self.folder / evil)
        told = [self.tessera("checkpoint", "inspect", evil), self.tessera("check", evil + ".yaml", code=2),
                self.tessera("check", "tiny.yaml", "--set", f"model_config.{evil}=1", code=2), self.tessera("diff", evil, "tiny.yaml", code=1),
                self.tessera("options", evil, code=2), self.tessera(evil, code=2), self.tessera("eval", evil, "--text", evil, code=2),
                self.tessera("check", "tiny.yaml", "--set", f'training_config.output_dir="{evil}"')]
        for words in told:
            self.assertIn("evil\\u001b]0;title\\u0007", words)
            self.assertNotRegex(words, r"[\x00-\x08\x0b-\x1f\x7f]")

    def test_a_run_folder_and_its_checkpoints_are_recipes(self):
        self.one_step("--set", "optimizer_config.learning_rate=5e-4")
        checkpoint = self.checkpoints()[0].relative_to(self.folder)
        for folder in ("run", "run/checkpoints", checkpoint):
            told = self.tessera("explain", "optimizer_config.learning_rate", folder)
            self.assertRegex(told, r"value +5e-04\n", folder)
            told = self.tessera("diff", "tiny.yaml", folder, code=1)
            self.assertRegex(told, r"learning_rate\n +- 0\.001 .*\n +\+ 5e-04 ")
            self.assertNotIn("hidden_size", told)
        self.assertEqual(self.tessera("diff", "run", checkpoint), "")
        (self.folder / "empty").mkdir()
        for folder in ("empty", "nowhere", "nowhere.yaml"):
            told = self.tessera("explain", "optimizer_config.learning_rate", folder, code=2)
            self.assertIn(folder, told)
            self.assertNotIn("value ", told)

    def test_rows_that_hold_tokens_are_not_dropped(self):
        self.write("text.txt", "the quick brown fox jumps over the lazy dog\n" * 40)
        files = ["--vocab-file", "bpe/vocab.json", "--merge-file", "bpe/merges.txt"]
        self.tessera("data", "train-bpe", "--input", "text.txt", "--vocab-size", 270, "--output-dir", "bpe")
        self.tessera("data", "preprocess", "--input", "text.txt", "--append-eod", "--output-prefix", "text", *files)
        self.recipe("text.yaml", dataset_type="gpt", vocab_size=None, training_iters=1, eval_iters=0, dataset_config__data_path="text",
                    dataset_config__split="1,0,0", dataset_config__tokenizer_type="GPT2BPETokenizer",
                    dataset_config__vocab_file="bpe/vocab.json", dataset_config__merge_file="bpe/merges.txt")
        self.tessera("train", "text.yaml")
        to_hf = ["checkpoint", "convert", "--from", "tessera", "--to", "hf"]
        tokens = len(json.loads((self.folder / "bpe/vocab.json").read_text()))
        for size in (3, tokens - 1):
            told = self.tessera(*to_hf, "run", "hf", "--vocab-size", size, code=2)
            self.assertIn(f"--vocab-size is {size}, which drops tokens of run: rows 0 to {tokens - 1} hold tokens", told)
        self.assertIn("but the model has 384 rows", self.tessera(*to_hf, "run", "hf", "--vocab-size", 385, code=2))
        self.assertFalse((self.folder / "hf").exists())
        for size in (tokens, 384):
            self.tessera(*to_hf, "run", f"hf{size}", "--vocab-size", size)
            self.assertEqual(json.loads((self.folder / f"hf{size}/config.json").read_text())["vocab_size"], size)
        for target in ("megatron", "tessera"):
            told = self.tessera("checkpoint", "convert", "--from", "tessera" if target == "megatron" else "hf", "--to", target,
                                "run" if target == "megatron" else "hf384", "other", "--vocab-size", 999, code=2)
            self.assertIn(f"--vocab-size is for --to hf, not --to {target}", told)

    def test_a_vocabulary_without_tokenizer_is_kept(self):
        self.one_step("--set", "model_config.vocab_size=128")
        told = self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "run", "hf", "--vocab-size", 100, code=2)
        self.assertIn("rows 0 to 127 hold tokens", told)
        smaller = ["--set", "model_config.vocab_size=3"]
        other = [*smaller, "--set", "dataset_config.tokenizer_type=NullTokenizer", "--set", "dataset_config.vocab_size=2"]
        for settings in (smaller, other):
            for command in (["convert", "--from", "tessera", "--to", "hf"], ["convert", "--from", "tessera", "--to", "megatron"], ["reshard"]):
                self.assertIn("128", self.tessera("checkpoint", *command, "run", "out", *settings, code=2))
        self.assertFalse((self.folder / "out").exists())

    def test_no_library_of_the_current_folder_is_loaded(self):
        for name in ("libz.so.1", "libstdc++.so.6", "libyaml-cpp.so.0.7", "libmpi.so.40"):
            self.write(name, "not a library")
            self.write(f"glibc-hwcaps/x86-64-v2/{name}", "not a library")
        self.assertRegex(self.tessera("--version"), "^tessera ")
        self.assertRegex(self.command(TSRUN, "--version"), "^tsrun ")

    def test_help_fits_into_80_columns(self):
        script = self.tessera("completion", "bash")
        commands = re.findall(r'^ +"tessera(.*)"\) echo', script, re.MULTILINE)
        self.assertGreater(len(commands), 20)
        pages = [self.tessera(*command.split(), "--help") for command in commands] + [self.command(TSRUN, "--help")]
        for page in pages:
            wide = [line for line in page.splitlines() if len(line) > 80]
            self.assertEqual(wide, [], page.splitlines()[0])

    def test_numbers_in_errors_are_short(self):
        for words in (["generate", "run", "--temperature", "-1"], ["generate", "run", "--tokens", "0"], ["generate", "run", "--tokens", "9" * 309],
                      ["generate", "run", "--top-p", "nan"], ["check", "tiny.yaml", "--ranks", "9" * 400], ["generate", "run", "--seed", "1.5"],
                      ["check", "tiny.yaml", "--set", "model_config.num_layers=" + "9" * 309],
                      ["check", "tiny.yaml", "--set", "optimizer_config.learning_rate=-" + "9" * 309]):
            told = self.tessera(*words, code=2)
            self.assertNotRegex(told, r"\d{60}")

    def test_colour_is_for_terminals_that_want_it(self):
        for environment, coloured in (({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)):
            ours, theirs = pty.openpty()
            clean = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
            subprocess.run([program(), "trian"], stderr=theirs, env={**clean, "TERM": "xterm", **environment}, timeout=200, check=False)
            os.close(theirs)
            self.assertEqual(b"\033[31m" in harness.read_terminal(ours), coloured, environment)
            os.close(ours)

    def test_missing_input_files_are_wrong_input(self):
        self.one_step()
        self.assertIn("nowhere.txt", self.tessera("eval", "run", "--text", "nowhere.txt", code=2))
        self.write("template.jinja", "{{ messages }}")
        self.tessera("data", "render-chat", "--chat-template", "nowhere", "--input", "template.jinja", code=2)
        self.tessera("data", "render-chat", "--chat-template", "template.jinja", "--input", "nowhere", code=2)
        self.assertIn("nowhere", self.tessera("generate", "run", "--messages", "nowhere", code=2))

    def test_a_rendered_conversation_has_its_tools(self):
        self.write("chat.jinja", "{{ tools | length if tools else 'none' }} {{ messages[0].content }}")
        messages = [{"role": "user", "content": "x"}]
        rows = [{"messages": messages, "tools": [{"name": "f"}, {"name": "g"}]}, {"messages": messages}]
        self.write("chat.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        shown = self.tessera("data", "render-chat", "--chat-template", "chat.jinja", "--input", "chat.jsonl")
        self.assertEqual(shown, "2 x\nnone x\n")

    def test_an_interrupted_preprocess_says_how_to_continue(self):
        # Its lines on standard error fill the pipe, so that it cannot end before it is interrupted.
        self.write("text.jsonl", (json.dumps({"text": " ".join(map(str, range(90)))}) + "\n") * 8000)
        command = ["data", "preprocess", "--input", "text.jsonl", "--output-prefix", "text", "--tokenizer-type", "NullTokenizer",
                   "--vocab-size", 100]
        for name in ("text", "whole"):
            command[command.index("--output-prefix") + 1] = name
            if name == "whole":
                self.tessera(*command)
                continue
            process = self.start(*command, "--log-interval", 1)
            self.assertIn("Processed", process.stderr.readline())
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=200)[1]
            self.assertEqual(process.returncode, 130, told)
            self.assertIn("preprocess: interrupted by SIGINT; 'text.unfinished.json'", told)
            self.assertIn("repeat the command with --resume", told)
            self.assertIn("resumed behind", self.tessera(*command, "--resume"))
        for end in (".bin", ".idx"):
            self.assertEqual((self.folder / f"text_text_document{end}").read_bytes(), (self.folder / f"whole_text_document{end}").read_bytes())


class Chat(harness.InOwnFolder):
    """A model whose tokens are <0>, <1>, ..., so that a text names its tokens."""

    CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<95>"}
    TEMPLATE = "{% for m in messages %}{% if m.role == 'critic' %}{{ raise_exception('no critics') }}{% endif %}<{{ {'system': 10, 'user': 11, 'assistant': 12}[m.role] }}>{{ m.content }}{% endfor %}" \
               "{% if add_generation_prompt %}<12>{% endif %}"

    def setUp(self):
        super().setUp()
        shutil.copytree(SOURCE / "tests/data/families/llama", self.folder / "hf")
        added = [{"id": i, "content": f"<{i}>", "special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
                 for i in range(3, 96)]
        self.write("hf/tokenizer.json", json.dumps({"version": "1.0", "added_tokens": added, "model": {
            "type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}))
        self.write("hf/tokenizer_config.json", json.dumps({**self.CONFIG, "chat_template": self.TEMPLATE}))

    @staticmethod
    def text(ids, stops=(95,)):
        """What is printed of greedy tokens. The tokenizer has no decoder, so that blanks part its tokens."""
        names = ["a", "b", "ab"] + [f"<{i}>" for i in range(3, 96)]
        return " ".join(names[i] for i in ids[:next((at for at, i in enumerate(ids) if i in stops), len(ids))])

    def answer(self, *words, code=0):
        return self.tessera("generate", "hf", "--temperature", 0, "--tokens", 6, *words, code=code)

    def tokens_after(self, *ids):
        return list(map(int, self.answer("--prompt-tokens", " ".join(map(str, ids))).split()))

    def test_an_answer_follows_the_rendered_conversation_and_ends_at_any_end_token(self):
        greedy = self.tokens_after(11, 2, 12)
        self.assertEqual(self.answer("--chat", "--prompt", "ab").strip(), self.text(greedy))
        messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "ab"},
                    {"role": "user", "content": "a"}]
        longer = self.tokens_after(10, 0, 11, 1, 12, 2, 11, 0, 12)
        for content in (messages, {"messages": messages}):
            self.write("talk.json", json.dumps(content))
            self.assertEqual(self.answer("--messages", "talk.json").strip(), self.text(longer))
        self.assertNotIn(greedy[1], (greedy[0], 95))
        self.write("hf/generation_config.json", json.dumps({"eos_token_id": [94, greedy[1]]}))
        self.assertEqual(self.answer("--chat", "--prompt", "ab").strip(), self.text(greedy[:1]))
        self.tessera("checkpoint", "convert", "--from", "hf", "--to", "tessera", "hf", "ours")  # carries template and end tokens
        ours = self.tessera("generate", "ours", "--temperature", 0, "--tokens", 6, "--chat", "--prompt", "ab")
        self.assertEqual(ours.strip(), self.text(greedy[:1]))

    def test_what_is_no_conversation_is_refused(self):
        for content, says in (("", "is not JSON"), ("[]", "has no messages"), ('{"a": 1}', "has no messages"), ('[{"content": "a"}]', 'has no "role"'),
                              ('{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}', "talk.json: has 'tools'"),
                              ('{"messages": [{"role": "user", "content": "a"}], "tools": "[{}]"}', "talk.json: 'tools' is not a list of objects"),
                              ('["a"]', "message 1"), ('[{"role": "critic", "content": "a"}]', "chat template")):
            self.write("talk.json", content)
            self.assertIn(says, self.answer("--messages", "talk.json", code=2), content)
        self.assertIn("nothing to answer", self.answer("--chat", code=2))
        self.write("hf/tokenizer_config.json", json.dumps(self.CONFIG))
        self.assertIn("has no chat template", self.answer("--chat", "--prompt", "a", code=2))


if __name__ == "__main__":
    harness.main()
