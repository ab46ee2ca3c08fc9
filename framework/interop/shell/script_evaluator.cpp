#include "framework/interop/shell/script_evaluator.h"

#include <algorithm>
#include <filesystem>

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
  for (const auto& [name, value] : inputs.environment) {
    auto& variable = state_.variables[name];
    variable.items = {value};
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
  } catch (const Stop& stop) {
    reading_.error = stop.words;
    reading_.error_at = stop.at;
  }
  return std::move(reading_);
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
    throw Stop{"commands call each other without end", tree->at};
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
      functions_[node.name] = node.children[0];
      break;
    default:
      out = with_redirects(node, [&] { return run_simple(node); });
  }
  --depth_;
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

/// A && B || C. What is not known counts as met, unless the script would end with what follows.
Truth ScriptEvaluator::run_and_or(const Node& node) {
  Weighing weighing(*this);
  auto out = run(node.children[0]);
  for (std::size_t i = 1; i < node.children.size() && flow_ == Flow::on; ++i) {
    const bool on_success = node.joins[i - 1] == "&&";
    const auto& next = node.children[i];
    if (is_test(next)) {
      if (is_open(out) || (out == Truth::yes) == on_success) {
        const auto other = run(next);
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
    if (runs) out = run(next);
  }
  if (!is_open(out)) doubts_.clear();
  weighing.hand_on();
  return out;
}

Truth ScriptEvaluator::run_pipeline(const Node& node) {
  auto out = Truth::yes;
  const auto input = input_;
  auto* const outer = output_;
  for (std::size_t i = 0; i < node.children.size() && flow_ == Flow::on; ++i) {
    const bool last = i + 1 == node.children.size();
    Output here;
    if (!last) output_ = &here;
    try {
      out = node.children.size() > 1 ? run_subshell(node.children[i]) : run(node.children[i]);
    } catch (...) {
      output_ = outer;
      throw;
    }
    output_ = outer;
    input_.reset();
    if (!last && here.known) input_ = here.words;
  }
  input_ = input;
  return node.negated ? !out : out;
}

Truth ScriptEvaluator::run_subshell(const Tree& body) {
  const auto before = copy_of_state();
  const auto out = run(body);
  state_ = before;
  flow_ = Flow::on;
  return out;
}

Truth ScriptEvaluator::with_redirects(const Node& node, const std::function<Truth()>& action) {
  if (node.redirects.empty()) return action();
  const auto input = input_;
  auto* const outer = output_;
  Output here;
  std::vector<std::pair<std::string, bool>> files;
  for (const auto& redirect : node.redirects) {
    if (redirect.op[0] == '<') {
      read_input(redirect);
      continue;
    }
    if (redirect.from > 1 || redirect.op == ">&" || redirect.op[0] == '&') continue;
    files.emplace_back(without_places(single(redirect.target)), redirect.op == ">>");
  }
  if (!files.empty()) output_ = &here;
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
    input_ = text_of_file(without_places(single(redirect.target)));
}

void ScriptEvaluator::write_file(const std::string& name, const Output& output, bool append) {
  if (name == "/dev/null" || name == "/dev/stderr") return;
  const auto key = plain(name);
  if (!output.known) {
    reading_.written.erase(key);
    return;
  }
  auto& words = reading_.written[key];
  words = append ? words + output.words : output.words;
}

Truth ScriptEvaluator::run_simple(const Node& node) {
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
    case Node::Kind::subshell:
      return run_subshell(node.children[0]);
    case Node::Kind::arithmetic: {
      const auto value = arithmetic_value(single(node.words[0]), *this);
      return !value ? Truth::unknown : *value != 0 ? Truth::yes : Truth::no;
    }
    case Node::Kind::test: {
      std::vector<Operand> operands;
      for (const auto& word : node.words) {
        const bool text = word.parts.size() == 1 && word.parts[0].kind == Part::Kind::text;
        operands.push_back({without_places(single(word)), text ? word.parts[0].words : pattern(word), !text});
        if (text) operands.back().pattern = without_places(operands.back().pattern);
      }
      return test(operands, true, *this);
    }
    default:
      break;
  }
  auto words = fields(node.words);
  if (words.empty()) {
    for (const auto& assignment : node.assignments) assign_all(assignment);
    return Truth::yes;
  }
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

Truth ScriptEvaluator::run_words(const Node& node, std::vector<std::string> words) {
  words[0] = without_places(words[0]);
  while (words.size() > 1 && (words[0] == "command" || words[0] == "builtin" || words[0] == "exec")) {
    if (words[0] == "command" && without_places(words[1])[0] == '-') {  // command -v
      doubt_outcome("command " + words[1] + (words.size() > 2 ? " " + words[2] : ""));
      return Truth::unknown;
    }
    words.erase(words.begin());
    words[0] = without_places(words[0]);
  }
  if (const auto function = functions_.find(words[0]); function != functions_.end()) {
    const auto body = function->second;
    return call_function(body, {words.begin() + 1, words.end()});
  }
  if (const auto out = builtin(node, words)) return *out;
  return run_program(words);
}

Truth ScriptEvaluator::call_function(const Tree& body, std::vector<std::string> arguments) {
  const auto outer = state_.arguments;
  const bool known = state_.arguments_known;
  state_.arguments = std::move(arguments);
  state_.arguments_known = true;
  locals_.emplace_back();
  const auto out = run(body);
  for (auto& [name, variable] : locals_.back()) {
    state_.variables.erase(name);
    if (variable) state_.variables[name] = std::move(*variable);
  }
  locals_.pop_back();
  state_.arguments = outer;
  state_.arguments_known = known;
  if (flow_ == Flow::leave_function) flow_ = Flow::on;
  return out;
}

/// Names that a script assigns are its own: where they are not set yet they are empty.
void ScriptEvaluator::learn(ParsedScript& script) {
  if (assigned_.empty())
    assigned_ = std::move(script.assigned);
  else
    assigned_.insert(script.assigned.begin(), script.assigned.end());
}

/// eval, bash -c: a text that is a script.
Truth ScriptEvaluator::run_text(const std::string& text, const ScriptPosition& at) {
  step(static_cast<long>(text.size() / 256));
  const auto script = parse_script(text, at, true);
  for (const auto& one : script.remarks) remark(one.words);
  const auto out = run(script.tree);
  if (flow_ == Flow::on && !script.error.empty()) remark("inside of what is evaluated here: " + script.error);
  return out;
}

}  // namespace tessera::shell
