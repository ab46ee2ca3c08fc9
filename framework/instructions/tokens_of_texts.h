#pragma once

#include <filesystem>
#include <string>

#include "framework/data/tell_line.h"
#include "framework/instructions/instruction_writer.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::instructions {

/// The prefix of the token files of `request`, whose `output_prefix` is not read: they are in a folder of their own
/// below `folder`, named after a digest of the request, of the names, sizes and times of its inputs and of the
/// tokenizer. If there is none yet, one process of each file system writes it, under a lock file beside it, and the
/// others wait; it appears complete or not at all. `tell` gets a line before it is written, and one with what rows were
/// left out.
///
/// Throws what write_instructions throws; ConfigError for standard input as an input, and if `folder` is read-only.
std::string tokens_of_texts(const tokenizers::Tokenizer& tokenizer, const InstructionWriteRequest& request,
                            const std::filesystem::path& folder, const data::TellLine& tell);

/// The folder for tokens_of_texts() beside the first input: "data/cache/instructions" of data/pairs.json.
std::filesystem::path folder_of_tokens(const InstructionWriteRequest& request);

}  // namespace tessera::instructions
