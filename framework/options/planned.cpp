#include "framework/options/planned.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"
#include "framework/options/yaml.h"

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

const Value& field(const Value& row, const char* name) {
  const auto* found = row.find(name);
  must(found != nullptr, "a planned option has type, takes and text");
  return *found;
}

}  // namespace

PlannedOptions::PlannedOptions(const std::string& table, const std::string& name) {
  for (const auto& [group, rows] : parse_yaml(table, name).fields) {
    Options options{group, {}};
    for (const auto& [key, row] : rows.fields) {
      const auto& type = type_named(field(row, "type").scalar);
      OptionFacts facts{key, type.name(), field(row, "text").scalar};
      facts.planned = true;
      facts.nullable = type.takes_null();
      facts.choices = type.choices();
      facts.declared_in = name;
      for (const auto& value : field(row, "takes").items) {
        const auto ours = type.rewrite(value);
        must(ours.has_value(), "a planned option takes values of its own type");
        if (facts.neutral.empty()) facts.default_value = *ours;
        facts.neutral.push_back(text(*ours));
      }
      must(!facts.neutral.empty(), "a planned option has a default");
      if (const auto* also = row.find("also"))
        for (const auto& alias : also->items) facts.aliases.push_back({alias.scalar});
      options.all.push_back({std::move(facts), &type});
    }
    groups_.push_back(std::move(options));
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
