#include <algorithm>
#include <set>
#include <utility>

#include "framework/interop/shell/script_evaluator.h"

// Commands that the shell itself carries out.

namespace tessera::shell {

void ScriptEvaluator::emit(const std::string& words) {
  if (output_ == nullptr) return;
  output_->words += words;
  produced_ += static_cast<long>(words.size());
  step(static_cast<long>(words.size() / 1024));
}

void ScriptEvaluator::emit_unknown() {
  if (output_ != nullptr) output_->known = false;
}

Truth ScriptEvaluator::change_folder(const Words& words) {
  if (words.size() > 2) {
    doubt_outcome(words[0]);
    return Truth::unknown;
  }
  const auto to = words.size() < 2 ? unknown("${HOME}") : words[1];
  if (to.empty()) return Truth::yes;
  if (to == "-")
    state_.folder = unknown("$(pwd)");
  else if (to[0] == '/' || to[0] == unknown_begin || to[0] == '~')
    state_.folder = tidy_path(to);
  else
    state_.folder = tidy_path(state_.folder + "/" + to);
  return Truth::yes;
}

Truth ScriptEvaluator::let(const Words& words) {
  auto out = Truth::no;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto value = arithmetic_value(words[i], *this);
    out = !value ? Truth::unknown : *value != 0 ? Truth::yes : Truth::no;
  }
  return out;
}

/// read NAME...: of a text that is known, its words; else nobody knows.
Truth ScriptEvaluator::read_line(const Words& words) {
  Words names;
  bool list = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto word = without_places(words[i]);
    if (word == "-a" || word == "-ra") list = true;
    if (word == "-d" || word == "-p" || word == "-t" || word == "-n" || word == "-u")
      ++i;
    else if (!word.empty() && word[0] != '-')
      names.push_back(word);
  }
  if (names.empty()) {
    doubt_outcome("read");
    return Truth::unknown;
  }
  if (!input_ || has_unknown(*input_)) {
    for (const auto& name : names) assign(name, unknown("$(read " + name + ")"));
    doubt_outcome("read " + names[0]);
    return Truth::unknown;
  }
  if (input_->empty()) return Truth::no;
  const auto end = std::min(input_->find('\n'), input_->size());
  auto line = without_places(input_->substr(0, end));
  input_->erase(0, std::min(end + 1, input_->size()));
  const auto ifs = value_of("IFS").value_or(" \t\n");
  const auto separates = [&ifs](char c) { return is_space(c) && ifs.find(c) != std::string::npos; };
  line.erase(line.begin(), std::find_if_not(line.begin(), line.end(), separates));
  while (!line.empty() && separates(line.back())) line.pop_back();
  const auto next_word = [&line, &ifs](bool last) {
    const auto stop = std::min(line.find_first_of(ifs), line.size());
    const auto next = separator_at(line, stop, ifs).end;
    if (last && next < line.size()) return std::exchange(line, "");  // the rest, as it stands
    const auto word = line.substr(0, stop);
    line.erase(0, next);
    return word;
  };
  if (list) {
    Variable variable;
    variable.list = true;
    variable.items.clear();
    while (!line.empty()) variable.items.push_back(next_word(false));
    state_.variables[names[0]] = variable;
    return Truth::yes;
  }
  for (std::size_t i = 0; i < names.size(); ++i) assign(names[i], next_word(i + 1 == names.size()));
  return Truth::yes;
}

/// exit, return, break, continue
Truth ScriptEvaluator::leave(const Words& words) {
  auto truth = Truth::yes;
  long long number = 1;
  if (words.size() > 1) {
    const auto value = arithmetic_value(without_places(words[1]), *this);
    truth = !value ? Truth::unknown : *value == 0 ? Truth::yes : Truth::no;
    if (value) number = *value;
  }
  if (words[0] == "exit")
    flow_ = Flow::leave_script;
  else if (words[0] == "return")
    flow_ = Flow::leave_function;
  else
    flow_ = words[0] == "break" ? Flow::leave_loop : Flow::next_round;
  constexpr long long most = 100;
  levels_ = static_cast<int>(std::clamp(number, 1LL, most));
  return words[0] == "exit" || words[0] == "return" ? truth : Truth::yes;
}

Truth ScriptEvaluator::print(const Words& words) {
  emit(printed(words));
  return Truth::yes;
}

/// Runs the builtin named by the first word; nothing if there is no such builtin.
std::optional<Truth> ScriptEvaluator::builtin(const Node& node, const Words& words) {
  const auto name = without_places(words[0]);
  if (name == ":" || name == "true") return Truth::yes;
  if (name == "false") return Truth::no;
  if (name == "export" || name == "declare" || name == "typeset" || name == "readonly" || name == "local")
    return declare(node, words);
  if (name == "[" || name == "test") {
    std::vector<Operand> operands;
    const auto end = words.size() - (name == "[" && words.back() == "]" ? 1 : 0);
    for (std::size_t i = 1; i < end; ++i) operands.push_back({without_places(words[i]), "", false});
    return test(operands, false, *this);
  }
  if (name == "set") return set(words);
  if (name == "shift") return shift(words);
  if (name == "unset") return unset(words);
  if (name == "cd" || name == "pushd") return change_folder(words);
  if (name == "let") return let(words);
  if (name == "read") return read_line(words);
  if (name == "echo" || name == "printf") return print(words);
  if (name == "pwd") {
    emit(state_.folder + "\n");
    return Truth::yes;
  }
  if (name == "exit" || name == "return" || name == "break" || name == "continue") return leave(words);
  if (name == "eval") {
    std::string all;
    for (std::size_t i = 1; i < words.size(); ++i) all += (i > 1 ? " " : "") + words[i];
    return run_text(all, at_);
  }
  if ((name == "source" || name == ".") && words.size() > 1)
    return run_script_file(words[1], {words.begin() + 2, words.end()}, false);
  static const std::set<std::string> quiet = {"trap", "shopt", "alias", "unalias", "ulimit", "umask", "wait",
                                              "hash", "type",  "popd",  "bind",    "jobs",   "disown"};
  if (quiet.count(name) != 0) {
    doubt_outcome(name);
    return Truth::unknown;
  }
  return std::nullopt;
}

}  // namespace tessera::shell
