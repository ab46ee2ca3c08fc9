#include "framework/checkpoint/laid_out_weights.h"

#include <cstdint>
#include <span>
#include <utility>

#include "framework/base/build_lock.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/memory_limit.h"
#include "framework/base/sha256.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/tensor/box.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_of_matrices = "model.safetensors";

using Entries = std::vector<std::pair<std::string, SafetensorsEntry>>;

Entries entries_of(const WeightSource& source, const std::function<bool(const std::string&)>& wanted) {
  Entries all;
  for (const auto& name : source.names())
    if (wanted(name) && needs_layout(source, name))
      all.emplace_back(name, SafetensorsEntry{laid_out_type(source, name), source.shape(name), 0, 0});
  return all;
}

std::string digest_of(const WeightSource& source, const Entries& entries) {
  auto all = "version 1\n" + identity_of_files(source.folder());
  for (const auto& [name, entry] : entries) all += text(name, " ", entry.shape, "\n");
  return sha256(all).substr(0, 16);
}

/// Returns the number of bytes.
std::uint64_t write(const WeightSource& source, const Entries& entries, const fs::path& file) {
  std::uint64_t bytes = 0;
  std::vector<std::byte> memory;
  write_safetensors(file, entries, {}, [&](const std::string& name) {
    const auto type = laid_out_type(source, name);
    const auto shape = source.shape(name);
    memory.resize(static_cast<std::size_t>(shape.elements()) * size_of(type));
    source.read(name, Tensor(std::span(memory), type, shape));
    bytes += memory.size();
    return std::span<const std::byte>(memory);
  });
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

std::unique_ptr<LaidOutWeights> lay_out(const WeightSource& source,
                                        const std::function<bool(const std::string& name)>& wanted,
                                        const fs::path& cache, std::vector<std::string>& notes) {
  const auto entries = entries_of(source, wanted);
  if (entries.empty()) return nullptr;
  const auto name = digest_of(source, entries);
  const auto out = cache / name;
  make_folder(cache);
  const auto lock = BuildLock::take(cache / (name + ".lock"));
  if (!fs::exists(out)) {
    const auto unfinished = cache / (name + "_tmp");
    delete_all(unfinished);
    make_folder(unfinished);
    const auto bytes = write(source, entries, unfinished / file_of_matrices);
    rename_or_exchange(unfinished, out);
    sync_folder(cache);
    notes.push_back(text(entries.size(), " frozen matrices, which ", source.folder().string(),
                         " has in another layout, were written to ", out.string(), ", ",
                         in_binary_units(static_cast<double>(bytes)), ", to be mapped from there"));
  }
  return std::make_unique<LaidOutWeights>(out);
}

}  // namespace tessera::checkpoint
