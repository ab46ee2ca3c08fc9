#!/usr/bin/env python3
"""Fine-tuning steps by processor time and memory, of this program alone, so that other programs on the machine disturb little.

    fine_tuning.py BUILD_FOLDER [--only WORD ...] [--pairs 3] [--folder DISK]     the ratios below
    fine_tuning.py BUILD_FOLDER --seven-billion [--steps 2] [--folder DISK]       one process of Llama-2-7B's shape, weights in bf16 and in 4 bits
    fine_tuning.py --write SHAPE FOLDER [--type bfloat16]                         only writes a folder of Transformers with random weights

Both runs of a pair train the same number of tokens in turn; a figure is the processor time of the second over that of the first, that is the first
one's tokens per second over the second one's, inverted: the share of the first one's speed. Median, least and largest of the pairs are printed. The
7B folder needs 13.5 GB of disk, in 4 bits 4.2 GB more; both are deleted."""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import tempfile
import time

SHAPES = {  # layers, hidden, feed-forward, heads, key/value heads, vocabulary
    "llama-2-7b": (32, 4096, 11008, 32, 32, 32000),
    "llama-52m": (6, 512, 1408, 8, 8, 32000),
    "gpt2-124m": (12, 768, 3072, 12, 12, 50257),
}
TYPES = {"bfloat16": ("BF16", 2), "float32": ("F32", 4)}
LORA = ["lora_config.use_lora=true", "lora_config.lora_rank=16", "lora_config.lora_alpha=16", "lora_config.target_modules=all-linear"]
BLOCK = 64 << 20


def random_block(kind):
    """64 MiB of weights between .0078 and .031 in magnitude: sign and upper exponent bits are chosen, the others random."""
    signs = bytes(0xBC if byte & 1 else 0x3C for byte in range(256))
    block = bytearray(random.Random(1).randbytes(BLOCK))
    size = TYPES[kind][1]
    block[size - 1::size] = block[size - 1::size].translate(signs)
    return bytes(block)


def gpt2_tensors(layers, hidden, ffn, vocabulary):
    yield "wte.weight", (vocabulary, hidden)
    yield "wpe.weight", (1024, hidden)
    for layer in range(layers):
        for name, shape in (("attn.c_attn", (hidden, 3 * hidden)), ("attn.c_proj", (hidden, hidden)), ("mlp.c_fc", (hidden, ffn)),
                            ("mlp.c_proj", (ffn, hidden))):
            yield f"h.{layer}.{name}.weight", shape
            yield f"h.{layer}.{name}.bias", shape[1:]
        for norm in ("ln_1", "ln_2"):
            yield f"h.{layer}.{norm}.weight", (hidden,)
            yield f"h.{layer}.{norm}.bias", (hidden,)
    yield "ln_f.weight", (hidden,)
    yield "ln_f.bias", (hidden,)


def llama_tensors(layers, hidden, ffn, heads, groups, vocabulary):
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    keys = hidden // heads * groups
    for layer in range(layers):
        name = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{name}{norm}.weight", (hidden,)
        for part, rows in (("q", hidden), ("k", keys), ("v", keys), ("o", hidden)):
            yield f"{name}self_attn.{part}_proj.weight", (rows, hidden)
        for part, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
            yield f"{name}mlp.{part}_proj.weight", shape
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)


def write_folder(shape, folder, kind):
    layers, hidden, ffn, heads, groups, vocabulary = SHAPES[shape]
    folder.mkdir(parents=True)
    if shape.startswith("gpt2"):
        config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_inner": ffn, "n_head": heads,
                  "n_positions": 1024, "vocab_size": vocabulary, "activation_function": "gelu_new", "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
        tensors = gpt2_tensors(layers, hidden, ffn, vocabulary)
    else:
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden,
                  "intermediate_size": ffn, "num_attention_heads": heads, "num_key_value_heads": groups, "vocab_size": vocabulary, "hidden_act": "silu",
                  "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "tie_word_embeddings": False}
        tensors = llama_tensors(layers, hidden, ffn, heads, groups, vocabulary)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": kind}))
    name, size = TYPES[kind]
    header, end = {}, 0
    for tensor, extents in tensors:
        count = size
        for extent in extents:
            count *= extent
        header[tensor] = {"dtype": name, "shape": extents, "data_offsets": [end, end + count]}
        end += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    block = random_block(kind)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for at in range(0, end, BLOCK):
            file.write(block[:min(BLOCK, end - at)])
        file.flush()
        os.fsync(file.fileno())  # pages that wait to be written count as changed
    return folder


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process):
    """(anonymous bytes, changed bytes of mapped weights, mapped bytes of weights) of a process."""
    anonymous = dirty = mapped = 0
    weights = False
    for line in pathlib.Path(f"/proc/{process}/smaps").read_text().splitlines():
        key, _, rest = line.partition(":")
        if "-" in key.split(" ")[0]:
            weights = line.endswith(".safetensors")
        elif key == "Anonymous":
            anonymous += int(rest.split()[0]) * 1024
            dirty += weights * int(rest.split()[0]) * 1024
        elif weights and key in ("Private_Dirty", "Shared_Dirty"):
            dirty += int(rest.split()[0]) * 1024
        elif weights and key == "Size":
            mapped += int(rest.split()[0]) * 1024
    return anonymous, dirty, mapped


