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

long long wrapped(unsigned long long bits) { return static_cast<long long>(bits); }
long long plus(long long a, long long b) {
  return wrapped(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
}

class Arithmetic {
 public:
  Arithmetic(const std::string& words, ScriptEvaluator& evaluator, int depth)
      : words_(words), evaluator_(evaluator), depth_(depth) {}

  Number value() {
    skip();
    if (i_ == words_.size()) return 0;
    auto out = comma();
    skip();
    if (i_ < words_.size()) fail();
    return out;
  }

 private:
  [[noreturn]] void fail() const { throw NotComputable{}; }
  void skip() {
    while (i_ < words_.size() && (is_blank(words_[i_]) || words_[i_] == '\n')) ++i_;
  }
  bool take(std::string_view op, std::string_view not_before = "") {
    skip();
    if (words_.compare(i_, op.size(), op) != 0) return false;
    const auto next = i_ + op.size();
    if (next < words_.size() && not_before.find(words_[next]) != std::string_view::npos) return false;
    i_ = next;
    return true;
  }
  template <class Apply>
  static Number with(const Number& a, const Number& b, Apply apply) {
    if (!a || !b) return std::nullopt;
    return apply(*a, *b);
  }

  Number comma() {
    auto out = choice();
    while (take(",")) out = choice();
    return out;
  }

  Number choice() {
    const auto condition = either_of();
    if (!take("?")) return condition;
    const auto yes = comma();
    if (!take(":")) fail();
    const auto no = choice();
    if (!condition) return std::nullopt;
    return *condition != 0 ? yes : no;
  }

  // An unknown operand does not matter if the known one decides: `1 || $UNKNOWN` is 1.
  Number either_of() {
    auto out = both_of();
    while (take("||")) {
      const auto next = both_of();
      if ((out && *out != 0) || (next && *next != 0))
        out = 1;
      else
        out = with(out, next, [](long long, long long) { return 0LL; });
    }
    return out;
  }

  Number both_of() {
    auto out = bits();
    while (take("&&")) {
      const auto next = bits();
      if ((out && *out == 0) || (next && *next == 0))
        out = 0;
      else
        out = with(out, next, [](long long, long long) { return 1LL; });
    }
    return out;
  }

  Number bits() {
    auto out = exclusive_bits();
    while (take("|", "|=")) out = with(out, exclusive_bits(), [](long long a, long long b) { return a | b; });
    return out;
  }

  Number exclusive_bits() {
    auto out = common_bits();
    while (take("^", "=")) out = with(out, common_bits(), [](long long a, long long b) { return a ^ b; });
    return out;
  }

  Number common_bits() {
    auto out = equal();
    while (take("&", "&=")) out = with(out, equal(), [](long long a, long long b) { return a & b; });
    return out;
  }

  Number equal() {
    auto out = compared();
    for (;;) {
      if (take("=="))
        out = with(out, compared(), [](long long a, long long b) -> long long { return a == b; });
      else if (take("!="))
        out = with(out, compared(), [](long long a, long long b) -> long long { return a != b; });
      else
        return out;
    }
  }

  Number compared() {
    auto out = shifted();
    for (;;) {
      if (take("<="))
        out = with(out, shifted(), [](long long a, long long b) -> long long { return a <= b; });
      else if (take(">="))
        out = with(out, shifted(), [](long long a, long long b) -> long long { return a >= b; });
      else if (take("<", "<"))
        out = with(out, shifted(), [](long long a, long long b) -> long long { return a < b; });
      else if (take(">", ">"))
        out = with(out, shifted(), [](long long a, long long b) -> long long { return a > b; });
      else
        return out;
    }
  }

  // The count is taken modulo 64, as in Bash on x86; larger ones are undefined in C++.
  Number shifted() {
    auto out = sum();
    for (;;) {
      if (take("<<", "="))
        out = with(out, sum(), [](long long a, long long b) {
          return wrapped(static_cast<unsigned long long>(a) << (static_cast<unsigned long long>(b) & 63U));
        });
      else if (take(">>", "="))
        out =
            with(out, sum(), [](long long a, long long b) { return a >> (static_cast<unsigned long long>(b) & 63U); });
      else
        return out;
    }
  }

  Number sum() {
    auto out = product();
    for (;;) {
      if (take("+", "+="))
        out = with(out, product(), [](long long a, long long b) {
          return wrapped(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
        });
      else if (take("-", "-="))
        out = with(out, product(), [](long long a, long long b) {
          return wrapped(static_cast<unsigned long long>(a) - static_cast<unsigned long long>(b));
        });
      else
        return out;
    }
  }

  Number divided(const Number& a, const Number& b, bool rest) {
    if (!b) return std::nullopt;
    if (*b == 0) fail();
    if (!a) return std::nullopt;
    // The smallest number divided by -1 overflows: undefined in C++, and a trap on x86. Bash wraps around.
    if (*b == -1) return rest ? 0 : wrapped(0ULL - static_cast<unsigned long long>(*a));
    return rest ? *a % *b : *a / *b;
  }

  Number product() {
    auto out = power();
    for (;;) {
      if (take("*", "*="))
        out = with(out, power(), [](long long a, long long b) {
          return wrapped(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
        });
      else if (take("/", "="))
        out = divided(out, power(), false);
      else if (take("%", "="))
        out = divided(out, power(), true);
      else
        return out;
    }
  }

  Number power() {
    const auto base = unary();
    if (!take("**", "=")) return base;
    if (++depth_ > deepest_arithmetic) fail();
    const auto exponent = power();
    return with(base, exponent, [](long long a, long long b) {
      unsigned long long out = 1, square = static_cast<unsigned long long>(a);
      for (; b > 0; b >>= 1, square *= square)
        if ((b & 1) != 0) out *= square;
      return wrapped(out);
    });
  }

  Number unary() {
    if (++depth_ > deepest_arithmetic) fail();
    Number out;
    if (take("++") || take("--")) {
      const bool up = words_[i_ - 1] == '+';
      const auto name = name_here();
      out = with(named(name), up ? 1 : -1, plus);
      store(name, out);
    } else if (take("!", "=")) {
      out = with(unary(), 0, [](long long a, long long) -> long long { return a == 0; });
    } else if (take("~")) {
      out = with(unary(), 0, [](long long a, long long) { return ~a; });
    } else if (take("-")) {
      out = with(unary(), 0, [](long long a, long long) { return wrapped(0ULL - static_cast<unsigned long long>(a)); });
    } else if (take("+")) {
      out = unary();
    } else {
      out = primary();
    }
    --depth_;
    return out;
  }

  std::string name_here() {
    skip();
    const auto begin = i_;
    while (i_ < words_.size() && is_name_char(words_[i_])) ++i_;
    if (i_ == begin) fail();
    return words_.substr(begin, i_ - begin);
  }

  Number primary() {
    skip();
    if (i_ >= words_.size()) fail();
    if (take("(")) {
      auto out = comma();
      if (!take(")")) fail();
      return out;
    }
    if (words_[i_] == unknown_begin) {
      i_ = end_of_mark(words_, i_);
      while (i_ < words_.size() && (is_name_char(words_[i_]) || words_[i_] == unknown_begin))
        i_ = words_[i_] == unknown_begin ? end_of_mark(words_, i_) : i_ + 1;
      return std::nullopt;
    }
    if (std::isdigit(static_cast<unsigned char>(words_[i_])) != 0) return literal();
    if (!is_name_start(words_[i_])) fail();
    return name();
  }

  Number literal() {
    const auto word = name_here();
    if (i_ < words_.size() && words_[i_] == '#') {  // base#digits
      const int base = std::atoi(word.c_str());
      ++i_;
      if (base < 2 || base > 36) fail();
      return number(name_here(), base);
    }
    if (i_ < words_.size() && words_[i_] == unknown_begin) {
      i_ = end_of_mark(words_, i_);
      return std::nullopt;
    }
    if (word.size() > 1 && word[0] == '0') return number(word, word[1] == 'x' || word[1] == 'X' ? 16 : 8);
    return number(word, 10);
  }

  Number number(std::string word, int base) {
    if (base == 10 && word.find('_') != std::string::npos) {
      evaluator_.remark("'" + word + "' is read as a number; Bash knows no _ in numbers");
      std::erase(word, '_');
    }
    char* end = nullptr;
    const auto out = std::strtoull(word.c_str(), &end, base);
    if (*end != 0) fail();
    return wrapped(out);
  }

  Number named(const std::string& name) {
    evaluator_.step();
    const auto value = evaluator_.value_of(name);
    if (!value) {
      evaluator_.doubt(evaluator_.value_or_mark(name));
      return evaluator_.value_or_mark(name).empty() ? Number(0) : std::nullopt;
    }
    if (has_unknown(*value)) {
      evaluator_.doubt(*value);
      return std::nullopt;
    }
    if (depth_ + 10 > deepest_arithmetic) fail();
    return Arithmetic(without_places(*value), evaluator_, depth_ + 10).value();
  }

  void store(const std::string& name, const Number& value) {
    evaluator_.assign(name, value ? std::to_string(*value) : evaluator_.derived("$((" + name + "))"));
  }

  Number name() {
    const auto name = name_here();
    if (take("++")) {
      const auto out = named(name);
      store(name, with(out, 1, plus));
      return out;
    }
    if (take("--")) {
      const auto out = named(name);
      store(name, with(out, -1, plus));
      return out;
    }
    if (take("=", "=")) {
      const auto out = choice();
      store(name, out);
      return out;
    }
    for (const char* op : {"+=", "-=", "*=", "/=", "%="}) {
      if (!take(op)) continue;
      const auto by = choice();
      const auto before = named(name);
      Number out;
      switch (op[0]) {
        case '+':
          out = with(before, by, [](long long a, long long b) {
            return wrapped(static_cast<unsigned long long>(a) + static_cast<unsigned long long>(b));
          });
          break;
        case '-':
          out = with(before, by, [](long long a, long long b) {
            return wrapped(static_cast<unsigned long long>(a) - static_cast<unsigned long long>(b));
          });
          break;
        case '*':
          out = with(before, by, [](long long a, long long b) {
            return wrapped(static_cast<unsigned long long>(a) * static_cast<unsigned long long>(b));
          });
          break;
        default:
          out = divided(before, by, op[0] == '%');
      }
      store(name, out);
      return out;
    }
    return named(name);
  }

  const std::string words_;
  ScriptEvaluator& evaluator_;
  std::size_t i_ = 0;
  int depth_;
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
