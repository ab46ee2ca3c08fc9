#include "framework/base/error.h"
#include "framework/interop/shell/parser.h"

// if, while, for, case, functions, groups, [[ ]] and (( )).

namespace tessera::shell {

Tree Parser::compound() {
  const auto word = reserved();
  Tree out;
  if (word == "if")
    out = branches();
  else if (word == "while" || word == "until")
    out = loop();
  else if (word == "for" || word == "select")
    out = each();
  else if (word == "case")
    out = choice();
  else if (word == "[[")
    out = test();
  else if (word == "{")
    out = enclosed(Node::Kind::group, "{", "}");
  else if (word == "function") {
    i_ += word.size();
    skip_blanks();
    const auto begin = i_;
    while (!is_meta(ahead())) ++i_;
    return function_named(std::string(text_.substr(begin, i_ - begin)));
  } else if (starts("((") && arithmetic_end() != 0)
    out = arithmetic_command();
  else if (ahead() == '(')
    out = enclosed(Node::Kind::subshell, "(", ")");
  return out;
}

Tree Parser::branches() {
  const auto opened = i_;
  const auto out = node(Node::Kind::branches);
  i_ += 2;
  do {
    const auto begin = i_;
    out->children.push_back(list());
    if (out->source.empty()) out->source = source(begin, i_);
    expect("then", opened);
    out->children.push_back(list());
    skip_lines();
  } while (take("elif"));
  if (take("else")) out->children.push_back(list());
  expect("fi", opened);
  redirects(*out);
  return out;
}

void Parser::loop_body(Node& node, std::size_t opened) {
  skip_lines();
  if (ahead() == ';') ++i_;
  skip_lines();
  if (take("{")) {
    node.children.push_back(list());
    expect("}", opened);
  } else {
    expect("do", opened);
    node.children.push_back(list());
    expect("done", opened);
  }
  redirects(node);
}

Tree Parser::loop() {
  const auto opened = i_;
  const auto out = node(Node::Kind::loop);
  out->until = reserved() == "until";
  i_ += 5;
  out->children.push_back(list());
  out->source = source(opened, i_);
  loop_body(*out, opened);
  return out;
}

Tree Parser::each() {
  const auto opened = i_;
  const auto out = node(Node::Kind::each);
  out->asks = reserved() == "select";
  i_ += reserved().size();
  skip_blanks();
  if (starts("((")) {
    counted(*out);
  } else {
    const auto begin = i_;
    while (is_name_char(ahead())) ++i_;
    out->name = text_.substr(begin, i_ - begin);
    if (out->name.empty()) fail("a name was expected after 'for'", begin);
    skip_lines();
    out->all_arguments = !take("in");
    if (!out->all_arguments)
      for (skip_blanks(); !ended() && ahead() != ';' && ahead() != '\n' && ahead() != '#'; skip_blanks()) {
        if (is_meta(ahead()) && placeholder_ahead() == 0) fail(text("'", ahead(), "' was not expected here"), i_);
        out->words.push_back(word());
      }
  }
  out->source = source(opened, i_);
  loop_body(*out, opened);
  return out;
}

void Parser::counted(Node& node) {
  const auto opened = i_, end = arithmetic_end();
  if (end == 0) fail("'))' is missing, for what begins here", opened);
  node.kind = Node::Kind::counted;
  auto begin = i_ + 2;
  while (node.words.size() < 3) {
    const auto stop = std::min(text_.find(';', begin), end);
    node.words.push_back(parse_quoted(text_.substr(begin, stop - begin), place()));
    begin = std::min(stop + 1, end);
  }
  i_ = end + 2;
}

Tree Parser::choice() {
  const auto opened = i_;
  const auto out = node(Node::Kind::choice);
  i_ += 4;
  skip_blanks();
  if (is_meta(ahead())) fail("a word was expected after 'case'", i_);
  out->words.push_back(word());
  out->source = source(opened, i_);
  expect("in", opened);
  for (skip_lines(); !take("esac"); skip_lines()) out->items.push_back(case_item(opened));
  redirects(*out);
  return out;
}

CaseItem Parser::case_item(std::size_t opened) {
  CaseItem out;
  if (ended()) fail("'esac' is missing before the end of the file, for what begins here", opened);
  if (ahead() == '(') ++i_;
  for (;;) {
    skip_blanks();
    if (is_meta(ahead())) fail("a pattern was expected here", i_);
    out.patterns.push_back(word());
    skip_blanks();
    if (ahead() == ')') break;
    if (ahead() != '|') fail("')' is missing after a pattern", i_);
    ++i_;
  }
  ++i_;
  out.body = list();
  if (starts(";;&")) {
    out.goes_on = true;
    i_ += 3;
  } else if (starts(";;") || starts(";&")) {
    out.falls_through = starts(";&");
    i_ += 2;
  } else if (reserved() != "esac") {
    fail("';;' is missing at the end of a case", i_);
  }
  return out;
}

bool Parser::function_ahead() const {
  auto i = i_ + 1;
  while (i < text_.size() && is_blank(text_[i])) ++i;
  return i < text_.size() && text_[i] == ')';
}

Tree Parser::function_named(std::string name) {
  const auto out = node(Node::Kind::function);
  out->name = std::move(name);
  skip_blanks();
  if (ahead() == '(') {
    i_ = std::min(text_.find(')', i_), text_.size() - 1) + 1;
  }
  skip_lines();
  auto body = compound();
  if (!body) fail("the body of a function was expected here", i_);
  out->children.push_back(std::move(body));
  return out;
}

Tree Parser::enclosed(Node::Kind kind, std::string_view open, std::string_view close) {
  const auto opened = i_;
  const auto out = node(kind);
  i_ += open.size();
  out->children.push_back(list());
  skip_lines();
  if (!starts(close)) fail(text("'", close, "' is missing, for what begins here"), opened);
  i_ += close.size();
  redirects(*out);
  return out;
}

Tree Parser::arithmetic_command() {
  const auto out = node(Node::Kind::arithmetic);
  const auto begin = i_, end = arithmetic_end();
  out->words.push_back(parse_quoted(text_.substr(i_ + 2, end - i_ - 2), place()));
  i_ = end + 2;
  out->source = source(begin, i_);
  redirects(*out);
  return out;
}

Tree Parser::test() {
  const auto opened = i_;
  const auto out = node(Node::Kind::test);
  i_ += 2;
  for (bool matches = false;;) {
    skip_lines();
    if (ended()) fail("']]' is missing before the end of the file, for what begins here", opened);
    if (starts("]]") && is_meta(ahead(2))) break;
    std::size_t length = 0;
    if (starts("&&") || starts("||"))
      length = 2;
    else if ((ahead() == '<' || ahead() == '>') && placeholder_ahead() == 0)
      length = 1;
    else if ((ahead() == '(' || ahead() == ')') && !matches)
      length = 1;
    if (length == 0 && !matches && is_meta(ahead()) && placeholder_ahead() == 0)
      fail(text("'", ahead(), "' was not expected here"), i_);
    Word next;
    next.line = place().line;
    if (length > 0) {
      next.parts.push_back({.kind = Part::Kind::text,
                            .words = std::string(text_.substr(i_, length)),
                            .parameter = nullptr,
                            .body = nullptr,
                            .inside = {}});
      i_ += length;
    } else {
      next = matches ? regular_expression() : word();
    }
    matches = next.parts.size() == 1 && next.parts[0].words == "=~";
    out->words.push_back(std::move(next));
  }
  i_ += 2;
  out->source = source(opened, i_);
  redirects(*out);
  return out;
}

}  // namespace tessera::shell
