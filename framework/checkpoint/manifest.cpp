#include "framework/checkpoint/manifest.h"

#include <algorithm>
#include <functional>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/checkpoint/blobs.h"

namespace tessera::checkpoint {
namespace {

constexpr const char* format_name = "tessera checkpoint";

std::vector<std::int64_t> list_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

std::uint32_t crc_of(const Json& json) { return static_cast<std::uint32_t>(std::stoul(json.string(), nullptr, 16)); }

Json json_of(const Manifest::TensorEntry& tensor) {
  Json ranges = Json::array();
  for (const auto& range : tensor.ranges)
    ranges.push_back({{"file", range.file},
                      {"byte_offset", range.byte_offset},
                      {"offsets", range.offsets},
                      {"extents", list_of(range.extents)},
                      {"crc32c", crc_text(range.crc)}});
  return {{"dtype", safetensors_name(tensor.dtype)}, {"shape", list_of(tensor.global_shape)}, {"ranges", ranges}};
}

Manifest::TensorEntry tensor_of(const Json& json) {
  Manifest::TensorEntry tensor{
      dtype_named(json.at("dtype").string()), Shape(json.at("shape").get<std::vector<std::int64_t>>()), {}};
  for (const auto& range : json.at("ranges")) {
    const Shape extents(range.at("extents").get<std::vector<std::int64_t>>());
    tensor.ranges.push_back({.file = range.at("file").string(),
                             .byte_offset = range.at("byte_offset").get<std::uint64_t>(),
                             .bytes = static_cast<std::uint64_t>(extents.elements()) * size_of(tensor.dtype),
                             .offsets = range.at("offsets").get<std::vector<std::int64_t>>(),
                             .extents = extents,
                             .crc = crc_of(range.at("crc32c"))});
  }
  return tensor;
}

Json json_of(const std::map<std::string, Manifest::SmallFile>& files) {
  Json json = Json::object();
  for (const auto& [name, file] : files) json[name] = {{"bytes", file.bytes}, {"crc32c", crc_text(file.crc)}};
  return json;
}

std::map<std::string, Manifest::SmallFile> small_files_of(const Json& json) {
  std::map<std::string, Manifest::SmallFile> files;
  for (const auto& [name, file] : json.items())
    files[name] = {file.at("bytes").get<std::uint64_t>(), crc_of(file.at("crc32c"))};
  return files;
}

Json json_of(const std::map<std::string, Manifest::IndexEntry>& index) {
  Json json = Json::object();
  for (const auto& [name, tensor] : index)
    json[name] = {
        {"dtype", safetensors_name(tensor.dtype)}, {"shape", list_of(tensor.global_shape)}, {"parts", tensor.parts}};
  return json;
}

std::map<std::string, Manifest::IndexEntry> index_of(const Json& json, std::size_t parts) {
  std::map<std::string, Manifest::IndexEntry> index;
  for (const auto& [name, tensor] : json.items()) {
    Manifest::IndexEntry entry{dtype_named(tensor.at("dtype").string()),
                               Shape(tensor.at("shape").get<std::vector<std::int64_t>>()),
                               tensor.at("parts").get<std::vector<std::size_t>>()};
    if (std::adjacent_find(entry.parts.begin(), entry.parts.end(), std::greater_equal()) != entry.parts.end())
      throw DamageError(text("the parts of tensor '", name, "' are not in ascending order"));
    if (!entry.parts.empty() && entry.parts.back() >= parts)
      throw DamageError(text("tensor '", name, "' is in part ", entry.parts.back(), " of ", parts));
    index.emplace(name, std::move(entry));
  }
  return index;
}

Manifest manifest_of(const Json& json) {
  Manifest manifest;
  manifest.iteration = json.at("iteration").get<std::int64_t>();
  manifest.blobs = small_files_of(json.at("blobs"));
  if (json.at("version") == parted_manifest_version) {
    manifest.parts = small_files_of(json.at("parts"));
    if (const auto* hosts = json.find("hosts"))
      for (const auto& [name, host] : hosts->items()) manifest.hosts[name] = host.string();
    if (const auto* index = json.find("index")) manifest.index = index_of(*index, manifest.parts.size());
    return manifest;
  }
  for (const auto& [name, file] : json.at("files").items())
    manifest.files[name] = {file.at("bytes").get<std::uint64_t>(), file.at("header_bytes").get<std::uint64_t>(),
                            crc_of(file.at("header_crc32c"))};
  for (const auto& [name, tensor] : json.at("tensors").items()) manifest.tensors.emplace(name, tensor_of(tensor));
  return manifest;
}

void add_ranges(Json& json, const Manifest& manifest) {
  json["files"] = json["tensors"] = Json::object();
  for (const auto& [name, file] : manifest.files)
    json["files"][name] = {
        {"bytes", file.bytes}, {"header_bytes", file.header_bytes}, {"header_crc32c", crc_text(file.header_crc)}};
  for (const auto& [name, tensor] : manifest.tensors) json["tensors"][name] = json_of(tensor);
}

bool overlap(const Checkpoint::StoredRange& a, const Checkpoint::StoredRange& b) {
  for (std::size_t dim = 0; dim < a.offsets.size(); ++dim)
    if (a.offsets[dim] >= b.offsets[dim] + b.extents[dim] || b.offsets[dim] >= a.offsets[dim] + a.extents[dim])
      return false;
  return true;
}

}  // namespace

namespace {

template <typename Entry>
void must_agree(const std::string& name, DType type, const Shape& shape, const Entry& other) {
  if (type != other.dtype || shape != other.global_shape)
    throw BugError(text("checkpoint: two writers disagree about '", name, "': ", name_of(type), " ", shape, " and ",
                        name_of(other.dtype), " ", other.global_shape));
}

}  // namespace

void Manifest::merge(const Manifest& other) {
  must(other.iteration == iteration, "every writer saves the same iteration");
  for (const auto& [name, file] : other.files)
    must(files.emplace(name, file).second, "every writer has files of its own");
  for (const auto& [name, tensor] : other.tensors) {
    auto& mine = tensors.try_emplace(name, TensorEntry{tensor.dtype, tensor.global_shape, {}}).first->second;
    must_agree(name, mine.dtype, mine.global_shape, tensor);
    mine.ranges.insert(mine.ranges.end(), tensor.ranges.begin(), tensor.ranges.end());
  }
}

void Manifest::add_to_index(std::size_t part, const Manifest& of_part) {
  for (const auto& [name, tensor] : of_part.tensors) {
    auto& mine = index.try_emplace(name, IndexEntry{tensor.dtype, tensor.global_shape, {}}).first->second;
    must_agree(name, mine.dtype, mine.global_shape, tensor);
    mine.parts.push_back(part);
  }
}

void Manifest::merge_index(const std::map<std::string, IndexEntry>& other) {
  for (const auto& [name, tensor] : other) {
    auto& mine = index.try_emplace(name, IndexEntry{tensor.dtype, tensor.global_shape, {}}).first->second;
    must_agree(name, mine.dtype, mine.global_shape, tensor);
    const auto before = static_cast<std::ptrdiff_t>(mine.parts.size());
    mine.parts.insert(mine.parts.end(), tensor.parts.begin(), tensor.parts.end());
    std::inplace_merge(mine.parts.begin(), mine.parts.begin() + before, mine.parts.end());
  }
}

std::string write_index(const std::map<std::string, Manifest::IndexEntry>& index) { return json_of(index).dump(); }

std::map<std::string, Manifest::IndexEntry> read_index(const std::string& words, std::size_t parts) {
  const auto json = parse_json(words);
  return index_of(json, parts);
}

std::string coverage_problem(const Manifest::TensorEntry& tensor) {
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < tensor.ranges.size(); ++i) {
    const auto& range = tensor.ranges[i];
    if (range.offsets.size() != tensor.global_shape.rank() || range.extents.rank() != tensor.global_shape.rank())
      return "a range has another number of dims";
    for (std::size_t dim = 0; dim < range.offsets.size(); ++dim)
      if (range.offsets[dim] < 0 || range.extents[dim] > tensor.global_shape[dim] - range.offsets[dim])
        return text("a range reaches beyond ", tensor.global_shape);
    // With ranges that do not overlap, their elements need only be counted to know that nothing is missing.
    for (std::size_t j = 0; j < i; ++j)
      if (range.extents.elements() != 0 && tensor.ranges[j].extents.elements() != 0 && overlap(range, tensor.ranges[j]))
        return "two ranges overlap";
    covered += range.extents.elements();
  }
  if (covered == tensor.global_shape.elements()) return "";
  return text("its ranges cover ", covered, " of ", tensor.global_shape.elements(), " elements");
}

