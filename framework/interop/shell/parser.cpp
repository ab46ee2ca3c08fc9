#include "framework/interop/shell/parser.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "framework/base/error.h"

namespace tessera::shell {
namespace {

constexpr int deepest_syntax = 100;
constexpr std::size_t longest_source = 100;

}  // namespace

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_meta(char c) { return c == '\0' || c == '\n' || is_blank(c) || std::string_view(";&|()<>").find(c) < 7; }

Parser::Deeper::Deeper(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ > deepest_syntax) {
    --parser_.depth_;
    parser_.fail("more than 100 levels of nesting", parser_.i_);
  }
}

Parser::Parser(std::string_view text, const ScriptPosition& at, bool inner) : text_(text), at_(at), inner_(inner) {
  lines_.push_back(0);
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') lines_.push_back(i + 1);
}

ScriptPosition Parser::place(std::size_t at) const {
  if (inner_) return at_;
  const auto next = std::upper_bound(lines_.begin(), lines_.end(), at);
  return {at_.file, at_.line + static_cast<int>(next - lines_.begin()) - 1};
}

void Parser::fail(const std::string& words, std::size_t at) const { throw SyntaxError{words, place(at)}; }

std::string Parser::source(std::size_t from, std::size_t to) const {
  while (from < to && (is_blank(text_[from]) || text_[from] == '\n')) ++from;
  while (to > from && (is_blank(text_[to - 1]) || text_[to - 1] == '\n' || text_[to - 1] == ';')) --to;
  auto out = without_places(text_.substr(from, std::min(to - from, longest_source)));
  std::replace(out.begin(), out.end(), '\n', ' ');
  return to - from > longest_source ? out + "..." : out;
}

std::size_t Parser::blanks_to_line_end(std::size_t from) const {
  auto i = from;
  while (i < text_.size() && is_blank(text_[i])) ++i;
  return i > from && i < text_.size() && text_[i] == '\n' ? i : 0;
}

bool Parser::skip_blanks() {
  bool joined = false;
  while (!ended()) {
    if (is_blank(ahead())) {
      ++i_;
    } else if (ahead() == '\\' && ahead(1) == '\n') {
      i_ += 2;
      joined = true;
    } else if (const auto end = ahead() == '\\' ? blanks_to_line_end(i_ + 1) : 0; end != 0) {
      remark("blanks after the backslash at the end of the line: read as if the next line belonged to the command");
      i_ = end + 1;
      joined = true;
    } else {
      break;
    }
  }
  return joined;
}

void Parser::skip_comment() {
  while (!ended() && ahead() != '\n') ++i_;
}

void Parser::new_line() {
  ++i_;
  if (!pending_.empty()) here_lines();
}

void Parser::skip_lines() {
  while (!ended()) {
    skip_blanks();
    if (ahead() == '#')
      skip_comment();
    else if (ahead() == '\n')
      new_line();
    else
      break;
  }
}

std::string_view Parser::reserved() const {
  auto end = i_;
  if (ahead() == '{' || ahead() == '}' || ahead() == '!') return is_meta(ahead(1)) ? text_.substr(i_, 1) : "";
  if (starts("[[")) return is_meta(ahead(2)) ? text_.substr(i_, 2) : "";
  while (end < text_.size() && std::islower(static_cast<unsigned char>(text_[end])) != 0 && end - i_ < 10) ++end;
  return end == text_.size() || is_meta(text_[end]) ? text_.substr(i_, end - i_) : "";
}

bool Parser::take(std::string_view reserved_word) {
  if (reserved() != reserved_word) return false;
  i_ += reserved_word.size();
  return true;
}

void Parser::expect(std::string_view reserved_word, std::size_t opened) {
  skip_lines();
  if (take(reserved_word)) return;
  if (ended()) fail(text("'", reserved_word, "' is missing before the end of the file, for what begins here"), opened);
  fail(text("'", reserved_word, "' is missing before '", source(i_, std::min(i_ + 20, text_.size())), "'"), i_);
}

bool Parser::ends_list() const {
  if (ended() || ahead() == ')' || starts(";;") || starts(";&")) return true;
  const auto word = reserved();
  static constexpr std::array<std::string_view, 8> ends = {"then", "fi", "else", "elif", "do", "done", "esac", "}"};
  return std::find(ends.begin(), ends.end(), word) != ends.end();
}

std::shared_ptr<Node> Parser::node(Node::Kind kind) {
  auto out = std::make_shared<Node>();
  out->kind = kind;
  out->at = place();
  out->site = ++sites_;
  return out;
}

ParsedScript Parser::script() {
  ParsedScript out;
  const auto top = node(Node::Kind::list);
  out.tree = top;
  try {
    while (statement(*top)) {
    }
    if (!ended()) fail(text("'", source(i_, std::min(i_ + 20, text_.size())), "' was not expected here"), i_);
  } catch (const SyntaxError& error) {
    out.error = error.words;
    out.error_at = error.at;
  }
  out.remarks = std::move(remarks_);
  for (const auto& name : extended_) assigned_.erase(name);
  out.assigned = std::move(assigned_);
  return out;
}

bool Parser::statement(Node& into) {
  skip_lines();
  if (ends_list()) return false;
  if (ahead() == ';') fail("';' was not expected here", i_);
  into.children.push_back(and_or());
  skip_blanks();
  if (ahead() == ';' && !starts(";;") && !starts(";&")) {
    ++i_;
  } else if (ahead() == '&' && ahead(1) != '&') {
    ++i_;
    const auto apart = node(Node::Kind::subshell);
    apart->background = true;
    apart->at = into.children.back()->at;
    apart->children.push_back(std::move(into.children.back()));
    into.children.back() = apart;
  } else if (ahead() != '\n' && ahead() != '#' && !ends_list()) {
    fail(text("'", source(i_, std::min(i_ + 20, text_.size())), "' was not expected here"), i_);
  }
  return true;
}

