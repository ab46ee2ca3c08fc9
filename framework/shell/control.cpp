#include <algorithm>

#include "framework/shell/evaluator.h"

// if, loops, case: what depends on conditions.

namespace tessera::shell {

bool Decision::operator<(const Decision& other) const {
  if (at.file != other.at.file) return at.file < other.at.file;
  if (at.line != other.at.line) return at.line < other.at.line;
  return site < other.site;
}

/// Which branch is taken: as the caller chose, else `usual`. Writes down that there was a choice.
int Evaluator::decide(const Place& at, int site, const std::string& condition, int branches, int usual) {
  Decision decision{at, site, condition, branches, usual};
  if (const auto forced = choices_.find(decision); forced != choices_.end())
    decision.taken = std::min(forced->second, branches - 1);
  const auto [known, first] = decided_.try_emplace(decision, reading_.decisions.size());
  if (first)
    reading_.decisions.push_back(decision);
  else if (reading_.decisions[known->second].taken != decision.taken)
    reading_.decisions[known->second].taken = -1;
  return decision.taken;
}

/// Whether what a condition leads to ends the script: exit is one of its commands, or a function's that it calls.
bool Evaluator::ends_script(const Tree& tree, int depth) const {
  constexpr int deepest = 10;
  if (!tree || depth > deepest) return false;
  if (tree->kind == Node::Kind::simple) {
    if (tree->words.empty() || tree->words[0].parts.empty()) return false;
    const auto name = without_places(tree->words[0].parts[0].words);
    if (name == "exit" || name == "return") return true;
    const auto function = functions_.find(name);
    return function != functions_.end() && ends_script(function->second, depth + 1);
  }
  if (tree->kind == Node::Kind::list || tree->kind == Node::Kind::group)
    return std::any_of(tree->children.begin(), tree->children.end(),
                       [&](const auto& child) { return ends_script(child, depth + 1); });
  return false;
}

Truth Evaluator::run_branches(const Node& node) {
  const auto count = node.children.size() / 2;
  const bool has_else = node.children.size() % 2 == 1;
  const int branches = static_cast<int>(count) + 1;
  int usual = static_cast<int>(count);  // else, or nothing
  std::string condition = node.source;
  for (std::size_t i = 0; i < count; ++i) {
    assumed_ = false;
    const auto truth = run(node.children[2 * i]);
    if (flow_ != Flow::on) return Truth::yes;
    const bool sure = truth == Truth::yes && !assumed_;
    if (truth == Truth::no || (!sure && ends_script(node.children[2 * i + 1]))) continue;
    usual = static_cast<int>(i);
    break;
  }
  const int taken = decide(node.at, node.site, condition, branches, usual);
  if (taken < static_cast<int>(count)) return run(node.children[2 * static_cast<std::size_t>(taken) + 1]);
  return has_else ? run(node.children.back()) : Truth::yes;
}

/// After a loop's body: whether the loop goes on.
bool Evaluator::end_of_round() {
  if (flow_ == Flow::on) return true;
  if (flow_ == Flow::leave_loop || flow_ == Flow::next_round) {
    const bool next = flow_ == Flow::next_round && levels_ <= 1;
    if (levels_ > 1)
      --levels_;
    else
      flow_ = Flow::on;
    return next;
  }
  return false;
}

/// While its condition holds. Where that is not known: not at all, or once if so chosen.
Truth Evaluator::run_loop(const Node& node) {
  for (int rounds = 0;; ++rounds) {
    at_ = node.at;
    step();
    auto truth = run(node.children[0]);
    if (flow_ != Flow::on) break;
    if (node.until) truth = !truth;
    if (truth == Truth::unknown && rounds > 0) break;
    if (truth == Truth::unknown && decide(node.at, node.site, node.source, 2, 1) == 1) break;
    if (truth == Truth::no) break;
    run(node.children[1]);
    if (!end_of_round()) break;
  }
  return Truth::yes;
}

Truth Evaluator::run_items(const Node& node, const std::vector<std::string>& items) {
  for (const auto& item : items) {
    step();
    assign(node.name, item);
    run(node.children[0]);
    if (!end_of_round()) break;
  }
  return Truth::yes;
}

Truth Evaluator::run_each(const Node& node) {
  const auto items = node.all_arguments ? all_arguments() : fields(node.words);
  const bool nobody_knows = items.size() == 1 && items[0] == unknown("$@");
  if (nobody_knows && decide(node.at, node.site, node.source, 2, 1) == 1) return Truth::yes;
  return run_items(node, items);
}

/// for ((a; b; c))
Truth Evaluator::run_counted(const Node& node) {
  const auto value = [&](std::size_t i) { return arithmetic_value(single(node.words[i]), *this); };
  value(0);
  for (;;) {
    at_ = node.at;
    step();
    const bool endless =
        node.words[1].parts.empty() || concat(node.words[1].parts, false).find_first_not_of(' ') == std::string::npos;
    const auto holds = endless ? 1 : value(1);
    if (holds && *holds == 0) break;
    run(node.children[0]);
    if (!end_of_round() || !holds) break;
    value(2);
  }
  return Truth::yes;
}

Truth Evaluator::run_choice(const Node& node) {
  const auto subject = without_places(single(node.words[0]));
  const int count = static_cast<int>(node.items.size());
  int usual = count;
  for (int i = 0; i < count && usual == count; ++i) {
    const auto& item = node.items[static_cast<std::size_t>(i)];
    for (const auto& word : item.patterns) {
      const auto wanted = pattern(word);
      if (!has_unknown(subject) && !has_unknown(wanted) ? fits(subject, wanted) : !ends_script(item.body)) usual = i;
    }
  }
  auto taken = static_cast<std::size_t>(decide(node.at, node.site, node.source, count + 1, usual));
  auto out = Truth::yes;
  for (; taken < node.items.size(); ++taken) {
    out = run(node.items[taken].body);
    if (flow_ != Flow::on || !node.items[taken].falls_through) break;
  }
  return out;
}

}  // namespace tessera::shell
