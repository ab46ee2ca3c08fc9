"""Fine-tuning on every layout: adapters, magnitudes, weights in 4 bits, frozen weights, packed answers, preferences and reward models have the
losses of one process, as in parity_test.py, continue on other layouts, and lose no step if ranks are killed."""

import json
import os
import random
import shutil

import harness
from harness import main
import launching
from layouts_test import cut, in_group
import parity_test
from parity_test import TABLE, tensors_of

# Layouts of each axis: tensor, pipeline and virtual stages, replicas, sequences, and all together.
AXES = ["tp2", "tp4_sp", "pp2_vp2", "dp2_zero", "ring_cp2_tp2_sp", "tp2_sp_pp2_dp2_zero"]
MORE_AXES = ["tp4", "tp2_sp", "pp4", "pp2_recompute", "tp2_pp2_vp2_dp2", "gather_cp2_dp2_zero", "ulysses_cp2", "hybrid_cp4"]


class FineTuningLayouts(parity_test.OnLayouts):
    def all_axes(self, model, kinds=("fp32", "bf16"), in_bf16=None):
        """In fp32, and in bf16 within `in_bf16`; all of them with launch/test.sh --slow."""
        if "fp32" in kinds:
            self.compare(AXES + MORE_AXES if parity_test.IN_FULL else AXES, model, "fp32")
        if "bf16" in kinds:
            self.compare(AXES if parity_test.IN_FULL else ["tp2_sp_pp2_dp2_zero"], model, "bf16", in_bf16)

    def make_base(self, model):
        """Weights that runs begin with: the run folder `base`."""
        self.in_turn("base", {}, model, training_iters=1)

    def make_folder(self, model):
        """The same as a folder of Transformers, `folder`."""
        self.in_turn("of_folder", {}, model, training_iters=1)
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "of_folder", "folder")

    def write_answers(self):
        """Instructions with answers of any length, and pairs of them, as token files."""
        draw = random.Random(3)
        words = "the waters were upon face of deep and god saw light that it was good he made a firmament".split()
        some = lambda least, most, of=words: " ".join(draw.choices(of, k=draw.randrange(least, most)))
        rows = [{"instruction": some(1, 6), "input": "", "output": some(1, 14), "chosen": some(1, 9, words[:14]), "rejected": some(1, 9, words[5:])}
                for _ in range(400)]
        self.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.write("rows.txt", "\n".join(some(10, 30) for _ in range(100)))
        self.tessera("data", "train-bpe", "--input", "rows.txt", "--vocab-size", 300, "--output-dir", "bpe")
        for handler, prefix, more in (("Instruction", "answers", ["--pack", "--neat-pack"]), ("Pairwise", "pairs", [])):
            self.tessera("data", "preprocess", "--handler-name", f"AlpacaStyle{handler}Handler", "--prompt-type", "empty", "--seq-length", 64, *more,
                         "--input", "rows.jsonl", "--output-prefix", prefix, "--vocab-file", "bpe/vocab.json", "--merge-file", "bpe/merges.txt")

    def test_adapters(self):
        self.compare(["tp2", "tp4", "tp2_sp", "tp4_sp", "pp2", "pp2_vp2", "pp2_recompute", "dp2_zero", "ring_cp2", "ulysses_cp2"], "lora", "fp32")

    def test_adapters_of_several_axes(self):
        self.compare(["tp2_sp_pp2_dp2_zero", "tp2_pp2_vp2_dp2", "tp2_recompute_dp2", "ring_cp2_tp2_sp", "gather_cp2_tp2_sp"], "lora", "fp32")

    def test_adapters_of_fused_layers_with_biases(self):
        self.compare(["tp2", "tp8", "tp4_sp", "pp4", "dp2_zero"], "lora_fused", "fp32")

    def test_adapters_of_latent_attention(self):
        self.compare(["tp2", "tp4_sp", "pp2_vp2", "ring_cp2_tp2_sp"], "lora_latent", "fp32")

    def test_adapters_in_bf16(self):
        self.compare(["tp2_sp", "pp2", "dp2_zero", "tp2_sp_pp2_dp2_zero"], "lora", "bf16")

    def test_adapters_of_the_embedding_and_the_output_layer(self):
        self.compare(["tp2", "tp4_sp", "pp2_vp2", "dp2_zero", "ring_cp2_tp2_sp", "tp2_sp_pp2_dp2_zero"], "lora_vocabulary", "fp32")

    def test_adapters_with_magnitudes(self):
        self.compare(["tp2", "tp4_sp", "pp2_vp2", "pp2_recompute", "dp2_zero", "ring_cp2_tp2_sp", "tp2_sp_pp2_dp2_zero"], "dora", "fp32")

    def test_adapters_with_magnitudes_of_fused_layers(self):
        self.compare(["tp8", "tp4_sp", "pp4", "dp2_zero"], "dora_fused", "fp32")

    def test_adapters_with_magnitudes_of_latent_attention(self):
        self.compare(["tp2", "tp4_sp", "pp2_vp2"], "dora_latent", "fp32")

    def test_adapters_with_magnitudes_of_the_embedding_and_the_output_layer(self):
        self.compare(["tp2", "tp4_sp", "pp2_vp2", "pp2_recompute", "dp2_zero", "ring_cp2_tp2_sp", "tp2_sp_pp2_dp2_zero"], "dora_vocabulary", "fp32")

    def test_adapters_with_magnitudes_in_bf16(self):
        self.compare(["tp2_sp", "pp2", "dp2_zero"], "dora", "bf16")

    def draw_adapters(self, draw):
        """Options of adapters of random layers, beside an output layer that is trained. Scale of at most a quarter: B begins with
        random values, and larger ones amplify rounding, also that of other sums of replicas, by orders of magnitude a step."""
        layers = (draw.choice([["q_proj", "k_proj", "v_proj"], ["linear_qkv"]]) + draw.choice([["gate_proj", "up_proj"], ["linear_fc1"]]) +
                  ["linear_proj", "linear_fc2"])
        targets = draw.choice(["all-linear", *[str(draw.sample(layers, draw.randrange(1, len(layers)))).replace("'", "")] * 3])
        of_root = draw.random() < 0.3
        options = {"use_lora": True, "init_lora_weights": False, "modules_to_save": "[output_layer]", "target_modules": targets,
                   "lora_rank": 16 if of_root else draw.randrange(4, 9), "lora_alpha": 1, "lora_dropout": draw.choice([0, 0.1, 0.5]),
                   "use_rslora": of_root, "use_dora": draw.random() < 0.6}
        print(f"adapters: {options}", flush=True)
        return options

    def of_drawn_adapters(self, more, training):
        """Random adapters on a random layout, by the same printed seed."""
        layout, draw = self.draw_layout(experts=False)
        TABLE["models"]["drawn"] = {"like": "untied", "optimizer_config": {"learning_rate": 0.003},
                                    "lora_config": {**self.draw_adapters(draw), **more}, "training_config": training}
        self.compare([layout], "drawn", "fp32")

    def test_random_adapters_on_a_random_layout(self):
        self.of_drawn_adapters({}, {})

    def test_random_adapters_beside_weights_in_four_bits_on_a_random_layout(self):
        self.make_folder("untied")
        self.of_drawn_adapters({"qlora": True, "qlora_double_quant": random.SystemRandom().random() < 0.5},
                               {"load_checkpoint": "folder"})

    def test_adapters_of_experts_and_routers(self):
        self.compare(["ep2", "ep1_tp2_sp", "ep2_tp2_sp", "ep2_tp2_sp_etp1", "ep2_dp4_zero", "ep2_recompute"], "lora_experts", "fp32")

    def test_adapters_of_experts_of_several_axes(self):
        self.compare(["ep2_pp2_vp2", "ep1_tp2_sp_etp4", "ep2_dp4_etp2", "ep4_cp4_ulysses"], "lora_experts", "fp32")

    def test_adapters_of_some_experts(self):
        self.compare(["ep2", "ep4", "ep2_tp2_sp"], "lora_some_experts", "fp32")

    def test_adapters_of_experts_in_bf16(self):
        # After 50 steps one process with another instruction set is 1.7e-3 away: some tokens choose another expert.
        self.compare(["ep2", "ep2_tp2_sp"], "lora_experts", "bf16", 3e-3 if parity_test.IN_FULL else None)

    def test_adapters_of_experts_go_on_from_checkpoints_of_one_process(self):
        self.go_on(["one"], ["ep2_dp4_zero", "ep1_tp2_sp_etp4"], "lora_experts", save_frozen_parameters="true")

    def test_adapters_of_experts_go_on_from_checkpoints_of_other_layouts(self):
        self.go_on(["ep2_dp4_zero", "ep1_tp2_sp_etp4"], ["ep2_dp4_zero", "ep1_tp2_sp_etp4"], "lora_experts", save_frozen_parameters="true")

    def test_frozen_layers(self):
        self.all_axes("frozen")

    def test_all_frozen_but_the_tied_embedding_norms_and_biases(self):
        self.all_axes("trained_embedding")

    def test_weights_in_four_bits(self):
        self.make_folder("untied")
        self.all_axes("four_bits")

    def test_packed_answers(self):
        self.write_answers()
        self.all_axes("packed")

    def preferences(self, kind, names, in_full):
        self.write_answers()
        self.make_base("preferences_base")
        self.compare(names + in_full if parity_test.IN_FULL else names, "preferences", kind)

    def test_preferences(self):
        self.preferences("fp32", AXES[:4], MORE_AXES)
        told = self.tessera("check", "preferences_fp32_alone0.yaml")
        self.assertIn("memory of a rank", told)
        self.assertRegex(told, r"pairs +[\d ]+ tokens.* 400 ")

    def test_preferences_on_several_axes(self):
        self.preferences("fp32", AXES[4:], [])

    def test_preferences_in_bf16(self):
        self.preferences("bf16", AXES[-1:], AXES[:-1])

    def test_rewards(self):
        self.write_answers()
        self.all_axes("rewards", ["fp32"])

    def test_rewards_in_bf16(self):
        self.write_answers()
        # A reward is one number of a random head: in bf16 one process with another instruction set is 1.3e-3 away.
        self.all_axes("rewards", ["bf16"], in_bf16=3e-3)

    def test_magnitudes_go_on_from_checkpoints_of_one_process_and_of_tensor_parallelism(self):
        self.go_on(["one", "tp4_sp"], ["tp4_sp", "tp2_sp_pp2_dp2_zero"], "dora", save_frozen_parameters="true")

    def test_magnitudes_go_on_from_checkpoints_of_several_axes(self):
        self.go_on(["tp2_sp_pp2_dp2_zero"], ["tp4_sp", "tp2_sp_pp2_dp2_zero"], "dora", save_frozen_parameters="true")

    def goes_on_exactly(self, model):
        layout = TABLE["layouts"]["tp2_sp_pp2_dp2_zero"]
        own = {"training_iters": 4, "save_interval": 2, "save_frozen_parameters": str(model == "dora").lower()}
        self.in_turn("straight", layout, model, **own)
        self.in_turn("cut", layout, model, **own, exit_interval=2)
        self.assertIn("resuming from", self.run_layout("cut", layout, model, **own))
        self.assertEqual(self.metrics("cut"), self.metrics("straight"))
        one, other = (tensors_of(self.checkpoints(run)[-1]) for run in ("straight", "cut"))
        self.assertTrue(any("lora_magnitude" in name or "lora_B" in name for name in one))
        self.assertEqual(one, other)

    def test_going_on_with_magnitudes_in_the_same_layout_is_exact(self):
        self.goes_on_exactly("dora")

    def test_going_on_beside_weights_in_four_bits_in_the_same_layout_is_exact(self):
        self.make_folder("untied")
        self.goes_on_exactly("four_bits")

    def test_going_on_with_preferences_in_the_same_layout_is_exact(self):
        self.write_answers()
        self.make_base("preferences_base")
        self.goes_on_exactly("preferences")


