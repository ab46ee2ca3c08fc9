#include "framework/interop/torch/dcp_folder.h"

#include <utility>

#include "framework/base/error.h"
#include "framework/base/memory_limit.h"

namespace tessera::torch {
namespace {

namespace fs = std::filesystem;

DcpIndex read_index_file(const fs::path& path) {
  const MappedFile file(path);
  return within_memory(path.string(),
                       [&] { return read_intact(file, [&] { return read_dcp_index(file.bytes(), path.string()); }); });
}

}  // namespace

template <class Visit>
void DcpFolder::each_place(const Visit& visit) const {
  for (const auto& [key, place] : index_.objects) visit(key, place);
  for (const auto& tensor : index_.tensors)
    for (const auto& chunk : index_.chunks_of(tensor)) visit(tensor.key, chunk.place);
}

DcpFolder::DcpFolder(fs::path folder)
    : folder_(std::move(folder)), index_(read_index_file(folder_ / dcp_index_file)), files_(index_.files.size()) {
  std::vector<std::uint64_t> sizes;
  for (const auto& name : index_.files) {
    std::error_code failed;
    sizes.push_back(fs::file_size(folder_ / name, failed));
    if (failed)
      throw ConfigError(text((folder_ / name).string(), ": ", failed.message(),
                             "; the index of the checkpoint names this file: copy the whole folder"));
    bytes_ += sizes.back();
  }
  bytes_ += fs::file_size(folder_ / dcp_index_file);
  each_place([&](const std::string& key, const DcpPlace& place) {
    const auto size = sizes[place.file];
    if (place.begin > size || place.bytes > size - place.begin)
      throw ConfigError(text((folder_ / index_.files[place.file]).string(), ": ends at byte ", size,
                             ", before the end of '", key, "' at byte ", place.begin, " + ", place.bytes,
                             ": it was truncated, or belongs to another checkpoint"));
  });
}

std::shared_ptr<const MappedFile> DcpFolder::file(std::uint32_t number) const {
  const std::lock_guard lock(opening_);
  if (!files_[number]) files_[number] = std::make_shared<const MappedFile>(folder_ / index_.files[number]);
  return files_[number];
}

TorchFile DcpFolder::archive(const DcpPlace& place, const std::string& key) const {
  auto mapped = file(place.file);
  const auto name = text((folder_ / index_.files[place.file]).string(), ": '", key, "' at byte ", place.begin);
  if (place.bytes == 0 || place.begin > mapped->bytes().size() || place.bytes > mapped->bytes().size() - place.begin)
    throw ConfigError(text(name, ": its ", place.bytes, " bytes are not in the file"));
  return TorchFile(std::move(mapped), place.begin, place.bytes, name);
}

Tensor DcpFolder::elements(const DcpTensor& tensor, const DcpChunk& chunk) const {
  const auto item = archive(chunk.place, tensor.key);
  const auto found = item.tensor(item.root(), "the item");
  const Shape expected(index_.extents(tensor, chunk));
  if (found.dtype() != tensor.type || found.shape() != expected)
    throw ConfigError(text(item.name(), ": is ", name_of(found.dtype()), " ", found.shape(), "; the index says ",
                           name_of(tensor.type), " ", expected, ": the file belongs to another checkpoint"));
  verify_once(item, chunk.place);
  return found;
}

/// Several threads may verify an item at once: that costs time only.
void DcpFolder::verify_once(const TorchFile& item, const DcpPlace& place) const {
  const std::pair key(place.file, place.begin);
  {
    const std::lock_guard lock(opening_);
    if (verified_.count(key) != 0) return;
  }
  item.verify();
  const std::lock_guard lock(opening_);
  verified_.insert(key);
}

std::unique_ptr<TorchFile> DcpFolder::object(const std::string& key) const {
  const auto found = index_.objects.find(key);
  if (found == index_.objects.end()) return nullptr;
  return std::make_unique<TorchFile>(archive(found->second, key));
}

const PickleNode& DcpFolder::content(const TorchFile& object) {
  const auto& root = object.root();
  return root.kind == PickleNode::Kind::list && root.items.size() == 1 ? *root.items[0] : root;
}

void DcpFolder::verify() const {
  for (const auto& [key, place] : index_.objects) archive(place, key).verify();
  for (const auto& tensor : index_.tensors)
    for (const auto& chunk : index_.chunks_of(tensor)) {
      archive(chunk.place, tensor.key).verify();
      (void)elements(tensor, chunk);  // type and shape
    }
}

}  // namespace tessera::torch
