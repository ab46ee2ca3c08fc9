#!/usr/bin/env python3
"""What do checkpoints cost beside bare copies, other programs and other formats?

    python3 benchmarks/checkpoint.py BUILD_FOLDER [--folders /dev/shm DISK] [--pairs 9] [--python PYTHON_WITH_TORCH] [--only PART ...]

Prints, for GPT-2 124M with AdamW (1.5 GB), a part each:
  bare       in each folder: saving by 2 ranks over bare writes of the same bytes, and over dd with direct I/O; loading with all sums over bare reads;
             memory beyond the state
  peers      in the first folder: saving by 2 ranks over safetensors' save_file and torch.save of one process, and dcp.save of 2 gloo ranks
  formats    in the first folder: a conversion to Megatron-LM's torch_dist and torch over a change of the layout of our own checkpoint
  convert    in the last folder: the peak memory of each conversion of a model of 3 GB with its state and a vocabulary of 151,936 tokens, beyond
             that of the program itself; pages of mapped files are not counted

A ratio above 1 is in Tessera's favour. Ratios are of alternating pairs: of times ("wall"), and of what all processors worked ("processor"), which other
programs on the machine disturb less."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

PEER = """
import json, os, resource, sys, time
import torch
way, folder = sys.argv[1:]
ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
shapes = [(50304, 768), (1024, 768)] + 12 * [(2304, 768), (768, 768), (3072, 768), (768, 3072), (768, 1), (768, 1)]
state = {f"{kind}{i}": torch.rand(rows // ranks, columns) for i, (rows, columns) in enumerate(shapes) for kind in ("w", "m", "v")}
if way == "dcp.save":
    import torch.distributed as dist, torch.distributed.checkpoint as dcp
    dist.init_process_group("gloo")
    state = {f"{name}.{rank}": value for name, value in state.items()}
    save = lambda path: (dcp.save(state, checkpoint_id=path), dist.barrier())
elif way == "save_file":
    from safetensors.torch import save_file
    save = lambda path: save_file(state, path)
else:
    save = lambda path: torch.save(state, path)
for time_ in range(2):
    path = f"{folder}/peer{time_}"
    worked, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    save(path)
    taken, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
print("taken", json.dumps([taken, now.ru_utime + now.ru_stime - worked.ru_utime - worked.ru_stime]), flush=True)
"""
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
GPT2 = """training_config: {training_iters: 1, output_dir: run, eval_iters: 0, tensorboard: false}
model_config: {num_layers: %d, hidden_size: %d, num_attention_heads: 16, seq_length: 8, max_position_embeddings: 1024, vocab_size: %d}
optimizer_config: {optimizer_type: adamw}
dataset_config: {dataset_type: mock, batch_size: 1}
"""


def told(name, values):
    print(f"  {name}: {statistics.median(values):.2f} (median of {len(values)}, {min(values):.2f} to {max(values):.2f})", flush=True)


def ratios(name, ours, theirs):
    for clock in ("wall", "processor"):
        told(f"{name}, {clock}", [b / a for a, b in zip(ours[clock], theirs[clock])])


class Bench:
    def __init__(self, args):
        self.build, self.pairs, self.python = pathlib.Path(args.build).resolve(), args.pairs, args.python
        self.folders = [pathlib.Path(tempfile.mkdtemp(dir=folder)) for folder in args.folders]
        self.folder = self.folders[0]  # of the programs that run

    def end(self):
        for folder in self.folders:
            shutil.rmtree(folder)

    def native(self, folder, pairs, *more):
        """Figures by name."""
        lines = subprocess.run([*MPIRUN, self.build / "benchmarks/bench_checkpoint", folder, "--pairs", str(pairs), *more],
                               check=True, capture_output=True, text=True).stdout.splitlines()
        return {one["name"]: one for one in map(json.loads, lines)}

    def bare(self):
        for folder in self.folders:
            print(f"in {folder.parent}:")
            found = self.native(folder, self.pairs, *(["--no-dd"] if str(folder).startswith("/dev/shm") else []))
            ratios("save over bare writes", found["save"], found["bare write"])
            if "dd" in found:
                ratios("save over dd with direct I/O", found["save"], found["dd"])
            ratios("load over bare reads", found["load"], found["bare read"])
            for way in ("save", "load"):
                told(f"memory beyond the state, {way}, MiB", found[way]["extra"])

    def peer(self, way):
        words = [self.python, "-m", "torch.distributed.run", "--nproc_per_node=2", "--log_dir", str(self.folders[0] / "logs"), "--redirects", "0"]
        script = self.folders[0] / "peer.py"
        script.write_text(PEER)
        done = subprocess.run([*(words if way == "dcp.save" else [self.python]), script, way, self.folders[0]], check=True, capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        for left in self.folders[0].glob("peer?"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        taken = [json.loads(line.split("taken ")[1]) for line in done.stdout.splitlines() if "taken " in line]
        return max(wall for wall, _ in taken), sum(processor for _, processor in taken)

    def peers(self):
        if not self.python:
            return print("peers: give --python")
        for way in ("save_file", "torch.save", "dcp.save"):
            ours, theirs = {"wall": [], "processor": []}, {"wall": [], "processor": []}
            for _ in range(self.pairs):
                found = self.native(self.folders[0], 1, "--no-dd")["save"]
                shutil.rmtree(self.folders[0] / "iter_0000001")
                for clock, value in zip(("wall", "processor"), self.peer(way)):
                    ours[clock].append(found[clock][0])
                    theirs[clock].append(value)
            ratios(f"save over {way}", ours, theirs)

    def tessera(self, *words):
        """Seconds, processor seconds and peak memory in MiB."""
        began = time.monotonic()
        process = subprocess.Popen([self.build / "framework/tessera", *map(str, words)], cwd=self.folder, stdout=subprocess.DEVNULL)
        memory, peak, ended = pathlib.Path(f"/proc/{process.pid}/status"), 0, 0
        while not ended:
            peak = max([peak, *(int(line.split()[1]) for line in memory.read_text().splitlines() if line.startswith("RssAnon:"))])
            time.sleep(.002)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"failed: tessera {' '.join(map(str, words))}")
        return time.monotonic() - began, used.ru_utime + used.ru_stime, peak / 1024

    def trained(self, layers, width, tokens):
        (self.folder / "recipe.yaml").write_text(GPT2 % (layers, width, tokens))
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        self.tessera("train", "recipe.yaml")
        return next((self.folder / "run/checkpoints").glob("*iter_0000001"))

    def converted(self, *words):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        return self.tessera("checkpoint", *words, out)

    def formats(self):
        source = self.trained(12, 768, 50304)
        for way in ("torch_dist", "torch"):
            ours, theirs = {"wall": [], "processor": []}, {"wall": [], "processor": []}
            for _ in range(self.pairs):
                for into, words in ((theirs, ("reshard", source)), (ours, ("convert", "--from", "tessera", "--to", "megatron", "--ckpt-format", way, source))):
                    wall, processor, _ = self.converted(*words)
                    into["wall"].append(wall)
                    into["processor"].append(processor)
            ratios(f"{way} over our own format", ours, theirs)

    def convert(self):
        self.folder = self.folders[-1]
        source = self.trained(7, 1024, 151936)
        size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        print(f"conversions of {size / 1e9:.1f} GB, peak memory in MiB:")
        idle = self.tessera("checkpoint", "inspect", source)[2]
        kept = self.folder / "kept"
        for name, words in {"reshard": ("reshard", source),
                            "tessera to torch_dist": ("convert", "--from", "tessera", "--to", "megatron", "--ckpt-format", "torch_dist", source),
                            "torch_dist to tessera": ("convert", "--from", "megatron", "--to", "tessera", kept),
                            "tessera to torch": ("convert", "--from", "tessera", "--to", "megatron", "--ckpt-format", "torch", source),
                            "torch to tessera": ("convert", "--from", "megatron", "--to", "tessera", kept),
                            "tessera to hf": ("convert", "--from", "tessera", "--to", "hf", source),
                            "hf to tessera": ("convert", "--from", "hf", "--to", "tessera", kept)}.items():
            peak = self.converted(*words)[2]
            shutil.rmtree(kept, ignore_errors=True)
            (self.folder / "out").rename(kept)
            print(f"  {name}: {peak:.0f}, beyond the program {peak - idle:.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--folders", nargs="+", default=["/dev/shm", tempfile.gettempdir()])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--python")
    parts = ("bare", "peers", "formats", "convert")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    args = parser.parse_args()
    bench = Bench(args)
    try:
        for part in args.only:
            getattr(bench, part)()
    finally:
        bench.end()


if __name__ == "__main__":
    sys.exit(main())
