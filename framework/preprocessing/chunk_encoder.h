#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/files/json_line.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/preprocessing/text_chunks.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::preprocessing {

/// The rule that distributes documents over partitions.
struct Dealing {
  /// One partition; lines in turn; blocks of lines; one partition per input.
  enum class Rule { one, turns, blocks, inputs };
  Rule rule = Rule::one;
  std::int64_t partitions = 1;
  std::int64_t block = 1;  ///< for blocks: lines of a partition
  std::int64_t partition_of(std::int64_t line, std::int64_t input) const {
    switch (rule) {
      case Rule::turns:
        return line % partitions;
      case Rule::blocks:
        return std::min(line / block, partitions - 1);
      case Rule::inputs:
        return input;
      case Rule::one:
        break;
    }
    return 0;
  }
};

struct EncodingOptions {
  std::vector<files::TextFormat> formats;  ///< one for each input
  std::vector<std::string> keys;           ///< keys of JSON lines; a single empty key for plain text
  bool append_eod = false;
  bool lists_only = false;  ///< sentence splitting is requested: a value that is a single string is an error
  bool skip_bad = false;    ///< skip documents that cannot be encoded and continue
  Dealing dealing;
};

/// The result of encoding a chunk.
struct EncodedChunk {
  /// The documents of one partition and key, in the form of IndexedDatasetBuilder::add_documents.
  struct Output {
    std::vector<std::byte> tokens;
    std::vector<std::int32_t> lengths, sequences;
  };
  struct Bad {
    std::int64_t line = 0;  ///< line in the chunk, from 0
    std::string what;
  };
  static constexpr std::size_t most_bad_told = 5;

  std::vector<Output> outputs;  ///< [partitions][keys]
  std::int64_t documents = 0, lines = 0, skipped = 0;
  std::vector<Bad> bad;  ///< the first skipped documents, or the document at which encoding stopped
  void clear();
};

/// Encodes chunks of text. Each thread needs its own. `tokenizer` and `options` must outlive it.
class ChunkEncoder {
 public:
  ChunkEncoder(const tokenizers::Tokenizer& tokenizer, const EncodingOptions& options);
  /// Encodes `chunk` into `out`. Does not throw for errors in the text; it reports them in EncodedChunk::bad.
  void encode(const TextChunk& chunk, EncodedChunk& out);

 private:
  // Sizes of an output before a document, to remove a document that fails halfway.
  struct Mark {
    explicit Mark(const EncodedChunk::Output& of)
        : tokens(of.tokens.size()), lengths(of.lengths.size()), sequences(of.sequences.size()) {}
    void restore(EncodedChunk::Output& to) const {
      to.tokens.resize(tokens);
      to.lengths.resize(lengths);
      to.sequences.resize(sequences);
    }
    std::size_t tokens, lengths, sequences;
  };
  void encode_json(const TextChunk& chunk, EncodedChunk& out);
  void encode_paragraphs(const TextChunk& chunk, EncodedChunk& out);
  void encode_part(const TextChunk& chunk, EncodedChunk& out);
  bool encode_json_line(std::string_view line, bool is_utf8, EncodedChunk::Output* outputs, std::string& what);
  void encode_text(std::string_view text, EncodedChunk::Output& to);
  void end_document(EncodedChunk::Output& to, std::size_t sequences_before);
  void store_ids(EncodedChunk::Output& to);
  [[noreturn]] void refuse_wide_id() const;
  bool note_bad(EncodedChunk& out, std::int64_t line, std::string what) const;

  const tokenizers::Tokenizer& tokenizer_;
  const EncodingOptions& options_;
  std::size_t item_;  // bytes of a token in the output
  std::unique_ptr<tokenizers::Tokenizer::Encoder> encoder_;
  files::JsonLine json_;
  std::vector<std::int32_t> ids_;
  std::vector<Mark> marks_;
};

}  // namespace tessera::preprocessing