void must_cover(const Manifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors)
    if (const auto problem = coverage_problem(tensor); !problem.empty())
      throw BugError(text("checkpoint: tensor '", name, "': ", problem));
}

void check_ranges(const Manifest& manifest, const std::string& speaker) {
  for (const auto& [name, tensor] : manifest.tensors) {
    if (const auto problem = coverage_problem(tensor); !problem.empty())
      throw DamageError(text(speaker, ": tensor '", name, "': ", problem));
    for (const auto& range : tensor.ranges) {
      const auto file = manifest.files.find(range.file);
      if (file == manifest.files.end() || range.bytes > file->second.bytes ||
          range.byte_offset > file->second.bytes - range.bytes)
        throw DamageError(text(speaker, ": tensor '", name, "' lies outside of ", range.file));
    }
  }
}

std::string write_manifest(const Manifest& manifest) {
  Json json = {{"format", format_name}, {"iteration", manifest.iteration}, {"blobs", json_of(manifest.blobs)}};
  if (manifest.parts.empty()) {
    json["version"] = whole_manifest_version;
    add_ranges(json, manifest);
  } else {
    json["version"] = parted_manifest_version;
    json["parts"] = json_of(manifest.parts);
    json["index"] = json_of(manifest.index);
    for (const auto& [name, host] : manifest.hosts) json["hosts"][name] = host;
  }
  // The checksum of the text without this line. The reader generates that text again from the parsed keys, sorted.
  json = json.sorted();
  json["manifest_crc32c"] = crc_text(crc32c(json.dump()));
  return json.sorted().dump() + "\n";
}

