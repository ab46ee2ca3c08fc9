"""Scripts of other programs as recipes: what docs/converting.md shows, the way back, and a run straight from a script."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

import converting_page
from harness import InOwnFolder, program

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
SCRIPTS = SOURCE / "tests" / "data" / "scripts"

# As the migration guide of MindSpeed starts GPT on one machine: strings of flags; @ is a blank behind a backslash.
SINGLE = r"""#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8 # of this machine
NNODES=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
CHECKPOINT_PATH=./ckpt
VOCAB_FILE=./vocab.json
MERGE_FILE=./merges.txt
DATA_PATH=./my_text_document
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --node_rank 0 \
    --master_addr localhost \
    --master_port 6000 \
"
GPT_ARGS="
    --num-layers 24 \
    --hidden-size 1024 \@
    --num-attention-heads 16 \
    --seq-length 1024 \
    --max-position-embeddings 1024 \
    --micro-batch-size 8 \
    --global-batch-size 64 \
    --lr 0.00015 \
    --train-iters 1000 \
    --lr-decay-iters 320000 \
    --lr-decay-style cosine \
    --min-lr 1.0e-5 \
    --weight-decay 1e-2 \
    --lr-warmup-fraction .01 \
    --clip-grad 1.0 \
    --fp16 \
    --transformer-impl local \
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    $GPT_ARGS \
    --data-path $DATA_PATH --vocab-file $VOCAB_FILE --merge-file $MERGE_FILE --split 949,50,1 \
    --log-interval 100 --save-interval 100 --eval-interval 1000 --eval-iters 10 \
    --distributed-backend nccl \
    --save $CHECKPOINT_PATH \
    --ckpt-format torch
