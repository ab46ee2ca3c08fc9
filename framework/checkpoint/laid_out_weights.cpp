#include "framework/checkpoint/laid_out_weights.h"

#include <span>
#include <vector>

#include "framework/base/build_lock.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/memory_limit.h"
#include "framework/base/sha256.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/filled_state.h"
#include "framework/tensor/box.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_of_matrices = "model.safetensors";

/// Whole matrices, without elements in memory.
std::vector<TensorRange> matrices_of(const WeightSource& source,
                                     const std::function<bool(const std::string&)>& wanted) {
  std::vector<TensorRange> all;
  for (const auto& name : source.names())
    if (wanted(name) && needs_layout(source, name))
      all.push_back(whole(name, Tensor::without_elements(laid_out_type(source, name), source.shape(name))));
  return all;
}

std::string digest_of(const WeightSource& source, std::span<const TensorRange> matrices) {
  auto all = "version 1\n" + identity_of_files(source.folder());
  for (const auto& matrix : matrices) all += text(matrix.name, " ", matrix.tensor.shape(), "\n");
  return sha256(all).substr(0, 16);
}

std::size_t bytes_of(std::span<const TensorRange> matrices) {
  std::size_t bytes = 0;
  for (const auto& matrix : matrices) bytes += matrix.tensor.bytes();
  return bytes;
}

}  // namespace

std::string identity_of_files(const fs::path& folder) {
  std::string all;
  for (const auto& path : list_folder(folder))
    if (fs::is_regular_file(path))
      all += text(path.filename().string(), " ", fs::file_size(path), " bytes, ",
                  fs::last_write_time(path).time_since_epoch().count(), "\n");
  return all;
}

DType laid_out_type(const WeightSource& source, const std::string& name) {
  const auto type = source.dtype(name);
  return type == DType::bfloat16 || type == DType::float16 ? type : DType::float32;
}

bool needs_layout(const WeightSource& source, const std::string& name) {
  const auto shape = source.shape(name);
  if (shape.rank() != 2 || !source.storage_type(name).empty()) return false;
  const auto all = whole(name, Tensor::without_elements(laid_out_type(source, name), shape));
  return !source.map(all) && !source.stored(all);
}

LaidOutWeights::LaidOutWeights(fs::path folder) : folder_(std::move(folder)), files_(folder_ / file_of_matrices) {}

void LaidOutWeights::read(const std::string& name, const Tensor& into) const {
  copy_converted(files_.tensor(name), into);
}

std::optional<MappedTensor> LaidOutWeights::map(const TensorRange& range) const {
  const auto& shape = range.tensor.shape();
  return part_of(files_.mapped(range.name), Box::whole(files_.shape(range.name)), Box::of(range.offsets, shape),
                 range.tensor.dtype(), shape);
}

std::optional<StoredMatrix> LaidOutWeights::stored(const TensorRange& range) const {
  StoredMatrix matrix;
  matrix.width = range.tensor.shape()[1];
  const auto rows = range.tensor.shape()[0];
  if (!append_rows(matrix, files_.mapped(range.name), range.offsets[0], rows, range.offsets[1])) return std::nullopt;
  return matrix;
}

fs::path laid_out_in(const fs::path& run) { return run / "laid_out"; }

std::unique_ptr<LaidOutWeights> find_laid_out(const WeightSource& source,
                                              const std::function<bool(const std::string& name)>& wanted,
                                              const fs::path& cache) {
  if (!fs::is_directory(cache)) return nullptr;
  const auto matrices = matrices_of(source, wanted);
  const auto folder = cache / digest_of(source, matrices);
  if (matrices.empty() || !fs::exists(folder)) return nullptr;
  return std::make_unique<LaidOutWeights>(folder);
}

std::unique_ptr<LaidOutWeights> lay_out(const WeightSource& source,
                                        const std::function<bool(const std::string& name)>& wanted,
                                        const fs::path& cache, std::vector<std::string>& notes) {
  const auto matrices = matrices_of(source, wanted);
  if (matrices.empty()) return nullptr;
  const auto name = digest_of(source, matrices);
  const auto out = cache / name;
  make_folder(cache);
  const auto lock = BuildLock::take(cache / (name + ".lock"));
  if (!fs::exists(out)) {
    const auto unfinished = cache / (name + "_tmp");
    delete_all(unfinished);
    make_folder(unfinished);
    const FilledState read(matrices, [&](const TensorRange& into) { source.read(into.name, into.tensor); });
    write_safetensors(unfinished / file_of_matrices, read, {});
    rename_or_exchange(unfinished, out);
    sync_folder(cache);
    notes.push_back(text(matrices.size(), " frozen matrices, which ", source.folder().string(),
                         " has in another layout, were written to ", out.string(), ", ",
                         in_binary_units(static_cast<double>(bytes_of(matrices))), ", to be mapped from there"));
  }
  return std::make_unique<LaidOutWeights>(out);
}

}  // namespace tessera::checkpoint
