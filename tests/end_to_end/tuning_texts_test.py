"""Fine-tuning on texts: a run that reads conversations or pairs learns what it learns from their token files; texts that teach nothing are named."""

import json

import harness

WORDS = ("the waters were upon the deep", "the light was good", "there was a day", "let there be light", "the earth was void")


def alpaca(number, **changes):
    words = lambda n: WORDS[(number + n) % len(WORDS)]
    return {"instruction": words(0), "input": words(1) if number % 2 else "", "output": f"{words(2)} {number}", "chosen": f"{words(2)} {number}",
            "rejected": words(3), "system": "", "history": [[words(4), words(0)]] if number % 3 == 0 else [], **changes}


def sharegpt(number):
    row = alpaca(number)
    say = lambda who, text: {"from": who, "value": text}
    before = [say("human", row["instruction"]), say("gpt", row["output"]), say("human", row["rejected"])]
    return {"conversations": before + [say("gpt", row["chosen"])]}, {
        "conversations": before, "chosen": say("gpt", row["chosen"]), "rejected": say("gpt", row["instruction"])}


class Texts(harness.InOwnFolder):
    """A model of bytes and some merged pairs of them, saved after a step as a folder of Transformers, from which runs begin."""

    def setUp(self):
        super().setUp()
        self.write("corpus.txt", "\n".join(WORDS * 20))
        self.tessera("data", "train-bpe", "--input", "corpus.txt", "--vocab-size", 300, "--output-dir", "bpe")
        self.tokenizer = {"tokenizer_type": "GPT2BPETokenizer", "vocab_file": "bpe/vocab.json", "merge_file": "bpe/merges.txt"}
        self.recipe("base.yaml", training_iters=1, vocab_size=300, seq_length=96, max_position_embeddings=96, eval_iters=0)
        self.tessera("train", "base.yaml", "--set", "training_config.output_dir=first")
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "first", "base")

    def rows(self, name, rows):
        self.write(name, "".join(json.dumps(row) + "\n" for row in rows))
        return name

    def tuning(self, stage, **dataset):
        """A recipe of that stage, and its name."""
        pairs = stage != "sft"
        return self.write("tuning.yaml", harness.to_yaml({
            "training_config": {"training_iters": 4, "stage": stage, "load_checkpoint": "base", "tensorboard": "false", "eval_iters": 0,
                                "num_threads": 1, "log_interval": 1, "seed": 3},
            "model_config": {"seq_length": 96}, "optimizer_config": {"learning_rate": 1e-3},
            "dataset_config": {"dataset_type": "instruction", "batch_size": 2, "split": '"100,0,0"', "is_pairwise_dataset": str(pairs).lower(),
                               **self.tokenizer, **dataset}})).name

    def train(self, run, *more, code=0):
        return self.tessera("train", "tuning.yaml", "--set", f"training_config.output_dir={run}", *more, code=code)


class TextsAreTheirTokenFiles(Texts):
    def test_losses_from_texts_are_to_the_bit_those_from_token_files(self):
        conversations, pairs = zip(*map(sharegpt, range(11)))
        for stage, handler, rows in (("sft", "AlpacaStyleInstructionHandler", map(alpaca, range(11))),
                                     ("sft", "SharegptStyleInstructionHandler", conversations),
                                     ("dpo", "AlpacaStylePairwiseHandler", map(alpaca, range(11))),
                                     ("dpo", "SharegptStylePairwiseHandler", pairs)):
            with self.subTest(stage=stage, handler=handler):
                name = f"{stage}-{handler}"
                self.rows(f"{name}.jsonl", rows)
                self.tuning(stage, handler_name=handler, prompt_type="empty", data_path=f"{name}.jsonl", data_cache_path="cache")
                self.assertIn("11 rows became 11 samples", self.train(f"{name}-texts"))
                self.tessera("data", "preprocess", "--handler-name", handler, "--prompt-type", "empty", "--input", f"{name}.jsonl",
                             "--output-prefix", name, "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "bpe/vocab.json", "--merge-file",
                             "bpe/merges.txt")
                self.tuning(stage, data_path=name)
                self.train(f"{name}-tokens")
                of_steps = [line for line in self.metrics(f"{name}-texts") if "loss" in line]
                self.assertEqual(len(of_steps), 4)
                self.assertEqual(of_steps, [line for line in self.metrics(f"{name}-tokens") if "loss" in line])


