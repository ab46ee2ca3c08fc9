// Megatron-LM's _HuggingFaceTokenizer: what transformers' AutoTokenizer makes of a folder with tokenizer.json. That file
// says what comes before and behind a text: as in transformers 5, add_bos_token and add_eos_token have no effect beside it.

#include <algorithm>
#include <filesystem>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/data/hugging_face/engine.h"
#include "framework/data/input_file.h"
#include "framework/data/tokenizer.h"

namespace tessera {
namespace {

using hugging_face::AddedToken;
using hugging_face::Engine;
using hugging_face::JsonValue;

struct HuggingFaceOptions {
  std::string tokenizer_model;
};

void describe(Schema<HuggingFaceOptions>& s) {
  s.option("tokenizer_model", &HuggingFaceOptions::tokenizer_model,
           "Folder with tokenizer.json, and tokenizer_config.json if it has one, as Hugging Face models come.");
}

// Special tokens that a class of transformers has where the files do not name them.
struct ClassDefaults {
  std::string_view name, model_type;  // tokenizer_class without "Fast"; model_type in config.json
  std::string_view bos, eos, pad;
};
constexpr ClassDefaults class_defaults[] = {
    {"GPT2Tokenizer", "gpt2", "<|endoftext|>", "<|endoftext|>", ""},
    {"GPTNeoXTokenizer", "gpt_neox", "<|endoftext|>", "<|endoftext|>", ""},
    {"LlamaTokenizer", "llama", "<s>", "</s>", ""},
    {"CodeLlamaTokenizer", "", "<s>", "</s>", ""},
    {"Qwen2Tokenizer", "qwen2", "", "<|endoftext|>", "<|endoftext|>"},
    {"GemmaTokenizer", "gemma", "<bos>", "<eos>", "<pad>"},
    {"T5Tokenizer", "t5", "", "</s>", "<pad>"},
    {"RobertaTokenizer", "roberta", "<s>", "</s>", "<pad>"},
    {"XLMRobertaTokenizer", "xlm-roberta", "<s>", "</s>", "<pad>"},
    {"BertTokenizer", "bert", "", "", "[PAD]"},
};

// A JSON file beside tokenizer.json that need not be there.
class SideFile {
 public:
  SideFile(const std::filesystem::path& folder, const std::string& name) : name_((folder / name).string()) {
    if (!std::filesystem::exists(name_)) return;
    // nlohmann first: simdjson refuses whole numbers beyond 64 bits, such as the usual model_max_length of 1e30
    const auto read = parse_json<nlohmann::ordered_json>(read_input(name_, "tokenizer configuration"));
    if (read.is_discarded() || parser_.parse(simdjson::padded_string(read.dump())).get(element_) != simdjson::SUCCESS)
      throw ConfigError(text(name_, ": is no JSON; get the file again, or remove it"));
    there_ = true;
    if (!root().is_object()) root().refuse("expected an object");
  }
  bool is_there() const { return there_; }
  const std::string& name() const { return name_; }
  JsonValue root() const { return JsonValue(name_, element_); }
  std::optional<JsonValue> find(std::string_view field) const { return there_ ? root().find(field) : std::nullopt; }

 private:
  std::string name_;
  simdjson::dom::parser parser_;
  simdjson::dom::element element_;
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
    refuse_unknown(config);
    tokenizer_class_ = class_of(config, model);
    const auto file = (folder_ / "tokenizer.json").string();
    std::optional<bool> prefix_space;
    if (const auto value = config.find("add_prefix_space"); value && tokenizer_class_ != "TokenizersBackend")
      prefix_space = value->boolean();
    engine_ = std::make_unique<Engine>(file, read_input(file, "tokenizer"), prefix_space);
    add_tokens(config, map);
    if (const auto value = config.find("clean_up_tokenization_spaces"))
      engine_->set_clean_up(value->boolean() && !engine_->is_bpe());
    sources_.push_back(file);
    for (const auto* one : {&config, &map, &model})
      if (one->is_there()) sources_.push_back(one->name());
  }

  std::unique_ptr<Encoder> encoder() const override { return engine_->encoder(); }
  std::int64_t vocab_size() const override { return engine_->size(); }
  std::int32_t eod() const override {
    if (eos_) return *eos_;
    throw ConfigError(
        text((folder_ / "tokenizer_config.json").string(), ": names no eos_token, which ends a document; add one"));
  }
  Identity identity() const override { return {"_HuggingFaceTokenizer", {given_}, {}}; }
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

  static void refuse_unknown(const SideFile& config) {
    if (const auto value = config.find("split_special_tokens"); value && value->boolean())
      value->refuse("true is not supported; set it to false");
  }

