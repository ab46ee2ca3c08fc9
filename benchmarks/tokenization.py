#!/usr/bin/env python3
"""How fast does `tessera data preprocess` turn JSON lines into token files with GPT-2's tokenizer, and in how much memory?

Runs Tessera and, as far as they are installed, the peers in alternating processes, so that other load on the machine affects all of them, and
prints medians: seconds of wall time and of CPU time, MB/s, peak memory, and the ratio to Tessera (above 1: Tessera is faster). The output
of every program is compared with Tessera's, byte for byte. Peers:

    tokenizers  Hugging Face tokenizers: encode_batch of 1000 documents at a time, written with NumPy
    gigatoken   the steps of tools/preprocess_data_fast.py of Megatron-LM's main branch: encode_files, eod inserted with NumPy, written
    megatron    tools/preprocess_data.py of a checkout of Megatron-LM, on the first --megatron-mb of the corpus, compared by MB/s

    benchmarks/tokenization.py --build build/release --vocab-file VOCAB --merge-file MERGES [--python PYTHON_WITH_PEERS]
                           [--megatron CHECKOUT --megatron-python PYTHON_WITH_TORCH] [--mb 200] [--rounds 3] [--work DIR]

Corpora: `bible` (passages of `bible -f` of the Debian package bible-kjv), and `web` (random words of that text between numbers, URLs, code,
emoji and nine other scripts).
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--vocab-file", required=True)
parser.add_argument("--merge-file", required=True)
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--megatron")
parser.add_argument("--megatron-python")
parser.add_argument("--megatron-mb", type=float, default=20)
parser.add_argument("--mb", type=float, default=200)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--corpora", nargs="*", default=["bible", "web"])
parser.add_argument("--work", help="folder for corpora and outputs; kept [a temporary one]")
args = parser.parse_args()

SCRIPTS = [(0x4E00, 0x9FA5), (0x3041, 0x3096), (0xAC00, 0xD7A3), (0x0410, 0x044F), (0x0391, 0x03C9), (0x0627, 0x064A), (0x05D0, 0x05EA),
           (0x0905, 0x0939), (0x0E01, 0x0E2E)]

TOKENIZERS = """
import json, sys, numpy
from tokenizers import ByteLevelBPETokenizer
tokenizer = ByteLevelBPETokenizer(sys.argv[1], sys.argv[2])
out = open(sys.argv[4], "wb")
def put(texts):
    for one in tokenizer.encode_batch(texts):
        if one.ids:
            out.write(numpy.array(one.ids + [50256], dtype=numpy.uint16).tobytes())
texts = []
for line in open(sys.argv[3], encoding="utf-8"):
    texts.append(json.loads(line)["text"])
    if len(texts) == 1000:
        put(texts)
        texts = []
put(texts)
"""

GIGATOKEN = """
import sys, tempfile, numpy, awkward
import gigatoken
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
made = Tokenizer(models.BPE.from_file(sys.argv[1], sys.argv[2]))
made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    made.save(file.name)
    tokenizer = gigatoken.Tokenizer(file.name)
documents = tokenizer.encode_files(gigatoken.JsonlFileSource([sys.argv[3]], "text"))
with open(sys.argv[4], "wb") as out:
    for first in range(0, len(documents), 1_000_000):
        chunk = documents[first : first + 1_000_000]
        flat = numpy.asarray(awkward.flatten(chunk), dtype=numpy.uint16)
        ends = numpy.cumsum(numpy.asarray(awkward.num(chunk, axis=1)))
        out.write(numpy.insert(flat, ends, 50256).astype(numpy.uint16, copy=False).tobytes())
