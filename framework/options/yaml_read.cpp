#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "framework/base/error.h"
#include "framework/options/embedded.h"
#include "framework/options/environment.h"
#include "framework/options/yaml.h"
#include "framework/options/yaml_text.h"

namespace tessera::options {
namespace {

namespace fs = std::filesystem;

Origin on_line(Origin origin, const YAML::Mark& mark) {
  if (origin.line > 0) origin.line = mark.line + 1;  // values that are not in a file have no line
  return origin;
}

/// Prefix of the names of compiled-in recipes: "tessera:models/llama2_7b.yaml".
const std::string own_place = "tessera:";

const EmbeddedFile* own_recipe(const std::string& file) {
  for (const auto& own : embedded_configs())
    if (file == own_place + std::string(own.name)) return &own;
  return nullptr;
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code failed;
  return a == b || fs::equivalent(a, b, failed);
}

constexpr int deepest_yaml = 100;  // nested lists and maps, far more than in any recipe
constexpr int first_set = 1'000;   // layer: above all files

/// Converts YAML texts to Values; mistakes go to the report.
class Reader {
 public:
  /// `last_counts`: of equal keys the last one counts, which is noted; else they are mistakes.
  Reader(Report& report, bool environment, bool last_counts = false)
      : report_(report), environment_(environment), last_counts_(last_counts) {}

  /// Reads `file` on top of its bases. `above` are the files whose bases led here; `at` is where the file was named.
  Value stack(const std::string& file, const std::vector<std::string>& above, Origin at = {});
  /// Reads one text; `origin` is that of its first line.
  Value read(const std::string& words, const Origin& origin, const std::string& path = "");

 private:
  std::optional<YAML::Node> load(const std::string& file, const Origin& first);
  std::optional<YAML::Node> parse(std::string_view words, const Origin& origin);
  Value bases(const YAML::Node& base, const Origin& first, const std::vector<std::string>& path);
  bool untab(std::string& words, const Origin& origin);
  std::pair<std::string, std::string> endless(const YAML::Node& node, int depth);
  Value convert(const YAML::Node& node, const Origin& origin, const std::string& path, int depth);
  Value scalar(const YAML::Node& node, const Origin& origin, const std::string& path);
  Value group(const YAML::Node& node, const Origin& origin, const std::string& path, int depth);
  void merge(Value& into, std::set<std::string>& known, const Value& from, const std::string& path);
  void give_up(const Origin& at, std::string message, std::string suggestion = "");

