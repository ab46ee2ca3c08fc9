#include "framework/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "framework/base/json.h"
#include "framework/base/mapped_pages.h"
#include "framework/base/memory_limit.h"
#include "framework/checkpoint/copy_converted.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t longest_header = 100'000'000;  // the limit that the format's own library sets
constexpr std::size_t alignment_of_library = 8, alignment_of_ours = 64;

/// Size of a tensor of shape `dims` and type `type`, in bytes; nothing if it does not fit into 64 bits.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& dims, DType type) {
  std::uint64_t bytes = size_of(type);
  for (const auto dim : dims)
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes)) return std::nullopt;
  return bytes;
}

/// Parses one entry of the header and checks it alone. `room` is the size of the data part, in bytes.
SafetensorsEntry entry_of(const Json& json, std::uint64_t data_begin, std::uint64_t room, const std::string& speaker) {
  const auto refuse = [&](const auto&... message) { throw ConfigError(text(speaker, ": ", message...)); };
  std::vector<std::int64_t> dims;
  std::vector<std::uint64_t> offsets;
  std::string type_name;
  try {
    type_name = json.at("dtype").string();
    for (const auto& dim : json.at("shape")) {
      constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > most)
        refuse("shape is ", json.at("shape").dump(), "; a list of counts was expected");
      dims.push_back(dim.get<std::int64_t>());
    }
    for (const auto& offset : json.at("data_offsets")) {
      if (!offset.is_number_unsigned())
        refuse("data_offsets are ", json.at("data_offsets").dump(), "; two counts were expected");
      offsets.push_back(offset.get<std::uint64_t>());
    }
  } catch (const JsonError&) {
    refuse("the header says ", json.dump(), "; dtype, shape and data_offsets were expected");
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    refuse("data_offsets are ", json.at("data_offsets").dump(), "; a begin and a later end were expected");
  if (dims.size() > Shape::most_dims) refuse(dims.size(), " dims; at most ", Shape::most_dims, " can be read");
  DType type{};
  try {
    type = dtype_named(type_name == "BOOL" ? "U8" : type_name);  // masks of old models: a byte each
  } catch (const ConfigError& error) {
    refuse(error.what());
  }
  const auto needed = bytes_of(dims, type);
  if (!needed || *needed != offsets[1] - offsets[0])
    refuse("data_offsets give ", offsets[1] - offsets[0], " bytes, but shape ", json.at("shape").dump(), " of ",
           type_name, needed ? text(" needs ", *needed) : " is impossible");
  if (offsets[1] > room)
    refuse("its data end at byte ", data_begin + offsets[1], ", but the file ends at ", data_begin + room,
           ": it was cut short; fetch or save it again");
  return {type, Shape(dims), data_begin + offsets[0], data_begin + offsets[1]};
}

// As the safetensors library does: bytes that no tensor owns could hide other data, and overlaps make files ambiguous.
void refuse_overlaps_and_holes(const SafetensorsHeader& header, std::uint64_t file_bytes, const std::string& speaker) {
  std::vector<std::pair<std::string, SafetensorsEntry>> order(header.entries.begin(), header.entries.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
  std::uint64_t at = header.data_begin;
  std::string before = "the header";
  for (const auto& [name, entry] : order) {
    if (entry.begin < at) throw ConfigError(text(speaker, ": tensor '", name, "' overlaps ", before));
    if (entry.begin > at)
      throw ConfigError(text(speaker, ": ", entry.begin - at, " bytes between ", before, " and tensor '", name,
                             "' belong to no tensor"));
    at = entry.end;
    before = "tensor '" + name + "'";
  }
  if (at != file_bytes)
    throw ConfigError(text(speaker, ": ", file_bytes - at, " bytes after ", before, " belong to no tensor"));
}

Json parse_header(std::string_view words, const std::string& speaker) {
  auto json = parse_json(words).sorted();
  if (!json.is_object())
    throw ConfigError(text(speaker, ": its header is not a JSON object: no safetensors file, or a damaged one"));
  return json;
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view start, std::uint64_t file_bytes,
                                          const std::string& speaker) {
  if (file_bytes < 8 || start.size() < 8)
    throw ConfigError(text(speaker, ": ", file_bytes,
                           " bytes; a safetensors file begins with eight that give the length of its header"));
  std::uint64_t length = 0;
  for (std::size_t byte = 8; byte-- > 0;) length = length << 8 | static_cast<unsigned char>(start[byte]);
  if (length > longest_header)
    throw ConfigError(text(speaker, ": its header has a length of ", length, " bytes; at most ", longest_header,
                           " are allowed: no safetensors file, or a damaged one"));
  if (8 + length > file_bytes || 8 + length > start.size())
    throw ConfigError(text(speaker, ": its header has a length of ", length, " bytes, but the file has only ",
                           file_bytes, ": it was cut short; fetch or save it again"));
  SafetensorsHeader header;
  header.data_begin = 8 + length;
  const auto json = parse_header(start.substr(8, length), speaker);
  for (const auto& [name, facts] : json.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : facts.items())
        header.metadata[key] = value.is_string() ? value.string() : value.dump();
      continue;
    }
    header.entries.emplace(name, entry_of(facts, header.data_begin, file_bytes - header.data_begin,
                                          text(speaker, ": tensor '", name, "'")));
  }
  refuse_overlaps_and_holes(header, file_bytes, speaker);
  return header;
}

