#include <algorithm>
#include <cctype>

#include "framework/interop/shell/parser.h"
#include "framework/interop/shell/script_evaluator.h"

// Variables: what they hold, and assignments.

namespace tessera::shell {
namespace {

constexpr long long most_index = 100000;

/// "A[2]" -> "A", "2"; without a subscript the second is empty.
std::pair<std::string, std::optional<std::string>> parted(const std::string& name) {
  const auto open = name.find('[');
  if (open == std::string::npos || open == 0 || name.back() != ']' || !is_name_start(name[0])) return {name, {}};
  return {name.substr(0, open), name.substr(open + 1, name.size() - open - 2)};
}

std::string changed(std::string words, int (*change)(int)) {
  std::string out;
  for (std::size_t i = 0; i < words.size();) {
    const auto end = words[i] == unknown_begin || words[i] == place_begin ? end_of_mark(words, i) : i + 1;
    if (end == i + 1)
      out += static_cast<char>(change(static_cast<unsigned char>(words[i])));
    else
      out += words.substr(i, end - i);
    i = end;
  }
  return out;
}

}  // namespace

std::string ScriptEvaluator::real_name(std::string name) const {
  constexpr int deepest = 10;
  for (int i = 0; i < deepest; ++i) {
    const auto found = state_.variables.find(name);
    if (found == state_.variables.end() || !found->second.reference || !found->second.is_set()) return name;
    const auto next = plain(*found->second.value());
    if (has_unknown(*found->second.value())) stop("which variable '" + name + "' stands for is not known");
    if (next == name) return name;  // local -n A=A: the A outside, which cannot be told from this one here
    name = next;
  }
  stop("'" + name + "' refers to itself");
}

Variable* ScriptEvaluator::find(const std::string& name) {
  const auto found = state_.variables.find(real_name(name));
  return found == state_.variables.end() ? nullptr : &found->second;
}

Variable& ScriptEvaluator::made(const std::string& name) {
  auto& variable = state_.variables[real_name(name)];
  variable.exported = variable.exported || state_.exports.count(name) != 0 || option("allexport");
  return variable;
}

bool ScriptEvaluator::has(const std::string& name) {
  const auto [list, subscript] = parted(name);
  const auto* variable = find(list);
  if (!variable) return false;
  if (!subscript) return variable->is_set();
  if (*subscript == "@" || *subscript == "*") return variable->size() > 0;
  return element(*variable, *subscript, list).has_value();
}

std::string ScriptEvaluator::key_of(const std::string& subscript) {
  if (subscript.find_first_of("$`\"'\\") == std::string::npos) return subscript;
  auto word = parse_script("x=" + subscript, at_, true);
  const auto& tree = word.tree->children;
  if (!word.error.empty() || tree.empty() || tree[0]->assignments.empty()) return subscript;
  return without_places(single(tree[0]->assignments[0].value));
}

long long ScriptEvaluator::index_of(const std::string& subscript, const std::string& name) {
  const auto index = arithmetic_value(key_of(subscript), *this);
  if (!index) stop("the element " + plain(subscript) + " of '" + name + "' is not known");
  return *index;
}

std::optional<std::string> ScriptEvaluator::element(const Variable& variable, const std::string& subscript,
                                                    const std::string& name) {
  if (subscript == "@" || subscript == "*") return joined_items(variable.values());
  if (variable.named) {
    if (has_unknown(subscript)) return derived("${" + name + "[" + plain(subscript) + "]}", subscript);
    const auto* value = variable.at(key_of(subscript));
    return value ? std::optional<std::string>(*value) : std::nullopt;
  }
  const auto index = arithmetic_value(key_of(subscript), *this);
  if (!index) return derived("${" + name + "[" + plain(subscript) + "]}", subscript);
  const auto* value = variable.at(*index);
  return value ? std::optional<std::string>(*value) : std::nullopt;
}

std::optional<std::string> ScriptEvaluator::value_of(const std::string& name) {
  const auto [list, subscript] = parted(real_name(name));
  const auto* variable = find(list);
  if (variable && subscript) return element(*variable, *subscript, list);
  if (variable && !variable->is_set()) return std::nullopt;
  if (variable) return *variable->value();
  if (subscript) return std::nullopt;
  if (!list.empty() && list.find_first_not_of("0123456789") == std::string::npos && list.size() < 6)
    return argument(std::atoi(list.c_str()));
  if (list == "@" || list == "*") return joined_items(all_arguments());
  return special(list);
}

void ScriptEvaluator::must_be_writable(const Variable& variable, const std::string& name) const {
  if (variable.readonly) stop("'" + name + "' is readonly; Bash refuses to assign to it");
}

std::string ScriptEvaluator::with_attributes(const Variable& variable, std::string value) {
  if (variable.integer) {
    const auto number = arithmetic_value(value, *this);
    return number ? std::to_string(*number) : derived("$((" + plain(value) + "))", value);
  }
  if (variable.lower) return changed(std::move(value), std::tolower);
  if (variable.upper) return changed(std::move(value), std::toupper);
  return value;
}

void ScriptEvaluator::put(Variable& variable, const std::string& name, const std::string& subscript,
                          std::string value) {
  must_be_writable(variable, name);
  value = with_attributes(variable, std::move(value));
  auto& now = state_.variables[real_name(name)];  // arithmetic in the value may have made others
  if (now.named) {
    if (has_unknown(subscript)) stop("the element " + plain(subscript) + " of '" + name + "' is not known");
    now.put(key_of(subscript)) = std::move(value);
    return;
  }
  const auto index = now.index(index_of(subscript, name));
  if (index < 0 || index > most_index) stop("'" + name + "' has no element " + plain(subscript));
  now.items[index] = std::move(value);
}

void ScriptEvaluator::assign(const std::string& name, std::string value) {
  if (name.empty()) return;
  const auto [list, subscript] = parted(real_name(name));
  auto& variable = made(list);
  if (subscript) {
    variable.list = true;
    return put(variable, list, *subscript, std::move(value));
  }
  must_be_writable(variable, list);
  value = with_attributes(variable, std::move(value));
  (variable.named ? variable.put("0") : variable.items[0]) = std::move(value);
}

void ScriptEvaluator::set_list(const std::string& name, const std::vector<std::string>& items) {
  auto& variable = made(name);
  must_be_writable(variable, name);
  variable.items.clear();
  variable.list = true;
  long long at = 0;
  for (const auto& item : items) variable.items[at++] = item;
}

void ScriptEvaluator::assign_list(const Assignment& assignment) {
  std::vector<std::pair<std::optional<std::string>, std::string>> items;
  std::vector<bool> appends;
  for (std::size_t i = 0; i < assignment.items.size(); ++i) {
    if (!assignment.keys[i].parts.empty()) {
      auto key = without_places(single(assignment.keys[i]));
      items.emplace_back(std::move(key), single(assignment.items[i]));
    } else {
      for (auto& item : fields({assignment.items[i]})) items.emplace_back(std::nullopt, std::move(item));
    }
  }
  auto& variable = made(assignment.name);
  must_be_writable(variable, assignment.name);
  if (!assignment.append) variable.items.clear(), variable.key_items.clear();
  variable.list = true;
  step(static_cast<long>(variable.size() / 4));
  long long at = variable.items.empty() ? 0 : variable.items.rbegin()->first + 1;
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto& [key, value] = items[i];
    if (variable.named && !key) {  // Bash 5.1: (key value key value)
      key = std::move(value);
      value = i + 1 < items.size() ? std::move(items[i + 1].second) : "";
      ++i;
    }
    if (key && !variable.named) at = variable.index(index_of(*key, assignment.name));
    put(variable, assignment.name, variable.named ? *key : std::to_string(at), std::move(value));
    ++at;
  }
}