  Report& report_;
  bool environment_, last_counts_;
  int layer_ = 0;
  std::size_t nodes_ = 0;
  std::vector<YAML::Node> open_ = {};  ///< lists and maps that contain the node being converted
  bool endless_ = false;               ///< reported already
};

void Reader::give_up(const Origin& at, std::string message, std::string suggestion) {
  report_.problem(at, "", std::move(message), std::move(suggestion));
  report_.incomplete();
}

Value Reader::stack(const std::string& file, const std::vector<std::string>& above, Origin at) {
  Origin first{file, 1, above.empty() ? "" : above.back(), layer_ + 1};
  auto path = above;
  path.push_back(file);
  Value all;
  all.kind = Value::Kind::group;
  if (std::any_of(above.begin(), above.end(), [&](const auto& one) { return is_same_file(one, file); })) {
    std::string chain;
    for (const auto& one : path) chain += (chain.empty() ? "" : " -> ") + one;
    give_up(at, text("a file is its own base: ", chain), "take one of these bases away");
    return all;
  }
  const auto node = load(file, first);
  if (!node) return all;
  if (const YAML::Node base = (*node)["base"]) all = bases(base, first, path);
  first.layer = ++layer_;  // above all of its bases
  auto own = convert(*node, first, "", 0);
  std::erase_if(own.fields, [](const auto& field) { return field.name.rfind("x-", 0) == 0; });
  all.lay(std::move(own));
  return all;
}

/// The map of groups in `file`; null if the file is not such a map, which is reported.
std::optional<YAML::Node> Reader::load(const std::string& file, const Origin& first) {
  Origin whole = first;
  whole.line = 0;
  const auto refuse = [&](const std::string& message, const std::string& suggestion) -> std::optional<YAML::Node> {
    give_up(whole, message, suggestion);
    return std::nullopt;
  };
  std::error_code failed;
  if (fs::is_directory(file, failed)) return refuse("is a folder", "give the path of a recipe");
  std::string words;
  if (const auto* own = own_recipe(file)) {
    words = own->text;
  } else {
    errno = 0;
    std::ifstream in(file, std::ios::binary);
    std::array<char, 65536> block{};
    while (words.size() <= most_yaml_bytes && (in.read(block.data(), block.size()), in.gcount() > 0))
      words.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (words.size() > most_yaml_bytes)
      return refuse(text("has more than ", most_yaml_bytes, " bytes"), "give the path of a recipe");
    if (!in.is_open() || in.bad())
      return refuse(text("cannot be read: ", std::strerror(errno)), "give the path of a recipe");
  }
  auto node = parse(words, first);
  const std::string hint = "a recipe has groups such as training_config";
  if (node && node->IsNull()) return refuse("is empty", hint);
  if (node && !node->IsMap())
    return refuse(text("is a ", node->IsSequence() ? "list" : "word", ", not a map of groups"), hint);
  return node;
}

Value Reader::bases(const YAML::Node& base, const Origin& first, const std::vector<std::string>& path) {
  Value all;
  all.kind = Value::Kind::group;
  const auto given = convert(base, on_line(first, base.Mark()), "base", 0);
  for (const auto& name : given.kind == Value::Kind::list ? given.items : std::vector<Value>{given}) {
    if (name.wrong) continue;
    const auto folder = fs::path(first.source).parent_path();
    auto where = (folder / name.scalar).lexically_normal().string();
    if (const auto own = own_place + name.scalar; !fs::exists(where) && own_recipe(own)) where = own;
    if (name.kind != Value::Kind::scalar)
      give_up(name.origin, text("base takes a file name or a list of them, not '", name, "'"));
    else if (!fs::exists(where) && !own_recipe(where))
      give_up(name.origin, text("the base '", name, "' does not exist"),
              text("it is looked for beside this file, as ", where, ", and among the recipes that come with tessera"));
    else
      all.lay(stack(where, path, name.origin));
  }
  return all;
}

/// Reports tabs used as indentation and replaces each by two spaces, the most likely intention.
bool Reader::untab(std::string& words, const Origin& origin) {
  bool found = false;
  int line = 1;
  std::string spaced;
  spaced.reserve(words.size());
  for (std::size_t at = 0; at < words.size(); ++line) {
    const auto end = std::min(words.find('\n', at), words.size() - 1) + 1;
    const auto text_at = std::min(words.find_first_not_of(" \t", at), words.size());
    const bool tab = words.find('\t', at) < text_at;
    if (tab && text_at < words.size() && words[text_at] != '\n' && words[text_at] != '#') {
      Origin here = origin;
      here.line = origin.line > 0 ? line : 0;
      report_.problem(here, "", "a tab indents this line", "YAML takes only spaces");
      found = true;
    }
    for (; at < std::min(text_at, end); ++at) spaced += words[at] == '\t' ? "  " : " ";
    spaced.append(words, at, end - at);
    at = end;
  }
  words = std::move(spaced);
  return found;
}

std::optional<YAML::Node> Reader::parse(std::string_view given, const Origin& origin) {
  if (const auto [message, line] = refused_size(given); !message.empty()) {
    Origin here = origin;
    here.line = origin.line > 0 ? line : 0;
    give_up(here, message, "a recipe is a short text; is this another file?");
    return std::nullopt;
  }
  auto words = normalised(given);
  if (const int line = line_of_bad_byte(words)) {
    Origin here = origin;
    here.line = origin.line > 0 ? line : 0;
    give_up(here, "this is not UTF-8 text", "save the file as UTF-8");
    return std::nullopt;
  }
  const bool tabs = untab(words, origin);
  if (tabs) report_.incomplete();
  try {
    return only_document(words);
  } catch (const SecondDocument& error) {
    give_up(on_line(origin, error.at), "a second document begins here", "a recipe is one document");
  } catch (const TooManyNodes& error) {
    give_up(on_line(origin, error.at), text("this text has more than ", most_yaml_nodes, " values"),
            "a recipe has groups, options and lists");
  } catch (const YAML::DeepRecursion& error) {
    give_up(on_line(origin, error.mark), text("this is nested more than ", error.depth(), " deep"),
            "a recipe has groups, options and lists");
  } catch (const YAML::Exception& error) {
    if (!tabs)  // else they are the cause of this error
      give_up(on_line(origin, error.mark), text("this is not YAML: ", error.msg), hint_for(words, error.mark));
  }
  return std::nullopt;
}

Value Reader::read(const std::string& words, const Origin& origin, const std::string& path) {
  const auto node = parse(words, origin);
  if (node) return convert(*node, origin, path, 0);
  Value nothing;
  nothing.wrong = true;
  return nothing;
}

/// Why this node is not converted, and what to do; empty if it is converted.
std::pair<std::string, std::string> Reader::endless(const YAML::Node& node, int depth) {
  if (std::any_of(open_.begin(), open_.end(), [&](const auto& one) { return one.is(node); }))
    return {"this is nested without end", "an anchor may not contain itself"};
  if (depth > deepest_yaml)
    return {text("this is nested more than ", deepest_yaml, " deep"), "a recipe has groups, options and lists"};
  if (++nodes_ > most_yaml_nodes)  // a text this long without aliases was rejected before
    return {text("aliases expand to more than ", most_yaml_nodes, " nodes"), "use fewer aliases of lists and maps"};
  return {};
}

Value Reader::convert(const YAML::Node& node, const Origin& origin, const std::string& path, int depth) {
  Value value;
  value.origin = origin;
  if (const auto [message, advice] = endless(node, depth); !message.empty()) {
    if (!endless_) give_up(origin, message, advice);
    value.wrong = endless_ = true;
    return value;
  }
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return scalar(node, origin, path);
    case YAML::NodeType::Map:
      open_.push_back(node);
      value = group(node, origin, path, depth);
      open_.pop_back();
      return value;
    case YAML::NodeType::Sequence:
      open_.push_back(node);
      value.kind = Value::Kind::list;
      for (const auto& item : node)
        if (!endless_) value.items.push_back(convert(item, on_line(origin, item.Mark()), path, depth + 1));
      open_.pop_back();
      return value;
    default:
      return value;
  }
}

Value Reader::scalar(const YAML::Node& node, const Origin& origin, const std::string& path) {
  auto value = Value::of(node.Scalar(), origin);
  if (!environment_ || value.scalar.find("${") == std::string::npos) return value;
  try {
    value.scalar = expand_environment(value.scalar);
  } catch (const ConfigError& error) {
    report_.problem(origin, path, error.what(), "set it, or write ${NAME:-instead}");
    value.wrong = true;
    return value;
  }
  const bool plain = node.Tag() != "!";
  if (plain && (value.scalar.empty() || value.scalar[0] == '[' || value.scalar[0] == '{' || value.scalar == "null" ||
                value.scalar == "~")) {
    Reader inner(report_, false);  // a list or nothing, as if it were written here
    Origin here = origin;
    here.line = 0;
    value = inner.read(value.scalar, here);
    value.origin = origin;
    for (auto& item : value.items) item.origin = origin;
  }
  return value;
}

Value Reader::group(const YAML::Node& node, const Origin& origin, const std::string& path, int depth) {
  Value value;
  value.origin = origin;
  value.kind = Value::Kind::group;
  std::vector<Value> merged;
  std::map<std::string, std::size_t> places;  // of each key so far
  std::optional<std::int64_t> base_line;
  for (const auto& entry : node) {
    if (endless_) break;
    const auto here = on_line(origin, entry.first.Mark());
    if (!entry.first.IsScalar()) {
      report_.problem(here, path, "the key is a list or map; expected a word");
      continue;
    }
    const auto key = entry.first.Scalar();
    if (path.empty() && key == "base" && depth == 0 && environment_) {  // read before
      if (base_line)
        report_.problem(here, key, text("'base' is given twice, first in line ", *base_line),
                        "keep one of them; it may be a list");
      base_line = here.line;
      continue;
    }
    const auto full = path.empty() ? key : path + "." + key;
    if (key == "<<") {
      merged.push_back(convert(entry.second, here, path, depth + 1));
    } else if (const auto first = places.find(key); first != places.end()) {
      auto& earlier = value.fields[first->second].value;
      const auto twice = text("'", key, "' is given twice, first in line ", earlier.origin.line);
      if (!last_counts_) report_.problem(here, full, twice, "keep one of them");
      if (last_counts_) report_.note(here, twice + "; the last counts");
      if (last_counts_) earlier = convert(entry.second, here, full, depth + 1);
    } else {
      places.emplace(key, value.fields.size());
      value.fields.push_back({key, convert(entry.second, here, full, depth + 1)});
    }
  }
  std::set<std::string> known;
  for (const auto& field : value.fields) known.insert(field.name);
  for (const auto& from : merged) merge(value, known, from, path);
  return value;
}

/// Merges keys that `into` does not have; of several sources the first wins.
void Reader::merge(Value& into, std::set<std::string>& known, const Value& from, const std::string& path) {
  if (from.wrong) return;
  if (from.kind == Value::Kind::list)
    for (const auto& one : from.items) merge(into, known, one, path);
  else if (from.kind == Value::Kind::group)
    for (const auto& field : from.fields) {
      if (known.insert(field.name).second) into.fields.push_back(field);
    }
  else
    report_.problem(from.origin, path, "'<<' takes a map, or a list of maps");
}

/// Whether a part of a value of --set is a comment or a directive to YAML: "run #1", "%x".
bool loses_words(const std::string& given, const Value& value) {
  if (value.kind == Value::Kind::none) return given.find_first_of("#%") != std::string::npos;
  const bool is_plain = std::string_view("\"'!&|>").find(given[given.find_first_not_of(" \t")]) == std::string::npos;
  const bool has_comment = given.find(" #") != std::string::npos || given.find("\t#") != std::string::npos;
  return value.kind == Value::Kind::scalar && is_plain && has_comment;
}

/// In the single quotes of YAML, in which only they themselves have a meaning.
std::string in_yaml_quotes(const std::string& words) {
  std::string out = "'";
  for (const char c : words) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

}  // namespace

Value read_yaml(const std::string& file_name, const std::vector<std::string>& sets, Report& report) {
  auto tree = Reader(report, true).stack(file_name, {});
  tree.origin.source = file_name;
  lay_sets(tree, sets, report);
  return tree;
}

void lay_sets(Value& tree, const std::vector<std::string>& sets, Report& report) {
  Reader reader(report, true);
  int layer = first_set;
  for (const auto& set : sets) {
    const auto equals = set.find('=');
    const auto path = set.substr(0, equals);
    const Origin origin{"--set " + path, 0, "", layer++};
    const auto refuse = [&](const std::string& what) {
      report.problem(origin, path, what, "give it as group.key=value");
    };
    if (equals == 0 || equals == std::string::npos) {
      refuse(text("'", set, "' does not say what to set"));
      continue;
    }
    try {
      const auto given = set.substr(equals + 1);
      auto value = reader.read(given, origin, path);
      if (value.wrong) continue;
      if (loses_words(given, value)) {
        report.problem(origin, path, text("of '", given, "' YAML reads '", value.scalar, "' only"),
                       text("put it into quotes of YAML: \"", path, "=", in_yaml_quotes(given), "\""));
        continue;
      }
      value.origin = origin;
      if (path.find('.') != std::string::npos || value.kind == Value::Kind::group)
        tree.set(path, std::move(value));
      else
        refuse(text("'", set, "' does not say what to set"));
    } catch (const ConfigError& error) {
      refuse(error.what());
    }
  }
}

Value read_yaml(const std::string& file_name, const std::vector<std::string>& sets) {
  Report report;
  auto tree = read_yaml(file_name, sets, report);
  report.must_be_good();
  return tree;
}

Value parse_yaml(const std::string& words, const std::string& name) {
  Report report;
  auto tree = parse_yaml(words, name, report);
  report.must_be_good();
  return tree;
}

Value parse_yaml(const std::string& words, const std::string& name, Report& report) {
  return Reader(report, false).read(words, {name, 1, "", 1});
}

Value parse_json_as_yaml(std::string words, const std::string& name, Report& report) {
  std::replace(words.begin(), words.end(), '\t', ' ');  // outside of texts: JSON has none in them
  return Reader(report, false, true).read(words, {name, 1, "", 1});
}

}  // namespace tessera::options
