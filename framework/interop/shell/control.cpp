#include <algorithm>

#include "framework/interop/shell/script_evaluator.h"

// if, loops, case: what depends on conditions.

namespace tessera::shell {

bool Decision::operator<(const Decision& other) const {
  if (at.file != other.at.file) return at.file < other.at.file;
  if (at.line != other.at.line) return at.line < other.at.line;
  return site < other.site;
}

int ScriptEvaluator::decide(Decision decision) {
  if (decision.open) decision.needs.assign(doubts_.begin(), doubts_.end());
  const auto forced = choices_.find(decision);
  if (forced != choices_.end() && (decision.open || !forced->first.open))
    decision.taken = std::min(forced->second, decision.branches - 1);
  const auto [known, first] = decided_.try_emplace(decision, reading_.decisions.size());
  if (first) {
    reading_.decisions.push_back(decision);
    return decision.taken;
  }
  auto& before = reading_.decisions[known->second];
  if (!before.open && decision.open) before.needs = decision.needs, before.possible = decision.possible;
  before.open = before.open || decision.open;
  if (before.taken != decision.taken) before.taken = -1;
  return decision.taken;
}

bool ScriptEvaluator::decide_whether(const ScriptPosition& at, int site, const std::string& condition, bool usual,
                                     bool open) {
  return decide({at, site, condition, 2, usual ? 0 : 1, open, {}, {0, 1}}) == 0;
}

void ScriptEvaluator::doubt(const std::string& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != unknown_begin) continue;
    const auto end = end_of_mark(words, i);
    const auto inside = words.substr(i + 1, end - i - 2);
    const auto causes = causes_.find(plain(inside));
    if (causes != causes_.end())
      doubts_.insert(causes->second.begin(), causes->second.end());
    else if (has_unknown(inside))
      doubt(inside);
    else
      doubts_.insert(plain(inside));
    i = end - 1;
  }
}

std::string ScriptEvaluator::derived(const std::string& words, const std::string& from) {
  const Weighing weighing(*this);
  doubt(from);
  return derived(words);
}

std::string ScriptEvaluator::derived(const std::string& words) {
  if (!doubts_.empty()) causes_[plain(words)].insert(doubts_.begin(), doubts_.end());
  return unknown(words);
}

void ScriptEvaluator::settle_assumptions(bool relied_on) {
  for (const auto& name : assumed_) {
    const auto same = [&name](const Assumed& other) { return other.name == name; };
    if (relied_on && std::none_of(reading_.assumed.begin(), reading_.assumed.end(), same))
      reading_.assumed.push_back({name, "", at_});
  }
  assumed_.clear();
}

Truth ScriptEvaluator::probe(const Tree& condition) {
  if (!is_test(condition)) return Truth::unknown;
  const auto state = copy_of_state();
  const auto at = at_;
  const int depth = depth_, guarded = guarded_, code = code_;
  auto out = Truth::unknown;
  try {
    out = run_condition(condition);
  } catch (const Stop&) {
    if (steps_left_ < 0) throw;
  }
  depth_ = depth;
  guarded_ = guarded;
  code_ = code;
  state_ = state;
  at_ = at;
  return out;
}

bool ScriptEvaluator::ends_script(const Tree& tree, int depth) const {
  constexpr int deepest = 10;
  if (!tree || depth > deepest) return false;
  if (tree->kind == Node::Kind::simple) {
    if (tree->words.empty() || tree->words[0].parts.empty()) return false;
    const auto name = without_places(tree->words[0].parts[0].words);
    if (name == "exit" || name == "return") return true;
    const auto function = state_.functions.find(name);
    return function != state_.functions.end() && ends_script(function->second, depth + 1);
  }
  if (tree->kind == Node::Kind::list || tree->kind == Node::Kind::group)
    return std::any_of(tree->children.begin(), tree->children.end(),
                       [&](const auto& child) { return ends_script(child, depth + 1); });
  return false;
}

Truth ScriptEvaluator::run_branches(const Node& node) {
  const int count = static_cast<int>(node.children.size() / 2);
  const bool has_else = node.children.size() % 2 == 1;
  Decision decision{.at = node.at,
                    .site = node.site,
                    .condition = node.source,
                    .branches = count + 1,
                    .taken = count,
                    .needs = {},
                    .possible = {}};  // count: else, or nothing
  int taken = count;
  {
    const Weighing weighing(*this);
    std::set<std::string> needs;
    bool settled = false;
    for (int i = 0; i < count && !settled; ++i) {
      const auto& condition = node.children[2 * static_cast<std::size_t>(i)];
      const auto& body = node.children[2 * static_cast<std::size_t>(i) + 1];
      const bool reached = decision.taken == count;
      const auto truth = reached ? run_condition(condition) : probe(condition);
      if (flow_ != Flow::on) return Truth::yes;
      const bool ends = (is_open(truth) || !assumed_.empty()) && counts_as_met(truth) && ends_script(body);
      settle_assumptions(reached && !is_open(truth) && !ends);
      if (is_open(truth)) needs.insert(doubts_.begin(), doubts_.end());
      doubts_.clear();
      if (truth == Truth::no) continue;
      decision.possible.push_back(i);
      decision.open = decision.open || is_open(truth);
      settled = truth == Truth::yes && !ends;
      if (reached && counts_as_met(truth) && !ends) decision.taken = i;
    }
    if (!settled) decision.possible.push_back(count);
    doubts_ = std::move(needs);
    taken = decide(decision);
  }
  if (taken < count) return run(node.children[2 * static_cast<std::size_t>(taken) + 1]);
  return has_else ? run(node.children.back()) : Truth::yes;
}

