#include <algorithm>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/shell/script_evaluator.h"

// [ ... ], test ... and [[ ... ]]

namespace tessera::shell {

Truth operator!(Truth truth) {
  switch (truth) {
    case Truth::no:
      return Truth::yes;
    case Truth::yes:
      return Truth::no;
    case Truth::likely_no:
      return Truth::likely_yes;
    case Truth::likely_yes:
      return Truth::likely_no;
    case Truth::unknown:
      break;
  }
  return Truth::unknown;
}

Truth both(Truth a, Truth b) {
  if (a == Truth::no || b == Truth::no) return Truth::no;
  if (a == Truth::yes) return b;
  if (b == Truth::yes) return a;
  if (a == Truth::likely_no || b == Truth::likely_no) return Truth::likely_no;
  return a == b ? a : Truth::unknown;
}

Truth either(Truth a, Truth b) { return !both(!a, !b); }

namespace {

constexpr int deepest_test = 50;

Truth truth_of(bool holds) { return holds ? Truth::yes : Truth::no; }
Truth likely(Truth truth) {
  return truth == Truth::yes ? Truth::likely_yes : truth == Truth::no ? Truth::likely_no : truth;
}

std::string name_in(const std::string& mark) { return mark.substr(3, mark.size() - 5); }

/// A value that is all one name which nobody sets: ${NAME}.
bool is_unset_name(const std::string& words) {
  return words.size() > 4 && words[0] == unknown_begin && words.compare(1, 2, "${") == 0 &&
         words.find('}') == words.size() - 2 && std::isdigit(static_cast<unsigned char>(words[3])) == 0;
}

class Test {
 public:
  Test(const std::vector<Operand>& operands, bool patterns, ScriptEvaluator& evaluator)
      : operands_(operands), patterns_(patterns), evaluator_(evaluator) {}

  Truth value() {
    if (operands_.empty()) return Truth::no;
    // [ $X = a ] of an empty X, which is an error in Bash: not met.
    if (operands_.size() == 2 && (is_binary(0) || is_binary(1))) return Truth::no;
    const auto out = alternatives();
    return i_ == operands_.size() ? out : not_understood();
  }

 private:
  Truth not_understood() {
    std::string all;
    for (const auto& operand : operands_) all += (all.empty() ? "" : " ") + operand.words;
    evaluator_.doubt_outcome("[ " + all + " ]");
    return Truth::unknown;
  }

