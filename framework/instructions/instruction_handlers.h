#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/json.h"

namespace tessera::instructions {

/// A row of instruction data as a conversation: alternating prompts and answers. Of a pair, the last answer is the
/// chosen one.
struct Conversation {
  enum class Role : std::uint8_t { user, assistant, observation, function };
  struct Message {
    Role role = Role::user;
    std::string content;
  };
  std::vector<Message> messages;  ///< an even number of messages
  std::string system;             ///< system message; empty: the template's default
  std::string rejected;           ///< of a pair: the answer that is rejected
  /// The row has several answers. MindSpeed-LLM takes none of them: it makes an empty prompt and an empty answer.
  bool is_emptied = false;
};

/// Converts rows to conversations, as MindSpeed-LLM's AlpacaStyleInstructionHandler and SharegptStyleInstructionHandler
/// do, or to pairs, as its AlpacaStylePairwiseHandler and SharegptStylePairwiseHandler. Const and thread-safe.
class InstructionHandler {
 public:
  /// `name`: of the handler, as in --handler-name. `map_keys`: the JSON object of --map-keys, or empty. Throws
  /// ConfigError if the handler is not supported, or `map_keys` has names that the handler does not have.
  InstructionHandler(const std::string& name, const std::string& map_keys);

  /// Whether each row is a pair of a chosen and a rejected answer.
  bool makes_pairs() const { return makes_pairs_; }
  /// Columns that must occur in at least one row; in a row without the column its value is null.
  const std::vector<std::string>& columns() const { return columns_; }
  /// The conversation of a row; nothing if MindSpeed-LLM skips the row, then `why` is the reason. `seen` has a flag for
  /// each column, which is set if the row has the column. Throws ConfigError, without file and line, for a row at which
  /// MindSpeed-LLM stops with an error.
  std::optional<Conversation> operator()(std::string_view row, std::vector<bool>& seen, std::string& why) const;

 private:
  struct Tags {
    std::string role = "from", content = "value";
    // Name of each role; null: there is no such role.
    std::optional<std::string> user = "human", assistant = "gpt", observation = "observation",
                               function = "function_call", system = "system";
  };
  void map_names(const std::string& map_keys);
  std::vector<std::pair<std::string, std::string*>> names();
  void map_tags(const Json& tags);
  std::optional<Conversation> alpaca(const Json& row, std::string& why) const;
  std::optional<Conversation> sharegpt(const Json& row, std::string& why) const;
  std::optional<Conversation> turns(const Json& messages, std::size_t first, std::string& why) const;
  bool append_response(const Json& row, Conversation& made, std::string& why) const;
  bool append_answers(const Json& row, Conversation& made, std::string& why) const;
  bool append_answer_messages(const Json& row, Conversation& made, std::string& why) const;
  std::string system_of(const Json& row) const;

  bool is_alpaca_ = false, makes_pairs_ = false;
  // Columns; empty: none.
  std::string prompt_ = "instruction", query_ = "input", response_ = "output", history_, system_, tools_;
  std::string messages_ = "conversations", chosen_ = "chosen", rejected_ = "rejected";
  Tags tags_;
  std::vector<std::string> columns_;
};

}  // namespace tessera::instructions
