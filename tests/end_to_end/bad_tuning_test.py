"""Mistakes of fine-tuning end in one error that names them, before anything is trained; what may be meant is told."""

import json
import os
import pathlib
import shutil
import struct

import harness

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2]))
BASE, ADAPTER = SOURCE / "tests/data/finetune/bases/llama/hf", SOURCE / "tests/data/finetune/lora/llama_qv/adapter"
EXPERTS, TIED = SOURCE / "tests/data/finetune/bases/mixtral/hf", SOURCE / "tests/data/finetune/bases/qwen2/hf"
FOUR_BITS = SOURCE / "tests/data/nf4/hf_nf4"


class BadTuning(harness.InOwnFolder):
    def setUp(self):
        super().setUp()
        rank = json.loads((ADAPTER / "adapter_config.json").read_text())
        self.write("tuning.yaml", harness.to_yaml({
            "training_config": {"training_iters": 2, "tensorboard": "false", "eval_iters": 0, "num_threads": 1, "load_checkpoint": BASE},
            "model_config": {"seq_length": 16}, "dataset_config": {"dataset_type": "mock", "mock_documents": 300, "batch_size": 2, "data_cache_path": "cache"},
            "lora_config": {"use_lora": "true", "lora_rank": rank["r"], "lora_alpha": rank["lora_alpha"], "target_modules": "[q_proj, v_proj]"}}))

    def words(self, settings):
        return [word for one in settings for word in ("--set", one)]

    def assert_refused(self, cases, recipe="tuning.yaml"):
        """Each case: settings, and what the error says. No step is trained and no checkpoint written."""
        for settings, says in cases:
            with self.subTest(settings=settings):
                told = self.tessera("train", recipe, *self.words(settings), code=2)
                self.assertIn(says, told)
                self.assertNotIn("iteration        1/", told)
                self.assertFalse((self.folder / "output/checkpoints").exists())

    def adapter(self, name, element=None, **config):
        """A copy of ADAPTER, with `element` in place of every number, or of the last one."""
        folder = self.folder / name
        shutil.copytree(ADAPTER, folder)
        settings = json.loads((folder / "adapter_config.json").read_text()) | config
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        data = bytearray((folder / "adapter_model.safetensors").read_bytes())
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        if element is not None:
            begin = len(data) - 4 if element != element else begin
            data[begin:] = struct.pack("<f", element) * ((len(data) - begin) // 4)
            (folder / "adapter_model.safetensors").write_bytes(data)
        return f"lora_config.adapter={name}"

    def test_targets_that_cannot_be_meant(self):
        lora, load = "lora_config.", "training_config.load_checkpoint="
        self.assert_refused([
            ([lora + "target_modules=[q_prj]"], "'q_prj' selects no linear layer for an adapter; the nearest names are q_proj"),
            ([lora + "target_modules=.*[.]q_prj"], "selects no linear layer for an adapter; the nearest names are q_proj"),
            ([lora + "target_modules=[]"], "the run trains nothing"),
            ([load + str(TIED), lora + "modules_to_save=[embed_tokens]"], "names the embedding but not the output layer"),
            ([load + str(TIED), lora + "modules_to_save=[lm_head]"], "names the output layer but not the embedding"),
            ([load + str(EXPERTS), lora + "target_modules=[w1]", lora + "use_dora=true"], "adapters of experts and routers have no magnitudes"),
            ([load + str(EXPERTS), lora + "target_parameters=[mlp.experts.down_proj]", lora + "lora_dropout=.1"], "target_parameters takes none"),
            ([load + str(FOUR_BITS), lora + "use_lora=false"], "stored in nf4, which cannot be trained"),
            ([load + str(FOUR_BITS), lora + "modules_to_save=[down_proj]"], "stored in nf4, which cannot be trained")])

    def test_adapters_that_cannot_begin_a_run(self):
        self.assert_refused([
            ([self.adapter("of_another"), f"training_config.load_checkpoint={TIED}"], "the adapter does not belong to this base model"),
            ([self.adapter("zero", 0.0)], "every tensor of the adapter is zero"),
            ([self.adapter("minus_zero", -0.0)], "every tensor of the adapter is zero"),
            ([self.adapter("not_a_number", float("nan"))], "is NaN")])
        told = self.tessera("train", "tuning.yaml", *self.words([self.adapter("elsewhere", base_model_name_or_path="models/other")]))
        self.assertIn("elsewhere: was trained on models/other, and the base here is ", told)

    def test_an_adapter_is_not_trained_beside_weights_that_it_is_merged_into(self):
        self.tessera("merge", ADAPTER, "merged", "--base", BASE)
        self.assert_refused([([self.adapter("again"), "training_config.load_checkpoint=merged"], "this adapter is merged into the weights of merged already")])
        self.assertIn("is merged into the weights", self.tessera("merge", ADAPTER, "twice", "--base", "merged", code=2))

    def test_state_of_other_targets_is_not_continued(self):
        self.tessera("train", "tuning.yaml")
        for settings, says in ([["lora_config.target_modules=[q_proj]"], "target_modules: [q_proj] in the recipe, [q_proj, v_proj] in the checkpoint"],
                               [["lora_config.lora_rank=2"], "lora_config.lora_rank: 2 in the recipe, 4 in the checkpoint"]):
            with self.subTest(settings=settings):
                told = self.tessera("train", "tuning.yaml", "--set", "training_config.training_iters=3", *self.words(settings), code=2)
                self.assertIn(says, told)

    def test_patterns_of_ranks_that_name_no_layer_are_told(self):
        self.write("ranks.yaml", (self.folder / "tuning.yaml").read_text() + "  rank_pattern: {k_proj: 2, v_proj: 4}\n")
        told = self.tessera("check", "ranks.yaml")
        self.assertIn("rank_pattern: 'k_proj' is the name of no layer with an adapter, so it changes none", told)
        self.assertNotIn("'v_proj' is the name of no layer", told)


if __name__ == "__main__":
    harness.main()
