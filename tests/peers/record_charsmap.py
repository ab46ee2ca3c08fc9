"""Record how `tokenizers`' Precompiled normaliser treats each code point and random texts, for tests/data/charsmap_test.cpp.

    python3 record_charsmap.py ../data/unicode [another.model count seed]

Needs what measure_graphemes.py needs. Writes charsmap.json: a text map of SentencePiece (base64), random texts and what they become, and
for some frames around each code point the sums of record_unicode.py. With a model of SentencePiece: prints instead, as the same
JSON, random texts under its own map.
"""
import base64
import json
import random
import sys
import unicodedata

import measure_graphemes
import record_unicode
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

FRAMES = ["a{}", "{}", "\u00a9\u200d{}", "{}\u0915\u0300", "\u0915{}\u0915\u0300", "\u0915{}\u094d\u0915\u0300", "\u0600{}a"]


def rules():
    """Full-width and ligature letters, marks that vanish, blanks, composed letters, texts of several characters."""
    found = {"a": "b", "\u00a9": "b", "\u0915": "b", "\r": " ", "\n": " ", "\t": " ", "\u00ad": "", "\u200b": "", "e\u0301": "\u00e9",
             "ab": "", "abc": "xyz", "\u3042\u3099": "!", "\u1100\u1161": "\uac00", "\U0001f1e6": "flag", "\u0301\u0301": "2"}
    for code in [*range(0xFF01, 0xFF5F), *range(0xFB00, 0xFB07), *range(0x2460, 0x2480), *range(0xA0, 0xC0)]:
        form = unicodedata.normalize("NFKC", chr(code))
        if form != chr(code):
            found[chr(code)] = form
    return found


def random_texts(count, seed):
    rng = random.Random(seed)
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    marks = [c for c in known if unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf")]
    pools = [list("abce \r\n\t\0"), list(rules()), marks, marks, list("\u0915\u094d\u0937\u0300\u0301\u200d\u00a9\u00ae\U0001f468\ufe0f"),
             [chr(c) for c in range(0x1F1E6, 0x1F200)], [chr(c) for c in (*range(0x1100, 0x1200), *range(0xAC00, 0xAC60))],
             [c for c in known if unicodedata.normalize("NFKC", c) != c], list("\u0600\u06dd\u110bd\u08e2"), known]
    for _ in range(count):
        chosen = [rng.choice(pools) for _ in range(rng.randrange(1, 4))]
        yield "".join(rng.choice(rng.choice(chosen)) for _ in range(rng.randrange(1, 14)))


def main():
    if len(sys.argv) > 2:
        proto = sentencepiece_model_pb2.ModelProto()
        with open(sys.argv[2], "rb") as file:
            proto.ParseFromString(file.read())
        blob = proto.normalizer_spec.precompiled_charsmap
    else:
        blob = measure_graphemes.blob_of("/tmp/record_charsmap.tsv", rules())
    norm = normalizers.Precompiled(blob).normalize_str
    count, seed = (int(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 4 else (500, 15)
    recorded = {"map": base64.b64encode(blob).decode(), "texts": [[text, norm(text)] for text in random_texts(count, seed)]}
    if len(sys.argv) > 2:
        print(json.dumps(recorded, ensure_ascii=False))
        return
    recorded["frames"] = [[frame, record_unicode.sums(lambda code: norm(frame.format(chr(code))).encode() + b"\xff")]
                          for frame in FRAMES]
    with open(sys.argv[1] + "/charsmap.json", "w", encoding="utf-8") as file:
        json.dump(recorded, file, ensure_ascii=False, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
