#!/usr/bin/env python3
"""A training step of Qwen2-VL: `tessera train` beside PyTorch with Transformers, on the same picture files, in turns.

    vision_step.py TESSERA [--rounds N] [--steps N] [--dtype float32|bfloat16] [--freeze-tower] [--layers N] [--threads N] [--processor-time]

Needs a Python with torch, transformers 5 and Pillow. The model has the widths of Qwen2-VL-2B and --layers layers in each tower, with a vocabulary
of 16384; each step is one conversation about one picture of 640 x 480 with about 128 tokens of text. Both read the same folder of weights and
the same pictures; a step is the forward pass, the loss, the backward pass, clipping and AdamW, of ours with the decoding of the picture.
Prints the median step of the last three quarters of the steps of each round, the ratio, and the peak memory of both processes. With
--processor-time, which other programs on the machine disturb less, each of both runs twice, with all steps and with two, and a step is the
difference of the processor times divided by that of the steps, with the decoding of the picture on both sides."""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "tests/data/multimodal/tokenizer"
WORDS = "The cat sits near the red ball. How many trees are there? "


def prepare(folder, args):
    """The model folder, pictures and records."""
    import numpy
    import torch
    from PIL import Image
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
    config = json.loads((TOKENIZER / "config.json").read_text()) if (TOKENIZER / "config.json").exists() else {}
    ids = {key: config.get(key, value) for key, value in (("image_token_id", 432), ("video_token_id", 433), ("vision_start_token_id", 429))}
    text = dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=args.layers, num_attention_heads=12, num_key_value_heads=2, vocab_size=16384,
                max_position_embeddings=4096, rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[16, 24, 24]), tie_word_embeddings=True)
    vision = dict(depth=args.layers, embed_dim=1280, num_heads=16, hidden_size=1536, mlp_ratio=4, patch_size=14, in_channels=3)
    torch.manual_seed(1)
    model = Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids))
    model.save_pretrained(folder / "hf")
    for path in TOKENIZER.iterdir():
        if path.name not in ("config.json", "generation_config.json"):
            (folder / "hf" / path.name).write_bytes(path.read_bytes())
    (folder / "data").mkdir()
    random = numpy.random.default_rng(1)
    records = []
    for number in range(args.steps):
        coarse = Image.fromarray(random.integers(0, 256, (60, 80, 3), dtype=numpy.uint8)).resize((640, 480))
        coarse.save(folder / "data" / f"{number}.jpg", quality=90)
        records.append({"images": [f"{number}.jpg"], "messages": [{"role": "user", "content": "<image>\n" + WORDS}, {"role": "assistant", "content": WORDS * 2}]})
    (folder / "data" / "records.json").write_text(json.dumps(records))


def of_ours(folder, args):
    recipe = {
        "training_config": {"training_iters": args.steps, "output_dir": "run", "log_interval": 1, "eval_iters": 0, "tensorboard": False,
                            "save_interval": 0, "num_threads": args.threads, "load_checkpoint": "hf", "bf16": args.dtype == "bfloat16",
                            "resume_training": False},
        "model_config": {"seq_length": 1024},
        "optimizer_config": {"learning_rate": 1e-6, "lr_decay_style": "constant", "clip_grad": 1.0},
        "dataset_config": {"dataset_type": "mllm", "dataset": "data/records.json", "media_dir": "data", "model_name_or_path": "hf",
                           "image_max_pixels": 262144, "image_min_pixels": 0, "tokenizer_type": "HuggingFaceTokenizer",
                           "tokenizer_model": "hf", "batch_size": 1, "global_batch_size": 1, "num_workers": 1}}
    if args.freeze_tower:
        recipe["training_config"]["frozen_parameters"] = ["vision_model\\..*", "vision_projection\\..*"]
    (folder / "run.yaml").write_text(json.dumps(recipe))
    begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run([args.tessera, "train", "run.yaml"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    steps = [line["step_seconds"] for line in lines if "step_seconds" in line][-args.steps:]
    waits = [line.get("data_wait_seconds", 0) for line in lines if "step_seconds" in line][-args.steps:]
    words = [word for word in done.stdout.split("peak of the process ")[1:]]
    return steps, sum(waits[len(waits) // 4:]) / sum(steps[len(steps) // 4:]), words[-1].split("\n")[0] if words else "", begin


def of_torch(folder, args):
    words = [sys.executable, __file__, args.tessera, "--as-torch", str(folder)] + sys.argv[2:] + ["--steps", str(args.steps)]
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads), GLIBC_TUNABLES="glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"
                       "glibc.malloc.trim_threshold=68719476736:glibc.malloc.top_pad=268435456:glibc.malloc.arena_max=1")
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout.splitlines()[-1])


def processor_seconds(run, folder, args):
    """Of one step, and what the run with all steps returned."""
    spent = []
    for steps in (args.steps, 2):
        shorter = argparse.Namespace(**{**vars(args), "steps": steps})
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        got = run(folder, shorter)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, got))
    return (spent[0][0] - spent[1][0]) / (args.steps - 2), spent[0][1]


def as_torch(folder, args):
    import torch
    from PIL import Image
    from transformers import AutoTokenizer, Qwen2VLForConditionalGeneration
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    model = Qwen2VLForConditionalGeneration.from_pretrained(folder / "hf", dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    if args.freeze_tower:
        model.model.visual.requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(folder / "hf")
    processor = Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=262144)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=True)
    records = json.loads((folder / "data/records.json").read_text())
    start, image, end = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"
    times = []
    for record in records[:args.steps]:
        pixels = processor(images=[Image.open(folder / "data" / record["images"][0]).convert("RGB")], return_tensors="pt")
        count = int(pixels["image_grid_thw"].prod()) // 4
        user, answer = (message["content"] for message in record["messages"])
        user = user.replace("<image>", start + image * count + end)
        prompt = f"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
        first, second = (tokenizer(text, return_tensors="pt").input_ids for text in (prompt, answer + "<|im_end|>\n"))
        ids = torch.cat([first, second], 1)
        labels = torch.cat([torch.full_like(first, -100), second], 1)
        types = (ids == model.config.image_token_id).to(torch.int64)
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16"):
            loss = model(input_ids=ids, labels=labels, attention_mask=torch.ones_like(ids), mm_token_type_ids=types, **pixels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - begin)
    print(json.dumps({"steps": times, "tokens": ids.shape[1], "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "loss": loss.item(), "torch": torch.__version__}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    for name, default in (("rounds", 2), ("steps", 8), ("layers", 4), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--freeze-tower", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--as-torch", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.tessera = os.path.abspath(args.tessera)
    if args.as_torch:
        return as_torch(pathlib.Path(args.as_torch), args)
    middle = lambda steps: statistics.median(steps[len(steps) // 4:])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder, args)
        ratios = []
        for _ in range(args.rounds):
            if args.processor_time:
                own, (_, wait, memory, _) = processor_seconds(of_ours, folder, args)
                other, theirs = processor_seconds(of_torch, folder, args)
            else:
                steps, wait, memory, _ = of_ours(folder, args)
                theirs = of_torch(folder, args)
                own, other = middle(steps), middle(theirs["steps"])
            ratios.append(other / own)
            print(f"{own:.3f} s a step (data wait {100 * wait:.2f} %, peak {memory}), PyTorch {theirs['torch']} {other:.3f} s "
                  f"(peak {theirs['memory']:.0f} MiB): {ratios[-1]:.2f} x; {theirs['tokens']} tokens", flush=True)
        print(f"{statistics.median(ratios):.2f} x")


if __name__ == "__main__":
    main()
