#pragma once

#include <string>

#include "framework/options/group.h"

namespace tessera::flags {

/// A compiled-in recipe of configs/models/.
struct KnownModel {
  std::string name = {};  ///< name for `base:`, "models/llama2_7b.yaml"; empty: none
  options::Value tree = {};
};

/// The known model with the same dimensions and layer types as `tree`: layers, sizes, heads, positions, norm and
/// activation. Of several, the one with the fewest other differences. An empty name if there is none.
KnownModel known_model(const options::Value& tree, const options::Facts& facts);

/// Sets options that `base` sets and `tree` does not to their defaults in `tree`, so that they override `base`.
void answer_base(options::Value& tree, const options::Value& base, const options::Facts& facts);

}  // namespace tessera::flags
