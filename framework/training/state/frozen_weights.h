#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/checkpoint/weight_source.h"
#include "framework/kernels/threads.h"
#include "framework/nn/parameter.h"
#include "framework/tensor/arena.h"
#include "framework/training/state/state_layout.h"

namespace tessera::training {

/// The frozen parameters of a rank. Each is stored once: no fp32 copy, no gradient, no optimizer state. The elements
/// are in memory of this object, in the type that the model reads (Parameter::type), or in mapped files, which are
/// never written: as this rank needs them, or, of matrices, in blocks of rows in any storage type (Leaf::stored).
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

  /// Bytes of the frozen ones of `parameters` in memory of this object, with padding between them. Exact; mapped ones,
  /// whose memory is only reserved, count alike.
  static std::int64_t bytes_of(std::span<nn::Parameter* const> parameters);
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.bytes().size()); }
  /// Bytes of mapped parameters.
  struct Mapped {
    std::int64_t reserved = 0;  ///< of bytes(): memory that is not used
    std::int64_t in_files = 0;  ///< of this rank's elements where they lie
  };
  /// Of the parameters that are mapped and that `ranges` has not copied.
  Mapped mapped() const;
  /// What `mappable` counts beside parameters that a file has as the model reads them.
  struct Ways {
    bool rows = true;       ///< those that it has in blocks of rows
    bool laid_out = false;  ///< those that checkpoint::lay_out would write
    /// The bytes in files of a parameter that is to be quantised; nothing: it is not. May be empty: none is.
    std::function<std::optional<std::int64_t>(const nn::Parameter&)> quantised = {};
  };
  /// Of those of `parameters` that `map` would map.
  static Mapped mappable(std::span<nn::Parameter* const> parameters, const checkpoint::WeightSource& source, Ways ways);
  std::size_t count() const { return entries_.size(); }
  std::vector<nn::Parameter*> parameters() const;

  /// Sets those whose name `is_given` is false for, else all of them, to their initial values, as
  /// SharedState::initialise does. The others stay as they are.
  void initialise(kernels::Threads& threads, std::uint64_t seed,
                  const std::function<bool(const std::string& name)>& is_given = {});
  /// Views of the elements with their global names. May be written only if no parameter is mapped. Elements that are
  /// stored in blocks of rows are copied to memory of this object.
  std::vector<checkpoint::TensorRange> ranges(StateScope scope);

  /// Binds every parameter to memory of this object again. The elements must then be written.
  void unmap();
  /// Maps the parameters whose elements are in files of `source` as this rank needs them, or in blocks of rows. Returns
  /// their names.
  std::set<std::string> map(const checkpoint::WeightSource& source);
  /// Keeps the absolute path of the checkpoint that has them, for those that are saved without them.
  void came_from(std::filesystem::path checkpoint) { origin_ = std::move(checkpoint); }
  /// The same; empty: unknown.
  const std::filesystem::path& origin() const { return origin_; }
  /// Throws ConfigError as checkpoint::must_be_finite, naming `folder` and the tensor.
  void must_be_finite(const std::filesystem::path& folder);
  /// Throws IoError if a page of a mapped file could not be read. No system call.
  void require_intact() const;

  /// A digest of the elements that this rank owns and saves. The sum over all ranks, modulo 2^64, does not depend on
  /// the parallel layout. Elements count with their fp32 values.
  std::uint64_t digest(kernels::Threads& threads);

 private:
  void bind(std::size_t entry);
  Tensor memory_of(std::size_t entry) const;
  /// The elements of an entry, copied if they are stored in blocks of rows.
  Tensor elements_of(std::size_t entry);

  std::vector<Entry> entries_;
  std::vector<std::size_t> places_;  ///< of each entry, its first byte in memory_
  Storage memory_;
  std::vector<std::vector<std::shared_ptr<const MappedFile>>> files_;  ///< of each entry; empty: not mapped
  std::vector<bool> copied_;  ///< of each entry, whether mapped rows were copied to its memory
  std::optional<std::uint64_t> digest_;
  std::filesystem::path origin_;
};

}  // namespace tessera::training
