"""Record how BERT's BasicTokenizer of Megatron-LM and tiktoken cut each code point from its neighbours, for tests/data/words_test.cpp.

    python3 record_words.py MEGATRON ../data/unicode

MEGATRON is a checkout of core_v0.12.1. words.json has the sums of record_unicode.py: of the words of each frame, a byte FF behind each, or of
the ids that `tiktoken` gives for it with a vocabulary of the bytes, "a" before and "b", " " and "/" behind or before each byte.
Needs what record_megatron_tokenizers.py needs.
"""
import json
import sys
from pathlib import Path

import record_megatron_tokenizers
import record_unicode
import tiktoken

BERT_FRAME, TIKTOKEN_FRAMES = "a{}B {}", ["a{}b {}", "{}A\n{}/", "A{}\u0301b{} "]


def main():
    module = record_megatron_tokenizers.megatron_tokenizers(Path(sys.argv[1]))
    basic = sys.modules["megatron.training.tokenizer.bert_tokenization"].BasicTokenizer
    recorded = {"bert_frame": BERT_FRAME}
    for name, lower in (("bert_lower", True), ("bert_cased", False)):
        cut = basic(do_lower_case=lower).tokenize
        recorded[name] = record_unicode.sums(
            lambda code: b"".join(w.encode() + b"\xff" for w in cut(BERT_FRAME.replace("{}", chr(code)))) + b"\xff")
    tokens = [bytes([i]) for i in range(256)]
    for pair in [bytes([i]) + end for end in (b"b", b" ", b"/", b"\n") for i in range(256)] + [b"a" + bytes([i]) for i in range(256)]:
        if pair not in tokens:
            tokens.append(pair)
    recorded["tiktoken"] = []
    for frame in TIKTOKEN_FRAMES:
        for name, pattern in (("v1", module.PATTERN_TIKTOKEN), ("v2", module.PATTERN_TIKTOKEN_V2)):
            encode = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks={t: i for i, t in enumerate(tokens)}, special_tokens={}).encode_ordinary
            recorded["tiktoken"].append([frame, name, record_unicode.sums(
                lambda code: b"".join(id.to_bytes(2, "little") for id in encode(frame.replace("{}", chr(code)))) + b"\xff")])
    with open(sys.argv[2] + "/words.json", "w", encoding="utf-8") as file:
        json.dump(recorded, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
