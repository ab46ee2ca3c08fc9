#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>

#include "framework/interop/shell/parser.h"
#include "framework/interop/shell/script_evaluator.h"

// $(( )): 64-bit integers, with the operators of C. A name is replaced by its value.

namespace tessera::shell {
namespace {

constexpr int deepest_arithmetic = 60;

/// A number, or nothing because something is not known.
using Number = std::optional<long long>;

/// Thrown for what is not an expression, or divides by zero.
struct NotComputable {};

using Bits = unsigned long long;
long long wrapped(Bits bits) { return static_cast<long long>(bits); }
Bits bits_of(long long number) { return static_cast<Bits>(number); }

long long power_of(long long a, long long b) {
  Bits out = 1, square = bits_of(a);
  for (; b > 0; b >>= 1, square *= square)
    if ((b & 1) != 0) out *= square;
  return wrapped(out);
}

/// The smallest number divided by -1 overflows: undefined in C++, and a trap on x86. Bash wraps around.
long long divided(long long a, long long b, bool rest) {
  if (b == 0) throw NotComputable{};
  if (b == -1) return rest ? 0 : wrapped(0ULL - bits_of(a));
  return rest ? a % b : a / b;
}

/// One binary operation. The count of a shift is taken modulo 64, as in Bash on x86.
long long applied(std::string_view op, long long a, long long b) {
  if (op == "+") return wrapped(bits_of(a) + bits_of(b));
  if (op == "-") return wrapped(bits_of(a) - bits_of(b));
  if (op == "*") return wrapped(bits_of(a) * bits_of(b));
  if (op == "/" || op == "%") return divided(a, b, op == "%");
  if (op == "<<") return wrapped(bits_of(a) << (bits_of(b) & 63U));
  if (op == ">>") return a >> (bits_of(b) & 63U);
  if (op == "&") return a & b;
  if (op == "^") return a ^ b;
  if (op == "|") return a | b;
  if (op == "==") return a == b ? 1 : 0;
  if (op == "!=") return a != b ? 1 : 0;
  if (op == "<=") return a <= b ? 1 : 0;
  if (op == ">=") return a >= b ? 1 : 0;
  if (op == "<") return a < b ? 1 : 0;
  return a > b ? 1 : 0;
}

/// The operators of each level, the weakest first. An operator is not the beginning of a longer one.
using Level = std::array<std::string_view, 4>;
constexpr std::array<Level, 8> levels = {
    Level{"|"},        Level{"^"},      Level{"&"},          Level{"==", "!="}, Level{"<=", ">=", "<", ">"},
    Level{"<<", ">>"}, Level{"+", "-"}, Level{"*", "/", "%"}};

class Arithmetic {
 public:
  Arithmetic(const std::string& words, ScriptEvaluator& evaluator, int depth)
      : words_(words), evaluator_(evaluator), depth_(depth) {}

  Number value() {
    skip_blanks();
    if (i_ == words_.size()) return 0;
    auto out = comma();
    skip_blanks();
    if (i_ < words_.size()) fail();
    return out;
  }

 private:
  [[noreturn]] static void fail() { throw NotComputable{}; }
  void skip_blanks() {
    while (i_ < words_.size() && (is_blank(words_[i_]) || words_[i_] == '\n')) ++i_;
  }
  char ahead(std::size_t k = 0) const { return i_ + k < words_.size() ? words_[i_ + k] : '\0'; }
  bool take(std::string_view op) {
    skip_blanks();
    if (op.empty() || words_.compare(i_, op.size(), op) != 0) return false;
    i_ += op.size();
    return true;
  }
  /// A binary operator that is not part of a longer one: && += <<= **
  bool take_binary(std::string_view op) {
    skip_blanks();
    if (op.empty() || words_.compare(i_, op.size(), op) != 0) return false;
    const char next = ahead(op.size());
    const bool longer = next == '=' || (op.size() == 1 && next == op[0] && op != "-" && op != "+");
    if (longer && op != "==" && op != "!=" && op != "<=" && op != ">=") return false;
    i_ += op.size();
    return true;
  }

  Number comma() {
    auto out = choice();
    while (take(",")) out = choice();
    return out;
  }

  /// Evaluates without effects where `skipped`.
  template <class Evaluate>
  Number unless(bool skipped, Evaluate evaluate) {
    skipped_ += skipped ? 1 : 0;
    const auto out = evaluate();
    skipped_ -= skipped ? 1 : 0;
    return out;
  }

