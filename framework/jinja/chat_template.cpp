#include "framework/jinja/chat_template.h"

#include <algorithm>
#include <new>

#include "framework/jinja/chat_template_render.h"
#include "framework/unicode/utf8.h"

namespace tessera::jinja {

struct ChatTemplate::Parsed {
  std::unique_ptr<const Node> root;
  std::string name;
  ChatTemplateLimits limits;
  bool has_tools = false;

  // "line 3: what" becomes "name:3: what".
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(what.rfind("line ", 0) == 0 ? text(name, ":", what.substr(5)) : text(name, ": ", what));
  }
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name, const ChatTemplateLimits& limits) {
  auto parsed = std::make_unique<Parsed>();
  parsed->name = std::move(name);
  parsed->limits = limits;
  parsed->has_tools = source.find("tools") != std::string_view::npos;
  if (static_cast<std::int64_t>(source.size()) > limits.source_bytes)
    parsed->fail(text("the chat template has ", source.size(), " bytes; the limit is ", limits.source_bytes));
  if (const auto at = unicode::first_not_utf8(source); at != std::string_view::npos)
    parsed->fail(text("line ", 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at), '\n'),
                      ": the chat template is not UTF-8"));
  try {
    parsed->root = parse_template(source);
  } catch (const ConfigError& error) {
    parsed->fail(error.what());
  }
  parsed_ = std::move(parsed);
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

namespace {

// Transformers leaves out members that are null, and gives reasoning under the names of all templates.
TemplateValue message_of(const Json& json) {
  if (!json.is_object()) throw ConfigError("a message of the conversation is not an object");
  const Json* reasoning = nullptr;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = json.find(name);
    if (!reasoning && found != nullptr && !found->is_null()) reasoning = found;
  }
  std::vector<std::pair<TemplateValue, TemplateValue>> items;
  if (reasoning) items.emplace_back(TemplateValue::of("thinking"), from_json(*reasoning));
  for (const auto& [key, value] : json.items())
    if (!value.is_null()) items.emplace_back(TemplateValue::of(key), from_json(value));
  if (reasoning) items.emplace_back(TemplateValue::of("reasoning_content"), from_json(*reasoning));
  return make_dict(std::move(items));
}

}  // namespace

bool ChatTemplate::has_tools() const { return parsed_->has_tools; }

std::string ChatTemplate::render(const Json& messages, const ChatTemplateInput& input) const {
  try {
    if (!messages.is_array() || messages.empty()) throw ConfigError("a conversation is a list of at least one message");
    std::map<std::string, TemplateValue, std::less<>> variables;
    for (const auto& [name, token] : input.special_tokens) variables[name] = TemplateValue::of(token);
    Values list;
    for (const auto& message : messages) list.push_back(message_of(message));
    variables["messages"] = make_list(std::move(list));
    variables["tools"] = input.tools.is_null() ? TemplateValue::none() : from_json(input.tools);
    variables["documents"] = TemplateValue::none();
    variables["add_generation_prompt"] = TemplateValue(input.add_generation_prompt);
    return Renderer(parsed_->limits, input).run(*parsed_->root, std::move(variables));
  } catch (const ConfigError& error) {
    parsed_->fail(error.what());
  } catch (const std::bad_alloc&) {
    parsed_->fail(text("rendering a conversation of ", messages.size(),
                       " messages needs more memory than the system "
                       "gives; a template may make ",
                       parsed_->limits.created_bytes, " bytes of texts and lists"));
  }
}

}  // namespace tessera::jinja
