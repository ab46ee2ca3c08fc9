#include "framework/unicode/unicode_normal.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/unicode_tables.h"

namespace tessera::unicode {
namespace {

// Hangul syllables are computed: Unicode standard, section 3.12.
constexpr char32_t syllables = 0xAC00, leads = 0x1100, vowels = 0x1161, tails = 0x11A7;
constexpr char32_t lead_count = 19, vowel_count = 21, tail_count = 28, syllable_count = 11172;

bool is_syllable(char32_t code) { return code - syllables < syllable_count; }

struct Entry {
  std::uint32_t at = 0;      // in `parts`
  std::uint16_t length = 0;  // 0: no decomposition
  bool composes = false;     // the parts become the character again
};

// Full decompositions, not of Hangul syllables.
struct Decompositions {
  std::vector<Entry> entries{Entry{}};
  std::u32string parts;
  CodePointTable<std::uint16_t> canonical, compatible;  // number in `entries`; 0: none

  Decompositions() : canonical(read(tables::canonical_14)), compatible(read(tables::compatible_14)) {}

  std::u32string_view of(const Entry& entry) const { return std::u32string_view(parts).substr(entry.at, entry.length); }

  // The number of the entry of each code point. Each part is the difference to the part at its position one entry
  // before.
  std::vector<std::uint16_t> read(std::string_view table) {
    std::vector<std::uint16_t> numbers_of(end_of_code_points, 0);
    std::vector<std::int32_t> before(32, 0);
    TableReader reader(table);
    for (std::size_t code = 0; reader.more(); ++code) {
      code += reader.next();
      const auto length = reader.next();
      Entry entry{static_cast<std::uint32_t>(parts.size()), static_cast<std::uint16_t>(length / 2), length % 2 == 1};
      for (std::size_t i = 0; i < entry.length; ++i) {
        before[i] += reader.next_signed();
        parts += static_cast<char32_t>(before[i]);
      }
      numbers_of[code] = static_cast<std::uint16_t>(entries.size());
      entries.push_back(entry);
    }
    return numbers_of;
  }
};

const Decompositions& decompositions() {
  static const Decompositions all;
  return all;
}

std::uint64_t key(char32_t first, char32_t second) { return (std::uint64_t{first} << 32U) | second; }

// Pairs that compose: the last part of a full decomposition and the character that the parts before it compose to.
std::unordered_map<std::uint64_t, char32_t> make_compositions() {
  const auto& all = decompositions();
  std::unordered_map<std::u32string, char32_t> composed;
  std::vector<char32_t> composites;
  for (char32_t code = 0; code < end_of_code_points; ++code) {
    const auto& entry = all.entries[all.canonical.of(code)];
    if (entry.composes) {
      composed.emplace(all.of(entry), code);
      composites.push_back(code);
    }
  }
  std::unordered_map<std::uint64_t, char32_t> pairs;
  for (const auto code : composites) {
    const std::u32string parts(all.of(all.entries[all.canonical.of(code)]));
    const auto rest = parts.substr(0, parts.size() - 1);
    const auto first = composed.find(rest);
    if (rest.size() > 1 && first == composed.end()) continue;
    pairs.emplace(key(rest.size() == 1 ? rest[0] : first->second, parts.back()), code);
  }
  return pairs;
}

CodePointTable<std::uint8_t> make_combining() {
  std::vector<std::uint8_t> classes(end_of_code_points, 0);
  TableReader reader(tables::combining_14);
  for (std::size_t at = 0; reader.more();) {
    at += reader.next();
    const auto end = at + reader.next();
    const auto value = static_cast<std::uint8_t>(reader.next());
    while (at < end) classes[at++] = value;
  }
  return CodePointTable<std::uint8_t>(classes);
}

// What one of the two programs knows.
class Knowledge {
 public:
  explicit Knowledge(NormalizationRules whose)
      : old_(whose == NormalizationRules::tokenizers),
        all_(decompositions()),
        pairs_(compositions()),
        combining_(combining_14()),
        undecomposed_(set_of(old_ ? tables::not_decomposed_9 : std::string_view{})),
        marks_(set_of(old_ ? tables::combining_9 : std::string_view{})),
        stable_{stable(Form::nfc), stable(Form::nfd), stable(Form::nfkc), stable(Form::nfkd)} {}

