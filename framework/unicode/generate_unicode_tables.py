"""Write unicode_tables.h: categories, properties, case and decompositions of all code points, as the original tokenizers have them.

    python3 generate_unicode_tables.py measured.json > unicode_tables.h
    python3 generate_unicode_tables.py --graphemes graphemes.json > grapheme_tables.h

tests/peers/measure_unicode.py writes measured.json from the real programs, measure_graphemes.py graphemes.json. Each table is a text: a sequence of whole numbers,
each in base 64 with five bits a character, lowest first; the sixth bit says that more follow. unicode_code_points.cpp and
unicode_normal.cpp read them.
"""
import json
import sys

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co".split()
END = 0x110000


def spelt(numbers):
    text = []
    for number in numbers:
        while True:
            number, low = number >> 5, number & 31
            text.append(DIGITS[low + (32 if number else 0)])
            if not number:
                break
    return "".join(text)


def signed(number):
    return 2 * number if number >= 0 else -2 * number - 1


def of_ranges(ranges):
    """(code points left out, length) of each range."""
    numbers, at = [], 0
    for first, last in ranges:
        numbers += [first - at, last - first + 1]
        at = last + 1
    return numbers


def of_values(values, default):
    """(code points of the default, length, value) of each range of one other value."""
    numbers, at, begin = [], 0, 0
    while begin < END:
        end = begin + 1
        while end < END and values[end] == values[begin]:
            end += 1
        if values[begin] != default:
            numbers += [begin - at, end - begin, values[begin]]
            at = end
        begin = end
    return numbers


def categories(measured):
    values = [0] * END
    for name, ranges in measured["categories"].items():
        for first, last in ranges:
            values[first:last + 1] = [CATEGORIES.index(name)] * (last + 1 - first)
    values[0xD800:0xE000] = [CATEGORIES.index("Cs")] * 0x800
    return values


def changes(older, newer):
    """Where the older version has another category: (left out, length, the older category)."""
    same = -1
    return of_values([a if a != b else same for a, b in zip(older, newer)], same)


def decompositions(python):
    """For each code point (left out, twice the length plus 1 if the parts compose to it again, parts): a part is the difference
    to the part at the same position in the entry before. First the canonical ones, then the others."""
    canonical = {code: parts for code, parts in python["NFD"] if not 0xAC00 <= code < 0xD7A4}
    compatible = {code: parts for code, parts in python["NFKD"] if canonical.get(code) != parts and not 0xAC00 <= code < 0xD7A4}
    composes = {code for first, last in python["composes"] for code in range(first, last + 1)}
    tables = []
    for entries in (canonical, compatible):
        numbers, at, before = [], 0, [0] * 32
        for code in sorted(entries):
            parts = entries[code]
            again = entries is canonical and code in composes
            numbers += [code - at, 2 * len(parts) + again]
            numbers += [signed(part - old) for part, old in zip(parts, before)]
            before[:len(parts)] = parts
            at = code + 1
        tables.append(numbers)
    return tables


def lower(mapping):
    """Runs of (left out, count, distance from one to the next, difference). U+0130 becomes two code points: left out here."""
    pairs = [(code, parts[0] - code) for code, parts in mapping if len(parts) == 1]
    assert [code for code, parts in mapping if len(parts) > 1] == [0x130]
    numbers, at, i = [], 0, 0
    while i < len(pairs):
        step = 1
        if i + 1 < len(pairs) and pairs[i + 1][0] - pairs[i][0] <= 2:
            step = pairs[i + 1][0] - pairs[i][0]
        end = i + 1
        while end < len(pairs) and pairs[end][0] - pairs[end - 1][0] == step and pairs[end][1] == pairs[i][1]:
            end += 1
        numbers += [pairs[i][0] - at, end - i, step, signed(pairs[i][1])]
        at = pairs[end - 1][0] + 1
        i = end
    return numbers


