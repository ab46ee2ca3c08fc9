"""`tessera explain` and `tessera diff`; completion in real shells; the manual page."""

import os
import pathlib
import shutil
import subprocess
import unittest

import launching
from harness import InOwnFolder, main, program


class Explaining(InOwnFolder):
    def test_an_option_is_explained_from_its_declaration(self):
        told = self.tessera("explain", "optimizer_config.betas")
        for words in ("float", ">= 0, < 1", "[0.9, 0.999]", "AdamWOptions of component optim, declared in framework/optim/adam.h, with optimizer_type adamw",
                      "adam_beta1 ([0])", "--adam-beta1 ([0])"):
            self.assertIn(words, told)
        self.assertIn("model_config.num_layers\n", self.tessera("explain", "num_layers"))  # not vision_config.num_layers
        self.assertIn("vision_config.num_layers\n", self.tessera("explain", "vision_config.num_layers"))
        self.assertIn("optimizer_config.learning_rate\n", self.tessera("explain", "optimizer_config.lr"))
        self.assertIn("did you mean 'betas'?", self.tessera("explain", "betaz", code=2))
        self.assertIn("--disable-bias-linear: false", self.tessera("explain", "add_bias_linear"))
        self.assertIn("give one of these", self.tessera("explain", "vocab_size", code=2))
        self.assertIn("not implemented yet", self.tessera("explain", "use_custom_fsdp"))

    def test_a_value_is_told_with_where_it_came_from(self):
        self.write("top.yaml", "base: tiny.yaml\nmodel_config:\n  rotary_base: 10\n")
        def value(key, *words):
            return self.tessera("explain", key, "top.yaml", *words).split("in top.yaml\n")[1]
        self.assertRegex(value("model_config.num_layers"), r"value +2\n +from +tiny.yaml:\d+ \(base of top.yaml\)")
        self.assertRegex(value("model_config.num_layers", "--set", "model_config.num_layers=3"), r"value +3\n +from +--set model_config.num_layers")
        self.assertRegex(value("model_config.rotary_base"), r"value +10\n +from +top.yaml:3\n +effect +none: `position_embedding_type` is neither rope nor mrope")
        self.assertRegex(value("model_config.ffn_hidden_size"), r"value +null\n +from +default\n +taken +128 \(derived: 4 x `hidden_size`")
        self.assertRegex(value("optimizer_config.muon_momentum"), r"value +none: it belongs to a type that is not selected")
        for wrong, mistake in (("0", "num_layers must be >= 1"), ("many", "num_layers takes int, not 'many'")):
            told = value("model_config.num_layers", "--set", f"model_config.num_layers={wrong}")
            self.assertIn(mistake, told)
            self.assertRegex(told, r"value +none: what was given is wrong\n +from +--set model_config.num_layers\n")

    def test_check_lists_what_has_no_effect(self):
        self.write("top.yaml", "base: tiny.yaml\nmodel_config:\n  rotary_base: 10\n")
        self.assertIn("without effect\n  top.yaml:3: model_config.rotary_base: `position_embedding_type` is neither rope nor mrope\n",
                      self.tessera("check", "top.yaml"))
        self.assertNotIn("without effect", self.tessera("check", "tiny.yaml"))


