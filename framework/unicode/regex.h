#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/range.h"
#include "framework/unicode/code_set.h"

namespace tessera::unicode {

/// A regular expression in Oniguruma's syntax, as `tokenizers` uses it to split text. Supported are literals, `.`, `^`,
/// `$`, `\A`, `\z`, alternation, groups (plain, `(?:...)`, `(?i:...)`, atomic `(?>...)`, named), lookahead `(?=...)`
/// and `(?!...)`, lookbehind of one character, character classes (nested, negated, with `&&`), `\s \d \w \h` and their
/// complements, `\p{...}`, and greedy, reluctant and possessive quantifiers. In `(?i:...)` only ASCII letters may
/// stand. Characters are classified by the Unicode version of `tokenizers` (characters.h).
class Regex {
 public:
  /// Throws ConfigError, naming the pattern and what is wrong, for a syntax error or an unsupported construct.
  explicit Regex(std::string_view pattern);
  /// The pattern that matches exactly `text`.
  static Regex literal(std::string_view text);

  /// One instruction of the compiled pattern.
  struct Step {
    enum class Kind : std::uint8_t {
      letter,     ///< the character `set`
      one,        ///< a character of class `set`
      many,       ///< `least` to `most` characters of class `set`: greedy, or possessive if `possessive`
      few,        ///< `least` to `most` characters of class `set`: reluctant
      split,      ///< try `next`, then `other`
      jump,       ///< continue at `other`
      ahead,      ///< (?=...) with its program at `next`; continue at `other`
      not_ahead,  ///< (?!...)
      atomic,     ///< (?>...)
      ahead_one,  ///< (?=[set])
      not_ahead_one,
      behind_one,  ///< (?<=[set])
      not_behind_one,
      line_begin,
      line_end,
      text_begin,
      text_end,
      mark,   ///< remember the position in counter `set`
      moved,  ///< continue at `other` if the position still equals counter `set`: ends loops that match nothing
      accept,
    };
    Kind kind;
    bool possessive = false;
    std::uint32_t set = 0, next = 0, other = 0;
    std::uint32_t least = 0, most = 0;
  };

  using Match = Range<std::size_t>;
  /// Finds the matches in a text from left to right, as `find_iter` of Oniguruma's Rust binding does: an empty match
  /// directly after the previous match is skipped. `regex` and `text` must outlive it.
  class Finder {
   public:
    Finder(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}
    /// The next match; nothing if there is none. Throws ConfigError if matching exceeds the limit of backtracking steps
    /// (10 million, plus 64 per byte).
    std::optional<Match> next();

   private:
    // An alternative not tried yet: continue at `program` from `at`. For a greedy or reluctant repetition, `at` moves
    // towards `limit` with each try.
    struct Frame {
      enum class Kind : std::uint8_t { plain, shrink, grow, counter } kind;
      std::uint32_t program;
      std::size_t at, limit;
    };
    bool run(std::uint32_t program, std::size_t at, std::size_t& end);
    bool resume(std::size_t base, std::uint32_t& program, std::size_t& at);
    bool repeat(const Step& step, std::uint32_t& program, std::size_t& at);
    void count();

    const Regex& regex_;
    std::string_view text_;
    std::size_t from_ = 0;
    std::optional<std::size_t> last_end_;
    std::vector<Frame> stack_;
    std::vector<std::size_t> counters_;
    std::uint64_t steps_ = 0;
  };

 private:
  friend class RegexCompiler;
  friend class Finder;
  Regex() = default;

  std::string pattern_;
  std::vector<Step> steps_;
  std::vector<CodeBits> sets_;
  std::uint32_t counters_ = 0;
  std::optional<CodeBits> first_;  // characters that a match can begin with; nothing if a match may be empty
};

}  // namespace tessera::unicode