  /// NAME = value, NAME += value. Nothing: no assignment is ahead.
  std::optional<Number> assignment() {
    skip_blanks();
    const auto begin = i_;
    if (!is_name_start(ahead())) return std::nullopt;
    const auto name = target();
    skip_blanks();
    if (ahead() == '=' && ahead(1) != '=') {
      ++i_;
      return store(name, choice());
    }
    for (const std::string_view op : {"<<", ">>", "+", "-", "*", "/", "%", "&", "^", "|"}) {
      if (words_.compare(i_, op.size(), op) != 0 || ahead(op.size()) != '=') continue;
      i_ += op.size() + 1;
      const auto by = choice();
      return stored(name, [&, op](const Number& old) { return apply(op, old, by); });
    }
    i_ = begin;
    return std::nullopt;
  }

  Number choice() {
    if (++depth_ > deepest_arithmetic) fail();
    const auto assigned = assignment();
    --depth_;
    if (assigned) return *assigned;
    const auto condition = either_of();
    if (!take("?")) return condition;
    if (++depth_ > deepest_arithmetic) fail();
    const auto yes = unless(condition && *condition == 0, [this] { return comma(); });
    if (!take(":")) fail();
    const auto no = unless(condition && *condition != 0, [this] { return choice(); });
    --depth_;
    if (!condition) return std::nullopt;
    return *condition != 0 ? yes : no;
  }

  // An unknown operand does not matter if the known one decides: `$UNKNOWN || 1` is 1.
  Number either_of() {
    auto out = both_of();
    while (take("||")) {
      const auto next = unless(out && *out != 0, [this] { return both_of(); });
      if ((out && *out != 0) || (next && *next != 0))
        out = 1;
      else
        out = out && next ? Number(0) : std::nullopt;
    }
    return out;
  }

  Number both_of() {
    auto out = binary(0);
    while (take("&&")) {
      const auto next = unless(out && *out == 0, [this] { return binary(0); });
      if ((out && *out == 0) || (next && *next == 0))
        out = 0;
      else
        out = out && next ? Number(1) : std::nullopt;
    }
    return out;
  }

  Number apply(std::string_view op, const Number& a, const Number& b) const {
    if (skipped_ > 0) return 0;
    if (b && *b == 0 && (op == "/" || op == "%")) fail();
    return a && b ? Number(applied(op, *a, *b)) : std::nullopt;
  }

  Number binary(std::size_t level) {
    if (level == levels.size()) return power();
    auto out = binary(level + 1);
    for (bool more = true; more;) {
      more = false;
      for (const auto op : levels.at(level)) {
        if (!take_binary(op)) continue;
        out = apply(op, out, binary(level + 1));
        more = true;
        break;
      }
    }
    return out;
  }

  Number power() {
    const auto base = unary();
    if (!take("**")) return base;
    if (++depth_ > deepest_arithmetic) fail();
    const auto exponent = power();
    --depth_;
    if (skipped_ > 0) return 0;
    if (exponent && *exponent < 0) fail();
    return base && exponent ? Number(power_of(*base, *exponent)) : std::nullopt;
  }

  Number unary() {
    if (++depth_ > deepest_arithmetic) fail();
    const auto out = unary_inside();
    --depth_;
    return out;
  }

  Number unary_inside() {
    skip_blanks();
    if ((ahead() == '+' && ahead(1) == '+') || (ahead() == '-' && ahead(1) == '-')) {
      const auto begin = i_;
      const auto* const op = ahead() == '+' ? "+" : "-";
      i_ += 2;
      skip_blanks();
      if (is_name_start(ahead())) return stored(target(), [this, op](const Number& old) { return apply(op, old, 1); });
      i_ = begin;  // --5 is -(-5)
    }
    if (take("!")) return mapped(unary(), [](long long a) -> long long { return a == 0 ? 1 : 0; });
    if (take("~")) return mapped(unary(), [](long long a) { return ~a; });
    if (take("-")) return mapped(unary(), [](long long a) { return wrapped(0ULL - bits_of(a)); });
    if (take("+")) return unary();
    return primary();
  }

  template <class Map>
  static Number mapped(const Number& value, Map map) {
    return value ? Number(map(*value)) : std::nullopt;
  }

  Number primary() {
    skip_blanks();
    if (i_ >= words_.size()) fail();
    if (take("(")) {
      auto out = comma();
      if (!take(")")) fail();
      return out;
    }
    if (ahead() == unknown_begin) {
      i_ = end_of_mark(words_, i_);
      while (is_name_char(ahead()) || ahead() == unknown_begin)
        i_ = ahead() == unknown_begin ? end_of_mark(words_, i_) : i_ + 1;
      return std::nullopt;
    }
    if (std::isdigit(static_cast<unsigned char>(ahead())) != 0) return literal();
    if (!is_name_start(ahead())) fail();
    return variable(target());
  }

