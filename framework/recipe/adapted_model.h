#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/nn/adapter.h"
#include "framework/recipe/recipe.h"
#include "framework/recipe/saved_model.h"

namespace tessera::recipe {

/// What was trained on a base, and the base: adapters and parameters trained whole. Elements are still on disk, except
/// those of an adapter of PEFT.
struct AdaptedModel {
  Recipe recipe;                 ///< of the model with its adapters
  std::filesystem::path folder;  ///< the checkpoint or adapter folder that was opened
  std::shared_ptr<const checkpoint::OpenedCheckpoint> base;
  std::shared_ptr<const checkpoint::WeightSource> trained;  ///< the trained parameters alone, under our names
  std::optional<std::uint64_t> base_digest;  ///< FrozenWeights::digest of the base that it was trained on, if known
  std::string base_name;                     ///< the base as the adapter calls it
  std::vector<std::string> notes;

  /// The weights of `base` without adapters, which a checkpoint with all weights has beside them.
  std::unique_ptr<checkpoint::WeightSource> base_weights() const;
};

/// Whether `folder` has an adapter of another program, for which AdapterReader is registered.
bool is_adapter_folder(const std::filesystem::path& folder, const Registries& registries);

/// Opens `folder`: an adapter folder of PEFT; or a checkpoint or run folder of ours with adapters, or saved without its
/// frozen parameters. `base`: the folder of its base, instead of the one that it names. Throws ConfigError, also if the
/// folder has no trained part of a model, if the base cannot be read, has adapters itself, or has this one merged into
/// it; DamageError.
AdaptedModel open_adapted(const std::filesystem::path& folder, const std::optional<std::filesystem::path>& base,
                          const Registries& registries);

/// Throws ConfigError if `base` says that the adapter is merged into its weights already.
void refuse_merged(const checkpoint::WeightSource& adapter, const checkpoint::OpenedCheckpoint& base);

/// Throws ConfigError that names each tensor which an adapter of the model needs and the trained part lacks, and each
/// that the model does not train. Reads no elements.
void must_fit_trained(const AdaptedModel& adapted);

/// The adapters that the model of `recipe` has, by layer or part of one, "decoder.layers.0.mlp.linear_fc1.up_proj".
std::map<std::string, nn::AdapterForm> adapters_of(const Recipe& recipe);

/// Loads the model with its adapters beside its weights. Throws ConfigError as load_trained does, also if base and
/// trained part do not belong together.
TrainedModel load_adapted(const AdaptedModel& adapted);

}  // namespace tessera::recipe
