#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// Where one tensor lies in a safetensors file.
struct SafetensorsEntry {
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;  ///< bytes of the file (not of its data part)
};

/// What the header of a safetensors file says.
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;  ///< by name
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  ///< first byte after the header
};

/// Read and check the header of a file that begins with `start` and is `file_bytes` long; `start` must reach to the end
/// of the header. Throws ConfigError, beginning with `speaker`, when the file is shorter than promised, the header is
/// no JSON or longer than 100 MB (the limit of the format), an element type is unknown, a size does not fit its shape,
/// or tensors overlap or leave holes. Source: huggingface.co/docs/safetensors, "Format".
SafetensorsHeader read_safetensors_header(std::string_view start, std::uint64_t file_bytes, const std::string& speaker);

/// The header text of a file that holds these tensors in this order without holes, including the eight bytes of its
/// length, padded with blanks so that the data begins at a multiple of 64.
std::string write_safetensors_header(const std::vector<std::pair<std::string, SafetensorsEntry>>& entries,
                                     const std::map<std::string, std::string>& metadata);

/// The order in which files keep every tensor aligned to its element size: wide types first, then by name. Also lays
/// out begin and end, from 0.
void lay_out(std::vector<std::pair<std::string, SafetensorsEntry>>& entries);

/// Tensors of one or several safetensors files, mapped: nothing is read until looked at, nothing is copied.
class SafetensorsReader {
 public:
  /// `path` is a .safetensors file, a `*.safetensors.index.json`, or a folder with model.safetensors or
  /// model.safetensors.index.json. Throws ConfigError for what is no such thing or is damaged; IoError from the system.
  explicit SafetensorsReader(const std::filesystem::path& path);

  std::vector<std::string> names() const;  ///< sorted
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  /// The elements as they lie in the file: read-only memory; valid as long as this reader. Throws ConfigError for a
  /// name that is not there.
  Tensor tensor(const std::string& name) const;
  DType dtype(const std::string& name) const { return tensor(name).dtype(); }
  const Shape& shape(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  struct TensorInFile {
    std::size_t file;
    SafetensorsEntry entry;
  };
  void add_file(const std::filesystem::path& path);
  void add_index(const std::filesystem::path& path);
  const TensorInFile& stored(const std::string& name) const;

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorInFile> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Write tensors as one safetensors file, at once as write_file_atomic does. Throws IoError.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::checkpoint