"""


class Convert(InOwnFolder):
    def corpus(self):
        """A text as tokens, with the tokenizer's two files."""
        words = [f"the {a} saw the {b} and went on" for a in ("cat", "dog", "cow", "hen") for b in ("fox", "owl", "rat")]
        self.write("text.txt", "\n".join(words * 40) + "\n")
        self.write("text.json", "\n".join(json.dumps({"text": line}) for line in words * 40) + "\n")
        self.tessera("data", "train-bpe", "--input", "text.txt", "--vocab-size", "280", "--output", ".")
        self.tessera("data", "preprocess", "--input", "text.json", "--output-prefix", "./my",
                     "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "vocab.json", "--merge-file", "merges.txt")

    def test_the_page_about_converting_is_what_the_program_does(self):
        page = (SOURCE / "docs" / "converting.md").read_text()
        self.assertEqual(page, converting_page.page(program(), SOURCE),
                         "docs/converting.md is stale; tests/end_to_end/converting_page.py writes it")

    def test_what_is_written_for_five_scripts_is_taken_by_check(self):
        lines = [line[len("<!-- script "):-len(" -->")].split() for line in
                 (SOURCE / "docs" / "converting.md").read_text().split("\n") if line.startswith("<!-- script ")]
        self.assertEqual(len(lines), 5)
        for name, *arguments in lines:
            shutil.copy(SCRIPTS / name, self.folder)
            self.assertLess(self.processor_seconds(lambda: self.tessera("convert", name, "-o", "recipe.yaml", *arguments)), 5, name)
            # Nothing is wrong with it but that its data is not here.
            got = subprocess.run([program(), "check", "recipe.yaml", "--set", "dataset_config.dataset_type=mock"],
                                 cwd=self.folder, capture_output=True, text=True,
                                 env={**os.environ, "DATA_HOME": "/data", "ARG_1": "x"})
            self.assertNotIn("no option", got.stderr, name)
            self.assertNotIn("takes ", got.stderr, name)

    def test_a_script_becomes_a_recipe_a_script_and_the_same_recipe(self):
        for name in ("megatron_lm.sh", "mindspeed_llm.sh"):
            shutil.copy(SCRIPTS / name, self.folder)
            self.tessera("convert", name, "--arg", "1=ckpt", "--arg", "2=", "-o", "first.yaml")
            self.tessera("convert", name, "--arg", "1=ckpt", "--arg", "2=", "--to", "megatron", "-o", "again.sh", "--allow-refused")
            self.tessera("convert", "again.sh", "-o", "second.yaml")
            self.tessera("diff", "first.yaml", "second.yaml", environment={"ARG_1": "ckpt"})

    def test_a_recipe_becomes_a_script_that_megatron_takes_and_the_same_recipe(self):
        for model, more in (("llama2_7b", "max_position_embeddings: null"), ("mixtral_8x7b", "rotary_interleaved: true"),
                            ("gpt2_124m", "hidden_act: squared_relu")):
            self.write("run.yaml", f"base: models/{model}.yaml\nmodel_config: {{vocab_size: null, {more}}}\n"
                                   "training_config: {training_iters: 9, fp16: true, output_dir: out, save_interval: 3, ckpt_format: safetensors}\n"
                                   "dataset_config: {dataset_type: mock, batch_size: 1, tokenizer_type: NullTokenizer, vocab_size: 999}\n")
            self.tessera("convert", "run.yaml", "--to", "megatron", "-o", "run.sh")
            self.tessera("check", "run.sh", "--as", "megatron")
            self.tessera("convert", "run.sh", "-o", "again.yaml")
            differences = self.tessera("diff", "run.yaml", "again.yaml", code=1 if "interleaved" in more else 0)
            # Megatron-LM has no fused kernel for pairs of neighbours; here all are the same.
            self.assertEqual(re.findall(r"^  (\w+)$", differences, re.MULTILINE), ["apply_rope_fusion"] if differences else [])

    def test_a_script_that_megatron_refuses_is_not_written(self):
        self.write("run.yaml", "base: models/llama2_7b.yaml\nmodel_config: {vocab_size: null, num_layers: 3}\n"
                               "parallel_config: {pipeline_model_parallel_size: 2}\ntraining_config: {training_iters: 9}\n"
                               "dataset_config: {dataset_type: mock, batch_size: 1, tokenizer_type: NullTokenizer, vocab_size: 999}\n")
        told = self.tessera("convert", "run.yaml", "--to", "megatron", "-o", "run.sh", code=3)
        self.assertIn("Megatron-LM stops here: --pipeline-model-parallel-size does not divide the layers", told)
        self.assertFalse((self.folder / "run.sh").exists())
        self.tessera("convert", "run.yaml", "--to", "megatron", "-o", "run.sh", "--allow-refused")
        self.assertIn("# Not accepted by that program:\n", (self.folder / "run.sh").read_text())

    def test_the_guides_script_trains_with_smaller_sizes(self):
        self.corpus()
        self.write("pretrain_single.sh", SINGLE.replace("@", " "))
        self.tessera("convert", "pretrain_single.sh", "-o", "recipe.yaml", "--report", "report.json")
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(len(report["flags"]), 28)
        self.assertEqual({flag["status"] for flag in report["flags"]}, {"mapped", "ignored"})
        self.assertEqual(report["counts"]["ignored"], 1)
        self.assertTrue(report["launcher"]["start"].startswith("tsrun --nproc_per_node 8"))
        self.assertTrue(any("backslash" in note for note in report["notes"]), report["notes"])
        smaller = ["model_config.num_layers=2", "model_config.hidden_size=64", "model_config.num_attention_heads=4",
                   "model_config.seq_length=32", "model_config.max_position_embeddings=32", "dataset_config.batch_size=4",
                   "dataset_config.global_batch_size=8", "training_config.training_iters=30",
                   "training_config.log_interval=1", "optimizer_config.learning_rate=3e-3",
                   "optimizer_config.lr_decay_iters=40", "training_config.eval_iters=1",
                   "training_config.save_interval=30", "training_config.loss_scale_value=65536"]
        sets = [word for change in smaller for word in ("--set", change)]
        for source, folder in (("pretrain_single.sh", "from_script"), ("recipe.yaml", "from_recipe")):
            self.tessera("train", source, *sets, "--set", f"training_config.output_dir={folder}")
        self.assertEqual(self.losses("from_script"), self.losses("from_recipe"))
        self.assertEqual(len(self.losses("from_script")), 30)
        self.assertLess(self.losses("from_script")[-1], self.losses("from_script")[0] - 1)

    def test_what_is_there_already_is_kept(self):
        script = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4\n"
        self.write("x.sh", script)
        for names in (("-o", "x.sh"), ("-o", "./x.sh"), ("--report", "x.sh"), ("-o", "same", "--report", "same")):
            self.tessera("convert", "x.sh", *names, code=2)
        self.assertEqual((self.folder / "x.sh").read_text(), script)
        self.tessera("convert", "x.sh", "-o", "x.yaml")
        first = (self.folder / "x.yaml").read_text()
        self.tessera("convert", "x.sh", "-o", "x.yaml")
        self.assertFalse((self.folder / "x.yaml.1").exists(), "nothing changed")
        self.write("x.yaml", first + "# edited\n")
        told = self.tessera("convert", "x.sh", "-o", "x.yaml")
        self.assertIn("x.yaml was there with other content, which is now in", told)
        self.assertEqual((self.folder / "x.yaml").read_text(), first)
        self.assertEqual((self.folder / "x.yaml.1").read_text(), first + "# edited\n")
        (self.folder / "link.yaml").symlink_to("x.yaml.1")
        self.tessera("convert", "x.sh", "-o", "link.yaml")
        self.assertTrue((self.folder / "link.yaml").is_symlink())
        self.assertEqual((self.folder / "x.yaml.1").read_text(), first.replace("x.yaml", "link.yaml"))
        self.assertTrue((self.folder / "x.yaml.1.1").read_text().endswith("# edited\n"))

    def test_what_is_no_file_is_written_and_not_replaced(self):
        self.write("x.sh", "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4\n")
        os.mkfifo(self.folder / "pipe")
        process = self.start("convert", "x.sh", "-o", "pipe")
        with (self.folder / "pipe").open() as pipe:
            self.assertIn("model_config", pipe.read())
        process.communicate()
        self.assertTrue((self.folder / "pipe").is_fifo())

    def test_what_cannot_be_taken_over_ends_with_three_and_is_kept_as_comments(self):
        self.write("x.sh", "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 \\\n"
                           "  --encoder-tensor-model-parallel-size 2 --bogus-flag 3 --hiden-size 5\n")
        got = self.tessera("convert", "x.sh", "-o", "x.yaml", "--report", "x.json", code=3)
        self.assertFalse((self.folder / "x.yaml").exists())
        statuses = {flag["flag"]: (flag["status"], flag["line"]) for flag in json.loads((self.folder / "x.json").read_text())["flags"]}
        self.assertEqual(statuses["--encoder-tensor-model-parallel-size"], ("planned", 2))
        self.assertEqual(statuses["--bogus-flag"], ("unknown", 2))
        self.assertIn("no recipe is written", got)
        self.tessera("convert", "x.sh", "-o", "x.yaml", "--allow-refused")
        words = (self.folder / "x.yaml").read_text()
        self.assertIn("--bogus-flag 3", words)
        self.assertIn("--encoder-tensor-model-parallel-size", words)

    def test_a_folder_of_mappings_holds_in_training_too(self):
        shutil.copytree(SOURCE / "mappings", self.folder / "own")
        (self.folder / "own" / "weights" / "megatron.yaml").unlink()
        smaller = ["--set", "training_config.training_iters=2", "--set", "training_config.ckpt_format=torch"]
        self.tessera("train", "tiny.yaml", *smaller, "--set", "training_config.output_dir=with_all")
        got = self.tessera("--mappings", "own", "train", "tiny.yaml", *smaller,
                           "--set", "training_config.output_dir=with_own", code=2)
        self.assertIn("no table 'weights/megatron.yaml' in mappings of own", got)
        # Saved with the program's own tables, read with the folder's.
        got = self.tessera("--mappings", "own", "train", "tiny.yaml", *smaller, "--set", "training_config.training_iters=3",
                           "--set", "training_config.output_dir=with_all", code=2)
        self.assertIn("no table 'weights/megatron.yaml' in mappings of own", got)


class AModelIsWhatTheScriptSays(InOwnFolder):
    SIZES = ("--num-layers 2 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 4 --group-query-attention --num-query-groups 2 "
             "--seq-length 64 --max-position-embeddings 64 --position-embedding-type rope --normalization RMSNorm --swiglu "
             "--disable-bias-linear --patch-tokenizer-type LLama2Tokenizer --micro-batch-size 1 --lr 1e-3 --train-iters 3 "
             "--bf16")
    PAI = ("--from", "pai-megatron-patch")

    def script(self, flags):
        self.write("pai.sh", f"torchrun pretrain_llama.py {flags}\n")

    def test_what_a_script_says_is_not_taken_from_the_folder_that_it_loads(self):
        experts = " --num-experts 4 --moe-router-topk 2"
        for family, more in (("llama", ""), ("mixtral", experts)):
            shutil.copytree(SOURCE / "tests/data/families" / family, self.folder / "hf", dirs_exist_ok=True)
            # The rotary base, the eps of the norm, tied embeddings and coefficients of losses are their defaults.
            self.script(f"{self.SIZES}{more} --load hf --hidden-dropout 0.1 --attention-dropout 0.1")
            self.tessera("convert", "pai.sh", *self.PAI, "-o", "pai.yaml")
            self.assertIn("attention_dropout_rate: 0.1", (self.folder / "pai.yaml").read_text())
            self.tessera("diff", "pai.sh", "pai.yaml", *self.PAI)

    def test_a_recipe_of_a_folder_that_is_not_here_says_all(self):
        self.script(f"{self.SIZES} --load hf --save out")
        self.tessera("convert", "pai.sh", *self.PAI, "-o", "pai.yaml")
        self.assertIn("norm_epsilon: 1e-05", (self.folder / "pai.yaml").read_text())
        self.script(f"{self.SIZES} --load out --save out")  # what the run itself saves
        self.tessera("convert", "pai.sh", *self.PAI, "-o", "pai.yaml")
        self.assertNotIn("norm_epsilon", (self.folder / "pai.yaml").read_text())

    def test_experts_of_the_base_are_not_those_of_the_script(self):
        self.script("--num-layers 27 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 --num-experts 64 "
                    "--multi-latent-attention --seq-length 4096 --max-position-embeddings 163840 --position-embedding-type rope "
                    "--normalization RMSNorm --swiglu --disable-bias-linear --micro-batch-size 1 --lr 1e-3 --train-iters 3 --bf16")
        self.tessera("convert", "pai.sh", "-o", "recipe.yaml")
        recipe = (self.folder / "recipe.yaml").read_text()
        self.assertIn("base: models/deepseek_v2_lite.yaml", recipe)
        for line in ("moe_ffn_hidden_size: null", "moe_shared_expert_intermediate_size: null"):
            self.assertIn(line, recipe)
        self.tessera("diff", "pai.sh", "recipe.yaml")


class NothingIsLostSilently(InOwnFolder):
    LAYER = ("language_model: {num_layers: 2, hidden_size: 64, num_attention_heads: 4}\n"
             "model_parallel: {bf16: true}\nseq_length: 64\nmicro_batch_size: 1\ntrain_iters: 5\nlr: 1.0e-3\n"
             "position_embedding_type: rope\n")

    def test_a_yaml_cfg_file_may_have_rotary_percent_at_its_top(self):
        self.write("gpt.yaml", self.LAYER + "rotary_percent: 0.5\nmax_position_embeddings: 64\n")
        self.tessera("convert", "gpt.yaml", "-o", "out.yaml")
        self.assertIn("rotary_percent: 0.5", (self.folder / "out.yaml").read_text())

    def test_a_misspelt_argument_of_a_yaml_cfg_file_is_told(self):
        self.write("gpt.yaml", self.LAYER.replace("micro_batch_size", "micro_batch_sizee"))
        self.assertIn("micro_batch_sizee", self.tessera("convert", "gpt.yaml", "-o", "out.yaml", code=3))
        self.assertFalse((self.folder / "out.yaml").exists())

    def test_a_misspelt_option_of_a_recipe_is_told(self):
        self.recipe("r.yaml")
        self.write("r.yaml", (self.folder / "r.yaml").read_text().replace("hidden_size", "hiden_size"))
        self.assertIn("hiden_size", self.tessera("convert", "r.yaml", "-o", "out.yaml", code=2))

    def test_configurations_of_other_programs_are_refused_by_name(self):
        for name, words in (("axolotl", "base_model: m\nsequence_len: 8\n"), ("GPT-NeoX", '{"pipe-parallel-size": 1}\n'),
                            ("torchtune for reinforcement learning (PPO)", "output_dir: /o\ntokenizer: {_component_: t}\n"
                             "policy_model: {_component_: m}\ncheckpointer: {output_dir: '${output_dir}/policy'}\n"),
                            ("FlagScale", "system: {a: 1}\nmodel: {b: 1}\ndata: {c: 1}\n"), ("no group", "a: 1\n"),
                            ("has no options", "{}\n")):
            self.write("other.yaml", words)
            told = self.tessera("convert", "other.yaml", "-o", "out.yaml", code=2)
            self.assertIn(name, told)
            self.assertNotIn("the environment has no", told, "its values are not read")

    def test_a_configuration_of_llama_factory_takes_the_model_of_its_folder(self):
        self.write("sft.yaml", "model_name_or_path: base\nstage: sft\nfinetuning_type: full\ndataset: talks\n"
                               "template: qwen\ncutoff_len: 64\noutput_dir: out\nnum_train_epochs: 2.0\n"
                               "lr_scheduler_type: cosine\nreport_to: none\n")
        told = self.tessera("convert", "sft.yaml", "-o", "out.yaml", code=3)
        self.assertIn("'base' is no folder with a config.json", told)
        self.assertFalse((self.folder / "out.yaml").exists())
        self.write("base/config.json", json.dumps(
            {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 99, "hidden_size": 16,
             "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
             "max_position_embeddings": 128, "rms_norm_eps": 1e-5}))
        self.tessera("convert", "sft.yaml", "-o", "out.yaml", "--report", "report.json")
        recipe = (self.folder / "out.yaml").read_text()
        for line in ("num_layers: 3", "seq_length: 64", "vocab_size: 99", "epochs: 2", "dataset_type: instruction",
                     "lr_decay_style: cosine", "data_path: ${DATA_PATH:-talks}", "load_checkpoint: "):
            self.assertIn(line, recipe)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual({flag["flag"]: flag["status"] for flag in report["flags"]}["--template"], "ignored")

    def test_the_cause_comes_first(self):
        for file, words, cause in (("tab.yaml", "training_config:\n\ttraining_iters: 3\n", "a tab indents this line"),
                                   ("s.sh", "X='open\ntorchrun pretrain_gpt.py\n", "the quote ' that begins here"),
                                   ("b.yaml", "base: none.yaml\ntraining_config: {training_iters: 3}\n", "none.yaml"),
                                   ("e.sh", "echo\nset -n\ntorchrun pretrain_gpt.py\n", "e.sh:2: what the script does")):
            self.write(file, words)
            self.assertIn(cause, self.tessera("check", file, code=2).splitlines()[0])

    def test_a_script_that_is_not_there_is_named(self):
        self.write("s.sh", 'cd d && ./other.sh --lr 1\n')
        self.assertIn("line 1 starts ./other.sh, which does not exist", self.tessera("convert", "s.sh", code=2))

    def test_converting_a_checkpoint_to_its_own_format_says_what_to_do(self):
        told = self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "tessera", "a", "b", code=2)
        self.assertIn("the formats are the same", told)


if __name__ == "__main__":
    unittest.main()
