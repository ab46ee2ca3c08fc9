#include "framework/options/planned.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "framework/base/error.h"

namespace tessera {
namespace {

using Integers = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

const ValueType& type_named(const std::string& name) {
  static const std::vector<const ValueType*> all = {&value_type<bool>(),
                                                    &value_type<std::int64_t>(),
                                                    &value_type<double>(),
                                                    &value_type<std::string>(),
                                                    &value_type<Integers>(),
                                                    &value_type<std::optional<std::int64_t>>(),
                                                    &value_type<std::optional<double>>(),
                                                    &value_type<std::optional<std::string>>(),
                                                    &value_type<std::optional<Integers>>(),
                                                    &value_type<std::optional<Texts>>()};
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto* type) { return type->name() == name; });
  must(found != all.end(), "the type of a planned option is one of those that planned.cpp lists");
  return **found;
}

/// Reads one row. A reader of all of YAML takes 8 ms for the table, at each start of the program.
class Row {
 public:
  explicit Row(std::string_view line) : rest_(line) {}

  OptionFacts option() {
    OptionFacts facts;
    take("  ");
    facts.name = until(": {type: ");
    facts.type = until(", takes: [");
    takes_ = values();
    if (next(", also: ["))
      for (const auto& name : values()) facts.aliases.push_back({name.scalar});
    take(", text: \"");
    facts.doc = until("\"");
    if (next(", no_flag: \"")) facts.no_flag = until("\"");
    take("}");
    must(rest_.empty(), form);
    return facts;
  }
  const std::vector<Value>& takes() const { return takes_; }

 private:
  static constexpr const char* form = "a row of the planned options has the form that planned.yaml states";

  bool next(std::string_view words) {
    const bool is = rest_.substr(0, words.size()) == words;
    if (is) rest_.remove_prefix(words.size());
    return is;
  }
  void take(std::string_view words) { must(next(words), form); }
  std::string until(std::string_view words) {
    const auto at = rest_.find(words);
    must(at != std::string_view::npos, form);
    const std::string before(rest_.substr(0, at));
    rest_.remove_prefix(at + words.size());
    return before;
  }
  /// The items of a list to its end, "a, [0], '']".
  std::vector<Value> values() {
    std::vector<Value> all;
    while (!next("]")) {
      if (!all.empty()) take(", ");
      if (next("[")) {
        Value list;
        list.kind = Value::Kind::list;
        list.items = values();
        all.push_back(std::move(list));
        continue;
      }
      const auto end = rest_.find_first_of(",]");
      must(end != std::string_view::npos, form);
      const std::string word(rest_.substr(0, end));
      rest_.remove_prefix(end);
      all.push_back(word == "null" ? Value{} : Value::of(word == "''" ? "" : word, {}));
    }
    return all;
  }

  std::string_view rest_;
  std::vector<Value> takes_;
};

}  // namespace

PlannedOptions::PlannedOptions(const std::string& table, const std::string& name) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != ' ') {
      must(line.back() == ':', "a group of the planned options is a line of its own");
      groups_.push_back({line.substr(0, line.size() - 1), {}});
      continue;
    }
    must(!groups_.empty(), "a planned option stands below its group");
    Row row(line);
    auto facts = row.option();
    const auto& type = type_named(facts.type);
    facts.planned = true;
    facts.nullable = type.takes_null();
    facts.choices = type.choices();
    facts.declared_in = name;
    for (const auto& value : row.takes()) {
      const auto ours = type.rewrite(value);
      must(ours.has_value(), "a planned option takes values of its own type");
      if (facts.neutral.empty()) facts.default_value = *ours;
      facts.neutral.push_back(text(*ours));
    }
    must(!facts.neutral.empty(), "a planned option has a default");
    groups_.back().all.push_back({std::move(facts), &type});
  }
}

std::vector<std::string> PlannedOptions::groups() const {
  std::vector<std::string> all;
  for (const auto& options : groups_) all.push_back(options.group);
  return all;
}

void PlannedOptions::read(Group& group) const {
  for (const auto& options : groups_) {
    if (options.group != group.name()) continue;
    SchemaFacts schema;
    for (const auto& option : options.all) schema.options.push_back(option.facts);
    group.know(std::move(schema));
    for (const auto& [facts, type] : options.all) {
      const auto given = group.take(facts);
      const auto ours = given.wrong ? std::nullopt : type->rewrite(given);
      const auto& neutral = facts.neutral;
      const bool taken = ours && std::find(neutral.begin(), neutral.end(), text(*ours)) != neutral.end();
      if (!taken && !given.wrong)
        group.problem(given.origin, facts.name, wrong_value(facts, given), what_it_takes(facts, given));
      // Of several values that change nothing the recipe keeps the one that was given.
      group.settle(facts.name, taken ? *ours : facts.default_value, given.origin);
    }
  }
}

}  // namespace tessera
