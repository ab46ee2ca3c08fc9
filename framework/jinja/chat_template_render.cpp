#include "framework/jinja/chat_template_render.h"

#include <algorithm>

namespace tessera::jinja {

namespace {
// Each level takes three C++ functions; Python itself stops at 1000.
constexpr int deepest_evaluation = 800;

// Marks a message that already says its line, so that outer nodes do not add theirs.
struct Located : ConfigError {
  using ConfigError::ConfigError;
};
}  // namespace

struct Renderer::Deeper {
  explicit Deeper(int& counter) : depth(counter) {
    if (++depth > deepest_evaluation)
      throw ConfigError(text("the template is nested more than ", deepest_evaluation, " deep when it runs"));
  }
  ~Deeper() { --depth; }
  int& depth;
};

Renderer::~Renderer() {
  for (const auto& one : namespaces_) one->items.clear();
}

void fail_undefined(const TemplateValue& value) {
  const auto* undefined = value.get<TemplateValue::Undefined>();
  throw ConfigError(undefined && undefined->what ? *undefined->what : "a value is undefined");
}

void Renderer::step(std::int64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps)
    throw ConfigError(text("the template takes too many steps: more than ", limits_.steps, ", which is the limit"));
}

void Renderer::fits(std::size_t bytes) const {
  if (static_cast<std::int64_t>(bytes) > limits_.output_bytes)
    throw ConfigError(
        text("the template makes a text or list of more than ", limits_.output_bytes, " bytes, which is the limit"));
}

void Renderer::created(std::size_t bytes) {
  fits(bytes);
  created_ += static_cast<std::int64_t>(bytes);
  if (created_ > limits_.created_bytes)
    throw ConfigError(text("the template makes more than ", limits_.created_bytes,
                           " bytes of intermediate texts and lists, which is the limit"));
}

TemplateValue Renderer::make_text(std::string made) {
  created(made.size());
  return TemplateValue::of(std::move(made));
}

TemplateValue Renderer::make_part(std::string_view made) {
  constexpr std::size_t own = 64;  // of a shared string
  created(made.size() + own);
  return TemplateValue::of(std::string(made));
}

TemplateValue Renderer::make_list(Values items, List::Type type) {
  created(items.size() * sizeof(TemplateValue));
  auto list = jinja::make_list(std::move(items), type);
  fits(static_cast<std::size_t>(list.list()->size));
  if (list.list()->depth > limits_.depth)
    throw ConfigError(text("values are nested more than ", limits_.depth, " deep"));
  return list;
}

TemplateValue Renderer::make_dict(std::vector<std::pair<TemplateValue, TemplateValue>> items) {
  const auto count = static_cast<std::int64_t>(items.size());
  created(items.size() * 2 * sizeof(TemplateValue));
  step(count * count / 16);  // each key is compared with those before it
  auto dict = jinja::make_dict(std::move(items));
  fits(static_cast<std::size_t>(dict.dict()->size));
  if (dict.dict()->depth > limits_.depth)
    throw ConfigError(text("values are nested more than ", limits_.depth, " deep"));
  return dict;
}

TemplateValue Renderer::make_namespace() {
  namespaces_.push_back(std::make_shared<Namespace>());
  created(sizeof(Namespace));
  return TemplateValue(namespaces_.back());
}

std::string Renderer::run(const Node& root, std::map<std::string, TemplateValue, std::less<>> variables) {
  Frame given;
  given.values = std::move(variables);
  root_.parent = &given;
  std::string out;
  out_ = &out;
  execute(root);
  root_.values.clear();
  root_.parent = nullptr;
  return out;
}

void Renderer::print(std::string_view words) {
  fits(out_->size() + words.size());
  *out_ += words;
}

const TemplateValue* Renderer::find(std::string_view name) const {
  for (const auto* frame = frame_; frame; frame = frame->parent)
    if (const auto found = frame->values.find(name); found != frame->values.end()) return &found->second;
  return nullptr;
}