class TextsThatTeachNothing(Texts):
    def test_pairs_are_counted_or_refused_when_the_run_opens_its_data(self):
        good = [alpaca(number) for number in range(6)]
        same = alpaca(1, rejected=alpaca(1)["chosen"])
        missing = {key: value for key, value in alpaca(1).items() if key != "rejected"}
        for rows, code, says in ((good + [missing], 2, "rows.jsonl:7: 'rejected' is null"),
                                 (good + [same, same], 0, "2 of 8 training pairs have equal chosen and rejected answers"),
                                 (good + [alpaca(1, rejected="")], 0, "1 of 7 training pairs have an answer without a label"),
                                 ([alpaca(1, instruction=" ".join(WORDS * 20))] * 4, 0, "4 of 4 training pairs are longer than seq_length 96")):
            with self.subTest(says=says):
                self.rows("rows.jsonl", rows)
                self.tuning("dpo", handler_name="AlpacaStylePairwiseHandler", prompt_type="empty", data_path="rows.jsonl")
                told = self.train("run", "--set", "training_config.resume_training=false", code=code)
                self.assertIn(says, told)

    def test_a_chosen_answer_without_tokens_is_named_when_the_run_opens_its_data(self):
        self.rows("rows.jsonl", [alpaca(number) for number in range(40)] + [alpaca(1, chosen="")])
        self.tuning("dpo", handler_name="AlpacaStylePairwiseHandler", prompt_type="empty", data_path="rows.jsonl")
        told = self.train("run", "--set", "dataset_config.bad_sample_limit=5")
        self.assertIn("1 of 41 training samples cannot be used, the first of them is sample ", told)
        self.assertIn("the chosen answer has no label", told)

    def test_conversations_that_are_all_masked_are_refused(self):
        self.rows("rows.jsonl", [alpaca(number, output="") for number in range(5)])
        self.tuning("sft", handler_name="AlpacaStyleInstructionHandler", prompt_type="empty", data_path="rows.jsonl")
        self.assertIn("none of the 5 training samples has a label within seq_length 96, so the run trains nothing", self.train("run", code=2))
        self.rows("rows.jsonl", [alpaca(1, instruction=" ".join(WORDS * 20))] * 3 + [alpaca(2)])
        self.assertIn("3 of 4 training samples are longer than seq_length 96", self.train("run"))

    def test_losses_and_references_that_cannot_be_meant_are_refused(self):
        self.rows("rows.jsonl", [alpaca(number) for number in range(6)])
        self.tuning("dpo", handler_name="AlpacaStylePairwiseHandler", prompt_type="empty", data_path="rows.jsonl")
        self.tessera("train", "base.yaml", "--set", "training_config.output_dir=other", "--set", "model_config.vocab_size=320")
        loss, p = "preference_config.dpo_loss_type=", "preference_config."
        for settings, says in (([loss + "robust", p + "dpo_label_smoothing=0.5"], "give a value below 0.5"),
                               ([loss + "exo_pair"], "takes the logarithm of dpo_label_smoothing, which is 0; give a value above 0"),
                               ([p + "ref_model=other"], "its vocabulary has 320 rows and the model here 300"),
                               (["training_config.load_checkpoint=null"], "there is no reference model"),
                               (["training_config.stage=kto"], "stage is kto, which is not supported"),
                               (["training_config.stage=sft"], "the samples of dataset_type instruction are pairs of completions")):
            with self.subTest(settings=settings):
                told = self.train("run", *(word for one in settings for word in ("--set", one)), code=2)
                self.assertIn(says, told)
                self.assertNotIn("iteration        1/", told)


if __name__ == "__main__":
    harness.main()
