"""Whole runs that start from text: launch/quickstart.sh, fine-tuning on conversations, and a run that records a profile."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import harness
from harness import sets, to_yaml
from in_turn import mpirun

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])


class Quickstart(harness.InOwnFolder):
    """launch/quickstart.sh with the program that is tested instead of a build, a smaller model, and another text and compressors."""

    PLANNED = 1000000  # steps, more than any machine does in a second

    def setUp(self):
        super().setUp()
        for folder in ("launch", "configs"):
            shutil.copytree(SOURCE / folder, self.folder / folder)
        (self.folder / "build/release").mkdir(parents=True)
        os.symlink(pathlib.Path(harness.program()).parent, self.folder / "build/release/framework")
        for name, more in (("quickstart", {"seq_length": 32}), ("quickstart_short", {})):
            recipe = (self.folder / f"configs/{name}.yaml").read_text()
            for key, value in {"training_iters": self.PLANNED, "num_layers": 1, "hidden_size": 32, **more}.items():
                recipe, found = re.subn(rf"(?m)^  {key}: \d+$", f"  {key}: {value}", recipe)
                self.assertEqual(found, 1, key)
            self.write(f"configs/{name}.yaml", recipe)
        for name in ("bzip2", "xz"):  # -9 -c FILE
            self.write(f"bin/{name}", "#!/bin/sh\nexec gzip -1 -c \"$3\"\n").chmod(0o755)
        for name in ("apt-get", "cmake"):
            self.write(f"bin/{name}", "#!/bin/sh\nexit 0\n").chmod(0o755)
        verses = (f"Ge{n}:{n % 9} In the beginning the earth was without form, and day {n % 50} was the first of {n % 70} days." for n in range(46000))
        self.write("text", "\n".join(verses) + "\n")
        self.write("bin/bible", f"#!/bin/sh\nexec cat '{self.folder}/text'\n").chmod(0o755)

    def quickstart(self, seconds=1):
        done = subprocess.run(["launch/quickstart.sh", "--seconds", str(seconds), "--threads", "1", "--output", "out"], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_it_trains_evaluates_and_generates_and_repeats_nothing(self):
        told = self.quickstart()
        steps = int((self.folder / "out/steps").read_text())
        self.assertEqual(len(self.checkpoints("out/run")[-1].name.split("_iter_")[1]), 7)
        self.assertTrue(self.checkpoints("out/run")[-1].name.endswith(f"{steps:07d}"))
        self.assertRegex(told, rf"\d+ of the {self.PLANNED} steps of configs/quickstart.yaml fit into 1 s on this machine: a smaller model is trained")
        self.assertIn(f"{steps} of the {self.PLANNED} steps of configs/quickstart_short.yaml fit into 1 s on this machine", told)
        bits = re.search(r"Tessera, this model +(\d\.\d+)", told)
        self.assertTrue(bits and 0 < float(bits[1]) < 8, told)
        self.assertRegex(told, r"bzip2 -9 of that part alone +\d\.\d+\n +xz -9e with the training text given to it +\d\.\d+")
        self.assertIn("the model writes\nJoh3:16 For God so", told)
        self.assertIn(f"This machine had time for {steps} of the {self.PLANNED} steps of configs/quickstart_short.yaml. To continue this run to the last one:", told)
        again = self.quickstart()
        for name in ("corpus", "tokenizer", "token ids", "yardsticks", "length of the run", "training", "evaluation"):
            self.assertIn(f"== {name}: done before (out/", again)
        command = re.search(r"To continue this run to the last one:\n  (.*)\n", told)[1]
        self.command("bash", "-c", re.search(r"\n  (.*tessera check .*)\n", told)[1])
        self.assertIn("resuming from", self.command("bash", "-c", f"{command} --set training_config.exit_interval={steps + 1}"))
        self.assertEqual(self.checkpoints("out/run")[-1].name.split("_iter_")[1], f"{steps + 1:07d}")

    def test_a_recipe_whose_steps_fit_is_trained_to_its_end_and_a_folder_without_a_choice_is_its_own(self):
        recipe = (self.folder / "configs/quickstart.yaml").read_text()
        self.write("configs/quickstart.yaml", recipe.replace(f": {self.PLANNED}\n", ": 12\n"))
        for _ in range(2):
            told = self.quickstart(seconds=60)  # its steps fit, however slow the machine is
            self.assertEqual((self.folder / "out/steps").read_text(), "12\n")
            self.assertNotIn("a smaller model", told)
            self.assertNotIn("This machine had time for", told)
            self.assertIn("check configs/quickstart.yaml", told)
            (self.folder / "out/recipe").unlink(missing_ok=True)

    def test_an_installed_program_of_the_same_version_and_commit_is_used_instead_of_a_build(self):
        shutil.copy(SOURCE / "CMakeLists.txt", self.folder)
        self.write("bin/cmake", "#!/bin/sh\nexit 1\n").chmod(0o755)
        version = self.tessera("--version").split()[1]
        # Version of the installed program, content of its share/tessera/version, commit and changes of the source tree; whether it is used.
        for told, record, commit, changes, used in ((version, None, "c1", "", True), (version, f"{version} c1", "c1", "", True), (version, version, "c1", "", True),
                                                    (version, f"{version} c1", "", "", True), (version, f"{version} c1", "c2", "", False),
                                                    (version, f"{version} c1", "c1", " M x", False), (version, f"{version} c1-modified", "c1", " M x", False),
                                                    ("9.9", None, "c1", "", False)):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            shutil.rmtree(self.folder / "share", ignore_errors=True)
            # Any other command fails, so that the script ends at the tokenizer.
            self.write("bin/tessera", f'#!/bin/sh\n[ "$1" = --version ] && echo "tessera {told}"\n').chmod(0o755)
            self.write("bin/git", f'#!/bin/sh\ncase "$*" in *rev-parse*) echo {commit}; [ -n "{commit}" ] ;; *) echo "{changes}" ;; esac\n').chmod(0o755)
            if record:
                self.write("share/tessera/version", record + "\n")
            done = subprocess.run(["launch/quickstart.sh", "--output", "out"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
            self.assertEqual(done.returncode, 1, done.stdout)
            with self.subTest(told=told, record=record, commit=commit, changes=changes):
                self.assertEqual(f"using the installed {self.folder / 'bin/tessera'}" in done.stdout, used, done.stdout)
                self.assertEqual("the build failed" in done.stdout, not used, done.stdout)
                self.assertEqual("failed: " in done.stdout and "train-bpe" in done.stdout, used, done.stdout)


class FineTuning(harness.InOwnFolder):
    COLORS = ("red", "blue", "green", "black")

    def setUp(self):
        super().setUp()
        talk = lambda i: {"messages": [{"role": "user", "content": f"Which color has number {i % 4}?"}, {"role": "assistant", "content": f"It is {self.COLORS[i % 4]}."}]}
        self.write("talks.jsonl", "".join(json.dumps(talk(i)) + "\n" for i in range(64)))
        self.write("chat.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")
        self.tessera("data", "train-bpe", "--input", "talks.jsonl", "--format", "blank-lines", "--vocab-size", 280, "--output-dir", "bpe")
        self.write("sft.yaml", to_yaml({
            "training_config": {"training_iters": 30, "seed": 7, "output_dir": "run", "log_interval": 1, "tensorboard": "false", "eval_iters": 0},
            "model_config": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "seq_length": 96, "max_position_embeddings": 96,
                             "hidden_dropout_rate": 0.1, "attention_dropout_rate": 0},
            "optimizer_config": {"optimizer_type": "adamw", "learning_rate": 1e-2, "lr_decay_style": "constant"},
            "dataset_config": {"dataset_type": "sft", "data_path": "talks.jsonl", "split": '"1,0,0"', "batch_size": 4, "sft_tokenizer_prompt_format": "default",
                               "chat_template": "chat.jinja", "sft_answers_only": "true", "tokenizer_type": "GPT2BPETokenizer",
                               "vocab_file": "bpe/vocab.json", "merge_file": "bpe/merges.txt"}}))

    def test_answers_are_learned_and_a_resumed_run_is_the_same_to_the_bit(self):
        self.tessera("train", "sft.yaml", *sets(output_dir="straight"))
        losses = self.losses("straight")
        self.assertLess(losses[-1], .3 * losses[0], losses)
        for _ in range(2):
            self.tessera("train", "sft.yaml", *sets(output_dir="halves", exit_interval=15))
        self.assert_same_run("straight", "halves")
        self.tessera("train", "sft.yaml", *sets(output_dir="all"), "--set", "dataset_config.sft_answers_only=false")
        self.assertNotEqual(self.losses("all")[0], losses[0], "questions have a loss, too")


class Profile(harness.InOwnFolder):
    def test_what_is_not_profiled_is_told(self):
        never = sets(training_iters=3, profile="true")
        words = "nothing is profiled: profile_step_start is 10, but the last iteration is 3"
        self.assertIn(words, self.tessera("check", "tiny.yaml", *never))
        self.assertIn(words, self.tessera("train", "tiny.yaml", *never))
        self.assertFalse((self.folder / "run/profile").exists())
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=3, profile="true", profile_step_start=1, profile_ranks="[0,4]", output_dir="ranks"))
        self.assertIn("profile_ranks has 4, but the ranks of this run are 0 to 0", told)

    def test_another_rank_tells_of_its_own_profile(self):
        for folder, words in (("profile", "trace: profile/rank_1/trace.json"), ("/proc/nowhere", "the trace could not be written")):
            told = self.command(*mpirun(2, self.folder), harness.program(), "train", "tiny.yaml",
                                *sets(training_iters=3, profile="true", profile_step_start=2, profile_step_end=2, profile_ranks="[1]", profile_save_path=folder,
                                      output_dir=f"run{folder.count('/')}"))
            self.assertIn(words, told)
        self.assertTrue((self.folder / "profile/rank_1/trace.json").exists())

    def test_the_trace_has_the_chosen_steps_and_changes_no_number(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=8, output_dir="without"))
        self.tessera("train", "tiny.yaml", *sets(training_iters=8, profile="true", profile_step_start=4, profile_step_end=6, profile_level="level1"))
        self.assert_same_run("run", "without")
        log = (self.folder / "run/tessera.log").read_text()
        self.assertRegex(log, r"profile of iterations 4 to 6, [\d.]+ ms each: .*backward pass \d+\.\d %")
        self.assertRegex(log, r"its kernels: \w+ \d+\.\d % \(\d+ times\)")
        events = json.loads((self.folder / "run/profile/rank_0/trace.json").read_text())["traceEvents"]
        phases = [event["name"] for event in events if event.get("cat") == "phase"]
        self.assertEqual((phases.count("forward pass"), phases.count("backward pass")), (3, 3), sorted(set(phases)))
        for kind in ("kernel", "operation"):
            self.assertTrue(any(event.get("cat") == kind for event in events), kind)


if __name__ == "__main__":
    harness.main()
