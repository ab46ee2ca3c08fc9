#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/interop/hugging_face/weight_table.h"

namespace tessera::hugging_face {

/// A module of Transformers that may have an adapter, and what it is here: a linear layer, or a named part of a fused
/// one.
struct PeftModule {
  std::string name;      ///< "model.layers.0.self_attn.q_proj"
  std::string layer;     ///< "decoder.layers.0.self_attention.linear_qkv"
  std::string part;      ///< "q_proj"; empty: the whole layer
  const WeightRow* row;  ///< of the layer's weight
  std::size_t index;     ///< of the module among row->from

  /// The beginning of the names of our tensors.
  std::string ours() const { return part.empty() ? layer : layer + "." + part; }
};

/// All experts of a layer, which Transformers 5 holds as one module with two parameters.
struct PeftExperts {
  std::string name;   ///< "model.layers.0.mlp.experts"
  std::string layer;  ///< "decoder.layers.0.mlp.experts.local_experts."; then a number and ".linear_fc1"
  std::int64_t count = 0;
};

/// Names of the modules that PEFT gives adapters, for one model. They follow from its table of weights: the module of
/// "model.layers.0.mlp.up_proj.weight" is "model.layers.0.mlp.up_proj". Of two modules that are one fused layer here,
/// each is a part: q_proj, k_proj, v_proj, or gate_proj, up_proj.
class PeftNames {
 public:
  explicit PeftNames(WeightTable table);
  PeftNames(const PeftNames&) = delete;  // modules refer to rows of the table
  PeftNames& operator=(const PeftNames&) = delete;

  const WeightTable& table() const { return table_; }
  /// In the order of the table.
  const std::vector<PeftModule>& modules() const { return modules_; }
  const std::vector<PeftExperts>& experts() const { return experts_; }
  /// Null if there is no such module. The table's optional prefix may be missing from `name`.
  const PeftModule* module(const std::string& name) const;
  const PeftExperts* experts(const std::string& name) const;
  /// The modules of a layer of ours, or of a part of one, "decoder.layers.0.mlp.linear_fc1.up_proj": several if it is a
  /// whole fused layer of theirs apart. Empty if there is no such layer.
  std::vector<const PeftModule*> of_ours(const std::string& ours) const;
  /// The row that has the parameter `name` of theirs, "model.norm.weight", and which of its `from`; null: none.
  const WeightRow* parameter(const std::string& name, std::size_t& index) const;
  /// The row of our parameter `name`; null: none.
  const WeightRow* row(const std::string& name) const;
  /// `name` as the modules of Transformers 5 spell it; names of files may be older.
  std::string spelled(std::string name) const;

 private:
  WeightTable table_;
  std::vector<PeftModule> modules_;
  std::vector<PeftExperts> experts_;
  std::map<std::string, std::size_t> by_name_, experts_by_name_;
  std::map<std::string, std::vector<std::size_t>> by_layer_;
  std::map<std::string, std::pair<const WeightRow*, std::size_t>> parameters_;
  std::map<std::string, const WeightRow*> rows_;
};

}  // namespace tessera::hugging_face
