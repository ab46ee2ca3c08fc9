"""Conversations with images: LLaVA's records converted, shown, trained with a vision tower and resumed."""

import json
import os
import pathlib
import struct
import subprocess
import zlib

import harness
from in_turn import mpirun

TOKENIZER = pathlib.Path(os.environ["TESSERA_SOURCE"]) / "tests/data/multimodal/tokenizer"

RECIPE = {
    "training_config": {"training_iters": 6, "seed": 7, "output_dir": "run", "log_interval": 1, "save_interval": 3,
                        "eval_interval": 6, "eval_iters": 1, "tensorboard": "false"},
    "model_config": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "seq_length": 160, "vocab_size": 434,
                     "use_visual_encoder": "true", "position_embedding_type": "mrope", "mrope_section": "[2, 1, 1]"},
    "vision_config": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "image_token_id": 432, "video_token_id": 433,
                      "vision_start_token_id": 429},
    "optimizer_config": {"optimizer_type": "adamw", "learning_rate": 1e-3},
    "dataset_config": {"dataset_type": "mllm", "dataset": "mllm.json", "media_dir": ".", "dataloader_type": "cyclic",
                       "data_sharding": "false", "batch_size": 2, "val_rate": 0.25, "tokenizer_type": "HuggingFaceTokenizer",
                       "tokenizer_model": TOKENIZER, "model_name_or_path": TOKENIZER},
}


