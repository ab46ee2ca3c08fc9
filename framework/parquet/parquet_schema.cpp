#include "framework/parquet/parquet_schema.h"

#include <algorithm>
#include <iterator>

#include "framework/unicode/utf8.h"

namespace tessera::parquet {
namespace {

using Kind = ParquetNode::Kind;
using Meaning = ParquetNode::Meaning;
using Repetition = ParquetElement::Repetition;

constexpr int deepest_schema = 64;

bool is_list(const ParquetElement& element) { return element.converted == 3 || element.logical == 3; }
bool is_map(const ParquetElement& element) {
  return element.converted == 1 || element.converted == 2 || element.logical == 2;
}

/// What Parquet calls a logical or physical type that has no values in JSON.
std::string unsupported_name(const ParquetElement& element) {
  static constexpr const char* logical[] = {"",     "",          "",        "",         "",         "DECIMAL", "DATE",
                                            "TIME", "TIMESTAMP", "",        "INTEGER",  "UNKNOWN",  "",        "BSON",
                                            "UUID", "FLOAT16",   "VARIANT", "GEOMETRY", "GEOGRAPHY"};
  static constexpr const char* physical[] = {"BOOLEAN", "INT32",  "INT64",      "INT96",
                                             "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
  if (element.logical > 0 && element.logical < static_cast<int>(std::size(logical)) && *logical[element.logical] != 0)
    return logical[element.logical];
  switch (element.converted) {
    case 5:
      return "DECIMAL";
    case 6:
      return "DATE";
    case 7:
    case 8:
      return "TIME";
    case 9:
    case 10:
      return "TIMESTAMP";
    case 20:
      return "BSON";
    case 21:
      return "INTERVAL";
    default:
      return physical[static_cast<int>(*element.type)];
  }
}

Meaning meaning_of(const ParquetElement& element) {
  const auto logical = element.logical, converted = element.converted;
  switch (*element.type) {
    case ParquetType::boolean:
      return Meaning::boolean;
    case ParquetType::float32:
    case ParquetType::float64:
      return Meaning::number;
    case ParquetType::int32:
    case ParquetType::int64:
      if (logical == 10) return element.is_signed ? Meaning::integer : Meaning::unsigned_integer;
      if (converted >= 11 && converted <= 14) return Meaning::unsigned_integer;
      if (logical == 0 && (converted == -1 || (converted >= 15 && converted <= 18))) return Meaning::integer;
      if (logical == 11) return Meaning::integer;  // UNKNOWN: a column of nulls
      return Meaning::unsupported;
    case ParquetType::bytes:  // older writers do not mark texts; each value is checked to be UTF-8
      if (logical == 1 || logical == 4 || logical == 11 || logical == 12) return Meaning::string;
      if (logical == 0 && (converted == -1 || converted == 0 || converted == 4 || converted == 19))
        return Meaning::string;
      return Meaning::unsupported;
    case ParquetType::int96:
    case ParquetType::fixed_bytes:
      return Meaning::unsupported;
  }
  return Meaning::unsupported;
}

class Builder {
 public:
  explicit Builder(std::span<const ParquetElement> elements) : elements_(elements) {}

  std::vector<ParquetNode> columns() {
    if (elements_.empty() || elements_[0].type || elements_[0].children == 0)
      throw ConfigError("its schema has no columns");
    std::vector<ParquetNode> out;
    const auto count = next().children;
    for (std::int64_t i = 0; i < count; ++i) out.push_back(node("", 0, 0, 0));
    if (at_ != elements_.size())
      throw ConfigError(text("its schema has ", elements_.size() - at_, " elements that belong to no column"));
    return out;
  }

 private:
  const ParquetElement& next() {
    if (at_ >= elements_.size()) throw ConfigError("its schema ends inside a column");
    return elements_[at_++];
  }

  // The next element with all below it. `defined` and `repeated` are the levels around it.
  ParquetNode node(const std::string& prefix, int defined, int repeated, int depth) {
    if (at_ < elements_.size() && elements_[at_].repetition == Repetition::repeated) {  // a list without a mark
      ParquetNode list;
      list.kind = Kind::list;
      list.name = elements_[at_].name;
      list.path = prefix + list.name;
      list.defined = defined;
      list.element_defined = defined + 1;
      list.repeated = repeated + 1;
      list.children.push_back(body(next(), prefix, defined + 1, repeated + 1, depth + 1));
      return list;
    }
    const auto& element = next();
    const bool optional = element.repetition == Repetition::optional;
    auto out = body(element, prefix, defined + (optional ? 1 : 0), repeated, depth);
    return out;
  }

  // What `element` is, its own repetition aside.
  ParquetNode body(const ParquetElement& element, const std::string& prefix, int defined, int repeated, int depth) {
    if (depth > deepest_schema) throw ConfigError(text("its schema nests more than ", deepest_schema, " deep"));
    if (unicode::first_not_utf8(element.name) != std::string_view::npos)
      throw ConfigError(text("a column below '", prefix, "' has a name that is not UTF-8"));
    ParquetNode out;
    out.name = element.name;
    out.path = prefix + element.name;
    out.defined = defined;
    if (element.type) {
      out.column = leaves_++;
      out.type = *element.type;
      out.meaning = meaning_of(element);
      out.type_name = unsupported_name(element);
      out.highest_definition = defined;
      out.highest_repetition = repeated;
      return out;
    }
    if (element.children == 0) throw ConfigError(text("the column ", out.path, " is a structure without fields"));
    const bool marked = element.children == 1 && at_ < elements_.size() &&
                        elements_[at_].repetition == Repetition::repeated && (is_list(element) || is_map(element));
    if (marked) return repeated_child(element, std::move(out), repeated, depth);
    out.kind = Kind::structure;
    for (std::int64_t i = 0; i < element.children; ++i)
      out.children.push_back(node(out.path + ".", defined, repeated, depth + 1));
    return out;
  }

  // A group marked LIST or MAP, whose only child repeats; the rules for lists are those of parquet-format's
  // LogicalTypes.md with its backward compatibility.
  ParquetNode repeated_child(const ParquetElement& element, ParquetNode out, int repeated, int depth) {
    const auto defined = out.defined + 1;
    out.element_defined = defined;
    out.repeated = repeated + 1;
    const auto& middle = next();
    const auto prefix = out.path + ".";
    const bool pair = !middle.type && middle.children == 2;
    if (is_map(element) && pair) {
      out.kind = Kind::map;
      for (int i = 0; i < 2; ++i)
        out.children.push_back(node(prefix + middle.name + ".", defined, repeated + 1, depth + 1));
      return out;
    }
    out.kind = Kind::list;
    const bool one_field = !middle.type && middle.children == 1 && middle.name != "array" &&
                           middle.name != element.name + "_tuple" && at_ < elements_.size() &&
                           elements_[at_].repetition != Repetition::repeated;
    out.children.push_back(one_field ? node(prefix + middle.name + ".", defined, repeated + 1, depth + 1)
                                     : body(middle, prefix, defined, repeated + 1, depth + 1));
    return out;
  }

  std::span<const ParquetElement> elements_;
  std::size_t at_ = 0, leaves_ = 0;
};

void paths_of(const ParquetNode& node, std::string before, std::string& out) {
  before += (before.empty() ? "" : ".") + node.name;
  if (out.size() > 1000) return;
  const auto* inner = &node;
  while (inner->kind == Kind::list) inner = &inner->children[0];
  if (inner->kind != Kind::structure) {
    out += (out.empty() ? "" : ", ") + before;
    return;
  }
  for (const auto& child : inner->children) paths_of(child, before, out);
}

// Keeps only the part of `node` that `path`, relative to it, names; returns false if there is no such part.
bool narrow(ParquetNode& node, std::string_view path) {
  if (path.empty()) return true;
  const auto step_over = [](std::string_view& rest, std::string_view name) {
    if (rest.substr(0, name.size()) != name) return false;
    if (rest.size() > name.size() && rest[name.size()] != '.') return false;
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    return true;
  };
  if (node.kind == Kind::list) {  // the names of the schema between list and element may be given or left out
    auto between = std::string_view(node.children[0].path);
    between.remove_prefix(std::min(between.size(), node.path.size() + 1));
    auto rest = path;
    if (!between.empty() && step_over(rest, between)) {
      auto copy = node.children[0];
      if (narrow(copy, rest)) {
        node.children[0] = std::move(copy);
        return true;
      }
    }
    return narrow(node.children[0], path);
  }
  if (node.kind != Kind::structure) return false;
  for (auto& child : node.children) {
    auto rest = path;
    if (!step_over(rest, child.name)) continue;
    auto copy = child;
    if (!narrow(copy, rest)) continue;
    auto field = std::move(copy);  // the field replaces the structure, and is null where the structure is
    node = std::move(field);
    return true;
  }
  return false;
}

}  // namespace

std::vector<ParquetNode> parquet_columns(std::span<const ParquetElement> elements) {
  return Builder(elements).columns();
}

ParquetNode select_parquet_column(const std::vector<ParquetNode>& columns, const std::string& path) {
  const auto named = [&](const ParquetNode& node) { return node.name == path; };
  const auto same = std::count_if(columns.begin(), columns.end(), named);
  if (same > 1) throw ConfigError(text("it has ", same, " columns with the name '", path, "'; rename one of them"));
  ParquetNode root;
  root.kind = Kind::structure;
  if (const auto whole = std::find_if(columns.begin(), columns.end(), named); whole != columns.end()) {
    root = *whole;
  } else {
    root.children = columns;
    if (path.empty() || !narrow(root, path)) {
      std::string have;
      for (const auto& column : columns) paths_of(column, "", have);
      if (have.size() > 1000) have += ", ...";
      throw ConfigError(text("it has no column '", path, "'; it has ", have));
    }
  }
  root.name = path;
  return root;
}

std::size_t leaves_of(const ParquetNode& node) {
  if (node.kind == Kind::leaf) return 1;
  std::size_t count = 0;
  for (const auto& child : node.children) count += leaves_of(child);
  return count;
}

}  // namespace tessera::parquet
