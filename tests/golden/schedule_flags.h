#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "framework/interop/flags/flag_table.h"
#include "framework/recipe/recipe.h"
#include "tests/golden/comparison.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {

/// Throws NotSupported for the first flag of `argv` without a row, or with one that refuses it.
void must_know(const std::vector<std::string>& argv, const flags::FlagTable& map);

/// A run of Megatron-LM by its flags, as far as schedules and batch sizes go.
struct FlaggedRun {
  recipe::Recipe recipe;
  schedule::BatchPlan batches;
  std::unique_ptr<schedule::OptimizerSchedule> schedule;

  /// Reads the flags through mappings/flags/megatron.yaml. Throws NotSupported for a flag that is not known or not
  /// built, and ConfigError for what the recipe refuses.
  FlaggedRun(const std::string& flags, std::int64_t ranks);

  /// Learning rates and weight decays in the next step of the recorded groups: decayed, not decayed, decoupled.
  std::vector<double> learning_rates() const;
  std::vector<double> weight_decays() const;
};

/// Compare the recorded fields of a scheduler with those of `run`; a field that is not known is wrong.
void compare_fields(const Json& recorded, const FlaggedRun& run, Comparison& comparison);

/// Play the recorded rows: before each step its batch and rates, after it the samples are counted.
void compare_rows(const Json& rows, FlaggedRun& run, Comparison& comparison);

/// Relative 1e-12 of the value, or of the largest learning rate where that is close to 0.
void compare_exactly(const std::string& name, double x, const Json& expected, Comparison& comparison);

}  // namespace tessera::golden
