#pragma once

#include <filesystem>
#include <memory>

#include "framework/checkpoint/format.h"
#include "framework/model/lora_options.h"
#include "framework/options/mappings.h"
#include "framework/options/report.h"

namespace tessera::recipe {

struct Recipe;

/// How folders of another program's adapters are read (lora_config.adapter). Registered by a higher component.
class AdapterFormat {
 public:
  AdapterFormat() = default;
  AdapterFormat(const AdapterFormat&) = delete;
  AdapterFormat& operator=(const AdapterFormat&) = delete;
  virtual ~AdapterFormat() = default;

  /// The options that the adapter in `folder` was trained with. Throws ConfigError, IoError.
  virtual model::LoraOptions options(const std::filesystem::path& folder, const options::Mappings& mappings) const = 0;
  /// The adapter in `folder` for the model of `recipe`, which begins with the weights `base`. Throws ConfigError if it
  /// is of another model.
  virtual std::unique_ptr<checkpoint::WeightSource> open(const std::filesystem::path& folder, const Recipe& recipe,
                                                         const checkpoint::OpenedCheckpoint& base) const = 0;
};

/// Reports each way in which the adapter in lora_config.adapter differs from what lora_config says: other layers, ranks
/// or scales, other parameters beside them. How options are written does not count. A folder that is not there is not
/// reported. Constructs the model.
void check_saved_adapter(const Recipe& recipe, options::Report& report);

}  // namespace tessera::recipe
