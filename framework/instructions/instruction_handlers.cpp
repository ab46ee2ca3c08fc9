#include "framework/instructions/instruction_handlers.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/json.h"

namespace tessera::instructions {
namespace {

using Role = Conversation::Role;

// What Python takes for false.
bool is_falsy(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_number() && value == 0) ||
         (value.is_string() && value.string().empty()) || (value.is_structured() && value.empty());
}

std::string words_of(const Json& value, const std::string& what) {
  if (!value.is_string())
    throw ConfigError(text(what, " is ", value.type_name(), "; expected a text, correct or remove the row"));
  return value.string();
}

// A missing key is null, as in a table.
const Json& field(const Json& object, const std::string& key) {
  static const Json null;
  const auto found = object.find(key);
  return found == nullptr ? null : *found;
}

}  // namespace

InstructionHandler::InstructionHandler(const std::string& name, const std::string& map_keys) {
  is_alpaca_ = name.starts_with("Alpaca");
  makes_pairs_ = name.ends_with("PairwiseHandler");
  const auto expected =
      text(is_alpaca_ ? "Alpaca" : "Sharegpt", "Style", makes_pairs_ ? "Pairwise" : "Instruction", "Handler");
  if (name != expected)
    throw ConfigError(
        text("--handler-name: '", name,
             "' is not supported; expected AlpacaStyleInstructionHandler, SharegptStyleInstructionHandler, "
             "AlpacaStylePairwiseHandler or SharegptStylePairwiseHandler (without the flag, texts are "
             "encoded)"));
  if (!map_keys.empty()) map_names(map_keys);
  for (const auto& [key, column] : names())
    if (!column->empty() && std::find(columns_.begin(), columns_.end(), *column) == columns_.end())
      columns_.push_back(*column);
}

// The names of --map-keys, each with its column.
std::vector<std::pair<std::string, std::string*>> InstructionHandler::names() {
  std::vector<std::pair<std::string, std::string*>> all;
  if (is_alpaca_)
    all = {{"prompt", &prompt_}, {"query", &query_}};
  else
    all = {{"messages", &messages_}};
  if (makes_pairs_)
    all.insert(all.end(), {{"chosen", &chosen_}, {"rejected", &rejected_}});
  else if (is_alpaca_)
    all.emplace_back("response", &response_);
  if (is_alpaca_) all.emplace_back("history", &history_);
  all.emplace_back("system", &system_);
  if (!is_alpaca_) all.emplace_back("tools", &tools_);
  return all;
}

void InstructionHandler::map_names(const std::string& map_keys) {
  const auto map = parse_json(map_keys);
  if (!map.is_object())
    throw ConfigError(
        text("--map-keys: '", map_keys,
             "' is not a JSON object; expected for example '{\"prompt\": \"question\", \"query\": null}'"));
  const auto known = names();
  for (const auto& [key, value] : map.items()) {
    if (!is_alpaca_ && key == "tags") {
      map_tags(value);
      continue;
    }
    const auto same = [&wanted = key](const auto& one) { return one.first == wanted; };
    const auto at = std::find_if(known.begin(), known.end(), same);
    if (at == known.end()) {
      std::string all;
      for (const auto& one : known) all += text(all.empty() ? "" : ", ", one.first);
      throw ConfigError(
          text("--map-keys: '", key, "' is not a name of this handler; expected ", all, is_alpaca_ ? "" : ", tags"));
    }
    if (!value.is_null() && !value.is_string())
      throw ConfigError(text("--map-keys: the column of '", key, "' must be a text, or null for none"));
    *at->second = value.is_null() ? "" : value.string();
  }
  if (!is_alpaca_ && messages_.empty()) throw ConfigError("--map-keys: messages needs a column");
  if (makes_pairs_ && (chosen_.empty() || rejected_.empty()))
    throw ConfigError("--map-keys: chosen and rejected need a column each");
}