  // Characters that stay as they are between others of this kind.
  const CodePointSet& stable_in(Form form) const { return stable_[static_cast<std::size_t>(form)]; }

  std::uint8_t combining(char32_t code) const { return old_ && !marks_.has(code) ? 0 : combining_.of(code); }

  void decompose(char32_t code, bool compatible, std::u32string& to) const {
    if (is_syllable(code)) {
      const auto number = code - syllables;
      to += leads + number / (vowel_count * tail_count);
      to += vowels + number % (vowel_count * tail_count) / tail_count;
      if (const auto tail = number % tail_count; tail > 0) to += tails + tail;
      return;
    }
    const auto& entry = entry_of(code, compatible);
    if (entry.length == 0)
      to += code;
    else
      to += all_.of(entry);
  }

  // 0: the two do not compose.
  char32_t composed(char32_t first, char32_t second) const {
    if (first - leads < lead_count && second - vowels < vowel_count)
      return syllables + ((first - leads) * vowel_count + (second - vowels)) * tail_count;
    if (is_syllable(first) && (first - syllables) % tail_count == 0 && second - tails - 1 < tail_count - 1)
      return first + (second - tails);
    const auto found = pairs_.find(key(first, second));
    return found == pairs_.end() || undecomposed_.has(found->second) ? 0 : found->second;
  }

 private:
  static const std::unordered_map<std::uint64_t, char32_t>& compositions() {
    static const auto pairs = make_compositions();
    return pairs;
  }
  static const CodePointTable<std::uint8_t>& combining_14() {
    static const auto classes = make_combining();
    return classes;
  }

  const Entry& entry_of(char32_t code, bool compatible) const {
    if (undecomposed_.has(code)) return all_.entries[0];
    const auto number = compatible ? all_.compatible.of(code) : 0;
    return all_.entries[number != 0 ? number : all_.canonical.of(code)];
  }

  CodePointSet stable(Form form) const {
    const bool composing = form == Form::nfc || form == Form::nfkc;
    const bool compatible = form == Form::nfkc || form == Form::nfkd;
    std::vector<std::uint8_t> member(end_of_code_points, 1);
    for (char32_t code = 0; code < end_of_code_points; ++code) {
      const auto& entry = entry_of(code, compatible);
      if (entry.length > 0 && !(composing && entry.composes)) member[code] = 0;
      if (combining(code) != 0) member[code] = 0;
      if (!composing && is_syllable(code)) member[code] = 0;
    }
    if (composing) {
      for (const auto& pair : pairs_) member[pair.first & 0xFFFFFFFFU] = 0;
      for (char32_t i = 0; i < vowel_count; ++i) member[vowels + i] = 0;
      for (char32_t i = 0; i < tail_count; ++i) member[tails + i] = 0;
    }
    return CodePointSet(member);
  }

