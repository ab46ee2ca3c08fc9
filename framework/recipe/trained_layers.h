#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/options/report.h"
#include "framework/training/options/training_options.h"
#include "framework/training/state/lora_plan.h"

namespace tessera::recipe {

struct Recipe;

/// Which parameters training_config.freeze_trainable_layers, freeze_trainable_modules and freeze_extra_modules name, by
/// the rules of LLaMA-Factory: a parameter is trained if its name there contains ".NUMBER.MODULE" for a chosen layer
/// and module, or the name of an extra module. Its name there is that in the model's own program
/// (training::ModuleAlias::own), ours if it has none. Layers are those of the decoder; the numbers of experts and the
/// layers of other towers and of multi-token prediction are none. The same on every rank and layout.
class TrainedLayers {
 public:
  /// `layers`: number of layers of the decoder.
  TrainedLayers(const training::TrainingOptions& options, std::int64_t layers, training::ModuleAliases aliases);

  /// Whether the parameter with this full name is one of them.
  bool trains(const std::string& parameter) const;
  /// The module in its layer that has the parameter, "self_attn"; empty: it is in no layer of the decoder.
  std::string module_in_layer(const std::string& parameter) const;
  /// The module that has the parameter, if it is outside of all layers, "embed_tokens"; empty: it is in a layer.
  std::string module_outside(const std::string& parameter) const;

 private:
  std::vector<std::string> names_of(const std::string& parameter) const;

  std::int64_t first_ = 0, end_ = 0;  ///< layers [first_, end_)
  std::vector<std::string> modules_;  ///< what follows the number; empty: anything
  std::vector<std::string> extra_;
  training::ModuleAliases aliases_;
};

/// Reports the names of freeze_trainable_modules and freeze_extra_modules that no module of the model has.
/// `parameters`: the names of all of its parameters.
void check_trained_layers(const Recipe& recipe, const std::vector<std::string>& parameters, options::Report& report);

}  // namespace tessera::recipe
