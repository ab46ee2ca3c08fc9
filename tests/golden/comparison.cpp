#include "tests/golden/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iomanip>
#include <limits>
#include <sstream>

#include "framework/base/error.h"

namespace tessera::golden {

constexpr int most_told = 4;

double largest(std::span<const double> x) {
  double most = 0;
  for (const auto value : x) most = std::max(most, std::abs(value));
  return most;
}

void Comparison::compare(const std::string& name, std::span<const double> x, std::span<const double> expected,
                         double tolerance) {
  if (x.size() != expected.size())
    return wrong(text(name, " has ", x.size(), " elements; ", expected.size(), " are recorded"));
  ++compared_;
  std::size_t at = 0;
  double deviation = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    auto here = std::abs(x[i] - expected[i]);
    if (!(here >= 0)) here = std::numeric_limits<double>::infinity();  // NaN
    if (here > deviation) deviation = here, at = i;
  }
  const double share = deviation == 0 ? 0 : deviation / tolerance;
  if (share > worst_share_) worst_share_ = share, worst_ = name;
  if (deviation > tolerance)
    wrong(text(name, " deviates by ", deviation, " at element ", at, " of ", x.size(), " (", x[at], " for ",
               expected[at], "); ", tolerance, " is allowed"));
}

void Comparison::wrong(const std::string& difference) {
  if (++wrongs_ <= most_told) differences_ += (differences_.empty() ? "" : "; ") + difference;
}

std::string Comparison::summary() const {
  if (wrongs_ > most_told) return text(differences_, "; and ", wrongs_ - most_told, " more");
  if (wrongs_ > 0) return differences_;
  std::ostringstream out;
  out << "worst " << worst_ << " at " << std::setprecision(2) << worst_share_ << " of its tolerance";
  for (const auto& what : not_compared_) out << (what == *not_compared_.begin() ? "; not compared: " : ", ") << what;
  return out.str();
}

}  // namespace tessera::golden
