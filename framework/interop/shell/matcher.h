#pragma once

#include <bitset>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Matching of file name patterns (pattern.cpp) and of regular expressions (expression.cpp), which have one syntax tree.

namespace tessera::shell {

/// A piece of a pattern. It matches bytes.
struct Piece {
  enum class Kind { set, sequence, choice, repeat, except, begin, end };
  Kind kind = Kind::sequence;
  std::bitset<256> set;       ///< set: the bytes that match
  std::vector<Piece> inside;  ///< sequence, choice: its parts; repeat, except: one
  int least = 0, most = -1;   ///< repeat; most -1: without limit
  int group = 0;              ///< number of the parentheses around it, from 1; 0: none
};

/// Charges work to the evaluation, and throws if there is too much of it.
using Spend = std::function<void(long)>;

/// ends[i]: a match of `piece` that begins at `from` may end before words[i]. Takes polynomial time.
std::vector<bool> match_ends(const Piece& piece, const std::string& words, std::size_t from, const Spend& spend);

/// Begin and end of a group in the words; nothing: it did not take part.
using Group = std::optional<std::pair<std::size_t, std::size_t>>;

/// The groups of the match in words[from, to) that POSIX prescribes. Nothing if that cannot be told: with | or with
/// repeated groups there may be several matches, of which the rules of POSIX choose one in ways that libraries differ
/// in.
std::optional<std::vector<Group>> groups_of(const Piece& piece, const std::string& words, std::size_t from,
                                            std::size_t to, int groups, const Spend& spend);

/// One byte of `set`; `ignore_case`: also the other case of its ASCII letters.
Piece one_of(const std::bitset<256>& set, bool ignore_case);
/// A file name pattern: * ? [a-z] [!a-z] [[:digit:]], ?(a|b) *(..) +(..) @(..) !(..), and \x for x itself.
Piece read_pattern(const std::string& pattern, bool ignore_case);
/// A POSIX extended regular expression, with the number of its groups. Throws ConfigError for a syntax error and for
/// what only some libraries understand (\b, \1).
struct Expression {
  Piece piece;
  int groups = 0;
};
Expression read_expression(const std::string& expression, bool ignore_case);

/// The set that begins with words[at] == '[': [a-z], [^[:digit:]]; `at` is moved past it. Nothing if it does not close.
/// In a pattern \x is x, and ! negates as ^ does.
std::optional<std::bitset<256>> read_set(const std::string& words, std::size_t& at, bool pattern);

}  // namespace tessera::shell