def png(width, height, level):
    """A grey picture with a gradient."""
    rows = b"".join(b"\0" + bytes((level + 3 * x + 5 * y) % 256 for x in range(width)) for y in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Images(harness.InOwnFolder):
    def setUp(self):
        super().setUp()
        self.write("run.yaml", harness.to_yaml(RECIPE))
        records = []
        for i in range(10):
            turns = [{"from": "human", "value": "<image>\nhow many" if i % 3 else "a text"}, {"from": "gpt", "value": f"there are {i}"}]
            records.append({"id": str(i), "conversations": turns, **({"image": f"{i}.png"} if i % 3 else {})})
            if i % 3 and i != 7:
                self.write(f"pictures/{i}.png", png(40 + 30 * (i % 4), 60, 20 * i))
        self.write("llava.json", json.dumps(records))

    def convert(self):
        return self.tessera("data", "llava-to-mllm", "--input", "llava.json", "--images", "pictures", "--output", "mllm.json")

    def losses(self, run):
        return [line["loss"] for line in self.metrics(run) if "loss" in line]

    def test_records_of_llava_are_converted_shown_trained_and_resumed(self):
        told = self.convert()
        self.assertIn("dropped 1 records", told)
        self.assertIn("9 records", told)
        self.assertIn("exists", self.tessera("data", "llava-to-mllm", "--input", "llava.json", "--output", "mllm.json", code=2))

        shown = [json.loads(line) for line in
                 self.tessera("data", "show", "run.yaml", "--count", 7, "--json", "--pictures", "seen").splitlines() if line.startswith("{")]
        pictures = 0
        for one in shown:
            grids = one.get("grid_thw", [])
            patches = sum(t * h * w for t, h, w in zip(grids[::3], grids[1::3], grids[2::3]))
            self.assertEqual(one["tokens"].count(432), patches // 4)
            self.assertEqual(len(one["positions"]), 3 * len(one["tokens"]))
            pictures += len(grids) // 3
        self.assertGreater(pictures, 2)
        self.assertEqual(len(list((self.folder / "seen").glob("*.png"))), pictures)
        self.assertIn("patches", self.tessera("data", "show", "run.yaml", "--count", 7))

        self.tessera("train", "run.yaml")
        whole = self.losses("run")
        self.assertEqual(len(whole), 6)
        for workers in [0, 3]:
            self.tessera("train", "run.yaml", "--set", f"dataset_config.num_workers={workers}", "--set", f"training_config.output_dir=run{workers}")
            self.assertEqual(self.losses(f"run{workers}"), whole)
        again = ["train", "run.yaml", "--set", "training_config.output_dir=again"]
        self.tessera(*again, "--set", "training_config.exit_interval=3")
        self.tessera(*again)
        self.assertEqual(self.losses("again"), whole)

    def test_a_checkpoint_is_evaluated_on_records(self):
        self.convert()
        records = json.loads((self.folder / "mllm.json").read_text())
        self.write("mllm.json", json.dumps(records[:8]))
        self.tessera("train", "run.yaml", "--set", "dataset_config.val_rate=0", "--set", "dataset_config.val_dataset=mllm.json",
                     "--set", "training_config.full_validation=true")
        logged = [line["validation_loss"] for line in self.metrics("run") if "validation_loss" in line][-1]
        told = json.loads(self.tessera("eval", "run", "--records", "mllm.json", "--json").splitlines()[-1])
        self.assertAlmostEqual(told["loss"], logged, delta=2e-6)
        self.assertGreater(told["tokens"], 8)
        self.write("elsewhere.json", json.dumps([record | {"images": [name.split("/")[-1] for name in record["images"]]} for record in records[:8]]))
        elsewhere = self.tessera("eval", "run", "--records", "elsewhere.json", "--media-dir", "pictures", "--json")
        self.assertEqual(json.loads(elsewhere.splitlines()[-1])["loss"], told["loss"])
        self.assertIn("give one of", self.tessera("eval", "run", "--records", "mllm.json", "--text", "run.yaml", code=2))
        self.assertIn("--records", self.tessera("eval", "run", "--text", "run.yaml", "--media-dir", ".", code=2))
        self.assertIn("gone.json", self.tessera("eval", "run", "--records", "gone.json", code=2))
        (self.folder / "pictures/2.png").unlink()
        refused = self.tessera("eval", "run", "--records", "mllm.json", code=2)
        self.assertIn("mllm.json:1, record 3: ", refused)
        self.assertIn("bad_sample_limit of the model's training is 0: mend the record or remove it", refused)

    def test_bad_records_are_left_out_of_an_evaluation_up_to_the_limit_of_the_run(self):
        self.convert()
        self.tessera("train", "run.yaml", "--set", "dataset_config.bad_sample_limit=1", "--set", "training_config.training_iters=1")
        tokens = lambda told: json.loads(next(line for line in told.splitlines() if line.startswith("{")))["tokens"]
        whole = tokens(self.tessera("eval", "run", "--records", "mllm.json", "--json"))
        (self.folder / "pictures/2.png").write_bytes((self.folder / "pictures/2.png").read_bytes()[:-30])
        told = self.tessera("eval", "run", "--records", "mllm.json", "--json")
        self.assertIn("record 3: ", told)
        self.assertIn("1 of 9 samples cannot be used and have no loss", told)
        self.assertLess(tokens(told), whole)
        (self.folder / "pictures/4.png").unlink()
        self.assertIn("it is bad sample 2; dataset_config.bad_sample_limit", self.tessera("eval", "run", "--records", "mllm.json", code=2))

    def test_placeholders_of_another_tokenizer_are_refused_before_the_run(self):
        self.convert()
        told = self.tessera("train", "run.yaml", "--set", "vision_config.image_token_id=431", "--set", "vision_config.video_token_id=2",
                            "--set", "dataset_config.videos=films", code=2)
        self.assertIn("vision_config.image_token_id is 431, but in the tokenizer the placeholder is 432", told)
        self.assertIn("vision_config.video_token_id is 2, but in the tokenizer the placeholder is 433", told)
        self.assertFalse(self.metrics("run") if (self.folder / "run/metrics.jsonl").exists() else [])

    def test_kept_features_change_no_loss_and_resume(self):
        self.convert()
        frozen = ["train", "run.yaml", "--set", "training_config.frozen_parameters=['vision_.*']", "--set", "dataset_config.batch_size=1"]
        self.tessera(*frozen)
        whole = self.losses("run")
        cached = [*frozen, "--set", "vision_config.feature_cache_path=kept", "--set", "training_config.output_dir=kept_run"]
        self.tessera(*cached, "--set", "training_config.exit_interval=3")
        self.assertGreater(len(list((self.folder / "kept").glob("*/*.features"))), 1)
        self.tessera(*cached)
        self.assertEqual(self.losses("kept_run"), whole)
        self.assertIn("is trained", self.tessera("check", "run.yaml", "--set", "vision_config.feature_cache_path=kept", code=2))

    def test_packed_records_that_see_themselves_only_learn_as_when_they_are_alone(self):
        """Two steps, each over all records: nine samples, or what they are packed into. A second stage gives the same."""
        self.convert()
        whole = ["train", "run.yaml", "--set", "dataset_config.val_rate=0", "--set", "training_config.calculate_per_token_loss=true", "--set",
                 "training_config.training_iters=2", "--set", "training_config.eval_interval=0", "--set", "dataset_config.batch_size=1",
                 "--set", "model_config.seq_length=200", "--set", "model_config.hidden_dropout_rate=0", "--set", "model_config.attention_dropout_rate=0"]
        def run(name, *more):
            self.tessera(*whole, "--set", f"training_config.output_dir={name}", *more)
            return self.losses(name)
        alone = run("alone", "--set", "dataset_config.global_batch_size=9")
        shown = self.tessera("data", "show", *whole[1:], "--set", "dataset_config.packing=true", "--count", 9, "--json").splitlines()
        rows = len({json.loads(line)["index"] for line in shown if line.startswith("{")})
        self.assertIn(rows, range(2, 6))
        packed = ["--set", "dataset_config.packing=true", "--set", f"dataset_config.global_batch_size={rows}"]
        neat = run("neat", *packed, "--set", "dataset_config.neat_packing=true")
        for ours, theirs in zip(neat, alone, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=3e-6)
        self.assertNotAlmostEqual(run("across", *packed)[0], alone[0], delta=1e-4)
        done = subprocess.run([*mpirun(2, self.folder), harness.program(), *whole, *packed, "--set", "dataset_config.neat_packing=true", "--set",
                               "training_config.output_dir=stages", "--set", "parallel_config.pipeline_model_parallel_size=2", "--set",
                               "parallel_config.num_layer_list=[2, 2]"], cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for ours, theirs in zip(self.losses("stages"), neat, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=3e-6)

    def test_a_damaged_picture_is_replaced_or_ends_the_run(self):
        self.convert()
        whole = (self.folder / "pictures/4.png").read_bytes()
        self.write("pictures/4.png", whole[:len(whole) - 30])
        words = ["train", "run.yaml", "--set", "dataset_config.val_rate=0"]
        self.assertIn("pictures/4.png", self.tessera(*words, code=2))
        self.tessera(*words, "--set", "dataset_config.bad_sample_limit=1", "--set", "training_config.output_dir=replaced")
        self.assertEqual(len(self.losses("replaced")), 6)
