#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "framework/checkpoint/weight_source.h"
#include "framework/interop/hugging_face/peft_config.h"
#include "framework/interop/hugging_face/peft_names.h"

namespace tessera::hugging_face {

/// How an adapter is written for PEFT.
struct PeftExport {
  /// The recipe group that the adapter was trained with. If it does not name exactly the adapted modules in
  /// Transformers' words, their full names are written, and ranks and alphas by them.
  options::Value lora_config;
  /// Alpha of an adapter of ours by its layer, "decoder.layers.0.mlp.linear_fc1.up_proj". Empty: lora_config says it in
  /// Transformers' words.
  std::function<std::int64_t(const std::string& ours)> alpha = {};
  PeftLabels labels = {};  ///< fan_in_fan_out and ensure_weight_tying follow from the tensors
};

/// Writes the adapter `trained`, factors and parameters trained whole under our names, as a folder that PEFT loads:
/// adapter_config.json and adapter_model.safetensors, with the types in the source. One adapter of a layer that is
/// several modules in Transformers becomes one for each, with equal A. Adapters of all experts of a layer become those
/// of the fused experts of Transformers 5, or, if gate and up have their own, those of single experts.
///
/// The folder gets its name only when it is complete. Throws ConfigError if it exists and is not empty, for a tensor
/// that belongs to no module of the table, for values that are not finite; IoError.
void write_peft(const std::filesystem::path& folder, const PeftNames& names, const checkpoint::WeightSource& trained,
                const PeftExport& how, const options::Mappings& mappings);

}  // namespace tessera::hugging_face
