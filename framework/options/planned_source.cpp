#include "framework/options/planned_source.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "framework/base/error.h"
#include "framework/options/planned.h"
#include "framework/options/yaml.h"

namespace tessera::options {
namespace {

const std::vector<std::string> fields = {"type", "takes", "also", "text", "no_flag"};

/// `words` as a C++ string literal.
std::string quoted(const std::string& words) {
  std::string out = "\"";
  for (const auto c : words) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

class TableSource {
 public:
  explicit TableSource(const std::string& name) : name_(name) {}

  std::string write(const std::string& table) {
    const auto tree = parse_yaml(table, name_, report_);
    if (report_.good() && tree.kind != Value::Kind::group) problem(tree, "", "a group of options was expected");
    for (const auto& group : tree.fields) {
      if (group.value.kind != Value::Kind::group) problem(group.value, group.name, "its options were expected");
      for (const auto& option : group.value.fields) add(group.name, option);
    }
    report_.must_be_good();
    return text("// Generated from ", name_,
                " by options/planned_source.cpp.\n#include \"framework/recipe/planned_options.h\"\n\n",
                "namespace tessera::recipe {\nnamespace {\n\nusing options::PlannedRow;\nusing "
                "options::PlannedValue;\nusing enum options::Value::Kind;\n\n",
                lists_.str(), "constexpr PlannedRow rows[] = {\n", rows_.str(), "};\n\n}  // namespace\n\n",
                "std::span<const PlannedRow> planned_rows() { return rows; }\n\n}  // namespace tessera::recipe\n");
  }

 private:
  void problem(const Value& at, const std::string& option, const std::string& message, const std::string& advice = "") {
    report_.problem(at.origin, option, option.empty() ? message : option + ": " + message, advice);
  }

  /// The field as one word; empty if there is none.
  std::string word(const Value& row, const std::string& key, const char* field, bool required) {
    const auto* value = row.find(field);
    if (value == nullptr || value->kind != Value::Kind::scalar || value->scalar.empty()) {
      if (value != nullptr || required)
        problem(value ? *value : row, key, text("`", field, "` was expected to be a text"));
      return "";
    }
    return value->scalar;
  }

  /// The name of a new array of these words; "{}" for none.
  std::string words(const Value& list, const std::string& key) {
    if (list.items.empty()) return "{}";
    const auto array = text("words_", ++arrays_);
    lists_ << "constexpr std::string_view " << array << "[] = {";
    for (const auto& item : list.items) {
      if (item.kind != Value::Kind::scalar) problem(item, key, text("a word was expected, not ", item));
      lists_ << quoted(item.scalar) << ", ";
    }
    lists_ << "};\n";
    return array;
  }

  /// The name of a new array of the accepted values.
  std::string values(const Value& list, const std::string& key, const ValueType& type) {
    std::vector<std::string> all;
    for (const auto& value : list.items) {
      if (!type.rewrite(value))
        problem(value, key, text(type.name(), " does not read ", value), "give values of its type");
      if (value.kind == Value::Kind::none)
        all.emplace_back("{none, {}, {}}");
      else if (value.kind == Value::Kind::list)
        all.push_back(text("{list, {}, ", words(value, key), "}"));
      else
        all.push_back(text("{scalar, ", quoted(value.scalar), ", {}}"));
    }
    const auto array = text("values_", ++arrays_);
    lists_ << "constexpr PlannedValue " << array << "[] = {";
    for (const auto& value : all) lists_ << value << ", ";
    lists_ << "};\n";
    return array;
  }

  void add(const std::string& group, const Value::Field& option) {
    const auto& [key, row] = option;
    if (row.kind != Value::Kind::group) return problem(row, key, "{type: ..., takes: [...], text: ...} was expected");
    for (const auto& field : row.fields)
      if (std::find(fields.begin(), fields.end(), field.name) == fields.end())
        problem(field.value, key, text("no field '", field.name, "'"), did_you_mean(field.name, fields));
    const auto type = word(row, key, "type", true), words_for_users = word(row, key, "text", true),
               no_flag = word(row, key, "no_flag", false);
    const auto* known = planned_type(type);
    if (known == nullptr && !type.empty()) problem(*row.find("type"), key, text("no type '", type, "'"));
    const auto *takes = row.find("takes"), *also = row.find("also");
    if (takes == nullptr || takes->kind != Value::Kind::list || takes->items.empty())
      return problem(takes ? *takes : row, key, "`takes` was expected to be a list that begins with the default");
    if (also != nullptr && also->kind != Value::Kind::list) problem(*also, key, "`also` was expected to be a list");
    if (known == nullptr) return;
    const auto accepted = values(*takes, key, *known), aliases = also ? words(*also, key) : "{}";
    rows_ << "    {.group = " << quoted(group) << ", .name = " << quoted(key) << ", .type = " << quoted(type)
          << ",\n     .text = " << quoted(words_for_users) << ", .no_flag = " << quoted(no_flag)
          << ", .aliases = " << aliases << ", .takes = " << accepted << "},\n";
  }

  std::string name_;
  Report report_;
  std::ostringstream lists_, rows_;
  int arrays_ = 0;
};

}  // namespace

std::string planned_source(const std::string& table, const std::string& name) { return TableSource(name).write(table); }

}  // namespace tessera::options