  bool is_op(std::size_t at, std::initializer_list<std::string_view> ops) const {
    if (at >= operands_.size() || operands_[at].quoted) return false;
    return std::find(ops.begin(), ops.end(), operands_[at].words) != ops.end();
  }
  bool is_binary(std::size_t at) const {
    return is_op(at, {"=", "==", "!=", "=~", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"});
  }
  bool is_unary(std::size_t at) const {
    return is_op(at, {"-z", "-n", "-f", "-d", "-e", "-x", "-r", "-w", "-s", "-L", "-h", "-v", "-t",
                      "-b", "-c", "-p", "-o", "-R", "-k", "-u", "-g", "-G", "-O", "-N", "-S", "-a"});
  }

  Truth alternatives() {
    auto out = parts();
    while (patterns_ ? is_op(i_, {"||"}) : is_op(i_, {"-o"})) {
      ++i_;
      out = either(out, skipped(out == Truth::yes, &Test::parts));
    }
    return out;
  }

  /// What is not evaluated, in [[ ]], has no effect.
  Truth skipped(bool skip, Truth (Test::*next)()) {
    skipped_ += skip && patterns_ ? 1 : 0;
    const auto out = (this->*next)();
    skipped_ -= skip && patterns_ ? 1 : 0;
    return out;
  }

  Truth parts() {
    auto out = one();
    while (patterns_ ? is_op(i_, {"&&"}) : is_op(i_, {"-a"})) {
      ++i_;
      out = both(out, skipped(out == Truth::no, &Test::one));
    }
    return out;
  }

  Truth one() {
    if (++depth_ > deepest_test || i_ >= operands_.size()) return Truth::unknown;
    auto out = Truth::unknown;
    if (is_op(i_, {"!"}) && i_ + 1 < operands_.size() && !is_binary(i_ + 1)) {
      ++i_;
      out = !one();
    } else if (is_op(i_, {"("}) && !is_binary(i_ + 1)) {
      ++i_;
      out = alternatives();
      if (!is_op(i_, {")"})) return Truth::unknown;
      ++i_;
    } else if (is_binary(i_ + 1) && i_ + 2 < operands_.size()) {
      i_ += 3;
      if (skipped_ > 0) return --depth_, Truth::no;
      out = compared(operands_[i_ - 3], operands_[i_ - 2].words, operands_[i_ - 1]);
    } else if (is_unary(i_) && i_ + 1 < operands_.size()) {
      i_ += 2;
      if (skipped_ > 0) return --depth_, Truth::no;
      out = unary(operands_[i_ - 2].words, operands_[i_ - 1].words);
    } else {
      out = unary("-n", operands_[i_++].words);
    }
    --depth_;
    return out;
  }

  Truth unary(const std::string& op, const std::string& words) {
    if (op == "-z" || op == "-n") return op == "-z" ? is_empty(words) : !is_empty(words);
    if (has_unknown(words)) return unknown_by(words);
    if (op == "-o") return truth_of(evaluator_.option(words));
    if (op == "-a") return unary("-e", words);
    if (op == "-v") {
      if (!evaluator_.has(words) && has_unknown(evaluator_.value_or_mark(words))) evaluator_.assume(words);
      return truth_of(evaluator_.has(words));
    }
    if (words.empty()) return Truth::no;
    if (op.find_first_of("fdexrsw", 1) != std::string::npos && evaluator_.is_file(words, op[1])) return Truth::yes;
    evaluator_.doubt_outcome(op + " " + words);
    return Truth::unknown;
  }

  /// A variable that nobody gives is taken for unset: whoever asks has an answer ready for that.
  Truth is_empty(const std::string& words) {
    if (!has_unknown(words)) return truth_of(words.empty());
    if (is_unset_name(words)) {
      evaluator_.assume(name_in(words));
      return Truth::yes;
    }
    const bool whole = words[0] == unknown_begin && end_of_mark(words, 0) == words.size();
    return whole ? unknown_by(words) : Truth::no;
  }

  Truth unknown_by(const std::string& words) {
    evaluator_.doubt(words);
    return Truth::unknown;
  }

  /// Which of several values a variable has that nobody gives is not known; unset is likely.
  Truth compared(const Operand& a, const std::string& op, const Operand& b) {
    const bool equality = op == "=" || op == "==" || op == "!=";
    if (equality && (a.words.empty() || b.words.empty()) && has_unknown(a.words + b.words)) {
      const auto empty = is_empty(a.words.empty() ? b.words : a.words);
      return op == "!=" ? !empty : empty;
    }
    if (!is_unset_name(a.words) && !is_unset_name(b.words)) return compared_values(a, op, b);
    const Operand unset;
    evaluator_.doubt(a.words);
    evaluator_.doubt(b.words);
    return likely(compared_values(is_unset_name(a.words) ? unset : a, op, is_unset_name(b.words) ? unset : b));
  }

  Truth compared_values(const Operand& a, const std::string& op, const Operand& b) {
    if (op[0] == '-' && op.size() == 3) return numbers(a.words, op, b.words);
    if (op == "=~") return matches(a.words, b.pattern);
    if (has_unknown(a.words) || has_unknown(b.words)) {
      if (a.words == b.words && (op[0] == '=' || op[0] == '!')) return truth_of(op[0] == '=');
      return unknown_by(a.words + b.words);
    }
    if (op == "<") return truth_of(a.words < b.words);
    if (op == ">") return truth_of(a.words > b.words);
    const bool ignore_case = evaluator_.option("nocasematch");
    const bool equal = patterns_ ? fits(a.words, b.pattern, ignore_case, evaluator_.spend()) : a.words == b.words;
    return truth_of(equal == (op != "!="));
  }

  Truth matches(const std::string& words, const std::string& expression) {
    if (has_unknown(words) || has_unknown(expression)) {
      evaluator_.set_list("BASH_REMATCH", {unknown("${BASH_REMATCH}")});
      return unknown_by(words + expression);
    }
    try {
      return matched(words, read_expression(expression, evaluator_.option("nocasematch")));
    } catch (const ConfigError& error) {
      evaluator_.stop(error.what());
    }
  }

  /// The match that begins first, and of these the longest one.
  Truth matched(const std::string& words, const Expression& expression) {
    const auto spend = evaluator_.spend();
    std::size_t from = 0, to = std::string::npos;
    for (; from <= words.size() && to == std::string::npos; ++from) {
      const auto ends = match_ends(expression.piece, words, from, spend);
      for (std::size_t end = from; end <= words.size(); ++end)
        if (ends[end]) to = end;
    }
    if (to == std::string::npos) return evaluator_.set_list("BASH_REMATCH", {}), Truth::no;
    --from;
    std::vector<std::string> all = {words.substr(from, to - from)};
    const auto groups = expression.groups == 0 ? std::vector<Group>()
                                               : groups_of(expression.piece, words, from, to, expression.groups, spend);
    for (int i = 1; i <= expression.groups && !groups; ++i)
      all.push_back(unknown("${BASH_REMATCH[" + std::to_string(i) + "]}"));
    for (const auto& group : groups.value_or(std::vector<Group>()))
      all.push_back(group ? words.substr(group->first, group->second - group->first) : "");
    evaluator_.set_list("BASH_REMATCH", all);
    return Truth::yes;
  }

  Truth numbers(const std::string& a, const std::string& op, const std::string& b) {
    if (op == "-nt" || op == "-ot" || op == "-ef") {
      evaluator_.doubt_outcome(a + " " + op + " " + b);
      return Truth::unknown;
    }
    const auto left = number(a), right = number(b);
    const bool known = !has_unknown(a) && !has_unknown(b);
    if (known && !patterns_ && (!left || !right)) return Truth::no;
    if (!left || !right) return unknown_by(a + b);
    if (op == "-eq") return truth_of(*left == *right);
    if (op == "-ne") return truth_of(*left != *right);
    if (op == "-lt") return truth_of(*left < *right);
    if (op == "-le") return truth_of(*left <= *right);
    if (op == "-gt") return truth_of(*left > *right);
    return truth_of(*left >= *right);
  }

  std::optional<long long> number(const std::string& words) {
    if (has_unknown(words)) return std::nullopt;
    if (patterns_) return arithmetic_value(words, evaluator_);
    const auto begin = words.find_first_not_of(" \t\n"), end = words.find_last_not_of(" \t\n");
    const auto digits = begin == std::string::npos ? "" : words.substr(begin, end - begin + 1);
    char* rest = nullptr;
    const auto value = std::strtoll(digits.c_str(), &rest, 10);
    if (digits.empty() || *rest != 0) {
      evaluator_.remark("'" + words + "' is no integer; Bash reports an error, and the test is not met");
      return std::nullopt;
    }
    return value;
  }

  const std::vector<Operand>& operands_;
  const bool patterns_;
  ScriptEvaluator& evaluator_;
  std::size_t i_ = 0;
  int depth_ = 0, skipped_ = 0;
};

}  // namespace

Truth test(const std::vector<Operand>& operands, bool patterns, ScriptEvaluator& evaluator) {
  return Test(operands, patterns, evaluator).value();
}

}  // namespace tessera::shell
