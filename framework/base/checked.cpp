#include "framework/base/checked.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(std::initializer_list<NamedSize> sizes, const char* sign) {
  std::string words;
  for (const auto& [name, value] : sizes) words += text(words.empty() ? "" : sign, name, " ", value);
  throw SizeError(words + " does not fit into 64 bits");
}

}  // namespace

std::int64_t checked_product(std::initializer_list<NamedSize> factors) {
  std::int64_t product = 1;
  for (const auto& factor : factors)
    if (__builtin_mul_overflow(product, factor.value, &product)) refuse(factors, " x ");
  return product;
}

std::int64_t checked_sum(std::initializer_list<NamedSize> terms) {
  std::int64_t sum = 0;
  for (const auto& term : terms)
    if (__builtin_add_overflow(sum, term.value, &sum)) refuse(terms, " + ");
  return sum;
}

}  // namespace tessera
