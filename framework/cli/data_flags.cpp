#include "framework/cli/data_flags.h"

#include <algorithm>
#include <vector>

#include "framework/options/report.h"

namespace tessera::cli {

CommandOption* add_format(Command& command, std::optional<files::TextFormat>& format) {
  static const std::map<std::string, files::TextFormat> formats = {{"json", files::TextFormat::json_lines},
                                                                   {"blank-lines", files::TextFormat::blank_lines},
                                                                   {"file", files::TextFormat::whole_file}};
  std::vector<std::string> words;
  for (const auto& [word, meaning] : formats) words.push_back(word);
  return command
      .add_option(
          "--format", [&format](const std::string& given) { format = formats.at(given); },
          "Format of the input: json (one object per line), file (each file is one document), "
          "blank-lines (plain text, empty lines between documents); without it .txt is file, all else json")
      ->one_of(words);
}

namespace {

constexpr const char* usual_type = "GPT2BPETokenizer";

// One option of the types of tokenizers: its first declaration, and the texts of all, each with the types that have it.
struct TokenizerOption {
  options::OptionFacts facts;
  std::vector<std::pair<std::string, std::string>> docs;

  void add(const std::string& doc, const std::string& type) {
    const auto same = std::find_if(docs.begin(), docs.end(), [&](const auto& one) { return one.first == doc; });
    if (same == docs.end())
      docs.emplace_back(doc, type);
    else
      same->second += ", " + type;
  }

  std::string help() const {
    if (docs.empty()) return text("Tokenizer type [", usual_type, "]; docs/data.md lists them");
    std::string all;
    for (auto [doc, types] : docs) {
      if (doc.ends_with('.')) doc.pop_back();
      all += text(all.empty() ? "" : "; ", doc, " (", types, ")");
    }
    return all;
  }

  bool is_list() const { return facts.type.starts_with("list of "); }
};

// The key that chooses the type, then the options of all types in the order of their declarations.
std::vector<TokenizerOption> tokenizer_options(const tokenizers::TokenizerRegistry& registry) {
  options::Report ignored;
  options::Group group(options::Value{}, "dataset_config", ignored);
  (void)registry.read(group);
  std::vector<TokenizerOption> all;
  for (const auto& schema : group.schemas())
    for (const auto& facts : schema.options) {
      auto known = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.facts.name == facts.name; });
      if (known == all.end()) known = all.insert(all.end(), {facts, {}});
      if (!schema.type.empty()) known->add(facts.doc, schema.type);
    }
  return all;
}

// Megatron-LM's names: the option with dashes; the model is also --tokenizer-name-or-path, as MindSpeed-LLM names it.
std::string flags_of(std::string option) {
  std::replace(option.begin(), option.end(), '_', '-');
  return text("--", option, option == "tokenizer-model" ? ",--tokenizer-name-or-path" : "");
}

}  // namespace

void TokenizerFlags::add_to(Command& command, const tokenizers::TokenizerRegistry& registry) {
  for (const auto& one : tokenizer_options(registry)) {
    const auto name = one.facts.name;
    if (one.is_list())
      command.add_option(flags_of(name), given_lists[name], one.help());
    else
      command
          .add_option(
              flags_of(name), [this, name](const std::string& value) { given[name] = value; }, one.help())
          ->suggest_as(text("dataset_config.", name));
  }
}

bool TokenizerFlags::empty() const {
  return given.empty() &&
         std::all_of(given_lists.begin(), given_lists.end(), [](const auto& one) { return one.second.empty(); });
}

std::unique_ptr<tokenizers::Tokenizer> TokenizerFlags::make(const tokenizers::TokenizerRegistry& registry) const {
  options::Value recipe;
  recipe.set("dataset_config.tokenizer_type", options::Value::of(usual_type, {"data command", 0, "", 1}));
  const auto origin = [](std::string option) {
    std::replace(option.begin(), option.end(), '_', '-');
    return options::Origin{"--" + option, 0, "", 2};
  };
  for (const auto& [option, value] : given)
    recipe.set("dataset_config." + option, options::Value::of(value, origin(option)));
  for (const auto& [option, values] : given_lists) {
    if (values.empty()) continue;
    auto list = options::OptionType<std::vector<std::string>>::write(values);
    list.origin = origin(option);
    recipe.set("dataset_config." + option, std::move(list));
  }
  options::Report report;
  options::Group group(recipe, "dataset_config", report);
  const auto choice = registry.read(group);
  group.finish();
  report.must_be_good();
  auto tokenizer = choice.make();
  if (!tokenizer) throw ConfigError("--tokenizer-type none cannot read text; choose another tokenizer");
  return tokenizer;
}

}  // namespace tessera::cli
