"""What `tessera check` foresees of the memory of a run, beside what the run then counts."""

import contextlib
import json
import pathlib
import random
import re
import subprocess
import time

import harness
import mllm_test
from in_turn import mpirun
from layouts_test import cut

LATENT = {"multi_latent_attention": "true", "kv_lora_rank": 8, "qk_head_dim": 8, "qk_pos_emb_head_dim": 8, "v_head_dim": 8,
          "position_embedding_type": "rope"}
# Options of model_config, or of another group as GROUP__OPTION.
RECIPES = {
    "GPT with dropout": {},
    "Llama with grouped heads": dict(normalization="RMSNorm", hidden_act="swiglu", position_embedding_type="rope", group_query_attention="true",
                                     num_query_groups=2, untie_embeddings_and_output_weights="true", add_bias_linear="false"),
    "bf16": dict(training_config__bf16="true", hidden_act="swiglu"),
    "fp16": dict(training_config__fp16="true", normalization="RMSNorm"),
    "weights in bf16": dict(params_dtype="bfloat16"),
    "recomputed in full": dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1),
    "first layers recomputed": dict(recompute_granularity="full", recompute_method="block", recompute_num_layers=1),
    "attention recomputed": dict(recompute_granularity="selective", recompute_modules="[core_attn, mlp]"),
    "long sequence": dict(seq_length=512, max_position_embeddings=512, dataset_config__batch_size=1),
    "norms around": dict(use_sandwich_norm="true", qk_layernorm="true", use_parallel_residual="false", hidden_dropout_rate=0),
    "distributed optimizer": dict(parallel_config__zero_level="z1"),
    "first layer frozen": dict(training_config__frozen_parameters="['embedding.*', 'decoder.layers.0.*']"),
    "all but norms frozen, bf16": dict(training_config__trainable_parameters="['.*norm.*']", training_config__bf16="true"),
    "per-token loss, no dropout": dict(training_config__calculate_per_token_loss="true", hidden_dropout_rate=0, attention_dropout_rate=0),
}
LAYOUTS = {
    "data": {},
    "tensor, sequence": dict(tensor_model_parallel_size=2, sequence_parallel="true"),
    "pipeline": dict(pipeline_model_parallel_size=2),
    "interleaved": dict(pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=1),
    "context": dict(context_parallel_size=2),
    "interleaved, two chunks without layers": dict(pipeline_model_parallel_size=2, num_layer_list="[[0, 2], [2, 0]]"),
}
ADAPTERS = ["lora_config.use_lora=true", "lora_config.lora_rank=16", "lora_config.target_modules=all-linear"]
BF16 = "training_config.bf16=true"
SMALL = dict(num_layers=8, hidden_size=256, num_attention_heads=4, seq_length=256, max_position_embeddings=256, vocab_size=4096, hidden_dropout_rate=0,
             attention_dropout_rate=0, model_config__normalization="RMSNorm", model_config__hidden_act="swiglu",
             model_config__position_embedding_type="rope", model_config__add_bias_linear="false",
             model_config__untie_embeddings_and_output_weights="true", eval_interval=0)
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
COUNTED = ("weights", "gradients", "optimizer state", "activations", "workspace", "messages")
KEYS = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "workspace_bytes", "message_bytes")


