#include <algorithm>

#include "framework/interop/shell/script_evaluator.h"

// Assignments, and the builtins that give or take variables.

namespace tessera::shell {

void ScriptEvaluator::assign(const std::string& name, std::string value) {
  if (name.empty()) return;
  auto& variable = state_.variables[name];
  if (variable.items.empty()) variable.items.emplace_back();
  variable.items[0] = std::move(value);
  if (!variable.list) variable.items.resize(1);
  variable.exported = variable.exported || state_.exports.count(name) != 0;
  variable.unset = false;
}

void ScriptEvaluator::assign_list(const Assignment& assignment, Variable& variable) {
  std::vector<std::string> items, keys;
  for (std::size_t i = 0; i < assignment.items.size(); ++i) {
    if (!assignment.keys[i].parts.empty()) {
      keys.push_back(without_places(single(assignment.keys[i])));
      items.push_back(single(assignment.items[i]));
    } else {
      for (auto& item : fields({assignment.items[i]})) items.push_back(std::move(item));
    }
  }
  if (!assignment.append || !variable.list) {
    const bool keeps = assignment.append && !variable.unset && variable.items != std::vector<std::string>{""};
    if (!keeps) variable.items.clear();
    variable.keys.clear();
  }
  if (!variable.named && keys.size() == items.size()) {  // [3]=x: by number
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto at = arithmetic_value(keys[i], *this).value_or(0);
      constexpr long long most = 100000;
      if (at < 0 || at > most) continue;
      if (static_cast<std::size_t>(at) >= variable.items.size())
        variable.items.resize(static_cast<std::size_t>(at) + 1);
      variable.items[static_cast<std::size_t>(at)] = items[i];
    }
  } else {
    if (variable.named && keys.size() == items.size())
      variable.keys.insert(variable.keys.end(), keys.begin(), keys.end());
    variable.items.insert(variable.items.end(), items.begin(), items.end());
  }
  if (variable.named) variable.keys.resize(variable.items.size());
  step(static_cast<long>(variable.items.size() / 4));
  variable.list = true;
  variable.unset = false;
}

/// A[2]=x, A[key]=x
void ScriptEvaluator::assign_item(const Assignment& assignment, Variable& variable) {
  const auto key = without_places(single(assignment.subscript));
  const auto value = single(assignment.value);
  if (!variable.list) {
    if (variable.items == std::vector<std::string>{""}) variable.items.clear();
    variable.list = true;
  }
  variable.unset = false;
  std::size_t at = 0;
  if (variable.named) {
    at = static_cast<std::size_t>(std::find(variable.keys.begin(), variable.keys.end(), key) - variable.keys.begin());
    if (at == variable.keys.size()) variable.keys.push_back(key);
  } else {
    const auto index = arithmetic_value(key, *this);
    constexpr long long most = 100000;
    if (!index || *index < 0 || *index > most) return;
    at = static_cast<std::size_t>(*index);
  }
  if (at >= variable.items.size()) variable.items.resize(at + 1);
  variable.items[at] = assignment.append ? variable.items[at] + value : value;
}

void ScriptEvaluator::assign_all(const Assignment& assignment) {
  if (assignment.list) {
    auto variable = state_.variables[assignment.name];
    assign_list(assignment, variable);
    state_.variables[assignment.name] = std::move(variable);
  } else if (assignment.subscripted) {
    auto variable = state_.variables[assignment.name];
    assign_item(assignment, variable);
    state_.variables[assignment.name] = std::move(variable);
  } else {
    auto value = single(assignment.value);
    if (assignment.append) value = value_or_mark(assignment.name) + value;
    if (assignment.name == "PATH") value = "";
    assign(assignment.name, std::move(value));
  }
}

/// export, declare, typeset, readonly, local
Truth ScriptEvaluator::declare(const Node& node, const Words& words) {
  std::string options;
  std::vector<std::string> names;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto word = without_places(words[i]);
    if (word[0] == '-' || word[0] == '+')
      options += word[0] == '-' ? word : "";
    else
      names.push_back(words[i]);
  }
  const bool exports = words[0] == "export" || options.find('x') != std::string::npos;
  const bool local = (words[0] == "local" || words[0] == "declare" || words[0] == "typeset") && !locals_.empty() &&
                     options.find('g') == std::string::npos;
  if (options.find('f') != std::string::npos || options.find('p') != std::string::npos) return Truth::yes;
  const auto prepare = [&](const std::string& name) {
    if (local && locals_.back().count(name) == 0) {
      const auto found = state_.variables.find(name);
      locals_.back()[name] = found == state_.variables.end() ? std::nullopt : std::optional<Variable>(found->second);
      state_.variables[name] = Variable();
    }
    if (words[0] != "export" && words[0] != "readonly") state_.variables.try_emplace(name);
    if (exports) state_.exports.insert(name);
    if (const auto found = state_.variables.find(name); found != state_.variables.end()) {
      found->second.exported = found->second.exported || exports;
      if (options.find('A') != std::string::npos) found->second.named = found->second.list = true;
      if (options.find_first_of("aA") != std::string::npos && found->second.items == Words{""})
        found->second.items.clear(), found->second.list = true;
    }
  };
  for (const auto& word : node.words)
    if (word.assignment) {
      if (local) prepare(word.assignment->name);
      if (options.find('A') != std::string::npos) prepare(word.assignment->name);
      assign_all(*word.assignment);
      prepare(word.assignment->name);
    }
  for (const auto& word : names) {  // NAME, or NAME=value that came out of an expansion
    const auto equals = word.find('=');
    const auto name = without_places(word.substr(0, equals));
    if (has_unknown(name)) continue;
    prepare(name);
    if (equals != std::string::npos) {
      assign(name, word.substr(equals + 1));
      prepare(name);
    }
  }
  return Truth::yes;
}

Truth ScriptEvaluator::unset(const Words& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto name = without_places(words[i]);
    if (name == "-f") return Truth::yes;
    if (name[0] == '-') continue;
    auto& variable = state_.variables[name];
    variable = Variable();
    variable.unset = true;
  }
  return Truth::yes;
}

/// set -- a b c, set a b c; options as -ex mean nothing here.
Truth ScriptEvaluator::set(const Words& words) {
  std::size_t i = 1;
  for (; i < words.size(); ++i) {
    const auto word = without_places(words[i]);
    if (word == "--" || word == "-") {
      ++i;
      break;
    }
    if (word.empty() || (word[0] != '-' && word[0] != '+')) break;
    if (word == "-o" || word == "+o") ++i;
    if (i + 1 >= words.size()) return Truth::yes;
  }
  if (words.size() == 1 || (i >= words.size() && without_places(words.back()) != "--")) return Truth::yes;
  state_.arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())), words.end());
  state_.arguments_known = true;
  return Truth::yes;
}

Truth ScriptEvaluator::shift(const Words& words) {
  const auto count = words.size() > 1 ? arithmetic_value(without_places(words[1]), *this).value_or(1) : 1;
  auto& arguments = state_.arguments;
  if (count < 0) return Truth::no;
  if (count > static_cast<long long>(arguments.size())) {
    if (state_.arguments_known) return Truth::no;
    arguments.clear();
  } else {
    arguments.erase(arguments.begin(), arguments.begin() + count);
  }
  if (!state_.arguments_known && count < 1000) state_.shifted += static_cast<int>(count);
  return Truth::yes;
}

}  // namespace tessera::shell
