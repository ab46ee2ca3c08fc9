#!/usr/bin/env python3
"""Fine-tuning steps by processor time and memory, of this program alone, so that other programs on the machine disturb little.

    fine_tuning.py BUILD_FOLDER [--only WORD ...] [--pairs 3] [--folder DISK]    ratios of the speed of two runs
    fine_tuning.py BUILD_FOLDER --seven-billion [--steps 2] [--folder DISK]       one process of Llama-2-7B's shape, weights in bf16 and in 4 bits
    fine_tuning.py --write SHAPE FOLDER [--type bfloat16]                         only writes a folder of Transformers with random weights

Both runs of a pair train the same number of tokens, one after the other; a figure is the processor time of a step of the first one over that of the
second, the ratio of their speeds. Median, least and largest of the pairs are printed. The 7B folder needs 13.5 GB of disk, in 4 bits 4.2 GB more; both
are deleted at the end."""

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
CACHED = "run twice"  # among the options of a run: its log-probabilities are those that the run before has stored
LOOKS = 1.0  # seconds between two looks at the memory of a run, each of which walks all of its pages


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
    """Trains `steps` steps; the first one is warm-up. Processor seconds and tokens a step, the largest of memory_of, and the rows of metrics.jsonl."""
    run, kept = folder / "run", folder / "kept"
    if CACHED in options:
        options = [one for one in options if one != CACHED]
        train(build, folder, options, steps, environment)
        shutil.rmtree(kept, ignore_errors=True)
        (run / "reference_logps").rename(kept)
    shutil.rmtree(run, ignore_errors=True)
    if kept.exists():
        run.mkdir()
        kept.rename(run / "reference_logps")
    common = [f"training_config.training_iters={steps}", "training_config.output_dir=run", "training_config.log_interval=1",
              "training_config.eval_iters=0", "training_config.tensorboard=false", "training_config.seed=1", "optimizer_config.learning_rate=1e-4",
              "dataset_config.data_cache_path=cache"]
    (folder / "empty.yaml").write_text("training_config: {}\n")
    words = [word for one in [*common, *options] for word in ("--set", one)]
    with open(folder / "out.txt", "w", encoding="utf-8") as out:
        job = subprocess.Popen([build / "framework/tessera", "train", "empty.yaml", *words], cwd=folder, stdout=out, stderr=out,
                               env={**os.environ, **(environment or {})})
        metrics, times, memory, looked = run / "metrics.jsonl", [], (0, 0, 0), 0.0
        while job.poll() is None:
            lines = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
            try:
                times += [processor_seconds(job.pid)] * (lines - len(times))
                if time.monotonic() - looked > LOOKS:
                    memory, looked = tuple(map(max, memory, memory_of(job.pid))), time.monotonic()
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


def write_sequences(prefix, sequences):
    """A token file of Megatron-LM with int32 elements: one document for each sequence."""
    with open(f"{prefix}.bin", "wb") as file:
        for one in sequences:
            file.write(struct.pack(f"<{len(one)}i", *one))
    lengths = [len(one) for one in sequences]
    begins = [4 * sum(lengths[:at]) for at in range(len(lengths))]
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, len(lengths), len(lengths) + 1))
        file.write(struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(lengths)}q", *begins))
        file.write(struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))


def write_answers(folder, rows=64, length=512, prompt=64):
    """The token files of `sft` and of pairs, all rows of one length, with random tokens."""
    draw = random.Random(1)
    texts = {name: [[draw.randrange(3, 32000) for _ in range(length)] for _ in range(rows)] for name in ("one", "chosen", "rejected")}
    for chosen, rejected in zip(texts["chosen"], texts["rejected"]):
        rejected[:prompt] = chosen[:prompt]
    for name, all_rows in texts.items():
        part = "" if name == "one" else f"{name}_"
        write_sequences(folder / f"answers_packed_{part}input_ids_document", all_rows)
        write_sequences(folder / f"answers_packed_{part}labels_document", [[-100] * prompt + row[prompt:] for row in all_rows])
    write_sequences(folder / "answers_packed_attention_mask_document", [[1] * length for _ in range(rows)])


def comparisons(folder):
    """Name, goal, environment, options of the first and the second run. The figure is the speed of the second one over the first one's."""
    gpt2, small, wide = (str(write_folder(shape, folder / f"{shape}-{kind}", kind))
                         for shape, kind in (("gpt2-124m", "float32"), ("llama-52m", "float32"), ("llama-52m", "bfloat16")))
    of = "training_config.load_checkpoint="
    full, base = [of + gpt2, *mock(512)], [of + small, *mock(512)]
    attention = [*LORA[:3], "lora_config.target_modules=[q_proj, v_proj]"]
    # All weights but one vector of the first layer are frozen: the backward pass is that of LoRA without the adapters.
    through = [*full, "training_config.trainable_parameters=['decoder.layers.0.input_layernorm.weight']"]
    yield "LoRA of all linear layers over the full step, GPT-2 124M", "1.36", {}, full, [*full, *LORA]
    yield "LoRA of query and value over the full step, GPT-2 124M", "1.42", {}, full, [*full, *attention]
    yield "DoRA over LoRA, GPT-2 124M", ".93", {}, [*full, *LORA], [*full, *LORA, "lora_config.use_dora=true"]
    yield "LoRA over the same step without adapters, GPT-2 124M", ".92", {}, through, [*full, *LORA]
    for length in (512, 2048):
        as_bf16 = [of + wide, *mock(length), *LORA]
        yield f"base in bf16 over fp32, AVX2, T{length}", ".93", {"TESSERA_CPU": "avx2"}, [of + small, *mock(length), *LORA], as_bf16
        yield (f"base in 4 bits over bf16, AVX2, T{length}", ".88" if length == 512 else ".95", {"TESSERA_CPU": "avx2"}, as_bf16,
               [*as_bf16, "lora_config.qlora=true"])
    write_answers(folder)
    answers = [of + small, *LORA, "model_config.seq_length=512", "dataset_config.dataset_type=instruction", f"dataset_config.data_path={folder}/answers",
               "dataset_config.no_shuffle=true", "dataset_config.split=1,0,0"]
    sft = [*answers, "training_config.stage=sft", "dataset_config.batch_size=2"]
    dpo = [*answers, "training_config.stage=dpo", "dataset_config.is_pairwise_dataset=true", "dataset_config.batch_size=1"]
    yield "dpo over sft, reference run", ".63", {}, sft, dpo
    yield "dpo over sft, reference cached", ".95", {}, sft, [*dpo, "preference_config.cache_reference=true", CACHED]


def ratios(args, folder):
    for name, goal, environment, first, second in comparisons(folder):
        if args.only and not any(word in name for word in args.only):
            continue
        shares = []
        for _ in range(args.pairs):
            seconds = [train(args.build, folder, [*options, "training_config.num_threads=1", *args.set], args.steps, environment)[0]
                       for options in (first, second)]
            shares.append(seconds[0] / seconds[1])
        print(f"{name}: {statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}); goal {goal}", flush=True)


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
    parser.add_argument("--steps", type=int, default=6)
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
        else:
            ratios(args, pathlib.Path(place))


if __name__ == "__main__":
    main()
