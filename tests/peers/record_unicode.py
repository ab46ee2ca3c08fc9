"""Record how the real programs treat each code point and random texts, for tests/unicode/unicode_test.cpp.

    python3 record_unicode.py measured.json ../data/unicode

measured.json: see measure_unicode.py, whose requirements hold here too. digests.json has one 32-bit FNV-1a sum (8 hexadecimal
digits) for each fact and each 0x8000 code points, surrogates left out: of a byte 0 or 1 for a set; of the two letters of a
category; of the UTF-8 text and a byte FF for a map. texts.jsonl has random texts in all forms.
"""
import json
import random
import sys
import unicodedata

from tokenizers import normalizers

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# One mark of each combining class, highest class first: a further mark sorts in among them.
MARKS = "".join(sorted({unicodedata.combining(chr(c)): chr(c) for c in range(0x3100, 0, -1)
                        if unicodedata.combining(chr(c)) and not unicodedata.decomposition(chr(c))
                        and c not in range(0x1DF6, 0x1DFB)}.values(), key=unicodedata.combining, reverse=True))


def sums(fact):
    found = []
    for begin in range(0, 0x110000, 0x8000):
        value = 0x811C9DC5
        for code in range(begin, begin + 0x8000):
            if 0xD800 <= code < 0xE000:
                continue
            for byte in fact(code):
                value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
        found.append(f"{value:08x}")
    return "".join(found)


def of_set(ranges):
    codes = {code for first, last in ranges for code in range(first, last + 1)}
    return sums(lambda code: bytes([code in codes]))


def of_map(pairs):
    to = {code: "".join(map(chr, parts)) for code, parts in pairs}
    return sums(lambda code: to.get(code, chr(code)).encode() + b"\xff")


def of_categories(categories):
    names = {code: name.encode() for name, ranges in categories.items() for first, last in ranges
             for code in range(first, last + 1)}
    return sums(lambda code: names.get(code, b"Cn"))


def random_texts(count):
    """Texts of letters, marks, composites and the parts of composites, from the tables of Python."""
    rng = random.Random(14)
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    composites = [c for c in known if unicodedata.normalize("NFD", c) != c and not "\uac00" <= c <= "\ud7a3"]
    pools = [[c for c in known if unicodedata.combining(c)], composites, [unicodedata.normalize("NFD", c) for c in composites],
             [c for c in known if unicodedata.normalize("NFKD", c) != c], list("aeiouAEIOU '"), list("\u03a3\u03a3a.:\u00ad\u0345 "),
             [chr(c) for c in range(0x1100, 0x1200)] + [chr(c) for c in range(0xAC00, 0xAC40)], known]
    for _ in range(count):
        yield "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, 12)))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        measured = json.load(file)
    digests = {}
    for program, facts in measured.items():
        for name, values in facts.items():
            if name == "categories":
                digests[f"{program} {name}"] = of_categories(values)
            elif name in FORMS or name == "lower":
                digests[f"{program} {name}"] = of_map(values)
            elif name not in ("combining", "composes", "reordered"):
                digests[f"{program} {name}"] = of_set(values)
    python = lambda form, text: unicodedata.normalize(form, text)
    tokenizers = lambda form, text: getattr(normalizers, form)().normalize_str(text)
    for name, normal in (("python", python), ("tokenizers", tokenizers)):
        digests[name + " order"] = sums(lambda code: normal("NFD", MARKS + chr(code)).encode() + b"\xff")
    with open(sys.argv[2] + "/digests.json", "w", encoding="utf-8") as file:
        json.dump({"marks": MARKS, **digests}, file, indent=1)
        file.write("\n")
    bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    with open(sys.argv[2] + "/texts.jsonl", "w", encoding="utf-8") as file:
        for text in random_texts(400):
            line = {"text": text, "python": [python(form, text) for form in FORMS],
                    "tokenizers": [tokenizers(form, text) for form in FORMS], "lower": text.lower(),
                    "lower_each": normalizers.Lowercase().normalize_str(text),
                    "accents": normalizers.StripAccents().normalize_str(text), "bert_accents": bert.normalize_str(text)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
