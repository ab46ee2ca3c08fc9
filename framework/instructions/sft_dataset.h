#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/data/sampler.h"
#include "framework/gpt/split.h"
#include "framework/tokenizers/sft_tokenizer.h"

namespace tessera::instructions {

/// A file of JSON lines with conversations: each line is an object whose `messages` is a list of {"role", "content"};
/// `tools`, if it has them, is a list of objects for the chat template.
/// The file is memory-mapped; only the positions of lines are kept in memory. Blank lines are ignored. Thread-safe.
class ConversationFile {
 public:
  /// Throws ConfigError if the file cannot be read or has no line.
  explicit ConversationFile(const std::string& name);

  std::int64_t lines() const { return static_cast<std::int64_t>(lines_.size()); }
  /// "file:line" of line `line`, counted from 0 without blank lines.
  std::string place(std::int64_t line) const;
  struct Conversation {
    Json messages;
    Json tools;  ///< `tools` of the line: a list of objects; null: none
  };
  /// The conversations of line `line`: each begins at a message with role system, or at the beginning of the line.
  /// Throws ConfigError, beginning with file:line, if the line is not a JSON object with messages; IoError if the file
  /// was truncated.
  std::vector<Conversation> conversations(std::int64_t line) const;

 private:
  std::vector<Conversation> parsed(std::int64_t line) const;
  struct Line {
    std::size_t begin;
    std::int64_t number;  // in the file, from 1
  };
  std::string name_;
  MappedFile file_;
  std::string_view all_;
  std::vector<Line> lines_;
};

/// Megatron-LM's SFTDataset: sample i contains the conversations of line i % lines of its range, each with positions
/// from 0 and attention only within itself, cut and padded to seq_length. Padding belongs to the last conversation.
/// Labels are the next targets; the loss mask is 0 where there is no target, at padding, and for labels that
/// SftTokenizer::ignores_pad_in_text excludes.
class SftDataset final : public data::Dataset {
 public:
  struct Request {
    gpt::SequenceRange lines;  ///< range of lines of the file
    std::int64_t samples = 0;  ///< may exceed the number of lines; lines then repeat in the same order
    std::int64_t seq_length = 0;
    std::int64_t lines_per_sample = 1;  ///< number of consecutive lines in one sample
    std::int64_t vocab_size = 0;  ///< reading a token id that is not below this throws ConfigError; 0: not checked
  };
  /// Throws ConfigError if the range is empty.
  SftDataset(std::shared_ptr<const ConversationFile> file, std::shared_ptr<const tokenizers::SftTokenizer> tokenizer,
             const Request& request);

  std::int64_t samples() const override { return request_.samples; }
  std::int64_t seq_length() const override { return request_.seq_length; }
  /// Unlike other datasets, this one allocates memory: it parses and encodes text. Throws ConfigError, beginning with
  /// file:line, for a line that has no tokens or that SftTokenizer rejects.
  void read(std::int64_t index, const SampleView& out) const override;

 private:
  std::shared_ptr<const ConversationFile> file_;
  std::shared_ptr<const tokenizers::SftTokenizer> tokenizer_;
  Request request_;
};

}  // namespace tessera::instructions