Renderer::Flow Renderer::capture(const Node& block, std::string& into) {
  auto* const outer = std::exchange(out_, &into);
  const auto flow = execute(block);
  out_ = outer;
  created(into.size());
  return flow;
}

template <class Action>
auto Renderer::located(const Node& node, const Action& action) {
  const Deeper deeper(depth_);
  try {
    step();
    return action();
  } catch (const Located&) {
    throw;
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    throw Located(what.rfind("line ", 0) == 0 ? what : text("line ", node.line, ": ", what));
  }
}

Renderer::Flow Renderer::execute(const Node& node) {
  return located(node, [&] { return execute_one(node); });
}

Renderer::Flow Renderer::execute_one(const Node& node) {
  switch (node.kind) {
    case Node::Kind::data:
      print(node.text);
      break;
    case Node::Kind::output: {
      const auto value = evaluate(*node.children[0]);
      reading(value);
      print(str(value));
      break;
    }
    case Node::Kind::set:
      assign(*node.children[0], evaluate(*node.children[1]));
      break;
    case Node::Kind::set_block:
      return execute_set_block(node);
    case Node::Kind::condition:
      for (std::size_t i = 0; i + 1 < node.children.size(); i += 2)
        if (truth(evaluate(*node.children[i]))) return execute(*node.children[i + 1]);
      if (node.children.back()) return execute(*node.children.back());
      break;
    case Node::Kind::loop:
      return execute_loop(node);
    case Node::Kind::macro: {
      Function function;
      function.name = node.text;
      function.macro = &node;
      frame_->values[node.text] = TemplateValue(std::make_shared<const Function>(std::move(function)));
      break;
    }
    case Node::Kind::generation:
      return execute_in_scope(*node.children[0]);
    case Node::Kind::break_loop:
      return Flow::break_loop;
    case Node::Kind::continue_loop:
      return Flow::continue_loop;
    default:
      for (const auto& child : node.children)
        if (const auto flow = execute(*child); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Renderer::Flow Renderer::execute_in_scope(const Node& block) {
  Frame inner;
  inner.parent = frame_;
  frame_ = &inner;
  const auto flow = execute(block);
  frame_ = inner.parent;
  return flow;
}

// If break or continue leaves the block, nothing is assigned.
Renderer::Flow Renderer::execute_set_block(const Node& node) {
  Frame inner;
  inner.parent = frame_;
  frame_ = &inner;
  std::string words;
  const auto flow = capture(*node.children[1], words);
  frame_ = inner.parent;
  if (flow == Flow::next) assign(*node.children[0], TemplateValue::of(std::move(words)));
  return flow;
}

// Whether the filter of a loop, which stands in the frame `outer`, accepts an item.
bool Renderer::passes(const Node& loop, Frame* outer, const TemplateValue& item) {
  Frame inner;
  inner.parent = outer;
  auto* const before = std::exchange(frame_, &inner);
  assign(*loop.children[0], item);
  const bool accepted = truth(evaluate(*loop.children[2]));
  frame_ = before;
  return accepted;
}

// As in Jinja, the block of else is rendered unless a pass reached the end of the body: a pass that ends with break or
// continue does not count.
Renderer::Flow Renderer::execute_loop(const Node& node) {
  const auto& target = *node.children[0];
  Frame* const outer = frame_;
  const auto loop = std::make_shared<Loop>();
  loop->items = iterate(evaluate(*node.children[1]));
  if (node.children[2]) {
    loop->filter = [this, outer, &node](const TemplateValue& item) { return passes(node, outer, item); };
  } else {
    loop->passed = loop->tested = loop->items.size();
  }
  bool completed = false;
  for (std::size_t i = 0; loop->has(i); ++i) {
    step();
    loop->index = i;
    Frame inner;
    inner.parent = outer;
    frame_ = &inner;
    inner.values["loop"] = TemplateValue(loop);
    assign(target, loop->items[i]);
    const auto flow = execute(*node.children[3]);
    frame_ = outer;
    if (flow == Flow::break_loop) break;
    if (flow == Flow::next) completed = true;
  }
  loop->filter = nullptr;  // a namespace may hold the loop longer than its frames live
  return !completed && node.children[4] ? execute_in_scope(*node.children[4]) : Flow::next;
}

void Renderer::assign(const Node& target, const TemplateValue& value) {
  if (target.kind == Node::Kind::name) {
    frame_->values[target.text] = value;
    return;
  }
  try {
    if (target.kind == Node::Kind::attribute) {
      const auto* object = find(target.children[0]->text);
      const auto* space = object ? object->get<std::shared_ptr<Namespace>>() : nullptr;
      if (!space) throw ConfigError("cannot assign attribute on non-namespace object");
      if (target.text[0] == '_') throw ConfigError("attributes of a namespace cannot begin with _");
      (*space)->set(target.text, value);
      return;
    }
    const auto items = iterate(value);
    if (items.size() != target.children.size())
      throw ConfigError(text(items.size(), " values cannot be assigned to ", target.children.size(), " names"));
    for (std::size_t i = 0; i < items.size(); ++i) assign(*target.children[i], items[i]);
  } catch (const ConfigError& error) {
    throw ConfigError(text("line ", target.line, ": ", error.what()));
  }
}

TemplateValue Renderer::evaluate(const Node& node) {
  return located(node, [&] { return evaluate_one(node); });
}

namespace {

TemplateValue with_sign(const TemplateValue& value, bool negative) {
  if (value.is_undefined()) fail_undefined(value);
  if (const auto* d = value.get<double>()) return TemplateValue(negative ? -*d : *d);
  const auto* b = value.get<bool>();
  const auto* i = value.get<std::int64_t>();
  if (!b && !i) throw ConfigError(text("bad operand type for unary sign: ", type_name(value)));
  const auto number = b ? static_cast<std::int64_t>(*b) : *i;
  if (number == INT64_MIN) throw ConfigError("an integer beyond 64 bits is not supported");
  return TemplateValue(negative ? -number : number);
}

}  // namespace

TemplateValue Renderer::concatenate(const Node& node) {
  std::string joined;
  for (const auto& one : node.children) {
    const auto value = evaluate(*one);
    reading(value);
    joined += str(value);
    fits(joined.size());
  }
  return make_text(std::move(joined));
}

TemplateValue Renderer::evaluate_one(const Node& node) {
  const auto child = [&](std::size_t i) { return evaluate(*node.children[i]); };
  switch (node.kind) {
    case Node::Kind::constant:
      return node.value;
    case Node::Kind::name: {
      if (const auto* found = find(node.text)) return *found;
      if (!is_global(node.text)) return TemplateValue::undefined("'" + node.text + "' is undefined");
      Function function;
      function.name = node.text;
      return TemplateValue(std::make_shared<const Function>(std::move(function)));
    }
    case Node::Kind::list:
    case Node::Kind::tuple: {
      Values items;
      for (const auto& one : node.children) items.push_back(evaluate(*one));
      return make_list(std::move(items), node.kind == Node::Kind::list ? List::Type::list : List::Type::tuple);
    }
    case Node::Kind::dict: {
      std::vector<std::pair<TemplateValue, TemplateValue>> items;
      for (std::size_t i = 0; i < node.children.size(); i += 2) items.emplace_back(child(i), child(i + 1));
      return make_dict(std::move(items));
    }
    case Node::Kind::attribute:
      return attribute(child(0), node.text);
    case Node::Kind::item: {
      const auto object = child(0);
      return item(object, child(1));
    }
    case Node::Kind::slice:
      return slice(node);
    case Node::Kind::call:
      return call(node);
    case Node::Kind::filter: {
      const auto value = child(0);
      return filter(node.text, value, arguments(node));
    }
    case Node::Kind::test: {
      const auto value = child(0);
      return TemplateValue(test(node.text, value, arguments(node).positional));
    }
    case Node::Kind::negate:
    case Node::Kind::plus:
      return with_sign(child(0), node.kind == Node::Kind::negate);
    case Node::Kind::not_:
      return TemplateValue(!truth(child(0)));
    case Node::Kind::and_: {
      auto left = child(0);
      return truth(left) ? child(1) : left;
    }
    case Node::Kind::or_: {
      auto left = child(0);
      return truth(left) ? left : child(1);
    }
    case Node::Kind::binary: {
      const auto left = child(0);
      return compute(node.text, left, child(1));
    }
    case Node::Kind::compare:
      return compare(node);
    case Node::Kind::concatenate:
      return concatenate(node);
    case Node::Kind::choice:
      if (truth(child(0))) return child(1);
      if (node.children[2]) return child(2);
      return TemplateValue::undefined("the inline if-expression evaluated to false and no else section was defined");
    default:
      throw BugError("a statement is not an expression");
  }
}

TemplateValue Renderer::compare(const Node& node) {
  auto left = evaluate(*node.children[0]);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    auto right = evaluate(*node.children[i + 1]);
    reading(left);
    reading(right);
    const auto& sign = node.operators[i];
    bool holds = false;
    if (sign == "==") {
      holds = equal(left, right);
    } else if (sign == "!=") {
      holds = !equal(left, right);
    } else if (sign == "in") {
      holds = contains(right, left);
    } else if (sign == "not in") {
      holds = !contains(right, left);
    } else {
      const auto result = order(left, right);
      const bool unordered = result == 2;  // NaN
      holds = !unordered && (sign == "<"    ? result < 0
                             : sign == "<=" ? result <= 0
                             : sign == ">"  ? result > 0
                                            : result >= 0);
    }
    if (!holds) return TemplateValue(false);
    left = std::move(right);
  }
  return TemplateValue(true);
}

Arguments Renderer::arguments(const Node& node) {
  Arguments given;
  for (std::size_t i = 1; i < node.children.size(); ++i) given.positional.push_back(evaluate(*node.children[i]));
  for (const auto& [name, value] : node.named) given.named.emplace_back(name, evaluate(*value));
  return given;
}

TemplateValue Renderer::call(const Node& node) {
  const auto function = evaluate(*node.children[0]);
  if (function.is_undefined()) fail_undefined(function);
  const auto* callee = function.get<std::shared_ptr<const Function>>();
  if (!callee) throw ConfigError(text("'", type_name(function), "' object is not callable"));
  const auto given = arguments(node);
  const auto& f = **callee;
  if (f.macro) return call_macro(*f.macro, given);
  return f.self ? method(*f.self, f.name, given) : global(f.name, given);
}

TemplateValue Renderer::call_macro(const Node& macro, const Arguments& given) {
  if (++macros_ > limits_.depth) throw ConfigError(text("macros call each other more than ", limits_.depth, " deep"));
  const auto parameters = macro.children.size() - 1;
  if (given.positional.size() > parameters)
    throw ConfigError(text("macro '", macro.text, "' takes not more than ", parameters, " argument(s)"));
  Frame inner;
  inner.parent = &root_;
  for (const auto& [name, value] : given.named) {
    std::size_t which = 0;
    while (which < parameters && macro.children[which]->text != name) ++which;
    if (which == parameters) throw ConfigError(text("macro '", macro.text, "' takes no keyword argument '", name, "'"));
    if (which < given.positional.size())
      throw ConfigError(text("macro '", macro.text, "' got multiple values for argument '", name, "'"));
    inner.values[name] = value;
  }
  auto* const outer = std::exchange(frame_, &inner);
  const auto first_default = parameters - macro.named.size();
  for (std::size_t i = 0; i < parameters; ++i) {
    const auto& name = macro.children[i]->text;
    if (i < given.positional.size()) {
      inner.values[name] = given.positional[i];
    } else if (inner.values.find(name) == inner.values.end()) {
      inner.values[name] = i >= first_default ? evaluate(*macro.named[i - first_default].second)
                                              : TemplateValue::undefined("parameter '" + name + "' was not provided");
    }
  }
  std::string words;
  capture(*macro.children.back(), words);  // the parser lets neither break nor continue leave a macro
  frame_ = outer;
  --macros_;
  return TemplateValue::of(std::move(words));
}

}  // namespace tessera::jinja