  static std::string class_of(const SideFile& config, const SideFile& model) {
    const auto name = config.find("tokenizer_class") ? config.find("tokenizer_class") : model.find("tokenizer_class");
    if (name) {
      std::string words(name->text());
      if (words.size() > 4 && words.substr(words.size() - 4) == "Fast") words.resize(words.size() - 4);
      return words == "PreTrainedTokenizer" ? "TokenizersBackend" : words;
    }
    if (const auto type = model.find("model_type"))
      for (const auto& one : class_defaults)
        if (type->text() == one.model_type) return std::string(one.name);
    return "TokenizersBackend";
  }

  // Tokens that the configuration names and tokenizer.json does not add.
  void add_tokens(const SideFile& config, const SideFile& map) {
    std::vector<AddedToken> tokens;
    if (const auto decoder = config.find("added_tokens_decoder")) tokens = configured(*decoder);
    const auto named = [&](std::string_view content) {
      const auto same = [&](const AddedToken& token) { return token.content == content; };
      return std::any_of(tokens.begin(), tokens.end(), same) ||
             std::any_of(engine_->added_tokens().begin(), engine_->added_tokens().end(), same);
    };
    const auto offer = [&](AddedToken token) {
      if (!token.content.empty() && !named(token.content)) tokens.push_back(std::move(token));
    };
    const auto field = [&](std::string_view name) {
      const bool given = config.is_there() && config.root().element().at_key(name).error() == simdjson::SUCCESS;
      return given ? config.find(name) : map.find(name);
    };
    std::string eos;
    for (const auto* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      const auto value = field(name);
      auto token = value ? added_token(*value, true) : default_token(name);
      if (std::string_view(name) == "eos_token") eos = token.content;
      offer(std::move(token));
    }
    for (const auto* name : {"additional_special_tokens", "extra_special_tokens"})
      if (const auto list = field(name); list && list->is_array())
        for (const auto& one : list->items()) offer(added_token(one, true));
    engine_->add_tokens(tokens);
    if (!eos.empty()) eos_ = engine_->find(eos);
  }

  // added_tokens_decoder, in the order of the ids: those that differ from what is there.
  std::vector<AddedToken> configured(const JsonValue& decoder) const {
    std::vector<std::pair<std::int64_t, AddedToken>> all;
    simdjson::dom::object object;
    if (decoder.element().get(object) != simdjson::SUCCESS) decoder.refuse("expected an object");
    for (const auto member : object) {
      std::int64_t id = 0;
      for (const auto c : member.key) {
        if (c < '0' || c > '9' || id >= hugging_face::Vocabulary::most)
          decoder.refuse(text("'", member.key, "' is no id"));
        id = 10 * id + (c - '0');
      }
      all.emplace_back(id, added_token(decoder.at(member.key), false));
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<AddedToken> tokens;
    for (auto& [id, token] : all) {
      const auto same = [&one = token](const AddedToken& there) {
        return one.content == there.content && one.special == there.special && one.single_word == there.single_word &&
               one.lstrip == there.lstrip && one.rstrip == there.rstrip && one.normalized == there.normalized;
      };
      if (!std::any_of(engine_->added_tokens().begin(), engine_->added_tokens().end(), same))
        tokens.push_back(std::move(token));
    }
    return tokens;
  }

  AddedToken default_token(std::string_view name) const {
    AddedToken token;
    token.special = true;
    token.normalized = false;
    for (const auto& one : class_defaults) {
      if (one.name != tokenizer_class_) continue;
      token.content = name == "bos_token"   ? one.bos
                      : name == "eos_token" ? one.eos
                      : name == "pad_token" ? one.pad
                                            : "";
    }
    return token;
  }

  std::string given_;
  std::filesystem::path folder_;
  std::string tokenizer_class_;
  std::unique_ptr<Engine> engine_;
  std::optional<std::int32_t> eos_;
  std::vector<std::string> sources_;
};

std::unique_ptr<Tokenizer> make(const HuggingFaceOptions& options) {
  if (options.tokenizer_model.empty())
    throw ConfigError("tokenizer_type HuggingFaceTokenizer needs tokenizer_model, a folder with tokenizer.json");
  return std::make_unique<HuggingFaceTokenizer>(options);
}

}  // namespace

void register_hugging_face(TokenizerRegistry& shelf) {
  shelf.add("HuggingFaceTokenizer", make, "A tokenizer.json as Hugging Face models have it.", {"PretrainedFromHF"});
}

}  // namespace tessera
