"""Recipes of real models (configs/models): their small sisters have the same architecture and learn."""

import os
import pathlib

from harness import InOwnFolder, main

MODELS = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "configs" / "models"


class ModelRecipes(InOwnFolder):
    def test_every_model_has_a_small_sister_that_learns(self):
        models = sorted(MODELS.glob("*.yaml"))
        self.assertGreaterEqual(len(models), 28)
        for model in models:
            run = model.stem
            self.tessera("train", MODELS / "tiny" / model.name, "--set", f"training_config.output_dir={run}",
                         "--set", "training_config.training_iters=20", "--set", "training_config.eval_iters=0",
                         "--set", "training_config.log_interval=1", "--set", "optimizer_config.lr_warmup_iters=2",
                         "--set", "training_config.tensorboard=false")
            losses = self.losses(run)
            self.assertEqual(len(losses), 20, run)
            self.assertLess(sum(losses[-3:]) / 3, sum(losses[:3]) / 3 - 0.5, run)

    def test_a_recipe_says_which_model_it_trains_and_what_it_changes(self):
        self.write("mine.yaml", f"base: {MODELS / 'llama3_8b.yaml'}\n"
                                "training_config: {training_iters: 10}\n"
                                "model_config: {num_layers: 2}\n"
                                "dataset_config: {dataset_type: mock}\n")
        told = self.tessera("check", "mine.yaml")
        self.assertIn("1 486 901 248", told)


if __name__ == "__main__":
    main()
