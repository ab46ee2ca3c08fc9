#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "framework/optim/optimizer.h"

namespace tessera::optim {

/// An optimizer as a recipe would choose it.
inline std::unique_ptr<Optimizer> made(const std::string& type,
                                       const std::map<std::string, std::string>& options = {}) {
  options::Value recipe;
  const auto set = [&](const std::string& key, const std::string& value) {
    recipe.set("optimizer_config." + key, options::Value::of(value, {"test", 0, "", 1}));
  };
  set("optimizer_type", type);
  for (const auto& [key, value] : options) set(key, value);
  options::Report report;
  options::Group group(recipe, "optimizer_config", report);
  const auto choice = optimizers().read(group);
  EXPECT_TRUE(report.problems().empty());
  return choice.make();
}

inline std::vector<float> normal(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(n);
  for (auto& v : out) v = draw(rng);
  return out;
}

inline StepScalars scalars_of(std::int64_t step, double lr, double clip = 1, double weight_decay = 0.1) {
  StepScalars s;
  s.step = step;
  s.lr = lr;
  s.clip = clip;
  s.weight_decay = weight_decay;
  return s;
}

}  // namespace tessera::optim
