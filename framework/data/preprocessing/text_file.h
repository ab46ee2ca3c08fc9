#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/files.h"

namespace tessera::data {

/// How documents lie in a text file.
enum class TextFormat {
  json_lines,   ///< one JSON object each line; the text is the value of a key: a text, or a list of texts
  blank_lines,  ///< a document is what stands between empty lines, without its last line end
  whole_file,   ///< the file is one document, every byte of it; see cut_long_text
};

/// By the name of a file: .txt, .text and .md are one document each, all else is JSON lines.
TextFormat format_by_name(const std::string& name);

/// A long text as about 200 parts of 4 kB to 1 MB each, cut behind line ends where GPT-2's expression cuts too, so that
/// the ids of the parts are the ids of the whole. As sequences of one document they give splitting and shuffling
/// something to work with.
std::vector<std::string_view> cut_long_text(std::string_view text);

/// A document as it lies in the file, not looked into yet.
struct RawDocument {
  std::string_view bytes;
  std::int64_t line = 0;  ///< where it begins, from 1
};

/// A text file, cut into documents in order. Mapped, so it may be larger than memory. Errors are ConfigErrors that
/// begin with "file:line:".
class TextFile {
 public:
  /// Throws ConfigError when the file cannot be read.
  TextFile(const std::string& name, TextFormat format);

  /// The next document; false at the end.
  bool next(RawDocument& document);
  /// Append the texts of a document: for each key one list, of one text or as many as the JSON list has. Without JSON
  /// there is one text, whatever the key. May be called by several threads. Throws ConfigError for a line that is no
  /// JSON object with these keys, and for bytes that are not UTF-8.
  void texts(const RawDocument& document, std::span<const std::string> keys,
             std::vector<std::vector<std::string>>& out) const;

  const std::string& name() const { return name_; }
  std::int64_t position() const { return static_cast<std::int64_t>(at_); }
  std::int64_t size() const { return static_cast<std::int64_t>(all_.size()); }

 private:
  std::string_view next_line();
  bool next_paragraph(RawDocument& document);
  void check_utf8(const RawDocument& document) const;
  void json_texts(const RawDocument& document, std::span<const std::string> keys,
                  std::vector<std::vector<std::string>>& out) const;

  std::string name_;
  TextFormat format_;
  MappedFile file_;
  std::string_view all_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0;  // lines before at_
};

}  // namespace tessera::data
