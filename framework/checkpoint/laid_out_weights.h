#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/checkpoint/safetensors.h"
#include "framework/checkpoint/weight_source.h"

namespace tessera::checkpoint {

/// What identifies the content of a folder without reading it: names, sizes and times of its files, one line each.
std::string identity_of_files(const std::filesystem::path& folder);

/// Whether `source` has the matrix `name`, but no mapped file has it so that its rows can be read: it is transposed
/// there, for example. False for a packed one.
bool needs_layout(const WeightSource& source, const std::string& name);

/// The type in which lay_out writes the matrix: that of the source, or float32 if products do not read that one.
DType laid_out_type(const WeightSource& source, const std::string& name);

/// Matrices that were written to a safetensors file under our names, in our layout and in laid_out_type, to be mapped
/// from it.
class LaidOutWeights final : public WeightSource {
 public:
  /// Throws ConfigError or IoError if the folder has no such file.
  explicit LaidOutWeights(std::filesystem::path folder);

  const std::filesystem::path& folder() const override { return folder_; }
  std::vector<std::string> names() const override { return files_.names(); }
  bool has(const std::string& name) const override { return files_.has(name); }
  Shape shape(const std::string& name) const override { return files_.shape(name); }
  DType dtype(const std::string& name) const override { return files_.dtype(name); }
  void read(const std::string& name, const Tensor& into) const override;
  std::optional<MappedTensor> map(const TensorRange& range) const override;
  std::optional<StoredMatrix> stored(const TensorRange& range) const override;

 private:
  std::filesystem::path folder_;
  SafetensorsReader files_;
};

/// The folder of a run in which lay_out keeps what it writes: its `cache`.
std::filesystem::path laid_out_in(const std::filesystem::path& run);

/// The matrices of `source` that need a layout and that `wanted` is true for, in a folder in `cache` whose name has a
/// digest of their names and of the identity of the source's files. If it is not there it is written: one process
/// writes, others wait, and it appears whole or not at all. Memory: one matrix. Nothing if no matrix is wanted. Adds a
/// note if it has written. Throws IoError; ConfigError if an element is not finite.
std::unique_ptr<LaidOutWeights> lay_out(const WeightSource& source,
                                        const std::function<bool(const std::string& name)>& wanted,
                                        const std::filesystem::path& cache, std::vector<std::string>& notes);
/// What lay_out has written to `cache` for the same arguments, and the source's files are still the same; null: nothing
/// is there. Changes nothing on disk.
std::unique_ptr<LaidOutWeights> find_laid_out(const WeightSource& source,
                                              const std::function<bool(const std::string& name)>& wanted,
                                              const std::filesystem::path& cache);

}  // namespace tessera::checkpoint
