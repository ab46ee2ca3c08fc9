"""Frozen parameters on every layout: the losses of one process, resuming on another layout, and ranks that die."""

import re
import shutil
import signal

import harness
from harness import sets
from launching import Launching
from layouts_test import DeepRuns, cut, in_group

BOTTOM = ["--set", "training_config.frozen_parameters=['embedding.*', 'decoder\\.layers\\.[0-3]\\..*']"]
MATRICES = ["--set", "training_config.trainable_parameters=['.*bias', '.*norm.*', '.*linear_proj.*']"]
EXPERTS = in_group("model_config", dict(num_experts=4, add_bias_linear="false", ffn_hidden_size=16))
ONE_EXPERT = ["--set", "training_config.trainable_parameters=['decoder\\.layers\\.[2-7]\\..*local_experts\\.0\\..*', '.*final_layernorm.*']"]
BF16 = ["--set", "training_config.bf16=true"]
Z1 = dict(zero_level="z1")


class Freezing(DeepRuns):
    def assert_alike(self, one, other, what, tolerance):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertLess(abs(a - b), tolerance * abs(b), (what, one, other))

    def test_every_layout_gives_the_losses_of_one_process(self):
        two, stages = dict(tensor_model_parallel_size=2), dict(pipeline_model_parallel_size=2)
        alone = {}
        for number, (freezing, ranks, model, options) in enumerate([
                (BOTTOM, 4, [], dict(pipeline_model_parallel_size=4)),  # two stages have nothing to train
                (BOTTOM, 2, [], dict(stages, num_layers_per_virtual_pipeline_stage=2)),
                (BOTTOM, 4, BF16, dict(two, sequence_parallel="true", **Z1)),
                (BOTTOM, 2, [], dict(context_parallel_size=2)),
                (MATRICES, 4, [], dict(stages, **two)),
                (MATRICES, 2, BF16, dict(two, sequence_parallel="true")),
                (MATRICES, 2, BF16, Z1),
                (ONE_EXPERT, 2, EXPERTS, dict(expert_model_parallel_size=2)),  # one of the ranks trains no expert
                (ONE_EXPERT, 4, [*EXPERTS, *BF16], dict(stages, expert_model_parallel_size=2, **Z1))]):
            with self.subTest(number=number):
                key = (*freezing, *model)
                if key not in alone:
                    alone[key] = self.run_on(1, f"alone{number}", *freezing, *model)
                losses = self.run_on(ranks, f"run{number}", *freezing, *model, *cut(**options))
                self.assert_alike(losses, alone[key], options, 2e-3 if "training_config.bf16=true" in model else 2e-5)
        self.assertNotEqual(alone[tuple(BOTTOM)], alone[tuple(MATRICES)])

    def test_a_run_continues_on_another_layout(self):
        alone = self.run_on(1, "alone", *BOTTOM, *BF16)
        until = lambda step: ["--set", f"training_config.exit_interval={step}"]
        self.run_on(2, "moving", *BOTTOM, *BF16, *until(1), *cut(tensor_model_parallel_size=2, zero_level="z1"))
        self.run_on(2, "moving", *BOTTOM, *BF16, *until(2), *cut(pipeline_model_parallel_size=2))
        self.assert_alike(self.run_on(1, "moving", *BOTTOM, *BF16), alone, "moving", 2e-3)
        told = self.tessera("checkpoint", "inspect", self.checkpoints("moving")[-1], "--tensors")
        self.assertIn("embedding.word_embeddings.weight bfloat16", told)
        self.assertNotIn("exp_avg.embedding", told)
        self.tessera("checkpoint", "reshard", "moving", "resharded", "--set", "parallel_config.tensor_model_parallel_size=2")
        self.assertIn("embedding.word_embeddings.weight bfloat16", self.tessera("checkpoint", "inspect", "resharded", "--tensors"))
        self.assertIn("parameters", self.tessera("check", "deep.yaml", *BOTTOM))

    def test_weights_of_transformers_are_mapped_where_they_lie_there_in_our_layout(self):
        gated = in_group("model_config", dict(hidden_act="swiglu", normalization="RMSNorm", position_embedding_type="rope", add_bias_linear="false",
                                              untie_embeddings_and_output_weights="true"))
        self.run_on(1, "base", *gated, "--set", "training_config.exit_interval=1")
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "base", "hf")
        starts = lambda run, base, *more: self.run_on(2, run, *gated, *BOTTOM, *sets(load_checkpoint=base, resume_training="false"), *more)
        ours = starts("ours", "base")
        self.assertEqual(starts("theirs", "hf"), ours)
        # qkv and [gate; up] too, which are several tensors there: blocks of rows.
        mapped = lambda run, folder: self.assertRegex((self.folder / run / "tessera.log").read_text(),
                                                      f"25 of the 25 frozen parameters of the first rank are mapped from .*{folder}")
        mapped("ours", "base"), mapped("theirs", "hf")
        starts("rows", "hf", *cut(tensor_model_parallel_size=2))
        mapped("rows", "hf")

    def test_weights_of_another_type_are_mapped_and_give_the_losses_of_those_that_are_read(self):
        gated = in_group("model_config", dict(hidden_act="swiglu", normalization="RMSNorm", position_embedding_type="rope", add_bias_linear="false",
                                              untie_embeddings_and_output_weights="true", num_query_groups=2, group_query_attention="true"))
        self.run_on(1, "base", *gated, "--set", "training_config.exit_interval=1")
        convert = lambda source, to, folder, out, *more: self.tessera("checkpoint", "convert", "--from", source, "--to", to, folder, out, *more)
        convert("tessera", "hf", "base", "hf16", "--dtype", "bfloat16")
        convert("hf", "tessera", "hf16", "ours32", "--dtype", "float32")  # the values of hf16
        convert("tessera", "hf", "ours32", "hf32", "--dtype", "float32")
        starts = lambda run, base, *more: self.run_on(1, run, *gated, *BOTTOM, *sets(load_checkpoint=base, resume_training="false"), *more)
        self.assertEqual(starts("rows16", "hf16"), starts("dense32", "ours32"))
        self.assertEqual(starts("rows32", "hf32", *BF16), starts("dense16", "hf16", *BF16))

    def test_weights_that_transformers_transposes_are_written_once_in_our_layout_and_mapped(self):
        adapters = in_group("lora_config", dict(use_lora="true", lora_rank=4, target_modules="[q_proj, linear_fc2]"))
        self.run_on(1, "base", "--set", "training_config.exit_interval=1")
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "base", "hf")
        starts = lambda ranks, run, base, *more: self.run_on(ranks, run, *adapters, *sets(load_checkpoint=base), *more)
        native = starts(1, "ours", "base", "--set", "training_config.resume_training=false")
        self.assertEqual(starts(1, "theirs", "hf", "--set", "training_config.exit_interval=2"), native[:2])
        made = [path for path in (self.folder / "theirs/laid_out").iterdir()]
        self.assertEqual(len(made), 1)
        written = (made[0] / "model.safetensors").stat().st_ino
        self.assertEqual(starts(1, "theirs", "hf"), native)  # continues
        self.assertEqual((made[0] / "model.safetensors").stat().st_ino, written)
        log = (self.folder / "theirs/tessera.log").read_text()
        self.assertEqual(log.count("32 frozen matrices, which hf has in another layout, were written to theirs/laid_out/"), 1)
        self.assertEqual(log.count("32 more are mapped from theirs/laid_out/"), 2)
        self.assert_alike(starts(2, "cut", "hf", *cut(tensor_model_parallel_size=2)), native, "tensor parallel", 2e-5)
        # `generate` maps what the run has written, with the tokens of matrices that are read.
        answer = lambda run: self.tessera("generate", run, "--prompt-tokens", "1", "2", "--temperature", "0")
        tokens = lambda told: [line for line in told.splitlines() if line.split() and all(word.isdigit() for word in line.split())]
        mapped = answer("theirs")
        self.assertIn("32 of them are mapped from theirs/laid_out/", mapped)
        shutil.move(self.folder / "theirs/laid_out", self.folder / "elsewhere")
        read = answer("theirs")
        self.assertNotIn("laid_out", read)
        self.assertEqual(tokens(mapped), tokens(read))
        shutil.move(self.folder / "elsewhere", self.folder / "theirs/laid_out")
        # No matrix counts as memory of the process.
        weights = lambda base: re.search(r"weights +([\d.]+ \w+)", self.tessera("check", "deep.yaml", *adapters, *sets(load_checkpoint=base)))[1]
        self.assertEqual(weights("hf"), weights("base"))

    def test_checkpoints_of_other_programs_are_refused(self):
        told = self.tessera("check", "deep.yaml", *BOTTOM, *sets(ckpt_format="torch"), code=2)
        self.assertIn("ckpt_format is torch, which needs optimizer state for every parameter, but some are frozen", told)

    def test_a_checkpoint_without_frozen_parameters_says_where_they_are(self):
        self.run_on(1, "base", "--set", "training_config.exit_interval=1")
        self.run_on(1, "tuned", *BOTTOM, *sets(load_checkpoint="base", resume_training="false", save_frozen_parameters="false"))
        self.assertIn("the frozen parameters are those of ", self.tessera("generate", "tuned", "--prompt-tokens", "1", "2"))
        shutil.move(self.folder / "base", self.folder / "moved")
        told = self.tessera("generate", "tuned", "--prompt-tokens", "1", "2", code=2)
        self.assertIn("it was saved without its frozen parameters (training_config.save_frozen_parameters), which are those of ", told)
        self.assertIn("/base", told)