Manifest read_manifest(const std::string& words, const std::string& speaker) {
  auto json = parse_json(words);
  if (!json.is_object() || json.value("format", Json()) != format_name)
    throw DamageError(text(speaker, ": is not a manifest of a checkpoint, or a damaged one"));
  const auto sum = json.value("manifest_crc32c", Json());
  json.erase("manifest_crc32c");
  if (sum != crc_text(crc32c(json.sorted().dump())))
    throw DamageError(text(speaker, ": its CRC is not the one it was saved with"));
  if (const auto version = json.value("version", Json());
      version != whole_manifest_version && version != parted_manifest_version)
    throw ConfigError(text(speaker, ": has format version ", version.dump(), "; this program reads versions ",
                           whole_manifest_version, " and ", parted_manifest_version,
                           ". Use the program that wrote it, or a newer one"));
  try {
    return manifest_of(json);
  } catch (const std::exception& error) {  // JSON with other keys, invalid shapes, invalid numbers
    throw DamageError(text(speaker, ": ", error.what()));
  }
}

Manifest read_part(const std::filesystem::path& folder, const std::string& name, const Manifest::SmallFile& part) {
  return read_manifest(read_small_file(folder, name, part), (folder / name).string());
}

std::string about_other_host(const Manifest& manifest, const std::filesystem::path& folder, const std::string& name) {
  const auto host = manifest.hosts.find(name);
  if (host == manifest.hosts.end() || std::filesystem::exists(folder / name)) return "";
  return text(folder.string(), ": ", name, " is not here: it was saved on host ", host->second,
              ", in a folder of its own. Copy the files of this checkpoint from all hosts into one folder");
}

void merge_parts(Manifest& manifest, const std::filesystem::path& folder) {
  for (const auto& [name, part] : manifest.parts) {
    if (const auto why = about_other_host(manifest, folder, name); !why.empty()) throw DamageError(why);
    manifest.merge(read_part(folder, name, part));
  }
}

}  // namespace tessera::checkpoint
