"""Models with images on several ranks: a random layout each time has the losses of one rank, and a run whose ranks are killed loses no step."""

import json
import os
import random

import faults_test
import harness
import mllm_test
import parity_test
from harness import main
from launching import Launching

STEPS = parity_test.STEPS
# Layers of tower and text model. The tied embedding has the rows of 4 tensor-parallel ranks.
TOWER, TEXT = 3, 4
FROZEN = ["", "'vision_.*'", "'vision_projection.*'", "'decoder.*', 'embedding.*'"]
# Sums in another order: of 30 random layouts, 50 steps each, the farthest was 4.1e-8 away.
TOLERANCE = parity_test.TOLERANCE["fp32"]


def recipe(run, **groups):
    """Everything is a mean over tokens, so that no number depends on which samples share a micro-batch; dropout would, by their order."""
    options = {group: dict(own) for group, own in mllm_test.RECIPE.items()}
    options["training_config"] = {"training_iters": STEPS, "seed": 7, "output_dir": run, "log_interval": 1, "eval_interval": 0, "num_threads": 1,
                              "tensorboard": "false", "calculate_per_token_loss": "true"}
    options["model_config"].update(num_layers=TEXT, vocab_size=436, hidden_dropout_rate=0, attention_dropout_rate=0)
    options["vision_config"].update(num_layers=TOWER, num_attention_heads=4)
    options["optimizer_config"].update(lr_decay_style="constant")
    options["dataset_config"].update(global_batch_size=8)
    del options["dataset_config"]["val_rate"]
    options["parallel_config"] = {}
    for group, own in groups.items():
        options[group].update(own)
    return harness.to_yaml(options)


def composition(draw, total, parts):
    """Numbers of layers that add up to `total`, zeros among them."""
    cuts = sorted(draw.choices(range(total + 1), k=parts - 1))
    return [b - a for a, b in zip([0] + cuts, cuts + [total])]


def draw_layout(draw):
    """Options of a layout of two to eight ranks, and the number of ranks."""
    tensor, stages, replicas = draw.choice([(t, p, d) for t in (1, 2, 4) for p in (1, 2, 3, 4) for d in (1, 2, 4) if 1 < t * p * d <= 8])
    chunks = 2 if stages in (2, 4) and draw.random() < 0.5 else 1
    flags = lambda *names: {name: str(draw.random() < 0.5).lower() for name in names}
    layout = {"parallel_config": {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": stages},
              "training_config": {**flags("use_distributed_optimizer", "overlap_grad_reduce"), "bucket_size": draw.randrange(5000, 50000)},
              "model_config": {}}
    if tensor > 1:
        layout["parallel_config"].update(flags("sequence_parallel"))
    if stages > 1:
        layers = composition(draw, TOWER + TEXT, stages * chunks)  # in the order of the forward pass
        layout["parallel_config"]["num_layer_list"] = str([[layers[c * stages + p] for c in range(chunks)] for p in range(stages)])
    if draw.random() < 0.3:
        layout["model_config"].update(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    layout["dataset_config"] = {"batch_size": draw.choice([1, 2] if chunks == 1 or 8 // replicas // 2 % stages == 0 else [1])}
    return tensor * stages * replicas, chunks, layout


class RandomImages(Launching):
    """Samples without, with one and with two images; rows are shuffled, so that there are ranks with text alone."""

    def setUp(self):
        super().setUp()
        records = []
        for i in range(40):
            pictures = [f"{(i + k) % 8}.png" for k in range(i % 3)]
            turns = [{"role": "user", "content": "<image>" * len(pictures) + f"\nhow many {i}"}, {"role": "assistant", "content": f"there are {i * i}"}]
            records.append({"images": pictures, "messages": turns})
        for i in range(8):
            self.write(f"{i}.png", mllm_test.png(30 + 28 * (i % 3), 30 + 28 * (i % 2), 20 * i))
        self.write("mllm.json", json.dumps(records))

    def losses(self, run):
        return [line["loss"] for line in self.metrics(run) if "loss" in line]


class LayoutsOfImages(RandomImages):
    def test_a_random_layout(self):
        """It has the losses of one rank, and resumed at a random step those of the whole run to the bit."""
        seed = random.SystemRandom().randrange(1 << 32)
        draw = random.Random(seed)
        ranks, chunks, layout = draw_layout(draw)
        frozen, tied = draw.choice(FROZEN), chunks == 1 and draw.random() < 0.5
        same = {"training_config": {"frozen_parameters": f"[{frozen}]"} if frozen else {},
                "model_config": {"untie_embeddings_and_output_weights": str(not tied).lower()}}
        print(f"seed {seed}: {ranks} ranks, {same} {layout}", flush=True)
        self.write("alone.yaml", recipe("alone", **same))
        self.write("ranks.yaml", recipe("ranks", **{**layout, **{group: {**layout[group], **own} for group, own in same.items()}}))
        self.tessera("train", "alone.yaml")
        line = ["--nproc_per_node", ranks, os.environ["TESSERA_PROGRAM"], "train", "ranks.yaml"]
        self.tsrun(*line)
        stop = draw.randrange(1, STEPS)
        for more in ([f"training_config.exit_interval={stop}"], []):
            self.tsrun(*line, *(word for one in ["training_config.output_dir=parts", *more] for word in ("--set", one)))
        self.assertEqual(self.losses("parts"), self.losses("ranks"), f"seed {seed}: resumed after step {stop}")
        alone = self.losses("alone")
        away = parity_test.farthest(self.losses("ranks"), alone)
        print(f"{STEPS} steps, {away:.1e} away", flush=True)
        if "decoder" not in frozen:
            self.assertLess(alone[-1], alone[0] - 0.1, "the run learns something")
        self.assertLess(away, TOLERANCE, f"seed {seed}")


class FaultsOfImages(RandomImages):
    assert_nothing_lost, state = faults_test.Faults.assert_nothing_lost, faults_test.Faults.state

    def test_ranks_that_are_killed_lose_no_step(self):
        """A stage that has a part of the tower only, and one without layers, whose rank 1 has nothing to update."""
        while True:
            seed = random.SystemRandom().randrange(1 << 32)
            faults = faults_test.random_faults(random.Random(seed), 4, 4, steps=12)
            if not any(fault.startswith("1:") and ":update:" in fault for fault in faults):
                break
        options = {"parallel_config": {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 4, "num_layer_list": "[2, 0, 3, 2]"},
                   "training_config": {"training_iters": 12, "eval_interval": faults_test.EVALUATIONS, "eval_iters": 1,
                                       "save_interval": faults_test.SAVES},
                   "dataset_config": {"val_rate": 0.25, "batch_size": 2}}
        self.write("run.yaml", recipe("run", **options))
        line = ["--nproc_per_node", 4, "--max_restarts=9", os.environ["TESSERA_PROGRAM"], "train", "run.yaml", "--set"]
        self.tsrun(*line, "training_config.output_dir=undisturbed")
        about = f"seed {seed}: {' '.join(faults)}"
        told = self.tsrun(*line, "training_config.output_dir=disturbed", *faults_test.inject(faults))
        self.assertEqual(told.count("starting all workers again"), len({fault.split(":")[4] for fault in faults}), f"{about}\n{told}")
        self.assertEqual(len(self.losses("disturbed")), 12)
        self.assert_nothing_lost("disturbed", about=f"{about}\n{told}")
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
