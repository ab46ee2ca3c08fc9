#include "framework/checkpoint/writer.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/manifest.h"
#include "framework/checkpoint/safetensors.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Size of the pieces that are checksummed and then written while they are in the processor's cache.
constexpr std::size_t written_piece_bytes = std::size_t{1} << 20;

bool is_whole(const TensorRange& range) { return range.tensor.shape() == range.global_shape; }

/// The name of a range in its file: the tensor's name, for a part of a tensor with the offsets of the part: "x@0,64".
std::string entry_name(const TensorRange& range) {
  if (is_whole(range)) return range.name;
  std::string name = range.name;
  for (std::size_t dim = 0; dim < range.offsets.size(); ++dim) name += text(dim == 0 ? "@" : ",", range.offsets[dim]);
  return name;
}

std::uint32_t write_summed(File& file, std::span<const std::byte> bytes) {
  std::uint32_t sum = 0;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(written_piece_bytes, bytes.size()));
    sum = crc32c(piece, sum);
    file.write(piece);
    bytes = bytes.subspan(piece.size());
  }
  return sum;
}

void write_file_of(const fs::path& folder, const std::string& file_name, const std::vector<const TensorRange*>& ranges,
                   Manifest& manifest) {
  if (ranges.empty()) return;
  std::map<std::string, const TensorRange*> range_of;
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;
  for (const auto* range : ranges) {
    const auto name = entry_name(*range);
    must(range_of.emplace(name, range).second, "no tensor range is saved twice");
    entries.push_back({name, {range->tensor.dtype(), range->tensor.shape(), 0, 0}});
  }
  lay_out(entries);
  const auto header = write_safetensors_header(entries, {{"format", "pt"}});
  auto file = File::create(folder / file_name);
  const auto bytes = header.size() + entries.back().second.end;
  file.reserve(bytes);  // a full disk is noticed here, before anything is written
  file.write(header);
  manifest.files[file_name] = {bytes, header.size(), crc32c(header)};
  for (const auto& [name, entry] : entries) {
    const auto& range = *range_of.at(name);
    const auto sum = write_summed(file, range.tensor.raw());
    auto& stored = manifest.tensors.try_emplace(range.name, Manifest::TensorEntry{entry.dtype, range.global_shape, {}})
                       .first->second;
    stored.ranges.push_back({.file = file_name,
                             .byte_offset = header.size() + entry.begin,
                             .bytes = entry.end - entry.begin,
                             .offsets = range.offsets,
                             .extents = entry.shape,
                             .crc = sum});
  }
  file.sync();
  file.close();
}

std::string numbered(const char* kind, int writer) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "%s_%05d.safetensors", kind, writer);
  return name.data();
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path root, const std::string& prefix, std::int64_t iteration)
    : root_(std::move(root)), prefix_(prefix), iteration_(iteration) {
  folder_ = root_ / checkpoint_name(prefix, iteration);
  tmp_ = folder_.string() + "_tmp";
}

void CheckpointWriter::begin() const {
  delete_all(tmp_);  // what a killed process left; it has no manifest, so it is not a checkpoint
  make_folder(tmp_);
}

std::string CheckpointWriter::write(int writer, std::span<const TensorRange> ranges) const {
  std::vector<const TensorRange*> model, optimizer;
  for (const auto& range : ranges) {
    must(range.offsets.size() == range.global_shape.rank() && range.tensor.shape().rank() == range.global_shape.rank(),
         "a tensor range has one offset and one extent for each dim");
    (range.name.rfind("optimizer.", 0) == 0 ? optimizer : model).push_back(&range);
  }
  Manifest part;
  part.iteration = iteration_;
  write_file_of(tmp_, numbered("model", writer), model, part);
  write_file_of(tmp_, numbered("optimizer", writer), optimizer, part);
  return write_manifest(part);
}

void CheckpointWriter::commit(std::span<const std::string> parts, const Blobs& blobs) const {
  Manifest manifest;
  manifest.iteration = iteration_;
  for (const auto& part : parts) manifest.merge(read_manifest(part, "checkpoint: the part of a writer"));
  // Only here are the parts of all writers together: an element that no rank saved would be noticed at the next start.
  for (const auto& [name, tensor] : manifest.tensors)
    if (const auto problem = coverage_problem(tensor); !problem.empty())
      throw BugError(text("checkpoint: tensor '", name, "': ", problem));
  // Every step is on the disk before the next: the files, then the manifest that names them, then the folder's final
  // name, then the tracker. Whenever the power fails, a folder with a final name is a complete checkpoint. An older one
  // of the same name is exchanged with it, so that there is always one of the two.
  write_blobs(tmp_, blobs, manifest);
  write_file_atomic(tmp_ / "manifest.json", write_manifest(manifest));
  rename_or_exchange(tmp_, folder_);
  sync_folder(root_);
  abandon();  // what an exchange left under the old name
  try {
    write_file_atomic(root_ / tracker_name(prefix_), std::to_string(iteration_));
  } catch (const IoError&) {  // only a hint for people and other programs: the checkpoint is complete without it
  }
}

void CheckpointWriter::abandon() const noexcept {
  std::error_code ignored;
  fs::remove_all(tmp_, ignored);
}

void save_checkpoint(const fs::path& root, const std::string& prefix, std::int64_t iteration,
                     std::span<const TensorRange> tensors, const Blobs& blobs) {
  const CheckpointWriter writer(root, prefix, iteration);
  try {
    writer.begin();
    const auto part = writer.write(0, tensors);
    writer.commit(std::span(&part, 1), blobs);
  } catch (Error& error) {
    writer.abandon();
    error.during(text("saving checkpoint ", writer.folder().string()));
    throw;
  }
}

TensorRange whole(std::string name, const Tensor& tensor, ParameterRole role) {
  return {.name = std::move(name),
          .global_shape = tensor.shape(),
          .offsets = std::vector<std::int64_t>(tensor.shape().rank(), 0),
          .tensor = tensor,
          .role = role};
}

}  // namespace tessera::checkpoint
