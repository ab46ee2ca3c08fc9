#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::instructions {

/// A row of instruction data as a conversation: alternating prompts and answers.
struct Conversation {
  enum class Role : std::uint8_t { user, assistant, observation };
  struct Message {
    Role role = Role::user;
    std::string content;
  };
  std::vector<Message> messages;  ///< an even number of messages
  std::string system;             ///< system message; empty: the template's default
};

/// Converts rows to conversations, as MindSpeed-LLM's AlpacaStyleInstructionHandler and SharegptStyleInstructionHandler
/// do. Const and thread-safe.
class InstructionHandler {
 public:
  /// `name`: of the handler, as in --handler-name. `map_keys`: the JSON object of --map-keys, or empty. Throws
  /// ConfigError if the handler is not supported, or `map_keys` has names that the handler does not have.
  InstructionHandler(const std::string& name, const std::string& map_keys);

  /// Columns that must occur in at least one row; in a row without the column its value is null.
  const std::vector<std::string>& columns() const { return columns_; }
  /// The conversation of a row; nothing if MindSpeed-LLM skips the row, then `why` is the reason. `seen` has a flag for
  /// each column, which is set if the row has the column. Throws ConfigError, without file and line, for a row at which
  /// MindSpeed-LLM stops with an error.
  std::optional<Conversation> operator()(std::string_view row, std::vector<bool>& seen, std::string& why) const;

 private:
  using Json = nlohmann::ordered_json;
  struct Tags {
    std::string role = "from", content = "value";
    // Name of each role; null: there is no such role.
    std::optional<std::string> user = "human", assistant = "gpt", observation = "observation",
                               function = "function_call", system = "system";
  };
  void map_names(const std::string& map_keys);
  void map_tags(const Json& tags);
  std::optional<Conversation> alpaca(const Json& row, std::string& why) const;
  std::optional<Conversation> sharegpt(const Json& row, std::string& why) const;
  std::optional<Conversation> turns(const Json& messages, std::size_t first, std::string& why) const;
  std::string system_of(const Json& row) const;

  bool is_alpaca_ = false;
  // Columns; empty: none.
  std::string prompt_ = "instruction", query_ = "input", response_ = "output", history_, system_, tools_;
  std::string messages_ = "conversations";
  Tags tags_;
  std::vector<std::string> columns_;
};

}  // namespace tessera::instructions