  Number literal() {
    const auto begin = i_;
    while (is_name_char(ahead()) || ahead() == '#' || ahead() == '@') ++i_;
    auto word = words_.substr(begin, i_ - begin);
    if (ahead() == unknown_begin) {
      i_ = end_of_mark(words_, i_);
      return std::nullopt;
    }
    if (const auto hash = word.find('#'); hash != std::string::npos)
      return in_base(std::atoi(word.c_str()), word.substr(hash + 1));
    if (word.find('_') != std::string::npos && word[0] != '0') {
      evaluator_.remark("'" + word + "' is read as a number; Bash knows no _ in numbers");
      std::erase(word, '_');
    }
    if (word.size() > 1 && word[0] == '0')
      return word[1] == 'x' || word[1] == 'X' ? in_base(16, word.substr(2)) : in_base(8, word);
    return in_base(10, word);
  }

  /// Digits: 0-9 a-z A-Z @ _; up to base 36 the case does not matter.
  static Number in_base(int base, const std::string& digits) {
    if (base < 2 || base > 64) fail();
    Bits out = 0;
    for (const char c : digits) {
      int digit = 64;
      if (c >= '0' && c <= '9') digit = c - '0';
      if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
      if (c >= 'A' && c <= 'Z') digit = c - 'A' + (base <= 36 ? 10 : 36);
      if (c == '@' || c == '_') digit = c == '@' ? 62 : 63;
      if (digit >= base) fail();
      out = out * static_cast<Bits>(base) + static_cast<Bits>(digit);
    }
    return wrapped(out);
  }

  /// NAME or NAME[subscript], as it is written.
  std::string target() {
    const auto begin = i_;
    while (is_name_char(ahead())) ++i_;
    if (ahead() != '[') return words_.substr(begin, i_ - begin);
    int open = 0;
    do {
      if (i_ >= words_.size()) fail();
      open += (ahead() == '[') - (ahead() == ']');
      ++i_;
    } while (open > 0);
    return words_.substr(begin, i_ - begin);
  }

  Number named(const std::string& name) {
    if (skipped_ > 0) return 0;
    evaluator_.step();
    const auto value = evaluator_.value_of(name);
    if (!value) {
      const auto mark = evaluator_.value_or_mark(name);
      evaluator_.doubt(mark);
      return mark.empty() ? Number(0) : std::nullopt;
    }
    if (has_unknown(*value)) {
      evaluator_.doubt(*value);
      return std::nullopt;
    }
    if (depth_ + 10 > deepest_arithmetic) fail();
    return Arithmetic(without_places(*value), evaluator_, depth_ + 10).value();
  }

  Number store(const std::string& name, const Number& value) {
    if (skipped_ == 0)
      evaluator_.assign(name, value ? std::to_string(*value) : evaluator_.derived("$((" + name + "))"));
    return value;
  }
  template <class Change>
  Number stored(const std::string& name, Change change) {
    return store(name, change(named(name)));
  }

  Number variable(const std::string& name) {
    skip_blanks();
    if ((ahead() == '+' && ahead(1) == '+') || (ahead() == '-' && ahead(1) == '-')) {
      const auto* const op = ahead() == '+' ? "+" : "-";
      i_ += 2;
      Number before;
      stored(name, [&](const Number& old) {
        before = old;
        return apply(op, old, 1);
      });
      return before;
    }
    return named(name);
  }

  const std::string words_;
  ScriptEvaluator& evaluator_;
  std::size_t i_ = 0;
  int depth_, skipped_ = 0;
};

}  // namespace

std::optional<long long> arithmetic_value(const std::string& expression, ScriptEvaluator& evaluator) {
  evaluator.step(1 + static_cast<long>(expression.size() / 64));
  try {
    const auto out = Arithmetic(without_places(expression), evaluator, 0).value();
    if (!out) evaluator.doubt(expression);
    return out;
  } catch (const NotComputable&) {
    constexpr std::size_t longest = 60;
    evaluator.remark("'" + plain(expression).substr(0, longest) + "' cannot be computed");
    evaluator.doubt_outcome("((" + expression.substr(0, longest) + "))");
    return std::nullopt;
  }
}

std::string arithmetic_words(const std::string& expression, ScriptEvaluator& evaluator) {
  std::string out;
  for (std::size_t i = 0; i < expression.size();) {
    if (expression[i] == unknown_begin) {
      const auto end = end_of_mark(expression, i);
      out += expression.substr(i, end - i);
      i = end;
    } else if (is_name_start(expression[i])) {
      const auto begin = i;
      while (i < expression.size() && is_name_char(expression[i])) ++i;
      out += evaluator.value_or_mark(expression.substr(begin, i - begin));
    } else if (std::isdigit(static_cast<unsigned char>(expression[i])) != 0) {
      while (i < expression.size() && is_name_char(expression[i])) out += expression[i++];
    } else {
      out += expression[i++];
    }
  }
  return out;
}

}  // namespace tessera::shell
