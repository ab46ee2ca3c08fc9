"""From where a run continues, if its folder has checkpoints of several formats, damaged or unfinished ones, or a tracker file that is wrong."""

import json
import pathlib
import re
import shutil

import harness
from harness import sets

TORCH, DIST = "torch", "torch_dist"
HEAVIEST = {TORCH: "mp_rank_00/model_optim_rng.pt", DIST: "__0_0.distcp"}


class ResumeFormats(harness.InOwnFolder):
    def train(self, *more, run="run", code=0, **options):
        return self.tessera("train", "tiny.yaml", *sets(output_dir=run, training_iters=8, **options), *more, code=code)

    def folder_of(self, iteration, run="run"):
        return self.folder / run / f"iter_{iteration:07d}"

    def damage(self, form, iteration, run="run"):
        file = self.folder_of(iteration, run) / HEAVIEST[form]
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x10
        file.write_bytes(data)

    def assert_same_losses(self, one, other):
        self.assertEqual(self.losses(one), self.losses(other))
        self.assertEqual(len(self.losses(one)), 8)

    def test_the_newest_of_any_format_continues_the_run(self):
        self.train(run="straight")
        ids = set()
        for stop, form in (2, "safetensors"), (4, DIST), (6, TORCH), (8, "safetensors"):
            told = self.train("--verbose", exit_interval=stop, ckpt_format=form)
            ids.add(json.loads((self.folder / "run/run.json").read_text())["run"])
            if stop > 2:
                self.assertRegex(told, rf"iter_000000{stop - 2} is of format \w+; the run saves in {form} \(ckpt_format\)")
        self.assert_same_losses("straight", "run")
        self.assertEqual(len(ids), 1)
        for iteration in 4, 6:
            self.assertIn(json.loads((self.folder_of(iteration) / "blobs/progress.json").read_text())["run"], ids)

    def test_a_damaged_newest_is_set_aside_and_the_one_before_is_used(self):
        self.train(run="straight")
        for form in TORCH, DIST:
            with self.subTest(form):
                self.train(run=form, ckpt_format=form, save_interval=2, exit_interval=6)
                self.damage(form, 6, form)
                told = self.train(run=form, ckpt_format=form)
                self.assertRegex(told, rf"checkpoint {form}/iter_0000006 is damaged: .*CRC.*; set aside as {form}/iter_0000006_damaged")
                self.assertIn("because of the damaged checkpoint, 2 steps are repeated", told)
                self.assertIn(f"resuming from {form}/iter_0000004 after iteration 4", told)
                self.assertTrue((self.folder / form / "iter_0000006_damaged/why_damaged.txt").is_file())
                self.assert_same_losses("straight", form)

    def test_one_that_is_found_damaged_while_it_is_read_is_set_aside_too(self):
        """With crc_check false nothing is verified before it is read."""
        self.train(run="straight")
        for form in TORCH, DIST:
            with self.subTest(form):
                self.train(run=form, ckpt_format=form, save_interval=2, exit_interval=6)
                self.damage(form, 6, form)
                told = self.train(run=form, ckpt_format=form, crc_check="false")
                self.assertRegex(told, rf"checkpoint {form}/iter_0000006 is damaged: .*; set aside as {form}/iter_0000006_damaged")
                self.assertIn(f"resuming from {form}/iter_0000004 after iteration 4", told)
                self.assert_same_losses("straight", form)

    def test_one_of_another_program_that_is_found_damaged_while_it_is_read_stays(self):
        form = DIST
        self.train(ckpt_format=form, save_interval=2, exit_interval=4)
        for folder in self.folder.glob("run/iter_*"):
            shutil.rmtree(folder / "blobs")
        self.damage(form, 4)
        for check in "false", "true":
            told = self.train("--verbose", run="run", ckpt_format=form, crc_check=check, exit_interval=3, keep_checkpoint_max=1)
            self.assertRegex(told, r"checkpoint run/iter_0000004 cannot be read: .*distcp")
            self.assertIn("because of the damaged checkpoint, 2 steps are repeated", told)
            self.assertIn("resuming from run/iter_0000002 after iteration 2", told)
            shutil.rmtree(self.folder_of(3))
        shutil.rmtree(self.folder_of(2))
        for check in "false", "true":
            self.assertRegex(self.train(ckpt_format=form, crc_check=check, code=2), r"iter_0000004.*distcp")
        self.assertEqual([folder.name for folder in self.folder.glob("run/iter_*")], ["iter_0000004"])

    def test_a_tracker_that_is_missing_or_wrong_is_named_and_the_newest_is_used(self):
        form = DIST
        self.train(ckpt_format=form, save_interval=2, exit_interval=6)
        for words, told in (None, "is missing; iter_0000006 is taken"), ("many", "names no iteration; iter_0000006 is taken"), \
                ("9", "names iter_0000009, which is no whole checkpoint there; iter_0000006 is taken"), \
                ("2", "names iter_0000002; iter_0000006 is taken"):
            with self.subTest(words):
                shutil.copytree(self.folder / "run", self.folder / "again")
                tracker = self.folder / "again/latest_checkpointed_iteration.txt"
                tracker.unlink() if words is None else tracker.write_text(words)
                self.assertIn(told, self.train(run="again", ckpt_format=form))
                self.assertEqual(tracker.read_text(), "8")
                self.assertEqual(len(self.losses("again")), 8)
                shutil.rmtree(self.folder / "again")

    def test_load_takes_what_the_tracker_names_or_the_newest(self):
        for form in TORCH, DIST:
            self.train(run=form, ckpt_format=form, save_interval=2, exit_interval=6)
        tracker = self.folder / DIST / "latest_checkpointed_iteration.txt"
        for words, told, last in (None, "is missing; iter_0000006 is taken", 6), ("9", "no whole checkpoint there; iter_0000006 is taken", 6), \
                ("4", "names iter_0000004; iter_0000004 is taken, although iter_0000006 is newer", 4):
            with self.subTest(words):
                tracker.unlink(missing_ok=True) if words is None else tracker.write_text(words)
                heard = self.train(run=f"from{words}", load_checkpoint=DIST)
                self.assertIn(told, heard)
                self.assertIn(f"resuming from {DIST}/iter_000000{last} after iteration {last}", heard)
        # One that cannot be read is named, and stays.
        file = self.folder_of(6, TORCH) / HEAVIEST[TORCH]
        file.write_bytes(file.read_bytes()[:1000])
        heard = self.train(run="before", load_checkpoint=TORCH)
        self.assertRegex(heard, r"checkpoint torch/iter_0000006 cannot be read: .*as an archive")
        self.assertIn("resuming from torch/iter_0000004 after iteration 4", heard)
        self.assertTrue(self.folder_of(6, TORCH).is_dir())

    def test_an_unfinished_save_is_no_checkpoint(self):
        for form, mark in (TORCH, HEAVIEST[TORCH]), (DIST, "metadata.json"), (DIST, ".metadata"):
            with self.subTest(mark):
                run = form + str(len(mark))
                self.train(run=run, ckpt_format=form, save_interval=2, exit_interval=4)
                (self.folder_of(4, run) / mark).unlink()
                told = self.train(run=run, ckpt_format=form, save_interval=2)
                self.assertRegex(told, rf"ignored {run}/iter_0000004, whose save did not come to its end: \S+ has no {mark.split('/')[-1]}")
                self.assertIn(f"resuming from {run}/iter_0000002 after iteration 2", told)
                self.assertEqual(len(self.losses(run)), 8)
                self.tessera("checkpoint", "verify", f"{run}/iter_0000004")  # saved again in its place

    def test_what_another_program_saved_is_never_renamed_or_begun_anew(self):
        self.train(ckpt_format=DIST, save_interval=2, exit_interval=4)
        for folder in self.folder.glob("run/iter_*"):
            shutil.rmtree(folder / "blobs")
        common = self.folder_of(4) / "common.pt"
        common.write_bytes(common.read_bytes()[:100])
        told = self.train(ckpt_format=DIST, exit_interval=3)
        self.assertRegex(told, r"checkpoint run/iter_0000004 cannot be read: .*common.pt")
        self.assertIn("resuming from run/iter_0000002 after iteration 2", told)
        self.assertTrue(self.folder_of(4).is_dir())
        for iteration in 2, 3:
            shutil.rmtree(self.folder_of(iteration))
        before = sorted(self.folder.glob("run/*"))
        told = self.train(ckpt_format=DIST, code=2)
        self.assertRegex(told, r"iter_0000004.*common.pt")
        self.assertEqual(sorted(self.folder.glob("run/*")), before)
        self.assertEqual(list(self.folder.glob("run.*")), [])

    def test_what_another_program_saved_is_kept_when_the_run_saves_the_same_iteration(self):
        for form in TORCH, DIST:
            with self.subTest(form):
                self.train(run=form, ckpt_format=form, save_interval=2, exit_interval=4)
                for folder in self.folder.glob(form + "/iter_*"):
                    shutil.rmtree(folder / "blobs")
                file = self.folder_of(4, form) / {TORCH: HEAVIEST[TORCH], DIST: "common.pt"}[form]
                file.write_bytes(file.read_bytes()[:100])
                if form == DIST:  # and one whose save did not come to its end, which is replaced
                    shutil.copytree(self.folder_of(2, form), self.folder_of(6, form))
                    (self.folder_of(6, form) / "metadata.json").unlink()
                told = self.train(run=form, ckpt_format=form, save_interval=2)
                self.assertIn(f"resuming from {form}/iter_0000002 after iteration 2", told)
                kept = self.folder / form / "iter_0000004_of_another_program"
                self.assertEqual((kept / file.relative_to(self.folder_of(4, form))).stat().st_size, 100)
                self.assertEqual(list((self.folder / form).glob("*_of_another_program")), [kept])
                self.assertIn("of another program", self.tessera("checkpoint", "list", form))
                self.train(run=form, ckpt_format=form, ckpt_step=4, exit_interval=5)

    def test_weights_alone_say_which_option_begins_with_them(self):
        self.train(exit_interval=2)
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "run", "hf")
        self.tessera("checkpoint", "convert", "--from", "hf", "--to", "tessera", "hf", "weights")
        for form in TORCH, DIST:
            with self.subTest(form):
                self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "megatron", "--ckpt-format", form, "weights", form)
                told = self.train(run="new", load_checkpoint=form, code=2)
                self.assertRegex(told, r"was saved without optimizer state; give training_config.no_load_optim: true .* or resume_training: false")
                self.train(run="weights_of_" + form, load_checkpoint=form, resume_training="false", exit_interval=1)
                # Without an iteration it is what Megatron-LM's converters write.
                (saved,) = (self.folder / form).glob("iter_*")
                saved.rename(self.folder / form / "release")
                (self.folder / form / "latest_checkpointed_iteration.txt").write_text("release")
                told = self.train(run="new", load_checkpoint=form, exit_interval=1)
                self.assertIn(f"starting from the weights of {form}/release", told)
                self.assertEqual(self.losses("new"), self.losses("weights_of_" + form))
                shutil.rmtree(self.folder / "new")

    def kept(self, run="run"):
        """Of every format."""
        return sorted(int(path.name[-7:]) for root in ("", "checkpoints/") for path in (self.folder / run).glob(root + "*iter_*")
                      if re.search(r"iter_\d+$", path.name))

    def test_old_checkpoints_of_the_run_are_deleted_in_every_format(self):
        for form in "safetensors", TORCH, DIST:
            with self.subTest(form):
                self.train(run=form, ckpt_format=form, save_interval=1, keep_checkpoint_max=2)
                self.assertEqual(self.kept(form), [7, 8])
                self.train(run=form + "3", ckpt_format=form, save_interval=1, keep_checkpoint_max=2, save_retain_interval=3)
                self.assertEqual(self.kept(form + "3"), [3, 6, 7, 8])
        # Those of an earlier format, too; but not what others saved, or links, or the one that was loaded.
        self.train(save_interval=1, exit_interval=3)
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "megatron", "run", "theirs")
        shutil.copytree(self.folder / "theirs/iter_0000003", self.folder_of(1))
        shutil.rmtree(self.folder_of(1) / "blobs")
        first = self.folder / "run/checkpoints/network_iter_0000001"
        first.rename(self.folder / "elsewhere")
        first.symlink_to(self.folder / "elsewhere")
        self.train(ckpt_format=DIST, save_interval=1, keep_checkpoint_max=2, load_checkpoint="run/checkpoints/network_iter_0000002")
        self.assertEqual(self.kept(), [1, 1, 2, 7, 8])

    def test_a_step_to_continue_from(self):
        self.train(run="straight")
        for form in "safetensors", DIST:
            with self.subTest(form):
                self.train(run=form, ckpt_format=form, save_interval=2)
                told = self.train(run=form, ckpt_format=form, ckpt_step=4, code=0)
                self.assertRegex(told, rf"resuming from {form}/\S*iter_0000004 after iteration 4")
                self.assertRegex(told, rf"set aside {form}/\S*iter_0000008 as ")
                self.assert_same_losses("straight", form)
                told = self.train(run=form, ckpt_format=form, ckpt_step=3, code=2)
                self.assertIn(f"training_config.ckpt_step is 3, but {form} has no checkpoint of that iteration; it has those of 8, 4, 2", told)
                told = self.train(run="from_" + form, load_checkpoint=form, ckpt_step=2)
                self.assertRegex(told, rf"resuming from {form}/\S*iter_0000002 after iteration 2")
                told = self.train(run="nothing", load_checkpoint=form, ckpt_step=3, code=2)
                self.assertIn(f"but {form} has no checkpoint of that iteration; it has those of", told)
                file = next(path for name in ("model_*.safetensors", "*.distcp") for path in (self.folder / form).rglob(f"*iter_0000002/{name}"))
                data = bytearray(file.read_bytes())
                data[len(data) // 2] ^= 0x10
                file.write_bytes(data)
                told = self.train(run=form, ckpt_format=form, ckpt_step=2, code=2)
                self.assertRegex(told, r"ckpt_step is 2, but checkpoint \S*iter_0000002 is damaged: .*; set aside as \S+; give another iteration, or leave it out")
                self.assertEqual(list(self.folder.glob(form + ".*")), [])

    def test_list_tells_what_is_in_a_folder(self):
        self.train(exit_interval=2)
        self.train(exit_interval=4, ckpt_format=TORCH)
        self.train(exit_interval=6, ckpt_format=DIST)
        (self.folder_of(6) / "metadata.json").unlink()
        (self.folder_of(4) / HEAVIEST[TORCH]).write_bytes(b"no archive")
        (self.folder / "run/iter_0000007_tmp").mkdir()
        told = json.loads(self.tessera("checkpoint", "list", "run", "--json"))
        run = json.loads((self.folder / "run/run.json").read_text())["run"]
        self.assertEqual(told["run"], run)
        self.assertEqual([(c["iteration"], c["format"], c["state"], c["run"]) for c in told["checkpoints"]],
                         [(7, "", "unfinished", ""), (6, DIST, "unfinished", run), (4, TORCH, "damaged", run), (2, "safetensors", "whole", run)])
        size = sum(path.stat().st_size for path in self.checkpoints()[0].rglob("*") if path.is_file())
        self.assertEqual(told["checkpoints"][3]["bytes"], size)
        words = self.tessera("checkpoint", "list", "run")
        self.assertRegex(words, r"(?m)^ +6  torch_dist +[\d.]+ kB  \d+ s +unfinished +run/iter_0000006: it has no metadata.json$")
        self.assertRegex(words, r"(?m)^ +2  safetensors +[\d.]+ kB  \d+ s +whole +run/checkpoints/network_iter_0000002$")
        self.assertIn("holds no checkpoint", self.tessera("checkpoint", "list", "cache", code=2))

    def test_a_new_run_begins_with_pretrained_weights_and_then_continues(self):
        self.train(run="first", exit_interval=2)
        self.train(run="expected", load_checkpoint="first", resume_training="false", exit_interval=6)
        words = dict(pretrained_checkpoint="first", load_checkpoint="run")
        told = self.train(exit_interval=3, **words)
        self.assertIn("starting from the weights of first/checkpoints/network_iter_0000002", told)
        told = self.train(exit_interval=6, **words)
        self.assertIn("resuming from run/checkpoints/network_iter_0000003 after iteration 3", told)
        self.assertEqual(self.losses(), self.losses("expected"))
        self.train(run="alone", pretrained_checkpoint="first", exit_interval=6)
        self.assertEqual(self.losses("alone"), self.losses("expected"))
        told = self.train(run="nothing", pretrained_checkpoint="cache", code=2)
        self.assertIn("training_config.pretrained_checkpoint: cache holds no checkpoint", told)

    def test_options_of_the_model_from_the_checkpoint(self):
        self.train(run="first", ckpt_format=DIST, exit_interval=2)
        shutil.rmtree(self.folder_of(2, "first") / "blobs")  # what Megatron-LM saves
        self.train(run="expected", load_checkpoint="first")
        # Sizes are not given, the dropout is another one.
        self.recipe(hidden_dropout_rate=0.5, **dict.fromkeys(("num_layers", "hidden_size", "num_attention_heads", "seq_length", "vocab_size")))
        told = self.train("--set", "training_config.use_checkpoint_args=true", load_checkpoint="first")
        self.assertIn("options of the model are those of the checkpoint in first (use_checkpoint_args)", told)
        self.assertEqual(self.losses(), self.losses("expected"))
        told = self.train("--set", "training_config.use_checkpoint_args=True", run="other", load="first")  # other spellings
        self.assertIn("options of the model are those of the checkpoint in first (use_checkpoint_args)", told)
        self.assertEqual(self.losses("other"), self.losses("expected"))
        told = self.train("--set", "training_config.use_checkpoint_args=true", run="no", code=2)
        self.assertIn("use_checkpoint_args is true, but load_checkpoint is null", told)

    def test_a_run_goes_back_to_a_checkpoint_of_any_format(self):
        self.recipe(eval_interval=0, dataset_config__global_batch_size=8)
        tsrun = pathlib.Path(harness.program()).parent / "tsrun"
        for form in "safetensors", TORCH, DIST:
            self.command(tsrun, "--worker_num", 2, harness.program(), "train", "tiny.yaml",
                         *sets(output_dir=form, training_iters=12, save_interval=5, ckpt_format=form), "--set", "resilience_config.bad_step=skip",
                         "--set", "resilience_config.inject_fault=[1:8:reduce:nan!, 1:9:reduce:nan!, 1:10:reduce:nan!]")
            told = (self.folder / form / "tessera.log").read_text()
            self.assertIn("iterations 8 to 10 are skipped, from the newest checkpoint before them on", told)
            self.assertRegex(told, rf"resuming from {form}/\S*iter_0000005 after iteration 5")
            self.assertEqual(self.metrics(form), self.metrics("safetensors"))
        self.assertEqual(len(self.losses(TORCH)), 9)


if __name__ == "__main__":
    harness.main()