std::string write_safetensors_header(const std::vector<std::pair<std::string, SafetensorsEntry>>& entries,
                                     const std::map<std::string, std::string>& metadata, std::size_t alignment) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  for (const auto& [name, entry] : entries)
    json[name] = {{"dtype", safetensors_name(entry.dtype)},
                  {"shape", std::vector<std::int64_t>(entry.shape.dims().begin(), entry.shape.dims().end())},
                  {"data_offsets", {entry.begin, entry.end}}};
  auto words = json.dump();
  words.append((alignment - (8 + words.size()) % alignment) % alignment, ' ');
  std::string length(8, '\0');
  for (std::size_t byte = 0; byte < 8; ++byte) length[byte] = static_cast<char>(words.size() >> (8 * byte) & 255);
  return length + words;
}

void lay_out(std::vector<std::pair<std::string, SafetensorsEntry>>& entries) {
  // Wider types first: then every tensor is aligned to its element size without padding, which the format does not
  // have.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const auto wide_a = size_of(a.second.dtype), wide_b = size_of(b.second.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.first < b.first;
  });
  std::uint64_t at = 0;
  for (auto& [name, entry] : entries) {
    entry.begin = at;
    at += size_of(entry.dtype) * static_cast<std::uint64_t>(entry.shape.elements());
    entry.end = at;
  }
}

SafetensorsReader::SafetensorsReader(const fs::path& path) : path_(path) {
  const auto file = path / "model.safetensors", index = path / "model.safetensors.index.json";
  if (!fs::is_directory(path)) {
    path.extension() == ".json" ? add_index(path) : add_file(path);
    return;
  }
  const bool is_one = fs::exists(file);
  if (!is_one && !fs::exists(index))
    throw ConfigError(text(path.string(), ": holds neither model.safetensors nor model.safetensors.index.json"));
  if (is_one)
    add_file(file);
  else
    add_index(index);
  if (fs::exists(index)) note_unread_files(is_one ? file : index);
}

void SafetensorsReader::add_file(const fs::path& path, const std::map<std::string, std::string>& file_of) {
  MappedFile file(path);
  const std::string_view content(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  auto header = within_memory(path.string(), [&] {
    return read_intact(file, [&] { return read_safetensors_header(content, content.size(), path.string()); });
  });
  for (auto& [name, entry] : header.entries) {
    const TensorInFile place{files_.size(), entry};
    const auto wanted = file_of.find(name);
    if (wanted != file_of.end() && wanted->second == path.filename().string())
      tensors_.insert_or_assign(name, place);  // another file may have it too
    else
      tensors_.emplace(name, place);
  }
  metadata_.merge(header.metadata);
  files_.push_back(std::make_shared<const MappedFile>(std::move(file)));
}

void SafetensorsReader::add_index(const fs::path& path) {
  const auto json = parse_json(read_file(path)).sorted();
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw ConfigError(text(path.string(), ": is not an index of safetensors files: it has no 'weight_map'"));
  std::map<std::string, std::string> file_of;
  for (const auto& [name, file] : json["weight_map"].items()) {
    const auto words = file.is_string() ? file.string() : "";
    if (words.empty() || words == "." || words == ".." || words.find('/') != std::string::npos)
      throw ConfigError(
          text(path.string(), ": tensor '", name, "' lies in ", file.dump(), "; a file beside the index was expected"));
    file_of[name] = words;
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, file] : file_of) {
    if (!opened.emplace(file, files_.size()).second) continue;
    std::error_code unusable;  // a name that is longer than any file's
    if (!fs::exists(path.parent_path() / file, unusable))
      throw ConfigError(text(path.string(), ": names ", file, " for tensor '", name,
                             "', but that file is not beside it; fetch or copy the whole folder"));
    add_file(path.parent_path() / file, file_of);
  }
  for (const auto& [name, file] : file_of) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.file != opened[file])
      throw ConfigError(text(path.string(), ": tensor '", name, "' is not in ", file, " where it should be"));
  }
  for (const auto& [name, place] : tensors_)
    if (!file_of.contains(name)) unnamed_.emplace(name, files_[place.file]->path().filename().string());
  const auto metadata = json.value("metadata", Json());
  if (metadata.is_object()) note_total_size(path, metadata.value("total_size", Json()));
}

