"""The flow of MindSpeed-MM's Qwen2-VL: weights of Transformers to its layout, LLaVA's data, its script with model.json and data.json trained on
two ranks, weights back, an answer about an image."""

import json
import os
import pathlib
import shutil
import subprocess

import harness
from in_turn import mpirun

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE", pathlib.Path(__file__).parents[2]))
CHAT = SOURCE / "tests/data/models/qwen2_vl_chat"
PICTURES = sorted(path.name for path in (CHAT / "pictures").iterdir())

SCRIPT = """#!/bin/bash
MM_DATA="./settings/data.json"
MM_MODEL="./settings/model.json"
MM_TOOL="./settings/tools.json"
LOAD_PATH="./weights/mm"
SAVE_PATH="./save_dir"
GPT_ARGS="
    --use-mcore-models --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --context-parallel-size 1
    --micro-batch-size 1 --global-batch-size 4 --tokenizer-type NullTokenizer --vocab-size 434 --seq-length 256
    --make-vocab-size-divisible-by 1 --normalization RMSNorm --swiglu --lr 1.0e-2 --lr-decay-style constant --weight-decay 0
    --train-iters 6 --clip-grad 0.0 --adam-beta1 0.9 --adam-beta2 0.999 --seed 42 --load $LOAD_PATH --variable-seq-lengths
    --use-flash-attn --no-load-optim --no-load-rng --no-save-optim --no-save-rng --num-workers 1
"
torchrun --nproc_per_node 2 pretrain_vlm.py $GPT_ARGS --mm-data $MM_DATA --mm-model $MM_MODEL --mm-tool $MM_TOOL \\
    --log-interval 1 --save-interval 6 --eval-interval 6 --eval-iters 0 --save $SAVE_PATH --log-tps --distributed-backend nccl
"""

MODEL = {
    "model_id": "qwen2vl", "img_context_token_id": 432, "vision_start_token_id": 429,
    "image_encoder": {
        "vision_encoder": {
            "model_id": "qwen2vit", "num_layers": 2, "hidden_size": 32, "ffn_hidden_size": 64, "llm_hidden_size": 48, "num_attention_heads": 2,
            "hidden_dropout": 0.0, "attention_dropout": 0.0, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
            "layernorm_epsilon": 1e-06, "normalization": "LayerNorm", "activation_func": "quick_gelu", "freeze": True, "post_layer_norm": False,
            "pipeline_num_layers": [2, 0]},
        "vision_projector": {
            "model_id": "lnmlp", "num_layers": 1, "gated_linear_unit": False, "bias_activation_fusion": False, "add_bias_linear": True,
            "input_size": 32, "hidden_size": 48, "ffn_hidden_size": 128, "activation_func": "gelu", "freeze": False, "layernorm_epsilon": 1e-06,
            "normalization": "LayerNorm"}},
    "text_decoder": {
        "model_id": "qwen2lm", "num_layers": 2, "pipeline_num_layers": [1, 1], "hidden_size": 48, "ffn_hidden_size": 72, "num_attention_heads": 3,
        "max_position_embeddings": 1024, "vocab_size": 434, "rope_theta": 1000000.0, "untie_embeddings_and_output_weights": True,
        "attention_dropout": 0.0, "init_method_std": 0.01, "hidden_dropout": 0.0, "position_embedding_type": "mrope", "normalization": "RMSNorm",
        "activation_func": "silu", "group_query_attention": True, "num_query_groups": 1, "mrope_section": [2, 3, 3], "rope_scaling": None,
        "gated_linear_unit": True, "layernorm_epsilon": 1e-06, "add_bias_linear": False, "add_qkv_bias": True},
    "text_encoder": None, "video_encoder": None}

DATA = {
    "dataset_param": {
        "dataset_type": "huggingface",
        "preprocess_parameters": {
            "model_name_or_path": "./weights/hf", "use_fast_tokenizer": True, "split_special_tokens": False, "image_max_pixels": 16384,
            "image_min_pixels": 0, "video_max_pixels": 16384, "video_min_pixels": 0, "video_fps": 2.0, "video_maxlen": 64},
        "basic_parameters": {
            "template": "qwen2vl", "dataset_dir": "./data", "dataset": "./data/mllm_format_llava_instruct_data.json", "cache_dir": "./data/cache",
            "train_on_prompt": False, "mask_history": False, "preprocessing_batch_size": 1000, "preprocessing_num_workers": 2,
            "max_samples": None, "tool_format": None},
        "attr": {
            "system": None, "images": "images", "videos": None, "messages": "messages", "role_tag": "role", "content_tag": "content",
            "user_tag": "user", "assistant_tag": "assistant", "observation_tag": None, "function_tag": None, "system_tag": None}},
    "dataloader_param": {
        "dataloader_mode": "sampler", "drop_last": True, "sampler_type": "BaseRandomBatchSampler",
        "collate_param": {"model_name": "qwen2vl", "ignore_pad_token_for_loss": True}, "pin_memory": True, "shuffle": True}}