void ScriptEvaluator::assign_all(const Assignment& assignment) {
  if (assignment.list) return assign_list(assignment);
  auto name = assignment.name;
  if (assignment.subscripted) name += "[" + without_places(single(assignment.subscript)) + "]";
  auto value = single(assignment.value);
  const auto* variable = find(assignment.name);
  if (assignment.append && variable && variable->integer)
    value = value_or_mark(name) + "+(" + value + ")";
  else if (assignment.append)
    value = value_or_mark(name) + value;
  assign(name, name == "PATH" ? "" : std::move(value));
}

void ScriptEvaluator::declare_name(const std::string& name, const std::string& options, const std::string& command) {
  const auto given = [&options](char letter) { return options.find(letter) != std::string::npos; };
  const bool local = command == "local" || ((command == "declare" || command == "typeset") && !given('g'));
  if (local && !state_.calls.empty() && state_.calls.back().hidden.count(name) == 0) {
    const auto found = state_.variables.find(name);
    state_.calls.back().hidden[name] =
        found == state_.variables.end() ? std::nullopt : std::optional<Variable>(found->second);
    state_.variables[name] = Variable();
  }
  if (given('x')) state_.exports.insert(name);
  if (given('X')) state_.exports.erase(name);
  const auto target = given('n') ? name : real_name(name);
  const bool changes = options.find_first_of("ilunaA") != std::string::npos;
  if (state_.variables.count(target) == 0 && !changes) return;  // its value, if any, is the caller's
  auto& variable = state_.variables[target];
  if (given('x')) variable.exported = true;
  if (given('X')) variable.exported = false;
  if (given('i')) variable.integer = true;
  if (given('I')) variable.integer = false;
  if (given('l')) variable.lower = true, variable.upper = false;
  if (given('u')) variable.upper = true, variable.lower = false;
  if (given('n')) variable.reference = true;
  if (given('N')) variable.reference = false;
  if (given('A') && !variable.named) variable.named = variable.list = true, variable.items.clear();
  if (given('a')) variable.list = true;
}