  bool old_;
  const Decompositions& all_;
  const std::unordered_map<std::uint64_t, char32_t>& pairs_;
  const CodePointTable<std::uint8_t>& combining_;
  CodePointSet undecomposed_, marks_;
  CodePointSet stable_[4];
};

const Knowledge& knowledge(NormalizationRules whose) {
  if (whose == NormalizationRules::python) {
    static const Knowledge python(NormalizationRules::python);
    return python;
  }
  static const Knowledge tokenizers(NormalizationRules::tokenizers);
  return tokenizers;
}

// Marks behind one starter come in the order of their combining classes; equal ones keep theirs.
void reorder(const Knowledge& known, std::u32string& codes) {
  for (std::size_t at = 0; at < codes.size();) {
    if (known.combining(codes[at]) == 0) {
      ++at;
      continue;
    }
    auto end = at;
    while (end < codes.size() && known.combining(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(at), codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](char32_t a, char32_t b) { return known.combining(a) < known.combining(b); });
    at = end;
  }
}

// A character composes with the last starter, unless one between them has an equal or higher class or is a starter.
void compose(const Knowledge& known, std::u32string& codes) {
  constexpr auto none = std::u32string::npos;
  std::size_t starter = none, to = 0;
  unsigned highest = 0;  // class of the last character kept behind the starter
  bool between = false;  // there is such a character
  for (const auto code : codes) {
    const unsigned level = known.combining(code);
    if (starter != none && (!between || (highest != 0 && highest < level))) {
      if (const auto whole = known.composed(codes[starter], code); whole != 0) {
        codes[starter] = whole;
        continue;
      }
    }
    if (level == 0) {
      starter = to;
      between = false;
      highest = 0;
    } else {
      between = true;
      highest = level;
    }
    codes[to++] = code;
  }
  codes.resize(to);
}

bool ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

const CodePointTable<char32_t>& lower_table() {
  static const CodePointTable<char32_t> table = [] {
    std::vector<char32_t> lower(end_of_code_points, 0);
    TableReader reader(tables::lower_17);
    for (std::size_t at = 0; reader.more();) {
      at += reader.next();
      const auto count = reader.next(), step = reader.next();
      const auto difference = reader.next_signed();
      for (std::uint32_t i = 0; i < count; ++i, at += step)
        lower[at] = static_cast<char32_t>(static_cast<std::int32_t>(at) + difference);
      at = at - step + 1;
    }
    return CodePointTable<char32_t>(lower);
  }();
  return table;
}

void append_lower(std::string& text, char32_t code) {
  if (code == 0x130) {
    text += "i\xCC\x87";
    return;
  }
  const auto lower = lower_table().of(code);
  append_code_point(text, lower == 0 ? code : lower);
}

std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  for (auto& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

// A capital sigma at `at` ends a word: a cased letter stands before it and none behind it, looking through what case
// ignores.
bool final_sigma(std::u32string_view codes, std::size_t at) {
  const auto& cased = property(Property::python_cased);
  const auto& ignorable = property(Property::python_case_ignorable);
  auto before = at;
  while (before > 0 && ignorable.has(codes[before - 1])) --before;
  if (before == 0 || !cased.has(codes[before - 1])) return false;
  auto behind = at + 1;
  while (behind < codes.size() && ignorable.has(codes[behind])) ++behind;
  return behind == codes.size() || !cased.has(codes[behind]);
}

}  // namespace

std::u32string normalized(std::u32string_view codes, Form form, NormalizationRules whose) {
  const auto& known = knowledge(whose);
  const auto& stable = known.stable_in(form);
  if (std::all_of(codes.begin(), codes.end(),
                  [&](char32_t code) { return code >= end_of_code_points || stable.has(code); }))
    return std::u32string(codes);
  std::u32string parts;
  parts.reserve(codes.size() * 2);
  for (const auto code : codes) known.decompose(code, form == Form::nfkc || form == Form::nfkd, parts);
  reorder(known, parts);
  if (form == Form::nfc || form == Form::nfkc) compose(known, parts);
  return parts;
}

std::string normalized(std::string_view text, Form form, NormalizationRules whose) {
  if (ascii(text)) return std::string(text);
  return from_code_points(normalized(to_code_points(text), form, whose));
}

std::string lower_each(std::string_view text) {
  if (ascii(text)) return ascii_lower(text);
  std::string lower;
  lower.reserve(text.size());
  for (const auto code : to_code_points(text)) append_lower(lower, code);
  return lower;
}

std::string python_lower(std::string_view text) {
  if (ascii(text)) return ascii_lower(text);
  const auto codes = to_code_points(text);
  const auto& assigned = categories(Version::v14);
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t at = 0; at < codes.size(); ++at) {
    if (codes[at] == 0x3A3)
      append_code_point(lower, final_sigma(codes, at) ? 0x3C2 : 0x3C3);
    else if (assigned.of(codes[at]) == Category::cn)
      append_code_point(lower, codes[at]);
    else
      append_lower(lower, codes[at]);
  }
  return lower;
}

std::string python_without_accents(std::string_view text) {
  if (ascii(text)) return std::string(text);
  const auto& table = categories(Version::v14);
  std::string kept;
  for (const auto code : normalized(to_code_points(text), Form::nfd, NormalizationRules::python))
    if (table.of(code) != Category::mn) append_code_point(kept, code);
  return kept;
}

}  // namespace tessera::unicode
