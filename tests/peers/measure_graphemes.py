"""Measure grapheme clusters as `tokenizers`' Precompiled normaliser sees them (crate unicode-segmentation), as one JSON file.

    python3 measure_graphemes.py graphemes.json

Needs by pip: tokenizers 0.23.3, regex 2026.11.15, sentencepiece 0.2.3, protobuf. The normaliser replaces a cluster below six bytes as a
whole by what its first character becomes, so a mark that is lost belonged to the cluster. What that cannot show (classes that make no
difference in so short clusters, and controls) comes from `regex`.
"""
import io
import json
import sys

import regex
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def those(condition):
    found = []
    for code in (ord(c) for c in CHARACTERS if condition(c)):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def blob_of(path, rules):
    """precompiled_charsmap of the map {text: replacement}; `path` is used meanwhile."""
    with open(path, "w", encoding="utf-8") as file:
        for text, replacement in rules.items():
            file.write(" ".join(f"{ord(c):X}" for c in text) + "\t" + " ".join(f"{ord(c):X}" for c in replacement) + "\n")
    model, proto = io.BytesIO(), sentencepiece_model_pb2.ModelProto()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g"] * 20), model_writer=model, vocab_size=12, hard_vocab_limit=False,
        normalization_rule_tsv=path, minloglevel=2)
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def main():
    ka, virama, grave = "\u0915", "\u094d", "\u0300"
    norm = normalizers.Precompiled(blob_of(sys.argv[1] + ".tsv", {"a": "b", "\u00a9": "b", ka: "b"})).normalize_str
    joined = lambda c: norm("a" + c) == "b"
    spacing = regex.compile(r"\p{GCB=SpacingMark}")
    measured = {
        "extend": those(lambda c: joined(c) and not spacing.match(c) and c != "\u200d"),
        "spacing_mark": those(lambda c: joined(c) and spacing.match(c)),
        "prepend": those(lambda c: not joined(c) and norm(c + ka + grave).endswith(grave) and c != grave),
        "pictographic": those(lambda c: "\u200d" in norm("\u00a9\u200d" + c) and c != "\u200d" and not joined(c)),
        "linker": those(lambda c: norm(ka + c + ka + grave).endswith(grave) and joined(c)),
        "consonant": those(lambda c: norm(c + virama + ka + grave).endswith(grave)),
        "incb_extend": those(lambda c: norm(ka + c + virama + ka + grave).endswith(grave) and joined(c)),
    }
    for name, expression in (("control", r"[\p{GCB=Control}]"), ("l", r"\p{GCB=L}"), ("v", r"\p{GCB=V}"),
                             ("t", r"\p{GCB=T}")):
        measured[name] = those(regex.compile(expression).match)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(measured, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
