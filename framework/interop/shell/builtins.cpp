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
  if (words.size() > 2 && (words[1] == "-P" || words[1] == "-L" || words[1] == "--"))
    return change_folder({words[0], words[2]});
  if (words.size() > 2) {
    doubt_outcome(words[0]);
    return Truth::unknown;
  }
  const auto to = words.size() < 2 ? unknown("${HOME}") : words[1];
  if (to.empty()) return Truth::yes;
  const auto before = state_.folder;
  if (to == "-")
    state_.folder = value_of("OLDPWD").value_or(unknown("$(pwd)"));
  else if (to[0] == '/' || to[0] == unknown_begin || to[0] == '~')
    state_.folder = tidy_path(to);
  else
    state_.folder = tidy_path(state_.folder + "/" + to);
  assign("OLDPWD", before);
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

Truth ScriptEvaluator::leave(const Words& words) {
  const bool ends = words[0] == "exit" || words[0] == "return";
  auto truth = code_ < 0 ? Truth::unknown : code_ == 0 ? Truth::yes : Truth::no;
  long long number = ends ? code_ : 1;
  if (words.size() > 1) {
    const auto value = arithmetic_value(without_places(words[1]), *this);
    truth = !value ? Truth::unknown : (*value & 255) == 0 ? Truth::yes : Truth::no;
    number = value.value_or(ends ? -1 : 1);
  }
  if (words[0] == "exit")
    flow_ = Flow::leave_script;
  else if (words[0] == "return")
    flow_ = Flow::leave_function;
  else
    flow_ = words[0] == "break" ? Flow::leave_loop : Flow::next_round;
  constexpr long long most = 100;
  levels_ = static_cast<int>(std::clamp(number, 1LL, most));
  if (!ends) return Truth::yes;
  code_ = number < 0 ? -1 : static_cast<int>(number & 255);
  exact_ = true;
  return truth;
}

Truth ScriptEvaluator::print(const Words& words) {
  if (words[0] == "echo") return emit(echoed(words)), Truth::yes;
  if (words.size() > 2 && without_places(words[1]) == "-v") return print_to_variable(words);
  auto arguments = words;
  if (words.size() > 1 && without_places(words[1]) == "--") arguments.erase(arguments.begin() + 1);
  if (arguments.size() > 1) arguments[1] = without_places(arguments[1]);
  if (const auto out = formatted(arguments))
    emit(*out);
  else
    emit_unknown();
  return Truth::yes;
}

Truth ScriptEvaluator::print_to_variable(const Words& words) {
  auto arguments = words;
  arguments.erase(arguments.begin() + 1, arguments.begin() + 3);
  const auto name = without_places(words[2]);
  std::string all;
  for (const auto& word : arguments) all += (all.empty() ? "" : " ") + word;
  assign(name, formatted(arguments).value_or(derived("$(" + plain(all) + ")", all)));
  return Truth::yes;
}

std::optional<Truth> ScriptEvaluator::builtin_of_variables(const Node& node, const Words& words) {
  const auto& name = words[0];
  if (name == "export" || name == "declare" || name == "typeset" || name == "readonly" || name == "local")
    return declare(node, words);
  if (name == "set") return set(words);
  if (name == "shift") return shift(words);
  if (name == "unset") return unset(words);
  if (name == "let") return let(words);
  if (name == "read") return read_line(words);
  if (name == "mapfile" || name == "readarray") return map_lines(words);
  if (name == "getopts") return getopts(words);
  return std::nullopt;
}

std::optional<Truth> ScriptEvaluator::builtin_of_shell(const Words& words) {
  const auto& name = words[0];
  if (name == "shopt") return shopt(words);
  if (name == "trap") return trap(words);
  if (name == "cd") return change_folder(words);
  if (name == "coproc" || name == "popd" || name == "dirs" || name == "enable" || name == "fc")
    stop("`" + name + "` is not read");
  if (name == "pushd") return change_folder(words);
  if (name == "alias" && option("expand_aliases")) stop("aliases are not read");
  static const std::set<std::string> quiet = {"alias",   "unalias",  "ulimit",  "umask",   "wait",   "hash",
                                              "type",    "bind",     "jobs",    "disown",  "kill",   "bg",
                                              "fg",      "times",    "help",    "history", "caller", "logout",
                                              "suspend", "complete", "compopt", "compgen"};
  if (quiet.count(name) == 0) return std::nullopt;
  emit_unknown();
  doubt_outcome(name);
  return Truth::unknown;
}

std::optional<Truth> ScriptEvaluator::builtin(const Node& node, const Words& words) {
  const auto& name = words[0];
  if (name == ":" || name == "true") return Truth::yes;
  if (name == "false") return Truth::no;
  if (name == "[" || name == "test") {
    std::vector<Operand> operands;
    const auto end = words.size() - (name == "[" && words.back() == "]" ? 1 : 0);
    for (std::size_t i = 1; i < end; ++i) operands.push_back({without_places(words[i]), "", false});
    return test(operands, false, *this);
  }
  if (name == "echo" || name == "printf") return print(words);
  if (name == "pwd") return emit(state_.folder + "\n"), Truth::yes;
  if (name == "exit" || name == "return" || name == "break" || name == "continue") return leave(words);
  if (name == "eval") {
    std::string all;
    for (std::size_t i = 1; i < words.size(); ++i) all += (i > 1 ? " " : "") + words[i];
    return run_text(all, at_);
  }
  if ((name == "source" || name == ".") && words.size() > 1)
    return run_script_file(words[1], {words.begin() + 2, words.end()}, false);
  if (const auto out = builtin_of_variables(node, words)) return out;
  return builtin_of_shell(words);
}

}  // namespace tessera::shell
