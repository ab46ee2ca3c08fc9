#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/jinja/chat_template_lexer.h"
#include "framework/jinja/chat_template_parser.h"

namespace tessera::jinja {

using NodePointer = std::unique_ptr<Node>;

/// Base class of the template parser: reads tokens and makes nodes. Throws ConfigError, beginning with "line N: ", for
/// an unexpected token and if nesting exceeds a limit.
class TokenCursor {
 public:
  static constexpr int deepest = 100;       ///< maximum nesting of parser functions
  static constexpr int deepest_tree = 400;  ///< maximum depth of the node tree

 protected:
  explicit TokenCursor(std::string_view source) : tokens_(template_tokens(source)) {}

  // Counts the nesting of the parser, so that no template overflows the stack.
  struct Deeper {
    explicit Deeper(TokenCursor& cursor) : depth(cursor.depth_) {
      if (++depth > deepest) cursor.fail(text("nested more than ", deepest, " deep"));
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  [[noreturn]] void fail(const std::string& what) const { throw ConfigError(text("line ", now().line, ": ", what)); }
  bool is_sign(std::string_view sign) const { return now().type == Token::Type::sign && now().text == sign; }
  bool is_name(std::string_view name) const { return now().type == Token::Type::name && now().text == name; }
  bool take_sign(std::string_view sign) {
    const bool is = is_sign(sign);
    if (is) next();
    return is;
  }
  bool take_name(std::string_view name) {
    const bool is = is_name(name);
    if (is) next();
    return is;
  }
  void expect_sign(std::string_view sign) {
    if (!take_sign(sign)) fail(text("expected ", sign, ", found ", now().text));
  }
  std::string expect_name() {
    if (now().type != Token::Type::name) fail(text("expected a name, found ", now().text));
    auto name = now().text;
    next();
    return name;
  }
  void expect_block_end() {
    if (now().type != Token::Type::block_end) fail(text("expected %}, found ", now().text));
    next();
  }
  NodePointer node(Node::Kind kind, std::string words = {}) const {
    return std::make_unique<Node>(Node{kind, now().line, std::move(words)});
  }
  void deepen(Node& parent, const NodePointer& child) const {
    if (child) parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > deepest_tree) fail(text("operators, filters and tags nested more than ", deepest_tree, " deep"));
  }
  void add(Node& parent, NodePointer child) const {
    deepen(parent, child);
    parent.children.push_back(std::move(child));
  }
  template <class... Children>
  NodePointer with(NodePointer parent, Children... children) const {
    (add(*parent, std::move(children)), ...);
    return parent;
  }

  // Names and targets of assignments.
  std::string assigned_name() {
    static const std::vector<std::string> kept = {"true", "false", "none", "True", "False", "None", "loop",
                                                  "not",  "and",   "or",   "in",   "is",    "if",   "else"};
    if (std::find(kept.begin(), kept.end(), now().text) != kept.end())
      fail(text("assigning to ", now().text, " is not supported"));
    return expect_name();
  }

  NodePointer target(bool attributes) {
    auto one = node(Node::Kind::name);
    one->text = assigned_name();
    if (attributes && take_sign(".")) {
      auto attribute = with(node(Node::Kind::attribute), std::move(one));
      attribute->text = expect_name();
      return attribute;
    }
    if (!is_sign(",")) return one;
    auto names = with(node(Node::Kind::tuple), std::move(one));
    while (take_sign(",")) {
      if (is_name("in") || is_sign("=")) break;
      auto another = node(Node::Kind::name);
      another->text = assigned_name();
      add(*names, std::move(another));
    }
    return names;
  }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::jinja
