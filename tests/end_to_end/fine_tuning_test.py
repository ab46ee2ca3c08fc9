"""The recipes of configs/fine_tuning on a small model, and adapters of ours in real PEFT.

Real PEFT needs torch, transformers and peft: name a Python that has them in TESSERA_PEER_PYTHON; without it the test is skipped.
"""

import os
import pathlib
import shutil
import subprocess
import unittest

import harness
from harness import sets

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2]))
TUNED = SOURCE / "tests/data/finetune"
PEER = os.environ.get("TESSERA_PEER_PYTHON")
VERSES = ("the waters were upon the face of the deep", "God saw the light and it was good", "he made a firmament in the midst of the waters")


class FineTuningRecipes(harness.InOwnFolder):
    """configs/fine_tuning after a short run of configs/quickstart.yaml, both of fewer layers and channels."""

    SMALL = sets(num_layers=1, hidden_size=32, seq_length=64) + ["--set", "training_config.num_threads=1"]

    def setUp(self):
        super().setUp()
        for folder in ("launch", "configs"):
            shutil.copytree(SOURCE / folder, self.folder / folder)
        data = self.folder / "quickstart/data"
        data.mkdir(parents=True)
        verse = lambda n: f"Ge1:{n} And it was day {n % 5} and {VERSES[n % 3]}; and {VERSES[(n + 1) % 3]}."
        (data / "train.txt").write_text("".join(verse(n) + "\n" for n in range(400)))
        for words in (["train-bpe", "--input", data / "train.txt", "--vocab-size", 300, "--output-dir", data / "bpe"],
                      ["preprocess", "--input", data / "train.txt", "--append-eod", "--output-prefix", data / "train", "--vocab-file",
                       data / "bpe/vocab.json", "--merge-file", data / "bpe/merges.txt"]):
            self.tessera("data", *words)
        self.command("env", f"TESSERA={harness.program()}", "launch/fine_tuning_data.sh")

    def train(self, name, steps, *more):
        self.tessera("train", f"configs/{name}.yaml", *self.SMALL, "--set", f"training_config.training_iters={steps}", "--set",
                     "training_config.log_interval=1", "--set", "training_config.eval_iters=0", *more)

    def test_the_loss_of_each_falls(self):
        data = self.folder / "quickstart/data"
        self.train("quickstart", 150, "--set", f"dataset_config.valid_data_path={data / 'train'}")
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "quickstart/run", "quickstart/hf")
        for path in sorted((self.folder / "configs/fine_tuning").glob("*.yaml")):
            with self.subTest(recipe=path.name):
                # Low-rank factors beside weights that know little learn slowly.
                steps, rate = (30, 1e-2) if path.stem in ("lora", "dora", "qlora") else (16, 5e-3)
                self.train(f"fine_tuning/{path.stem}", steps, "--set", f"optimizer_config.learning_rate={rate}")
                losses = self.losses(f"quickstart/{path.stem}")
                self.assertEqual(len(losses), steps)
                self.assertLess(sum(losses[-4:]), 0.97 * sum(losses[:4]), losses)


class Peft(harness.InOwnFolder):
    """Adapters go to PEFT and come back."""

    @unittest.skipUnless(PEER, "no Python with torch, transformers and peft; name one in TESSERA_PEER_PYTHON")
    def test_peft_computes_merges_and_continues_what_we_trained(self):
        done = subprocess.run([PEER, "-c", "import peft"], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            self.skipTest("the Python of TESSERA_PEER_PYTHON has no peft")
        recipe = self.write("train.yaml", harness.to_yaml({
            "training_config": {"training_iters": 4, "output_dir": "run", "load_checkpoint": str(TUNED / "bases/llama/hf"), "tensorboard": "false",
                                "eval_iters": 0, "num_threads": 1},
            "model_config": {"seq_length": 16},
            "lora_config": {"use_lora": "true", "lora_rank": 4, "target_modules": "[linear_qkv, gate_proj, down_proj]", "use_rslora": "true",
                            "rank_pattern": "{down_proj: 2}", "modules_to_save": "[final_layernorm]"},
            "optimizer_config": {"learning_rate": 1e-2, "lr_decay_style": "constant"},
            "dataset_config": {"dataset_type": "mock", "mock_documents": 300, "batch_size": 2}}))
        self.tessera("train", recipe)
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "peft", "run", "ours")
        self.tessera("merge", "run", "merged")
        done = subprocess.run([PEER, str(SOURCE / "tests/peers/compare_peft.py"), str(TUNED / "bases/llama/hf"), str(self.folder / "ours"),
                               str(self.folder / "merged"), str(self.folder / "continued")], capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # What PEFT trained further and merged is what we read and merge.
        self.tessera("merge", "continued/adapter", "ours_of_theirs", "--base", TUNED / "bases/llama/hf")
        done = subprocess.run([PEER, str(SOURCE / "tests/peers/compare_peft.py"), "--merged", str(self.folder / "continued/merged"),
                               str(self.folder / "ours_of_theirs")], capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(PEER, "no Python with torch, trl and bitsandbytes; name one in TESSERA_PEER_PYTHON")
    def test_adapters_of_trl_and_weights_of_bitsandbytes_are_what_those_programs_make_of_them(self):
        if subprocess.run([PEER, "-c", "import trl, bitsandbytes"], capture_output=True, timeout=120).returncode != 0:
            self.skipTest("the Python of TESSERA_PEER_PYTHON has no trl or no bitsandbytes")
        base, script = TUNED / "bases/llama/hf", SOURCE / "tests/peers/tuned_folders.py"
        self.command(PEER, script, "write", base, ".")
        for name, of in (("dpo", base), ("reward", "reward_base")):
            self.tessera("merge", name, f"our_{name}", "--base", of)
            self.command(PEER, script, "compare", f"our_{name}", f"{name}_merged")
        for name, double in (("nf4", "false"), ("nf4_double", "true")):
            self.tessera("merge", f"{name}_adapter", f"our_{name}", "--base", name, "--into", "dequantised", "--dtype", "float32")
            self.command(PEER, script, "compare", f"our_{name}", f"{name}_merged")
            self.write("train.yaml", harness.to_yaml({
                "training_config": {"training_iters": 1, "output_dir": f"run_{name}", "load_checkpoint": "wide", "tensorboard": "false", "eval_iters": 0},
                "model_config": {"seq_length": 16}, "dataset_config": {"dataset_type": "mock", "mock_documents": 300, "batch_size": 2},
                "lora_config": {"use_lora": "true", "lora_rank": 4, "target_modules": "all-linear", "qlora": "true", "qlora_double_quant": double}}))
            self.tessera("train", "train.yaml")
            self.command(PEER, script, "compare", "--bits", f"run_{name}/quantised/wide-nf4", name)


if __name__ == "__main__":
    harness.main()
