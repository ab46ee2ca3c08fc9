#include "framework/jinja/chat_template_parser.h"

#include <algorithm>
#include <charconv>

#include "framework/jinja/chat_template_cursor.h"

namespace tessera::jinja {
namespace {

using Type = Token::Type;
using Kind = Node::Kind;

class Parser : TokenCursor {
 public:
  using Pointer = NodePointer;
  explicit Parser(std::string_view source) : TokenCursor(source) {}

  Pointer whole() {
    auto block = statements({});
    if (now().type != Type::end) fail(text("unexpected ", now().text));
    return block;
  }

 private:
  // Statements up to a tag whose name is one of `ends`; the name is taken, the rest of the tag is not.
  Pointer statements(const std::vector<std::string>& ends) {
    const Deeper deeper(*this);
    auto block = node(Kind::block);
    while (now().type != Type::end) {
      if (now().type == Type::data) {
        add(*block, node(Kind::data, now().text));
        next();
      } else if (now().type == Type::variable_begin) {
        next();
        auto output = node(Kind::output);
        add(*output, tuple(true));
        if (now().type != Type::variable_end) fail(text("expected }}, found ", now().text));
        next();
        add(*block, std::move(output));
      } else {
        next();  // {%
        if (now().type == Type::name && std::find(ends.begin(), ends.end(), now().text) != ends.end()) {
          ended_by_ = now().text;
          next();
          return block;
        }
        add(*block, statement());
      }
    }
    if (!ends.empty()) fail(text("the template ends, but {% ", ends.back(), " %} is missing"));
    return block;
  }

  Pointer statement() {
    const auto line = now().line;
    const auto word = expect_name();
    Pointer made;
    if (word == "if") {
      made = condition();
    } else if (word == "for") {
      made = loop();
    } else if (word == "set") {
      made = set();
    } else if (word == "macro") {
      made = macro();
    } else if (word == "generation") {
      made = generation();
    } else if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(text(word, " outside of a for loop"));
      if (!in_loop_body_) fail(text(word, " within generation cannot end a for loop outside of it"));
      made = node(word == "break" ? Kind::break_loop : Kind::continue_loop);
      expect_block_end();
    } else {
      fail(text("the tag ", word, " is not supported; supported are if, for, set, macro, generation, break, continue"));
    }
    made->line = line;
    return made;
  }

  Pointer condition() {
    auto made = node(Kind::condition);
    while (true) {
      add(*made, tuple(false));
      expect_block_end();
      add(*made, statements({"elif", "else", "endif"}));
      if (ended_by_ == "elif") continue;
      if (ended_by_ == "else") {
        expect_block_end();
        add(*made, statements({"endif"}));
      } else {
        add(*made, nullptr);
      }
      expect_block_end();
      return made;
    }
  }

  Pointer loop() {
    auto made = node(Kind::loop);
    add(*made, target(false));
    if (!take_name("in")) fail(text("expected in, found ", now().text));
    add(*made, tuple(false));
    add(*made, nullptr);
    if (take_name("if")) {
      const bool outer = std::exchange(in_loop_filter_, true);
      made->children[2] = expression(true);
      deepen(*made, made->children[2]);
      in_loop_filter_ = outer;
    }
    if (is_name("recursive")) fail("recursive for loops are not supported");
    expect_block_end();
    ++loops_;
    const bool outer = std::exchange(in_loop_body_, true);
    add(*made, statements({"else", "endfor"}));
    in_loop_body_ = outer;
    --loops_;
    add(*made, nullptr);
    if (ended_by_ == "else") {
      expect_block_end();
      made->children[4] = statements({"endfor"});
      deepen(*made, made->children[4]);
    }
    expect_block_end();
    return made;
  }

  // For Transformers this is a call block, whose body is a function of its own.
  Pointer generation() {
    expect_block_end();
    const bool outer = std::exchange(in_loop_body_, false);
    auto made = with(node(Kind::generation), statements({"endgeneration"}));
    in_loop_body_ = outer;
    expect_block_end();
    return made;
  }

  Pointer macro() {
    if (loops_ > 0 || in_macro_) fail("a macro within a for loop or a macro is not supported");
    auto made = node(Kind::macro);
    made->text = expect_name();
    expect_sign("(");
    while (!is_sign(")")) {
      if (!made->children.empty()) expect_sign(",");
      auto parameter = node(Kind::name);
      parameter->text = assigned_name();
      if (take_sign("=")) {
        made->named.emplace_back(parameter->text, expression(true));
        deepen(*made, made->named.back().second);
      } else if (!made->named.empty()) {
        fail("a parameter without a default follows one with a default");
      }
      add(*made, std::move(parameter));
    }
    next();
    expect_block_end();
    in_macro_ = true;
    add(*made, statements({"endmacro"}));
    in_macro_ = false;
    expect_block_end();
    return made;
  }

