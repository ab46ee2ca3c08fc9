#include "framework/options/same.h"

#include <algorithm>

#include "framework/options/option_type.h"

namespace tessera::options {

bool same(const Value& a, const Value& b) {
  double x = 0, y = 0;
  if (OptionType<double>::read(a, x) && OptionType<double>::read(b, y)) return x == y;
  bool p = false, q = false;
  if (OptionType<bool>::read(a, p) && OptionType<bool>::read(b, q)) return p == q;
  const auto same_in_b = [&](const Value::Field& field) {
    const auto* other = b.find(field.name);
    return other != nullptr && same(field.value, *other);
  };
  return a.kind == b.kind && a.scalar == b.scalar &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same) &&
         a.fields.size() == b.fields.size() && std::all_of(a.fields.begin(), a.fields.end(), same_in_b);
}

}  // namespace tessera::options
