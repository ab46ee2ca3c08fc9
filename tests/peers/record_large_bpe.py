"""Record ids of `tokenizers`' ByteLevelBPETokenizer with a made vocabulary of 100,000 merges, for tests/data/large_bpe_test.cpp.

    python3 record_large_bpe.py ../data/large_bpe.jsonl [--texts 60] [--seed 1]

The test makes the same vocabulary by the same rule (merges_of): no file of it is kept. Needs by pip tokenizers 0.23.3.
"""
import argparse
import json
import random
import tempfile
import unicodedata

from tokenizers import ByteLevelBPETokenizer
from tokenizers.pre_tokenizers import ByteLevel

MERGES, HALF, ALPHABET = 100000, 4, "abcdefghijklmnopqrst\u0120"


def spelling():
    """The character of each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def merges_of(count):
    """Pairs of random tokens of at most HALF characters that make a new one. A blank only begins a token."""
    halves, known, merges, state = list(ALPHABET), set(ALPHABET), [], 1
    while len(merges) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        left = halves[(state >> 33) % len(halves)]
        right = halves[(state >> 8) % 2**25 % len(halves)]
        if right[0] == ALPHABET[-1] or left + right in known:
            continue
        merges.append((left, right))
        known.add(left + right)
        if len(left) + len(right) <= HALF:
            halves.append(left + right)
    return merges


def random_text(rng, known):
    parts = []
    for _ in range(rng.randrange(0, 12)):
        kind = rng.random()
        if kind < 0.7:
            parts.append("".join(rng.choice("abcdefghijklmnopqrst") for _ in range(rng.randrange(1, 25))))
        elif kind < 0.85:
            parts.append("".join(rng.choice(" \n\t'sdm0189.,-\u00e9\u4e2d") for _ in range(rng.randrange(1, 6))))
        else:
            parts.append("".join(rng.choice(known) for _ in range(3)))
        parts.append(rng.choice([" ", " ", " ", "", "\n"]))
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    merges, bytes_of = merges_of(MERGES), spelling()
    vocab = {bytes_of[b]: b for b in range(256)}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    vocab["<|endoftext|>"] = len(vocab)
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/vocab.json", "w", encoding="utf-8") as file:
            json.dump(vocab, file, ensure_ascii=False)
        with open(folder + "/merges.txt", "w", encoding="utf-8") as file:
            file.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
        tokenizer = ByteLevelBPETokenizer(folder + "/vocab.json", folder + "/merges.txt", add_prefix_space=False)
    # Letters that Unicode 16 (tokenizers) and 18 (the module regex, GPT2BPETokenizer) class alike.
    known = [chr(c) for c in range(0x20, 0x3100) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    rng = random.Random(given.seed)
    with open(given.out, "w", encoding="utf-8") as file:
        for _ in range(given.texts):
            text = random_text(rng, known)
            file.write(json.dumps([text, tokenizer.encode(text).ids], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