class Differences(InOwnFolder):
    def test_what_two_recipes_do_differently_is_told_by_groups(self):
        self.write("a.yaml", "base: tiny.yaml\noptimizer_config:\n  betas: [0.9, 0.95]\n")
        self.write("b.yaml", "base: tiny.yaml\nmodel_config: {ffn_hidden_size: 128}\noptimizer_config: {optimizer_type: lion, lr: 0.001}\n")
        told = self.tessera("diff", "a.yaml", "b.yaml", code=1)
        self.assertTrue(told.startswith("- a.yaml\n+ b.yaml\n"), told)
        self.assertIn("  optimizer_type\n    - adamw  (tiny.yaml:", told)
        self.assertIn("  betas\n    - [0.9, 0.95]  (a.yaml:3)\n    + not an option here\n", told)
        self.assertNotIn("ffn_hidden_size", told)  # 128 is what null comes to
        self.assertNotIn("learning_rate", told)
        self.assertNotIn("decoupled_", told)  # adamw alone has it, and nobody gave it
        self.assertEqual(self.tessera("diff", "a.yaml", "a.yaml"), "")
        self.assertIn("seed", self.tessera("diff", "a.yaml", "a.yaml", "--set-b", "training_config.seed=8", code=1))
        for nowhere in ("nowhere.yaml", "nowhere"):  # a recipe, and a script
            self.assertNotIn("- a.yaml", self.tessera("diff", "a.yaml", nowhere, code=2))
        self.assertIn("    + wrong, see the mistake  (--set training_config.seed)",
                      self.tessera("diff", "a.yaml", "a.yaml", "--set-b", "training_config.seed=x", code=1))

    def test_options_that_nobody_gave_and_that_have_no_effect_are_left_out(self):
        self.write("a.yaml", "base: tiny.yaml\n")
        self.write("b.yaml", "base: tiny.yaml\ndataset_config: {dataset_type: instruction, mock_documents: null, data_path: x, cut_max_seqlen: true}\nmodel_config: {hidden_size: 64}\n")
        told = self.tessera("diff", "a.yaml", "b.yaml", code=1)
        self.assertRegex(told, r"dataset_type\n    - mock .*\n    \+ instruction ")
        self.assertRegex(told, r"cut_max_seqlen\n    - not an option here\n    \+ true ")
        self.assertRegex(told, r"hidden_size\n    - 32 .*\n    \+ 64 ")
        for name in ("no_shuffle", "eod_mask_loss", "moe_ffn_hidden_size"):
            self.assertNotIn(name, told)
        told = self.tessera("diff", "a.yaml", "b.yaml", "--set-a", "dataset_config.eod_mask_loss=false", code=1)
        self.assertRegex(told, r"eod_mask_loss\n    - false  \(--set .*\n    \+ not an option here")
        self.tessera("diff", "a.yaml", "a.yaml", "--set-b", "parallel_config.pipeline_model_parallel_size=9", code=1)

    def test_a_run_is_compared_by_what_it_kept(self):
        self.tessera("train", "tiny.yaml", "--set", "training_config.training_iters=1", "--set", "training_config.eval_iters=0")
        told = self.tessera("diff", "run", "tiny.yaml", code=1)
        self.assertIn("  training_iters\n    - 1  (", told)
        self.assertNotIn("model_config", told)
        self.tessera("diff", self.folder, "tiny.yaml", code=2)


class Completion(InOwnFolder):
    LINES = {"tessera che": ["check", "checkpoint"], "tessera check --js": ["--json"], "tessera checkpoint ver": ["verify"],
             "tessera check tiny.yaml --set optimizer_config.bet": ["optimizer_config.betas="],
             "tessera train --set model_config.fa_config.in": ["model_config.fa_config.input_layout="],
             "tessera explain training_config.see": ["training_config.seed"],
             "tessera checkpoint convert --from h": ["hf"], "tessera data show tiny.yaml --split v": ["valid"],
             "tessera data preprocess --on-error s": ["stop", "skip"],
             "tessera data preprocess --tokenizer-type N": ["NullTokenizer"], "tessera --log-level d": ["debug"],
             "tessera man rec": ["recipe"]}
    # Only the part behind = is completed by bash and zsh.
    EQUALS = {"tessera checkpoint convert --to=h": "hf", "tessera check --set=model_config.normalization=R": "RMSNorm"}
    WORDS = {"tessera check --set model_config.normalization=R": "RMSNorm", "tessera check --set training_config.bf16=t": "true"}

    def script(self, shell):
        done = subprocess.run([program(), "completion", shell], text=True, capture_output=True, check=True)
        return self.write("completion." + shell, done.stdout)

    def in_shell(self, *command):
        done = subprocess.run(list(map(str, command)), cwd=self.folder, text=True, capture_output=True, timeout=200)
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout.split()

    def test_bash_completes_commands_options_keys_and_words(self):
        script = self.script("bash")
        def completed(line):
            return self.in_shell("bash", "--norc", "-c", 'source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _tessera; printf "%s\\n" "${COMPREPLY[@]}"',
                                 "bash", script, line)
        for line, words in self.LINES.items():
            self.assertEqual(sorted(completed(line)), sorted(words), line)
        for line, word in {**self.WORDS, **self.EQUALS}.items():
            self.assertEqual(completed(line), [word], line)
        self.assertIn("train", completed("tessera "))
        self.assertEqual(completed("tessera checkpoint convert --from "), ["hf", "megatron", "mindspeed-mm", "tessera"])
        self.assertEqual(completed("tessera check tiny.yaml --from megatron@co"), ["core_v0.12.1"])  # bash cuts words at @
        self.assertEqual(completed("tessera data show tiny.yaml --from "), [])  # a number, not a program
        self.assertNotIn("none", completed("tessera data preprocess --tokenizer-type="))

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh_completes_commands_options_keys_and_words(self):
        script = self.script("zsh")
        # Stands in for the line editor: compadd shows the words that begin as the one under the cursor.
        double = self.write("double.zsh", """
            compset() { prefix=${prefix#*=} }
            _files() { }
            compadd() { local -a words; local end=; [[ $1 == -S ]] && { end=$2; shift 2 }; shift
                        for word in $@; do [[ $word == $prefix* ]] && print -r -- $word$end; done; return 0 }
            source $1; words=(${(z)2}) CURRENT=$#words prefix=$words[-1]; _tessera""")
        def completed(line):
            return self.in_shell("zsh", "-f", double, script, line)
        for line, words in self.LINES.items():
            self.assertEqual(sorted(completed(line)), sorted(words), line)
        for line, word in {**self.WORDS, **self.EQUALS}.items():
            self.assertEqual(completed(line), [word], line)

    @unittest.skipUnless(shutil.which("fish"), "there is no fish")
    def test_fish_completes_commands_options_keys_and_words(self):
        script = self.script("fish")
        def completed(line):
            done = subprocess.run(["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", script, line], cwd=self.folder, text=True,
                                  capture_output=True, timeout=200, env={**os.environ, "HOME": str(self.folder)})
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)
            return [words.split("\t")[0] for words in done.stdout.splitlines()]
        for line, words in self.LINES.items():
            self.assertEqual(sorted(completed(line)), sorted(words), line)
        for line, word in self.WORDS.items():
            self.assertEqual(completed(line), [line.split()[-1].split("=")[0] + "=" + word], line)


