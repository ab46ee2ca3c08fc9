#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"
#include "framework/kernels/threads.h"
#include "framework/nn/parameter.h"
#include "framework/tensor/arena.h"
#include "framework/training/state_layout.h"

namespace tessera::training {

/// The frozen parameters of a rank. Each is stored once, in the type that the model reads (Parameter::type): no fp32
/// copy, no gradient, no optimizer state. The elements are in memory of this object, or where a checkpoint's file has
/// them as this rank needs them, in the mapped file, which is never written.
///
/// They are in no state file of resilience_config: a restarted process reads them from where they came.
class FrozenWeights {
 public:
  struct Entry {
    nn::Parameter* parameter;
    bool saves = true;  ///< this rank saves the elements that it owns: the first of the ranks with equal parameters
  };
  FrozenWeights() = default;
  /// Binds the parameters, which must outlive this object, to new memory of zeros.
  explicit FrozenWeights(std::vector<Entry> entries);

  /// Bytes of the frozen ones of `parameters`, with padding between them. Exact; mapped ones count alike.
  static std::int64_t bytes_of(std::span<nn::Parameter* const> parameters);
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.bytes().size()); }
  std::size_t count() const { return entries_.size(); }

  /// Sets all of them to their initial values, as SharedState::initialise does.
  void initialise(kernels::Threads& threads, std::uint64_t seed);
  /// Views of the elements with their global names. May be written only if no parameter is mapped.
  std::vector<checkpoint::TensorRange> ranges(StateScope scope) const;

  /// Binds every parameter to memory of this object again. The elements must then be written.
  void unmap();
  /// Maps the parameters whose elements are in a file of `source` as this rank needs them. Returns their names.
  std::set<std::string> map(const checkpoint::WeightSource& source);
  /// Throws IoError if a page of a mapped file could not be read. No system call.
  void require_intact() const;

  /// A digest of the elements that this rank owns and saves. The sum over all ranks, modulo 2^64, does not depend on
  /// the parallel layout. Elements count with their fp32 values.
  std::uint64_t digest();

 private:
  void bind(std::size_t entry);

  std::vector<Entry> entries_;
  std::vector<std::size_t> places_;  ///< of each entry, its first byte in memory_
  Storage memory_;
  std::vector<std::shared_ptr<const MappedFile>> files_;  ///< of each entry; null: not mapped
  std::optional<std::uint64_t> digest_;
};

}  // namespace tessera::training
