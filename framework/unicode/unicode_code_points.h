#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::unicode {

inline constexpr char32_t end_of_code_points = 0x110000;

/// A table with a value for each code point, in pages of 128; equal pages are stored once.
template <class Value>
class CodePointTable {
 public:
  /// `values`: one for each of the 0x110000 code points.
  explicit CodePointTable(const std::vector<Value>& values) {
    std::map<std::array<Value, page_size>, std::uint16_t> known;
    for (std::size_t page = 0; page < pages; ++page) {
      std::array<Value, page_size> content;
      for (std::size_t i = 0; i < page_size; ++i) content[i] = values[page * page_size + i];
      const auto number = static_cast<std::uint16_t>(known.size());
      const auto [at, fresh] = known.emplace(content, number);
      if (fresh) values_.insert(values_.end(), content.begin(), content.end());
      page_[page] = at->second;
    }
  }

  /// The value of `code`; Value{} if it is not a code point.
  Value of(char32_t code) const {
    return code < end_of_code_points ? values_[page_[code / page_size] * page_size + code % page_size] : Value{};
  }

 private:
  static constexpr std::size_t page_size = 128, pages = end_of_code_points / page_size;
  std::array<std::uint16_t, pages> page_{};
  std::vector<Value> values_;
};

class CodePointSet {
 public:
  explicit CodePointSet(const std::vector<std::uint8_t>& member) : table_(member) {}
  bool has(char32_t code) const { return table_.of(code) != 0; }

 private:
  CodePointTable<std::uint8_t> table_;
};

/// General_Category. Numbers that are not code points have cn (not assigned).
enum class Category : std::uint8_t {
  cn,
  lu,
  ll,
  lt,
  lm,
  lo,
  mn,
  mc,
  me,
  nd,
  nl,
  no,
  pc,
  pd,
  ps,
  pe,
  pi,
  pf,
  po,
  sm,
  sc,
  sk,
  so,
  zs,
  zl,
  zp,
  cc,
  cf,
  cs,
  co
};

/// Unicode version of the categories: v14 of Python 3.11's `unicodedata`; v16 of the regular expressions of
/// `tokenizers` 0.23 (Oniguruma) and of `tiktoken` 0.14 (fancy-regex); v18 of Python's `regex` 2026.11.
enum class Version : std::uint8_t { v14, v16, v18 };

/// Made at the first call for its version; safe to share between threads.
const CodePointTable<Category>& categories(Version version);

/// A set of categories, one bit each.
using CategorySet = std::uint32_t;
constexpr CategorySet bit(Category category) { return CategorySet{1} << static_cast<unsigned>(category); }
constexpr CategorySet between(Category first, Category last) { return 2 * bit(last) - bit(first); }
inline constexpr CategorySet letters = between(Category::lu, Category::lo), marks = between(Category::mn, Category::me),
                             numbers = between(Category::nd, Category::no),
                             punctuation = between(Category::pc, Category::po),
                             symbols = between(Category::sm, Category::so),
                             separators = between(Category::zs, Category::zp),
                             others = bit(Category::cn) | between(Category::cc, Category::co);

/// The categories that a regular expression calls `name`: "L", "Lu", ... as in \p{Lu}; null for another name.
std::optional<CategorySet> category_set(std::string_view name);

/// Sets of code points that the original programs use.
enum class Property : std::uint8_t {
  white_space,             ///< \s of all regular expressions and Rust's char::is_whitespace; equal in all versions
  python_space,            ///< Python's str.isspace and str.split: also U+001C to U+001F
  han,                     ///< \p{Han}, Unicode 16
  oniguruma_word,          ///< \w of `tokenizers`' Split and Replace
  rust_word,               ///< \w of `tokenizers`' Whitespace and of `tiktoken`
  rust_numeric,            ///< `tokenizers`' Digits: category N of Unicode 17
  tokenizers_punctuation,  ///< `tokenizers`' Punctuation and BertPreTokenizer: ASCII's and category P of an old version
  tokenizers_accent,       ///< what `tokenizers`' StripAccents removes: category M of an old version
  bert_accent,             ///< what `tokenizers`' BertNormalizer removes after NFD: category Mn of an old version
  bert_removed,  ///< what its clean_text removes: U+0000, U+FFFD, controls; not tab, line feed, carriage return
  bert_chinese,  ///< what its handle_chinese_chars puts between blanks
  python_cased,  ///< Cased, and not Case_Ignorable, of Python 3.11: for its final sigma
  python_case_ignorable,  ///< Case_Ignorable of Python 3.11
};

/// Made at the first call for its property; safe to share between threads.
const CodePointSet& property(Property which);

/// UTF-8 to code points; a byte that is not UTF-8 becomes end_of_code_points + its value, which no table knows.
std::u32string to_code_points(std::string_view text);
/// The inverse: such code points become their bytes again.
std::string from_code_points(std::u32string_view codes);
void append_code_point(std::string& text, char32_t code);

/// Reads the numbers of a generated table (unicode_tables.h).
class TableReader {
 public:
  explicit TableReader(std::string_view text) : text_(text) {}
  bool more() const { return at_ < text_.size(); }
  std::uint32_t next();
  std::int32_t next_signed();

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

/// The set that a table of (left out, length) describes.
CodePointSet set_of(std::string_view table);

}  // namespace tessera::unicode
