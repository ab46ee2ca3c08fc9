#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/json.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::cli {

/// The conversations in `file`: a JSON list of messages, {"role": "user", "content": "..."}, an object with such a list
/// as "messages", or a list of such lists or objects. Never empty. Throws ConfigError if the file cannot be read or is
/// none of these.
std::vector<Json> conversations_in(const std::string& file);
/// A conversation of one message of the user.
Json conversation_of(const std::string& words);

/// The tokens of `messages` as the chat template of the tokenizer renders them, to the beginning of the assistant's
/// answer. A template that asks for the date gets today's (UTC). Throws ConfigError if the tokenizer has no chat
/// template, or the template refuses the messages.
std::vector<std::int32_t> chat_prompt(const tokenizers::Tokenizer& tokenizer, const Json& messages);

}  // namespace tessera::cli
