#include "framework/checkpoint/writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <set>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/safetensors.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Size of the pieces that are checksummed and then written while they are in the processor's cache.
constexpr std::size_t written_piece_bytes = std::size_t{1} << 20;
/// Bytes after which a file begins to go to the disk, which else would stand still until all is summed and written.
constexpr std::size_t sent_bytes = std::size_t{8} << 20;

bool is_whole(const TensorRange& range) { return range.tensor.shape() == range.global_shape; }

/// The name of a range in its file: the tensor's name, for a part of a tensor with the offsets of the part: "x@0,64".
std::string entry_name(const TensorRange& range) {
  if (is_whole(range)) return range.name;
  std::string name = range.name;
  for (std::size_t dim = 0; dim < range.offsets.size(); ++dim) name += text(dim == 0 ? "@" : ",", range.offsets[dim]);
  return name;
}

/// Appends range `index` of `state` to `file`, of which `unsent` bytes have not begun to go to the disk.
std::uint32_t write_summed(File& file, const StateSnapshot& state, std::size_t index, std::span<std::byte> buffer,
                           std::size_t& unsent) {
  const auto bytes = state.ranges()[index].tensor.bytes();
  std::uint32_t sum = 0;
  for (std::size_t first = 0; first < bytes;) {
    const auto piece = state.bytes(index, first, buffer.first(std::min(buffer.size(), bytes - first)));
    sum = crc32c(piece, sum);
    file.write(piece);
    first += piece.size();
    unsent += piece.size();
    if (unsent < sent_bytes) continue;
    file.start_sync();
    unsent = 0;
  }
  return sum;
}

