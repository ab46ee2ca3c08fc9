#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>

#include "framework/interop/shell/script_evaluator.h"

// $NAME and ${NAME...}

namespace tessera::shell {
namespace {

bool is_number(const std::string& words) {
  return !words.empty() && words.size() < 6 &&
         std::all_of(words.begin(), words.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string mark_of(const std::string& name) {
  if (name.size() == 1 && !std::isalpha(static_cast<unsigned char>(name[0]))) return unknown("$" + name);
  return unknown("${" + name + "}");
}

std::string replaced(const std::string& value, const std::string& op, const std::string& pattern,
                     const std::string& by) {
  if (op == "/#") {
    const auto length = fitting_prefix(value, pattern, true);
    return length == std::string::npos ? value : by + value.substr(length);
  }
  if (op == "/%") {
    const auto length = fitting_suffix(value, pattern, true);
    return length == std::string::npos ? value : value.substr(0, value.size() - length) + by;
  }
  std::string out;
  for (std::size_t i = 0; i < value.size();) {
    const auto length = fitting_prefix(value.substr(i), pattern, true);
    if (length == std::string::npos || length == 0) {
      out += value[i++];
      continue;
    }
    out += by;
    i += length;
    if (op == "/") return out + value.substr(i);
  }
  return out;
}

std::string in_case(std::string value, const std::string& op) {
  const auto turn = [upper = op[0] == '^'](char& c) {
    const auto u = static_cast<unsigned char>(c);
    c = static_cast<char>(upper ? std::toupper(u) : std::tolower(u));
  };
  if (op.size() == 2)
    std::for_each(value.begin(), value.end(), turn);
  else if (!value.empty())
    turn(value[0]);
  return value;
}

}  // namespace

std::optional<std::string> ScriptEvaluator::argument(int number) {
  if (number == 0) return reading_.files.at(static_cast<std::size_t>(at_.file));
  const auto index = static_cast<std::size_t>(number - 1);
  if (index < state_.arguments.size() && state_.arguments[index].find('\0') == std::string::npos)
    return state_.arguments[index];
  return std::nullopt;
}

std::vector<std::string> ScriptEvaluator::all_arguments() {
  std::vector<std::string> out;
  for (int i = 1; i <= static_cast<int>(state_.arguments.size()); ++i) out.push_back(value_or_mark(std::to_string(i)));
  if (out.empty() && !state_.arguments_known) out.push_back(unknown("$@"));
  return out;
}

/// The parameters that are no variables.
std::optional<std::string> ScriptEvaluator::special(const std::string& name) {
  if (name == "#") {
    if (!state_.arguments_known && state_.arguments.empty()) return unknown("$#");
    return std::to_string(state_.arguments.size());
  }
  if (name == "?") return "0";
  if (name == "-") return "";
  if (name == "PWD") return state_.folder;
  if (name == "LINENO") return std::to_string(at_.line);
  if (name == "BASH_SOURCE") return argument(0);
  return std::nullopt;
}

bool ScriptEvaluator::has(const std::string& name) const {
  const auto found = state_.variables.find(name);
  return found != state_.variables.end() && !found->second.unset;
}

std::optional<std::string> ScriptEvaluator::value_of(const std::string& name) {
  if (const auto found = state_.variables.find(name); found != state_.variables.end()) {
    if (found->second.unset) return std::nullopt;
    return found->second.items.empty() ? "" : found->second.items[0];
  }
  if (is_number(name)) return argument(std::atoi(name.c_str()));
  if (name == "@" || name == "*") {
    std::string out;
    for (const auto& one : all_arguments()) out += (out.empty() ? "" : " ") + one;
    return out;
  }
  return special(name);
}

std::string ScriptEvaluator::value_or_mark(const std::string& name) {
  if (auto value = value_of(name)) return *value;
  const auto found = state_.variables.find(name);
  if (found != state_.variables.end()) return "";  // `unset NAME`
  if (!is_number(name)) return assigned_.count(name) != 0 ? "" : mark_of(name);
  const auto number = std::atoi(name.c_str());
  if (state_.arguments_known && static_cast<std::size_t>(number) > state_.arguments.size()) return "";
  return mark_of(std::to_string(number + state_.shifted));
}

bool ScriptEvaluator::is_list(const Part& part) const {
  const auto& parameter = *part.parameter;
  if (parameter.length) return false;
  if (parameter.name == "@" || parameter.name == "*") return parameter.op.empty() || parameter.op == ":";
  const auto& subscript = parameter.subscript.parts;
  const bool all =
      parameter.subscripted && subscript.size() == 1 && (subscript[0].words == "@" || subscript[0].words == "*");
  return all && state_.variables.count(parameter.name) != 0 &&
         (parameter.op.empty() || parameter.op == ":" || parameter.op[0] == '/' || parameter.op[0] == '#' ||
          parameter.op[0] == '%' || parameter.indirect);
}

std::vector<std::string> ScriptEvaluator::list_items(const Part& part) {
  const auto& parameter = *part.parameter;
  const bool arguments = parameter.name == "@" || parameter.name == "*";
  std::vector<std::string> items;
  if (arguments) {
    items = all_arguments();
  } else {
    const auto& variable = state_.variables.at(parameter.name);
    if (variable.unset) return {};
    items = variable.items;
    if (parameter.indirect && variable.named) return variable.keys;
    if (parameter.indirect)
      for (std::size_t i = 0; i < items.size(); ++i) items[i] = std::to_string(i);
  }
  step(static_cast<long>(items.size()));
  if (parameter.op == ":") {
    constexpr long long most = 1'000'000;
    const auto asked = arithmetic_value(single(parameter.first), *this).value_or(0);
    auto from = std::clamp(asked, -most, most) - (arguments ? 1 : 0);
    const auto size = static_cast<long long>(items.size());
    if (from < 0) from = arguments ? 0 : from + size;
    const auto length = parameter.has_second ? arithmetic_value(single(parameter.second), *this).value_or(size) : size;
    if (from < 0 || from > size || length < 0) return {};
    items.erase(items.begin(), items.begin() + from);
    if (length < static_cast<long long>(items.size())) items.resize(static_cast<std::size_t>(length));
  } else if (!parameter.op.empty()) {
    for (auto& item : items) item = with_op(part, item);
  }
  return items;
}

/// A[2], A[key]
std::string ScriptEvaluator::subscripted(const Variable& variable, const Word& subscript, bool& found) {
  const auto key = without_places(single(subscript));
  found = true;
  if (variable.named) {
    for (std::size_t i = 0; i < variable.keys.size(); ++i)
      if (variable.keys[i] == key) return variable.items[i];
  } else if (const auto index = arithmetic_value(key, *this)) {
    const auto size = static_cast<long long>(variable.items.size());
    const auto at = *index < 0 ? *index + size : *index;
    if (at >= 0 && at < size) return variable.items[static_cast<std::size_t>(at)];
  } else {
    return derived("${[" + key + "]}");
  }
  found = false;
  return "";
}

std::optional<std::string> ScriptEvaluator::raw_value(const ParameterExpansion& parameter, bool in_words) {
  if (parameter.indirect) {
    const auto name = value_of(parameter.name);
    if (!name || has_unknown(*name)) return std::nullopt;
    return value_of(plain(*name));
  }
  const auto found = state_.variables.find(parameter.name);
  if (parameter.subscripted && found != state_.variables.end()) {
    bool there = false;
    auto value = subscripted(found->second, parameter.subscript, there);
    if (there) return value;
    return parameter.op.empty() ? std::optional<std::string>("") : std::nullopt;
  }
  if (in_words && found != state_.variables.end() && found->second.list && found->second.items.size() > 1) {
    remark("$" + parameter.name + " is a list: read as all its words, \"${" + parameter.name +
           "[@]}\"; Bash gives its first one only");
    std::string all;
    for (const auto& item : found->second.items) all += (all.empty() ? "" : " ") + item;
    return all;
  }
  return value_of(parameter.name);
}

/// The value of a parameter as one string; what is not known as a mark.
std::string ScriptEvaluator::scalar(const Part& part, bool in_words) {
  const auto& parameter = *part.parameter;
  if (parameter.length) {
    const auto& subscript = parameter.subscript.parts;
    if (parameter.name == "@" || parameter.name == "*") return special("#").value_or("0");
    if (!subscript.empty() && (subscript[0].words == "@" || subscript[0].words == "*"))
      return has(parameter.name) ? std::to_string(state_.variables.at(parameter.name).items.size()) : "0";
    const auto value = raw_value(parameter, false);
    if (!value)
      return state_.variables.count(parameter.name) != 0 ? "0" : derived(part.words, value_or_mark(parameter.name));
    return has_unknown(*value) ? derived(part.words, *value) : std::to_string(plain(*value).size());
  }
  auto value = raw_value(parameter, in_words);
  if (!parameter.op.empty()) return with_op(part, std::move(value));
  if (value) return *value;
  if (parameter.indirect || parameter.subscripted)
    return state_.variables.count(parameter.name) != 0 ? "" : derived(part.words, value_or_mark(parameter.name));
  return value_or_mark(parameter.name);
}

/// ${X:o:l}
std::string ScriptEvaluator::cut(const ParameterExpansion& parameter, const std::string& value) {
  const auto words = without_places(value);
  const auto size = static_cast<long long>(words.size());
  const auto from = arithmetic_value(without_places(single(parameter.first)), *this);
  std::optional<long long> length = size;
  if (parameter.has_second) length = arithmetic_value(without_places(single(parameter.second)), *this);
  if (!from || !length) return derived("${" + parameter.name + ":...}");
  auto begin = *from < 0 ? *from + size : *from;
  if (begin < 0 || begin > size) return "";
  const auto end = *length < 0 ? size + *length : begin + std::min(*length, size - begin);
  return end <= begin ? "" : words.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

namespace {

/// A unique number for a construct in a line.
int site_of(const Part& part) { return static_cast<int>(std::hash<std::string>{}(part.words) % 1'000'000'000); }

bool is_set(const ParameterExpansion& parameter, const std::optional<std::string>& value) {
  return value && (parameter.op.size() == 1 || !value->empty());
}

}  // namespace

/// Whether ${NAME:+words} is its words. Where nobody knows whether NAME is set, it is not.
bool ScriptEvaluator::set_for_sure(const Part& part, const std::optional<std::string>& value) {
  const auto& parameter = *part.parameter;
  const auto mark = value ? "" : value_or_mark(parameter.name);
  if (!has_unknown(mark)) return is_set(parameter, value);
  const Weighing weighing(*this);
  const bool argument = is_number(parameter.name);
  if (argument)
    doubt(mark);
  else
    assume(parameter.name);
  settle_assumptions(!argument);
  return decide_whether(at_, site_of(part), part.words, false, argument);
}

/// Whether the words of ${NAME:-words} are taken. Where nobody knows whether NAME is set, they are.
bool ScriptEvaluator::default_stands(const Part& part, const std::optional<std::string>& value) {
  const auto& parameter = *part.parameter;
  const auto mark = value ? "" : value_or_mark(parameter.name);
  if (!has_unknown(mark)) return !is_set(parameter, value);
  const auto same = [&parameter](const Assumed& other) { return other.name == parameter.name; };
  if (std::none_of(reading_.assumed.begin(), reading_.assumed.end(), same))
    reading_.assumed.push_back({parameter.name, plain(concat(parameter.first.parts, false)), at_});
  return true;
}

/// Whether the words of ${NAME:-words} or ${NAME:+words} stand in its place.
bool ScriptEvaluator::stands_in(const Part& part) {
  const auto& parameter = *part.parameter;
  if (parameter.op.empty() || parameter.length || (parameter.op.back() != '-' && parameter.op.back() != '+'))
    return false;
  const auto value = raw_value(parameter, true);
  return parameter.op.back() == '+' ? set_for_sure(part, value) : default_stands(part, value);
}

std::string ScriptEvaluator::with_op(const Part& part, std::optional<std::string> value) {
  const auto& parameter = *part.parameter;
  const auto& op = parameter.op;
  if (std::string_view("-=+?").find(op.back()) < 4) {
    if (op.back() == '+') return set_for_sure(part, value) ? concat(parameter.first.parts, false) : "";
    if (op.back() == '?') return value ? *value : value_or_mark(parameter.name);
    if (!default_stands(part, value)) return value ? *value : value_or_mark(parameter.name);
    auto other = concat(parameter.first.parts, false);
    if (op.back() == '=') assign(parameter.name, other);
    return other;
  }
  if (!value && state_.variables.count(parameter.name) != 0) return "";
  if (!value || has_unknown(*value)) return derived(part.words, value ? *value : value_or_mark(parameter.name));
  if (op == ":") return cut(parameter, *value);
  if (op == "@") return *value;
  const auto words = without_places(*value);
  const auto first = pattern(parameter.first);
  const auto length_now = static_cast<long>(words.size());
  const bool wild = first.find_first_of("*?[") != std::string::npos;
  step(wild ? length_now * length_now / 100 * (length_now / 100 + 1) : length_now * length_now / 10000);
  if (op[0] == '/') return replaced(words, op, first, without_places(single(parameter.second)));
  if (op[0] == '^' || op[0] == ',') return in_case(words, op);
  const bool front = op[0] == '#';
  const auto length =
      front ? fitting_prefix(words, first, op.size() == 2) : fitting_suffix(words, first, op.size() == 2);
  if (length == std::string::npos) return words;
  return front ? words.substr(length) : words.substr(0, words.size() - length);
}

}  // namespace tessera::shell
