"""The scripts of benchmarks/ with programs that only say what the real ones would: which pairs count, who fails, what is told."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

from harness import InOwnFolder, main

BENCHMARKS = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "benchmarks"
RATES = {"multiply_adds": 2e11, "sgemm": 2e11, "bfloat16_tile": 4e11}
STEP = {"batch": 4, "seq": 256, "min_s": 1.0, "cpu_min_s": 1.0, "peak_rss_mb": 100, "loss_first": 3, "loss_last": 2, "clean": 3, "steps": 3}
# Prints one line of the file `script`.txt beside it after the other, then the last one again and again; "fail": exit code 1.
PLAYER = """#!{python}
import pathlib, sys
words = pathlib.Path(__file__ + ".txt")
lines = words.read_text().splitlines()
words.write_text("\\n".join(lines[1:] or lines))
with open(__file__ + ".log", "a") as log:
    print(*sys.argv[1:], file=log)
sys.exit(1) if lines[0] == "fail" else print(lines[0])
"""


def step(median, **changes):
    return json.dumps({**STEP, "who": "someone", "model_flops": 1e11, "median_s": median, **changes})


class Benchmarks(InOwnFolder):
    def plays(self, path, *lines):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLAYER.format(python=sys.executable))
        path.chmod(0o755)
        pathlib.Path(f"{path}.txt").write_text("\n".join(lines))

    def setUp(self):
        super().setUp()
        doctor = {"machine": {"processor": "some", "instruction_set": "avx512_bf16", "instruction_sets": ["portable", "avx512_bf16"]}, "per_second": {}}
        self.plays("framework/tessera", json.dumps(doctor))
        self.limits(1)
        self.plays("benchmarks/bench_train_step", step(1.0))
        self.plays("python", "torch", step(2.0))

    def limits(self, *shares):
        self.plays("benchmarks/bench_limits", *(json.dumps({name: share * rate for name, rate in RATES.items()}) for share in shares))

    def script(self, name, *words, code=0):
        done = subprocess.run([sys.executable, "-B", BENCHMARKS / name, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def suite(self, *only, words=(), code=0):
        told = self.script("suite.py", "--build", self.folder, "--python", self.folder / "python", "--pairs", 2, "--threads", 2, "--output", "r.json",
                           *words, "--only", *only, code=code)
        result = json.loads((self.folder / "r.json").read_text())
        return told, {figure["name"]: figure for figure in result["figures"]}, result["failed"]

    def test_a_pair_during_which_the_machine_changed_is_left_out(self):
        self.limits(1, 1, 0.9)  # the pair between the second and the third
        self.plays("benchmarks/bench_train_step", step(1.0), step(4.0))
        told, figures, _ = self.suite("float32 4x256 over PyTorch")
        figure = figures["float32 4x256 over PyTorch"]
        self.assertEqual([figure[key] for key in ("median", "clean", "total", "met")], [2, 1, 2, True])
        self.assertIn("1 of 2 undisturbed", told)
        self.assertIn("disturbed: multiply_adds 2e+11/s before, 1.8e+11/s after", told)
        # Ours over the mean rates of the pair's own brackets.
        self.assertEqual(figures["float32 4x256, FLOP rate over OpenBLAS's"]["median"], 0.5)
        self.assertEqual(figures["float32 4x256, share of the multiply-add rate"]["median"], 0.5)

    def test_a_pair_during_which_others_ran_is_left_out_and_all_count_if_none_remains(self):
        self.plays("benchmarks/bench_train_step", step(1.0, clean=2), step(4.0))
        _, figures, _ = self.suite("float32 4x256 over PyTorch")
        self.assertEqual([figures["float32 4x256 over PyTorch"][key] for key in ("median", "clean", "total")], [0.5, 1, 2])
        self.plays("benchmarks/bench_train_step", step(1.0, clean=2), step(4.0, clean=0))
        told, figures, _ = self.suite("float32 4x256 over PyTorch")
        self.assertEqual([figures["float32 4x256 over PyTorch"][key] for key in ("median", "clean", "total")], [1.25, 0, 2])
        self.assertIn("other programs ran during the steps of Tessera", told)

    def test_a_peer_that_fails_is_told_and_the_rest_is_measured(self):
        # import torch; eager and compiled of the first pair; eager of the second, as compiled is not tried again.
        self.plays("python", "torch", step(3.0), "fail", step(3.0))
        self.plays("llmc", "fail")
        self.plays("benchmarks/bench_generate", "fail")
        told, figures, failed = self.suite("bfloat16 4x256", "float32 generate", "llm.c", words=["--llmc", "llmc"], code=1)
        self.assertEqual(figures["bfloat16 4x256 over PyTorch"]["median"], 3)
        self.assertEqual(figures["bfloat16 4x256 over float32"]["median"], 1)
        self.assertRegex(told, "PyTorch, compiled: failed: .*exit code 1")
        self.assertEqual(set(failed), {"float32 4x256 over llm.c", "bfloat16 4x256 over llm.c", "float32 generate, share of the read bandwidth"})
        calls = (self.folder / "python.log").read_text().splitlines()
        self.assertEqual([("--compile" in call) for call in calls], [False, False, True, False])

    def test_a_slower_configuration_of_the_peer_is_measured_once_and_its_memory_counts(self):
        self.plays("python", "torch", step(2.0), step(3.0, peak_rss_mb=50), step(2.0))
        _, figures, _ = self.suite("float32 4x256 over PyTorch")
        self.assertEqual(figures["float32 4x256 peak memory over PyTorch's"]["least"], 2)
        self.assertEqual(len((self.folder / "python.log").read_text().splitlines()), 4)

    def test_llmc_is_a_peer(self):
        self.plays("llmc", step(8.0, who="llm.c"))
        _, figures, _ = self.suite("llm.c", words=["--llmc", "llmc"])
        self.assertEqual([figures[f"{dtype} 4x256 over llm.c"]["median"] for dtype in ("float32", "bfloat16")], [8, 8])
        self.assertIn("4 256", (self.folder / "llmc.log").read_text())
        told = self.script("against_torch.py", "--build", self.folder, "--llmc", "llmc", "--pairs", 2, "--shapes", "4x64")
        self.assertIn("4x64: 8.00 x as fast as llm.c (8.00 to 8.00; 2 of 2 pairs undisturbed)", told)
        self.assertIn("no checkout of llm.c", self.script("against_torch.py", "--build", self.folder, "--llmc", ".", code=1))

    def test_without_torch_the_rest_is_measured(self):
        self.plays("python", "fail")
        told, figures, failed = self.suite("4x256")
        self.assertIn("skipped: figures relative to PyTorch", told)
        self.assertEqual(figures["bfloat16 4x256, share of the bfloat16 rate"]["median"], 0.25)
        self.assertEqual(failed, [])

    def test_a_step_whose_loss_does_not_fall_is_no_figure(self):
        self.plays("benchmarks/bench_train_step", step(1.0, loss_last=3))
        told, figures, failed = self.suite("float32 4x256 over PyTorch", code=1)
        self.assertIn("the loss did not fall", told)
        self.assertNotIn("float32 4x256 over PyTorch", figures)
        self.assertIn("float32 4x256 over PyTorch", failed)

    def test_results_are_compared(self):
        self.suite("float32 4x256 over PyTorch")
        old = (self.folder / "r.json").rename(self.folder / "old.json")
        self.plays("python", "torch", step(1.5))
        self.suite("float32 4x256 over PyTorch")
        told = self.script("compare.py", old, "r.json", code=1)
        self.assertRegex(told, r"float32 4x256 over PyTorch +2 +1.5 +0.750 +WORSE")
        self.assertIn("0 worse", self.script("compare.py", old, old))


class RealBenchmarks(unittest.TestCase):
    """The programs themselves: that they run, and refuse what they do not understand. No figure is judged."""

    def gemm(self, *words):
        path = pathlib.Path(os.environ["TESSERA_BUILD"]) / "benchmarks/bench_gemm"
        if not path.exists():
            self.skipTest("the benchmarks are not built")
        return subprocess.run([path, *map(str, words)], capture_output=True, text=True)

    def stages(self, threads):
        done = self.gemm("--stages=0.001", threads, 48, "proj", 64)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for product in ("forward", "dgrad", "wgrad"):
            self.assertRegex(done.stdout, rf"proj {product} .*[0-9]|proj {product} +no register tiles")

    def test_stages_are_printed_for_one_thread(self):
        self.stages(1)

    def test_stages_are_printed_for_several_threads(self):
        self.stages(3)

    def test_arguments_that_are_not_understood_are_named(self):
        for words, named in ((["--stages", "all", 768], "'all': expected a whole number"), ([0, 64], "'0'"), (["2x", 64], "'2x'"),
                             ([1, 64, "q"], "'q': expected qkv, proj"), ([1, 64, "proj", 64, "int8"], "'int8': expected float32"),
                             ([1, 64, "proj", 64, "float32", "--stages"], "'--stages': expected no more arguments"), (["--stages=", 1], "'--stages=': expected --stages, or"),
                             (["--stages=-1"], "a number above 0"), (["--stages=2x"], "a number above 0"), (["--stages2"], "or --stages=SECONDS")):
            done = self.gemm(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(named, done.stderr)


if __name__ == "__main__":
    main()
