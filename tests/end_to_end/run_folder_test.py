"""Nothing a run wrote is lost: whatever is started in a used run folder, and wherever links in it lead."""

import json
import os
import shutil
import subprocess

import harness
from harness import program, sets

ANEW = ("--set", "training_config.resume_training=false")


class RunFolder(harness.InOwnFolder):
    def train(self, *more, code=0, environment=None, **changes):
        return self.tessera("train", "tiny.yaml", *sets(**changes), *more, code=code, environment=environment)

    def content(self, folder="run", without=("in_use",)):
        """Relative name -> bytes, or the target of a link."""
        root = self.folder / folder
        return {str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes()
                for path in root.rglob("*") if (path.is_symlink() or path.is_file()) and path.name not in without}

    def names(self, run="run"):
        return [path.name for path in self.checkpoints(run)]

    def set_aside(self):
        return sorted(path.name for path in self.folder.glob("run.*"))

    def killed_after_some_steps(self, *more, environment=None, **changes):
        """A run that was killed before its first checkpoint."""
        changes = {"training_iters": 1000000, "eval_interval": 1000000, **changes}
        process = self.start("train", "tiny.yaml", *sets(**changes), *more, environment=environment)
        self.wait_until(lambda: self.steps_logged() >= 3, "3 steps")
        process.kill()
        process.communicate()


class NamedFolder(RunFolder):
    def test_a_folder_that_cannot_be_reached_is_told_as_the_option(self):
        os.symlink("loop", self.folder / "loop")
        for name in ("x" * 300, "loop/run", "tiny.yaml/run"):
            told = self.train(training_iters=1, output_dir=name, code=2)
            self.assertRegex(told, r"training_config.output_dir, the run folder: choose one that can be written")
            self.assertNotIn("filesystem error", told)
            self.assertEqual(len(told.splitlines()), 1, told)

    def test_a_leading_tilde_is_the_home_folder_in_recipes_and_behind_options(self):
        home = {"HOME": str(self.folder / "home")}
        self.recipe(output_dir="~/run", training_iters=1)
        self.tessera("train", "tiny.yaml", environment=home)
        self.assertEqual(len(self.checkpoints("home/run")), 1)
        self.tessera("train", "tiny.yaml", "--set", "training_config.output_dir=~/other", environment=home)
        self.assertEqual(len(self.checkpoints("home/other")), 1)
        self.write("home/there.yaml", (self.folder / "tiny.yaml").read_text())
        self.tessera("check", "~/there.yaml", environment=home)
        self.tessera("data", "preprocess", "--input=~/no.jsonl", "--output-prefix=x", "--tokenizer-type=NullTokenizer", environment=home, code=2)
        self.assertFalse((self.folder / "~").exists())


