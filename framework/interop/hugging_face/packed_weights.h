#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/tensor/stored_matrix.h"

namespace tessera::hugging_face {

/// A weight that a folder has in a storage type, in several tensors.
struct PackedWeight {
  Shape shape;                  ///< [out, in]
  DType type = DType::float32;  ///< of its values
  std::shared_ptr<const PackedArray> array;
  std::vector<std::shared_ptr<const MappedFile>> files;  ///< keep the memory of `array` valid
  std::set<std::string> tensors;                         ///< the tensors that it consists of
};

/// The packed weights of a folder, or of a cache file, by the name of the weight. Each storage type has a tensor beside
/// the weight by whose ending it is recognized, and one source that opens it (nf4_weights.cpp).
class PackedWeights {
 public:
  PackedWeights() = default;
  /// Reads headers, and the small tensors that describe weights. Throws ConfigError, naming the tensor, for a storage
  /// type that is not supported (fp4, int8), and for parts that do not fit together.
  explicit PackedWeights(const checkpoint::SafetensorsReader& files);

  /// Null: there is no packed weight of this name.
  const PackedWeight* find(const std::string& name) const;
  bool empty() const { return weights_.empty(); }
  /// Whether a tensor of the files is a part of a packed weight, other than the one with the weight's name.
  bool has_part(const std::string& tensor) const { return parts_.count(tensor) != 0; }

 private:
  std::map<std::string, PackedWeight> weights_;
  std::set<std::string> parts_;
};

/// A tensor with memory of its own.
struct OwnTensor {
  std::vector<std::byte> bytes;
  DType type;
  Shape shape;
  Tensor view() { return {std::span(bytes), type, shape}; }
};

/// The tensors that a weight in a storage type consists of, by the endings of their names.
using PackedTensors = std::map<std::string, OwnTensor>;

/// Whether `quantization_config` of a config.json says that weights are in a storage type that PackedWeights reads.
bool reads_quantization(const Json& quantization_config);

/// The ending of the tensor that says that a weight is in NF4.
inline constexpr const char* nf4_ending = ".quant_state.bitsandbytes__nf4";
/// The weight `name`, which has a tensor name + nf4_ending, as bitsandbytes and Transformers save it: `name` with the
/// codes, .absmax with the maxima of blocks, .quant_map with the 16 values; with maxima in 8 bits also .nested_absmax
/// and .nested_quant_map.
PackedWeight open_nf4(const checkpoint::SafetensorsReader& files, const std::string& name);
/// The tensors of a weight [out, in] with these finite values, which are numbers of `type`: float32, bfloat16 or
/// float16. `nested`: maxima in 8 bits.
PackedTensors pack_nf4(std::span<const float> values, const Shape& shape, DType type, bool nested);

}  // namespace tessera::hugging_face