// As there, a tag that the object does not have has no name.
void InstructionHandler::map_tags(const Json& tags) {
  if (!tags.is_object()) throw ConfigError("--map-keys: tags must be an object");
  tags_ = {"", "", {}, {}, {}, {}, {}};
  for (const auto& [key, value] : tags.items()) {
    if (value.is_null()) continue;
    const auto name = words_of(value, text("--map-keys: tag '", key, "'"));
    if (key == "role_tag")
      tags_.role = name;
    else if (key == "content_tag")
      tags_.content = name;
    else if (key == "user_tag")
      tags_.user = name;
    else if (key == "assistant_tag")
      tags_.assistant = name;
    else if (key == "observation_tag")
      tags_.observation = name;
    else if (key == "function_tag")
      tags_.function = name;
    else if (key == "system_tag")
      tags_.system = name;
    else
      throw ConfigError(
          text("--map-keys: '", key,
               "' is not a tag; expected role_tag, content_tag, user_tag, assistant_tag, observation_tag, "
               "function_tag, system_tag"));
  }
  if (tags_.role.empty() || tags_.content.empty())
    throw ConfigError("--map-keys: tags replaces all tags, so it must give role_tag and content_tag too");
}

std::optional<Conversation> InstructionHandler::operator()(std::string_view line, std::vector<bool>& seen,
                                                           std::string& why) const {
  std::string mistake;
  const auto row = parse_json(line, &mistake);
  if (row.is_discarded()) throw ConfigError(text("is not JSON: ", mistake, "; correct or remove the row"));
  if (!row.is_object())
    throw ConfigError(text("is a JSON ", row.type_name(), "; expected an object, correct or remove the row"));
  for (std::size_t i = 0; i < columns_.size(); ++i)
    if (row.contains(columns_[i])) seen[i] = true;
  return is_alpaca_ ? alpaca(row, why) : sharegpt(row, why);
}

std::string InstructionHandler::system_of(const Json& row) const {
  if (system_.empty() || is_falsy(field(row, system_))) return "";
  return words_of(field(row, system_), text("'", system_, "'"));
}

// False, with the reason in `why`, if the row is left out.
bool InstructionHandler::append_response(const Json& row, Conversation& made, std::string& why) const {
  const auto& answer = response_.empty() ? Json() : field(row, response_);
  if (answer.is_string()) {
    made.messages.push_back({Role::assistant, answer.string()});
  } else if (answer.is_array() && !answer.empty()) {
    made.messages.push_back({Role::assistant, words_of(answer[0], text("an answer of '", response_, "'"))});
    made.is_emptied = answer.size() > 1;
    if (made.is_emptied) made.messages = {{Role::user, ""}, {Role::assistant, ""}};
  } else {
    why = text("'", response_, "' is neither a text nor a list of texts");
    return false;
  }
  return true;
}

// Of lists, which may be one column, the first answer is chosen and the second rejected.
bool InstructionHandler::append_answers(const Json& row, Conversation& made, std::string& why) const {
  const auto& chosen = field(row, chosen_);
  const auto& rejected = field(row, rejected_);
  if (!chosen.is_string() && !chosen.is_array()) {
    why = text("'", chosen_, "' is neither a text nor a list of texts");
    return false;
  }
  const bool listed = chosen.is_array();
  if (listed && (chosen.empty() || !rejected.is_array() || rejected.size() < 2))
    throw ConfigError(text("'", chosen_, "' is a list, so '", rejected_,
                           "' must be a list of at least two answers, of which the second is rejected; correct or "
                           "remove the row"));
  made.messages.push_back({Role::assistant, words_of(listed ? chosen[0] : chosen, text("'", chosen_, "'"))});
  made.rejected = words_of(listed ? rejected[1] : rejected, text("'", rejected_, "'"));
  return true;
}

std::optional<Conversation> InstructionHandler::alpaca(const Json& row, std::string& why) const {
  Conversation made;
  if (!history_.empty() && field(row, history_).is_array())
    for (const auto& turn : field(row, history_)) {
      if (!turn.is_array() || turn.size() != 2)
        throw ConfigError(text("'", history_, "' has an element that is not a pair of a prompt and an answer"));
      made.messages.push_back({Role::user, words_of(turn[0], text("a prompt of '", history_, "'"))});
      made.messages.push_back({Role::assistant, words_of(turn[1], text("an answer of '", history_, "'"))});
    }
  std::string content;
  bool first = true;
  for (const auto* column : {&prompt_, &query_}) {
    if (column->empty() || is_falsy(field(row, *column))) continue;
    if (!first) content += '\n';
    content += words_of(field(row, *column), text("'", *column, "'"));
    first = false;
  }
  made.messages.push_back({Role::user, content});
  if (makes_pairs_ ? !append_answers(row, made, why) : !append_response(row, made, why)) return std::nullopt;
  made.system = system_of(row);
  return made;
}

