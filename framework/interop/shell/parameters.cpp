#include <algorithm>
#include <array>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/shell/parser.h"

// What begins with a dollar sign: parameters, substitutions, arithmetic; and backticks.

namespace tessera::shell {
namespace {

bool is_special(char c) { return c != '\0' && std::string_view("@*#?$!-0123456789").find(c) != std::string_view::npos; }

}  // namespace

void Parser::dollar(std::vector<Part>& out, bool in_quotes) {
  const char next = ahead(1);
  if (next == '(') {
    ++i_;  // arithmetic_end looks from "(("
    const auto end = ahead(1) == '(' ? arithmetic_end() : 0;
    --i_;
    return end != 0 ? arithmetic(out, end) : commands(out, Part::Kind::command);
  }
  if (next == '[') {
    const auto end = bracket_end();
    if (end != 0) return arithmetic_from(out, i_ + 2, end, end + 1);
  }
  if (next == '{') return braces(out, in_quotes);
  if (next == '\'' && !in_quotes) return escaped_c(out);
  if (next == '"' && !in_quotes) {
    ++i_;
    return double_quotes(out);
  }
  if (!is_name_start(next) && !is_special(next))
    return add_char(out, in_quotes ? Part::Kind::quoted : Part::Kind::text);
  const auto begin = i_++;
  const auto parameter = std::make_shared<ParameterExpansion>();
  if (is_special(ahead())) {
    ++i_;
  } else {
    while (is_name_char(ahead())) ++i_;
  }
  parameter->name = text_.substr(begin + 1, i_ - begin - 1);
  out.push_back({.kind = Part::Kind::parameter,
                 .words = std::string(text_.substr(begin, i_ - begin)),
                 .parameter = parameter,
                 .body = nullptr,
                 .inside = {}});
}

std::size_t Parser::arithmetic_end() const {
  int open = 0;
  for (auto i = i_ + 2; i + 1 < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '(') ++open;
    if (c == ')' && open == 0) return text_[i + 1] == ')' ? i : 0;
    if (c == ')') --open;
  }
  return 0;
}

std::size_t Parser::bracket_end() const {
  int open = 0;
  for (auto i = i_ + 1; i < text_.size() && text_[i] != '\n'; ++i) {
    open += (text_[i] == '[') - (text_[i] == ']');
    if (open == 0) return i;
  }
  return 0;
}

void Parser::arithmetic(std::vector<Part>& out, std::size_t end) { arithmetic_from(out, i_ + 3, end, end + 2); }

void Parser::arithmetic_from(std::vector<Part>& out, std::size_t begin, std::size_t end, std::size_t after) {
  const Deeper deeper(*this);
  const auto opened = i_;
  Parser expression(text_.substr(begin, end - begin), place(), true);
  expression.depth_ = depth_;
  auto inside = expression.all_quoted();
  i_ = after;
  out.push_back({.kind = Part::Kind::arithmetic,
                 .words = without_places(text_.substr(opened, i_ - opened)),
                 .parameter = nullptr,
                 .body = nullptr,
                 .inside = std::move(inside.parts)});
}

void Parser::commands(std::vector<Part>& out, Part::Kind kind) {
  const Deeper deeper(*this);
  const auto begin = i_;
  i_ += 2;
  auto body = list();
  skip_lines();
  if (ahead() != ')') fail(text("')' is missing, for the '", text_.substr(begin, 2), "' that begins here"), begin);
  ++i_;
  out.push_back({.kind = kind,
                 .words = without_places(text_.substr(begin, i_ - begin)),
                 .parameter = nullptr,
                 .body = std::move(body),
                 .inside = {}});
}

void Parser::backticks(std::vector<Part>& out) {
  const Deeper deeper(*this);
  const auto begin = i_;
  std::string inside;
  for (++i_; ahead() != '`'; ++i_) {
    if (ended()) fail("the quote ` that begins here is not closed", begin);
    if (ahead() == '\\' && (ahead(1) == '`' || ahead(1) == '\\' || ahead(1) == '$')) ++i_;
    inside += ahead();
  }
  ++i_;
  Parser commands(inside, place(begin), true);
  commands.depth_ = depth_;
  auto parsed = commands.script();
  if (!parsed.error.empty()) fail(parsed.error, begin);
  remarks_.insert(remarks_.end(), parsed.remarks.begin(), parsed.remarks.end());
  out.push_back({.kind = Part::Kind::command,
                 .words = text("$(", without_places(inside), ")"),
                 .parameter = nullptr,
                 .body = std::move(parsed.tree),
                 .inside = {}});
}

void Parser::parameter_name(ParameterExpansion& out) {
  if (ahead() == '#' && ahead(1) != '}' && (is_name_start(ahead(1)) || is_special(ahead(1)))) {
    out.length = true;
    ++i_;
  } else if (ahead() == '!' && (is_name_start(ahead(1)) || (ahead(1) != '}' && is_special(ahead(1))))) {
    out.indirect = true;
    ++i_;
  }
  const auto begin = i_;
  if (is_name_start(ahead())) {
    while (is_name_char(ahead())) ++i_;
  } else if (std::isdigit(static_cast<unsigned char>(ahead())) != 0) {
    while (std::isdigit(static_cast<unsigned char>(ahead())) != 0) ++i_;
  } else if (is_special(ahead())) {
    ++i_;
  }
  out.name = text_.substr(begin, i_ - begin);
  if (out.name.empty()) fail("a name is missing after '${'", begin);
  if (out.indirect && is_name_start(out.name[0]) && (ahead() == '*' || ahead() == '@') && ahead(1) == '}') {
    out.prefix = true;
    out.op = ahead();
    ++i_;
  }
  if (ahead() != '[') return;
  ++i_;
  out.subscripted = true;
  out.subscript = word_until("]", false);
  ++i_;
}

void Parser::parameter_op(ParameterExpansion& out, bool in_quotes) {
  static constexpr std::array<std::string_view, 21> ops = {":-", ":=", ":+", ":?", "##", "%%", "//",
                                                           "/#", "/%", "^^", ",,", "-",  "=",  "+",
                                                           "?",  "#",  "%",  "/",  "^",  ",",  "@"};
  const auto op = std::find_if(ops.begin(), ops.end(), [this](const auto& one) { return starts(one); });
  if (out.prefix || (op == ops.end() && ahead() != ':')) return;
  out.op = std::string(op == ops.end() ? ":" : *op);
  i_ += out.op.size();
  if (out.op == "@" && ahead() != '}' && ahead(1) == '}') {
    out.op += ahead();
    ++i_;
    return;
  }
  const bool replaces = out.op[0] == '/', cuts = out.op == ":";
  if (!replaces && !cuts) {
    out.first = word_until("}", in_quotes && std::string_view("-=+?:").find(out.op[0]) < 5);
    return;
  }
  out.first = word_until(replaces ? "/}" : ":}", false);
  out.has_second = ahead() != '}';
  if (!out.has_second) return;
  ++i_;
  out.second = word_until("}", false);
}

void Parser::braces(std::vector<Part>& out, bool in_quotes) {
  const Deeper deeper(*this);
  const auto begin = i_;
  i_ += 2;
  const auto parameter = std::make_shared<ParameterExpansion>();
  parameter_name(*parameter);
  parameter_op(*parameter, in_quotes);
  if (ahead() != '}') fail("'}' is missing, for the '${' that begins here", begin);
  ++i_;
  out.push_back({.kind = Part::Kind::parameter,
                 .words = without_places(text_.substr(begin, i_ - begin)),
                 .parameter = parameter,
                 .body = nullptr,
                 .inside = {}});
}

}  // namespace tessera::shell
