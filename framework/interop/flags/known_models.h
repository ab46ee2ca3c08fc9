#pragma once

#include <string>

#include "framework/options/group.h"

namespace tessera::flags {

/// A recipe of configs/models/ that comes with the program.
struct KnownModel {
  std::string name;  ///< as `base:` takes it: "models/llama2_7b.yaml"; empty: none
  options::Value tree = {};
};

/// The known model that has the dimensions and the parts of the model of `tree`: layers, widths, heads, positions, norm
/// and activation. Of several the one with the fewest other differences. None when there is none.
KnownModel known_model(const options::Value& tree, const options::Facts& facts);

/// Says outright, as its default, what `base` says and `tree` leaves out.
void answer_base(options::Value& tree, const options::Value& base, const options::Facts& facts);

}  // namespace tessera::flags
