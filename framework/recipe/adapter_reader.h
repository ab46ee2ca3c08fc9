#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/options/mappings.h"
#include "framework/options/value.h"

namespace tessera::recipe {

struct Recipe;

/// What the folder of an adapter says beside its tensors.
struct AdapterDescription {
  options::Value lora_config;           ///< the recipe group, without use_lora; at least lora_rank and lora_alpha
  std::vector<std::string> sets = {};   ///< options of the base that it needs, "group.key=value"
  std::string base;                     ///< name or path of the model that it was trained on; empty: not given
  options::Value group() const;         ///< the recipe group lora_config with use_lora
  std::vector<std::string> notes = {};  ///< what was ignored, for people
};

/// An adapter that another program saved, for a model of ours.
struct OpenedAdapter {
  AdapterDescription description;
  /// Factors, magnitudes and parameters trained whole, under our names and in our layouts.
  std::unique_ptr<checkpoint::WeightSource> weights;
};

/// Reads folders of adapters of another program. A component above implements it (Registries::adapters).
class AdapterReader {
 public:
  AdapterReader() = default;
  AdapterReader(const AdapterReader&) = delete;
  AdapterReader& operator=(const AdapterReader&) = delete;
  virtual ~AdapterReader() = default;

  /// Whether `folder` has an adapter of this program. Opens no file.
  virtual bool is_adapter(const std::filesystem::path& folder) const = 0;
  /// Reads the description only. Throws ConfigError, IoError.
  virtual AdapterDescription describe(const std::filesystem::path& folder, const options::Mappings& mappings) const = 0;
  /// Opens the adapter for the model of `recipe` with the weights `base`; recipe.lora is not read. Throws ConfigError,
  /// by name, if the adapter does not belong to that base, is damaged or is all zero; IoError.
  virtual OpenedAdapter open(const std::filesystem::path& folder, const Recipe& recipe,
                             const checkpoint::OpenedCheckpoint& base) const = 0;
};

}  // namespace tessera::recipe
