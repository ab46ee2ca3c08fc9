#pragma once

#include <map>
#include <memory>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/tensor/tensor.h"

// Tensors without gradients on their way through a tensor-parallel group.

namespace tessera {

/// Tensors by name, in one block of memory that they own together.
class OwnedTensors {
 public:
  /// Of these shapes, filled with zeros.
  OwnedTensors(DType type, const std::map<std::string, Shape>& shapes);

  /// Throws ShapeError for a name that is not among them.
  const Tensor& operator[](const std::string& name) const;
  const std::map<std::string, Tensor>& all() const { return tensors_; }
  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }  ///< of all, with gaps

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  std::map<std::string, Tensor> tensors_;
};

/// The tensors `keys` that the first process of `group` has in `data`, on every process of it: so that one process
/// reads the samples and all work on the same. All give the same keys and type; what the others have in `data` is not
/// looked at. Two messages, whatever the number of tensors. Throws on all members when the first lacks a key or has it
/// in another type than `type`: ShapeError there, PeerFailed on the others. Source: Megatron-LM core,
/// tensor_parallel/data.
OwnedTensors broadcast_data(std::span<const std::string> keys, const std::map<std::string, Tensor>& data, DType type,
                            const Communicator& group);

/// This process's part of the elements of `whole`, counted in row-major order, as a tensor of one dim that looks into
/// `whole`. So a tensor that all processes of `group` have alike can be sent in parts. Throws ShapeError when the
/// elements do not divide by the processes. Source: Megatron-LM core, tensor_parallel/utils.
Tensor split_tensor_into_1d_equal_chunks(const Tensor& whole, const Communicator& group);

/// The other way: everybody's `part`, in the order of ranks, into `whole`, which has as many elements as all parts
/// together, of the same type, in any shape. Overwrites `whole`; `part` may lie at its place in it. Throws ShapeError
/// when they do not fit.
void gather_split_1d_tensor(const Tensor& part, const Tensor& whole, const Communicator& group);

}  // namespace tessera
