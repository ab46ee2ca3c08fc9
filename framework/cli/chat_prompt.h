#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "framework/tokenizers/tokenizer.h"

namespace tessera::cli {

/// The conversation in `file`: a JSON list of messages, {"role": "user", "content": "..."}, or an object with such a
/// list as "messages". Throws ConfigError if the file cannot be read or is neither.
nlohmann::ordered_json conversation_in(const std::string& file);
/// A conversation of one message of the user.
nlohmann::ordered_json conversation_of(const std::string& words);

/// The tokens of `messages` as the chat template of the tokenizer renders them, to the beginning of the assistant's
/// answer. A template that asks for the date gets today's (UTC). Throws ConfigError if the tokenizer has no chat
/// template, or the template refuses the messages.
std::vector<std::int32_t> chat_prompt(const tokenizers::Tokenizer& tokenizer, const nlohmann::ordered_json& messages);

}  // namespace tessera::cli
