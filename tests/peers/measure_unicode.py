"""Measure what Python, `regex`, `tokenizers` and `tiktoken` know of each code point, and write it as one JSON file.

    python3 measure_unicode.py measured.json

Needs Python 3.11 (Unicode 14) and by pip tokenizers 0.23.3, tiktoken 0.14.0 and regex 2026.11.15 (Unicode 18). Takes some
minutes. framework/unicode/generate_unicode_tables.py makes the tables of the program from the file,
record_unicode_digests.py the digests that a test compares.

Every value of a set is a list of [first, last]; of a map a list of [code point, [code points]].
"""
import json
import sys
import unicodedata

import regex
import tiktoken
from tokenizers import Regex, normalizers, pre_tokenizers

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def ranges(characters):
    found = []
    for code in sorted(map(ord, characters)):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def those(condition):
    return ranges(c for c in CHARACTERS if condition(c))


def changed(function):
    return [[ord(c), [ord(x) for x in function(c)]] for c in CHARACTERS if function(c) != c]


def by_category(matches):
    """{category: ranges}; `matches(name)` gives the characters of one category."""
    return {name: ranges(matches(name)) for name in CATEGORIES}


def matched_by_tiktoken(pattern):
    encoding = tiktoken.Encoding("bytes", pat_str=pattern, mergeable_ranks={bytes([i]): i for i in range(256)},
                                 special_tokens={})
    found = set()
    for at in range(0, len(CHARACTERS), 50000):
        found |= set(encoding.decode(encoding.encode_ordinary("".join(CHARACTERS[at:at + 50000]))))
    return found


def matched_by_tokenizers(pattern):
    replace = normalizers.Replace(Regex(pattern), "")
    found = set()
    for at in range(0, len(CHARACTERS), 5000):
        part = CHARACTERS[at:at + 5000]
        found |= set(part) - set(replace.normalize_str("".join(part)))
    return found


def of_python():
    # A capital sigma becomes a final one behind a cased letter; letters that case ignores do not count.
    sees_cased = lambda c: (" " + c + "\u03a3").lower().endswith("\u03c2")
    sees_through = lambda c: ("a" + c + "\u03a3").lower().endswith("\u03c2")
    categories = {c: unicodedata.category(c) for c in CHARACTERS}
    return {
        "categories": by_category(lambda name: (c for c in CHARACTERS if categories[c] == name)),
        "NFD": changed(lambda c: unicodedata.normalize("NFD", c)),
        "NFKD": changed(lambda c: unicodedata.normalize("NFKD", c)),
        "NFC": changed(lambda c: unicodedata.normalize("NFC", c)),
        "NFKC": changed(lambda c: unicodedata.normalize("NFKC", c)),
        "combining": [[ord(c), [unicodedata.combining(c)]] for c in CHARACTERS if unicodedata.combining(c)],
        "composes": those(lambda c: unicodedata.normalize("NFD", c) != c
                          and unicodedata.normalize("NFC", unicodedata.normalize("NFD", c)) == c),
        "lower": changed(str.lower),
        "cased": those(sees_cased),
        "case_ignorable": those(lambda c: sees_through(c) and not sees_cased(c)),
        "space": those(str.isspace),
    }


def of_tokenizers():
    splits = lambda splitter, count: those(lambda c: len(splitter.pre_tokenize_str("a" + c + "a")) == count)
    bert = lambda **on: normalizers.BertNormalizer(
        **{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **on})
    clean, accents, chinese = bert(clean_text=True), bert(strip_accents=True), bert(handle_chinese_chars=True)
    form = lambda name: getattr(normalizers, name)().normalize_str
    # Between marks of the classes 230 and 1 a starter stays, a mark does not.
    is_mark = lambda c: form("NFD")("\u0301" + c + "\u0334") != "\u0301" + c + "\u0334"
    return {
        "categories": by_category(lambda name: matched_by_tokenizers(r"\p{%s}" % name)),
        "space": ranges(matched_by_tokenizers(r"\s")),
        "word": ranges(matched_by_tokenizers(r"\w")),
        "han": ranges(matched_by_tokenizers(r"\p{Han}")),
        "whitespace_word": splits(pre_tokenizers.Whitespace(), 1),
        "whitespace_space": splits(pre_tokenizers.Whitespace(), 2),
        "whitespace_split": those(lambda c: not pre_tokenizers.WhitespaceSplit().pre_tokenize_str(c)),
        "digits": splits(pre_tokenizers.Digits(False), 3),
        "punctuation": splits(pre_tokenizers.Punctuation(), 3),
        "bert_removed": those(lambda c: clean.normalize_str(c) == ""),
        "bert_space": those(lambda c: clean.normalize_str(c) == " "),
        "bert_accent": those(lambda c: accents.normalize_str(c) == ""),
        "bert_chinese": those(lambda c: len(chinese.normalize_str(c)) == 3),
        "accent": those(lambda c: normalizers.StripAccents().normalize_str(c) == ""),
        "NFD": changed(form("NFD")),
        "NFKD": changed(form("NFKD")),
        "NFC": changed(form("NFC")),
        "NFKC": changed(form("NFKC")),
        "reordered": those(lambda c: form("NFD")(c) == c and is_mark(c)),
        "lower": changed(form("Lowercase")),
    }


def of_tiktoken():
    return {
        "categories": by_category(lambda name: matched_by_tiktoken(r"\p{%s}" % name)),
        "space": ranges(matched_by_tiktoken(r"\s")),
        "word": ranges(matched_by_tiktoken(r"\w")),
        "han": ranges(matched_by_tiktoken(r"\p{Han}")),
    }


def of_regex():
    names = {name: regex.compile(r"\p{%s}" % name) for name in CATEGORIES}
    return {
        "categories": by_category(lambda name: (c for c in CHARACTERS if names[name].match(c))),
        "space": those(regex.compile(r"\s").match),
    }


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"needs Python 3.11, which has Unicode 14; this Python has {unicodedata.unidata_version}")
    measured = {"python": of_python(), "tiktoken": of_tiktoken(), "regex": of_regex(), "tokenizers": of_tokenizers()}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(measured, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
