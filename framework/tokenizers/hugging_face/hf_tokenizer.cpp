// Megatron-LM's _HuggingFaceTokenizer: what transformers' AutoTokenizer makes of a folder with tokenizer.json. That
// file says what comes before and behind a text: as in transformers 5, add_bos_token and add_eos_token have no effect
// beside it.

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/files/input_file.h"
#include "framework/options/mappings.h"
#include "framework/tokenizers/hugging_face/engine.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::tokenizers {
namespace {

using hugging_face::AddedToken;
using hugging_face::Engine;
using hugging_face::JsonValue;

struct HuggingFaceOptions {
  std::string tokenizer_model;
  std::optional<bool> split_special_tokens;
};

void describe(options::Schema<HuggingFaceOptions>& s) {
  s.when_changed(options::Change::file);
  s.option("tokenizer_model", &HuggingFaceOptions::tokenizer_model,
           "Folder with tokenizer.json, and tokenizer_config.json if it has one, as Hugging Face models come.");
  s.option("split_special_tokens", &HuggingFaceOptions::split_special_tokens,
           "Encode special tokens in a text as ordinary text, as Transformers does; null: as tokenizer_config.json "
           "says, else false.")
      .when_changed(options::Change::told)
      .no_flag("a key of MindSpeed-MM's data.json");
}

constexpr std::array<std::string_view, 7> special_names = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                           "pad_token", "cls_token", "mask_token"};

const options::Value& class_defaults() {
  static const auto table = options::Mappings().table("tokenizers/transformers.yaml");
  return *table.find("classes");
}

// The row of mappings/ whose `field` is `value`; null if there is none.
const options::Value* class_with(const std::string& field, std::string_view value) {
  for (const auto& row : class_defaults().items)
    if (const auto* has = row.find(field); has != nullptr && has->scalar == value) return &row;
  return nullptr;
}

// The members of an object that are not null, in their order.
std::vector<std::pair<std::string, JsonValue>> fields_of(const JsonValue& value) {
  if (!value.is_object()) value.refuse("expected an object");
  std::vector<std::pair<std::string, JsonValue>> all;
  for (const auto& [name, one] : value.json().items())
    if (!one.is_null()) all.emplace_back(name, value.at(name));
  return all;
}

// A JSON file beside tokenizer.json that need not be there.
class SideFile {
 public:
  SideFile(const std::filesystem::path& folder, const std::string& name) : name_((folder / name).string()) {
    if (!std::filesystem::exists(name_)) return;
    json_ = parse_json(files::read_input(name_, "tokenizer configuration"));
    if (json_.is_discarded()) throw ConfigError(text(name_, ": is not JSON; get the file again, or remove it"));
    there_ = true;
    if (!root().is_object()) root().refuse("expected an object");
  }
  bool is_there() const { return there_; }
  const std::string& name() const { return name_; }
  JsonValue root() const { return JsonValue(name_, json_); }
  std::optional<JsonValue> find(std::string_view field) const { return there_ ? root().find(field) : std::nullopt; }
  /// Whether it has the field, be it null.
  bool has(std::string_view field) const { return there_ && json_.contains(field); }
  /// Names and values that are not null, in the order of the file.
  std::vector<std::pair<std::string, JsonValue>> fields() const {
    return there_ ? fields_of(root()) : std::vector<std::pair<std::string, JsonValue>>();
  }

 private:
  std::string name_;
  Json json_;
  bool there_ = false;
};

