"""What a run saves and loads by request: checkpoints without optimizer or seed, non-persistent ones, tensors that differ, parallel sizes of a
checkpoint, and progress.txt."""

import json
import pathlib
import re
import shutil

import harness
from harness import sets

FORMATS = "safetensors", "torch", "torch_dist"


class SavedParts(harness.InOwnFolder):
    def train(self, *more, run="run", code=0, **options):
        options = {"training_iters": 10, **options}
        return self.tessera("train", "tiny.yaml", *sets(output_dir=run, **options), *more, code=code)

    def checkpoint(self, iteration, form, run="run"):
        prefix = "checkpoints/network_" if form == "safetensors" else ""
        return self.folder / run / f"{prefix}iter_{iteration:07d}"

    def iterations(self, folder):
        return sorted(int(path.name[-7:]) for path in (self.folder / folder).glob("*iter_*") if re.search(r"iter_\d+$", path.name))

    def test_a_checkpoint_without_optimizer_state_continues_a_run_only_by_request(self):
        for form in FORMATS:
            with self.subTest(form):
                self.train(run="all" + form, ckpt_format=form, exit_interval=2, bf16="true")
                self.train(run=form, ckpt_format=form, exit_interval=2, no_save_optim="true", bf16="true")
                folder = self.checkpoint(2, form, form)
                whole, weights = (sum(path.stat().st_size for path in one.rglob("*") if path.is_file() and "blobs" not in path.parts)
                                  for one in (self.checkpoint(2, form, "all" + form), folder))
                self.assertLess(weights, whole / 2)  # neither moments nor, in formats of others, fp32 weights
                told = self.tessera("checkpoint", "inspect", folder, "--tensors")
                self.assertNotRegex(told, "exp_avg|fp32_param")
                self.tessera("checkpoint", "verify", folder)
                told = self.train(run=form, ckpt_format=form, bf16="true", code=2)
                self.assertRegex(told, r"was saved without optimizer state; give training_config.no_load_optim: true")
                told = self.train(run=form, ckpt_format=form, bf16="true", no_load_optim="true", exit_interval=4)
                self.assertRegex(told, r"resuming from \S*iter_0000002 after iteration 2")
                self.train(run="begun" + form, load_checkpoint=form, resume_training="false", bf16="true", exit_interval=1)

    def test_a_checkpoint_without_seed_continues_a_run_only_by_request(self):
        self.train(run="straight")
        for form in FORMATS:
            with self.subTest(form):
                self.train(run=form, ckpt_format=form, exit_interval=2, no_save_rng="true")
                blobs = self.checkpoint(2, form, form) / "blobs/progress.json"
                self.assertNotIn("seed", json.loads(blobs.read_text()))
                told = self.train(run=form, ckpt_format=form, code=2)
                self.assertRegex(told, r"iter_0000002: was saved without random seed .*; give training_config.no_load_rng: true")
                self.train(run=form, ckpt_format=form, no_load_rng="true")
                self.assertEqual(self.losses(form), self.losses("straight"))
                self.assertIn("seed", json.loads((self.checkpoint(10, form, form) / "blobs/progress.json").read_text()))

    def test_non_persistent_checkpoints_lie_between_the_others_and_the_newest_is_kept(self):
        self.train(run="straight")
        between = dict(save_interval=4, non_persistent_save_interval=3, non_persistent_ckpt_type="global")
        for form in FORMATS:
            for dest in None, "elsewhere/" + form:
                with self.subTest(form=form, folder=dest):
                    run = form + ("_elsewhere" if dest else "")
                    options = dict(between, run=run, ckpt_format=form, **({"non_persistent_global_ckpt_dir": dest} if dest else {}))
                    place = dest or run + "/non_persistent"
                    told = self.train(**options, exit_interval=9)
                    for iteration in 3, 6, 9:
                        self.assertIn(f"saved {place}/network_iter_000000{iteration}", told)
                    self.assertEqual(self.iterations(place), [9])
                    self.assertEqual(self.iterations(self.checkpoint(4, form, run).parent), [4, 8, 9])
                    listed = json.loads(self.tessera("checkpoint", "list", run, "--json"))["checkpoints"]
                    self.assertEqual([one["iteration"] for one in listed], [9, 8, 4] if dest else [9, 9, 8, 4])
                    shutil.rmtree(self.checkpoint(9, form, run))
                    told = self.train(**options)
                    self.assertIn(f"resuming from {place}/network_iter_0000009 after iteration 9", told)
                    self.assertEqual(self.losses(run), self.losses("straight"))

    def test_the_newer_of_both_kinds_is_loaded_and_a_damaged_one_is_set_aside(self):
        options = dict(save_interval=4, non_persistent_save_interval=3, non_persistent_ckpt_type="global")
        self.train(run="straight")
        self.train(**options, exit_interval=8)  # non-persistent: 6
        self.assertEqual(self.iterations("run/non_persistent"), [6])
        shutil.copytree(self.folder / "run", self.folder / "other")
        told = self.train(**options)
        self.assertIn("resuming from run/checkpoints/network_iter_0000008 after iteration 8", told)
        shutil.rmtree(self.checkpoint(8, "safetensors", "other"))
        weights = self.folder / "other/non_persistent/network_iter_0000006/model_00000.safetensors"
        data = bytearray(weights.read_bytes())
        data[len(data) // 2] ^= 1
        weights.write_bytes(data)
        told = self.train(**options, run="other")
        self.assertRegex(told, r"checkpoint other/non_persistent/network_iter_0000006 is damaged: .*; set aside as")
        self.assertIn("resuming from other/checkpoints/network_iter_0000004 after iteration 4", told)
        for run in "run", "other":
            self.assertEqual(self.losses(run), self.losses("straight"))

    def test_non_persistent_checkpoints_of_another_run_are_not_used(self):
        options = dict(non_persistent_save_interval=3, non_persistent_ckpt_type="global")
        shared = dict(options, non_persistent_global_ckpt_dir="shared")
        self.train(**shared, run="one", exit_interval=5)
        told = self.train(**shared, run="two", exit_interval=2)
        self.assertNotIn("resuming", told)
        self.assertEqual(len(self.losses("two")), 2)
        # A new run in the same folder sets those of the earlier one aside.
        self.train(**options, exit_interval=4)
        self.train(**options, resume_training="false", exit_interval=2)
        self.assertEqual(self.iterations("run.1/non_persistent"), [3])
        self.assertFalse((self.folder / "run/non_persistent").exists())
        told = self.train(non_persistent_save_interval=3, code=2)
        self.assertIn("non_persistent_save_interval is given, but non_persistent_ckpt_type is null", told)
        told = self.train(non_persistent_save_interval=3, non_persistent_ckpt_type="local", code=2)
        self.assertIn("non_persistent_ckpt_type is local, but non_persistent_local_ckpt_dir is null", told)

    def test_the_newest_local_one_is_kept_and_loaded_on_one_host_too(self):
        options = dict(save_interval=4, non_persistent_save_interval=3, non_persistent_ckpt_type="local", non_persistent_local_ckpt_dir="here/disk")
        self.train(run="straight")
        self.train(**options, exit_interval=7)
        self.assertEqual(self.iterations("here/disk"), [6])
        shutil.rmtree(self.checkpoint(7, "safetensors"))
        told = self.train(**options)
        self.assertIn("resuming from here/disk/network_iter_0000006 after iteration 6", told)
        self.assertEqual(self.losses("run"), self.losses("straight"))

    def test_a_conversion_by_the_flags_of_megatron_trains_nothing_and_changes_nothing(self):
        self.train(run="straight")
        self.train(exit_interval=4)
        before = {path: path.read_bytes() for path in (self.folder / "run").rglob("*") if path.is_file()}
        for form in FORMATS:
            with self.subTest(form):
                options = dict(load_checkpoint="run", ckpt_convert_format=form, ckpt_convert_save="converted")
                told = self.train(run="unused", **options)
                place = "converted/safetensors/checkpoints/network_" if form == "safetensors" else f"converted/{form}/"
                self.assertIn(f"saved {place}iter_0000004 from run; nothing was trained", told)
                self.assertFalse((self.folder / "unused").exists())
                self.train(run="from_" + form, load_checkpoint="converted/" + form, ckpt_format=form)
                self.assertEqual(self.losses("from_" + form), self.losses("straight")[4:])
                told = self.train(run="unused", code=2, **options)
                self.assertIn(f"{place}iter_0000004 is there already", told)
        self.assertEqual(before, {path: path.read_bytes() for path in (self.folder / "run").rglob("*") if path.is_file()})
        options = dict(ckpt_convert_format="torch", ckpt_convert_save="other")
        self.assertIn("no checkpoint named", self.train(load_checkpoint="nothing", code=2, **options))
        self.assertIn("load_checkpoint is null", self.train(code=2, **options))
        self.assertIn("a run can save in", self.train(load_checkpoint="run", code=2, **dict(options, ckpt_convert_format="zarr")))
        self.assertFalse((self.folder / "other").exists())
        elsewhere = dict(non_persistent_save_interval=3, non_persistent_ckpt_type="global", non_persistent_global_ckpt_dir="elsewhere")
        self.train(run="with_both", exit_interval=4, **elsewhere)
        options = dict(load_checkpoint="with_both", ckpt_convert_format="torch_dist", ckpt_convert_save="of_both")
        self.assertIn("nothing was trained", self.train(run="unused", **options, **elsewhere))

    def test_a_run_begins_at_another_iteration_than_its_checkpoint(self):
        self.train(run="first", exit_interval=4)
        options = dict(load_checkpoint="first", override_ckpt_iteration=2)
        told = self.train(**options, exit_interval=6)
        self.assertIn("the run begins after iteration 2 and 8 samples, instead of 4 and 16", told)
        steps = self.metrics("run")
        self.assertEqual([step["iteration"] for step in steps if "loss" in step], [3, 4, 5, 6])
        self.assertEqual([step["consumed_samples"] for step in steps if "loss" in step], [12, 16, 20, 24])
        self.train(run="continued", load_checkpoint="first")
        rate = lambda run: next(step["learning_rate"] for step in self.metrics(run) if "loss" in step)
        self.assertEqual(rate("run"), rate("continued"))  # the schedule is that of the checkpoint
        self.assertIn("resuming from run/checkpoints/network_iter_0000006 after iteration 6", self.train(**options))
        self.assertIn("but load_checkpoint is output_dir", self.train(load_checkpoint="run", override_ckpt_iteration=2, code=2))

    def test_main_weights_without_optimizer_state_are_rounded_only_by_request(self):
        self.train(run="first", exit_interval=4)
        still = ["--set", "optimizer_config.learning_rate=0", "--set", "optimizer_config.min_lr=0", "--set",
                 "optimizer_config.override_opt_param_scheduler=true"]
        rounded = {}
        for word in "null", "true", "false":
            self.train(*still, run="of_" + word, load_checkpoint="first", bf16="true", no_load_optim="true", load_main_params_from_ckpt=word, exit_interval=5)
            data = (self.checkpoint(5, "safetensors", "of_" + word) / "model_00000.safetensors").read_bytes()
            size = int.from_bytes(data[:8], "little")
            elements = data[8 + size:]
            rounded[word] = all(elements[at:at + 2] == b"\0\0" for at in range(0, len(elements), 4))
        self.assertEqual(rounded, {"null": False, "true": False, "false": True})
        self.assertIn("but no_load_optim is false", self.train(load_main_params_from_ckpt="true", code=2))

    def test_async_save_writes_the_same_non_persistent_checkpoints(self):
        options = dict(non_persistent_save_interval=3, non_persistent_ckpt_type="global", exit_interval=4)
        self.train(**options, run="one")
        self.train(**options, run="two", async_save="true")
        one, two = ({str(path.relative_to(self.folder / run)): harness.without_run_id(path)
                     for path in (self.folder / run / "non_persistent").rglob("*")
                     if path.is_file() and path.name not in harness.WORDS_OF_THE_COMMAND} for run in ("one", "two"))
        self.assertGreater(len(one), 2)
        self.assertEqual(one, two)

    def test_tensors_that_only_one_side_has(self):
        for form in FORMATS:
            self.train(run=form, ckpt_format=form, exit_interval=2)  # two layers
        for form in FORMATS:
            for word, lacks, left in (("raise_all", 2, 2), ("raise_unexpected", 2, 0), ("assume_ok_unexpected", 2, 0), ("log_unexpected", 0, 0),
                                      ("return_unexpected", 0, 0), ("log_all", 0, 0), ("return_all", 0, 0), ("ignore_all", 0, 0)):
                if form != "safetensors" and word not in ("raise_unexpected", "log_all"):
                    continue
                with self.subTest(form=form, word=word):
                    more = dict(load_checkpoint=form, dist_ckpt_strictness=word, exit_interval=3)
                    told = self.train(run="more" + form + word, num_layers=3, code=lacks, **more)
                    self.assertEqual("12 tensors keep their initial values, which are not in" in told, lacks == 0 and word != "ignore_all", told)
                    told = self.train(run="less" + form + word, num_layers=1, code=left, **more)
                    self.assertEqual("12 tensors are ignored, which the model does not have, in" in told, word in ("log_all", "return_all"), told)
        # Of weights alone, too.
        self.train(run="weights", num_layers=3, load_checkpoint="torch", resume_training="false", dist_ckpt_strictness="log_all", exit_interval=1)
        told = self.train(run="nothing", load_checkpoint="torch", resume_training="false", num_layers=3, code=2)
        self.assertIn("decoder.layers.2", told)

    def test_frozen_tensors_that_a_checkpoint_lacks_keep_their_initial_values(self):
        top = "decoder.layers.2.*"
        freezes = ["--set", f"training_config.frozen_parameters=[{top}]", "--set", "training_config.allow_changes=[training_config.frozen_parameters]"]
        self.train(*freezes, run="fresh", num_layers=3, exit_interval=1)
        initial = self.tensors(self.checkpoint(1, "safetensors", "fresh"), top)
        self.assertEqual(len(initial), 12)
        for form in FORMATS:
            self.train(run=form, ckpt_format=form, exit_interval=2)  # two layers
            for resumes in "auto", "false":
                with self.subTest(form=form, resumes=resumes):
                    options = dict(load_checkpoint=form, num_layers=3, resume_training=resumes, exit_interval=3)
                    told = self.train(*freezes, run="strict", code=2, **options)
                    self.assertIn("decoder.layers.2.input_layernorm.weight", told)
                    run = f"lacks_{form}_{resumes}"
                    told = self.train(*freezes, run=run, dist_ckpt_strictness="log_all", **options)
                    self.assertEqual(told.count("12 tensors keep their initial values, which are not in"), 1, told)
                    saved = self.checkpoint(3, "safetensors", run)
                    self.assertEqual(self.tensors(saved, top), initial)
                    self.assertNotEqual(self.tensors(saved, "decoder.layers.0"), self.tensors(self.checkpoint(1, "safetensors", "fresh"), "decoder.layers.0"))
                    # A frozen layer that only the checkpoint has.
                    options["num_layers"] = 1
                    told = self.train("--set", "training_config.frozen_parameters=[embedding.*]", *freezes[2:], run="less" + run,
                                      dist_ckpt_strictness="raise_unexpected", **options)
                    self.assertEqual(self.tensors(self.checkpoint(3, "safetensors", "less" + run), "embedding"),
                                     self.tensors(self.folder / "safetensors/checkpoints/network_iter_0000002", "embedding"))

    def test_progress_is_written_as_megatron_writes_it(self):
        self.train(log_progress="true", save_interval=2, exit_interval=5)
        self.train(log_progress="true", save_interval=4)
        lines = [line.split("\t") for line in (self.folder / "run/progress.txt").read_text().splitlines()]
        for line in lines:
            self.assertRegex(line[0], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
            self.assertEqual(line[2], "# GPUs: 1")
        self.assertEqual([line[3] + "".join(line[4:5]) for line in lines],
                         ["Starting job", *(f"Saved checkpointIteration: {i}" for i in (2, 4, 5)), "Starting job",
                          *(f"Saved checkpointIteration: {i}" for i in (8, 10))])
        flops = [float(line[7].split(": ")[1]) for line in lines if len(line) > 7]
        for iteration, done in zip((2, 4, 5, 8, 10), flops):
            self.assertAlmostEqual(done / flops[0], iteration / 2, delta=0.02 * iteration)
        self.assertEqual(lines[1][8], "Tokens (in billions): 0.00")

    def test_parallel_sizes_of_the_checkpoint(self):
        tsrun = pathlib.Path(harness.program()).parent / "tsrun"
        for form in "safetensors", "torch_dist":
            with self.subTest(form):
                shutil.rmtree(self.folder / "first", ignore_errors=True)
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                two = "--set", "parallel_config.tensor_model_parallel_size=2"
                self.command(tsrun, "--worker_num", 2, harness.program(), "train", "tiny.yaml",
                             *sets(output_dir="first", training_iters=10, ckpt_format=form, exit_interval=2), *two)
                if form == "torch_dist":
                    shutil.rmtree(self.folder / "first/iter_0000002/blobs")  # what Megatron-LM saves
                asks = sets(load_checkpoint="first", use_checkpoint_args="true", use_mp_args_from_checkpoint_args="true", exit_interval=3,
                            training_iters=10)
                self.command(tsrun, "--worker_num", 2, harness.program(), "train", "tiny.yaml", *asks)
                self.assertIn("options of the model and parallel sizes are those of the checkpoint in first",
                              (self.folder / "run/tessera.log").read_text() + (self.folder / "run/resolved.yaml").read_text())
                self.assertRegex((self.folder / "run/resolved.yaml").read_text(), r"(?m)^  tensor_model_parallel_size: 2")


if __name__ == "__main__":
    harness.main()