std::optional<Conversation> InstructionHandler::sharegpt(const Json& row, std::string& why) const {
  const auto& messages = field(row, messages_);
  if (!messages.is_array() || messages.empty())
    throw ConfigError(text("'", messages_, "' is ", messages.empty() ? "missing or empty" : messages.type_name(),
                           "; expected a list of messages, correct or remove the row"));
  for (const auto& message : messages)
    if (!message.is_object())
      throw ConfigError(text("a message of '", messages_, "' is ", message.type_name(), "; expected an object"));
  const auto& first = messages[0];
  const bool begins = tags_.system && !tags_.system->empty() && field(first, tags_.role) == *tags_.system;
  auto made = turns(messages, begins ? 1 : 0, why);
  if (!made || (makes_pairs_ && !append_answer_messages(row, *made, why))) return std::nullopt;
  if (begins) {
    const auto& content = field(first, tags_.content);
    made->system = content.is_null() ? "" : words_of(content, text("'", tags_.content, "' of the system message"));
  } else {
    made->system = system_of(row);
  }
  if (!tools_.empty() && !is_falsy(field(row, tools_)))
    throw ConfigError(text("'", tools_, "' has tools, which are not supported; remove them, or map tools to null"));
  return made;
}

bool InstructionHandler::append_answer_messages(const Json& row, Conversation& made, std::string& why) const {
  for (const auto* column : {&chosen_, &rejected_}) {
    const auto& answer = field(row, *column);
    if (!answer.is_object())
      throw ConfigError(text("'", *column, "' is ", answer.is_null() ? "missing" : answer.type_name(),
                             "; expected a message with '", tags_.role, "' and '", tags_.content,
                             "', correct or remove the row"));
    const auto& role = field(answer, tags_.role);
    if (tags_.function && role == *tags_.function)
      throw ConfigError(text("'", *column, "' calls a function (role '", *tags_.function,
                             "'), which is not supported; remove the row"));
    if (!tags_.assistant || role != *tags_.assistant) {
      why = text("'", *column, "' has the role ", role.dump(), " where '", tags_.assistant.value_or("null"),
                 "' is expected");
      return false;
    }
  }
  const auto content = [&](const std::string& column) {
    return words_of(field(field(row, column), tags_.content), text("'", tags_.content, "' of '", column, "'"));
  };
  made.messages.push_back({Role::assistant, content(chosen_)});
  made.rejected = content(rejected_);
  return true;
}

std::optional<Conversation> InstructionHandler::turns(const Json& messages, std::size_t begin, std::string& why) const {
  const auto is = [](const Json& role, const std::optional<std::string>& tag) {
    return tag ? role == *tag : role.is_null();
  };
  Conversation made;
  std::string refused;  // only if MindSpeed-LLM does not leave out the row for a later message
  for (std::size_t i = begin; i < messages.size(); ++i) {
    const auto& role = field(messages[i], tags_.role);
    const bool prompt = (i - begin) % 2 == 0;
    if (!(prompt ? is(role, tags_.user) || is(role, tags_.observation)
                 : is(role, tags_.assistant) || is(role, tags_.function))) {
      why = text("message ", i + 1, " has the role ", role.dump(), " where ",
                 prompt ? text("'", tags_.user.value_or("null"), "' or '", tags_.observation.value_or("null"), "'")
                        : text("'", tags_.assistant.value_or("null"), "' or '", tags_.function.value_or("null"), "'"),
                 " is expected");
      return std::nullopt;
    }
    const auto& content = field(messages[i], tags_.content);
    if (content.is_null()) continue;  // there this message alone is left out
    // Of equal tags the last one counts.
    if (refused.empty() && is(role, tags_.system))
      refused = text("message ", i + 1, " has the role system, which only the first may have; correct the row");
    else if (refused.empty() && is(role, tags_.function))
      refused = text("message ", i + 1, " calls a function (role '", tags_.function.value_or("null"),
                     "'), which is not supported; remove the row");
    made.messages.push_back({is(role, tags_.observation) ? Role::observation
                             : is(role, tags_.assistant) ? Role::assistant
                                                         : Role::user,
                             words_of(content, text("'", tags_.content, "' of message ", i + 1))});
  }
  if (made.messages.empty())
    why = "there is no message";
  else if (made.messages.size() % 2 != (makes_pairs_ ? 1U : 0U))
    why = text("there are ", made.messages.size(), " messages, ",
               makes_pairs_ ? "an even number; the last one before the two answers must be a prompt" : "an odd number");
  if (!why.empty()) return std::nullopt;
  if (!refused.empty()) throw ConfigError(refused);
  return made;
}

}  // namespace tessera::instructions
