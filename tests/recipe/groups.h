#pragma once

#include <string>
#include <vector>

namespace tessera::recipe {

using Lines = std::vector<std::string>;

/// Groups of a recipe as they begin the key of a --set.
inline const std::string t = "training_config.", m = "model_config.", o = "optimizer_config.", d = "dataset_config.",
                         p = "parallel_config.", e = "moe_config.", v = "vision_config.";

inline Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace tessera::recipe
