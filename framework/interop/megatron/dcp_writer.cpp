#include "framework/interop/megatron/dcp_writer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "framework/base/files.h"
#include "framework/checkpoint/checkpoint.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;
using Dims = std::vector<std::int64_t>;

std::string numbered(const char* format, std::int64_t rank) {
  std::array<char, 48> name{};
  std::snprintf(name.data(), name.size(), format, static_cast<long long>(rank));
  return name.data();
}
std::string data_file(std::int64_t rank) { return numbered("__%lld_0.distcp", rank); }
std::string part_file(std::int64_t rank) { return numbered("part_%08lld.json", rank); }

const char* torch_name(DType type) {
  switch (type) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    case DType::float64:
      return "float64";
    case DType::int64:
      return "int64";
    case DType::int32:
      return "int32";
    case DType::uint8:
      return "uint8";
  }
  throw BugError("an element type that torch has no name for");
}

torch::TorchFileWriter archive_of(const DcpItem& item) {
  torch::TorchFileWriter archive;
  if (item.is_object) {
    archive.pickle.empty_list();
    archive.pickle.mark();
    archive.pickle.none();
    archive.pickle.append_items();
  } else {
    archive.tensor(item.type, item.extents, item.elements);
  }
  return archive;
}

Dims dims_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

Json record_of(const DcpItem& item, std::uint64_t begin, std::uint64_t bytes) {
  Json record{{"key", item.key}, {"begin", begin}, {"bytes", bytes}};
  if (item.is_object) return record;
  record["type"] = torch_name(item.type);
  record["size"] = dims_of(item.size);
  record["offsets"] = item.offsets;
  record["extents"] = dims_of(item.extents);
  if (!item.flattened_from.empty()) record["flattened_from"] = item.flattened_from;
  return record;
}

void write_synced(const fs::path& path, const std::string& words) {
  auto file = File::create(path);
  file.write(words);
  file.sync();
  file.close();
}

}  // namespace

void write_dcp_items(const fs::path& folder, std::int64_t rank, const std::vector<DcpItem>& items, const Json& note) {
  auto records = Json::array();
  if (!items.empty()) {
    std::vector<torch::TorchFileWriter> archives;
    std::uint64_t bytes = 0;
    for (const auto& item : items) {
      archives.push_back(archive_of(item));
      bytes += archives.back().bytes();
    }
    auto file = File::create(folder / data_file(rank));
    file.reserve(bytes);  // a full disk is noticed here, before anything is written
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto written = archives[i].append_to(file);
      records.push_back(record_of(items[i], at, written));
      at += written;
    }
    must(at == bytes, "an archive has the size that was computed before it was written");
    file.sync();
    file.close();
  }
  const Json part{{"rank", rank}, {"file", data_file(rank)}, {"items", std::move(records)}, {"note", note}};
  write_synced(folder / part_file(rank), part.dump());
}

namespace {

Dims dims_in(const Json& list) {
  Dims dims;
  for (const auto& dim : list) dims.push_back(dim.get<std::int64_t>());
  return dims;
}

/// What .metadata says about a tensor or an object. The records belong to the parts.
struct Entry {
  std::vector<const Json*> chunks;  ///< of a tensor
  const Json* first = nullptr;      ///< the record that describes it
};
using Entries = std::map<std::string, Entry>;

void must_cover_once(const std::string& key, const Entry& entry) {
  std::int64_t elements = 0;
  std::set<Dims> offsets;
  for (const auto* chunk : entry.chunks) {
    must((*chunk)["size"] == (*entry.first)["size"] && (*chunk)["type"] == (*entry.first)["type"],
         "all chunks of a tensor say the same of it");
    elements += Shape(dims_in((*chunk)["extents"])).elements();
    if (!offsets.insert(dims_in((*chunk)["offsets"])).second)
      throw BugError(text("saving torch_dist: two chunks of '", key, "' begin at the same element"));
  }
  const auto all = Shape(dims_in((*entry.first)["size"])).elements();
  if (elements != all)
    throw BugError(text("saving torch_dist: the chunks of '", key, "' have ", elements, " elements; it has ", all));
}

/// Writes the objects of .metadata as pickle, each as Python's default: class, no arguments, state. What occurs often
/// is written once and recalled.
class MetadataWriter {
 public:
  std::string write(const Entries& entries, const std::vector<Json>& parts) {
    object("torch.distributed.checkpoint.metadata", "Metadata");
    p_.empty_dict();
    p_.mark();
    word("state_dict_metadata");
    dict(entries, [&](const Entry& entry) { described(entry); });
    word("planner_data");
    p_.none();
    word("storage_data");
    storage(parts);
    word("version");
    word("1.0.0");
    word("mcore_data");
    dict(entries, [&](const Entry& entry) { reformulated(entry); });
    p_.set_items();
    p_.state();
    return p_.finish();
  }

 private:
  template <class Make>
  void once(const std::string& what, const Make& make) {
    const auto found = known_.find(what);
    if (found != known_.end()) return p_.recall(found->second);
    make();
    known_[what] = p_.memoize();
  }
  void word(const std::string& words) {
    once("text " + words, [&] { p_.text(words); });
  }
  void name(const char* module, const char* name) {
    once(text("global ", module, " ", name), [&] { p_.global(module, name); });
  }
  void object(const char* module, const char* type) {
    name(module, type);
    p_.empty_tuple();
    p_.make();
  }

