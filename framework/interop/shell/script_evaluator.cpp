#include "framework/interop/shell/script_evaluator.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"

// Commands, one after the other.

namespace tessera::shell {
namespace {

namespace fs = std::filesystem;
constexpr int deepest_evaluation = 400;

}  // namespace

bool is_test(const Tree& tree) {
  if (tree->kind == Node::Kind::test || tree->kind == Node::Kind::arithmetic) return true;
  if (tree->kind == Node::Kind::pipeline) return tree->children.size() == 1 && is_test(tree->children[0]);
  if (tree->kind == Node::Kind::and_or || tree->kind == Node::Kind::list || tree->kind == Node::Kind::group)
    return std::all_of(tree->children.begin(), tree->children.end(), is_test);
  if (tree->kind != Node::Kind::simple || tree->words.empty() || tree->words[0].parts.size() != 1) return false;
  const auto& name = tree->words[0].parts[0].words;
  return name == "[" || name == "test" || name == "true" || name == "false" || name == ":";
}

ScriptEvaluator::ScriptEvaluator(const std::string& file, const Inputs& inputs, const Choices& choices, long steps)
    : choices_(choices), steps_left_(steps) {
  reading_.files.push_back(file);
  state_.folder = unknown("${PWD}");
  script_folder_ = fs::path(file).parent_path().string();
  state_.options = {"braceexpand"};
  for (const auto& [name, value] : inputs.environment) {
    auto& variable = state_.variables[name];
    variable.items[0] = value;
    variable.exported = true;
  }
  constexpr int most = 1000;
  for (const auto& [number, value] : inputs.arguments)
    if (number > 0 && number < most) {
      const auto index = static_cast<std::size_t>(number);
      if (state_.arguments.size() < index) state_.arguments.resize(index, std::string(1, '\0'));
      state_.arguments[index - 1] = value;
    }
  while (!state_.arguments.empty() && state_.arguments.back().empty()) {
    state_.arguments.pop_back();
    state_.arguments_known = true;
  }
  at_ = {0, 1};
}

Reading ScriptEvaluator::read(const std::string& text) {
  auto script = parse_script(text, {0, 1}, false);
  learn(script);
  reading_.remarks = std::move(script.remarks);
  try {
    run(script.tree);
    if (flow_ == Flow::on && !script.error.empty()) throw Stop{script.error, script.error_at};
    run_at_exit();
  } catch (const Stop& stop) {
    reading_.error = stop.words;
    reading_.error_at = stop.at;
  }
  return std::move(reading_);
}

void ScriptEvaluator::run_at_exit() {
  if (state_.at_exit.empty()) return;
  flow_ = Flow::on;
  run_text(std::exchange(state_.at_exit, ""), at_);
}

void ScriptEvaluator::remark(const std::string& words) {
  const auto same = [&](const Remark& other) { return other.words == words && other.at.line == at_.line; };
  constexpr std::size_t most = 1000;
  if (reading_.remarks.size() < most && std::none_of(reading_.remarks.begin(), reading_.remarks.end(), same))
    reading_.remarks.push_back({at_, words});
}

Truth ScriptEvaluator::run(const Tree& tree) {
  if (++depth_ > deepest_evaluation) {
    depth_ = 0;
    throw Stop{"endless recursion of commands", tree->at};
  }
  step();
  at_ = tree->at;
  Truth out = Truth::yes;
  const auto& node = *tree;
  switch (node.kind) {
    case Node::Kind::list:
      out = run_list(node);
      break;
    case Node::Kind::and_or:
      out = run_and_or(node);
      break;
    case Node::Kind::pipeline:
      out = run_pipeline(node);
      break;
    case Node::Kind::function:
      state_.functions[node.name] = node.children[0];
      break;
    default:
      out = with_redirects(node, [&] { return run_simple(node); });
      out = settled(node, out);
  }
  --depth_;
  return out;
}

Truth ScriptEvaluator::settled(const Node& node, Truth truth) {
  if (is_open(truth))
    code_ = -1;
  else if (!exact_ || (truth == Truth::yes) != (code_ == 0))
    code_ = truth == Truth::yes ? 0 : 1;
  const bool fails = node.kind == Node::Kind::simple || node.kind == Node::Kind::subshell ||
                     node.kind == Node::Kind::test || node.kind == Node::Kind::arithmetic ||
                     (node.kind == Node::Kind::pipeline && !node.negated);
  if (truth != Truth::no || !fails || guarded_ > 0 || !option("errexit") || flow_ != Flow::on) return truth;
  remark("this command fails, and `set -e` ends the script");
  flow_ = Flow::leave_script;
  return truth;
}

Truth ScriptEvaluator::run_condition(const Tree& tree) {
  ++guarded_;
  const auto out = run(tree);
  --guarded_;
  return out;
}

Truth ScriptEvaluator::run_list(const Node& node) {
  auto out = Truth::yes;
  for (const auto& child : node.children) {
    out = run(child);
    if (flow_ != Flow::on) break;
  }
  return out;
}

Truth ScriptEvaluator::run_and_or(const Node& node) {
  Weighing weighing(*this);
  const auto run_child = [&](std::size_t i) {
    return i + 1 < node.children.size() ? run_condition(node.children[i]) : run(node.children[i]);
  };
  auto out = run_child(0);
  for (std::size_t i = 1; i < node.children.size() && flow_ == Flow::on; ++i) {
    const bool on_success = node.joins[i - 1] == "&&";
    const auto& next = node.children[i];
    if (is_test(next)) {
      if (is_open(out) || (out == Truth::yes) == on_success) {
        const auto other = run_child(i);
        out = on_success ? both(out, other) : either(out, other);
      }
      continue;
    }
    bool runs = counts_as_met(out) == on_success;
    if (is_open(out) || is_test(node.children[i - 1])) {
      const bool unsure = is_open(out) || !assumed_.empty();
      if (unsure && ends_script(next)) runs = false;
      settle_assumptions(!is_open(out) && runs == ((out == Truth::yes) == on_success));
      runs = decide_whether(node.at, node.site * 1000 + static_cast<int>(i), node.source, runs, is_open(out));
      out = runs == on_success ? Truth::yes : Truth::no;
      doubts_.clear();
    }
    if (runs) out = run_child(i);
  }
  if (!is_open(out)) doubts_.clear();
  weighing.hand_on();
  return out;
}

Truth ScriptEvaluator::run_pipeline(const Node& node) {
  auto out = Truth::yes, all = Truth::yes;
  const auto input = input_;
  auto* const outer = output_;
  guarded_ += node.negated ? 1 : 0;
  for (std::size_t i = 0; i < node.children.size() && flow_ == Flow::on; ++i) {
    const bool last = i + 1 == node.children.size();
    Output here;
    if (!last) output_ = &here;
    try {
      const bool own = node.children.size() > 1 && !(last && option("lastpipe"));
      out = own ? run_subshell(node.children[i]) : run(node.children[i]);
    } catch (...) {
      output_ = outer;
      throw;
    }
    all = both(all, out);
    output_ = outer;
    input_.reset();
    if (!last && here.known) input_ = here.words;
  }
  input_ = input;
  guarded_ -= node.negated ? 1 : 0;
  if (option("pipefail")) out = all;
  return settled(node, node.negated ? !out : out);
}

Truth ScriptEvaluator::run_subshell(const Tree& body) {
  const auto before = copy_of_state();
  state_.at_exit.clear();
  const auto out = run(body);
  if (flow_ == Flow::leave_script) run_at_exit();
  state_ = before;
  flow_ = Flow::on;
  return out;
}

bool ScriptEvaluator::is_elsewhere(const Redirect& redirect) {
  const auto target = without_places(single(redirect.target));
  if (redirect.op == ">&" && (target == "1" || target == "-")) return target == "-";
  return redirect.op == ">&" && !target.empty() && target.find_first_not_of("0123456789-") == std::string::npos;
}

Truth ScriptEvaluator::with_redirects(const Node& node, const std::function<Truth()>& action) {
  if (node.redirects.empty()) return action();
  const auto input = input_;
  auto* const outer = output_;
  Output here;
  std::vector<std::pair<std::string, bool>> files;
  for (const auto& redirect : node.redirects) {
    if (redirect.op[0] == '<') {
      if (redirect.from <= 0) read_input(redirect);
      continue;
    }
    if (redirect.from > 1) continue;
    files.clear();  // the last one counts; the others become empty files
    output_ = outer;
    if (redirect.op == ">&" && without_places(single(redirect.target)) == "1") continue;
    output_ = &here;
    if (!is_elsewhere(redirect))
      files.emplace_back(without_places(single(redirect.target)), redirect.op == ">>" || redirect.op == "&>>");
  }
  if (!files.empty() && (files[0].first == "/dev/stdout" || files[0].first == "/dev/fd/1")) output_ = outer;
  Truth out = Truth::yes;
  try {
    out = action();
  } catch (...) {
    output_ = outer;
    throw;
  }
  output_ = outer;
  input_ = input;
  for (const auto& [name, append] : files) write_file(name, here, append);
  return out;
}

void ScriptEvaluator::read_input(const Redirect& redirect) {
  input_.reset();
  if (redirect.here)
    input_ = single(*redirect.here);
  else if (redirect.op == "<<<")
    input_ = single(redirect.target) + "\n";
  else if (redirect.op == "<")
    input_ = output_of_stream(redirect.target);
  if (!input_ && redirect.op == "<") input_ = text_of_file(without_places(single(redirect.target)));
}

Truth ScriptEvaluator::run_simple(const Node& node) {
  exact_ =
      exact_ && node.kind != Node::Kind::simple && node.kind != Node::Kind::test && node.kind != Node::Kind::arithmetic;
  switch (node.kind) {
    case Node::Kind::branches:
      return run_branches(node);
    case Node::Kind::loop:
      return run_loop(node);
    case Node::Kind::each:
      return run_each(node);
    case Node::Kind::counted:
      return run_counted(node);
    case Node::Kind::choice:
      return run_choice(node);
    case Node::Kind::group:
      return run(node.children[0]);
    case Node::Kind::subshell: {
      const auto truth = run_subshell(node.children[0]);
      return node.background ? Truth::yes : truth;
    }
    case Node::Kind::arithmetic: {
      const auto value = arithmetic_value(single(node.words[0]), *this);
      return !value ? Truth::unknown : *value != 0 ? Truth::yes : Truth::no;
    }
    case Node::Kind::test: {
      std::vector<Operand> operands;
      for (const auto& word : node.words) {
        const bool text = word.parts.size() == 1 && word.parts[0].kind == Part::Kind::text;
        const bool matches = !operands.empty() && operands.back().words == "=~" && !operands.back().quoted;
        operands.push_back({without_places(single(word)), matches ? expression(word) : pattern(word), !text});
      }
      return test(operands, true, *this);
    }
    default:
      break;
  }
  substituted_.reset();
  auto words = fields(node.words);
  if (words.empty()) return run_assignments(node);
  if (node.assignments.empty()) return run_words(node, std::move(words));
  std::map<std::string, std::optional<Variable>> before;  // NAME=value command
  for (const auto& assignment : node.assignments) {
    const auto found = state_.variables.find(assignment.name);
    before[assignment.name] = found == state_.variables.end() ? std::nullopt : std::optional<Variable>(found->second);
    assign_all(assignment);
    state_.variables[assignment.name].exported = true;
  }
  const auto out = run_words(node, std::move(words));
  for (auto& [name, variable] : before) {
    state_.variables.erase(name);
    if (variable) state_.variables[name] = std::move(*variable);
  }
  return out;
}

Truth ScriptEvaluator::run_assignments(const Node& node) {
  for (const auto& assignment : node.assignments) assign_all(assignment);
  const bool reads = node.assignments.empty() && node.words.empty() && node.redirects.size() == 1 &&
                     node.redirects[0].op == "<" && output_ != nullptr;
  if (reads && input_) emit(*input_);
  if (reads && !input_) emit_unknown();
  return substituted_.value_or(Truth::yes);
}

Truth ScriptEvaluator::run_words(const Node& node, std::vector<std::string> words) {
  bool replaces = false, functions = true;
  exact_ = false;
  words[0] = without_places(words[0]);
  while (words.size() > 1 && (words[0] == "command" || words[0] == "builtin" || words[0] == "exec")) {
    const auto next = without_places(words[1]);
    if (words[0] == "command" && (next == "-v" || next == "-V")) {
      emit_unknown();
      doubt_outcome("command " + words[1] + (words.size() > 2 ? " " + words[2] : ""));
      return Truth::unknown;
    }
    functions = functions && words[0] == "exec";
    replaces = replaces || words[0] == "exec";
    const bool takes = words[0] == "exec" && next == "-a" && words.size() > 3;
    const bool letters = next.size() > 1 && next[0] == '-' && next != "--";
    words.erase(words.begin(), words.begin() + (takes ? 3 : letters || next == "--" ? 2 : 1));
    if (words.empty()) return Truth::yes;
    words[0] = without_places(words[0]);
  }
  if (words[0] == "exec") return keep_redirects(node), Truth::yes;
  const auto out = run_command(node, words, functions && !replaces);
  if (replaces && flow_ == Flow::on) flow_ = Flow::leave_script;
  return out;
}

void ScriptEvaluator::keep_redirects(const Node& node) {
  for (const auto& redirect : node.redirects)
    if (redirect.op[0] == '<' && redirect.from <= 0) stop("what the script reads after `exec <` is not read here");
}

Truth ScriptEvaluator::run_command(const Node& node, const std::vector<std::string>& words, bool functions) {
  if (functions && state_.functions.count(words[0]) != 0)
    return call_function(words[0], {words.begin() + 1, words.end()});
  if (const auto out = builtin(node, words)) return *out;
  return run_program(words);
}

Truth ScriptEvaluator::call_function(const std::string& name, std::vector<std::string> arguments) {
  const auto body = state_.functions.at(name);
  const auto outer = std::exchange(state_.arguments, std::move(arguments));
  const bool known = std::exchange(state_.arguments_known, true);
  const int shifted = std::exchange(state_.shifted, 0);
  state_.calls.push_back({{}, name, at_});
  const auto out = run(body);
  for (auto& [hidden, variable] : state_.calls.back().hidden) {
    state_.variables.erase(hidden);
    if (variable) state_.variables[hidden] = std::move(*variable);
  }
  state_.calls.pop_back();
  state_.arguments = outer;
  state_.arguments_known = known;
  state_.shifted = shifted;
  if (flow_ == Flow::leave_function) flow_ = Flow::on;
  return out;
}

void ScriptEvaluator::learn(ParsedScript& script) {
  if (assigned_.empty())
    assigned_ = std::move(script.assigned);
  else
    assigned_.insert(script.assigned.begin(), script.assigned.end());
}

Truth ScriptEvaluator::run_text(const std::string& text, const ScriptPosition& at) {
  step(static_cast<long>(text.size() / 256));
  const auto script = parse_script(text, at, true);
  for (const auto& one : script.remarks) remark(one.words);
  const auto out = run(script.tree);
  if (flow_ == Flow::on && !script.error.empty()) throw Stop{"inside of what is evaluated here: " + script.error, at};
  return out;
}

}  // namespace tessera::shell
