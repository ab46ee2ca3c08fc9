#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "framework/checkpoint/weight_source.h"
#include "framework/interop/mindspeed_mm/mm_transformers.h"

namespace tessera::mindspeed_mm {

/// Weights under our names in MindSpeed-MM's layout. Rows of the vocabulary beyond those of `model` are padding and
/// left out.
class NativeSource final : public MmSource {
 public:
  /// `type`: of every tensor; nothing: as in `weights`. All arguments must outlive this. Throws ConfigError if
  /// `weights` lacks a tensor of the model, or has others.
  NativeSource(const checkpoint::WeightSource& weights, const MmModel& model, std::optional<DType> type,
               const MmTable& table);

  const MmTensors& tensors() const override { return tensors_; }
  bool is_tied() const override { return model_.is_tied(); }
  void read(const MmTensor& tensor, std::span<std::byte> into) const override;

 private:
  const checkpoint::WeightSource& weights_;
  const MmModel& model_;
  MmTensors tensors_;
  std::map<std::string, std::size_t> rows_;  ///< row of the model, by the names of tensors_
};

}  // namespace tessera::mindspeed_mm
