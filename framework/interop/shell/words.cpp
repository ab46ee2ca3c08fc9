#include <algorithm>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/shell/parser.h"
#include "framework/interop/shell/script_evaluator.h"

// Words and quotes.

namespace tessera::shell {
namespace {

/// The flag of the word or line that `words` ends with begins here.
bool begins_flag(const std::vector<Part>& before, char next) {
  if (next != '-' && std::isalpha(static_cast<unsigned char>(next)) == 0) return false;
  if (before.empty()) return true;
  const auto& last = before.back();
  if (last.kind != Part::Kind::text && last.kind != Part::Kind::quoted) return false;
  return last.words.empty() || is_blank(last.words.back()) || last.words.back() == '\n';
}

}  // namespace

void Parser::add(std::vector<Part>& out, Part::Kind kind, std::string_view words) {
  if (out.empty() || out.back().kind != kind)
    out.push_back({.kind = kind, .words = "", .parameter = nullptr, .body = nullptr, .inside = {}});
  out.back().words += words;
}

void Parser::add_char(std::vector<Part>& out, Part::Kind kind) {
  if (ahead() == unknown_begin || ahead() == place_begin) {
    const auto end = end_of_mark(text_, i_);
    add(out, kind, text_.substr(i_, end - i_));
    i_ = end;
    return;
  }
  if (!inner_ && ahead() == '-' && begins_flag(out, ahead(1))) add(out, kind, place_mark(place()));
  add(out, kind, text_.substr(i_, 1));
  ++i_;
}

Word Parser::word(bool assigned) {
  Word out;
  out.line = place().line;
  do {
    if (tilde_ahead(out.parts, assigned)) tilde(out.parts);
  } while (word_piece(out));
  if (out.parts.empty() && i_ < text_.size() && is_meta(ahead())) fail("a word was expected here", i_);
  return out;
}

bool Parser::tilde_ahead(const std::vector<Part>& before, bool assigned) const {
  if (ahead() != '~') return false;
  if (before.empty()) return true;
  const auto& last = before.back();
  if (last.kind != Part::Kind::text || last.words.empty()) return false;
  if (assigned) return last.words.back() == ':';
  if (in_list_) return false;
  const auto equals = before[0].kind == Part::Kind::text ? before[0].words.find('=') : std::string::npos;
  if (equals == std::string::npos || equals == 0 || !is_name_start(before[0].words[0])) return false;
  const auto name = before[0].words.substr(0, equals);
  if (!std::all_of(name.begin(), name.end(), is_name_char)) return false;
  return last.words.back() == ':' || (before.size() == 1 && equals + 1 == last.words.size());
}

void Parser::tilde(std::vector<Part>& out) {
  const auto begin = i_;
  auto end = i_ + 1;
  while (end < text_.size() && !is_meta(text_[end]) && std::string_view("/:\"'$`\\}").find(text_[end]) > 7) ++end;
  const auto words = text_.substr(begin, end - begin);
  Part piece{
      .kind = Part::Kind::parameter, .words = std::string(words), .parameter = nullptr, .body = nullptr, .inside = {}};
  const auto parameter = std::make_shared<ParameterExpansion>();
  parameter->name = words == "~" ? "HOME" : words == "~+" ? "PWD" : "OLDPWD";
  piece.parameter = parameter;
  if (words != "~" && words != "~+" && words != "~-") piece.kind = Part::Kind::stream;
  Part quoted{.kind = Part::Kind::group, .words = "", .parameter = nullptr, .body = nullptr, .inside = {piece}};
  out.push_back(std::move(quoted));
  i_ = end;
}

void Parser::group_of_patterns(Word& out) {
  const Deeper deeper(*this);
  int open = 0;
  do {
    if (ended() || ahead() == '\n') fail("')' is missing, for the pattern that begins here", i_);
    open += (ahead() == '(') - (ahead() == ')');
    if (is_meta(ahead()))
      add_char(out.parts, Part::Kind::text);
    else
      word_piece(out);
  } while (open > 0);
}

bool Parser::word_piece(Word& out) {
  const char c = ahead();
  if (ended()) return false;
  if (c == '<' || c == '>') {
    if (const auto end = placeholder_ahead(); end != 0) {
      std::string words(text_.substr(i_, end - i_));
      remark(text("'", words, "' is read as one word to be filled in; Bash would redirect"));
      std::replace(words.begin(), words.end(), ' ', '_');
      add(out.parts, Part::Kind::quoted, words);
      i_ = end;
      return true;
    }
    if (ahead(1) != '(' || !out.parts.empty()) return false;
    commands(out.parts, Part::Kind::stream);
    return true;
  }
  if (c == '(' && !out.parts.empty() && out.parts.back().kind == Part::Kind::text &&
      std::string_view("?*+@!").find(out.parts.back().words.back()) < 5) {
    if (parentheses_ahead() != 0) {
      group_of_patterns(out);
      return true;
    }
  }
  if (is_meta(c)) return false;
  if (c == '\\') {
    if (ahead(1) == '\n') {
      i_ += 2;
      return !ended() && !is_blank(ahead());
    }
    if (blanks_to_line_end(i_ + 1) != 0) return false;
    ++i_;
    if (!ended()) add_char(out.parts, Part::Kind::quoted);
  } else if (c == '\'') {
    single_quotes(out.parts);
  } else if (c == '"') {
    double_quotes(out.parts);
  } else if (c == '`') {
    backticks(out.parts);
  } else if (c == '$') {
    dollar(out.parts, false);
  } else {
    add_char(out.parts, Part::Kind::text);
  }
  return true;
}

Word Parser::word_until(std::string_view stops, bool in_quotes) {
  const Deeper deeper(*this);
  Word out;
  out.line = place().line;
  const auto begin = i_;
  for (int open = 0; !ended() && (open > 0 || stops.find(ahead()) == std::string_view::npos);) {
    if (stops == "]") open += (ahead() == '[') - (ahead() == ']');  // A[B[0]]
    if (in_quotes) {
      if (!quoted_piece(out.parts, "$`\"\\}/")) add_char(out.parts, Part::Kind::quoted);
    } else if (is_meta(ahead())) {
      add_char(out.parts, Part::Kind::text);
    } else if (ahead() == '\\' && blanks_to_line_end(i_ + 1) != 0) {
      ++i_;
    } else {
      word_piece(out);
    }
  }
  if (ended()) fail(text("'", stops.back(), "' is missing, for what begins here"), begin);
  return out;
}

Word Parser::regular_expression() {
  Word out;
  out.line = place().line;
  for (int open = 0; !ended() && ahead() != '\n' && (open > 0 || !is_blank(ahead()));) {
    if (ahead() == '(') ++open;
    if (ahead() == ')') --open;
    if (ahead() == '\\' && i_ + 1 < text_.size() && ahead(1) != '\n') {  // \. and \1 reach the library
      add(out.parts, Part::Kind::text, text_.substr(i_, 2));
      i_ += 2;
    } else if (is_meta(ahead())) {
      add_char(out.parts, Part::Kind::text);
    } else if (!word_piece(out)) {
      break;
    }
  }
  return out;
}

void Parser::single_quotes(std::vector<Part>& out) {
  const auto begin = i_, end = text_.find('\'', i_ + 1);
  if (end == std::string_view::npos) fail("the quote ' that begins here is not closed", begin);
  add(out, Part::Kind::quoted, "");
  for (++i_; i_ < end;) add_char(out, Part::Kind::quoted);
  i_ = end + 1;
}

void Parser::double_quotes(std::vector<Part>& out) {
  const Deeper deeper(*this);
  const auto begin = i_++;
  std::vector<Part> inside;
  while (!ended() && ahead() != '"')
    if (!quoted_piece(inside, "$`\"\\")) add_char(inside, Part::Kind::quoted);
  if (ended()) fail("the quote \" that begins here is not closed", begin);
  ++i_;
  out.push_back(
      {.kind = Part::Kind::group, .words = "", .parameter = nullptr, .body = nullptr, .inside = std::move(inside)});
}

bool Parser::quoted_piece(std::vector<Part>& out, std::string_view escapable) {
  if (ahead() == '\\') {
    if (ahead(1) == '\n') {
      i_ += 2;
    } else if (blanks_to_line_end(i_ + 1) != 0) {
      remark("blanks after the backslash at the end of the line: read as if the backslash joined the lines");
      ++i_;
    } else if (escapable.find(ahead(1)) != std::string_view::npos && ahead(1) != '\0') {
      ++i_;
      add_char(out, Part::Kind::quoted);
    } else {
      return false;
    }
    return true;
  }
  if (ahead() == '`') {
    backticks(out);
    return true;
  }
  if (ahead() == '"' && escapable.find('}') != std::string_view::npos) {  // in an argument of ${...}
    double_quotes(out);
    return true;
  }
  if (ahead() == '$') {
    dollar(out, true);
    return true;
  }
  return false;
}

void Parser::escaped_c(std::vector<Part>& out) {
  const auto begin = i_;
  std::string words;
  for (i_ += 2; ahead() != '\''; ++i_) {
    if (ended()) fail("the quote $' that begins here is not closed", begin);
    words += ahead();
    if (ahead() == '\\' && i_ + 1 < text_.size()) words += text_[++i_];
  }
  ++i_;
  words = unescaped(words, Escapes::dollar);
  words = words.substr(0, words.find('\0'));
  for (auto& c : words)
    if (!inner_ && c >= unknown_begin && c <= place_end) c = ' ';  // a forged mark
  add(out, Part::Kind::quoted, words);
}

std::size_t Parser::placeholder_ahead() const {
  if (ahead() != '<' || ended()) return 0;
  const auto first = static_cast<unsigned char>(ahead(1));
  if (std::isalpha(first) == 0 && first != '_' && first < 0x80) return 0;
  constexpr std::size_t longest = 100;
  const auto near = text_.substr(i_, longest);
  const auto stop = near.find_first_of("<>\n\"'$;|&()`", 1);
  if (stop == std::string_view::npos || near[stop] != '>' || is_blank(near[stop - 1])) return 0;
  return i_ + stop + 1;
}

std::size_t Parser::parentheses_ahead() const {
  int open = 0;
  for (auto i = i_; i < text_.size() && text_[i] != '\n'; ++i) {
    if (text_[i] == '(') ++open;
    if (text_[i] == ')' && --open == 0) return i + 1 == text_.size() || is_meta(text_[i + 1]) || i > i_ + 1 ? i + 1 : 0;
  }
  return 0;
}

Word Parser::all_quoted() {
  Word out;
  out.line = at_.line;
  while (!ended())
    if (!quoted_piece(out.parts, "$`\\")) add_char(out.parts, Part::Kind::quoted);
  return out;
}

}  // namespace tessera::shell
