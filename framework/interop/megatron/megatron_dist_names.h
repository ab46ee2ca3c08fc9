#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/options/value.h"

// The keys of Megatron-LM's --ckpt-format torch_dist.

namespace tessera::megatron {

/// The tensor of a distributed checkpoint that has a weight. Layers that are alike are one tensor with an axis of
/// layers, and so are the experts of a layer: the weight is the slice at `index` of the leading axes, whose extents are
/// `axes`.
struct DistKey {
  std::string key;  ///< "decoder.layers.mlp.linear_fc1.weight"
  std::vector<std::int64_t> axes, index;
};

/// Keys of the weights of one model.
class DistKeys {
 public:
  /// `arguments`: Megatron-LM's, of the model. `table`: mappings/weights/megatron.yaml, which must outlive this object.
  DistKeys(const Json& arguments, const options::Value& table);
  /// The tensor that has our weight `name`.
  DistKey of(const std::string& name) const;
  /// The key of the object that Megatron-LM stores beside the weight `name` of a linear layer ("_extra_state", scales
  /// of 8-bit arithmetic); empty if it stores none.
  std::string extra_state(const std::string& name) const;
  /// Whether the rows of the weight are those of a gate, then as many of the linear unit that it multiplies. They are
  /// chunks of their own.
  bool is_gated(const std::string& name) const;

 private:
  const options::Value* table_;
  std::int64_t layers_, experts_;
  bool numbered_;  ///< layers differ: each has tensors of its own, with its number in the key
  bool latent_, gated_;
};

}  // namespace tessera::megatron
