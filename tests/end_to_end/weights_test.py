"""Weights in and out: Hugging Face Transformers and Megatron-LM, by the program alone and, where they are there, judged by the real ones.

The real ones need torch and transformers: name a Python that has them in TESSERA_PEER_PYTHON; tests that ask them are skipped without it.
"""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import unittest

import harness
from harness import sets

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2]))
FAMILIES = SOURCE / "tests/data/families"
NAMES = sorted(path.name for path in FAMILIES.iterdir())
MEGATRON = SOURCE / "tests/data/megatron"
MINDSPEED_MM = SOURCE / "tests/data/mindspeed_mm/checkpoints"
PEER = os.environ.get("TESSERA_PEER_PYTHON")


def tensors_of(path):
    """Name -> (type, shape, bytes) of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: (facts["dtype"], facts["shape"], data[8 + size + facts["data_offsets"][0]:8 + size + facts["data_offsets"][1]])
            for name, facts in header.items() if name != "__metadata__"}


def ids_of(family, name):
    kind, shape, data = tensors_of(FAMILIES / family / "case.safetensors")[name]
    ids = struct.unpack(f"<{len(data) // 8}q", data)
    return [ids[row * shape[1]:(row + 1) * shape[1]] for row in range(shape[0])]


def words(ids):
    return " ".join(map(str, ids))


class Weights(harness.InOwnFolder):
    def convert(self, source, target, *more, into="tessera", out_of="hf", code=0):
        return self.tessera("checkpoint", "convert", "--from", out_of, "--to", into, source, target, *more, code=code)

    def test_every_family_comes_in_and_goes_out_byte_for_byte(self):
        for family in NAMES:
            self.convert(FAMILIES / family, f"{family}.ours")
            self.convert(f"{family}.ours", f"{family}.theirs", "--shard-size", "20kB", out_of="tessera", into="hf")
            theirs = {}
            for path in (self.folder / f"{family}.theirs").glob("*.safetensors"):
                theirs.update(tensors_of(path))
            self.assertEqual(theirs, tensors_of(FAMILIES / family / "model.safetensors"), family)
            config = json.loads((self.folder / f"{family}.theirs/config.json").read_text())
            given = json.loads((FAMILIES / family / "config.json").read_text())
            self.assertEqual(config["model_type"], given["model_type"], family)

    def test_files_hold_a_layer_each_or_what_those_of_the_source_held(self):
        tensors = tensors_of(FAMILIES / "qwen2/model.safetensors")
        self.convert(FAMILIES / "qwen2", "ours")
        told = self.convert("ours", "theirs", "--shard-size", "source", out_of="tessera", into="hf", code=2)
        self.assertRegex(told, "has no model.safetensors.index.json of the files that it was read from; give a size or `layer`")
        self.convert("ours", "layers", "--shard-size", "layer", out_of="tessera", into="hf")
        files = sorted((self.folder / "layers").glob("*.safetensors"))
        layers = [{re.search(r"layers\.(\d+)", name)[1] for name in tensors_of(path) if ".layers." in name} for path in files]
        self.assertEqual(layers, [{str(number)} for number in range(len(files))])
        self.assertGreater(len(files), 1)
        # The same with other names.
        index = json.loads((self.folder / "layers/model.safetensors.index.json").read_text())
        names = {path.name: f"part-{len(files) - number}.safetensors" for number, path in enumerate(files)}
        (self.folder / "source").mkdir()
        for path in files:
            (self.folder / "source" / names[path.name]).write_bytes(path.read_bytes())
        index["weight_map"] = {name: names[file] for name, file in index["weight_map"].items()}
        self.write("source/model.safetensors.index.json", json.dumps(index))
        shutil.copy(self.folder / "layers/config.json", self.folder / "source")
        self.convert("source", "again")
        self.convert("again", "back", "--shard-size", "source", out_of="tessera", into="hf")
        found = {}
        for path in (self.folder / "source").glob("*.safetensors"):
            self.assertEqual(tensors_of(self.folder / "back" / path.name), tensors_of(path))
            found.update(tensors_of(path))
        self.assertEqual(found, tensors)
        self.assertEqual(json.loads((self.folder / "back/model.safetensors.index.json").read_text())["weight_map"], index["weight_map"])
        told = self.convert("again", "none", "--shard-size", "layers", out_of="tessera", into="hf", code=2)
        self.assertRegex(told, "--shard-size layers: a size such as 5GB, .* was expected, or layer, or source")

    def test_greedy_tokens_of_a_folder_and_of_what_was_converted_are_those_of_transformers(self):
        for family in ("qwen3", "gemma"):
            self.convert(FAMILIES / family, f"{family}.ours")
            for folder in (FAMILIES / family, f"{family}.ours"):
                for prompt, greedy in zip(ids_of(family, "prompt"), ids_of(family, "greedy")):
                    said = self.tessera("generate", "--model", folder, "--prompt-tokens", words(prompt), "--tokens", "18", "--temperature", "0")
                    self.assertEqual(said.strip(), words(greedy), family)

    def test_what_an_index_says_wrongly_is_told_by_everything_that_reads_the_folder(self):
        shutil.copytree(FAMILIES / "llama", self.folder / "hf")
        names = sorted(tensors_of(FAMILIES / "llama/model.safetensors"))
        (self.folder / "hf/case.safetensors").unlink()
        (self.folder / "hf/model.safetensors").rename(self.folder / "hf/part.safetensors")
        shutil.copy(self.folder / "hf/part.safetensors", self.folder / "hf/old.safetensors")
        index = {"metadata": {"total_size": 7}, "weight_map": {name: "part.safetensors" for name in names}}
        self.write("hf/model.safetensors.index.json", json.dumps(index))
        size = sum(len(data) for kind, shape, data in tensors_of(FAMILIES / "llama/model.safetensors").values())
        recipe = self.write("train.yaml", harness.to_yaml({
            "training_config": {"training_iters": 1, "output_dir": "run", "load_checkpoint": "hf", "tensorboard": "false"},
            "model_config": {"seq_length": 16}, "dataset_config": {"dataset_type": "mock", "batch_size": 2}}))
        for told in (self.convert("hf", "ours"), self.tessera("checkpoint", "inspect", "hf"), self.tessera("train", recipe),
                     self.tessera("generate", "--model", "hf", "--prompt-tokens", "1", "--tokens", "1")):
            for line in (f"total_size is 7, but the tensors that it names have {size} bytes", "names no tensor of old.safetensors beside it"):
                self.assertEqual(told.count(line), 1, told)
        self.assertEqual(tensors_of(self.folder / "hf/part.safetensors"), tensors_of(FAMILIES / "llama/model.safetensors"))

    def test_weights_that_are_too_large_for_float16_are_not_written(self):
        shutil.copytree(FAMILIES / "llama", self.folder / "hf")
        file = self.folder / "hf/model.safetensors"
        data, name = bytearray(file.read_bytes()), "model.layers.1.mlp.down_proj.weight"
        size = struct.unpack("<Q", data[:8])[0]
        facts = json.loads(data[8:8 + size])[name]
        end = 8 + size + facts["data_offsets"][1]
        large = {"F32": struct.pack("<f", 70000), "BF16": struct.pack("<f", 70000)[2:]}[facts["dtype"]]
        data[end - len(large):end] = large
        file.write_bytes(data)
        self.convert("hf", "ours")
        self.convert("hf", "dist", "--ckpt-format", "torch_dist", into="megatron")
        for out_of, source, into, more in (("hf", "hf", "tessera", ()), ("hf", "hf", "megatron", ()),
                                           ("hf", "hf", "megatron", ("--ckpt-format", "torch_dist")), ("tessera", "ours", "hf", ()),
                                           ("tessera", "ours", "megatron", ()), ("megatron", "dist", "tessera", ())):
            told = self.convert(source, "out", "--dtype", "float16", *more, out_of=out_of, into=into, code=2)
            self.assertRegex(told, r"mlp.* is infinite; .*larger than 65504")
            self.assertFalse((self.folder / "out").exists(), (out_of, into))

    def test_training_begins_with_the_weights_of_a_folder_and_its_checkpoints_carry_what_came_along(self):
        shutil.copytree(FAMILIES / "qwen2", self.folder / "hf")
        self.write("hf/generation_config.json", '{"eos_token_id": 1}')
        # Sizes, norms, biases come from the folder; the recipe says what is its own.
        recipe = self.write("train.yaml", harness.to_yaml({
            "training_config": {"training_iters": 2, "output_dir": "run", "load_checkpoint": "hf", "tensorboard": "false"},
            "model_config": {"seq_length": 16, "vocab_size": 100}, "optimizer_config": {"learning_rate": 0},
            "dataset_config": {"dataset_type": "mock", "mock_documents": 300, "batch_size": 2}}))
        told = self.tessera("train", recipe)
        self.assertIn("embedding.word_embeddings.weight: 96 rows kept, 4 rows of padding filled with their mean", told)
        self.assertIn("starting from the weights of hf", told)
        told = self.convert("run", "out", "--dtype", "bfloat16", out_of="tessera", into="hf")
        self.assertIn("rows 96 to 99 are padding and left out", told)
        self.assertEqual(tensors_of(self.folder / "out/model.safetensors"), tensors_of(FAMILIES / "qwen2/model.safetensors"))
        self.assertEqual((self.folder / "out/generation_config.json").read_text(), '{"eos_token_id": 1}')
        told = self.tessera("train", recipe, *sets(output_dir="other", vocab_size=90), code=2)
        self.assertIn("its vocabulary has 96 rows and the model here 90; refused", told)
        # What config.json says about the function of the weights counts, unless the recipe insists.
        other = sets(output_dir="other") + ["--set", "model_config.norm_epsilon=0.1"]
        told = self.tessera("train", recipe, *other, code=2)
        self.assertIn("model_config.norm_epsilon: 0.1 in the recipe, 1e-06 in the checkpoint", told)
        told = self.tessera("train", recipe, *other, "--set", "training_config.allow_changes=[model_config.norm_epsilon]")
        self.assertIn("changed since the checkpoint: model_config.norm_epsilon 1e-06 -> 0.1", told)

    def test_a_run_goes_on_bit_for_bit_from_the_format_of_megatron(self):
        length = dict(training_iters=10)
        self.tessera("train", "tiny.yaml", *sets(output_dir="straight", **length))
        torch = ["--set", "training_config.ckpt_format=torch"]
        for _ in range(2):
            self.tessera("train", "tiny.yaml", *sets(output_dir="halves", exit_interval=5, **length), *torch)
        self.assertEqual(self.metrics("straight"), self.metrics("halves"))
        self.assertEqual((self.folder / "halves/latest_checkpointed_iteration.txt").read_text(), "10")
        self.tessera("train", "tiny.yaml", *sets(output_dir="second", **length), "--set", "training_config.load_checkpoint=halves/iter_0000005")
        self.assertEqual(self.losses("straight")[5:], self.losses("second"))
        # The arguments in a file of Megatron-LM itself, which has no recipe beside it, describe its model.
        shutil.copytree(self.folder / "halves/iter_0000005", self.folder / "plain/iter_0000005")
        shutil.rmtree(self.folder / "plain/iter_0000005/blobs")
        load = ["--set", "training_config.load_checkpoint=plain/iter_0000005"]
        told = self.tessera("train", "tiny.yaml", *sets(output_dir="refused", **length), *load, "--set", "model_config.hidden_act=relu",
                            "--set", "optimizer_config.optimizer_type=lion", code=2)
        self.assertIn("model_config.hidden_act: relu in the recipe, gelu in the checkpoint", told)
        self.assertIn("optimizer_config.optimizer_type: lion in the recipe, adamw in the checkpoint", told)
        told = self.tessera("train", "tiny.yaml", *sets(output_dir="third", **length), *load)
        self.assertNotIn("changed since the checkpoint", told)
        self.assertEqual(self.losses("straight")[5:], self.losses("third"))
        # There and back through the converter: the file is the same to the byte.
        self.convert("halves", "ours", out_of="megatron")
        self.convert("ours", "theirs", out_of="tessera", into="megatron")
        self.convert("theirs", "again", out_of="megatron")
        model = "iter_0000010/model_00000.safetensors"
        self.assertEqual((self.folder / "ours" / model).read_bytes(), (self.folder / "again" / model).read_bytes())
        optimizer = "iter_0000010/optimizer_00000.safetensors"
        self.assertEqual((self.folder / "ours" / optimizer).read_bytes(), (self.folder / "again" / optimizer).read_bytes())

    def test_a_run_goes_on_from_another_layouts_checkpoint_with_the_same_losses(self):
        cut = [["--set", "parallel_config." + word] for word in
               ("tensor_model_parallel_size=2", "pipeline_model_parallel_size=2", "num_layer_list=[[1],[1]]")]
        cut = [word for pair in cut for word in pair]
        length = dict(training_iters=10)
        self.tessera("train", "tiny.yaml", *sets(output_dir="straight", **length))
        self.tessera("train", "tiny.yaml", *sets(output_dir="half", exit_interval=5, **length))
        told = self.tessera("checkpoint", "reshard", "half", "cut", *cut)
        self.assertIn("2 tensor-parallel ranks x 2 stages", told)
        self.assertEqual(len(list((self.folder / "cut/network_iter_0000005").glob("model_0000[0-3].safetensors"))), 4)
        self.assertIn("tensor_model_parallel_size: 2",
                      (self.folder / "cut/network_iter_0000005/blobs/resolved.yaml").read_text())
        self.tessera("train", "tiny.yaml", *sets(output_dir="second", **length), "--set", "training_config.load_checkpoint=cut")
        self.assertEqual(self.losses("straight")[5:], self.losses("second"))
        # By way of Megatron-LM's format of as many ranks.
        self.convert("half", "theirs", *cut, out_of="tessera", into="megatron")
        self.assertEqual(sorted(path.name for path in (self.folder / "theirs/iter_0000005").glob("mp_rank_*")),
                         ["mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"])
        self.tessera("train", "tiny.yaml", *sets(output_dir="third", **length), "--set", "training_config.load_checkpoint=theirs")
        self.assertEqual(self.losses("straight")[5:], self.losses("third"))
        told = self.tessera("checkpoint", "reshard", "half", "odd", "--set", "parallel_config.pipeline_model_parallel_size=3", code=2)
        self.assertIn("fewer than 3 stages", told)

    def test_experts_are_resharded_over_other_ranks(self):
        self.write("experts.yaml", harness.to_yaml({
            "training_config": {"training_iters": 2, "output_dir": "whole", "tensorboard": "false"},
            "model_config": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "seq_length": 16, "vocab_size": 64,
                             "num_experts": 4, "add_bias_linear": "false", "hidden_act": "swiglu", "ffn_hidden_size": 24},
            "moe_config": {"moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": "true"},
            "optimizer_config": {"learning_rate": 1e-2, "lr_decay_style": "constant"}, "dataset_config": {"dataset_type": "mock", "mock_documents": 300, "batch_size": 4}}))
        self.tessera("train", "experts.yaml")

        def files(run):
            return sorted((self.folder / run / "network_iter_0000002").glob("model_*.safetensors"))

        def reshard(source, target, says, **options):
            told = self.tessera("checkpoint", "reshard", source, target, *(
                word for name, value in options.items() for word in ("--set", f"parallel_config.{name}={value}")))
            self.assertIn(says, told)
            return [{name: shape for name, (_, shape, _) in tensors_of(path).items()} for path in files(target)]

        def expert(number, layer="fc1"):
            return f"decoder.layers.1.mlp.experts.local_experts.{number}.linear_{layer}.weight"

        divided = reshard("whole", "ep2", "1 tensor-parallel rank x 1 stage, experts over 2 x 1 ranks", expert_model_parallel_size=2)
        self.assertEqual([[n for n in range(4) if any(expert(n) in name for name in held)] for held in divided], [[0, 1], [2, 3]])
        both = reshard("ep2", "etp2", "2 tensor-parallel ranks x 1 stage, experts over 2 x 2 ranks", expert_model_parallel_size=2,
                       expert_tensor_parallel_size=2, tensor_model_parallel_size=2, sequence_parallel="true")
        self.assertEqual([[n for n in range(4) if any(expert(n) in name for name in held)] for held in both],
                         [[0, 1], [0, 1], [2, 3], [2, 3]])
        self.assertEqual(sum(size for held in both for name, shape in held.items() if expert(0, "fc2") in name for size in shape[1:]), 24)
        reshard("etp2", "back", "experts over 1 x 1 ranks", expert_model_parallel_size=1, expert_tensor_parallel_size=1,
                tensor_model_parallel_size=1, sequence_parallel="false")
        for kind in ("model", "optimizer"):
            path = f"network_iter_0000002/{kind}_00000.safetensors"
            self.assertEqual(tensors_of(self.folder / "whole/checkpoints" / path), tensors_of(self.folder / "back" / path), kind)
        for run in ("whole", "etp2"):
            self.tessera("train", "experts.yaml", *sets(output_dir=f"{run}_on", training_iters=4),
                         "--set", f"training_config.load_checkpoint={run}")
        self.assertEqual(self.losses("whole_on"), self.losses("etp2_on"))

    def test_what_processes_of_torch_saved_is_converted_and_trained_as_the_whole_folder(self):
        self.recipe(**dict.fromkeys(("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "vocab_size")))
        for form in "whole", "plain", "parts":
            shutil.copytree(SOURCE / "tests/data/torch_dcp" / form, self.folder / form)
            if form != "whole":
                told = self.tessera("checkpoint", "inspect", form, code=2)
                self.assertIn("copy the config.json of the model into the folder" if form == "plain" else "holds no checkpoint", told)
                shutil.copy(self.folder / "whole/config.json", self.folder / form)
            self.assertIn("llama", self.tessera("checkpoint", "inspect", form))
            self.convert(form, form + ".ours")
            self.convert(form + ".ours", form + ".theirs", out_of="tessera", into="hf")
            self.assertEqual(tensors_of(self.folder / (form + ".theirs") / "model.safetensors"), tensors_of(self.folder / "whole/model.safetensors"))
            told = self.tessera("train", "tiny.yaml", *sets(output_dir=form + ".run", load_checkpoint=form, resume_training="false", training_iters=2))
            self.assertEqual(told.count("tensors beside those of the model are not read, such as 'optimizer.exp_avg."), form == "plain", told)
            self.assertEqual(self.losses(form + ".run"), self.losses("whole.run"))
        self.tessera("checkpoint", "verify", "plain")

    def test_a_run_continues_with_the_optimizer_state_of_torch_by_request(self):
        self.recipe(**dict.fromkeys(("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings", "vocab_size")))
        shutil.copytree(SOURCE / "tests/data/torch_dcp/trained", self.folder / "trained")
        shutil.copy(SOURCE / "tests/data/torch_dcp/whole/config.json", self.folder / "trained")
        shutil.copytree(SOURCE / "tests/data/torch_dcp/whole", self.folder / "weights")
        shutil.copy(SOURCE / "tests/data/torch_dcp/trained_whole/model.safetensors", self.folder / "weights/model.safetensors")
        train = lambda folder, run, code=0, **more: self.tessera("train", "tiny.yaml", *sets(output_dir=run, load_checkpoint=folder, training_iters=6, **more),
                                                                  code=code)
        told = train("trained", "begun")
        self.assertIn("trained: has optimizer state (exp_avg, exp_avg_sq) after 3 steps", told)
        self.assertIn("starting from the weights of trained", told)
        train("weights", "plain")
        self.assertEqual(self.losses("begun"), self.losses("plain"))
        self.assertEqual(len(self.losses("begun")), 6)
        self.assertIn("give training_config.no_load_rng: true to continue", train("trained", "none", resume_training="true", code=2))
        go_on = dict(resume_training="true", no_load_rng="true")
        self.assertIn("resuming from trained after iteration 3", train("trained", "continued", **go_on))
        self.assertEqual(len(self.losses("continued")), 3)
        self.assertNotEqual(self.losses("continued"), self.losses("plain")[:3])
        self.convert("trained", "ours")
        told = self.tessera("checkpoint", "inspect", "ours", "--tensors")
        for line in "iteration        3", "optimizer.exp_avg.output_layer.weight float32 [13, 8]", "optimizer.exp_avg_sq.embedding.word_embeddings.weight":
            self.assertIn(line, told)
        told = train("trained", "later", override_ckpt_iteration=4, **go_on)
        self.assertIn("the run begins after iteration 4 and 16 samples, instead of 3 and 0", told)

    @unittest.skipUnless(PEER, "TESSERA_PEER_PYTHON names no Python with torch")
    def test_what_this_torch_saves_by_processes_is_read(self):
        done = subprocess.run([PEER, str(SOURCE / "tests/peers/record_dcp.py"), "saved"], cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout)
        for form in "plain", "parts":
            shutil.copy(self.folder / "saved/whole/config.json", self.folder / "saved" / form)
            self.convert("saved/" + form, form + ".ours")
            self.convert(form + ".ours", form + ".theirs", out_of="tessera", into="hf")
            self.assertEqual(tensors_of(self.folder / (form + ".theirs") / "model.safetensors"), tensors_of(self.folder / "saved/whole/model.safetensors"))

    def test_what_cannot_be_converted_is_one_clear_line(self):
        told = self.convert(MEGATRON, "out", out_of="megatron", into="peft", code=2)
        self.assertIn("adapters are written from a run of Tessera", told)
        self.write("odd/config.json", '{"model_type": "mamba"}')
        self.assertIn("model_type mamba is not supported", self.convert("odd", "out", code=2))
        self.assertIn("generate: give one of", self.tessera("generate", code=2))
        self.assertFalse((self.folder / "out").exists())

    @unittest.skipUnless(PEER, "no Python with torch and transformers; name one in TESSERA_PEER_PYTHON")
    def test_transformers_computes_the_same_logits_from_what_was_exported(self):
        pairs = []
        for family in NAMES:
            self.convert(FAMILIES / family, f"{family}.ours")
            self.convert(f"{family}.ours", f"{family}.theirs", "--shard-size", "20kB", out_of="tessera", into="hf")
            pairs += [str(FAMILIES / family), str(self.folder / f"{family}.theirs")]
        self.peer("compare_models.py", *pairs)

    @unittest.skipUnless(PEER, "no Python with torch and transformers; name one in TESSERA_PEER_PYTHON")
    def test_torch_loads_what_was_saved_in_the_format_of_megatron(self):
        self.convert(MEGATRON, "ours", out_of="megatron")
        self.convert("ours", "theirs", out_of="tessera", into="megatron")
        self.peer("compare_megatron.py", MEGATRON, self.folder / "theirs")

    @unittest.skipUnless(PEER, "no Python with torch and transformers; name one in TESSERA_PEER_PYTHON")
    def test_torch_loads_what_was_saved_for_many_ranks_of_megatron(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=2))
        self.convert("run", "theirs", "--set", "parallel_config.tensor_model_parallel_size=2", "--set",
                     "parallel_config.pipeline_model_parallel_size=2", "--set", "training_config.use_distributed_optimizer=true",
                     out_of="tessera", into="megatron")
        self.peer("compare_megatron_ranks.py", self.checkpoints()[-1], self.folder / "theirs/iter_0000002")

    def peer(self, script, *arguments):
        done = subprocess.run([PEER, str(SOURCE / "tests/peers" / script), *map(str, arguments)], capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class MmConvert(harness.InOwnFolder):
    """The lines of MindSpeed-MM's mm-convert, by the program. Their results are compared by golden_runner and unit tests."""

    def mm(self, *arguments, code=0):
        return self.tessera("checkpoint", "mm-convert", "Qwen2VLConverter", *arguments, code=code)

    def written(self, out="mm"):
        return self.mm("hf_to_mm", "--cfg.mm_dir", out, "--cfg.hf_config.hf_dir", MINDSPEED_MM / "hf_tied", "--cfg.parallel_config.llm_pp_layers",
                       "[[3,3]]", "--cfg.parallel_config.vit_pp_layers", "[[4,0]]", "--cfg.parallel_config.tp_size", "1")

    def test_flags_and_a_file_of_options_are_read(self):
        self.assertIn("1 tensor-parallel x 2 pipeline ranks", self.written())
        (self.folder / "back.yml").write_text(f"""cfg:
  save_hf_dir: elsewhere
  mm_dir: mm
  hf_config:
    hf_dir: {MINDSPEED_MM / "hf_tied"}
  parallel_config:
    llm_pp_layers: [3, 3]
    vit_pp_layers: [4, 0]
""")
        self.mm("mm_to_hf", "--config", "back.yml", "--cfg.save_hf_dir=back")
        names = sorted(path.name for path in (MINDSPEED_MM / "hf_tied").iterdir())
        self.assertEqual(sorted(path.name for path in (self.folder / "back").iterdir()), names)
        for name in names:
            self.assertEqual((self.folder / "back" / name).read_bytes(), (MINDSPEED_MM / "hf_tied" / name).read_bytes(), name)
        (self.folder / "template.yml").write_text(self.mm("mm_to_hf", "--print_config=comments"))
        self.assertEqual(self.mm("mm_to_hf", "--print_config"), (self.folder / "template.yml").read_text())
        wrong = self.mm("mm_to_hf", "--config", "template.yml", code=2)
        for words in ("save_hf_dir is not given", "mm_dir is not given", "hf_config.hf_dir is not given", "llm_pp_layers"):
            self.assertIn(words, wrong)
        (self.folder / "back.yml").write_text("cfg:\n  mm_dir: mm\n  parallel_config:\n    lm_pp_layers: [3, 3]\n")
        wrong = self.mm("mm_to_hf", "--config", "back.yml", "--cfg.parallel_config.tp_size", "none", code=2)
        for words in ("back.yml:4", "did you mean 'parallel_config.llm_pp_layers'", "--cfg.parallel_config.tp_size", "save_hf_dir is not given"):
            self.assertIn(words, wrong)

    def test_a_missing_folder_of_transformers_is_a_mistake_of_the_user(self):
        layers = ["--cfg.parallel_config.llm_pp_layers", "[6]", "--cfg.parallel_config.vit_pp_layers", "[4]"]
        (self.folder / "empty").mkdir()
        for folder, why in ("missing", "no such folder"), ("empty", "it has no config.json"):
            for command in (["hf_to_mm", "--cfg.mm_dir", "out"], ["mm_to_hf", "--cfg.mm_dir", "empty", "--cfg.save_hf_dir", "out"]):
                told = self.mm(*command, "--cfg.hf_config.hf_dir", folder, *layers, code=2)
                self.assertIn(f"hf_config.hf_dir is {folder}: {why}; give the folder", told)
        self.assertFalse((self.folder / "out").exists())

    def blobs(self, folder):
        return {path.name for path in (self.folder / folder).rglob("blobs/**/*") if path.is_file()}

    def files(self, folder):
        folder = self.folder / folder
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_weights_pass_through_tessera_unchanged(self):
        self.written()
        hf = MINDSPEED_MM / "hf_tied"
        convert = ("checkpoint", "convert", "--from")
        self.tessera(*convert, "hf", "--to", "tessera", hf, "ours")
        self.tessera(*convert, "tessera", "--to", "hf", "ours", "theirs")
        theirs = {name: tensor for path in hf.glob("*.safetensors") for name, tensor in tensors_of(path).items()}
        self.assertEqual(tensors_of(self.folder / "theirs/model.safetensors"), theirs)
        layout = ["--set", "parallel_config.pipeline_model_parallel_size=2", "--set", "parallel_config.num_layer_list=[7,3]"]
        self.tessera(*convert, "tessera", "--to", "mindspeed-mm", "ours", "back", *layout)  # in bfloat16, as they are
        self.assertEqual(self.files("back"), self.files("mm"))
        self.tessera(*convert, "mindspeed-mm", "--to", "tessera", "--like", hf, "mm", "again")
        self.assertEqual(self.blobs("again"), self.blobs("ours"))  # the tokenizer too
        for folder in ("again", "ours"):
            self.mm("mm_to_hf", "--cfg.save_hf_dir", f"from_{folder}", "--cfg.mm_dir", folder, "--cfg.hf_config.hf_dir", hf,
                    "--cfg.parallel_config.llm_pp_layers", "[3,3]", "--cfg.parallel_config.vit_pp_layers", "[4,0]")
            self.assertEqual(self.files(f"from_{folder}"), self.files(hf))

    @unittest.skipUnless(PEER, "no Python with torch and transformers; name one in TESSERA_PEER_PYTHON")
    def test_torch_loads_what_is_written(self):
        self.written()
        code = """
import json, sys, torch
ours, theirs = (torch.load(path, weights_only=True) for path in sys.argv[1:])
assert ours["checkpoint_version"] == theirs["checkpoint_version"] == 3.0
assert set(ours["model"]) == set(theirs["model"])
assert all(ours["model"][name].dtype == tensor.dtype and torch.equal(ours["model"][name], tensor) for name, tensor in theirs["model"].items())
"""
        for stage in range(2):
            path = f"release/mp_rank_00_00{stage}/model_optim_rng.pt"
            subprocess.run([PEER, "-c", code, self.folder / "mm" / path, MINDSPEED_MM / "mm/tied_tp1_pp2" / path], check=True)


if __name__ == "__main__":
    harness.main()
