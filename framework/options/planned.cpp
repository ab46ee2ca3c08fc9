#include "framework/options/planned.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "framework/base/error.h"

namespace tessera::options {
namespace {

using Integers = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

Value value_of(const PlannedValue& given) {
  if (given.kind == Value::Kind::scalar) return Value::of(std::string(given.word), {});
  Value value;
  value.kind = given.kind;
  for (const auto item : given.items) value.items.push_back(Value::of(std::string(item), {}));
  return value;
}

}  // namespace

const ValueType* planned_type(std::string_view name) {
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
  return found == all.end() ? nullptr : *found;
}

PlannedOptions::PlannedOptions(std::span<const PlannedRow> rows, const std::string& declared_in) {
  for (const auto& row : rows) {
    const auto* type = planned_type(row.type);
    must(type != nullptr, "a planned option has one of the types that planned.cpp lists");
    OptionFacts facts;
    facts.name = row.name;
    facts.type = row.type;
    facts.doc = row.text;
    facts.no_flag = row.no_flag;
    for (const auto alias : row.aliases) facts.aliases.push_back({std::string(alias)});
    facts.planned = true;
    facts.change = Change::silent;  // no accepted value changes anything
    facts.nullable = type->takes_null();
    facts.choices = type->choices();
    facts.declared_in = declared_in;
    for (const auto& value : row.takes) {
      const auto ours = type->rewrite(value_of(value));
      must(ours.has_value(), "a planned option takes values of its own type");
      if (facts.neutral.empty()) facts.default_value = *ours;
      facts.neutral.push_back(text(*ours));
    }
    must(!facts.neutral.empty(), "a planned option has a default");
    if (groups_.empty() || groups_.back().group != row.group) groups_.push_back({std::string(row.group), {}});
    groups_.back().all.push_back({std::move(facts), type});
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

}  // namespace tessera::options