class CompletionOfTsrun(InOwnFolder):
    LINES = {"tsrun --nproc-per": ["--nproc-per-node"], "tsrun --local_w": ["--local_worker_num"], "tsrun --after_host_loss sh": ["shrink"],
             "tsrun --rdzv_backend=c": ["c10d"], "tsrun -r 3 --hostfile ho": ["hosts"], "tsrun --log_dir=lo": ["logs"],
             "tsrun --worker_num 2 --join=True tessera checkpoint ver": ["verify"]}

    def tsrun(self, *words):
        return subprocess.run([launching.beside_program("tsrun"), *words], text=True, capture_output=True, check=True).stdout

    def test_bash_completes_options_words_files_and_the_program(self):
        self.write("hosts", "")
        (self.folder / "logs").mkdir()
        script = self.write("tsrun.bash", self.tsrun("--completion", "bash") + self.tessera("completion", "bash"))
        for line, words in self.LINES.items():
            done = subprocess.run(["bash", "--norc", "-c", 'source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _tsrun; printf "%s\\n" "${COMPREPLY[@]}"',
                                   "bash", script, line], cwd=self.folder, text=True, capture_output=True, timeout=200)
            self.assertEqual((done.returncode, done.stdout.split(), done.stderr), (0, words, ""), line)

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_roff_has_no_complaint_about_the_manual(self):
        page = self.write("tsrun.1", self.tsrun("--man"))
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", str(page)], capture_output=True, text=True, timeout=200)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Manual(InOwnFolder):
    def test_the_manual_has_a_page_for_every_command_and_every_group_of_a_recipe(self):
        for words in (".BR tessera\\-check (1)", ".BR tessera\\-diff (1)", "\\fB\\-\\-log\\-level\\fR", ".SH EXIT STATUS"):
            self.assertIn(words, self.tessera("man"))
        for words in (".SS tessera data preprocess", "\\fB\\-\\-workers\\fR", "interrupted"):
            self.assertIn(words, self.tessera("man", "data"))
        for words in (".SS model_config", "\\fBnum_layers\\fR"):
            self.assertIn(words, self.tessera("man", "recipe"))

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_roff_has_no_complaint(self):
        self.tessera("man", "--output-dir", "pages")
        pages = sorted((self.folder / "pages").iterdir())
        self.assertGreater(len(pages), 15)
        for command in (["groff", "-man", "-ww", "-Tutf8", "-z"], ["man", "--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]):
            for page in pages if shutil.which(command[0]) else []:
                done = subprocess.run([*command, page], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200)
                self.assertEqual((done.returncode, done.stderr), (0, b""), page)


if __name__ == "__main__":
    main()