Tree Parser::list() {
  const Deeper deeper(*this);
  const auto out = node(Node::Kind::list);
  while (statement(*out)) {
  }
  return out;
}

Tree Parser::and_or() {
  const auto out = node(Node::Kind::and_or);
  const auto begin = i_;
  out->children.push_back(pipeline());
  for (skip_blanks(); starts("&&") || starts("||"); skip_blanks()) {
    out->joins.emplace_back(text_.substr(i_, 2));
    i_ += 2;
    skip_lines();
    out->children.push_back(pipeline());
  }
  if (out->children.size() == 1) return out->children[0];
  out->source = source(begin, i_);
  return out;
}

bool Parser::take_time() {
  if (reserved() != "time") return false;
  auto next = i_ + 4;
  while (next < text_.size() && is_blank(text_[next])) ++next;
  if (next >= text_.size() || is_meta(text_[next])) return false;
  i_ = next;
  if (starts("-p") && is_meta(ahead(2))) i_ += 2;
  return true;
}

Tree Parser::pipeline() {
  const auto out = node(Node::Kind::pipeline);
  skip_blanks();
  for (bool timed = take_time(); timed || take("!"); timed = take_time()) {
    out->negated = out->negated != !timed;
    skip_blanks();
  }
  out->children.push_back(command());
  for (skip_blanks(); ahead() == '|' && ahead(1) != '|'; skip_blanks()) {
    i_ += ahead(1) == '&' ? 2 : 1;
    skip_lines();
    out->children.push_back(command());
  }
  return out->children.size() == 1 && !out->negated ? out->children[0] : out;
}

Tree Parser::command() {
  const Deeper deeper(*this);
  if (auto out = compound()) return out;
  return simple();
}

bool Parser::declares(const Node& node) const {
  if (node.words.empty() || node.words[0].parts.size() != 1) return false;
  static constexpr std::array<std::string_view, 5> all = {"export", "declare", "local", "readonly", "typeset"};
  return std::find(all.begin(), all.end(), node.words[0].parts[0].words) != all.end();
}

Tree Parser::simple() {
  const auto out = node(Node::Kind::simple);
  const auto begin = i_;
  for (;;) {
    const bool joined = skip_blanks();
    if (ahead() == '#') {
      if (joined && !out->words.empty() && goes_on_after_comment()) continue;
      break;
    }
    if (ahead() == '(' && out->words.size() == 1 && function_ahead()) return function_named(plain(source(begin, i_)));
    if (!simple_argument(*out)) break;
  }
  if (out->words.empty() && out->assignments.empty() && out->redirects.empty())
    fail(text("a command was expected before '", source(i_, std::min(i_ + 20, text_.size())), "'"), i_);
  out->source = source(begin, i_);
  return out;
}

bool Parser::simple_argument(Node& node) {
  if (redirect(node)) return true;
  if (ended() || ahead() == '\n' || ahead() == ';' || ahead() == '&' || ahead() == '|' || ahead() == ')') return false;
  const bool first = node.words.empty();
  if (assignment_ahead() && (first || declares(node))) {
    if (first) {
      node.assignments.push_back(assignment());
      return true;
    }
    Word argument;
    argument.line = place().line;
    argument.assignment = std::make_shared<Assignment>(assignment());
    node.words.push_back(std::move(argument));
    return true;
  }
  if (ahead() == '(') {
    const auto end = node.words.empty() ? 0 : parentheses_ahead();
    if (end == 0) return false;
    remark("parentheses without quotes are read as part of the words; Bash refuses them");
    Word argument;
    argument.line = place().line;
    add(argument.parts, Part::Kind::quoted, text_.substr(i_, end - i_));
    i_ = end;
    node.words.push_back(std::move(argument));
    return true;
  }
  node.words.push_back(word());
  name_of_descriptor(node);
  return true;
}

void Parser::name_of_descriptor(Node& node) {
  const auto& parts = node.words.back().parts;
  if ((ahead() != '<' && ahead() != '>') || parts.size() != 1 || parts[0].kind != Part::Kind::text) return;
  const auto& words = parts[0].words;
  if (words.size() < 3 || words[0] != '{' || words.back() != '}') return;
  if (std::all_of(words.begin() + 1, words.end() - 1, is_name_char))
    fail(text(words, "> gives a file a descriptor, which is not read"), i_);
}

bool Parser::goes_on_after_comment() {
  const auto begin = i_;
  while (ahead() == '#') {
    skip_comment();
    auto next = i_;
    while (next < text_.size() && (text_[next] == '\n' || is_blank(text_[next])) && (next == i_ || text_[next] != '\n'))
      ++next;
    if (next < text_.size() && (text_[next] == '#' || text_[next] == '-') && next > i_)
      i_ = next;
    else
      break;
  }
  const bool goes_on = ahead() == '-';
  const auto end = i_;
  i_ = begin;
  if (!goes_on) return false;
  remark("a comment inside a command: the lines after it are read as its rest; Bash ends the command here");
  i_ = end;
  return true;
}

ParsedScript parse_script(std::string_view text, const ScriptPosition& at, bool inner) {
  return Parser(text, at, inner).script();
}

Word parse_quoted(std::string_view text, const ScriptPosition& at) { return Parser(text, at, true).all_quoted(); }

}  // namespace tessera::shell
