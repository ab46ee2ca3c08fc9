"""Steps with wrong numbers, injected: computed again, skipped, or left behind by going back to a checkpoint. What is compared is
every number of the run and its last checkpoint, to the bit."""

import json
import shutil

import faults_test
import harness
from faults_test import inject, line_of
from harness import sets
from launching import Launching

SKIP = ["--set", "resilience_config.bad_step=skip"]


def configured(configuration, run, *more):
    """No evaluations: a step that iterations_to_skip names has none."""
    return line_of(configuration, run, *sets(eval_interval=0), *more)


class BadNumbers(Launching):
    assert_nothing_lost = faults_test.Faults.assert_nothing_lost

    def disturbed(self, configuration, *more):
        """What the launcher and the run say."""
        told = self.tsrun(*configured(configuration, "disturbed", *more))
        return told + (self.folder / "disturbed/tessera.log").read_text()

    def progress(self, run):
        return json.loads(next(self.checkpoints(run)[-1].rglob("progress.json")).read_text())

    def state(self, run):
        """Without what is known of the run's data: a reference has it from its recipe."""
        found = faults_test.Faults.state(self, run)
        name = next(name for name in found if name.endswith("progress.json"))
        content = json.loads(found[name])
        content.pop("findings", None)
        return {**found, name: json.dumps(content).encode()}

    def reference(self, configuration, skipped):
        self.tsrun(*configured(configuration, "undisturbed", *sets(iterations_to_skip=json.dumps([step - 1 for step in skipped]))))

    def assert_skipped(self, steps, about):
        """The run is that of the reference, but for the lines of the skipped steps."""
        lines = self.metrics("disturbed")
        self.assertEqual([line["iteration"] for line in lines if line["skipped"]], steps, about)
        self.assertEqual([line for line in lines if not line["skipped"]], self.metrics("undisturbed"), about)
        ours, theirs = self.state("disturbed"), self.state("undisturbed")
        self.assertEqual(ours, theirs, about)

    def transient(self, configuration, faults, names):
        self.tsrun(*configured(configuration, "undisturbed"))
        told = self.disturbed(configuration, *sets(check_for_spiky_loss="true"), *inject(faults))
        for step, rank in names.items():
            self.assertRegex(told, rf"iteration {step}: loss .*; computed again: .*hardware failed, {rank} on \S+?\. Training continues")
        self.assertNotIn("starting all workers again", told)
        self.assert_nothing_lost("disturbed", about=told)

    def test_transient_faults_change_no_number(self):
        self.transient("DP 3", ["1:4:reduce:nan", "2:7:reduce:inf", "0:15:reduce:spike"],
                       {4: "rank 1", 7: r"one of rank 0 on \S+, rank 1 on \S+, rank 2", 15: "rank 0"})

    def test_transient_faults_without_replicas(self):
        self.transient("TP 2, PP 2", ["1:4:reduce:inf", "2:7:reduce:nan"], {4: r"one of rank 1 on \S+, rank 3", 7: r"one of rank 0 on \S+, rank 1 on \S+, rank 2 on \S+, rank 3"})

    def repeatable(self, configuration, fault_of_step):
        """Steps 7 and 8 and, after a kill in between, step 12; rank 0 prints no step twice."""
        self.reference(configuration, [7, 8, 12])
        faults = [fault_of_step(step) for step in (7, 8, 12)] + ["1:7:report:kill:0", "0:12:commit:kill:1"]
        told = self.disturbed(configuration, *sets(check_for_spiky_loss="true"), *SKIP, *inject(faults))
        self.assertEqual(told.count("starting all workers again"), 2, told)
        self.assert_skipped([7, 8, 12], told)

    def test_repeatable_faults_skip_their_steps(self):
        self.repeatable("DP 3", lambda step: f"2:{step}:reduce:nan!:*")

    def test_repeatable_faults_without_replicas_skip_their_steps(self):
        self.repeatable("TP 2, PP 2", lambda step: f"1:{step}:reduce:inf!:*")

    def several(self, configuration, rank, kill):
        """Steps 9 to 11: from the checkpoint after step 5 on they are skipped."""
        self.reference(configuration, [9, 10, 11])
        faults = [f"{rank}:{step}:reduce:nan!" for step in (9, 10, 11)]
        told = self.disturbed(configuration, *SKIP, *inject(faults + kill))
        self.assertIn("iterations 9 to 11 are skipped, from the newest checkpoint before them on", told)
        self.assertEqual(told.count("starting all workers again"), len(kill), told)
        self.assertEqual(self.progress("disturbed")["findings"], {"skip": [[8, 11]], "roll_back_end": 10})
        self.assert_nothing_lost("disturbed", about=told)
        self.assert_nothing_left()

    def test_a_spike_is_logged_skipped_or_left_behind(self):
        spike = [*sets(check_for_spiky_loss="true"), *inject(["2:15:reduce:spike!"])]
        self.tsrun(*configured("TP 2, PP 2", "undisturbed"))
        told = self.disturbed("TP 2, PP 2", *spike)
        self.assertRegex(told, r"iteration 15: loss \S+ is [\d.]+ times the largest of 14 steps, 4\.\d+\. Training continues")
        lines = [[line for line in self.metrics(run) if line["iteration"] != 15] for run in ("disturbed", "undisturbed")]
        self.assertEqual(*lines)
        weights = [{name: data for name, data in self.state(run).items() if name.endswith(".safetensors")} for run in ("disturbed", "undisturbed")]
        self.assertTrue(weights[0])
        self.assertEqual(*weights, told)
        self.again("disturbed", "undisturbed")
        self.reference("TP 2, PP 2", [15])
        self.assert_skipped([15], self.disturbed("TP 2, PP 2", *spike, *SKIP))
        self.again("disturbed")
        told = self.disturbed("TP 2, PP 2", *spike, *SKIP, "--set", "resilience_config.roll_back_after=1")
        self.assertIn("iterations 15 to 15 are skipped", told)
        self.assert_nothing_lost("disturbed", about=told)

    def again(self, *runs):
        for run in runs:
            shutil.rmtree(self.folder / run)

    def test_a_result_that_was_rejected_twice_is_skipped_by_the_next_start(self):
        self.reference("DP 3", [7])
        line = configured("DP 3", "disturbed", *sets(result_rejected_tracker_filename="rejected.txt", save_interval=1),
                          *inject(["1:7:reduce:nan!:*"]))
        for _ in range(2):
            self.assertIn("iteration 7: loss nan", self.tsrun("--max_restarts=0", *line, code=1))
        self.tsrun(*line)
        self.assertIn("rejected.txt: iterations 7 to 7 are skipped", (self.folder / "disturbed/tessera.log").read_text())
        self.assertEqual(self.metrics("disturbed"), self.metrics("undisturbed"))
        self.write("many.txt", "".join(2 * f"ts=a node=n device=0 jobID=j rank=0 iteration={i} status=rerun_disabled result=1 message=m\n"
                                       for i in range(2, 600, 2)))
        line = configured("DP 3", "many", *sets(result_rejected_tracker_filename="many.txt"))
        self.assertIn("many.txt rejects iterations after 0 in more than 200 ranges", self.tsrun("--max_restarts=0", *line, code=2))

    def test_drawn_faults_change_no_number(self):
        self.tsrun(*configured("DP 3", "undisturbed"))
        told = self.disturbed("DP 3", *sets(error_injection_rate=3))
        self.assertGreater(told.count("hardware failed, rank "), 3, told)
        self.assert_nothing_lost("disturbed", about=told)

    def test_several_in_a_row_go_back_to_a_checkpoint(self):
        self.several("DP 3", 2, [])

    def test_a_kill_right_after_going_back(self):
        self.several("TP 2, PP 2", 1, ["3:5:roll_back:kill"])

    def test_a_kill_while_it_goes_back(self):
        self.several("DP 3", 1, ["2:10:roll_back:kill"])


if __name__ == "__main__":
    harness.main()
