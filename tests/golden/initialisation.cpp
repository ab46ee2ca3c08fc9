#include "tests/golden/initialisation.h"

#include <algorithm>
#include <cmath>

#include "framework/base/files.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {
namespace {

/// Estimates of both sides are off by as much as chance gives; five standard errors are met in all but one of a
/// million, and there are some hundred tensors.
constexpr double sigmas = 5;

struct Statistics {
  double mean = 0, deviation = 0, least = 0, most = 0;
};

Statistics statistics_of(const std::vector<double>& x) {
  Statistics s;
  const auto n = static_cast<double>(x.size());
  for (const auto value : x) s.mean += value / n;
  for (const auto value : x) s.deviation += (value - s.mean) * (value - s.mean) / n;
  s.deviation = std::sqrt(s.deviation);
  s.least = *std::min_element(x.begin(), x.end());
  s.most = *std::max_element(x.begin(), x.end());
  return s;
}

/// The largest of n normal numbers lies near sqrt(2 ln n) and scatters like a Gumbel variable of scale 1 / that, whose
/// standard deviation is pi / sqrt(6) of it.
double scatter_of_largest(double n) { return 1.2825498 / std::sqrt(2 * std::log(std::max(n, 3.0))); }

void compare_tensor(const std::string& name, const std::vector<double>& values, const Json& recorded,
                    Comparison& comparison) {
  const auto ours = statistics_of(values);
  const auto n = static_cast<double>(values.size());
  const double deviation = recorded.at("std");
  const auto both = std::sqrt(2.0) * sigmas;  // two estimates are compared
  const auto compare = [&](const char* what, double x, const char* key, double tolerance) {
    comparison.compare(text(what, " of ", name), x, recorded.at(key).get<double>(),
                       std::max(tolerance, deviation == 0 ? 0 : 1e-12));
  };
  compare("mean", ours.mean, "mean", both * deviation / std::sqrt(n));
  compare("standard deviation", ours.deviation, "std", both * deviation / std::sqrt(2 * n));
  compare("least", ours.least, "min", both * deviation * scatter_of_largest(n));
  compare("largest", ours.most, "max", both * deviation * scatter_of_largest(n));
}

/// What runs.json tells of this run; null where it tells nothing.
Json statistics_of_run(const std::filesystem::path& run) {
  const auto file = std::filesystem::absolute(run).parent_path() / "runs.json";
  if (!std::filesystem::exists(file)) return {};
  for (const auto& one : Json::parse(read_file(file)))
    if (one.at("name") == run.filename().string()) return one.value("initial_statistics", Json());
  return {};
}

}  // namespace

void compare_initialisation(const std::filesystem::path& run, const Values& ours, Comparison& comparison) {
  const auto statistics = statistics_of_run(run);
  for (const auto& [name, recorded] : statistics.items()) {
    const auto found = ours.find(name);
    if (found == ours.end())
      comparison.wrong(text(name, " is recorded, but the model has none"));
    else
      compare_tensor(name, found->second, recorded, comparison);
  }
}

}  // namespace tessera::golden
