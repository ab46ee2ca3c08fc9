#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/interop/torch/dcp_folder.h"
#include "framework/options/value.h"
#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

// What the tensors of Megatron-LM's distributed checkpoints are, under our names. megatron_dist_names.h has the other
// direction.

namespace tessera::megatron {

/// A tensor of a distributed checkpoint, as its key tells it.
class DistName {
 public:
  /// `table`: mappings/weights/megatron.yaml, which must outlive this object.
  DistName(const std::string& key, const options::Value& table);

  /// Whether it is a weight, or optimizer state that is stored by weight.
  bool is_weight() const { return !name_.empty(); }
  /// "" for a weight, "fp32_param" or "param" for a master weight, "exp_avg", ... for optimizer state.
  const std::string& slot() const { return slot_; }
  bool is_master() const { return slot_ == "fp32_param" || slot_ == "param"; }
  /// Number of leading axes whose indices are the number of a layer, or of an expert: they are no dims of the weight.
  std::size_t axes() const { return (layers_ ? 1U : 0U) + (experts_ ? 1U : 0U); }
  bool has_layers() const { return layers_; }    ///< the first axis is that of the layers
  bool has_experts() const { return experts_; }  ///< the last of these axes is that of the experts
  /// Where in the weight the tensor lies along its first dim, in extents of the tensor, and how many of these the
  /// weight has: gate and up of linear_fc1 can have keys of their own, "..._w" and "..._v".
  std::int64_t half() const { return half_; }
  std::int64_t halves() const { return halves_; }
  /// Our name of the weight at these indices of the leading axes; empty if it is none.
  std::string ours(std::span<const std::int64_t> index) const;
  /// Our name of what is stored at these indices: of the weight, or "optimizer.<state>.<weight>".
  std::string stored(std::span<const std::int64_t> index) const;

 private:
  const options::Value* table_;
  std::string slot_, name_;
  bool layers_ = false, experts_ = false;
  std::int64_t half_ = 0, halves_ = 1;
};

/// Calls `visit(box, first)` for boxes that together have the elements [begin, end) of `block`, counted in row-major
/// order: those of each box lie one after the other, from element `first` of the range on.
void each_box_of_range(const Box& block, std::int64_t begin, std::int64_t end,
                       const std::function<void(const Box&, std::int64_t)>& visit);

/// What has elements: a chunk, or a tensor in an object.
struct DistItem {
  const torch::DcpTensor* tensor = nullptr;
  const torch::DcpChunk* chunk = nullptr;
  const torch::TorchFile* object = nullptr;
  const torch::PickleNode* node = nullptr;
};

/// Elements of a tensor under our name: those of `box` lie one after the other, from element `first` of an item on.
struct DistPiece {
  std::size_t item = 0;  ///< index in DistWeights::items
  std::int64_t first = 0;
  Box box;
};

struct DistTensor {
  Shape shape;
  DType type = DType::float32;
  std::vector<DistPiece> pieces;  ///< none: all elements are zero
};

/// The weights and optimizer state of a distributed checkpoint, under our names; with an fp32 master weight, that is
/// the weight. Chunks of any layout are read: one tensor for all layers, or one for each; flattened state; experts.
class DistWeights {
 public:
  /// `folder` and `table` must outlive this object. Throws ConfigError, beginning with `speaker` and naming the key,
  /// for tensors whose shape is not that of layers or experts, and flattened tensors that are no equal blocks.
  DistWeights(const torch::DcpFolder& folder, const options::Value& table, std::string speaker);

  /// Adds elements from another item than the index tells: state in a buffer of the distributed optimizer.
  void add(const std::string& name, const Shape& shape, const DistItem& item, std::int64_t first, const Box& box);
  /// Throws ConfigError if elements of a tensor are missing or there twice. Buffers (table) that no optimizer updates
  /// get zeros as state. Call it when everything has been added.
  void finish();

  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  const DistTensor& tensor(const std::string& name) const;  ///< throws ConfigError if there is none
  const std::map<std::string, DistTensor>& tensors() const { return tensors_; }
  std::vector<std::string> weights() const;  ///< in the order of the modules
  /// Copies the elements of the box `wanted` of `name` to `into`. Throws ConfigError if one is not finite.
  void read(const std::string& name, const Box& wanted, const Tensor& into) const;

 private:
  void take(const torch::DcpTensor& tensor);
  void take_flattened(const DistName& name, const torch::DcpTensor& tensor, const torch::DcpChunk& chunk);
  void take_box(const DistName& name, const Shape& size, const DistItem& item, std::int64_t first, const Box& box);
  Tensor elements(const DistItem& item, const std::string& name) const;
  [[noreturn]] void refuse(const std::string& message) const;

  const torch::DcpFolder& folder_;
  const options::Value& table_;
  std::string speaker_;
  std::vector<DistItem> items_;
  std::map<std::string, DistTensor> tensors_;
  std::map<std::string, DistTensor> masters_;  ///< until finish()
};

}  // namespace tessera::megatron
