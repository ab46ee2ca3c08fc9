#!/usr/bin/env python3
"""From picture files to patches: bench_images beside the PIL image processor of Transformers, one thread each, in turns.

    images.py BENCH_IMAGES FILE...

Needs a Python with torch, transformers (4.57: its Qwen2VLImageProcessor is the PIL one) and Pillow below 13. Prints for each file the
median processor time of both and their ratio, over ROUNDS alternating runs."""
import math
import re
import statistics
import subprocess
import sys
import time

ROUNDS, REPEAT = 5, 15
AREA = 262144  # image_max_pixels of MindSpeed-MM's example


def limited(path):
    """The limits before the processor, as MindSpeed-MM has them."""
    from PIL import Image
    picture = Image.open(path)
    if picture.width * picture.height > AREA:
        factor = math.sqrt(AREA / (picture.width * picture.height))
        picture = picture.resize((int(picture.width * factor), int(picture.height * factor)), resample=Image.NEAREST)
    return picture.convert("RGB")


def of_transformers(processor, path):
    times = []
    for _ in range(REPEAT):
        begin = time.process_time()
        processor(images=[limited(path)], return_tensors="np")
        times.append(1e3 * (time.process_time() - begin))
    return statistics.median(times)


def of_ours(program, path):
    out = subprocess.run([program, "--backend", "pil", "--repeat", str(REPEAT), path], check=True, capture_output=True, text=True).stdout
    return float(re.search(r": ([0-9.]+) ms processor time", out).group(1))


def main(program, files):
    import torch
    import transformers
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    torch.set_num_threads(1)
    processor = Qwen2VLImageProcessor(min_pixels=3136, max_pixels=12845056)
    for path in files:
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs.append(of_transformers(processor, path))
            ours.append(of_ours(program, path))
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"{path}: {a:.2f} ms, Transformers {transformers.__version__} with PIL {b:.2f} ms: {b / a:.2f} x")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