class FineTuningKilled(launching.Launching):
    def test_a_killed_rank_costs_no_step_of_adapters_and_their_base_is_mapped_again(self):
        self.recipe("tiny.yaml", training_iters=6, training_config__save_interval=4, training_config__tensorboard="false")
        self.recipe("base.yaml", training_iters=1, output_dir="base", training_config__tensorboard="false")
        self.tessera("train", "base.yaml")
        adapters = in_group("lora_config", dict(use_lora="true", use_dora="true", target_modules="all-linear", lora_dropout=0.1))
        line = lambda run, *more: ["--worker_num=2", "tessera", "train", "tiny.yaml", *harness.sets(output_dir=run, load_checkpoint="base"),
                                   *adapters, *more]
        for run, layout in (("stages", cut(pipeline_model_parallel_size=2)), ("tensor", cut(tensor_model_parallel_size=2))):
            self.tsrun(*line(f"calm_{run}", *layout))
            told = self.tsrun(*line(f"killed_{run}", *layout, "--set",
                                    "resilience_config.inject_fault=['1:2:update:kill:0', '0:6:forward:segv:1']"))
            self.assertEqual(told.count("starting all workers again"), 2, told)
            self.assertNotIn("repeated", told)
            self.assert_same_run(f"calm_{run}", f"killed_{run}")

    def test_magnitudes_beside_adapters_that_were_trained_without_begin_with_the_norms(self):
        self.recipe("base.yaml", training_iters=1, output_dir="base", training_config__tensorboard="false")
        self.tessera("train", "base.yaml")
        self.recipe("tiny.yaml", training_iters=6, eval_interval=0, learning_rate=.01, training_config__load_checkpoint="base")
        adapters = in_group("lora_config", dict(use_lora="true", target_modules="all-linear"))
        magnitudes = [*in_group("lora_config", dict(use_dora="true")), *harness.sets(dist_ckpt_strictness="log_all")]
        train = lambda run, *more: self.tessera("train", "tiny.yaml", *harness.sets(output_dir=run), *adapters, *more)
        train("plain", *harness.sets(exit_interval=4))
        for run in "calm", "back":
            shutil.copytree(self.folder / "plain", self.folder / run)
        train("plain")
        train("calm", *magnitudes, *harness.sets(iterations_to_skip="[5]"))
        plain, calm = self.losses("plain")[4], self.losses("calm")[4]
        self.assertAlmostEqual(calm, plain, delta=1e-5 * plain)
        told = train("back", *magnitudes, "--set", "resilience_config.bad_step=skip", "--set", "resilience_config.roll_back_after=1",
                     "--set", "resilience_config.inject_fault=['0:6:reduce:nan!']")
        self.assertIn("resuming from back/checkpoints/network_iter_0000004", told)
        self.assertEqual(self.metrics("back"), self.metrics("calm"))
        self.assertEqual(tensors_of(self.checkpoints("back")[-1]), tensors_of(self.checkpoints("calm")[-1]))


if __name__ == "__main__":
    main()