bool ScriptEvaluator::end_of_round() {
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

Truth ScriptEvaluator::run_loop(const Node& node) {
  auto out = Truth::yes;
  for (int rounds = 0;; ++rounds) {
    at_ = node.at;
    step();
    {
      const Weighing weighing(*this);
      auto truth = run_condition(node.children[0]);
      if (flow_ != Flow::on) break;
      if (node.until) truth = !truth;
      settle_assumptions(!is_open(truth));
      if (is_open(truth) && rounds > 0) break;
      if (is_open(truth) && !decide_whether(node.at, node.site, node.source, false, true)) break;
      if (truth == Truth::no) break;
    }
    out = run(node.children[1]);
    if (!end_of_round()) break;
  }
  return out;
}

Truth ScriptEvaluator::run_items(const Node& node, const std::vector<std::string>& items) {
  auto out = Truth::yes;
  for (const auto& item : items) {
    step();
    assign(node.name, item);
    out = run(node.children[0]);
    if (!end_of_round()) break;
  }
  return out;
}

Truth ScriptEvaluator::run_each(const Node& node) {
  if (node.asks) stop("`select` asks the user; what is chosen is not known");
  const auto items = node.all_arguments ? all_arguments() : fields(node.words);
  const auto is_unknown = [](const std::string& item) {
    const auto words = without_places(item);
    return !words.empty() && words[0] == unknown_begin && end_of_mark(words, 0) == words.size();
  };
  if (std::any_of(items.begin(), items.end(), is_unknown)) {
    const Weighing weighing(*this);
    for (const auto& item : items) doubt(item);
    const bool arguments = items.size() == 1 && items[0] == unknown("$@");
    if (!decide_whether(node.at, node.site, node.source, !arguments, true)) return Truth::yes;
  }
  return run_items(node, items);
}

Truth ScriptEvaluator::run_counted(const Node& node) {
  const auto value = [&](std::size_t i) { return arithmetic_value(single(node.words[i]), *this); };
  auto out = Truth::yes;
  value(0);
  for (;;) {
    at_ = node.at;
    step();
    const bool endless =
        node.words[1].parts.empty() || concat(node.words[1].parts).find_first_not_of(' ') == std::string::npos;
    std::optional<long long> holds = 1;
    if (!endless) {
      const Weighing weighing(*this);
      holds = value(1);
      if (!holds && !decide_whether(node.at, node.site, node.source, true, true)) break;
    }
    if (holds && *holds == 0) break;
    out = run(node.children[0]);
    if (!end_of_round() || !holds) break;
    value(2);
  }
  return out;
}

bool ScriptEvaluator::matches_item(const CaseItem& item, const std::string& subject, bool& known) {
  bool perhaps = false;
  for (const auto& word : item.patterns) {
    const auto wanted = pattern(word);
    const bool sure = wanted == "*" || (!has_unknown(subject) && !has_unknown(wanted));
    if (sure && wanted != "*" && !fits(subject, wanted, option("nocasematch"), spend())) continue;
    perhaps = true;
    if (!sure) doubt(subject), doubt(wanted);
    if (sure) return known = true;
  }
  return perhaps;
}

Truth ScriptEvaluator::run_choice(const Node& node) {
  const auto subject = without_places(single(node.words[0]));
  const int count = static_cast<int>(node.items.size());
  Decision decision{.at = node.at,
                    .site = node.site,
                    .condition = node.source,
                    .branches = count + 1,
                    .taken = count,
                    .needs = {},
                    .possible = {}};
  std::optional<Weighing> weighing(std::in_place, *this);
  bool settled_here = false;
  for (int i = 0; i < count && !settled_here; ++i) {
    const auto& item = node.items[static_cast<std::size_t>(i)];
    if (!matches_item(item, subject, settled_here)) continue;
    decision.possible.push_back(i);
    decision.open = decision.open || !settled_here;
    if (decision.taken == count && ((settled_here && !decision.open) || !ends_script(item.body))) decision.taken = i;
  }
  if (!settled_here) decision.possible.push_back(count);
  auto taken = static_cast<std::size_t>(decide(decision));
  weighing.reset();
  auto out = Truth::yes;
  while (taken < node.items.size()) {
    const auto& item = node.items[taken++];
    out = run(item.body);
    if (flow_ != Flow::on || (!item.falls_through && !item.goes_on)) break;
    bool known = false;
    while (item.goes_on && taken < node.items.size() && !matches_item(node.items[taken], subject, known)) ++taken;
  }
  return out;
}

}  // namespace tessera::shell
