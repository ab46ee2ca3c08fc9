"""Megatron-LM's distributed checkpoints (ckpt_format torch_dist): what runs and the converter write holds the tensors of our own format, to the bit,
as torch.distributed.checkpoint loads them.

That needs torch: name a Python that has it in TESSERA_PEER_PYTHON; tests that ask it are skipped without it. TESSERA_PEER_MEGATRON names folders with
megatron-core for that Python, divided by colons, of any versions from 0.12: each loads what Tessera wrote for it.
"""

import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import unittest

import harness
from harness import sets
from in_turn import mpirun
from layouts_test import cut

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2]))
PEER = os.environ.get("TESSERA_PEER_PYTHON")
CORES = [pathlib.Path(path) for path in os.environ.get("TESSERA_PEER_MEGATRON", "").split(":") if path and PEER]
NORMS = {"input_layernorm.": "self_attention.linear_qkv.layer_norm_", "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}


def positions(shape, offsets, extents):
    """Numbers of the elements of a box among those of the whole, in row-major order."""
    strides = [math.prod(shape[dim + 1:]) for dim in range(len(shape))]
    found = [0]
    for stride, offset, extent in zip(strides, offsets, extents):
        found = [base + stride * (offset + i) for base in found for i in range(extent)]
    return found


def native_tensors(folder):
    """Name -> (shape, floats) of a checkpoint of ours, whole."""
    manifests = [json.loads(path.read_text()) for path in folder.glob("manifest*.json")]
    whole = {}
    for name, entry in (item for manifest in manifests for item in manifest.get("tensors", {}).items()):
        shape = entry["shape"]
        values = whole.setdefault(name, (shape, [None] * math.prod(shape)))[1]
        for stored in entry["ranges"]:
            places = positions(shape, stored["offsets"], stored["extents"])
            data = (folder / stored["file"]).read_bytes()[stored["byte_offset"]:][:4 * len(places)]
            for place, value in zip(places, struct.unpack(f"<{len(places)}f", data)):
                values[place] = value
    return whole


def safetensors(path):
    """As native_tensors, of a file with fp32."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    whole = {}
    for name, facts in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + place for place in facts["data_offsets"])
            whole[name] = facts["shape"], list(struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]))
    return whole


def key_of(name, layers):
    """Megatron-LM's key of our name, and the index in the axis of layers."""
    for ours, theirs in NORMS.items():
        name = name.replace(ours, theirs)
    found = re.match(r"decoder\.layers\.(\d+)\.(.*)", name)
    return (f"decoder.layers.{found[2]}", int(found[1])) if found else (name, None)


def unflattened(shape, before, values):
    if before is None:
        return shape, values
    extents = [whole // count for whole, count in zip(before, shape)]
    out, size = [None] * len(values), math.prod(extents)
    for number, first in enumerate(range(0, len(values), size)):
        at = []
        for count in reversed(shape[:-1]):
            at.insert(0, number % count)
            number //= count
        for place, value in zip(positions(before, [a * b for a, b in zip(at, extents)], extents), values[first:first + size]):
            out[place] = value
    return before, out


class DistCheckpoint(harness.InOwnFolder):
    def setUp(self):
        super().setUp()
        self.recipe(training_iters=2, batch_size=1, dataset_config__global_batch_size=4, training_config__tensorboard="false",
                    training_config__prefix="''", model_config__hidden_act="swiglu")

    def run_on(self, ranks, run, *more):
        words = [harness.program(), "train", "tiny.yaml", *sets(output_dir=run), *more]
        done = subprocess.run([*mpirun(ranks, self.folder), *words] if ranks > 1 else words, cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def loaded(self, folder):
        """Key -> (shape, floats), as torch loads it, and what stands beside."""
        done = subprocess.run([PEER, str(SOURCE / "tests/peers/load_dist.py"), folder, self.folder / "loaded"], capture_output=True, text=True,
                              cwd=self.folder, timeout=280)
        self.assertEqual(done.returncode, 0, done.stderr)
        tensors = {}
        for number, facts in enumerate(json.loads((self.folder / "loaded/tensors.json").read_text())):
            self.assertEqual(facts["type"], "torch.float32")
            data = (self.folder / f"loaded/{number}.bin").read_bytes()
            tensors[facts["key"]] = unflattened(facts["shape"], facts["before"], list(struct.unpack(f"<{len(data) // 4}f", data)))
        return tensors, json.loads((self.folder / "loaded/common.json").read_text())

    def assert_same(self, ours, theirs, master=None):
        """`master`: what the fp32 weights are called in the optimizer state, if they are there."""
        layers = 1 + max(int(found[1]) for found in (re.match(r"decoder\.layers\.(\d+)", name) for name in ours) if found)
        left = set(theirs)
        for name, (shape, values) in ours.items():
            state = re.match(r"optimizer\.(\w+)\.(.*)", name)
            key, layer = key_of(state[2] if state else name, layers)
            for key in [f"optimizer.state.{state[1]}.{key}"] if state else [key] + ([f"optimizer.state.{master}.{key}"] if master else []):
                whole, theirs_values = theirs[key]
                left.discard(key)
                self.assertEqual(whole, shape if layer is None else [layers, *shape], key)
                first = (layer or 0) * len(values)
                self.assertEqual(theirs_values[first:first + len(values)], values, key)
        self.assertEqual(left, set())

    @unittest.skipUnless(PEER, "no Python with torch; name one in TESSERA_PEER_PYTHON")
    def test_torch_loads_what_any_layout_saves(self):
        for ranks, options, more, master in (
                (1, {}, [], None),
                (4, dict(tensor_model_parallel_size=2), sets(use_distributed_optimizer="true"), "fp32_param"),
                (4, dict(tensor_model_parallel_size=2, pipeline_model_parallel_size=2), [], None)):
            with self.subTest(ranks=ranks, **options):
                name = f"{ranks}{len(options)}{len(more)}"
                self.run_on(ranks, "ours" + name, *cut(**options), *more)
                self.run_on(ranks, "theirs" + name, *cut(**options), *more, *sets(ckpt_format="torch_dist"))
                folder = self.folder / f"theirs{name}/iter_0000002"
                files = sorted(path.name for path in folder.iterdir())
                self.assertEqual(files, [".metadata", *(f"__{rank}_0.distcp" for rank in range(ranks)), "blobs", "common.pt", "metadata.json"])
                ours = native_tensors(self.folder / f"ours{name}/checkpoints/iter_0000002")
                theirs, common = self.loaded(folder)
                self.assert_same(ours, theirs, master)
                self.assertEqual((common["iteration"], common["args"]["ckpt_format"]), (2, "torch_dist"))
                # By the converter, from our own format.
                self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "megatron", "--ckpt-format", "torch_dist", "ours" + name, "c" + name)
                self.assert_same(ours, self.loaded(self.folder / f"c{name}/iter_0000002")[0], master)
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "megatron", "--ckpt-format", "torch_dist", "--for", "core_v0.17",
                     "ours412", "later")
        theirs, common = self.loaded(self.folder / "later/iter_0000002")
        self.assert_same(native_tensors(self.folder / "ours412/checkpoints/iter_0000002"), theirs, "param")
        self.assertIn("fully_reshardable", common["optimizer"])
        self.assertIn("content_metadata", common["keys"])

    def loaded_by_megatron(self, core, folder, native, *how):
        done = subprocess.run([PEER, "-W", "ignore", str(SOURCE / "tests/peers/load_megatron_dist.py"), folder, native, *how], capture_output=True, text=True,
                              cwd=self.folder, timeout=280, env={**os.environ, "PYTHONPATH": str(core), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, 0, f"{core} {how}: {done.stderr[-3000:]}")
        found = re.search(r"megatron-core 0\.(\d+).*: (\d+) processes, (\d+) weights and (\d+) tensors of optimizer state are the same", done.stdout)
        self.assertTrue(found, done.stdout)
        self.assertGreater(int(found[3]), 20)
        self.assertGreater(int(found[4]), 20)

    @unittest.skipUnless(CORES, "no megatron-core; name folders with it in TESSERA_PEER_MEGATRON")
    def test_megatron_core_loads_every_form(self):
        dense = dict(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
        experts = dict(expert_model_parallel_size=2)
        self.run_on(1, "dense")
        self.recipe("experts.yaml", training_iters=2, batch_size=1, dataset_config__global_batch_size=4, training_config__tensorboard="false",
                    training_config__prefix="''", model_config__hidden_act="swiglu", model_config__num_experts=4, model_config__normalization="RMSNorm",
                    model_config__position_embedding_type="rope", model_config__add_bias_linear="false", training_config__bf16="true",
                    model_config__untie_embeddings_and_output_weights="true")
        self.tessera("train", "experts.yaml", *sets(output_dir="experts"))
        for core in CORES:
            (version,) = [int(path.name.split(".")[1]) for path in core.glob("megatron_core-*.dist-info")]
            later = ["--for", f"core_v0.{version}"] if version >= 15 else []
            for run, layout, loaded in (("dense", dense, ["--tensor", "2", "--data", "2"]), ("experts", experts, ["--experts", "2", "--data", "2"])):
                for distributed in False, True:
                    folder = f"{run}_{version}_{distributed}"
                    self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "megatron", "--ckpt-format", "torch_dist", *later, run, folder,
                                 *sets(use_distributed_optimizer=str(distributed).lower()), *cut(**layout))
                    (native,) = (self.folder / run / "checkpoints").glob("iter_0000002")
                    self.loaded_by_megatron(core, f"{folder}/iter_0000002", native, "--optimizer", "distributed" if distributed else "plain", *loaded)

    @unittest.skipUnless(CORES, "no megatron-core; name folders with it in TESSERA_PEER_MEGATRON")
    def test_what_megatron_core_saves_is_read(self):
        for core in CORES:
            (version,) = [int(path.name.split(".")[1]) for path in core.glob("megatron_core-*.dist-info")]
            if version < 15:
                continue  # its writer does not work with this torch
            for number, how in enumerate((
                    "--tensor 2 --data 2 --swiglu --grouped --bf16 --optimizer distributed --form dp_reshardable",
                    "--tensor 2 --data 2 --swiglu --grouped --bf16 --optimizer distributed --form fully_reshardable",
                    "--stages 2 --virtual 2 --layers 6 --first 2 --swiglu --bf16 --optimizer distributed --form dp_reshardable",
                    "--moe --experts 2 --data 2 --swiglu --bf16 --optimizer distributed --form dp_reshardable",
                    "--tensor 2 --moe --swiglu --qk-layernorm --untied --form singleton --optimizer plain")):
                with self.subTest(core=core.name, how=how):
                    out = self.folder / f"core{version}_{number}"
                    done = subprocess.run([PEER, "-B", "-W", "ignore", SOURCE / "tests/peers/save_megatron_dist.py", out, *how.split()], capture_output=True,
                                          text=True, timeout=280, env={**os.environ, "PYTHONPATH": str(core), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
                    self.assertEqual(done.returncode, 0, done.stderr[-3000:])
                    self.tessera("checkpoint", "verify", out)
                    self.tessera("checkpoint", "convert", "--from", "megatron", "--to", "tessera", out, f"ours{number}")
                    (ours,) = self.folder.glob(f"ours{number}/iter_0000010")
                    self.assertEqual(native_tensors(ours), safetensors(out / "whole.safetensors"))
                    shutil.rmtree(self.folder / f"ours{number}")

    def test_what_a_run_saves_is_converted_back_and_resumed(self):
        theirs = sets(ckpt_format="torch_dist", use_distributed_optimizer="true")
        self.run_on(1, "ours")
        self.run_on(1, "theirs", *theirs)
        self.tessera("checkpoint", "verify", "theirs")
        self.tessera("checkpoint", "convert", "--from", "megatron", "--to", "tessera", "theirs", "back")
        (back,) = self.folder.glob("back/**/iter_0000002")
        self.assertEqual(native_tensors(back), native_tensors(self.folder / "ours/checkpoints/iter_0000002"))
        for run, more in ("ours", []), ("theirs", theirs):
            self.run_on(1, run, *more, *sets(training_iters="4"), "--set", "optimizer_config.override_opt_param_scheduler=true")
        self.tessera("checkpoint", "convert", "--from", "megatron", "--to", "tessera", "theirs", "later")
        (later,) = self.folder.glob("later/**/iter_0000004")
        self.assertEqual(native_tensors(later), native_tensors(self.folder / "ours/checkpoints/iter_0000004"))

    def test_walks_through_formats_and_layouts_give_every_byte_back(self):
        """TESSERA_WALKS says how many; TESSERA_WALK_SEED repeats one."""
        self.run_on(1, "start", "--set", "model_config.num_layers=4")
        (start,) = self.folder.glob("start/checkpoints/iter_0000002")
        expected = native_tensors(start)
        walks, given = int(os.environ.get("TESSERA_WALKS", 2)), os.environ.get("TESSERA_WALK_SEED")
        for _ in range(1 if given else walks):
            seed = int(given or random.SystemRandom().randrange(10**9))
            with self.subTest(seed=seed):
                self.walk(random.Random(seed), expected)

    def walk(self, draw, expected):
        program, folder, told = "tessera", "start", []
        for number in range(draw.choice([2, 3])):
            form = draw.choice(["tessera", "torch", "torch_dist", "torch_dist --for core_v0.17"])
            tensor, stages, distributed = draw.choice([1, 2, 4]), draw.choice([1, 2]), draw.choice(["false", "true"])
            target = f"walk{number}"
            shutil.rmtree(self.folder / target, ignore_errors=True)
            layout = ["--target-tensor-parallel-size", tensor, "--target-pipeline-parallel-size", stages] + sets(use_distributed_optimizer=distributed)
            for cut_before in "num_layer_list", "decoder_first_pipeline_num_layers", "num_layers_per_virtual_pipeline_stage":
                layout += ["--set", f"parallel_config.{cut_before}=null"]
            if stages == 2:
                layout += draw.choice([[], ["--num-layer-list", "1,3"], ["--num-layer-list", "3,1"], ["--num-layers-per-virtual-pipeline-stage", 1],
                                       ["--num-layer-list", "[1,1],[1,1]"], ["--set", "parallel_config.decoder_first_pipeline_num_layers=3"]])
            told.append(f"{program} -> {form} {tensor} {' '.join(map(str, layout))}")
            if form == "tessera" and program == "tessera":
                self.tessera("checkpoint", "reshard", folder, target, *layout)
            elif form == "tessera":
                self.tessera("checkpoint", "convert", "--from", program, "--to", "tessera", folder, target)
            else:
                self.tessera("checkpoint", "convert", "--from", program, "--to", "megatron", "--ckpt-format", *form.split(), folder, target, *layout)
            program, folder = "tessera" if form == "tessera" else "megatron", target
        if program != "tessera":
            shutil.rmtree(self.folder / "end", ignore_errors=True)
            self.tessera("checkpoint", "convert", "--from", program, "--to", "tessera", folder, "end")
            folder = "end"
        (last,) = self.folder.glob(f"{folder}/**/iter_0000002")
        self.assertEqual(native_tensors(last), expected, told)
        self.assertEqual(list(self.folder.glob("*.between")), [])

    def test_what_goes_through_other_formats_is_what_goes_directly(self):
        convert = ["checkpoint", "convert", "--from"]
        two = ["--target-tensor-parallel-size", 2]
        self.run_on(1, "start")
        self.tessera(*convert, "tessera", "--to", "megatron", "--ckpt-format", "torch_dist", "start", "dist", "--target-pipeline-parallel-size", 2)
        self.tessera(*convert, "megatron", "--to", "megatron", "--ckpt-format", "torch", "dist", "through", *two, "--target-pipeline-parallel-size", 1)
        self.tessera(*convert, "tessera", "--to", "megatron", "start", "directly", *two)
        files = sorted(path.relative_to(self.folder / "directly") for path in self.folder.glob("directly/iter_0000002/mp_rank*/*.pt"))
        self.assertEqual(len(files), 2)
        for path in files:
            self.assertEqual((self.folder / "through" / path).read_bytes(), (self.folder / "directly" / path).read_bytes(), path)
        told = self.tessera(*convert, "megatron", "--to", "tessera", "dist", "out", *two, code=2)
        self.assertIn("--target-... is for --to megatron, not --to tessera", told)
        self.write("other.between/file", "")
        told = self.tessera(*convert, "megatron", "--to", "megatron", "dist", "other", code=2)
        self.assertIn("other.between: is there already", told)

    def test_options_of_the_format_without_it_are_refused(self):
        convert = ["checkpoint", "convert", "--from", "tessera", "--to"]
        told = self.tessera(*convert, "hf", "--ckpt-format", "torch_dist", "run", "out", code=2)
        self.assertIn("--ckpt-format is for --to megatron, not --to hf; leave it out", told)
        told = self.tessera(*convert, "megatron", "--for", "core_v0.17", "run", "out", code=2)
        self.assertIn("--for is for --to megatron --ckpt-format torch_dist; leave it out", told)


if __name__ == "__main__":
    harness.main()
