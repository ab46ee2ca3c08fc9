#include "framework/unicode/unicode_code_points.h"

#include "framework/unicode/unicode_tables.h"
#include "framework/unicode/utf8.h"

namespace tessera::unicode {
namespace {

std::uint32_t digit(char c) {
  if (c >= 'a') return static_cast<std::uint32_t>(c - 'a') + 26;
  if (c == '_') return 63;
  if (c >= 'A') return static_cast<std::uint32_t>(c - 'A');
  if (c >= '0') return static_cast<std::uint32_t>(c - '0') + 52;
  return 62;  // '-'
}

// Writes the ranges (left out, length, category) of `table` into `values`.
void apply_categories(std::string_view table, std::vector<Category>& values) {
  TableReader reader(table);
  for (std::size_t at = 0; reader.more();) {
    at += reader.next();
    const auto end = at + reader.next();
    const auto category = static_cast<Category>(reader.next());
    while (at < end) values[at++] = category;
  }
}

CodePointTable<Category> make_categories(Version version) {
  std::vector<Category> values(end_of_code_points, Category::cn);
  apply_categories(tables::category_18, values);
  if (version == Version::v16) apply_categories(tables::category_16_changes, values);
  if (version == Version::v14) apply_categories(tables::category_14_changes, values);
  return CodePointTable<Category>(values);
}

}  // namespace

std::uint32_t TableReader::next() {
  std::uint32_t number = 0;
  for (unsigned shift = 0; at_ < text_.size(); shift += 5) {
    const auto value = digit(text_[at_++]);
    number |= (value & 31U) << shift;
    if (value < 32) break;
  }
  return number;
}

std::int32_t TableReader::next_signed() {
  const auto number = next();
  const auto half = static_cast<std::int32_t>(number >> 1U);
  return (number & 1U) == 0 ? half : -half - 1;
}

CodePointSet set_of(std::string_view table) {
  std::vector<std::uint8_t> member(end_of_code_points, 0);
  TableReader reader(table);
  for (std::size_t at = 0; reader.more();) {
    at += reader.next();
    for (const auto end = at + reader.next(); at < end; ++at) member[at] = 1;
  }
  return CodePointSet(member);
}

const CodePointTable<Category>& categories(Version version) {
  switch (version) {
    case Version::v14: {
      static const auto table = make_categories(Version::v14);
      return table;
    }
    case Version::v16: {
      static const auto table = make_categories(Version::v16);
      return table;
    }
    default: {
      static const auto table = make_categories(Version::v18);
      return table;
    }
  }
}

std::optional<CategorySet> category_set(std::string_view name) {
  static const std::map<std::string_view, CategorySet> sets = [] {
    std::map<std::string_view, CategorySet> all = {{"L", letters},     {"M", marks},   {"N", numbers},
                                                   {"P", punctuation}, {"S", symbols}, {"Z", separators},
                                                   {"C", others}};
    constexpr std::string_view names = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
    for (std::size_t i = 0; i < names.size(); i += 2) all[names.substr(i, 2)] = CategorySet{1} << (i / 2);
    return all;
  }();
  const auto found = sets.find(name);
  return found == sets.end() ? std::nullopt : std::optional(found->second);
}

const CodePointSet& property(Property which) {
  switch (which) {
#define TESSERA_PROPERTY(name)                            \
  case Property::name: {                                  \
    static const CodePointSet set = set_of(tables::name); \
    return set;                                           \
  }
    TESSERA_PROPERTY(white_space)
    TESSERA_PROPERTY(python_space)
    TESSERA_PROPERTY(han)
    TESSERA_PROPERTY(oniguruma_word)
    TESSERA_PROPERTY(rust_word)
    TESSERA_PROPERTY(rust_numeric)
    TESSERA_PROPERTY(tokenizers_punctuation)
    TESSERA_PROPERTY(tokenizers_accent)
    TESSERA_PROPERTY(bert_accent)
    TESSERA_PROPERTY(bert_removed)
    TESSERA_PROPERTY(bert_chinese)
    TESSERA_PROPERTY(python_cased)
    TESSERA_PROPERTY(python_case_ignorable)
#undef TESSERA_PROPERTY
  }
  static const CodePointSet none{std::vector<std::uint8_t>(end_of_code_points, 0)};
  return none;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) {
      codes += first;
      ++at;
      continue;
    }
    const auto step = utf8_step(text, at);
    codes += step.valid ? step.code : end_of_code_points + first;
    at += step.valid ? step.length : 1;
  }
  return codes;
}

void append_code_point(std::string& text, char32_t code) {
  if (code < 0x80)
    text += static_cast<char>(code);
  else if (code < end_of_code_points)
    text += to_utf8(code);
  else
    text += static_cast<char>(code - end_of_code_points);
}

std::string from_code_points(std::u32string_view codes) {
  std::string text;
  text.reserve(codes.size() * 2);
  for (const auto code : codes) append_code_point(text, code);
  return text;
}

}  // namespace tessera::unicode
