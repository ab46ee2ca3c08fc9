#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/mapped_tensor.h"
#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// All elements of a tensor: read-only memory of a mapped file, which whoever gave it keeps, or `memory`.
struct WholeTensor {
  Tensor tensor;
  std::shared_ptr<const std::vector<std::byte>> memory = {};
};

/// Tensors by name, in files of some format. Opening reads no elements. Reading is thread-safe.
class NamedTensors {
 public:
  virtual ~NamedTensors() = default;

  virtual std::vector<std::string> names() const = 0;  ///< sorted
  virtual bool has(const std::string& name) const = 0;
  virtual const Shape& shape(const std::string& name) const = 0;  ///< throws ConfigError if there is no such tensor
  virtual DType dtype(const std::string& name) const = 0;         ///< throws as shape()
  /// The elements, not necessarily aligned; put together in memory if they lie in several places. Throws as shape(),
  /// IoError if a file lost pages, DamageError if there are checksums and one is wrong.
  virtual WholeTensor whole(const std::string& name) const = 0;
  /// The elements if they lie in one place in a file; else nothing. Throws as whole().
  virtual std::optional<MappedTensor> mapped_whole(const std::string& name) const = 0;
  virtual bool reads_boxes() const { return false; }  ///< whether there is read_box()
  /// Copies the elements of the box to `into`, which has its shape, and converts to its type. Throws as whole().
  virtual void read_box(const std::string& /*name*/, const Box& /*box*/, const Tensor& /*into*/) const {
    throw BugError("these tensors are not read in boxes");
  }
  /// Throws IoError if elements that were read may be wrong, because a file was truncated or its disk failed.
  virtual void require_intact() const = 0;
  /// Verifies all checksums. Returns false if the files have none. Throws DamageError.
  virtual bool verify() const { return false; }
  /// What was found in the files and is not used, for people, one line each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// The form of the files, for people; empty: one process has saved each tensor whole.
  virtual std::string form() const { return ""; }

 protected:
  NamedTensors() = default;
  NamedTensors(const NamedTensors&) = default;
  NamedTensors(NamedTensors&&) = default;
  NamedTensors& operator=(const NamedTensors&) = default;
  NamedTensors& operator=(NamedTensors&&) = default;
};

}  // namespace tessera::checkpoint