/// Writes the ranges of `state` with these indices.
void write_file_of(const fs::path& folder, const std::string& file_name, const StateSnapshot& state,
                   const std::vector<std::size_t>& ranges, Manifest& manifest) {
  if (ranges.empty()) return;
  std::map<std::string, std::size_t> index_of;
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;
  for (const auto index : ranges) {
    const auto& range = state.ranges()[index];
    const auto name = entry_name(range);
    must(index_of.emplace(name, index).second, "no tensor range is saved twice");
    entries.push_back({name, {range.tensor.dtype(), range.tensor.shape(), 0, 0}});
  }
  lay_out(entries);
  const auto header = write_safetensors_header(entries, {{"format", "pt"}});
  auto file = File::create(folder / file_name);
  const auto bytes = header.size() + entries.back().second.end;
  file.reserve(bytes);  // a full disk is noticed here, before anything is written
  file.write(header);
  manifest.files[file_name] = {bytes, header.size(), crc32c(header)};
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(written_piece_bytes);  // untouched, it costs nothing
  std::size_t unsent = 0;
  for (const auto& [name, entry] : entries) {
    const auto index = index_of.at(name);
    const auto& range = state.ranges()[index];
    const auto sum = write_summed(file, state, index, {buffer.get(), written_piece_bytes}, unsent);
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

std::string numbered(const char* kind, int writer, const char* ending = ".safetensors") {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "%s_%05d%s", kind, writer, ending);
  return name.data();
}

std::string part_name(int writer) { return numbered("manifest", writer, ".json"); }

/// The manifest of one of several writers.
WrittenPart write_part(const fs::path& folder, int writer, const Manifest& manifest) {
  if (manifest.files.empty()) return {.writer = writer};
  const auto words = write_manifest(manifest);
  auto file = File::create(folder / part_name(writer));
  file.write(words);
  file.sync();
  file.close();
  return {.writer = writer, .crc = crc32c(words), .bytes = words.size()};
}

constexpr const char* same_folder =
    "; all ranks must save into the same folder: give training_config.output_dir a folder on a file system that all "
    "hosts share";

/// What another writer has just written: where it is not here, the writers have no folder in common.
Manifest read_written(const fs::path& folder, const std::string& name, const Manifest::SmallFile& part) {
  try {
    return read_part(folder, name, part);
  } catch (const DamageError& error) {
    throw IoError(text(error.what(), ", though its rank has written it", same_folder));
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path root, const std::string& prefix, std::int64_t iteration, int writers)
    : root_(std::move(root)), prefix_(prefix), iteration_(iteration), writers_(writers) {
  folder_ = root_ / checkpoint_name(prefix, iteration);
  tmp_ = folder_.string() + "_tmp";
  own_.iteration = iteration;
}

void CheckpointWriter::begin() const {
  delete_all(tmp_);  // what a killed process left; it has no manifest, so it is not a checkpoint
  make_folder(root_);
  std::error_code error;
  fs::create_directory(tmp_, error);  // not synced, for which a run would wait: commit() syncs the final name
  if (error) throw IoError(text(tmp_.string(), ": cannot be made: ", error.message()));
}

WrittenPart CheckpointWriter::write(int writer, const StateSnapshot& state) {
  if (!fs::is_directory(tmp_))
    throw IoError(text(tmp_.string(), ": is not here, though the first rank has made it", same_folder));
  std::vector<std::size_t> model, optimizer;
  for (std::size_t i = 0; i < state.ranges().size(); ++i) {
    const auto& range = state.ranges()[i];
    must(range.offsets.size() == range.global_shape.rank() && range.tensor.shape().rank() == range.global_shape.rank(),
         "a tensor range has one offset and one extent for each dim");
    (is_optimizer_state(range.name) ? optimizer : model).push_back(i);
  }
  Manifest part;
  part.iteration = iteration_;
  write_file_of(tmp_, numbered("model", writer), state, model, part);
  write_file_of(tmp_, numbered("optimizer", writer), state, optimizer, part);
  own_.merge(part);
  if (writers_ > 1) known_.add_to_index(static_cast<std::size_t>(writer), part);
  ++written_;
  return writers_ == 1 ? WrittenPart{.writer = writer} : write_part(tmp_, writer, part);
}

Manifest CheckpointWriter::manifest_of(std::span<const WrittenPart> parts) const {
  if (writers_ == 1) return own_;
  Manifest manifest;
  manifest.iteration = iteration_;
  std::map<std::string, std::size_t> writers;
  for (const auto& part : parts) {
    if (part.bytes == 0) continue;
    const auto name = part_name(part.writer);
    const auto writer = writers[name] = static_cast<std::size_t>(part.writer);
    manifest.parts[name] = {part.bytes, part.crc};
    if (!hosts_.empty()) manifest.hosts[name] = hosts_[writer];
  }
  std::map<std::size_t, std::size_t> numbers;  // of each writer, in `parts`
  std::set<std::size_t> known;
  for (const auto& [name, tensor] : known_.index) known.insert(tensor.parts.begin(), tensor.parts.end());
  auto index = known_;
  // One at a time: the index is small, but all parts together are not.
  for (const auto& [name, part] : manifest.parts) {
    const auto writer = writers[name];
    numbers.emplace(writer, numbers.size());
    if (known.contains(writer)) continue;
    Manifest read;
    read.add_to_index(writer, lists_.empty() ? read_written(tmp_, name, part)
                                             : read_manifest(lists_[writer], "the ranges of a writer"));
    index.merge_index(read.index);
  }
  manifest.index = std::move(index.index);
  for (auto& [name, tensor] : manifest.index)
    for (auto& part : tensor.parts) part = numbers.at(part);
  return manifest;
}

std::string CheckpointWriter::index() const { return known_.index.empty() ? "" : write_index(known_.index); }

void CheckpointWriter::add_index(const std::string& index, const WrittenPart& part) {
  if (part.bytes > 0) {
    const auto file = tmp_ / part_name(part.writer);
    std::error_code error;
    if (const auto bytes = fs::file_size(file, error); error || bytes != part.bytes)
      throw IoError(text(file.string(), ": is missing, though its rank has written it", same_folder));
  }
  if (!index.empty()) known_.merge_index(read_index(index, static_cast<std::size_t>(writers_)));
}

void CheckpointWriter::divide(std::vector<std::string> hosts, std::vector<std::string> lists) {
  hosts_ = std::move(hosts);
  lists_ = std::move(lists);
}

void CheckpointWriter::commit(std::span<const WrittenPart> parts, const Blobs& blobs) const {
  // An element that nobody saved would be noticed at the next start only.
  if (written_ == writers_) must_cover(own_);
  auto manifest = manifest_of(parts);
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
  save_checkpoint(root, prefix, iteration, LiveState({tensors.begin(), tensors.end()}), blobs);
}

void save_checkpoint(const fs::path& root, const std::string& prefix, std::int64_t iteration,
                     const StateSnapshot& state, const Blobs& blobs) {
  CheckpointWriter writer(root, prefix, iteration);
  try {
    writer.begin();
    const auto part = writer.write(0, state);
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
