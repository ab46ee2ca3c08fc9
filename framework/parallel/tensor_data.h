#pragma once

#include <map>
#include <memory>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/tensor/tensor.h"

// Broadcasting and splitting tensors (without gradients) within a tensor-parallel group.

namespace tessera::parallel {

/// Named tensors in one block of memory, which this object owns.
class OwnedTensors {
 public:
  /// Creates tensors of these shapes, filled with zeros; each begins at a multiple of 64 bytes.
  OwnedTensors(DType type, const std::map<std::string, Shape>& shapes);

  /// Returns a view, valid as long as this object. Throws ShapeError for an unknown name.
  const Tensor& operator[](const std::string& name) const;
  const std::map<std::string, Tensor>& all() const { return tensors_; }
  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }  ///< all tensors, with the padding between them

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  std::map<std::string, Tensor> tensors_;
};

/// Broadcasts the tensors `keys` of `data` from the first rank of `group`, so that only one rank reads the samples. All
/// ranks pass the same keys and `type`; `data` of the other ranks is ignored. Sends two messages for any number of
/// tensors. If the first rank lacks a key, or has it in another type, all ranks throw: ShapeError on the first rank,
/// PeerFailed on the others. Source: Megatron-LM core, tensor_parallel/data.
OwnedTensors broadcast_data(std::span<const std::string> keys, const std::map<std::string, Tensor>& data, DType type,
                            const comm::Communicator& group);

/// Returns this rank's equal part of the elements of `whole`, in row-major order, as a one-dimensional view of `whole`.
/// Used to send a replicated tensor in parts. Throws ShapeError if the number of elements is not divisible by the
/// group's size. Source: Megatron-LM core, tensor_parallel/utils.
Tensor split_tensor_into_1d_equal_chunks(const Tensor& whole, const comm::Communicator& group);

/// The reverse: all-gathers the `part` of each rank, in the order of ranks, into `whole`, which has the same type and
/// as many elements as all parts together, in any shape. `part` may be this rank's part of `whole`. Throws ShapeError
/// if type or sizes do not match.
void gather_split_1d_tensor(const Tensor& part, const Tensor& whole, const comm::Communicator& group);

}  // namespace tessera::parallel
