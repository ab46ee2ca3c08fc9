#include "framework/interop/hugging_face/packed_weights.h"

#include <array>
#include <string_view>

#include "framework/base/error.h"

namespace tessera::hugging_face {
namespace {

/// A storage type: the ending of the tensor that says that a weight has it, and how it is opened.
struct StorageType {
  std::string_view ending;
  PackedWeight (*open)(const checkpoint::SafetensorsReader& files, const std::string& name);
  const char* refused = nullptr;  ///< its name, if it is not supported
};
constexpr std::array<StorageType, 3> storage_types = {
    {{nf4_ending, open_nf4}, {".quant_state.bitsandbytes__fp4", nullptr, "fp4"}, {".SCB", nullptr, "int8"}}};

bool ends_with(const std::string& name, std::string_view ending) {
  return name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

bool is_true(const Json& object, const char* key) {
  const auto value = object.value(key, Json());
  return value.is_boolean() && value.get<bool>();
}

std::string word(const Json& object, const char* key, const char* absent) {
  const auto value = object.value(key, Json(absent));
  return value.is_string() ? value.string() : value.dump();
}

}  // namespace

PackedWeights::PackedWeights(const checkpoint::SafetensorsReader& files) {
  for (const auto& tensor : files.names())
    for (const auto& [ending, open, refused] : storage_types) {
      if (!ends_with(tensor, ending)) continue;
      const auto name = tensor.substr(0, tensor.size() - ending.size());
      if (refused != nullptr)
        throw ConfigError(text("tensor '", tensor, "': weights in ", refused,
                               " are not supported; convert the model to float weights, or to nf4 of bitsandbytes"));
      auto weight = open(files, name);
      for (const auto& part : weight.tensors)
        if (part != name) parts_.insert(part);
      weights_.emplace(name, std::move(weight));
    }
}

const PackedWeight* PackedWeights::find(const std::string& name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}

bool reads_quantization(const Json& quantization_config) {
  return quantization_config.is_object() && word(quantization_config, "quant_method", "") == "bitsandbytes" &&
         is_true(quantization_config, "load_in_4bit") && !is_true(quantization_config, "load_in_8bit") &&
         word(quantization_config, "bnb_4bit_quant_type", "fp4") == "nf4" &&
         word(quantization_config, "bnb_4bit_quant_storage", "uint8") == "uint8";
}

}  // namespace tessera::hugging_face
