#include "framework/tokenizers/bert_words.h"

#include <algorithm>
#include <array>

#include "framework/base/error.h"
#include "framework/files/input_file.h"
#include "framework/unicode/unicode_code_points.h"
#include "framework/unicode/unicode_normal.h"
#include "framework/unicode/utf8.h"

namespace tessera::tokenizers {
namespace {

using unicode::bit;
using unicode::Category;

constexpr std::size_t most_characters = 200;  // of a word; a longer one is unknown

unicode::CategorySet category_of(char32_t code) { return bit(unicode::categories(unicode::Version::v14).of(code)); }

bool is_removed(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  return code == 0xFFFD || (category_of(code) & (bit(Category::cc) | bit(Category::cf))) != 0;
}

bool is_blank(char32_t code) { return unicode::property(unicode::Property::python_space).has(code); }

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  return (category_of(code) & unicode::punctuation) != 0;
}

// The blocks of BERT; not the ones that `tokenizers` has (its list begins one of them elsewhere).
bool is_ideograph(char32_t code) {
  constexpr std::array<std::pair<char32_t, char32_t>, 8> blocks = {{{0x4E00, 0x9FFF},
                                                                    {0x3400, 0x4DBF},
                                                                    {0x20000, 0x2A6DF},
                                                                    {0x2A700, 0x2B73F},
                                                                    {0x2B740, 0x2B81F},
                                                                    {0x2B820, 0x2CEAF},
                                                                    {0xF900, 0xFAFF},
                                                                    {0x2F800, 0x2FA1F}}};
  return std::any_of(blocks.begin(), blocks.end(),
                     [code](const auto& block) { return code >= block.first && code <= block.second; });
}

// Cuts at punctuation and at blanks, which normalisation may have made.
void split(std::string_view word, const std::function<void(std::string_view)>& take) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < word.size();) {
    const auto step = unicode::utf8_step(word, at);
    const auto code = step.valid ? step.code : unicode::end_of_code_points;
    const auto length = step.valid ? step.length : 1;
    const bool alone = is_punctuation(code);
    if (alone || is_blank(code)) {
      if (at > begin) take(word.substr(begin, at - begin));
      if (alone) take(word.substr(at, length));
      begin = at + length;
    }
    at += length;
  }
  if (begin < word.size()) take(word.substr(begin));
}

std::size_t count_characters(std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < word.size(); ++count) {
    const auto step = unicode::utf8_step(word, at);
    at += step.valid ? step.length : 1;
  }
  return count;
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  std::size_t at = text.find(what);
  if (at == std::string::npos) return;
  std::string to;
  std::size_t begin = 0;
  for (; at != std::string::npos; at = text.find(what, begin)) {
    to.append(text, begin, at - begin);
    to += with;
    begin = at + what.size();
  }
  to.append(text, begin);
  text = std::move(to);
}

// One after another over the whole text, as upstream.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& rule : rules) replace_all(text, rule.first, rule.second);
}

std::size_t leading_blanks(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto step = unicode::utf8_step(text, at);
    if (!step.valid || !is_blank(step.code)) break;
    at += step.length;
  }
  return at;
}

std::string_view without_trailing_blanks(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto step = unicode::utf8_step(text, at);
    at += step.valid ? step.length : 1;
    if (!step.valid || !is_blank(step.code)) end = at;
  }
  return text.substr(0, end);
}

// Python's str.strip().
std::string_view stripped(std::string_view line) {
  line.remove_prefix(leading_blanks(line));
  return without_trailing_blanks(line);
}

}  // namespace

void for_each_bert_word(std::string_view text, bool lower_case, const std::function<void(std::string_view)>& take) {
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    if (lower_case) word = unicode::python_without_accents(unicode::python_lower(word));
    split(word, take);
    word.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] > ' ' && text[at] < '\x7F') {
      word += text[at++];
      continue;
    }
    const auto step = unicode::utf8_step(text, at);
    const auto code = step.valid ? step.code : unicode::end_of_code_points;
    const auto part = text.substr(at, step.valid ? step.length : 1);
    at += part.size();
    if (is_removed(code)) continue;
    if (is_blank(code)) {
      end_word();
    } else if (code >= 0x3400 && is_ideograph(code)) {
      end_word();
      word = part;
      end_word();
    } else {
      word += part;
    }
  }
  end_word();
}

WordPieces::WordPieces(const std::string& vocab_file) {
  const auto content = files::read_input(vocab_file, "vocabulary");
  if (const auto at = unicode::first_not_utf8(content); at != std::string::npos)
    throw ConfigError(text(vocab_file, ":",
                           1 + std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(at), '\n'),
                           ": byte ", at, " of the file is not UTF-8; expected one token on each line"));
  std::int32_t id = 0;
  for (std::size_t at = 0; at < content.size(); ++id) {
    const auto end = std::min(content.find_first_of("\r\n", at), content.size());
    const std::string token(stripped(std::string_view(content).substr(at, end - at)));
    ids_[token] = id;
    longest_ = std::max(longest_, token.size());
    at = end + (content.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  if (id == 0) throw ConfigError(text(vocab_file, ": is empty; expected one token on each line"));
  for (const auto& entry : ids_) tokens_[entry.second] = entry.first;
}

void WordPieces::add(const std::string& token) {
  const auto id = static_cast<std::int32_t>(ids_.size());
  if (!ids_.emplace(token, id).second) return;
  tokens_[id] = token;
  longest_ = std::max(longest_, token.size());
}

std::int32_t WordPieces::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const std::string* WordPieces::token(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

bool WordPieces::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() > most_characters && count_characters(word) > most_characters) return false;
  const auto before = ids.size();
  std::string piece;
  for (std::size_t begin = 0; begin < word.size();) {
    piece = begin > 0 ? "##" : "";
    const auto prefix = piece.size();
    piece += word.substr(begin, longest_);
    std::int32_t id = -1;
    while (piece.size() > prefix && (id = find(piece)) < 0) {
      do piece.pop_back();
      while (piece.size() > prefix &&
             (static_cast<unsigned char>(word[begin + piece.size() - prefix]) & 0xC0U) == 0x80);
    }
    if (id < 0 || piece.size() == prefix) {
      ids.resize(before);
      return false;
    }
    ids.push_back(id);
    begin += piece.size() - prefix;
  }
  return true;
}

std::string BertTextJoiner::push(std::string_view token) {
  std::string next;
  if (!first_) next += ' ';
  next += token;
  replace_all(next, " ##", "");
  rest_ += next;
  first_ = false;
  if (!started_) {
    rest_.erase(0, leading_blanks(rest_));
    started_ = !rest_.empty();
  }
  // What stands before a blank is certain, unless an apostrophe beside that blank or more blanks may still be joined.
  for (auto at = rest_.rfind(' '); at != std::string::npos && at > 0; at = rest_.rfind(' ', at - 1)) {
    if (at + 1 >= rest_.size()) continue;
    const auto before = rest_[at - 1], behind = rest_[at + 1];
    if (before == '\'' || before == ' ' || behind == '\'' || behind == ' ') continue;
    auto text = rest_.substr(0, at);
    rest_.erase(0, at);
    clean_up(text);
    return text;
  }
  return "";
}

std::string BertTextJoiner::finish() {
  std::string text(without_trailing_blanks(rest_));
  *this = {};
  clean_up(text);
  return text;
}

}  // namespace tessera::tokenizers
