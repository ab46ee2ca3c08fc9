#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

/// A row of instruction data as turns: prompts and answers in alternation, in the order of the conversation.
struct Conversation {
  enum class Role : std::uint8_t { user, assistant, observation };
  struct Message {
    Role role = Role::user;
    std::string content;
  };
  std::vector<Message> messages;  ///< an even number
  std::string system;             ///< empty: the template's own
};

/// Turns rows into conversations, as MindSpeed-LLM's AlpacaStyleInstructionHandler and SharegptStyleInstructionHandler.
/// Const and safe to share between threads.
class InstructionHandler {
 public:
  /// `map_keys`: the JSON object of --map-keys, or empty. Throws ConfigError for a handler that is not supported, and
  /// for names that the handler does not have.
  InstructionHandler(const std::string& name, const std::string& map_keys);

  /// Columns that some row must have: a key that a row lacks is null there.
  const std::vector<std::string>& columns() const { return columns_; }
  /// The conversation of a row; null if MindSpeed-LLM leaves out the row, and then `why` says the reason. `seen` has a
  /// flag for each column, set for those that the row has. Throws ConfigError, without file and line, for a row at
  /// which MindSpeed-LLM stops.
  std::optional<Conversation> operator()(std::string_view row, std::vector<bool>& seen, std::string& why) const;

 private:
  using Json = nlohmann::ordered_json;
  struct Tags {
    std::string role = "from", content = "value";
    // What a role is called; null: no role has this meaning.
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

}  // namespace tessera::data