def train(build, folder, options, steps, environment=None):
    """Trains `steps` steps; the first one is warm-up. Processor seconds and tokens a step, and the largest of memory_of."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    common = [f"training_config.training_iters={steps}", "training_config.output_dir=run", "training_config.log_interval=1",
              "training_config.eval_iters=0", "training_config.tensorboard=false", "training_config.seed=1", "optimizer_config.learning_rate=1e-4",
              "dataset_config.data_cache_path=cache"]
    (folder / "empty.yaml").write_text("training_config: {}\n")
    words = [word for one in [*common, *options] for word in ("--set", one)]
    with open(folder / "out.txt", "w", encoding="utf-8") as out:
        job = subprocess.Popen([build / "framework/tessera", "train", "empty.yaml", *words], cwd=folder, stdout=out, stderr=out,
                               env={**os.environ, **(environment or {})})
        metrics, times, memory = run / "metrics.jsonl", [], (0, 0, 0)
        while job.poll() is None:
            lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
            try:
                times += [processor_seconds(job.pid)] * (lines - len(times))
                memory = tuple(map(max, memory, memory_of(job.pid)))
            except (OSError, ProcessLookupError):
                pass
            time.sleep(.05)
    if job.returncode != 0 or len(times) < 2:
        raise SystemExit(f"a run failed:\n{(folder / 'out.txt').read_text()[-2000:]}")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    tokens = rows[-1]["consumed_tokens"] / len(rows)
    return (times[-1] - times[0]) / (len(times) - 1), tokens, memory, rows


def mock(length, samples=1):
    return ["dataset_config.dataset_type=mock", f"dataset_config.batch_size={samples}", f"model_config.seq_length={length}"]


def seven_billion(args, folder):
    base = args.base or write_folder("llama-2-7b", folder / "base", "bfloat16")
    options = [f"training_config.load_checkpoint={base}", *mock(512), *LORA, *args.set]
    for name, more in (("bfloat16", []), ("4 bits", ["lora_config.qlora=true", "lora_config.qlora_double_quant=true"])):
        if args.only and not any(word in name for word in args.only):
            continue
        seconds, tokens, (anonymous, dirty, mapped), rows = train(args.build, folder, [*options, *more], args.steps)
        cores = os.cpu_count()
        print(f"{name}: {seconds:.1f} processor seconds a step of {tokens:.0f} tokens: {tokens / seconds * cores:.2f} tokens/s on {cores} cores; "
              f"anonymous memory {anonymous / 2**30:.2f} GiB, weights mapped {mapped / 2**30:.2f} GiB, of these changed {dirty} bytes; "
              f"wall {rows[-1]['step_seconds']:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--write", nargs=2, metavar=("SHAPE", "FOLDER"))
    parser.add_argument("--type", default="bfloat16", choices=TYPES)
    parser.add_argument("--seven-billion", action="store_true")
    parser.add_argument("--base", help="a 7B folder that is there already")
    parser.add_argument("--set", action="append", default=[], help="a further option of each run, GROUP.NAME=VALUE")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--folder", help="where runs and folders are written; default: the temporary folder")
    args = parser.parse_args()
    if args.write:
        write_folder(args.write[0], pathlib.Path(args.write[1]), args.type)
        return
    if not args.build:
        parser.error("give the build folder")
    args.build = args.build.resolve()
    with tempfile.TemporaryDirectory(dir=args.folder) as place:
        if args.seven_billion:
            seven_billion(args, pathlib.Path(place))


if __name__ == "__main__":
    main()