def missing(all_codes, measured):
    """Ranges of the code points that the older tables do not have."""
    have = {code for code, _ in measured}
    ranges = []
    for code in sorted(code for code in all_codes if code not in have):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def check(python, tokenizers, tiktoken, regex):
    """What the tables below and the code that reads them rely on."""
    assert categories(tokenizers) == categories(tiktoken)
    assert tokenizers["han"] == tiktoken["han"] and tokenizers["whitespace_word"] == tiktoken["word"]
    for other in (tiktoken["space"], regex["space"], tokenizers["whitespace_space"], tokenizers["whitespace_split"]):
        assert tokenizers["space"] == other
    for form in ("NFD", "NFKD"):
        ours = {code: parts for code, parts in python[form]}
        assert all(ours[code] == parts for code, parts in tokenizers[form])
    assigned = categories(python)
    assert python["lower"] == [[code, to] for code, to in tokenizers["lower"] if assigned[code]]


def main():
    with open(sys.argv[-1], encoding="utf-8") as file:
        measured = json.load(file)
    if sys.argv[1] == "--graphemes":
        return write(graphemes(measured))
    python, tokenizers, regex = (measured[name] for name in ("python", "tokenizers", "regex"))
    check(python, tokenizers, measured["tiktoken"], regex)
    newest, middle, oldest = categories(regex), categories(tokenizers), categories(python)
    combining = [0] * END
    for code, (value,) in python["combining"]:
        combining[code] = value
    canonical, compatible = decompositions(python)
    tables = [
        ("category_18", of_values(newest, 0)),
        ("category_16_changes", changes(middle, newest)),
        ("category_14_changes", changes(oldest, newest)),
        ("white_space", of_ranges(regex["space"])),
        ("python_space", of_ranges(python["space"])),
        ("han", of_ranges(tokenizers["han"])),
        ("oniguruma_word", of_ranges(tokenizers["word"])),
        ("rust_word", of_ranges(tokenizers["whitespace_word"])),
        ("rust_numeric", of_ranges(tokenizers["digits"])),
        ("tokenizers_punctuation", of_ranges(tokenizers["punctuation"])),
        ("tokenizers_accent", of_ranges(tokenizers["accent"])),
        ("bert_accent", of_ranges(tokenizers["bert_accent"])),
        ("bert_removed", of_ranges(tokenizers["bert_removed"])),
        ("bert_chinese", of_ranges(tokenizers["bert_chinese"])),
        ("python_cased", of_ranges(python["cased"])),
        ("python_case_ignorable", of_ranges(python["case_ignorable"])),
        ("lower_17", lower(tokenizers["lower"])),
        ("combining_14", of_values(combining, 0)),
        ("combining_9", of_ranges(tokenizers["reordered"])),
        ("canonical_14", canonical),
        ("compatible_14", compatible),
        ("not_decomposed_9", of_ranges(missing([code for code, _ in python["NFKD"]], tokenizers["NFKD"]))),
    ]
    write(tables)


def graphemes(measured):
    """Classes of grapheme clusters; see grapheme.cpp."""
    names = "control extend incb_extend linker spacing_mark prepend l v t pictographic consonant".split()
    values = [0] * END
    for number, name in enumerate(names, 1):
        for first, last in measured[name]:
            values[first:last + 1] = [number] * (last + 1 - first)
    return [("grapheme_classes", of_values(values, 0))]


def write(tables):
    print("// Generated by generate_unicode_tables.py, which explains the form; do not edit.")
    print("#pragma once\n")
    print("#include <string_view>\n")
    print("namespace tessera::unicode::tables {\n")
    print("// clang-format off")
    for name, numbers in tables:
        text = spelt(numbers)
        print(f"inline constexpr std::string_view {name} =")
        lines = [text[i:i + 114] for i in range(0, len(text), 114)]
        print("\n".join(f'  "{line}"' for line in lines) + ";")
    print("// clang-format on\n")
    print("}  // namespace tessera::unicode::tables")



if __name__ == "__main__":
    main()