  Pointer set() {
    auto made = node(Kind::set);
    add(*made, target(true));
    if (take_sign("=")) {
      add(*made, tuple(true));
      expect_block_end();
      return made;
    }
    if (is_sign("|")) fail("filters of a set block are not supported");
    made->kind = Kind::set_block;
    expect_block_end();
    add(*made, statements({"endset"}));
    expect_block_end();
    return made;
  }

  // Expressions, from the loosest operator to the tightest.

  // One expression, or several with commas: a tuple. `choices`: whether "a if b" may stand in it.
  Pointer tuple(bool choices, bool parentheses = false) {
    auto items = node(Kind::tuple);
    bool commas = false;
    while (true) {
      if (commas && (is_sign(")") || now().type == Type::variable_end || now().type == Type::block_end)) break;
      if (parentheses && items->children.empty() && is_sign(")")) return items;
      add(*items, expression(choices));
      if (!take_sign(",")) break;
      commas = true;
    }
    return commas ? std::move(items) : std::move(items->children[0]);
  }

  Pointer expression(bool choices) {
    const Deeper deeper(*this);
    auto value = disjunction();
    while (choices && take_name("if")) {
      auto made = node(Kind::choice);
      auto condition = disjunction();
      auto otherwise = take_name("else") ? expression(true) : nullptr;
      value = with(std::move(made), std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }

  Pointer disjunction() {
    auto left = conjunction();
    while (is_name("or")) {
      auto made = node(Kind::or_);
      next();
      left = with(std::move(made), std::move(left), conjunction());
    }
    return left;
  }

  Pointer conjunction() {
    auto left = negation();
    while (is_name("and")) {
      auto made = node(Kind::and_);
      next();
      left = with(std::move(made), std::move(left), negation());
    }
    return left;
  }

  Pointer negation() {
    if (!is_name("not")) return comparison();
    const Deeper deeper(*this);
    auto made = node(Kind::not_);
    next();
    return with(std::move(made), negation());
  }

  Pointer comparison() {
    auto made = node(Kind::compare);
    add(*made, sum());
    while (true) {
      static const std::vector<std::string> signs = {"==", "!=", "<", "<=", ">", ">="};
      if (now().type == Type::sign && std::find(signs.begin(), signs.end(), now().text) != signs.end()) {
        made->operators.push_back(now().text);
        next();
      } else if (take_name("in")) {
        made->operators.emplace_back("in");
      } else if (is_name("not") && following().type == Type::name && following().text == "in") {
        next();
        next();
        made->operators.emplace_back("not in");
      } else {
        break;
      }
      add(*made, sum());
    }
    return made->operators.empty() ? std::move(made->children[0]) : std::move(made);
  }

  Pointer sum() {
    auto left = concatenation();
    while (is_sign("+") || is_sign("-")) {
      auto made = node(Kind::binary, now().text);
      next();
      left = with(std::move(made), std::move(left), concatenation());
    }
    return left;
  }

  Pointer concatenation() {
    auto made = node(Kind::concatenate);
    add(*made, product());
    while (take_sign("~")) add(*made, product());
    return made->children.size() == 1 ? std::move(made->children[0]) : std::move(made);
  }

  Pointer product() {
    auto left = power();
    while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
      auto made = node(Kind::binary, now().text);
      next();
      left = with(std::move(made), std::move(left), power());
    }
    return left;
  }

  Pointer power() {
    auto left = unary(true);
    while (is_sign("**")) {
      auto made = node(Kind::binary, now().text);
      next();
      left = with(std::move(made), std::move(left), unary(true));
    }
    return left;
  }

  Pointer unary(bool filters) {
    const Deeper deeper(*this);
    Pointer value;
    if (is_sign("-") || is_sign("+")) {
      auto made = node(is_sign("-") ? Kind::negate : Kind::plus);
      next();
      value = with(std::move(made), unary(false));
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    return filters ? filtered(std::move(value)) : std::move(value);
  }

  Pointer primary() {
    auto made = node(Kind::constant, now().text);
    if (now().type == Type::name) return word(std::move(made));
    if (now().type == Type::string) {
      std::string joined;
      for (; now().type == Type::string; next()) joined += now().text;
      made->value = TemplateValue::of(std::move(joined));
      return made;
    }
    if (now().type == Type::integer) {
      std::int64_t number = 0;
      const auto& digits = now().text;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
        fail(text("the number ", digits, " has more than 64 bits"));
      made->value = TemplateValue(number);
      next();
      return made;
    }
    if (now().type == Type::real) {
      double number = 0;
      const auto& digits = now().text;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
        fail(text("the number ", digits, " is out of range"));
      made->value = TemplateValue(number);
      next();
      return made;
    }
    if (take_sign("(")) {
      auto inner = tuple(true, true);
      expect_sign(")");
      return inner;
    }
    if (take_sign("[")) return list();
    if (take_sign("{")) return dict();
    fail(text("expected an expression, found ", now().text));
  }

  Pointer word(Pointer made) {
    const auto name = now().text;
    if (name == "loop" && in_loop_filter_) fail("loop in the filter of a for loop is not supported");
    for (const std::string_view own : {"caller", "varargs", "kwargs", "self", "super"})
      if (name == own) fail(text("the variable ", name, " is not supported"));
    next();
    if (name == "true" || name == "True") {
      made->value = TemplateValue(true);
    } else if (name == "false" || name == "False") {
      made->value = TemplateValue(false);
    } else if (name == "none" || name == "None") {
      made->value = TemplateValue::none();
    } else {
      made->kind = Kind::name;
    }
    return made;
  }

  Pointer list() {
    auto made = node(Kind::list);
    while (!take_sign("]")) {
      if (!made->children.empty()) {
        expect_sign(",");
        if (take_sign("]")) break;
      }
      add(*made, expression(true));
    }
    return made;
  }

  Pointer dict() {
    auto made = node(Kind::dict);
    while (!take_sign("}")) {
      if (!made->children.empty()) {
        expect_sign(",");
        if (take_sign("}")) break;
      }
      add(*made, expression(true));
      expect_sign(":");
      add(*made, expression(true));
    }
    return made;
  }

  Pointer postfix(Pointer value) {
    while (true) {
      if (take_sign(".")) {
        auto made = node(Kind::attribute, now().text);
        if (now().type == Type::integer) {
          made->kind = Kind::item;
          auto index = primary();
          value = with(std::move(made), std::move(value), std::move(index));
        } else {
          expect_name();
          value = with(std::move(made), std::move(value));
        }
      } else if (take_sign("[")) {
        value = subscript(std::move(value));
      } else if (is_sign("(")) {
        auto made = with(node(Kind::call), std::move(value));
        arguments(*made);
        value = std::move(made);
      } else {
        return value;
      }
    }
  }

  Pointer subscript(Pointer object) {
    auto made = with(node(Kind::item), std::move(object));
    if (!is_sign(":")) add(*made, expression(true));
    if (is_sign(":")) {
      if (made->children.size() == 1) add(*made, nullptr);
      made->kind = Kind::slice;
      while (take_sign(":")) {
        if (made->children.size() == 4) fail("a slice has at most two colons");
        add(*made, is_sign(":") || is_sign("]") ? nullptr : expression(true));
      }
      made->children.resize(4);
    }
    if (is_sign(",")) fail("an index of several parts is not supported");
    expect_sign("]");
    return made;
  }

  void arguments(Node& call) {
    expect_sign("(");
    for (bool first = true; !take_sign(")"); first = false) {
      if (!first) {
        expect_sign(",");
        if (take_sign(")")) return;
      }
      if (is_sign("*") || is_sign("**")) fail("arguments with * or ** are not supported");
      if (now().type == Type::name && following().type == Type::sign && following().text == "=") {
        auto name = expect_name();
        next();
        for (const auto& [other, value] : call.named)
          if (other == name) fail(text("the argument ", name, " is given twice"));
        call.named.emplace_back(std::move(name), expression(true));
        deepen(call, call.named.back().second);
      } else {
        if (!call.named.empty()) fail("an argument without a name follows one with a name");
        add(call, expression(true));
      }
    }
  }

  Pointer filtered(Pointer value) {
    while (true) {
      if (take_sign("|")) {
        auto made = with(node(Kind::filter, now().text), std::move(value));
        if (const auto name = expect_name(); !is_filter(name)) fail(text("the filter ", name, " is not supported"));
        if (is_sign("(")) arguments(*made);
        value = std::move(made);
      } else if (is_name("is")) {
        value = test(std::move(value));
      } else if (is_sign("(")) {
        auto made = with(node(Kind::call), std::move(value));
        arguments(*made);
        value = std::move(made);
      } else {
        return value;
      }
    }
  }

  Pointer test(Pointer value) {
    next();
    const bool negated = take_name("not");
    auto made = with(node(Kind::test, now().text), std::move(value));
    if (const auto name = expect_name(); !is_test(name)) fail(text("the test ", name, " is not supported"));
    if (is_sign("(")) {
      arguments(*made);
      if (!made->named.empty()) fail("named arguments of a test are not supported");
    } else if ((now().type == Type::name && !is_name("else") && !is_name("or") && !is_name("and")) ||
               now().type == Type::string || now().type == Type::integer || now().type == Type::real || is_sign("[") ||
               is_sign("{")) {
      if (is_name("is")) fail("tests cannot follow each other");
      add(*made, postfix(primary()));
    }
    return negated ? with(node(Kind::not_), std::move(made)) : std::move(made);
  }

  int loops_ = 0;
  bool in_loop_body_ = false;  // where break and continue may stand
  bool in_loop_filter_ = false, in_macro_ = false;
  std::string ended_by_;
};

}  // namespace

std::unique_ptr<Node> parse_template(std::string_view source) { return Parser(source).whole(); }

}  // namespace tessera::jinja