class UsedFolder(RunFolder):
    def test_a_new_run_sets_the_old_one_aside_whole(self):
        self.train(training_iters=20, save_interval=5, tensorboard="true")
        self.write("run/notes.txt", "of the user")
        before = self.content()
        told = self.train(*ANEW, training_iters=8, save_interval=2, keep_checkpoint_max=2)
        self.assertEqual([line for line in told.splitlines() if "aside" in line],
                         [f"the earlier run in run was set aside as {self.folder}/run.1"])
        self.assertEqual(self.content("run.1"), {name: data for name, data in before.items() if name != "notes.txt"})
        self.assertEqual((self.folder / "run/notes.txt").read_text(), "of the user")
        self.assertEqual(self.names(), ["network_iter_0000006", "network_iter_0000008"])
        self.assertEqual((self.folder / "run/checkpoints/network_latest_checkpointed_iteration.txt").read_text(), "8")
        self.assertIn("done: 8 iterations, run/checkpoints/network_iter_0000008", told)
        self.assertRegex(self.tessera("checkpoint", "inspect", "run"), r"iteration +8\n")
        self.assertEqual(len(self.losses()), 8)
        self.train(*ANEW, training_iters=3)
        self.assertEqual(self.set_aside(), ["run.1", "run.2"])
        self.assertEqual(len(self.losses("run.2")), 8)

    def test_a_checkpoint_of_another_run_is_not_resumed_replaced_or_pruned(self):
        length = dict(save_interval=10, keep_checkpoint_max=2)
        self.train(**length, training_iters=40, output_dir="other", seed=8)
        self.train(**length, training_iters=30, exit_interval=20)
        for name in ("network_iter_0000030", "network_iter_0000040"):
            shutil.copytree(self.folder / "other/checkpoints" / name, self.folder / "run/checkpoints" / name)
        told = self.train(**length, training_iters=30)
        self.assertIn("ignored 2 checkpoints of another run", told)
        self.assertIn("run/checkpoints/network_iter_0000020 after iteration 20", told)
        run = json.loads((self.folder / "other/run.json").read_text())["run"]
        kept = {"network_iter_0000030": f"network_iter_0000030_of_run_{run}", "network_iter_0000040": "network_iter_0000040"}
        for theirs, here in kept.items():
            self.assertEqual(self.content(f"other/checkpoints/{theirs}"), self.content(f"run/checkpoints/{here}"))
        self.assertEqual(self.names(), ["network_iter_0000020", "network_iter_0000030", "network_iter_0000040"])
        self.train(**length, training_iters=30, output_dir="straight")
        self.assertEqual(self.metrics("straight"), self.metrics())

    def test_a_checkpoint_of_another_run_is_kept_in_megatrons_formats_too(self):
        for form in "torch", "torch_dist":
            with self.subTest(form):
                options, other = dict(ckpt_format=form, training_iters=6, save_interval=2), f"other_{form}"
                self.train(**options, output_dir=other, seed=8)
                self.train(**options, output_dir=form, exit_interval=4)
                shutil.copytree(self.folder / other / "iter_0000006", self.folder / form / "iter_0000006")
                self.assertIn("ignored 1 checkpoint of another run", self.train(**options, output_dir=form))
                run = json.loads((self.folder / other / "run.json").read_text())["run"]
                self.assertEqual(self.content(f"{form}/iter_0000006_of_run_{run}"), self.content(f"{other}/iter_0000006"))
                self.assertNotEqual(self.content(f"{form}/iter_0000006"), self.content(f"{other}/iter_0000006"))

    def test_checkpoints_without_an_id_belong_to_the_run_of_their_folder(self):
        """As those of earlier versions."""
        self.train(training_iters=30, exit_interval=20, save_interval=5, keep_checkpoint_max=2)
        (self.folder / "run/run.json").unlink()
        for folder in self.checkpoints():
            manifest, progress = folder / "manifest.json", folder / "blobs/progress.json"
            words = progress.read_text()
            progress.write_text(words.replace('"run"', '"ran"'))
            # The sum of the blob is in the manifest, whose own sum follows: both are those of a file without "run".
            self.resign(manifest, progress)
        told = self.train(training_iters=30, save_interval=5, keep_checkpoint_max=2)
        self.assertIn("network_iter_0000020 after iteration 20", told)
        self.assertEqual(self.names(), ["network_iter_0000025", "network_iter_0000030"])
        self.assertEqual(self.set_aside(), [])

    def resign(self, manifest, blob):
        content = json.loads(manifest.read_text())
        content.pop("manifest_crc32c")
        content["blobs"][blob.name]["crc32c"] = f"{crc32c(blob.read_bytes()):08x}"
        words = json.dumps(content, sort_keys=True, separators=(",", ":"))
        content["manifest_crc32c"] = f"{crc32c(words.encode()):08x}"
        manifest.write_text(json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n")

    def test_a_run_killed_before_its_first_checkpoint_starts_again_in_place_when_it_is_the_same(self):
        self.killed_after_some_steps()
        self.killed_after_some_steps()
        self.assertEqual(self.set_aside(), [])
        steps = self.steps_logged()
        self.train(training_iters=5)
        self.assertEqual(self.set_aside(), ["run.1"], "another recipe is another run")
        self.assertEqual(self.steps_logged("run.1"), steps)

    def test_a_run_whose_checkpoints_are_all_damaged_is_kept(self):
        self.train(training_iters=10)
        (self.checkpoints()[-1] / "manifest.json").write_text("{}")
        self.train(training_iters=10)
        self.assertEqual(len(self.losses("run.1")), 10)
        self.assertTrue((self.folder / "run.1/checkpoints/network_iter_0000010_damaged").is_dir())

    def test_megatrons_folders_are_set_aside_too(self):
        self.train(training_iters=4, ckpt_format="torch")
        before = self.content()
        self.assertIn("iter_0000004/mp_rank_00/model_optim_rng.pt", before)
        told = self.train(*ANEW, training_iters=2, ckpt_format="torch")
        self.assertIn("done: 2 iterations, run/iter_0000002\n", told)
        self.assertEqual(self.content("run.1"), before)
        self.assertEqual((self.folder / "run/latest_checkpointed_iteration.txt").read_text(), "2")

    def test_a_folder_that_cannot_be_renamed_is_refused_and_left_as_it_was(self):
        long = "r" * 255  # a name of 257 letters is too long for a folder
        self.train(training_iters=4, output_dir=long)
        before = self.content(long)
        told = self.train(*ANEW, training_iters=4, output_dir=long, code=2)
        self.assertIn("holds an earlier run, which cannot be set aside", told)
        self.assertIn("File name too long; give another training_config.output_dir, or", told)
        self.assertEqual(self.content(long), before)

    def test_setting_aside_that_was_cut_short_is_finished_by_the_next_start(self):
        self.train(training_iters=6, save_interval=3, ckpt_format="torch")
        before = self.content()
        aside = self.folder / "run.1"
        aside.mkdir()
        self.write("run/setting_aside.json", '{"to": "run.1"}')
        for moved in ("latest_checkpointed_iteration.txt", "iter_0000003", "metrics.jsonl"):
            (self.folder / "run" / moved).rename(aside / moved)
        told = self.train(training_iters=2)
        self.assertIn("cut short", told)
        self.assertEqual(self.content("run.1"), before)
        self.assertEqual(len(self.losses()), 2)
        self.assertEqual(self.set_aside(), ["run.1"])

    def test_logs_are_set_aside_unless_they_are_being_written(self):
        self.train(training_iters=2)
        logs = self.folder / "run/log"
        logs.mkdir()
        with (logs / "worker_0.log").open("w") as log:
            subprocess.run([program(), "train", "tiny.yaml", *sets(training_iters=3), *ANEW], cwd=self.folder, stdout=log, check=True)
        self.assertIn("set aside as", (logs / "worker_0.log").read_text())
        self.train(*ANEW, training_iters=4)
        self.assertFalse(logs.exists())
        self.assertTrue((self.folder / "run.2/log/worker_0.log").exists())


class LoadingFromTheRunFolder(RunFolder):
    def reference(self, **changes):
        """The losses of a run that begins with the weights of the old run's newest checkpoint."""
        self.train(training_iters=10)
        shutil.copytree(self.folder / "run", self.folder / "copy")
        self.train(*ANEW, **changes, load_checkpoint="copy", output_dir="reference")
        return self.losses("reference")

    def test_weights_of_the_run_that_is_set_aside_are_loaded_before(self):
        wanted = self.reference(training_iters=4)
        for number, place in enumerate(("run", "run/checkpoints", "run/checkpoints/network_iter_0000010"), 1):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            shutil.copytree(self.folder / "copy", self.folder / "run")
            self.train(*ANEW, training_iters=4, load_checkpoint=place)
            self.assertEqual(self.losses(), wanted, place)
            self.assertEqual(self.content(f"run.{number}"), self.content("copy"))

    def test_a_restart_before_the_first_checkpoint_finds_them_where_they_went(self):
        length = dict(training_iters=4000, learning_rate="1e-6", eval_interval=1000000)
        wanted = self.reference(**length)
        job = {"TESSERA_LAUNCH_JOB": "abc:0"}
        process = self.start("train", "tiny.yaml", *sets(**length, load_checkpoint="run"), *ANEW, environment=job)
        self.wait_until(lambda: (self.folder / "run.1/run.json").exists() and self.steps_logged() >= 3, "3 steps")
        process.kill()
        process.communicate()
        self.train(*ANEW, **length, load_checkpoint="run", environment={"TESSERA_LAUNCH_JOB": "abc:1"})
        self.assertEqual(self.losses(), wanted)
        self.assertEqual(self.set_aside(), ["run.1"])
        shutil.rmtree(self.folder / "run/checkpoints")
        shutil.rmtree(self.folder / "run.1")
        told = self.train(*ANEW, **length, load_checkpoint="run", code=2)
        self.assertRegex(told, "set aside with an earlier run as .*/run.1, which no longer exists; give its new path")

    def test_a_restart_after_a_crash_while_setting_aside_finds_them_too(self):
        """Between the renames, and between the last of them and run.json: in either case the journal knows."""
        wanted = self.reference(training_iters=4)
        for moved in (("checkpoints",), ("checkpoints", "metrics.jsonl", "resolved.yaml", "run.json")):
            for used in ("run", "run.1"):
                shutil.rmtree(self.folder / used, ignore_errors=True)
            shutil.copytree(self.folder / "copy", self.folder / "run")
            aside = self.folder / "run.1"
            aside.mkdir()
            self.write("run/setting_aside.json", json.dumps({"to": "run.1", "next": {
                "run": "0123456789abcdef", "jobs": {"tsrun abc": 0}, "load_checkpoint": {"given": "run", "now": str(aside)}}}))
            for name in moved:
                (self.folder / "run" / name).rename(aside / name)
            self.train(*ANEW, training_iters=4, load_checkpoint="run", environment={"TESSERA_LAUNCH_JOB": "abc:1"})
            self.assertEqual(self.losses(), wanted)
            self.assertEqual(self.content("run.1"), self.content("copy"))
            self.assertEqual(self.set_aside(), ["run.1"])
            self.assertEqual(json.loads((self.folder / "run/run.json").read_text())["run"], "0123456789abcdef")

    def test_progress_from_elsewhere_is_saved_here(self):
        """The last line names a checkpoint that is there."""
        self.train(training_iters=10, output_dir="first")
        told = self.train(training_iters=10, load_checkpoint="first")
        self.assertIn("done: 10 iterations, run/checkpoints/network_iter_0000010", told)
        self.assertEqual(self.names(), ["network_iter_0000010"])


class RestartInAJob(RunFolder):
    def test_it_resumes_whatever_resume_training_says(self):
        self.train(training_iters=20, output_dir="straight")
        for run, starts in (("tsrun", [{"TESSERA_LAUNCH_JOB": f"k{n}:{s}"} for n, s in ((1, 0), (1, 1), (2, 0))]),
                            ("slurm", [{"SLURM_JOB_ID": "7"}, {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}, {"SLURM_JOB_ID": "8"}])):
            self.train(*ANEW, training_iters=20, exit_interval=8, output_dir=run, environment=starts[0])
            self.train(*ANEW, training_iters=20, output_dir=run, environment=starts[1])
            self.assert_same_run("straight", run)
            self.assertFalse((self.folder / f"{run}.1").exists())
            # Another job is not a restart, and the same job's second program is none either.
            self.train(*ANEW, training_iters=2, output_dir=run, environment=starts[2])
            self.assertEqual(self.metrics(f"{run}.1"), self.metrics("straight"))
            self.train(*ANEW, training_iters=2, output_dir=run, environment=starts[2])
            self.assertTrue((self.folder / f"{run}.2").exists())

    def test_the_last_line_says_truly_how_to_resume(self):
        for resume, add in (("auto", ()), ("true", ()), ("false", ("--set", "training_config.resume_training=true"))):
            command = sets(training_iters=10, exit_interval=4, output_dir=resume)
            first = self.train(*command, "--set", f"training_config.resume_training={resume if resume != 'true' else 'auto'}")
            if resume == "false":
                self.assertIn(" ".join(("to resume, add", *add)), first.splitlines()[-1])
            else:
                self.assertIn("the same command resumes from the newest checkpoint", first.splitlines()[-1])
            self.train(*command, "--set", f"training_config.resume_training={resume}", *add)
            self.assertEqual([line["iteration"] for line in self.metrics(resume) if "loss" in line], list(range(1, 9)))


class Links(RunFolder):
    """A link below the run folder is no way out of it."""

    def setUp(self):
        super().setUp()
        self.outside = self.folder / "outside"
        (self.outside / "folder").mkdir(parents=True)
        (self.outside / "folder/file").write_text("precious")
        (self.outside / "file").write_text("precious\n")
        self.before = self.content("outside")

    def link(self, name, target):
        path = self.folder / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.outside / target)

    def tearDown(self):
        self.assertEqual(self.content("outside"), self.before)

    def test_a_run_that_would_write_through_one_is_refused(self):
        for name, target in (("checkpoints", "folder"), ("tensorboard", "folder"), ("metrics.jsonl", "file"), ("resolved.yaml", "file"),
                             ("run.json", "file"), ("in_use", "file"), ("in_use", "absent"), ("before_conversion_tmp", "folder"),
                             ("metrics.jsonl", "absent")):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.link(name, target)
            told = self.train(training_iters=2, tensorboard="true", code=2)
            self.assertIn(f"run/{name}: is a symbolic link to {self.outside}/{target}, which leads out of run", told)
            self.assertEqual(self.content("outside"), self.before)

    def test_a_checkpoint_that_is_one_is_set_aside_as_a_link_and_never_pruned(self):
        self.link("checkpoints/network_iter_0000099", "folder")
        told = self.train(training_iters=2)
        self.assertIn("network_iter_0000099_damaged", told)
        self.assertEqual(self.content("outside"), self.before)
        shutil.rmtree(self.folder / "run")
        constant = ("--set", "optimizer_config.lr_decay_style=constant")
        self.train(*constant, training_iters=4, output_dir="outside/run")
        self.before = self.content("outside")
        self.link("checkpoints/network_iter_0000004", "run/checkpoints/network_iter_0000004")
        self.train(*constant, training_iters=8, save_interval=1, keep_checkpoint_max=2)
        self.assertEqual(self.names(), ["network_iter_0000004", "network_iter_0000007", "network_iter_0000008"])
        self.assertTrue((self.folder / "run/checkpoints/network_iter_0000004").is_symlink())

    def test_leftovers_that_are_links_are_replaced(self):
        for name in ("resolved.yaml_tmp", "metrics.jsonl_tmp", "run.json_tmp", "checkpoints/network_latest_checkpointed_iteration.txt",
                     "checkpoints/network_latest_checkpointed_iteration.txt_tmp"):
            self.link(name, "file")
        self.link("checkpoints/network_iter_0000002_tmp", "folder")
        self.link("checkpoints/network_iter_0000003_tmp", "folder")
        self.train(training_iters=2)
        self.assertEqual(self.names(), ["network_iter_0000002"])

    def test_events_of_others_are_not_cut_through_one(self):
        self.train(training_iters=4, tensorboard="true", output_dir="outside/run")
        self.before = self.content("outside")
        events = next((self.outside / "run/tensorboard").iterdir())
        self.link("tensorboard/" + events.name, "run/tensorboard/" + events.name)
        self.train(training_iters=2, tensorboard="true")

    def test_megatrons_folders_are_not_written_through_one(self):
        self.link("iter_0000002", "folder")
        told = self.train(training_iters=2, ckpt_format="torch", code=22)
        self.assertIn("run/iter_0000002: is a symbolic link", told)
        (self.folder / "run/iter_0000002").unlink()
        self.train(training_iters=4, exit_interval=2, ckpt_format="torch")
        self.link("iter_0000004/mp_rank_00", "folder")
        told = self.train(training_iters=4, ckpt_format="torch", code=22)
        self.assertIn("run/iter_0000004/mp_rank_00: is a symbolic link", told)

    def test_the_run_folder_itself_may_be_one(self):
        real = self.folder / "elsewhere"
        real.mkdir()
        (self.folder / "run").symlink_to(real)
        self.train(training_iters=2)
        self.assertEqual(len(list((real / "checkpoints").glob("network_iter_*"))), 1)
        self.train(*ANEW, training_iters=2)
        self.assertTrue((self.folder / "elsewhere.1/metrics.jsonl").exists())


def crc32c(data):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


if __name__ == "__main__":
    harness.main()
