#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/preprocessing/input_stream.h"
#include "framework/data/preprocessing/text_file.h"

namespace tessera::data {

/// How far a text was read.
struct TextPosition {
  std::int64_t input = 0;      ///< number of the input
  std::int64_t offset = 0;     ///< in its decompressed bytes
  std::int64_t lines = 0;      ///< in the inputs before and in this one up to here; only if lines are counted
  std::uint32_t checksum = 0;  ///< CRC-32C of the bytes before `offset`, of inputs that are no regular files
};

/// A piece of an input that can be encoded alone: whole documents, or a part of a document that is a whole file.
struct TextChunk {
  std::string bytes;
  std::int64_t input = 0;
  std::int64_t first_line = 0;  ///< lines in all inputs before it; only if lines are counted
  bool ends_document = true;    ///< of whole_file: whether it is the document's last part
  TextPosition end;             ///< behind it
  std::int64_t stored = 0;      ///< bytes of all inputs, as stored, that were read up to here: for progress
};

struct TextInput {
  std::string name;  ///< "-" is standard input
  TextFormat format = TextFormat::json_lines;
  std::vector<std::string> columns = {};  ///< of a Parquet file: its rows are read as JSON lines of these columns
};

/// Cuts inputs into chunks. Reads ahead no more than a chunk, which is longer than `chunk_bytes` only if a line or
/// paragraph is.
class ChunkReader {
 public:
  ChunkReader(std::vector<TextInput> inputs, std::size_t chunk_bytes, bool count_lines);
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;
  ~ChunkReader();
  /// Continue from there. Throws ConfigError if an input does not begin with the bytes that were read before.
  void go_to(const TextPosition& position);
  /// The next chunk; false at the end. Throws ConfigError as InputStream does.
  bool next(TextChunk& chunk);

 private:
  class Whole;
  bool open_next();
  bool next_lines(TextChunk& chunk);
  bool next_part(TextChunk& chunk);
  bool fill(std::string& bytes);

  std::vector<TextInput> inputs_;
  std::size_t chunk_bytes_;
  bool count_lines_;
  TextPosition at_;
  std::int64_t stored_before_ = 0;  // bytes of the inputs before
  std::unique_ptr<InputStream> stream_;
  bool checked_ = false;  // the bytes of this input count for the checksum
  bool ended_ = false;    // of stream_
  std::string rest_;      // read, behind the last chunk
  std::unique_ptr<Whole> whole_;
};

/// The lines of a text as Python's universal newlines has them: \n, \r\n or \r ends one.
std::int64_t count_lines(std::string_view text);
/// Take the next line from `rest`, without its end; false if there is none.
bool take_line(std::string_view& rest, std::string_view& line);
/// Take the next paragraph, the lines between empty ones, without the end of its last line; `lines` grows by the lines
/// taken, and `first_line` is the number of lines before the paragraph. False if only empty lines are left.
bool take_paragraph(std::string_view& rest, std::string_view& paragraph, std::int64_t& lines, std::int64_t& first_line);

}  // namespace tessera::data
