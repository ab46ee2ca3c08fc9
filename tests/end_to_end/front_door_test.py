"""The first things that a user meets: help, versions, wrong words, a first run."""

import time

import harness
from harness import sets


class Smoke(harness.InOwnFolder):
    def test_help_is_quick_and_names_the_commands(self):
        times = []
        for _ in range(5):
            began = time.monotonic()
            told = self.tessera("--help")
            times.append(time.monotonic() - began)
        for command in ("train", "check", "options", "data", "checkpoint", "generate", "eval"):
            self.assertIn(command, told)
        self.assertLess(min(times), 0.05)

    def test_tiny_gpt_learns(self):
        self.tessera("train", "tiny.yaml", *sets(training_iters=60, learning_rate="1e-2"))
        losses = self.losses()
        self.assertEqual(len(losses), 60)
        self.assertLess(losses[-1], losses[0] - 0.1)

    def test_unknown_command_names_what_there_is(self):
        told = self.tessera("trian", "tiny.yaml", code=2)
        self.assertIn("trian", told)

    def test_check_is_quick_and_counts_parameters(self):
        began = time.monotonic()
        told = self.tessera("check", "tiny.yaml")
        self.assertLess(time.monotonic() - began, 0.2)
        self.assertIn("param", told)


class FrontDoor(harness.InOwnFolder):
    def test_plain_lines_in_a_pipe_follow_megatrons_format(self):
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=3))
        self.assertRegex(told, r" iteration +3/ +3 \| consumed samples: +12 \|.*learning rate: .*lm loss: ")

    def test_core_ms_style_of_log(self):
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=3, log_style="core_ms"))
        self.assertRegex(told, r"Epoch: *\d+, Step: *3, Loss: *[\d.]+, Time: *[\d.]+")

    def test_not_a_number_is_told_with_step_layer_and_tensor(self):
        told = self.tessera("train", "tiny.yaml", *sets(training_iters=50, learning_rate="1e30"), "--set",
                            "optimizer_config.optimizer_type=sgd", "--set", "optimizer_config.clip_grad=0", code=1)
        self.assertRegex(told, r"(?i)(nan|inf|not finite)")
        self.assertRegex(told, r"(?i)step|iteration")


if __name__ == "__main__":
    harness.main()
