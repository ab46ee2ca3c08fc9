#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/files.h"

namespace tessera::files {

/// How a text file is divided into documents.
enum class TextFormat {
  json_lines,   ///< one JSON object per line; the text is the value of a key: a text, or a list of texts
  blank_lines,  ///< documents are separated by empty lines; the last line end of a document is removed
  whole_file,   ///< the whole file is one document
};

/// The format by file name: .txt, .text and .md are whole_file, all others json_lines.
TextFormat format_by_name(const std::string& name);

/// Divides a long text into about 200 parts of 4 kB to 1 MB each, cut behind a line end between two ASCII characters
/// that are no blanks, of which the second is not '/'. There the expressions of GPT-2 and tiktoken cut too, so that the
/// ids of the parts are the ids of the whole; see Tokenizer::may_be_cut_at_lines(). As sequences of one document, the
/// parts make splitting and shuffling effective.
std::vector<std::string_view> cut_long_text(std::string_view text);

/// The unparsed bytes of a document in the file.
struct RawDocument {
  std::string_view bytes;
  std::int64_t line = 0;  ///< line at which it begins, from 1
};

/// Divides a text file into documents, in order. The file is memory-mapped, so it may be larger than memory. Errors are
/// ConfigErrors that begin with "file:line:", and IoErrors if the file is truncated while it is read.
class TextFile {
 public:
  /// Throws ConfigError when the file cannot be read, or is compressed.
  TextFile(const std::string& name, TextFormat format);

  /// Reads the next document; returns false at the end. Its bytes are valid as long as this object.
  bool next(RawDocument& document);
  /// Appends the texts of a document: for each key one list, with one text, or all texts of the JSON list. For formats
  /// without JSON there is one text, independent of the key. Thread-safe. Throws ConfigError for a line that is not a
  /// JSON object with these keys, and for bytes that are not UTF-8.
  void texts(const RawDocument& document, std::span<const std::string> keys,
             std::vector<std::vector<std::string>>& out) const;

  const std::string& name() const { return name_; }
  std::int64_t position() const { return static_cast<std::int64_t>(at_); }
  std::int64_t size() const { return static_cast<std::int64_t>(all_.size()); }

 private:
  std::string_view next_line();
  bool take(RawDocument& document);
  bool next_paragraph(RawDocument& document);
  void check_utf8(const RawDocument& document) const;
  void read_texts(const RawDocument& document, std::span<const std::string> keys,
                  std::vector<std::vector<std::string>>& out) const;
  void json_texts(const RawDocument& document, std::span<const std::string> keys,
                  std::vector<std::vector<std::string>>& out) const;

  std::string name_;
  TextFormat format_;
  MappedFile file_;
  std::string_view all_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0;  // lines before at_
};

}  // namespace tessera::files
