#pragma once

#include <cstdint>
#include <string>

#include "framework/cli/command.h"
#include "framework/instructions/instruction_writer.h"

namespace tessera::cli {

/// The flags of `tessera data preprocess` that apply only to instruction data, with MindSpeed-LLM's names.
class InstructionFlags {
 public:
  void add_to(Command& command);
  /// Whether --handler-name is given.
  bool used() const { return !request_.handler_name.empty(); }
  /// Whether it names a handler of pairs.
  bool makes_pairs() const { return request_.handler_name.ends_with("PairwiseHandler"); }
  /// Throws ConfigError if a flag of this class is given without --handler-name.
  void check_unused() const;
  /// Returns the complete request: these flags combined with `texts`, the flags that texts and instructions share.
  /// Throws ConfigError if `texts` has a setting that instruction data does not support.
  instructions::InstructionWriteRequest with(const preprocessing::PreprocessRequest& texts) const;

 private:
  instructions::InstructionWriteRequest request_;
  std::int64_t seq_length_ = 0;  // 0: not given
  bool overwrite_cache_ = false;
  std::string cache_dir_;
  int subsets_ = 1;
};

}  // namespace tessera::cli