namespace {

/// The letters of options: -xi -> "xi"; +x -> "X".
std::string letters_of(const std::string& word) {
  std::string out;
  for (std::size_t i = 1; i < word.size(); ++i)
    out += word[0] == '-' ? word[i] : static_cast<char>(std::toupper(static_cast<unsigned char>(word[i])));
  return out;
}

}  // namespace

Truth ScriptEvaluator::declare(const Node& node, const Words& words) {
  std::string options = words[0] == "export" ? "x" : words[0] == "readonly" ? "r" : "";
  std::vector<std::string> names;
  bool letters = true;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto word = without_places(words[i]);
    letters = letters && word != "--" && !word.empty() && (word[0] == '-' || word[0] == '+') && word.size() > 1;
    if (letters)
      options += words[0] == "export" && word == "-n" ? "X" : letters_of(word);
    else if (word != "--")
      names.push_back(words[i]);
  }
  if (words[0] == "export") std::erase(options, options.find('X') != std::string::npos ? 'x' : 'X');
  if (options.find('f') != std::string::npos || options.find('F') != std::string::npos) return Truth::yes;
  if (options.find('p') != std::string::npos) return print_declared(names);
  if (words[0] == "local" && state_.calls.empty()) return Truth::no;
  std::vector<std::string> declared;
  for (const auto& word : node.words) {
    if (!word.assignment) continue;
    declare_name(word.assignment->name, options, words[0]);
    assign_all(*word.assignment);
    declare_name(word.assignment->name, options, words[0]);
    declared.push_back(word.assignment->name);
  }
  for (const auto& word : names) {  // NAME, or NAME=value that came out of an expansion
    const auto equals = word.find('=');
    auto name = without_places(word.substr(0, equals));
    if (has_unknown(name)) stop("which variable is declared here is not known: " + plain(name));
    const bool appends = equals != std::string::npos && !name.empty() && name.back() == '+';
    if (appends) name.pop_back();
    declare_name(name.substr(0, name.find('[')), options, words[0]);
    if (find(name) != nullptr || equals != std::string::npos) declared.push_back(name);
    if (equals == std::string::npos) continue;
    const auto value = word.substr(equals + 1);
    if (value.size() > 1 && value[0] == '(' && options.find_first_of("aA") != std::string::npos)
      stop("a list in one word is declared here: write " + name + "=( ) without quotes");
    assign(name, (appends ? value_or_mark(name) : "") + value);
    declare_name(name, options, words[0]);
  }
  if (options.find('r') != std::string::npos)
    for (const auto& name : declared) made(name).readonly = true;
  return Truth::yes;
}

Truth ScriptEvaluator::print_declared(const Words& names) {
  emit_unknown();
  auto out = Truth::yes;
  for (const auto& word : names) {
    const auto name = without_places(word);
    if (find(name) != nullptr) continue;
    if (assigned_.count(name) == 0) assume(name);
    out = Truth::no;
  }
  return out;
}

void ScriptEvaluator::unset_name(const std::string& name) {
  const auto [list, subscript] = parted(name);
  auto* const variable = find(list);
  if (variable) must_be_writable(*variable, list);
  if (!subscript || *subscript == "@" || *subscript == "*") {
    if (!subscript && !variable && state_.functions.erase(list) != 0) return;
    state_.exports.erase(real_name(list));
    state_.variables[real_name(list)] = Variable();
  } else if (variable && variable->named) {
    variable->drop(key_of(*subscript));
  } else if (variable) {
    variable->items.erase(variable->index(index_of(*subscript, list)));
  }
}

Truth ScriptEvaluator::unset(const Words& words) {
  bool functions = false, reference = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto name = without_places(words[i]);
    if (has_unknown(name)) stop("which variable is unset here is not known: " + plain(name));
    if (!name.empty() && name[0] == '-') {
      functions = functions || name == "-f";
      reference = reference || name == "-n";
    } else if (functions) {
      state_.functions.erase(name);
    } else if (reference) {
      state_.variables[name] = Variable();
    } else {
      unset_name(name);
    }
  }
  return Truth::yes;
}

}  // namespace tessera::shell
