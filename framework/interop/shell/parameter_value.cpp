#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>

#include "framework/interop/shell/parser.h"
#include "framework/interop/shell/script_evaluator.h"

// $NAME and ${NAME...}: values. What an operator makes of them is in parameter_ops.cpp.

namespace tessera::shell {
namespace {

std::string mark_of(const std::string& name) {
  if (name.size() == 1 && !std::isalpha(static_cast<unsigned char>(name[0]))) return unknown("$" + name);
  return unknown("${" + name + "}");
}

bool is_all(const ParameterExpansion& parameter) {
  if (parameter.name == "@" || parameter.name == "*") return !parameter.indirect;
  const auto& subscript = parameter.subscript.parts;
  return parameter.subscripted && subscript.size() == 1 && (subscript[0].words == "@" || subscript[0].words == "*");
}

}  // namespace

bool is_number(const std::string& words) {
  return !words.empty() && words.size() < 6 &&
         std::all_of(words.begin(), words.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::optional<std::string> ScriptEvaluator::argument(int number) {
  if (number == 0 && state_.name) return state_.name;
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

std::optional<std::string> ScriptEvaluator::special(const std::string& name) {
  if (name == "#") {
    if (!state_.arguments_known && state_.arguments.empty()) return unknown("$#");
    return std::to_string(state_.arguments.size());
  }
  if (name == "?") return code_ < 0 ? unknown("$?") : std::to_string(code_);
  if (name == "-") return option_letters();
  if (name == "PWD") return state_.folder;
  if (name == "LINENO") return std::to_string(at_.line);
  if (name == "IFS") return " \t\n";
  if (name == "OPTIND") return "1";
  if (name == "BASH_SOURCE" || name == "FUNCNAME" || name == "BASH_LINENO") return special_list(name, 0);
  return std::nullopt;
}

std::optional<std::string> ScriptEvaluator::special_list(const std::string& name, long long index) {
  const auto depth = static_cast<long long>(state_.calls.size());
  if (name == "BASH_SOURCE" && index == 0) return reading_.files.at(static_cast<std::size_t>(at_.file));
  if (index < 0 || index > depth || depth == 0) return std::nullopt;
  const auto* const call = index < depth ? &state_.calls[static_cast<std::size_t>(depth - 1 - index)] : nullptr;
  if (name == "FUNCNAME") return call ? call->name : "main";
  if (name == "BASH_LINENO") return call ? std::to_string(call->from.line) : "0";
  const auto& from = state_.calls[static_cast<std::size_t>(depth - index)].from;
  return reading_.files.at(static_cast<std::size_t>(from.file));
}

void ScriptEvaluator::must_be_set(const std::string& name) {
  if (option("nounset") && name != "@" && name != "*")
    stop("'" + name + "' is not set here, and `set -u` ends the script");
}

std::string ScriptEvaluator::value_or_mark(const std::string& name) {
  if (auto value = value_of(name)) return *value;
  const auto real = real_name(name);
  const auto list = real.substr(0, real.find('['));
  if (find(list) != nullptr) return must_be_set(name), "";  // `unset NAME`
  if (is_number(real)) {
    const auto number = std::atoi(real.c_str());
    if (state_.arguments_known && static_cast<std::size_t>(number) > state_.arguments.size())
      return must_be_set(name), "";
    return mark_of(std::to_string(number + state_.shifted));
  }
  if (list == "FUNCNAME" || list == "BASH_REMATCH") return "";
  // A name that the script assigns only later is empty, but under `set -u` it must come from outside.
  return assigned_.count(list) != 0 && !option("nounset") ? "" : mark_of(real);
}

std::string ScriptEvaluator::joined_items(const std::vector<std::string>& items) {
  const auto separators = value_of("IFS");
  const auto* const variable = find("IFS");
  const auto between = variable && !separators ? " " : separators.value_or(" ").substr(0, 1);
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) out += (i > 0 ? between : "") + items[i];
  return out;
}

std::vector<std::string> ScriptEvaluator::names_with(const std::string& prefix) const {
  std::vector<std::string> out;
  for (const auto& [name, variable] : state_.variables)
    if (variable.size() > 0 && name.compare(0, prefix.size(), prefix) == 0) out.push_back(name);
  return out;
}

bool ScriptEvaluator::is_list(const Part& part) const {
  const auto& parameter = *part.parameter;
  if (parameter.length) return false;
  if (parameter.prefix) return true;
  return is_all(parameter) || (parameter.indirect && !parameter.subscripted && indirect_all(parameter));
}

bool ScriptEvaluator::indirect_all(const ParameterExpansion& parameter) const {
  const auto found = state_.variables.find(parameter.name);
  if (found == state_.variables.end() || !found->second.is_set() || found->second.reference) return false;
  const auto& words = *found->second.value();
  return words.size() > 3 &&
         (words.compare(words.size() - 3, 3, "[@]") == 0 || words.compare(words.size() - 3, 3, "[*]") == 0);
}

std::vector<std::string> ScriptEvaluator::list_items(const Part& part) {
  const auto& parameter = *part.parameter;
  if (parameter.prefix) return names_with(parameter.name);
  const bool arguments = parameter.name == "@" || parameter.name == "*";
  const bool through = parameter.indirect && !parameter.subscripted;
  const auto name = through ? target_of(parameter) : parameter.name;
  const auto* variable = arguments ? nullptr : find(name.substr(0, name.find('[')));
  if (!arguments && !variable) return items_of_none(part);
  if (parameter.indirect && !through) return variable->keys();
  step(static_cast<long>(arguments ? state_.arguments.size() : variable->size()));
  if (parameter.op == ":") return part_of_list(part, variable);
  auto items = arguments ? all_arguments() : variable->values();
  if (!parameter.op.empty() && std::string_view("-=+?").find(parameter.op.back()) == std::string_view::npos)
    for (auto& item : items) item = with_op(part, item);
  return items;
}

std::vector<std::string> ScriptEvaluator::items_of_none(const Part& part) {
  const auto& name = part.parameter->name;
  if (name == "FUNCNAME" || name == "BASH_SOURCE" || name == "BASH_LINENO") {
    std::vector<std::string> out;
    for (long long i = 0; const auto one = special_list(name, i); ++i) out.push_back(*one);
    return out;
  }
  if (part.parameter->indirect || assigned_.count(name) != 0 || name == "BASH_REMATCH") return {};
  return {derived(part.words, mark_of(name))};
}

std::vector<std::string> ScriptEvaluator::part_of_list(const Part& part, const Variable* variable) {
  const auto& parameter = *part.parameter;
  const auto number = [this](const Word& word) {
    const auto value = arithmetic_value(without_places(single(word)), *this);
    if (!value) stop("which part of the list is meant here is not known");
    return *value;
  };
  auto from = number(parameter.first);
  const auto length = parameter.has_second ? number(parameter.second) : LLONG_MAX;
  if (length < 0) stop("Bash refuses a negative length for a list");
  if (variable && variable->named) stop("a part of a list with keys is not read");
  std::vector<std::pair<long long, std::string>> all;
  if (variable) all.assign(variable->items.begin(), variable->items.end());
  if (!variable) all.emplace_back(0, *argument(0));
  for (auto& item : variable ? std::vector<std::string>() : all_arguments())
    all.emplace_back(static_cast<long long>(all.size()), std::move(item));
  const auto end = all.empty() ? 0 : all.back().first + 1;
  if (from < 0) from += end;
  if (from < 0) return {};
  std::vector<std::string> out;
  for (const auto& [index, item] : all)
    if (index >= from && static_cast<long long>(out.size()) < length) out.push_back(item);
  return out;
}

std::string ScriptEvaluator::target_of(const ParameterExpansion& parameter) {
  auto name = parameter.name;
  if (name == "#") return special("#").value_or("");
  if (parameter.subscripted) name += "[" + without_places(single(parameter.subscript)) + "]";
  if (const auto found = state_.variables.find(name); found != state_.variables.end() && found->second.reference)
    stop("${!" + name + "} of a variable that declare -n made is not read");
  const auto value = value_of(name);
  if (!value) return "";
  return has_unknown(*value) ? *value : plain(*value);
}

std::string ScriptEvaluator::meant_name(const ParameterExpansion& parameter) {
  if (parameter.indirect) return target_of(parameter);
  if (!parameter.subscripted) return parameter.name;
  return parameter.name + "[" + without_places(single(parameter.subscript)) + "]";
}

std::optional<std::string> ScriptEvaluator::raw_value(const ParameterExpansion& parameter, bool in_words) {
  const auto name = meant_name(parameter);
  if (name.empty() || has_unknown(name)) return std::nullopt;
  const auto* variable = find(parameter.name);
  if (parameter.subscripted && !parameter.indirect) {
    if (variable)
      return element(*variable, name.substr(parameter.name.size() + 1, name.size() - parameter.name.size() - 2),
                     parameter.name);
    const auto index =
        arithmetic_value(name.substr(parameter.name.size() + 1, name.size() - parameter.name.size() - 2), *this);
    if (const auto one = special_list(parameter.name, index.value_or(0))) return one;
    return std::nullopt;
  }
  if (in_words && !parameter.indirect && variable && variable->list && variable->size() > 1 && !variable->named) {
    remark("$" + parameter.name + " is a list: read as all its words, \"${" + parameter.name +
           "[@]}\"; Bash gives its first one only");
    std::string all;
    for (const auto& item : variable->values()) all += (all.empty() ? "" : " ") + item;
    return all;
  }
  return value_of(name);
}

std::string ScriptEvaluator::length_of(const Part& part) {
  const auto& parameter = *part.parameter;
  if (parameter.name == "@" || parameter.name == "*") return special("#").value_or("0");
  const auto* variable = find(parameter.name);
  if (is_all(parameter) && variable) return std::to_string(variable->size());
  if (is_all(parameter)) {
    const auto items = items_of_none(part);
    return !items.empty() && has_unknown(items[0]) ? derived(part.words, items[0]) : std::to_string(items.size());
  }
  const auto value = raw_value(parameter, false);
  const auto words = value ? *value : value_or_mark(meant_name(parameter));
  if (has_unknown(words)) return derived(part.words, words);
  const auto bare = plain(words);
  if (std::any_of(bare.begin(), bare.end(), [](char c) { return static_cast<unsigned char>(c) >= 128; }))
    stop("the length of a text with letters outside of ASCII depends on the locale");
  return std::to_string(bare.size());
}

std::string ScriptEvaluator::scalar(const Part& part, bool in_words) {
  const auto& parameter = *part.parameter;
  if (parameter.length) return length_of(part);
  auto value = raw_value(parameter, in_words);
  if (!parameter.op.empty()) return with_op(part, std::move(value));
  if (value) return *value;
  const auto name = meant_name(parameter);
  if (name.empty()) {
    const auto mark = value_or_mark(parameter.name);
    return has_unknown(mark) ? derived(part.words, mark) : "";
  }
  if (has_unknown(name)) return derived(part.words, name);
  const auto mark = value_or_mark(name);
  return has_unknown(mark) && (parameter.indirect || parameter.subscripted) ? derived(part.words, mark) : mark;
}

}  // namespace tessera::shell
