#include "framework/options/schema.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/visible_text.h"

namespace tessera::options {
namespace {

const void* member(const void* options, std::size_t offset) { return static_cast<const char*>(options) + offset; }
void* member(void* options, std::size_t offset) { return static_cast<char*>(options) + offset; }

/// The facts of an option that follow from its type and default.
OptionFacts facts_of(std::string name, const ValueType& type, const void* value, std::string doc, const char* file) {
  OptionFacts facts{std::move(name), type.name(), std::move(doc)};
  facts.declared_in = path_in_tree(file);
  facts.default_value = type.write(value);
  facts.nullable = type.takes_null();
  facts.choices = type.choices();
  facts.json_schema = type.json_schema();
  return facts;
}

Finding named(const AnySchema::Entry::Rule& rule, const std::string& option, Finding finding) {
  finding.option = option;
  finding.rule = rule.name;
  if (finding.advice.empty()) finding.advice = rule.advice;
  return finding;
}

/// The facts under the name that the option has in the nested map `map`.
OptionFacts in_map(OptionFacts facts, const std::string& map) {
  facts.name = map + "." + facts.name;
  for (auto& alias : facts.aliases) alias.name = map + "." + alias.name;
  for (auto& other : facts.replaces) other = map + "." + other;
  return facts;
}

}  // namespace

void say_default(OptionFacts& facts, const std::string& words) {
  if (!facts.doc.empty() && facts.doc.back() == '.') facts.doc.pop_back();
  facts.otherwise = words;
  facts.doc += (facts.doc.find("; null") == std::string::npos ? "; null: " : "") + words + ".";
}

void AnySchema::Entry::limit(NumberLimit limit) {
  facts.limits.push_back(limit.words());
  limits.push_back(limit);
}

void AnySchema::Entry::otherwise(const char* words, Value (*value)(const void*)) {
  say_default(facts, words);
  default_value = value;
}

AnySchema::Entry& AnySchema::add(std::string name, const ValueType& type, std::size_t offset, std::string doc,
                                 const char* file) {
  entries_.push_back({facts_of(std::move(name), type, member(defaults_, offset), std::move(doc), file), &type, offset});
  entries_.back().facts.change = change_;
  entries_.back().facts.needs = needs_;
  return entries_.back();
}

void AnySchema::complete(std::size_t members) {
  must(entries_.size() == members, "every member of an options struct is described");
  for (auto& entry : entries_) {
    entry.facts.reader = reader_;
    entry.facts.required = is_required(entry);
    for (const auto& rule : entry.rules)
      if (std::find(entry.facts.rules.begin(), entry.facts.rules.end(), rule.name) == entry.facts.rules.end())
        entry.facts.rules.emplace_back(rule.name);
  }
}

bool AnySchema::is_required(const Entry& entry) const {
  return std::any_of(entry.limits.begin(), entry.limits.end(), [&](const NumberLimit& limit) {
    return !entry.type->within(member(defaults_, entry.offset), limit);
  });
}

std::vector<OptionFacts> AnySchema::facts(const std::string& map) const {
  std::vector<OptionFacts> all;
  for (const auto& entry : entries_) all.push_back(map.empty() ? entry.facts : in_map(entry.facts, map));
  return all;
}

void AnySchema::read(Group& group, const std::string& map, void* out) const {
  const auto known = facts(map);
  for (const auto& facts : known) group.replace_others(facts);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& entry = entries_[i];
    const auto& facts = known[i];
    const auto given = group.take(facts);
    bool wrong = given.wrong;
    if (facts.required && given.origin.layer == 0) {
      group.demand(facts);
    } else if (!given.wrong) {
      const auto [message, advice] = read_value(entry, facts, given, out);
      wrong = !message.empty();
      if (wrong) group.problem(given.origin, facts.name, message, advice);
    }
    auto value = entry.type->write(member(out, entry.offset));
    value.wrong = wrong;  // it is the default, not what was given
    group.settle(facts.name, std::move(value), given.origin);
  }
  judge(group, map, out);
}

AnySchema::Wrong AnySchema::read_value(const Entry& entry, const OptionFacts& facts, const Value& given,
                                       void* out) const {
  auto* value = member(out, entry.offset);
  if (!entry.type->read(given, value)) return {wrong_value(facts, given), what_it_takes(facts, given)};
  for (std::size_t i = 0; i < entry.limits.size(); ++i)
    if (!entry.type->within(value, entry.limits[i]))
      return {text(facts.name, " must be ", facts.limits[i], ", is ", shortened(text(given))),
              text("give a value ", facts.limits[i])};
  return {};
}

/// Checks the rules between the options of the struct; records derived defaults and options without effect.
void AnySchema::judge(Group& group, const std::string& map, const void* options) const {
  const auto name = [&](const std::string& option) { return map.empty() ? option : map + "." + option; };
  const auto wrong = [&](const Entry& entry) { return group.concerned(name(entry.facts.name)); };
  const bool required_wrong =
      std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.facts.required && wrong(e); });
  for (const auto& entry : entries_)
    for (const auto& rule : entry.rules) {
      std::vector<std::string> about = {name(entry.facts.name)};
      for (const auto* other : rule.others) about.push_back(name(other));
      if (required_wrong || !group.can_judge(about)) continue;
      if (auto finding = rule.broken(options)) group.broken(about, named(rule, about[0], *std::move(finding)));
    }
  const bool sound = std::none_of(entries_.begin(), entries_.end(), wrong);
  for (const auto& entry : entries_) {
    const bool is_null = entry.type->write(member(options, entry.offset)).kind == Value::Kind::none;
    if (sound && is_null && !entry.facts.otherwise.empty())
      group.derive(name(entry.facts.name),
                   {entry.default_value ? text(entry.default_value(options)) : "", entry.facts.otherwise});
    for (const auto& condition : entry.conditions)
      if (!condition.matters(options)) group.idle(name(entry.facts.name), condition.otherwise);
  }
}

std::vector<Finding> AnySchema::broken(const void* options) const {
  std::vector<Finding> all;
  for (const auto& entry : entries_) {
    const auto* value = member(options, entry.offset);
    for (std::size_t i = 0; i < entry.limits.size(); ++i)
      if (!entry.type->within(value, entry.limits[i]))
        all.push_back({entry.facts.name,
                       text(entry.facts.name, " must be ", entry.facts.limits[i], ", is ", entry.type->write(value)),
                       text("give a value ", entry.facts.limits[i])});
  }
  if (!all.empty()) return all;
  for (const auto& entry : entries_)
    for (const auto& rule : entry.rules)
      if (auto finding = rule.broken(options)) all.push_back(named(rule, entry.facts.name, *std::move(finding)));
  return all;
}

}  // namespace tessera::options
