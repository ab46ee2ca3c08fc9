"""How many instructions a training step takes on the portable and the AVX2 kernels, and how many `--help` and `check`: a loss of speed that no clock of
a shared machine shows.

valgrind's callgrind counts them; it knows no AVX-512. Two runs differ by less than a ten-thousandth. The C library chooses its copies by processor, so another
kind of processor may differ by some percent: 5 % more are allowed than tests/data/instruction_counts.json says.
Code that takes fewer should lower the figures there, to what the test prints when it fails.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import harness

COUNTS = pathlib.Path(__file__).resolve().parent.parent / "data/instruction_counts.json"
MOST = 1.05
STEP = "tessera::training::TrainingSteps::make()"
# The portable kernels multiply matrices with OpenBLAS: its copy for a processor without fused multiply-add, which valgrind emulates in software, ten
# times as slowly as the rest.
CORES = {"portable": "Sandybridge", "avx2": "Haswell"}
RECIPE = {
    "training_config": {"training_iters": 2, "output_dir": "run", "eval_iters": 0, "tensorboard": "false", "seed": 1, "num_threads": 1},
    "model_config": {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 32, "max_position_embeddings": 32, "vocab_size": 512,
                     "hidden_dropout_rate": 0.1, "attention_dropout_rate": 0.1},
    "optimizer_config": {"optimizer_type": "adamw", "learning_rate": 1e-4},
    "dataset_config": {"dataset_type": "mock", "mock_documents": 300, "batch_size": 4},
}


class InstructionCounts(harness.InOwnFolder):
    def counted(self, function, words, kernels="avx2"):
        """Instructions of all calls of the function, on one thread."""
        self.write("recipe.yaml", harness.to_yaml(RECIPE))
        done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=counts", f"--toggle-collect={function}", harness.program(), *words],
                              cwd=self.folder, text=True, capture_output=True, timeout=1100,
                              env={**os.environ, "TESSERA_CPU": kernels, "OPENBLAS_CORETYPE": CORES[kernels]})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return int(re.search(r"Collected : (\d+)", done.stderr).group(1))

    def judge(self, name, *counted):
        recorded = json.loads(COUNTS.read_text())
        compiler = subprocess.run([os.environ["TESSERA_COMPILER"], "--version"], text=True, capture_output=True).stdout.splitlines()[0]
        if shutil.which("valgrind") is None:
            self.skipTest("valgrind is not installed")
        if pathlib.Path(os.environ["TESSERA_BUILD"]).name != "release" or recorded["compiler"] not in compiler:
            self.skipTest(f"the figures are those of preset release with {recorded['compiler']}; this is {compiler}")
        count = self.counted(*counted)
        self.assertLess(count, MOST * recorded[name], f"{count} instructions, {count / recorded[name]:.3f} times as many as recorded")

    def test_a_step_on_the_avx2_kernels(self):
        self.judge("avx2", STEP, ["train", "recipe.yaml"], "avx2")

    def test_a_step_on_the_portable_kernels(self):
        self.judge("portable", STEP, ["train", "recipe.yaml"], "portable")

    def test_help(self):
        self.judge("help", "main", ["--help"])

    def test_check(self):
        self.judge("check", "main", ["check", "recipe.yaml"])


if __name__ == "__main__":
    harness.main()
