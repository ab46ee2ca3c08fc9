#include <algorithm>
#include <array>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/shell/parser.h"

// Redirections, here-documents and assignments of a command.

namespace tessera::shell {
namespace {

constexpr std::size_t longest_subscript = 200;

}  // namespace

bool Parser::redirect_ahead() const {
  auto i = i_;
  while (i < text_.size() && std::isdigit(static_cast<unsigned char>(text_[i])) != 0) ++i;
  if (i >= text_.size()) return false;
  if (text_[i] == '&') return i == i_ && ahead(1) == '>';
  if (text_[i] != '<' && text_[i] != '>') return false;
  if (i == i_ && ahead(1) == '(') return false;
  return i != i_ || placeholder_ahead() == 0;
}

bool Parser::redirect(Node& node) {
  if (!redirect_ahead()) return false;
  Redirect out;
  if (std::isdigit(static_cast<unsigned char>(ahead())) != 0) {
    out.from = 0;
    for (; std::isdigit(static_cast<unsigned char>(ahead())) != 0; ++i_)
      out.from = std::min(out.from * 10 + (ahead() - '0'), 1000);
  }
  static constexpr std::array<std::string_view, 12> ops = {"<<<", "<<-", "<<", "<&", "<>", "<",
                                                           "&>>", "&>",  ">>", ">&", ">|", ">"};
  for (const auto op : ops)
    if (starts(op)) {
      out.op = op;
      break;
    }
  i_ += out.op.size();
  skip_blanks();
  if (out.op == "<<" || out.op == "<<-") {
    here_document(out, out.op == "<<-");
  } else {
    if (is_meta(ahead()) && ahead() != '<' && ahead() != '>')
      fail(text("a file was expected after '", out.op, "'"), i_);
    out.target = word();
  }
  node.redirects.push_back(std::move(out));
  return true;
}

void Parser::redirects(Node& node) {
  for (skip_blanks(); redirect(node); skip_blanks()) {
  }
}

void Parser::here_document(Redirect& redirect, bool strip) {
  HereDocument document;
  document.strip = strip;
  const auto begin = i_;
  const auto end = word();
  document.quoted = text_.substr(begin, i_ - begin).find_first_of("'\"\\") != std::string_view::npos;
  for (const auto& part : end.parts) {
    document.end += without_places(part.words);
    for (const auto& inner : part.inside) document.end += without_places(inner.words);
  }
  document.into = std::make_shared<Word>();
  document.into->line = place().line;
  redirect.op = "<<";
  redirect.here = document.into;
  pending_.push_back(std::move(document));
}

void Parser::here_lines() {
  const auto documents = std::move(pending_);
  pending_.clear();
  for (const auto& document : documents) {
    const auto begin = i_;
    std::string lines;
    bool closed = false;
    while (!ended() && !closed) {
      const auto end = std::min(text_.find('\n', i_), text_.size());
      auto line = text_.substr(i_, end - i_);
      if (document.strip) line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
      auto bare = without_places(line);
      const bool exact = bare == document.end;
      while (!bare.empty() && is_blank(bare.back())) bare.pop_back();
      closed = bare == document.end;
      if (closed && !exact)
        remarks_.push_back(
            {place(i_), text("blanks behind '", document.end, "': read as the end of the here-document")});
      if (!closed) lines += std::string(line) + "\n";
      i_ = std::min(end + 1, text_.size());
    }
    if (!closed)
      remarks_.push_back({place(begin), text("the here-document has no line '", document.end, "' that ends it")});
    if (document.quoted)
      document.into->parts.push_back(
          {.kind = Part::Kind::quoted, .words = lines, .parameter = nullptr, .body = nullptr, .inside = {}});
    else
      *document.into = parse_quoted(lines, place(begin));
  }
}

std::size_t Parser::subscript_end(std::size_t at) const {
  int open = 0;
  const auto end = std::min(at + longest_subscript, text_.size());
  for (auto i = at; i < end && text_[i] != '\n'; ++i) {
    open += (text_[i] == '[') - (text_[i] == ']');
    if (open == 0) return i;
  }
  return 0;
}

bool Parser::assignment_ahead() const {
  auto i = i_;
  if (i >= text_.size() || !is_name_start(text_[i])) return false;
  while (i < text_.size() && is_name_char(text_[i])) ++i;
  if (i < text_.size() && text_[i] == '[') {
    const auto close = subscript_end(i);
    if (close == 0) return false;
    i = close + 1;
  }
  if (i < text_.size() && text_[i] == '+') ++i;
  return i < text_.size() && text_[i] == '=';
}

Assignment Parser::assignment() {
  Assignment out;
  out.line = place().line;
  const auto begin = i_;
  while (is_name_char(ahead())) ++i_;
  out.name = text_.substr(begin, i_ - begin);
  if (ahead() == '[') {
    ++i_;
    out.subscripted = true;
    out.subscript = word_until("]", false);
    ++i_;
  }
  out.append = ahead() == '+';
  i_ += out.append ? 2 : 1;
  if (ahead() == '(')
    assigned_list(out);
  else if (!is_meta(ahead()) || placeholder_ahead() != 0 || ((ahead() == '<' || ahead() == '>') && ahead(1) == '('))
    out.value = word(true);
  const auto value = text_.substr(begin + out.name.size(), i_ - begin - out.name.size());
  const bool extends = out.append || value.find("$" + out.name) != std::string_view::npos ||
                       value.find("${" + out.name) != std::string_view::npos;
  (extends ? extended_ : assigned_).insert(out.name);
  return out;
}

void Parser::assigned_list(Assignment& out) {
  const auto opened = i_++;
  out.list = true;
  for (;;) {
    skip_lines();
    if (ended()) fail("')' is missing before the end of the file, for the list that begins here", opened);
    if (ahead() == ')') break;
    Word key;
    if (ahead() == '[') {
      const auto close = subscript_end(i_);
      const bool assigns = close != 0 && (text_.substr(close, 2) == "]=" || text_.substr(close, 3) == "]+=");
      if (assigns && text_[close + 1] == '+') fail("[key]+=value in a list is not read", i_);
      if (assigns) {
        ++i_;
        key = word_until("]", false);
        i_ += 2;
      }
    }
    if (is_meta(ahead()) && placeholder_ahead() == 0 && !(key.parts.size() && (is_blank(ahead()) || ahead() == '\n'))) {
      const auto end = ahead() == '(' ? parentheses_ahead() : 0;
      if (end == 0) fail(text("'", ahead(), "' was not expected in a list"), i_);
      Word item;
      item.line = place().line;
      add(item.parts, Part::Kind::quoted, text_.substr(i_, end - i_));
      i_ = end;
      out.items.push_back(std::move(item));
    } else {
      in_list_ = true;
      out.items.push_back(word());
      in_list_ = false;
    }
    out.keys.push_back(std::move(key));
  }
  ++i_;
}

}  // namespace tessera::shell