class Memory(harness.InOwnFolder):
    def peak(self, *words):
        """MiB of memory of its own that `tessera checkpoint` had at most, mapped files not counted: looked at again and again."""
        process = subprocess.Popen([harness.program(), "checkpoint", *map(str, words)], cwd=self.folder, stdout=subprocess.DEVNULL)
        status, most = pathlib.Path(f"/proc/{process.pid}/status"), 0
        while process.poll() is None:
            with contextlib.suppress(OSError):  # it has just ended
                most = max([most, *(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("RssAnon:"))])
            time.sleep(.001)
        self.assertEqual(process.returncode, 0, words)
        return most / 1024

    def test_conversions_have_rows_of_a_tensor_in_memory_not_the_whole(self):
        # 300 MB; the largest tensor, the embedding, has 96.
        self.recipe("wide.yaml", training_iters=1, num_layers=2, hidden_size=240, vocab_size=100096, seq_length=8, max_position_embeddings=8,
                    dataset_config__batch_size=1, training_config__tensorboard="false")
        self.tessera("train", "wide.yaml")
        source = self.checkpoints()[-1]
        idle = self.peak("inspect", source)
        to_megatron = ("convert", "--from", "tessera", "--to", "megatron", "--ckpt-format")
        back = ("convert", "--from", "megatron", "--to", "tessera")
        halves = ("--set", "parallel_config.tensor_model_parallel_size=2")
        for name, words in {"reshard": ("reshard", source, *halves),
                            "torch": (*to_megatron, "torch", source),
                            "torch of two ranks": (*to_megatron, "torch", source, *halves),
                            "torch, shared state": (*to_megatron, "torch", source, "--set", "training_config.use_distributed_optimizer=true"),
                            "torch_dist": (*to_megatron, "torch_dist", source),
                            "torch back": (*back, "torch"),
                            "torch of two ranks back": (*back, "torch of two ranks"),
                            "torch, shared state, back": (*back, "torch, shared state"),
                            "torch_dist back": (*back, "torch_dist"),
                            "hf": ("convert", "--from", "tessera", "--to", "hf", source),
                            "hf of the other layout": ("convert", "--from", "tessera", "--to", "hf", "reshard"),
                            "hf in 16 bits": ("convert", "--from", "tessera", "--to", "hf", "--dtype", "bfloat16", source),
                            "hf back": ("convert", "--from", "hf", "--to", "tessera", "hf"),
                            "hf back with padding": ("convert", "--from", "hf", "--to", "tessera", "--set", "model_config.vocab_size=100480", "hf")}.items():
            self.assertLess(self.peak(*words, name) - idle, 64, name)

    def foreseen(self, *more):
        """Of each stage: kind -> bytes."""
        told = self.tessera("check", "tiny.yaml", "--ranks", "2", *more)
        lines = told[told.index("memory of a rank"):].splitlines()[1:]
        head = re.split(r"\s{2,}", lines[0].strip())
        rows = []
        for line in lines[1:]:
            cells = re.split(r"\s{2,}", line.strip())
            if len(cells) != len(head):
                break
            rows.append({name: int(cell.replace(" ", "")) for name, cell in zip(head[:-1], cells) if name != "stage"})
        return rows

    def counted(self, run, *more):
        """Of rank 0: kind -> bytes; and what the run told of each stage, if it has several."""
        words = [harness.program(), "train", "tiny.yaml", *harness.sets(output_dir=run), *more]
        done = subprocess.run([*mpirun(2, self.folder), *words], cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        first = json.loads((self.folder / run / "metrics.jsonl").read_text().splitlines()[-1])
        return (dict(zip(COUNTED, (first[key] for key in KEYS))),
                re.findall(r"memory of rank \d+, stage \d+: ([^;]*);", done.stdout + done.stderr))

    def compare(self, recipe, layout, run):
        options = {**dict(num_layers=4, training_iters=1, batch_size=2, eval_interval=0, dataset_config__micro_batch_num=4), **recipe}
        of_layout = {key.split("__")[1]: value for key, value in options.items() if key.startswith("parallel_config")}
        self.recipe("tiny.yaml", **{key if "__" in key or key in KNOWN else f"model_config__{key}": value
                                    for key, value in options.items() if not key.startswith("parallel_config")})
        more = cut(**of_layout, **layout)
        foreseen = self.foreseen(*more)
        counted, stages = self.counted(run, *more)
        self.assertEqual({kind: foreseen[0][kind] for kind in COUNTED}, counted)
        self.assertEqual(len(stages), layout.get("pipeline_model_parallel_size", 0))
        for told, stage in zip(stages, foreseen):
            for part in told.split(", "):
                kind, number, unit = re.fullmatch(r"(.*) ([\d.]+) (\w+)", part).groups()
                self.assertAlmostEqual(stage[kind] / UNITS[unit], float(number), delta=0.0051, msg=told)

    def compare_recipes(self, step):
        """Each of the layouts has about as many recipes."""
        layouts = list(LAYOUTS.items())
        for number, (name, recipe) in enumerate(RECIPES.items()):
            called, layout = layouts[(number + step) % len(layouts)]
            with self.subTest(recipe=name, layout=called):
                self.compare(recipe, layout, f"run{number}")

    def test_check_foresees_the_memory_of_recipes_to_the_byte(self):
        self.compare_recipes(0)

    def test_check_foresees_the_memory_of_recipes_on_other_layouts_to_the_byte(self):
        self.compare_recipes(2)

    def compare_processes(self, folder, kinds, **different):
        """Fine-tuning of `kinds`, name: settings, beside weights of Transformers."""
        model = {**SMALL, **different}
        self.recipe("base.yaml", **model, training_iters=1, batch_size=1, output_dir=f"base_{folder}")
        self.tessera("train", "base.yaml")
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", f"base_{folder}", folder)
        self.recipe("recipe.yaml", **model, training_iters=2, batch_size=8, training_config__load_checkpoint=folder, training_config__num_threads=2)
        for name, options in kinds.items():
            with self.subTest(name):
                self.assert_foreseen("recipe.yaml", name, options)

    def assert_foreseen(self, recipe, name, options, ahead=0):
        """Memory of the process without pages of files, as the operating system counts it, and bytes of weights that are mapped, those of a reference
        with the same folder once, beside what `check` prints. It runs before weights in 4 bits are written. `ahead`: bytes that reading threads hold
        at the peak of a step or before it, which depends on what the machine does."""
        words = [word for one in [*options, f"training_config.output_dir={re.sub('[^a-z0-9]', '_', name)}"] for word in ("--set", one)]
        size = lambda pattern, told: max([0, *(float(number) * UNITS[unit] for number, unit in re.findall(pattern, told))])
        told = self.tessera("check", recipe, *words)
        foreseen = size(r"at its peak.*\n.*together\n.* ([\d.]+) (\w+)\n", told), size(r"not counted above: ([\d.]+) (\w+)", told)
        told = self.tessera("train", recipe, *words)
        measured = size(r"the process without pages of files ([\d.]+) (\w+)", told), size(r"; mapped (?:from files|by the reference model) ([\d.]+) (\w+)", told)
        mib = lambda sizes: " and ".join(f"{size / 2**20:.1f}" for size in sizes)
        for one, other, early in zip(foreseen, measured, (ahead, 0)):
            self.assertLessEqual(max(other - one, one - early - other), .02 * other, f"{name}: foreseen {mib(foreseen)} MiB, in memory and in files; measured {mib(measured)}")

    def test_check_foresees_the_memory_of_preferences_and_rewards_within_two_percent(self):
        self.recipe("base.yaml", **SMALL, training_iters=1, batch_size=1, output_dir="base")
        self.tessera("train", "base.yaml")
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "base", "folder")
        # Each completion has as many tokens as fit: `check` does not know the data.
        draw = random.Random(1)
        words = lambda count: " ".join(draw.choices("abcdef", k=count))
        self.write("rows.txt", "\n".join(" " + words(40) for _ in range(200)))
        self.write("rows.jsonl", "".join(json.dumps({"instruction": "a", "input": "", "chosen": words(254), "rejected": words(254)}) + "\n" for _ in range(20)))
        self.tessera("data", "train-bpe", "--input", "rows.txt", "--vocab-size", 263, "--output-dir", "bpe")
        self.tessera("data", "preprocess", "--handler-name", "AlpacaStylePairwiseHandler", "--prompt-type", "empty", "--seq-length", 256,
                     "--input", "rows.jsonl", "--output-prefix", "pairs", "--vocab-file", "bpe/vocab.json", "--merge-file", "bpe/merges.txt")
        pairs = dict(dataset_config__dataset_type="instruction", dataset_config__data_path="pairs", dataset_config__is_pairwise_dataset="true",
                     dataset_config__split="'100,0,0'", dataset_config__tokenizer_type="GPT2BPETokenizer",
                     dataset_config__vocab_file="bpe/vocab.json", dataset_config__merge_file="bpe/merges.txt", dataset_config__data_cache_path=None,
                     dataset_config__mock_documents=None)
        of_pairs = {**SMALL, **pairs, "training_iters": 2, "batch_size": 4, "training_config__load_checkpoint": "folder", "training_config__num_threads": 2}
        self.recipe("dpo.yaml", **of_pairs, training_config__stage="dpo")
        self.recipe("rm.yaml", **of_pairs, training_config__stage="rm", model_config__score_head="true")
        for recipe, name, options in (("dpo.yaml", "reference of a folder", ["preference_config.ref_model=folder"]),
                                      ("dpo.yaml", "reference without adapters", ADAPTERS),
                                      ("rm.yaml", "rewards", []), ("rm.yaml", "rewards, adapters", ADAPTERS)):
            with self.subTest(name):
                self.assert_foreseen(recipe, name, options)

    def test_check_foresees_the_memory_of_images_within_two_percent(self):
        """`check` assumes that each token of a sample stands for an image: here nearly all do."""
        options = {group: dict(own) for group, own in mllm_test.RECIPE.items()}
        options["training_config"].update(training_iters=2, eval_interval=0, save_interval=100, num_threads=2)
        options["model_config"].update(num_layers=4, hidden_size=128, seq_length=1144, vocab_size=436, mrope_section="[8, 4, 4]")
        options["vision_config"].update(num_layers=4, hidden_size=128)
        options["dataset_config"].update(batch_size=1, image_max_pixels=4000000)
        del options["dataset_config"]["val_rate"]
        self.write("images.yaml", harness.to_yaml(options))
        self.write("large.png", mllm_test.png(28 * 33, 28 * 33, 3))  # 1089 tokens
        turns = [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "a"}]
        self.write("mllm.json", json.dumps([{"images": ["large.png"], "messages": turns} for _ in range(6)]))
        for name, sets in {"all trained": [], "frozen tower": ["training_config.frozen_parameters=['vision_.*']"]}.items():
            with self.subTest(name):
                self.assert_foreseen("images.yaml", name, sets, ahead=2 * 5 * (28 * 33) ** 2)  # two threads, 5 bytes a pixel

    def test_check_foresees_the_memory_of_fine_tuning_within_two_percent(self):
        self.compare_processes("folder", {
            "all weights": [], "all weights, bf16": [BF16], "all linear layers": ADAPTERS, "all linear layers, bf16": [*ADAPTERS, BF16],
            "query and value": [*ADAPTERS[:2], "lora_config.target_modules=[q_proj, v_proj]"], "magnitudes": [*ADAPTERS, "lora_config.use_dora=true"]})

    def test_check_foresees_the_memory_beside_weights_in_four_bits_within_two_percent(self):
        four_bits = [*ADAPTERS, "lora_config.qlora=true"]
        self.compare_processes("folder", {"4 bits": four_bits, "4 bits, nested": [*four_bits, "lora_config.qlora_double_quant=true"],
                                          "4 bits, bf16": [*four_bits, BF16]})
        gpt2 = {"model_config__normalization": "LayerNorm", "model_config__hidden_act": "gelu", "model_config__position_embedding_type": "learned_absolute",
                "model_config__add_bias_linear": "true", "model_config__untie_embeddings_and_output_weights": "false"}
        self.compare_processes("transposed", {"transposed weights, 4 bits": four_bits}, **gpt2)
        # Matrices of 9 MiB: the C library keeps what it took to lay them out, until the run returns it.
        self.compare_processes("transposed_wide", {"transposed weights": ADAPTERS}, num_layers=2, hidden_size=768, num_attention_heads=12, **gpt2)


KNOWN = {key for options in harness.TINY.values() for key in options}


if __name__ == "__main__":
    harness.main()