class FreezingKilled(Launching):
    def test_a_killed_rank_costs_no_step_and_reads_its_frozen_parameters_again(self):
        self.recipe("tiny.yaml", training_iters=6, training_config__save_interval=4, training_config__tensorboard="false",
                    training_config__frozen_parameters="['embedding.*', 'decoder.layers.0.*']")
        line = lambda run, *more: ["--worker_num=2", "tessera", "train", "tiny.yaml", *sets(output_dir=run), *more]
        for run, layout in (("stages", cut(pipeline_model_parallel_size=2)), ("data", [])):
            self.tsrun(*line(f"calm_{run}", *layout))
            # Before the first checkpoint the frozen parameters are the initial ones; after it they are the checkpoint's.
            told = self.tsrun(*line(f"killed_{run}", *layout, "--set",
                                    "resilience_config.inject_fault=['1:2:update:kill:0', '0:6:forward:segv:1']"))
            self.assertEqual(told.count("starting all workers again"), 2, told)
            self.assertNotIn("repeated", told)
            self.assert_same_run(f"calm_{run}", f"killed_{run}")

    def line(self, run, *more, program=("tessera", "train", "tiny.yaml")):
        return ["--worker_num=1", "--max_restarts=3", *program, *sets(output_dir=run), "--set", "training_config.frozen_parameters=['embedding.*']", *more]

    def killed(self, *faults):
        return ["--set", f"resilience_config.inject_fault=[{', '.join(map(repr, faults))}]"]

    def test_frozen_parameters_of_a_non_persistent_checkpoint(self):
        """The run begins with it, and the next one replaces it."""
        self.recipe("tiny.yaml", training_iters=8, training_config__non_persistent_save_interval=2, training_config__non_persistent_ckpt_type="global")
        self.tessera("train", "tiny.yaml", *sets(output_dir="calm"), *self.killed("0:5:forward:kill"), code=-signal.SIGKILL)
        shutil.copytree(self.folder / "calm", self.folder / "killed")
        freezes = ["--set", "training_config.allow_changes=[training_config.frozen_parameters]"]
        self.tsrun(*self.line("calm", *freezes))
        told = self.tsrun(*self.line("killed", *freezes, *self.killed("0:5:update:kill:0", "0:7:forward:segv:1")))
        self.assertEqual(told.count("starting all workers again"), 2, told)
        self.assertNotIn("repeated", told)
        self.assertFalse((self.folder / "killed/non_persistent/network_iter_0000004").exists())
        self.assert_same_run("calm", "killed")

    def test_frozen_parameters_of_a_folder_that_gets_another_checkpoint(self):
        self.recipe("tiny.yaml", training_iters=4)
        for run, steps, seed in (("base", 1, 7), ("newer", 2, 8)):
            self.tessera("train", "tiny.yaml", *sets(output_dir=run, training_iters=steps, seed=seed))
        begins = sets(load_checkpoint="base", resume_training="false")
        self.tsrun(*self.line("calm", *begins))
        # Between the first start and the second, before the run has saved a checkpoint.
        for run, change, code in (("killed", "cp -r newer/checkpoints/network_iter_0000002 base/checkpoints", 0),
                                  ("refused", "rm -r base/checkpoints/network_iter_0000002", 2)):
            begin = self.script(f"{run}.sh", f'if [ -e {run}.begun ]; then {change}; fi\ntouch {run}.begun\nexec tessera train tiny.yaml "$@"')
            told = self.tsrun(*self.line(run, *begins, *self.killed("0:2:update:kill:0"), program=[begin]), code=code)
            self.assertEqual(told.count("starting all workers again"), 1, told)
            if code == 0:
                self.assertNotIn("repeated", told)
                self.assert_same_run("calm", run)
            else:
                self.assertRegex(told, r"were those of \S+/base/checkpoints/network_iter_0000002, and what is there or in training_config.load_checkpoint now has others")

    def test_frozen_parameters_beside_upcycled_experts(self):
        model = dict(training_config__save_interval=2, model_config__add_bias_linear="false", model_config__ffn_hidden_size=16)
        self.recipe("tiny.yaml", training_iters=6, **model)
        self.tessera("train", "tiny.yaml", *sets(output_dir="dense", training_iters=1))
        experts = [*sets(load_checkpoint="dense"), *in_group("model_config", dict(num_experts=4)), *in_group("moe_config", dict(moe_use_upcycling="true"))]
        self.tsrun(*self.line("calm", *experts))
        # Before the first checkpoint they are those of the dense model; after it they are the checkpoint's.
        told = self.tsrun(*self.line("killed", *experts, *self.killed("0:1:update:kill:0", "0:4:forward:segv:1")))
        self.assertEqual(told.count("starting all workers again"), 2, told)
        self.assertNotIn("repeated", told)
        self.assert_same_run("calm", "killed")


if __name__ == "__main__":
    harness.main()
