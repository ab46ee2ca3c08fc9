#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/indexed/indexed_dataset.h"
#include "framework/data/preprocessing/json_line.h"
#include "framework/data/tokenizers/text_chunks.h"
#include "framework/data/tokenizers/tokenizer.h"

namespace tessera::data {

/// How documents are dealt to partitions.
struct Dealing {
  enum class Rule { one, turns, blocks, inputs };
  Rule rule = Rule::one;
  std::int64_t partitions = 1;
  std::int64_t block = 1;  ///< of blocks: lines of a partition
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
  std::vector<TextFormat> formats;  ///< of each input
  std::vector<std::string> keys;    ///< of JSON lines; one empty key for plain text
  bool append_eod = false;
  bool lists_only = false;  ///< sentence splitting is asked for, so that a single string is refused
  bool skip_bad = false;    ///< continue behind a document that cannot be encoded
  Dealing dealing;
};

/// What became of a chunk.
struct EncodedChunk {
  /// For one partition and one key, as IndexedDatasetBuilder::add_documents takes it.
  struct Output {
    std::vector<std::byte> tokens;
    std::vector<std::int32_t> lengths, sequences;
  };
  struct Bad {
    std::int64_t line = 0;  ///< from the chunk's beginning, from 0
    std::string what;
  };
  static constexpr std::size_t most_bad_told = 5;

  std::vector<Output> outputs;  ///< [partitions][keys]
  std::int64_t documents = 0, lines = 0, skipped = 0;
  std::vector<Bad> bad;  ///< the first of those skipped, or the one at which encoding stopped
  void clear();
};

/// Turns chunks of text into tokens. One for each thread.
class ChunkEncoder {
 public:
  ChunkEncoder(const Tokenizer& tokenizer, const EncodingOptions& options);
  /// Never throws for what the text holds: see EncodedChunk::bad.
  void encode(const TextChunk& chunk, EncodedChunk& out);

 private:
  // How much there was of an output before a document, so that a document that fails half-way leaves nothing.
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
  bool note_bad(EncodedChunk& out, std::int64_t line, std::string what) const;

  const Tokenizer& tokenizer_;
  const EncodingOptions& options_;
  std::size_t item_;  // bytes of a token
  std::unique_ptr<Tokenizer::Encoder> encoder_;
  JsonLine json_;
  std::vector<std::int32_t> ids_;
  std::vector<Mark> marks_;
};

}  // namespace tessera::data
