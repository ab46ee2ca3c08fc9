#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/checkpoint/mapped_tensor.h"
#include "framework/checkpoint/named_tensors.h"
#include "framework/checkpoint/state_snapshot.h"
#include "framework/tensor/tensor.h"

namespace tessera {
class Json;
}

namespace tessera::checkpoint {

/// Position of one tensor in a safetensors file.
struct SafetensorsEntry {
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;  ///< byte range, counted from the beginning of the file (not of its data part)
};

/// The header of a safetensors file.
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;  ///< by name
  std::map<std::string, std::string> metadata;
  std::uint64_t data_begin = 0;  ///< first byte after the header
};

/// Parses and checks the header of a file of `file_bytes` bytes that begins with `start`; `start` must contain the
/// whole header. Throws ConfigError, beginning with `speaker`, if the file is shorter than the header says, the header
/// is not JSON or longer than 100 MB (the limit of the format), an element type is unknown, a size does not fit its
/// shape, or tensors overlap or leave gaps. Source: huggingface.co/docs/safetensors, "Format".
SafetensorsHeader read_safetensors_header(std::string_view start, std::uint64_t file_bytes, const std::string& speaker);

/// The header of a file that contains these tensors in this order without gaps, including the eight bytes with its
/// length, padded with blanks so that the data begins at a multiple of `alignment` bytes: 8 is what the format's own
/// library does.
std::string write_safetensors_header(const std::vector<std::pair<std::string, SafetensorsEntry>>& entries,
                                     const std::map<std::string, std::string>& metadata, std::size_t alignment = 64);

/// Sorts `entries` so that every tensor in the file is aligned to its element size: wide types first, then by name.
/// Also sets `begin` and `end`, counted from 0.
void lay_out(std::vector<std::pair<std::string, SafetensorsEntry>>& entries);

/// Reads tensors from one or several memory-mapped safetensors files, without copying. Pages are loaded when accessed.
class SafetensorsReader final : public NamedTensors {
 public:
  /// `path` is a .safetensors file, a `*.safetensors.index.json`, or a folder with model.safetensors or
  /// model.safetensors.index.json. Throws ConfigError if it is none of these or is damaged; IoError if a file cannot be
  /// read.
  explicit SafetensorsReader(const std::filesystem::path& path);

  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return tensors_.count(name) != 0; }
  /// The tensor `name`: read-only memory of the mapped file, not necessarily aligned; valid as long as this reader.
  /// Throws ConfigError if there is no such tensor, IoError if a file of this reader lost pages.
  Tensor tensor(const std::string& name) const;
  /// The same with its file, which keeps the memory valid without this reader.
  MappedTensor mapped(const std::string& name) const;
  WholeTensor whole(const std::string& name) const override { return {tensor(name)}; }
  std::optional<MappedTensor> mapped_whole(const std::string& name) const override { return mapped(name); }
  bool reads_boxes() const override { return true; }
  void read_box(const std::string& name, const Box& box, const Tensor& into) const override;
  DType dtype(const std::string& name) const override { return tensor(name).dtype(); }
  const Shape& shape(const std::string& name) const override;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensors of the files that the index does not name, with their files; empty without an index.
  const std::map<std::string, std::string>& unnamed() const { return unnamed_; }
  void require_intact() const override;
  /// A total_size of the index that is not the sum of the tensors that it names, and files of safetensors beside an
  /// index that are not read. As Transformers, no reader depends on either.
  std::vector<std::string> notes() const override { return notes_; }

 private:
  struct TensorInFile {
    std::size_t file;
    SafetensorsEntry entry;
  };
  /// `file_of`: what an index says of each tensor.
  void add_file(const std::filesystem::path& path, const std::map<std::string, std::string>& file_of = {});
  void add_index(const std::filesystem::path& path);
  void note_total_size(const std::filesystem::path& index, const Json& total);
  void note_unread_files(const std::filesystem::path& begin);
  const TensorInFile& stored(const std::string& name) const;

  std::filesystem::path path_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::map<std::string, TensorInFile> tensors_;
  std::map<std::string, std::string> metadata_, unnamed_;
  std::vector<std::string> notes_;
};

/// Writes tensors as one safetensors file, atomically as write_file_atomic does. Throws IoError.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// The same for a snapshot of whole tensors, whose elements are asked for in pieces of 1 MiB.
void write_safetensors(const std::filesystem::path& path, const StateSnapshot& tensors,
                       const std::map<std::string, std::string>& metadata);

/// Writes a new file, tensor by tensor, byte for byte as the format's own library does; `elements` gives those of one
/// of the tensors, which stay valid until its next call. `tensors` need no positions. Throws IoError.
void write_safetensors_as_library(const std::filesystem::path& path,
                                  std::vector<std::pair<std::string, SafetensorsEntry>> tensors,
                                  const std::map<std::string, std::string>& metadata,
                                  const std::function<std::span<const std::byte>(const std::string& name)>& elements);

}  // namespace tessera::checkpoint
