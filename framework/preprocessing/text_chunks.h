#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/files/input_stream.h"
#include "framework/files/text_file.h"

namespace tessera::preprocessing {

/// A position in the inputs up to which text was read.
struct TextPosition {
  std::int64_t input = 0;      ///< index of the input
  std::int64_t offset = 0;     ///< in its decompressed bytes
  std::int64_t lines = 0;      ///< lines before the position, in all inputs; only if lines are counted
  std::uint32_t checksum = 0;  ///< CRC-32C of the bytes before `offset`; only for inputs that are not regular files
};

/// A chunk of an input that can be encoded alone: whole documents, or a part of a document of format whole_file.
struct TextChunk {
  std::string bytes;
  std::int64_t input = 0;
  std::int64_t first_line = 0;  ///< lines before it, in all inputs; only if lines are counted
  bool ends_document = true;    ///< for whole_file: whether it is the last part of the document
  TextPosition end;             ///< position after the chunk
  std::int64_t stored = 0;      ///< stored (compressed) bytes of all inputs read so far; for progress
};

struct TextInput {
  std::string name;  ///< "-" is standard input
  files::TextFormat format = files::TextFormat::json_lines;
  std::vector<std::string> columns = {};  ///< for a Parquet file: the columns; its rows are read as JSON lines
  bool may_be_cut = true;                 ///< for whole_file: Tokenizer::may_be_cut_at_lines(); else it is one chunk
};

/// Cuts inputs into chunks. Reads ahead at most one chunk. A chunk is longer than `chunk_bytes` only if a single line
/// or paragraph is, or a whole file that may not be cut; one of more than `most_document` bytes is refused.
class ChunkReader {
 public:
  ChunkReader(std::vector<TextInput> inputs, std::size_t chunk_bytes, bool count_lines,
              std::size_t most_document = files::most_document_bytes);
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;
  ~ChunkReader();
  /// Continues at `position`. Throws ConfigError if an input does not begin with the bytes that were read before.
  void go_to(const TextPosition& position);
  /// Reads the next chunk; returns false at the end. Throws ConfigError as InputStream does, if an input is truncated
  /// while it is read, or if memory runs out.
  bool next(TextChunk& chunk);
  /// Name of an input, for messages. Thread-safe.
  std::string shown_name(std::int64_t input) const;

 private:
  bool take(TextChunk& chunk);
  class Whole;
  bool open_next();
  bool next_lines(TextChunk& chunk);
  bool next_part(TextChunk& chunk);
  bool fill(std::string& bytes);

  std::vector<TextInput> inputs_;
  std::size_t chunk_bytes_;
  bool count_lines_;
  std::size_t most_document_;
  TextPosition at_;
  std::int64_t stored_before_ = 0;  // stored bytes of the inputs before this one
  std::unique_ptr<files::InputStream> stream_;
  bool checked_ = false;  // the checksum of this input is computed
  bool ended_ = false;    // of stream_
  std::string rest_;      // text read after the last chunk
  std::unique_ptr<Whole> whole_;
};

/// Number of lines of a text with Python's universal newlines: \n, \r\n or \r ends a line.
std::int64_t count_lines(std::string_view text);
/// Removes the next line from `rest` and stores it, without its line end, in `line`; returns false if there is none.
bool take_line(std::string_view& rest, std::string_view& line);
/// Removes the next paragraph, the lines between empty lines, from `rest` and stores it, without its last line end, in
/// `paragraph`. `first_line` becomes the number of lines before the paragraph; `lines` is increased by the number of
/// removed lines. Returns false if only empty lines are left.
bool take_paragraph(std::string_view& rest, std::string_view& paragraph, std::int64_t& lines, std::int64_t& first_line);

}  // namespace tessera::preprocessing