"""


def corpus(name, work):
    path = work / f"{name}_{args.mb:g}.jsonl"
    if path.exists():
        return path
    verses = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.splitlines()
    rng = random.Random(5)

    def passage():
        first = rng.randrange(len(verses) - 60)
        return "\n".join(verses[first : first + rng.randint(3, 60)])

    words = " ".join(verses).split()

    def web():
        parts = []
        for _ in range(rng.randint(1, 25)):
            kind = rng.randrange(12)
            if kind < 6:
                parts.append(" ".join(rng.choices(words, k=rng.randint(5, 80))))
            elif kind == 6:
                parts.append(f"https://www.{rng.choice(words).lower()}.org/{rng.getrandbits(40):x}?page={rng.randrange(10**6)}")
            elif kind == 7:
                parts.append("".join(f"    if x[{rng.randrange(99)}] != {rng.random():.6f}:\n\treturn self.{rng.choice(words).lower()}_{i}\n" for i in range(4)))
            elif kind == 8:
                parts.append(f"{rng.randrange(10**9):,} {chr(rng.randrange(0x1F300, 0x1F64F))} \u2014 \u201c{rng.choice(words)}\u201d\u2026")
            else:
                low, high = rng.choice(SCRIPTS)
                parts.append(" ".join("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 9))) for _ in range(rng.randint(3, 30))))
        return rng.choice(["\n", " ", "\n\n"]).join(parts)

    make = passage if name == "bible" else web
    unfinished = path.with_suffix(".unfinished")
    with open(unfinished, "w", encoding="utf-8") as file:
        size = 0
        while size < args.mb * 1e6:
            line = json.dumps({"text": make(), "id": size}, ensure_ascii=rng.random() < 0.2) + "\n"
            file.write(line)
            size += len(line.encode())
    unfinished.rename(path)
    return path


def corpus_of_child(name, work):
    """The same, made by a child: the peak memory of a process begins with that of its parent."""
    child = os.fork()
    if child == 0:
        try:
            corpus(name, work)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(f"the corpus {name} cannot be made")
    return corpus(name, work)


def measured(command, environment=None):
    """Wall seconds, CPU seconds, peak memory in MB of the largest process."""
    before = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    told = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{told}")
    return time.perf_counter() - before, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def can_import(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def same(one, other):
    with open(one, "rb") as a, open(other, "rb") as b:
        while True:
            x, y = a.read(1 << 20), b.read(1 << 20)
            if x != y:
                return False
            if not x:
                return True


def compare(name, work):
    path = corpus_of_child(name, work)
    model = ["--vocab-file", args.vocab_file, "--merge-file", args.merge_file]
    ours = work / "ours"

    def tessera(source, threads=args.threads):
        return [pathlib.Path(args.build) / "framework" / "tessera", "data", "preprocess", "--input", source, "--output-prefix", ours, "--append-eod",
                "--workers", threads, *model]

    programs = {"tessera": (tessera(path), path), "tessera, 1 worker": (tessera(path, 1), path)}
    threads = {**os.environ, "RAYON_NUM_THREADS": str(args.threads), "TOKENIZERS_PARALLELISM": "true"}
    for peer, code in (("tokenizers", TOKENIZERS), ("gigatoken", GIGATOKEN)):
        if all(can_import(args.python, module) for module in (peer, "numpy")):
            programs[peer] = ([args.python, "-c", code, args.vocab_file, args.merge_file, path, work / f"{peer}.bin"], path)
        else:
            print(f"skipped: {args.python} cannot import {peer} and numpy")
    if args.megatron:
        small = path.with_suffix(".small.jsonl")
        with open(path, "rb") as source, open(small, "wb") as out:
            for line in source:
                if out.tell() > args.megatron_mb * 1e6:
                    break
                out.write(line)
        programs["megatron"] = ([args.megatron_python or args.python, pathlib.Path(args.megatron) / "tools" / "preprocess_data.py", "--input", small, "--output-prefix",
                                 work / "megatron", "--append-eod", "--workers", args.threads, "--tokenizer-type", "GPT2BPETokenizer", *model], small)
    results = {peer: [] for peer in programs}
    for round_ in range(args.rounds):
        for peer, (command, source) in programs.items():
            wall, cpu, memory = measured(command, threads)
            size = source.stat().st_size / 1e6
            results[peer].append((wall, cpu, memory, size))
            if round_ == 0 and peer in ("tokenizers", "gigatoken") and not same(work / f"{peer}.bin", work / "ours_text_document.bin"):
                print(f"{peer}: DIFFERENT tokens")
            if round_ == 0 and peer == "megatron":
                measured(tessera(small))
                if not all(same(work / f"megatron_text_document.{end}", work / f"ours_text_document.{end}") for end in ("bin", "idx")):
                    print("megatron: DIFFERENT files")
    print(f"\n{name}: {path.stat().st_size / 1e6:.0f} MB, {args.threads} threads, median of {args.rounds}")
    print(f"{'':20}{'wall s':>9}{'CPU s':>9}{'MB/s':>9}{'memory MB':>11}{'ratio, wall':>13}{'ratio, CPU':>12}")
    rates = {}
    for peer, runs in results.items():
        wall, cpu, memory, size = (statistics.median(column) for column in zip(*runs))
        rates[peer] = (size / wall, size / cpu)
        ratios = [ours_ / theirs for ours_, theirs in zip(rates["tessera"], rates[peer])]
        cpu_text = f"{cpu:9.2f}" if peer != "megatron" else f"{'':9}"  # its workers are other processes
        ratio_text = f"{ratios[1]:12.1f}" if peer != "megatron" else ""
        print(f"{peer:20}{wall:9.2f}{cpu_text}{size / wall:9.1f}{memory:11.0f}{ratios[0]:13.1f}{ratio_text}")


for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
    if line.startswith("model name"):
        print(line.split(":")[1].strip(), "-", os.cpu_count(), "CPUs, load", os.getloadavg()[0])
        break
with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(args.work or temporary)
    folder.mkdir(exist_ok=True, parents=True)
    for each in args.corpora:
        compare(each, folder)