void SafetensorsReader::note_total_size(const fs::path& index, const Json& total) {
  std::uint64_t bytes = 0;
  for (const auto& [name, place] : tensors_)
    if (!unnamed_.contains(name)) bytes += place.entry.end - place.entry.begin;
  if (total.is_null() || (total.is_number() && total.number() == static_cast<double>(bytes))) return;
  notes_.push_back(text(index.string(), ": metadata.total_size is ", total.is_number() ? total.dump() : "no number",
                        ", but the tensors that it names have ", bytes,
                        " bytes; total_size is not used. If files of another save are among them, copy the ",
                        "folder again"));
}

/// `begin`: the file or the index with which reading began.
void SafetensorsReader::note_unread_files(const fs::path& begin) {
  std::vector<std::string> unread;
  for (const auto& file : list_folder(path_)) {
    const auto is_read = [&](const auto& one) { return one->path().filename() == file.filename(); };
    if (file.extension() == ".safetensors" && std::none_of(files_.begin(), files_.end(), is_read))
      unread.push_back(file.filename().string());
  }
  if (unread.empty()) return;
  notes_.push_back(text(begin.string(), begin.extension() == ".json" ? ": names no tensor of " : ": is read, and not ",
                        unread.front(), unread.size() > 1 ? text(" and ", unread.size() - 1, " more") : "",
                        " beside it", begin.extension() == ".json" ? "; what it does not name is not read" : ""));
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

const SafetensorsReader::TensorInFile& SafetensorsReader::stored(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw ConfigError(text(path_.string(), ": has no tensor '", name, "'"));
  return found->second;
}

Tensor SafetensorsReader::tensor(const std::string& name) const {
  const auto& [file, entry] = stored(name);
  files_[file]->require_pages();
  const auto bytes = files_[file]->bytes().subspan(entry.begin, entry.end - entry.begin);
  return Tensor(std::span(const_cast<std::byte*>(bytes.data()), bytes.size()), entry.dtype, entry.shape);
}

MappedTensor SafetensorsReader::mapped(const std::string& name) const {
  return {files_[stored(name).file], tensor(name)};
}

void SafetensorsReader::read_box(const std::string& name, const Box& box, const Tensor& into) const {
  copy_box(box, tensor(name), Box::whole(shape(name)), into, box);
}

void SafetensorsReader::require_intact() const {
  for (const auto& file : files_) file->require_intact();
}

const Shape& SafetensorsReader::shape(const std::string& name) const { return stored(name).entry.shape; }

void write_safetensors(const fs::path& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, {tensor.dtype(), tensor.shape(), 0, 0}});
  lay_out(entries);
  const auto header = write_safetensors_header(entries, metadata);
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header.data(), header.size()))};
  for (const auto& [name, entry] : entries) pieces.push_back(tensors.at(name).raw());
  write_file_atomic(path, pieces);
}

namespace {

using Entries = std::vector<std::pair<std::string, SafetensorsEntry>>;
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

void write_new(const fs::path& path, Entries tensors, const std::map<std::string, std::string>& metadata,
               std::size_t alignment, const std::function<void(File& file, const std::string& name)>& write) {
  lay_out(tensors);
  auto file = File::create(path);
  const auto header = write_safetensors_header(tensors, metadata, alignment);
  file.reserve(header.size() + (tensors.empty() ? 0 : tensors.back().second.end));  // a full disk is noticed here
  file.write(header);
  for (const auto& [name, entry] : tensors) {
    write(file, name);
    mapped_pages_used();
  }
  file.sync();
  file.close();
}

}  // namespace

void write_safetensors(const fs::path& path, const StateSnapshot& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Entries entries;
  std::map<std::string, std::size_t> numbers;
  for (const auto& range : tensors.ranges()) {
    numbers.emplace(range.name, entries.size());
    entries.push_back({range.name, {range.tensor.dtype(), range.tensor.shape(), 0, 0}});
  }
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(piece_bytes);
  const auto write = [&](File& file, const std::string& name) {
    const auto index = numbers.at(name);
    const auto bytes = tensors.ranges()[index].tensor.bytes();
    for (std::size_t first = 0; first < bytes; first += std::min(piece_bytes, bytes - first))
      file.write(tensors.bytes(index, first, {buffer.get(), std::min(piece_bytes, bytes - first)}));
  };
  const fs::path unfinished = path.string() + "_tmp";
  try {
    write_new(unfinished, std::move(entries), metadata, alignment_of_ours, write);
    rename_or_exchange(unfinished, path);
    sync_folder(path.parent_path());
  } catch (...) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
  delete_all(unfinished);  // what was there before
}

void write_safetensors_as_library(const fs::path& path, Entries tensors,
                                  const std::map<std::string, std::string>& metadata,
                                  const std::function<std::span<const std::byte>(const std::string& name)>& elements) {
  write_new(path, std::move(tensors), metadata, alignment_of_library,
            [&](File& file, const std::string& name) { file.write(elements(name)); });
}

}  // namespace tessera::checkpoint