  void tuple(const Dims& dims) {
    p_.mark();
    for (const auto dim : dims) p_.integer(dim);
    p_.tuple();
  }
  void size(const Dims& dims) {
    std::string key = "size";
    for (const auto dim : dims) key += " " + std::to_string(dim);
    once(key, [&] {
      name("torch", "Size");
      p_.mark();
      tuple(dims);
      p_.tuple();
      p_.call();
    });
  }
  void called(const char* module, const char* function, const std::function<void()>& argument) {
    name(module, function);
    p_.mark();
    argument();
    p_.tuple();
    p_.call();
  }

  template <class Write>
  void dict(const Entries& entries, const Write& write) {
    p_.empty_dict();
    p_.mark();
    for (const auto& [key, entry] : entries) {
      word(key);
      write(entry);
    }
    p_.set_items();
  }

  /// Five values: older versions of PyTorch know no sixth, newer ones do without it.
  void properties(const std::string& type) {
    once("properties " + type, [&] {
      object("torch.distributed.checkpoint.metadata", "TensorProperties");
      p_.mark();
      name("torch", type.c_str());
      called("torch.serialization", "_get_layout", [&] { word("torch.strided"); });
      p_.boolean(false);  // requires_grad
      called("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING", [&] { p_.integer(0); });
      p_.boolean(false);  // pin_memory
      p_.tuple();
      p_.state();
    });
  }

  void described(const Entry& entry) {
    constexpr const char* module = "torch.distributed.checkpoint.metadata";
    if (entry.chunks.empty()) return object(module, "BytesStorageMetadata");
    object(module, "TensorStorageMetadata");
    p_.empty_dict();
    p_.mark();
    word("properties");
    properties((*entry.first)["type"].string());
    word("size");
    size(dims_in((*entry.first)["size"]));
    word("chunks");
    p_.empty_list();
    p_.mark();
    for (const auto* chunk : entry.chunks) {
      object(module, "ChunkStorageMetadata");
      p_.empty_dict();
      p_.mark();
      word("offsets");
      size(dims_in((*chunk)["offsets"]));
      word("sizes");
      size(dims_in((*chunk)["extents"]));
      p_.set_items();
      p_.state();
    }
    p_.append_items();
    p_.set_items();
    p_.state();
  }

  void reformulated(const Entry& entry) {
    p_.empty_dict();
    if (!entry.first->contains("flattened_from")) return;
    p_.mark();
    word("nd_reformulated_orig_global_shape");
    tuple(dims_in((*entry.first)["flattened_from"]));
    p_.set_items();
  }

  void storage(const std::vector<Json>& parts) {
    p_.empty_dict();
    p_.mark();
    for (const auto& part : parts)
      for (const auto& record : part["items"]) {
        index(record);
        place(part["file"].string(), record);
      }
    p_.set_items();
  }
  void index(const Json& record) {
    object("torch.distributed.checkpoint.metadata", "MetadataIndex");
    p_.empty_dict();
    p_.mark();
    word("fqn");
    word(record["key"].string());
    if (record.contains("offsets")) {
      word("offset");
      size(dims_in(record["offsets"]));
    }
    word("index");
    p_.none();
    p_.set_items();
    p_.state();
  }
  void place(const std::string& file, const Json& record) {
    object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    p_.empty_dict();
    p_.mark();
    word("relative_path");
    word(file);
    word("offset");
    p_.integer(record["begin"].get<std::int64_t>());
    word("length");
    p_.integer(record["bytes"].get<std::int64_t>());
    p_.set_items();
    p_.state();
  }

  torch::PickleWriter p_{4};
  std::map<std::string, std::uint32_t> known_;
};

Entries entries_of(const std::vector<Json>& parts) {
  Entries entries;
  for (const auto& part : parts)
    for (const auto& record : part["items"]) {
      auto& entry = entries[record["key"].string()];
      if (entry.first == nullptr) entry.first = &record;
      if (record.contains("size")) entry.chunks.push_back(&record);
    }
  return entries;
}

}  // namespace

DcpParts::DcpParts(const fs::path& folder) : folder_(folder) {
  for (const auto& file : list_folder(folder)) {
    const auto name = file.filename().string();
    if (name.rfind("part_", 0) != 0) continue;
    files_.push_back(file);
    try {
      parts_.push_back(read_json(read_file(file)));
    } catch (const ConfigError& error) {
      throw checkpoint::DamageError(text(file.string(), ": ", error.what()));
    }
  }
}

std::vector<Json> DcpParts::notes() const {
  std::vector<Json> notes;
  for (const auto& part : parts_) notes.push_back(part["note"]);
  return notes;
}

void DcpParts::write_metadata() const {
  const auto entries = entries_of(parts_);
  for (const auto& [key, entry] : entries)
    if (!entry.chunks.empty()) must_cover_once(key, entry);
  write_file_atomic(folder_ / ".metadata", MetadataWriter().write(entries, parts_));
  for (const auto& file : files_) delete_all(file);
}

}  // namespace tessera::megatron
