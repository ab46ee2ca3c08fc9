"""The way of a user of Megatron-LM from text to a trained model, with Megatron's flags and its torch checkpoints: preprocess, train the launch
script, look at what was saved, evaluate, generate, resume."""

import json
import pathlib
import re

from harness import InOwnFolder, main

# The script of MindSpeed's migration guide with a small model, its stray blank behind a backslash included (written as @).
SCRIPT = r"""#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=1
MASTER_ADDR=localhost
MASTER_PORT=6000
NNODES=1
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
CHECKPOINT_PATH=./ckpt
VOCAB_FILE=./gpt-tokenizer/gpt2-vocab.json
MERGE_FILE=./gpt-tokenizer/gpt2-merges.txt
DATA_PATH=./gpt_pretrain_data/alpaca_text_document
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --node_rank $NODE_RANK \
    --master_addr $MASTER_ADDR \
    --master_port $MASTER_PORT \
"
GPT_ARGS="
    --num-layers 2 \
    --hidden-size 32 \@
    --num-attention-heads 4 \
    --seq-length 32 \
    --max-position-embeddings 32 \
    --micro-batch-size 2 \
    --global-batch-size 4 \
    --lr 0.00015 \
    --train-iters 6 \
    --lr-decay-iters 320000 \
    --lr-decay-style cosine \
    --min-lr 1.0e-5 \
    --weight-decay 1e-2 \
    --lr-warmup-fraction .01 \
    --clip-grad 1.0 \
    --fp16 \
    --transformer-impl local \
"
DATA_ARGS="
    --data-path $DATA_PATH \
    --vocab-file $VOCAB_FILE \
    --merge-file $MERGE_FILE \
    --split 949,50,1 \
"
OUTPUT_ARGS="
    --log-interval 1 \
    --save-interval 2 \
    --eval-interval 1000 \
    --eval-iters 2
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $GPT_ARGS \
    $DATA_ARGS \
    $OUTPUT_ARGS \
    --distributed-backend nccl \
    --save $CHECKPOINT_PATH \
    --ckpt-format torch
""".replace("@", " ")

LINES = [f"the {a} saw the {b} and went on" for a in ("cat", "dog", "cow", "hen") for b in ("fox", "owl", "rat")] * 20


