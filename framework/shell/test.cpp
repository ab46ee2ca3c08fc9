#include <algorithm>
#include <cctype>

#include "framework/shell/evaluator.h"

// [ ... ], test ... and [[ ... ]]

namespace tessera::shell {

Truth operator!(Truth truth) {
  if (truth == Truth::unknown) return truth;
  return truth == Truth::yes ? Truth::no : Truth::yes;
}

Truth both(Truth a, Truth b) {
  if (a == Truth::no || b == Truth::no) return Truth::no;
  return a == Truth::yes ? b : a;
}

Truth either(Truth a, Truth b) { return !both(!a, !b); }

namespace {

constexpr int deepest = 50;

Truth truth_of(bool holds) { return holds ? Truth::yes : Truth::no; }

/// A value that is all one name which nobody sets: ${NAME}.
bool is_unset_name(const std::string& words) {
  return words.size() > 4 && words[0] == unknown_begin && words.compare(1, 2, "${") == 0 &&
         words.find('}') == words.size() - 2 && std::isdigit(static_cast<unsigned char>(words[3])) == 0;
}

class Test {
 public:
  Test(const std::vector<Operand>& operands, bool patterns, Evaluator& evaluator)
      : operands_(operands), patterns_(patterns), evaluator_(evaluator) {}

  Truth value() {
    if (operands_.empty()) return Truth::no;
    const auto out = alternatives();
    return i_ == operands_.size() ? out : Truth::unknown;
  }

 private:
  bool is_op(std::size_t at, std::initializer_list<std::string_view> ops) const {
    if (at >= operands_.size() || operands_[at].quoted) return false;
    return std::find(ops.begin(), ops.end(), operands_[at].words) != ops.end();
  }
  bool is_binary(std::size_t at) const {
    return is_op(at, {"=", "==", "!=", "=~", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"});
  }
  bool is_unary(std::size_t at) const {
    return is_op(at, {"-z", "-n", "-f", "-d", "-e", "-x", "-r", "-w", "-s", "-L", "-h", "-v", "-t", "-b", "-c", "-p"});
  }

  Truth alternatives() {
    auto out = parts();
    while (is_op(i_, {"||", "-o"})) {
      ++i_;
      out = either(out, parts());
    }
    return out;
  }

  Truth parts() {
    auto out = one();
    while (is_op(i_, {"&&", "-a"})) {
      ++i_;
      out = both(out, one());
    }
    return out;
  }

  Truth one() {
    if (++depth_ > deepest || i_ >= operands_.size()) return Truth::unknown;
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
      out = compared(operands_[i_ - 3], operands_[i_ - 2].words, operands_[i_ - 1]);
    } else if (is_unary(i_) && i_ + 1 < operands_.size()) {
      i_ += 2;
      out = unary(operands_[i_ - 2].words, operands_[i_ - 1].words);
    } else {
      out = unary("-n", operands_[i_++].words);
    }
    --depth_;
    return out;
  }

  Truth unary(const std::string& op, const std::string& words) {
    if (op == "-z" || op == "-n") {
      Truth empty = truth_of(words.empty());
      if (has_unknown(words)) {
        const bool whole = words[0] == unknown_begin && end_of_mark(words, 0) == words.size();
        empty = is_unset_name(words) ? Truth::yes : whole ? Truth::unknown : Truth::no;
        if (is_unset_name(words)) evaluator_.assume();
      }
      return op == "-z" ? empty : !empty;
    }
    if (has_unknown(words)) return Truth::unknown;
    if (op == "-v") return evaluator_.has(words) ? Truth::yes : Truth::no;
    if (words.empty()) return Truth::no;
    return op.find_first_of("fdexrsw", 1) != std::string::npos && evaluator_.is_file(words, op[1]) ? Truth::yes
                                                                                                   : Truth::unknown;
  }

  Truth compared(Operand a, const std::string& op, Operand b) {
    for (auto* one : {&a, &b})
      if (is_unset_name(one->words)) {
        one->words = one->pattern = "";
        evaluator_.assume();
      }
    if (op[0] == '-' && op.size() == 3) return numbers(a.words, op, b.words);
    if (op == "=~") return Truth::unknown;
    if (has_unknown(a.words) || has_unknown(b.words)) {
      if (a.words == b.words && (op[0] == '=' || op[0] == '!')) return truth_of(op[0] == '=');
      return Truth::unknown;
    }
    if (op == "<") return truth_of(a.words < b.words);
    if (op == ">") return truth_of(a.words > b.words);
    const bool equal = patterns_ ? fits(a.words, b.pattern) : a.words == b.words;
    return truth_of(equal == (op != "!="));
  }

  Truth numbers(const std::string& a, const std::string& op, const std::string& b) {
    if (op == "-nt" || op == "-ot" || op == "-ef") return Truth::unknown;
    const auto left = number(a), right = number(b);
    if (!left || !right) return Truth::unknown;
    if (op == "-eq") return truth_of(*left == *right);
    if (op == "-ne") return truth_of(*left != *right);
    if (op == "-lt") return truth_of(*left < *right);
    if (op == "-le") return truth_of(*left <= *right);
    if (op == "-gt") return truth_of(*left > *right);
    return truth_of(*left >= *right);
  }

  std::optional<long long> number(const std::string& words) {
    if (has_unknown(words)) return std::nullopt;
    return arithmetic_value(words, evaluator_);
  }

  const std::vector<Operand>& operands_;
  const bool patterns_;
  Evaluator& evaluator_;
  std::size_t i_ = 0;
  int depth_ = 0;
};

}  // namespace

Truth test(const std::vector<Operand>& operands, bool patterns, Evaluator& evaluator) {
  return Test(operands, patterns, evaluator).value();
}

}  // namespace tessera::shell
