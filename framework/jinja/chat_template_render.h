#pragma once

#include <map>
#include <string>
#include <string_view>

#include "framework/jinja/chat_template.h"
#include "framework/jinja/chat_template_parser.h"

namespace tessera::jinja {

/// The evaluated arguments of a call, filter or test, without the input of a filter or test.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, TemplateValue>> named;
};

/// One rendering of a parsed template. An object renders only once. `limits` and `input` must outlive it.
class Renderer {
 public:
  Renderer(const ChatTemplateLimits& limits, const ChatTemplateInput& input) : limits_(limits), input_(input) {}
  Renderer(const Renderer&) = delete;
  ~Renderer();

  /// Renders the template with root `root`. Throws ConfigError, beginning with "line N: ".
  std::string run(const Node& root, std::map<std::string, TemplateValue, std::less<>> variables);

  // For functions, filters and tests.

  // These throw ConfigError if a limit is exceeded.

  /// Counts steps of evaluation.
  void step(std::int64_t count = 1);
  /// Counts the steps of reading a whole value.
  void reading(const TemplateValue& value) { step(size_of(value) / 64); }
  /// Counts the memory of an intermediate value, in bytes. To be called before the value is made if it may be larger
  /// than the values that it is made of.
  void created(std::size_t bytes);
  /// Checks the length of an intermediate text that grows, in bytes.
  void fits(std::size_t bytes) const;
  TemplateValue make_text(std::string made);
  /// A character of a text, or a part of one that is split; its memory is not only its bytes.
  TemplateValue make_part(std::string_view made);
  TemplateValue make_list(Values items, List::Type type = List::Type::list);
  TemplateValue make_dict(std::vector<std::pair<TemplateValue, TemplateValue>> items);
  TemplateValue make_namespace();
  /// The items over which a for loop over `value` iterates. A generator is empty afterwards. Throws ConfigError if
  /// `value` is not iterable.
  Values iterate(const TemplateValue& value);
  /// The value of `key`; null if there is none.
  const TemplateValue* find_item(const Dict& dict, const TemplateValue& key);
  std::int64_t longest() const { return limits_.output_bytes; }
  TemplateValue attribute(const TemplateValue& object, const std::string& name);
  TemplateValue item(const TemplateValue& object, const TemplateValue& index);
  TemplateValue filter(const std::string& name, const TemplateValue& value, const Arguments& arguments);
  bool test(const std::string& name, const TemplateValue& value, const Values& arguments);
  /// A method of a value: "strip" of a string.
  TemplateValue method(const TemplateValue& self, const std::string& name, const Arguments& arguments);
  TemplateValue global(const std::string& name, const Arguments& arguments);
  bool contains(const TemplateValue& container, const TemplateValue& value);
  /// `left` + `right` and the other operators of numbers, by their sign.
  std::optional<TemplateValue> sum_of(const TemplateValue& left, const TemplateValue& right);
  std::optional<TemplateValue> repeated(const TemplateValue& value, std::int64_t times);
  TemplateValue compute(const std::string& sign, const TemplateValue& left, const TemplateValue& right);
  /// Compares two values: -1, 0 or 1. Throws ConfigError if Python cannot order them.
  int order(const TemplateValue& one, const TemplateValue& other);

 private:
  enum class Flow { next, break_loop, continue_loop };
  struct Frame {
    std::map<std::string, TemplateValue, std::less<>> values;
    Frame* parent = nullptr;
  };
  struct Deeper;

  void print(std::string_view words);
  template <class Action>
  auto located(const Node& node, const Action& action);
  Flow execute(const Node& node);
  Flow execute_one(const Node& node);
  Flow execute_in_scope(const Node& block);
  Flow execute_set_block(const Node& node);
  Flow execute_loop(const Node& node);
  bool passes(const Node& loop, Frame* outer, const TemplateValue& item);
  Flow capture(const Node& block, std::string& into);  // what the block prints
  void assign(const Node& target, const TemplateValue& value);
  const TemplateValue* find(std::string_view name) const;
  TemplateValue evaluate(const Node& node);
  TemplateValue evaluate_one(const Node& node);
  TemplateValue concatenate(const Node& node);
  TemplateValue compare(const Node& node);
  TemplateValue slice(const Node& node);
  TemplateValue call(const Node& node);
  TemplateValue call_macro(const Node& macro, const Arguments& arguments);
  Arguments arguments(const Node& node);

  const ChatTemplateLimits& limits_;
  const ChatTemplateInput& input_;
  Frame root_;
  Frame* frame_ = &root_;
  std::string* out_ = nullptr;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // cleared at the end, to break reference cycles
  std::int64_t steps_ = 0, created_ = 0;
  int depth_ = 0, macros_ = 0;
};

/// Whether a value of this type has an implemented method `name`. Throws ConfigError for a method that Python's type
/// has but that is not implemented.
bool has_method(const TemplateValue& value, const std::string& name);
bool is_global(std::string_view name);

/// Throws ConfigError about an undefined value.
[[noreturn]] void fail_undefined(const TemplateValue& value);

}  // namespace tessera::jinja