def conversation(number):
    """A record of LLaVA's form; each third one has no image."""
    picture = PICTURES[number % len(PICTURES)]
    words = "What is in the picture?"
    record = {"id": f"{number:06}", "conversations": [
        {"from": "human", "value": words if number % 3 == 2 else f"<image>\n{words}"}, {"from": "gpt", "value": "The cat sits near the red ball."}]}
    if number % 3 != 2:
        record["image"] = picture
    return record


class Answers(harness.InOwnFolder):
    def setUp(self):
        super().setUp()
        shutil.copytree(CHAT / "hf", self.folder / "weights/hf")
        shutil.copytree(CHAT / "pictures", self.folder / "data/COCO2017/train2017")
        records = [conversation(number) for number in range(24)] + [dict(conversation(0), image="missing.jpg")]
        self.write("data/llava_instruct_150k.json", json.dumps(records))
        self.write("finetune_qwen2vl.sh", SCRIPT)
        for name, content in (("model", MODEL), ("data", DATA), ("tools", {"profile": {"enable": False}})):
            self.write(f"settings/{name}.json", json.dumps(content, indent=4))

    def tensors(self, folder):
        """Of a folder of Transformers, the bytes of each tensor by its name."""
        found = {}
        for path in sorted((self.folder / folder).glob("*.safetensors")):
            data = path.read_bytes()
            length = int.from_bytes(data[:8], "little")
            for name, row in json.loads(data[8:8 + length]).items():
                if name != "__metadata__":
                    begin, end = row["data_offsets"]
                    found[name] = data[8 + length + begin:8 + length + end]
        return found

    def test_the_flow_from_weights_and_data_to_an_answer(self):
        self.tessera("checkpoint", "mm-convert", "Qwen2VLConverter", "hf_to_mm", "--cfg.mm_dir", "weights/mm", "--cfg.hf_config.hf_dir", "weights/hf",
                     "--cfg.parallel_config.llm_pp_layers", "[[1,1]]", "--cfg.parallel_config.vit_pp_layers", "[[2,0]]")
        told = self.tessera("data", "llava-to-mllm", "--input", "data/llava_instruct_150k.json", "--images", "./data/COCO2017/train2017", "--output",
                            "data/mllm_format_llava_instruct_data.json")
        self.assertIn("1 ", told)  # the record without its picture
        self.assertEqual(len(json.loads((self.folder / "data/mllm_format_llava_instruct_data.json").read_text())), 24)
        self.tessera("convert", "finetune_qwen2vl.sh", "-o", "run.yaml")
        told = self.tessera("check", "run.yaml", "--ranks", "2")
        self.assertIn("vision_model.decoder 0-1", told)
        words = [harness.program(), "train", "run.yaml", "--set", "training_config.tensorboard=false", "--set", "training_config.output_dir=run"]
        done = subprocess.run([*mpirun(2, self.folder), *words], cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        losses = self.losses("run")
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], losses[0] - 0.5)
        self.assertTrue(all(line["tokens_per_sample"] % 2 == 0 for line in self.metrics("run") if "loss" in line))  # means of four multiples of 8
        self.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "run", "tuned")
        before, after = self.tensors("weights/hf"), self.tensors("tuned")
        self.assertEqual(before.keys(), after.keys())
        for name in before:
            frozen = name.startswith("visual.") and not name.startswith("visual.merger.")
            self.assertEqual(before[name] == after[name], frozen, name)
        answers = [self.tessera("generate", model, "--image", str(CHAT / "pictures/size_100x100.png"), "--prompt", "What is in the picture?",
                                "--temperature", "0", "--tokens", "12") for model in ("weights/hf", "tuned", "run")]
        self.assertNotEqual(answers[0], answers[1])
        self.assertEqual(answers[1], answers[2])
        records = ["--records", "data/mllm_format_llava_instruct_data.json", "--media-dir", "data", "--json"]
        losses = [json.loads(self.tessera("eval", model, *records).splitlines()[0])["loss"] for model in ("weights/hf", "tuned")]
        self.assertLess(losses[1], losses[0] - 0.5)

    def test_settings_of_mindspeed_mm_are_its_answers(self):
        """inference_qwen2vl.json: prompts, image and folder of the model; with top_k 1 it is greedy, whatever the temperature."""
        picture = str(CHAT / "pictures/size_100x100.png")
        settings = {"pipeline_class": "Qwen2VlPipeline", "prompts": "What is in the picture?", "image_path": picture,
                    "tokenizer": {"from_pretrained": "weights/hf"}, "min_pixels": 1003520, "text_decoder": {"num_layers": 99},
                    "generation_config": {"max_new_tokens": 12, "temperature": 0.01, "top_k": 1, "top_p": 0.001, "do_sample": True,
                                          "repetition_penalty": 1.0, "num_beams": 1, "eos_token_id": [422, 255]}}
        self.write("inference.json", json.dumps(settings))
        greedy = self.tessera("generate", "weights/hf", "--image", picture, "--prompt", "What is in the picture?", "--temperature", "0", "--tokens", "12",
                              "--image-loading", "qwen_vl_utils")
        self.assertEqual(self.tessera("generate", "--config", "inference.json"), greedy)
        settings["generation_config"]["repetition_penalty"] = 100
        settings.update(prompts=["How many trees are there?"] * 2, image_path=[str(CHAT / "pictures/size_28x28.png")])
        self.write("inference.json", json.dumps(settings))
        words = ["--image", settings["image_path"][0], "--prompt", settings["prompts"][0], "--temperature", "0", "--tokens", "12",
                 "--image-loading", "qwen_vl_utils"]
        self.assertNotEqual(self.tessera("generate", "--config", "inference.json"), 2 * self.tessera("generate", "weights/hf", *words))
        self.assertEqual(self.tessera("generate", "--config", "inference.json"),
                         2 * self.tessera("generate", "weights/hf", *words, "--repetition-penalty", "100"))
        settings.update(pipeline_class="OpenSoraPipeline", prompts=7)
        settings["generation_config"].update(num_beams=4, top_p=2)
        self.write("inference.json", json.dumps(settings))
        told = self.tessera("generate", "--config", "inference.json", code=2)
        for words in ("pipeline_class is \"OpenSoraPipeline\"", "prompts is 7", "generation_config.num_beams is 4", "generation_config.top_p is 2"):
            self.assertIn(words, told)

    def test_several_conversations_get_the_answers_that_each_gets_alone(self):
        part = lambda name: {"type": "image", "image": str(CHAT / "pictures" / name)}
        ask = lambda *parts: [{"role": "user", "content": [*parts, {"type": "text", "text": "What is in the picture?"}]}]
        conversations = [ask(part("size_100x100.png")), {"messages": ask()}, ask(part("size_28x28.png"), part("size_100x100.png"))]
        greedy = ["--temperature", "0", "--tokens", "12"]
        alone = []
        for number, one in enumerate(conversations):
            self.write(f"{number}.json", json.dumps(one))
            alone.append(self.tessera("generate", "weights/hf", "--messages", f"{number}.json", *greedy))
        self.assertEqual(len(set(alone)), 3)
        self.write("all.json", json.dumps(conversations))
        self.assertEqual(self.tessera("generate", "weights/hf", "--messages", "all.json", *greedy), "".join(alone))
        told = self.tessera("generate", "weights/hf", "--messages", "all.json", "--image", str(CHAT / "pictures/size_28x28.png"), code=2)
        self.assertIn("all.json has 3 conversations", told)
        self.write("bad.json", json.dumps([*conversations, [{"content": "?"}]]))
        self.assertIn('conversation 4: message 1 has no "role"', self.tessera("generate", "weights/hf", "--messages", "bad.json", code=2))

    def test_answers_that_cannot_be_given_are_refused(self):
        picture = str(CHAT / "pictures/size_100x100.png")
        for words, complaint in [(["--image", "missing.png", "--prompt", "?"], "missing.png"),
                                 (["--image", str(CHAT / "generation.json"), "--prompt", "?"], "generation.json"),
                                 (["--image", picture], "--image has nothing to answer"),
                                 (["--image", picture, "--prompt", "<|image_pad|>?"], "texts must not contain placeholders")]:
            told = self.tessera("generate", "weights/hf", *words, code=2)
            self.assertIn(complaint, told)
        self.write("two.json", json.dumps([{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "?"}]}]))
        told = self.tessera("generate", "weights/hf", "--messages", "two.json", "--image", picture, code=2)
        self.assertIn("the messages have 2 images without a file, and --image names 1", told)
        self.write("audio.json", json.dumps([{"role": "user", "content": [{"type": "audio", "audio": "a.wav"}, {"type": "text", "text": "?"}]}]))
        self.assertIn('has the part {"type":"audio"', self.tessera("generate", "weights/hf", "--messages", "audio.json", code=2).replace(": ", ":"))
        self.assertIn("texts must not contain placeholders", self.tessera("generate", "weights/hf", "--prompt", "<|image_pad|> hi", code=2))
        self.write("video.json", json.dumps([{"role": "user", "content": [{"type": "video", "video": "film.mp4"}]}]))
        self.assertIn("is no list of frames", self.tessera("generate", "weights/hf", "--messages", "video.json", code=2))
        text = SOURCE / "tests/data/nf4/hf_bf16"
        self.assertIn("has no vision tower", self.tessera("generate", text, "--image", picture, "--prompt", "?", code=2))
