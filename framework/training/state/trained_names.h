#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "framework/nn/parameter.h"
#include "framework/unicode/regex.h"

namespace tessera::training {

/// A regular expression (unicode::Regex) that must match the whole name of a parameter.
class NamePattern {
 public:
  /// Throws ConfigError as Regex does.
  explicit NamePattern(const std::string& pattern);
  bool matches(const std::string& name) const;

 private:
  unicode::Regex whole_;
};

/// Which parameters a run trains, by their full names, as training_config.frozen_parameters and trainable_parameters
/// say. The others are frozen. The same on every rank and parallel layout.
class TrainedNames {
 public:
  /// Whether a fine-tuning method trains a parameter, by its full name.
  using Tuned = std::function<bool(const std::string& name)>;

  /// The rows of a trained parameter, in the unsharded tensor, that keep their values.
  using FrozenRows = std::function<std::vector<nn::ElementRange>(const std::string& name)>;

  /// All parameters are trained.
  TrainedNames() = default;
  /// `frozen`: patterns of frozen parameters. `trainable`: if there are any, only parameters with a name that one of
  /// them matches are trained. A parameter that both lists name is frozen. Throws ConfigError as NamePattern.
  /// With `tuned`, only what it or `trainable` names is trained; of what only it names, without `frozen_rows`. What
  /// `frozen` and `kept` name is stored, saved and read as a trained parameter, with all of its rows frozen: it is in
  /// no other file.
  TrainedNames(const std::vector<std::string>& frozen, const std::vector<std::string>& trainable, Tuned tuned = {},
               FrozenRows frozen_rows = {}, Tuned kept = {});

  /// Whether all parameters are trained, whatever their names.
  bool all() const { return frozen_.empty() && trainable_.empty() && !tuned_; }
  bool trains(const std::string& name) const;
  /// Whether it is trained, and not with all rows frozen.
  bool changes(const std::string& name) const;
  /// Rows of the parameter, in the unsharded tensor, that are frozen although it is trained.
  std::vector<nn::ElementRange> frozen_rows(const std::string& name) const;

 private:
  std::vector<NamePattern> frozen_, trainable_;
  Tuned tuned_;
  FrozenRows frozen_rows_;
  Tuned kept_;
};

/// Sets Parameter::trained and frozen_elements of all `parameters`, and Leaf::trained_elsewhere. `experts`: number of
/// experts of a mixture-of-experts layer of the whole model, some of which other ranks may have.
void freeze(std::span<nn::Parameter* const> parameters, const TrainedNames& names, std::int64_t experts);

/// Those of `parameters` that are trained, or with `trained` false those that are frozen, in the same order.
std::vector<nn::Parameter*> select(std::span<nn::Parameter* const> parameters, bool trained);

/// Number of elements of this rank's part of the parameter that are not frozen.
std::int64_t trained_elements(const nn::Parameter& parameter);

}  // namespace tessera::training
