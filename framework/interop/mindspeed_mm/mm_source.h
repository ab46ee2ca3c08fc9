#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/interop/mindspeed_mm/mm_table.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/shape.h"

namespace tessera::mindspeed_mm {

/// A tensor of the whole model, in MindSpeed-MM's layout.
struct MmTensor {
  const MmRow* row;    ///< of the MmTable, which must outlive this
  std::int64_t layer;  ///< in the whole tower; -1: it is in no layer
  DType type;
  Shape shape;

  std::string name() const { return numbered_name(*row, layer); }
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(type); }
};

/// The tensors of a model in MindSpeed-MM's layout, by their names with layer numbers of the whole tower.
using MmTensors = std::map<std::string, MmTensor>;

/// Where the tensors of a model come from. The copy of a tied embedding is none of them.
class MmSource {
 public:
  MmSource() = default;
  MmSource(const MmSource&) = delete;
  MmSource& operator=(const MmSource&) = delete;
  virtual ~MmSource() = default;

  virtual const MmTensors& tensors() const = 0;
  /// Whether the output layer is tied to the embedding.
  virtual bool is_tied() const = 0;
  /// Copies the elements of a tensor; `into` has MmTensor::bytes() bytes. Throws IoError.
  virtual void read(const MmTensor& tensor, std::span<std::byte> into) const = 0;
};

}  // namespace tessera::mindspeed_mm
