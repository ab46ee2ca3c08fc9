"""Bases in 4 bits: folders of Transformers as bitsandbytes wrote them."""

import os
import pathlib

import harness
from harness import sets

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2]))
FOUR_BITS = SOURCE / "tests/data/nf4/hf_nf4"


class FourBits(harness.InOwnFolder):
    def setUp(self):
        super().setUp()
        self.write("tuning.yaml", harness.to_yaml({
            "training_config": {"training_iters": 3, "tensorboard": "false", "save_interval": 1},
            "model_config": {"seq_length": 16, "vocab_size": 112}, "optimizer_config": {"learning_rate": 0.01},
            "dataset_config": {"dataset_type": "mock", "batch_size": 2},
            "lora_config": {"use_lora": "true", "target_modules": "all-linear", "lora_rank": 4}}))

    def train(self, run, base, *more, code=0):
        return self.tessera("train", "tuning.yaml", *sets(output_dir=run, load_checkpoint=base), *more, code=code)

    def test_weights_in_4_bits_are_trained_with_adapters_only(self):
        self.train("adapters", FOUR_BITS)
        told = self.train("full", FOUR_BITS, "--set", "lora_config.use_lora=false", code=2)
        self.assertIn("decoder.layers.0.mlp.linear_fc1.weight and 11 more weights are stored in nf4, which cannot be trained; freeze them", told)
        saved = ["--set", "lora_config.target_modules=[q_proj]", "--set", "lora_config.modules_to_save=['layers.1.mlp.linear_fc2']"]
        told = self.train("saved", FOUR_BITS, *saved, code=2)
        self.assertIn("decoder.layers.1.mlp.linear_fc2.weight is stored in nf4, which cannot be trained; freeze it", told)


if __name__ == "__main__":
    harness.main()