class MegatronFlow(InOwnFolder):
    def setUp(self):
        super().setUp()
        self.write("text.txt", "\n".join(LINES) + "\n")
        self.write("alpaca_json.json", "".join(json.dumps({"text": line}) + "\n" for line in LINES))
        self.tessera("data", "train-bpe", "--input", "text.txt", "--vocab-size", 280, "--output-dir", "gpt-tokenizer")
        for name in ("vocab.json", "merges.txt"):
            (self.folder / "gpt-tokenizer" / name).rename(self.folder / "gpt-tokenizer" / ("gpt2-" + name))
        (self.folder / "gpt_pretrain_data").mkdir()
        self.write("pretrain_single.sh", SCRIPT)

    def preprocess(self):
        return self.tessera("data", "preprocess", "--input", "alpaca_json.json", "--output-prefix", "./gpt_pretrain_data/alpaca",
                            "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "./gpt-tokenizer/gpt2-vocab.json",
                            "--merge-file", "./gpt-tokenizer/gpt2-merges.txt", "--append-eod", "--log-interval", 100,
                            "--workers", 8)

    def assert_saved(self, told, names):
        """Every checkpoint that is said to be saved is there."""
        saved = re.findall(r"saved (\S+)", told)
        self.assertEqual([pathlib.Path(name.rstrip(";")).name for name in saved], names, told)
        for name in saved:
            self.assertTrue((self.folder / name.rstrip(";") / "mp_rank_00/model_optim_rng.pt").is_file(), name)

    def test_from_text_to_a_model_that_is_resumed(self):
        told = self.preprocess()
        self.assertEqual(re.findall(r"Processed (\d+) documents \(", told), ["100", "200"], told)
        self.assertTrue((self.folder / "gpt_pretrain_data/alpaca_text_document.bin").is_file())

        self.tessera("convert", "pretrain_single.sh", "-o", "run.yaml")
        self.tessera("check", "run.yaml")
        told = self.tessera("train", "pretrain_single.sh", "--set", "training_config.exit_interval=4")
        self.assertIn("note: ", told)
        self.assert_saved(told, ["iter_0000002", "iter_0000004", "iter_0000004"])

        told = self.tessera("checkpoint", "inspect", "ckpt", "--tensors")
        self.assertRegex(told, r"iteration +4\n")
        self.assertIn("1 tensor parallel rank x 1 stage", told)
        self.assertIn("decoder.layers.1.mlp.linear_fc2.weight float32 [32, 128]", told)
        self.assertIn("iteration 2", self.tessera("checkpoint", "verify", "ckpt/iter_0000002"))
        # What was saved is enough: no data, no tokenizer files.
        (self.folder / "gpt-tokenizer").rename(self.folder / "elsewhere")
        scores = json.loads(self.tessera("eval", "ckpt", "--text", "text.txt", "--json").splitlines()[-1])
        self.assertEqual(scores["checkpoint"], "ckpt/iter_0000004")
        self.assertLess(scores["loss"], 6)
        sample = self.tessera("generate", "ckpt", "--prompt", "the cat", "--tokens", 5)
        self.assertTrue(sample.startswith("the cat"), sample)
        (self.folder / "elsewhere").rename(self.folder / "gpt-tokenizer")

        self.write("again.sh", SCRIPT.replace("--save $CHECKPOINT_PATH", "--save $CHECKPOINT_PATH --load $CHECKPOINT_PATH"))
        told = self.tessera("train", "again.sh")
        self.assert_saved(told, ["iter_0000006"])
        self.assertIn("done: 6 iterations, ./ckpt/iter_0000006", told)
        self.tessera("train", "run.yaml", "--set", "training_config.output_dir=straight")
        self.assertEqual(self.metrics("straight"), self.metrics("ckpt"))
        # Both formats in one folder: the newest counts.
        self.tessera("train", "run.yaml", "--set", "training_config.output_dir=ckpt", "--set", "training_config.training_iters=8",
                     "--set", "training_config.ckpt_format=safetensors", "--set", "training_config.load_checkpoint=ckpt/iter_0000006")
        self.assertRegex(self.tessera("checkpoint", "inspect", "ckpt"), r"iteration +8\n")

    def test_a_damaged_file_of_megatrons_format_is_named(self):
        self.preprocess()
        self.tessera("train", "pretrain_single.sh", "--set", "training_config.training_iters=2")
        file = self.folder / "ckpt/iter_0000002/mp_rank_00/model_optim_rng.pt"
        whole = bytearray(file.read_bytes())
        self.assertIn("good", self.tessera("checkpoint", "verify", "ckpt"))
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 1
        file.write_bytes(damaged)
        self.assertRegex(self.tessera("checkpoint", "verify", "ckpt", code=24), r"model_optim_rng\.pt: .*CRC")
        file.write_bytes(whole[:len(whole) // 2])
        self.assertIn("model_optim_rng.pt", self.tessera("checkpoint", "verify", "ckpt", code=24))
        file.write_bytes(whole)
        (self.folder / "ckpt/iter_0000002/blobs/tokenizer.merge_file.txt").write_text("#version: 0.2\n")
        self.assertIn("merge_file.txt", self.tessera("checkpoint", "verify", "ckpt", code=24))

    def test_what_only_our_own_format_can_do_says_how_to_come_by_it(self):
        self.preprocess()
        self.tessera("train", "pretrain_single.sh", "--set", "training_config.training_iters=2")
        told = self.tessera("checkpoint", "reshard", "ckpt", "new", code=2)
        self.assertIn("tessera checkpoint convert --from megatron --to tessera ckpt/iter_0000002", told)
        # The tokenizer goes along, there and back.
        self.tessera("checkpoint", "convert", "--from", "megatron", "--to", "tessera", "ckpt", "ours")
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "megatron", "ours", "theirs")
        samples = [self.tessera("generate", name, "--prompt", "the cat", "--tokens", 5, "--temperature", 0)
                   for name in ("ckpt", "ours", "theirs")]
        self.assertEqual(samples, samples[:1] * 3)

    def test_notes_on_the_script_are_told_once_in_a_run(self):
        self.preprocess()
        notes = [[line for line in self.tessera("train", "pretrain_single.sh", "--set", "training_config.exit_interval=2", *words)
                  .splitlines() if line.startswith("note: ")] for words in ([], [], ["--verbose"])]
        self.assertGreater(len(notes[0]), 0)
        self.assertEqual(notes[1], [])
        # Without --verbose what has no effect is one line.
        self.assertTrue(any("1 flag is accepted for compatibility and has no effect" in line for line in notes[0]), notes[0])
        self.assertTrue(any("--distributed-backend: " in line for line in notes[2]), notes[2])
        self.assertEqual(notes[2][0], notes[0][0])
        told = self.tessera("train", "pretrain_single.sh", "--set", "training_config.resume_training=false",
                            "--set", "training_config.training_iters=1")
        self.assertEqual([line for line in told.splitlines() if line.startswith("note: ")], notes[0])


if __name__ == "__main__":
    main()