// A special token is a text, or an object with its properties.
AddedToken added_token(const JsonValue& value, bool special) {
  AddedToken token;
  if (value.is_string()) {
    token.content = value.text();
    token.special = special;
    token.normalized = !special;
    return token;
  }
  token.content = value.at("content").text();
  token.special = special || value.boolean_of("special", false);
  token.single_word = value.boolean_of("single_word", false);
  token.lstrip = value.boolean_of("lstrip", false);
  token.rstrip = value.boolean_of("rstrip", false);
  token.normalized = value.boolean_of("normalized", !token.special);
  return token;
}

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  explicit HuggingFaceTokenizer(const HuggingFaceOptions& options)
      : given_(options.tokenizer_model), folder_(folder_of(given_)) {
    const SideFile config(folder_, "tokenizer_config.json"), map(folder_, "special_tokens_map.json"),
        model(folder_, "config.json");
    tokenizer_class_ = class_of(config, model);
    const auto file = (folder_ / "tokenizer.json").string();
    std::optional<bool> prefix_space;
    if (const auto value = config.find("add_prefix_space"); value && tokenizer_class_ != "TokenizersBackend")
      prefix_space = value->boolean();
    engine_ = std::make_unique<Engine>(file, files::read_input(file, "tokenizer"), prefix_space);
    add_tokens(config, map);
    const auto split = config.find("split_special_tokens");
    splits_special_tokens_ = options.split_special_tokens.value_or(split && split->boolean());
    engine_->set_split_special_tokens(splits_special_tokens_);
    if (const auto value = config.find("clean_up_tokenization_spaces"))
      engine_->set_clean_up(value->boolean() && !engine_->is_bpe());
    read_chat_template(config);
    sources_.push_back(file);
    for (const auto* one : {&config, &map, &model})
      if (one->is_there()) sources_.push_back(one->name());
    if (std::filesystem::exists(folder_ / template_file)) sources_.push_back((folder_ / template_file).string());
  }

  std::unique_ptr<Encoder> encoder() const override { return engine_->encoder(); }
  std::int64_t vocab_size() const override { return engine_->size(); }
  std::int32_t eod() const override {
    if (eos_) return *eos_;
    throw ConfigError(
        text((folder_ / "tokenizer_config.json").string(), ": names no eos_token, which ends a document; add one"));
  }
  std::vector<NamedToken> named_tokens() const override { return named_; }
  std::optional<std::int32_t> token_id(std::string_view token) const override { return engine_->find(token); }
  std::optional<std::string> chat_template() const override {
    if (!template_mistake_.empty()) throw ConfigError(template_mistake_);
    return chat_template_;
  }
  bool may_be_cut_at_lines() const override { return engine_->may_be_cut_at_lines(); }
  bool splits_special_tokens() const override { return splits_special_tokens_; }
  Identity identity() const override {
    Identity all{"_HuggingFaceTokenizer", {given_}, {}};
    if (splits_special_tokens_) all.options.emplace_back("split_special_tokens", "True");
    return all;
  }
  std::string piece(std::int32_t id) const override { return engine_->piece(id); }
  std::unique_ptr<Decoder> decoder() const override { return engine_->decoder(); }
  std::vector<SourceFile> files() const override {
    std::vector<SourceFile> all;
    for (const auto& path : sources_) all.push_back({"tokenizer_model", path});
    return all;
  }

 private:
  // The folder, also where its tokenizer.json is given.
  static std::filesystem::path folder_of(const std::string& given) {
    const std::filesystem::path path(given);
    const auto folder = path.filename() == "tokenizer.json" ? path.parent_path() : path;
    if (std::filesystem::exists(folder / "tokenizer.json")) return folder;
    if (!std::filesystem::is_directory(folder))
      throw ConfigError(text("tokenizer_model: there is no folder '", given,
                             "'; nothing is downloaded: give a folder with tokenizer.json"));
    std::string there;
    for (const auto* name : {"tokenizer.model", "vocab.json", "merges.txt", "vocab.txt"})
      if (std::filesystem::exists(folder / name)) there += text(there.empty() ? "" : ", ", name);
    throw ConfigError(text("tokenizer_model: the folder '", given, "' has no tokenizer.json",
                           there.empty() ? "" : ", only " + there,
                           "; let transformers write it: AutoTokenizer.from_pretrained(...).save_pretrained(...)"));
  }

  static std::string class_of(const SideFile& config, const SideFile& model) {
    const auto name = config.find("tokenizer_class") ? config.find("tokenizer_class") : model.find("tokenizer_class");
    if (name) {
      std::string words(name->text());
      if (words.size() > 4 && words.substr(words.size() - 4) == "Fast") words.resize(words.size() - 4);
      return words == "PreTrainedTokenizer" ? "TokenizersBackend" : words;
    }
    if (const auto type = model.find("model_type"))
      if (const auto* row = class_with("model_type", type->text())) return row->find("class")->scalar;
    return "TokenizersBackend";
  }

  // The special tokens that the configuration names, and all that is to be added to those of tokenizer.json.
  // special_tokens_map.json is older: it counts only where tokenizer_config.json has no added_tokens_decoder.
  void add_tokens(const SideFile& config, const SideFile& map) {
    std::vector<AddedToken> tokens;
    if (const auto decoder = config.find("added_tokens_decoder")) tokens = configured(*decoder);
    const bool uses_map = map.is_there() && !config.has("added_tokens_decoder");
    std::vector<std::pair<std::string, AddedToken>> named;
    for (std::size_t i = 0; i < special_names.size(); ++i) {
      const auto name = special_names[i];
      const auto* file = uses_map && map.has(name) ? &map : config.has(name) ? &config : nullptr;
      auto token = file ? AddedToken() : default_token(i);  // null in the file: none
      if (file)
        if (const auto value = file->find(name)) token = added_token(*value, true);
      if (!token.content.empty()) named.emplace_back(name, std::move(token));
    }
    const auto extra = more_tokens(config, uses_map ? &map : nullptr, named);

    const auto offer = [&](const AddedToken& token) {
      const auto same = [&](const AddedToken& one) { return one.content == token.content; };
      if (!token.content.empty() && std::none_of(tokens.begin(), tokens.end(), same) &&
          std::none_of(engine_->added_tokens().begin(), engine_->added_tokens().end(), same))
        tokens.push_back(token);
    };
    for (const auto& [name, token] : named) offer(token);
    for (const auto& token : extra) offer(token);
    engine_->add_tokens(tokens);
    for (const auto& [name, token] : named)
      if (const auto id = engine_->find(token.content)) {
        named_.push_back({name, token.content, *id});
        if (name == "eos_token") eos_ = *id;
      }
  }

  // Tokens of a model's own: other fields that end in _token and an object extra_special_tokens go to `named`; the list
  // of that name, or additional_special_tokens as it was called before, has no names and is returned.
  static std::vector<AddedToken> more_tokens(const SideFile& config, const SideFile* map,
                                             std::vector<std::pair<std::string, AddedToken>>& named) {
    const auto name_token = [&](const std::string& name, AddedToken token) {
      const auto known =
          std::find_if(named.begin(), named.end(), [&name = name](const auto& one) { return one.first == name; });
      if (known != named.end())
        known->second = std::move(token);
      else
        named.emplace_back(name, std::move(token));
    };
    const auto own_tokens = [&](const SideFile& file, bool texts, bool objects) {
      for (const auto& [name, value] : file.fields())
        if (name.size() >= 6 && name.substr(name.size() - 6) == "_token" &&
            std::find(special_names.begin(), special_names.end(), name) == special_names.end() &&
            ((texts && value.is_string()) || (objects && value.is_object())))
          name_token(name, added_token(value, true));
    };
    own_tokens(config, false, true);
    if (map) own_tokens(*map, true, true);
    own_tokens(config, true, false);

    std::vector<AddedToken> all;
    const auto take = [&](const std::optional<JsonValue>& value) {
      if (!value) return;
      if (value->is_object()) {
        for (const auto& [name, token] : fields_of(*value)) name_token(name, added_token(token, true));
        return;
      }
      for (const auto& one : value->items()) all.push_back(added_token(one, true));
    };
    const auto extra = config.find("extra_special_tokens"), additional = config.find("additional_special_tokens");
    take(extra);
    const bool has_extra = extra && (extra->is_object() ? !fields_of(*extra).empty() : !extra->items().empty());
    if (!has_extra) take(additional);
    if (map) {
      take(map->find("extra_special_tokens"));
      if (!config.has("extra_special_tokens") && !config.has("additional_special_tokens") &&
          !map->has("extra_special_tokens"))
        take(map->find("additional_special_tokens"));
    }
    return all;
  }

  // added_tokens_decoder, in the order of the ids: those that differ from what is there.
  std::vector<AddedToken> configured(const JsonValue& decoder) const {
    std::vector<std::pair<std::int64_t, AddedToken>> all;
    if (!decoder.is_object()) decoder.refuse("expected an object");
    for (const auto& member : decoder.json().items()) {
      std::int64_t id = 0;
      for (const auto c : member.name) {
        if (c < '0' || c > '9' || id >= hugging_face::Vocabulary::most)
          decoder.refuse(text("'", member.name, "' is not an id"));
        id = 10 * id + (c - '0');
      }
      all.emplace_back(id, added_token(decoder.at(member.name), false));
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<AddedToken> tokens;
    const auto fields = [](const AddedToken& one) {
      return std::tuple(one.content, one.special, one.single_word, one.lstrip, one.rstrip, one.normalized);
    };
    std::set<decltype(fields(AddedToken()))> there;  // a file may have very many
    for (const auto& one : engine_->added_tokens()) there.insert(fields(one));
    for (auto& [id, token] : all)
      if (there.count(fields(token)) == 0) tokens.push_back(std::move(token));
    return tokens;
  }

  AddedToken default_token(std::size_t which) const {
    AddedToken token;
    token.special = true;
    token.normalized = false;
    if (const auto* row = class_with("class", tokenizer_class_))
      if (const auto* content = row->at("tokens." + std::string(special_names[which]))) token.content = content->scalar;
    // GPT2Tokenizer says that it has none
    if (special_names[which] == "pad_token" && token.content.empty() && tokenizer_class_ != "GPT2Tokenizer")
      token.content = engine_->padding_token();
    return token;
  }

  // Files count before the field of tokenizer_config.json. What is wrong matters only to those who use the template.
  void read_chat_template(const SideFile& config) {
    try {
      std::map<std::string, std::string> files;
      if (std::filesystem::exists(folder_ / template_file)) files["default"] = template_text(folder_ / template_file);
      const auto more = folder_ / "additional_chat_templates";
      if (std::filesystem::is_directory(more))
        for (const auto& entry : std::filesystem::directory_iterator(more))
          if (entry.path().extension() == ".jinja") files[entry.path().stem().string()] = template_text(entry.path());
      if (!files.empty()) {
        chat_template_ = default_of(files, folder_.string());
        return;
      }
      const auto field = config.find("chat_template");
      if (!field) return;
      if (field->is_string()) {
        chat_template_ = std::string(field->text());
        return;
      }
      std::map<std::string, std::string> named;
      if (field->is_object())
        for (const auto& [name, value] : fields_of(*field)) named[name] = value.text();
      else if (field->is_array())
        for (const auto& one : field->items()) named[std::string(one.at("name").text())] = one.at("template").text();
      else
        field->refuse("expected the text of a template, or a list of {\"name\": \"default\", \"template\": \"...\"}");
      chat_template_ = default_of(named, config.name());
    } catch (const ConfigError& error) {
      template_mistake_ = text(error.what(), "; repair it, or give the option chat_template");
    }
  }

  static std::string default_of(const std::map<std::string, std::string>& named, const std::string& file) {
    if (const auto found = named.find("default"); found != named.end()) return found->second;
    std::string names;
    for (const auto& [name, words] : named) names += text(names.empty() ? "" : ", ", "'", name, "'");
    throw ConfigError(text(file, ": no chat template is named default", names.empty() ? "" : "; there are " + names));
  }

  // With line ends as Python's text files have them.
  static std::string template_text(const std::filesystem::path& path) {
    const auto words = files::read_input(path.string(), "chat template");
    std::string all;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == '\r' && i + 1 < words.size() && words[i + 1] == '\n') continue;
      all += words[i] == '\r' ? '\n' : words[i];
    }
    return all;
  }

  static constexpr const char* template_file = "chat_template.jinja";
  std::string given_;
  std::filesystem::path folder_;
  std::string tokenizer_class_;
  std::unique_ptr<Engine> engine_;
  std::optional<std::int32_t> eos_;
  std::vector<NamedToken> named_;
  std::optional<std::string> chat_template_;
  bool splits_special_tokens_ = false;
  std::string template_mistake_;  // why there is no template, when there should be one
  std::vector<std::string> sources_;
};

std::unique_ptr<Tokenizer> make_hf_tokenizer(const HuggingFaceOptions& options) {
  if (options.tokenizer_model.empty())
    throw ConfigError("tokenizer_type HuggingFaceTokenizer needs tokenizer_model, a folder with tokenizer.json");
  return std::make_unique<HuggingFaceTokenizer>(options);
}

}  // namespace

void register_hugging_face(TokenizerRegistry& registry) {
  registry.add("HuggingFaceTokenizer", make_hf_tokenizer, "A tokenizer.json as Hugging Face models have it.",
               {"PretrainedFromHF"});
}

}  // namespace tessera::tokenizers
