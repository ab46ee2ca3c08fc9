#include "framework/cli/data_flags.h"

#include <vector>

#include "framework/options/report.h"

namespace tessera {

CommandOption* add_format(Command& command, std::optional<TextFormat>& format) {
  static const std::map<std::string, TextFormat> formats = {
      {"json", TextFormat::json_lines}, {"blank-lines", TextFormat::blank_lines}, {"file", TextFormat::whole_file}};
  std::vector<std::string> words;
  for (const auto& [word, meaning] : formats) words.push_back(word);
  return command
      .add_option(
          "--format", [&format](const std::string& given) { format = formats.at(given); },
          "How documents lie in the input: json (an object a line), file (each file is one document), "
          "blank-lines (plain text, empty lines between documents); without it .txt is file, all else json")
      ->one_of(words);
}

void TokenizerFlags::add_to(Command& command) {
  const auto flag = [&](const char* name, const char* option, const char* help) {
    command.add_option(
        name, [this, option](const std::string& value) { given[option] = value; }, help);
  };
  flag("--tokenizer-type", "tokenizer_type", "GPT2BPETokenizer (default) or NullTokenizer");
  flag("--vocab-file", "vocab_file", "vocab.json of a byte-level BPE");
  flag("--merge-file", "merge_file", "merges.txt of a byte-level BPE");
  flag("--vocab-size", "vocab_size", "NullTokenizer: numbers below it are tokens");
}

std::unique_ptr<Tokenizer> TokenizerFlags::make(const TokenizerRegistry& registry) const {
  Value recipe;
  recipe.set("dataset_config.tokenizer_type", Value::of("GPT2BPETokenizer", {"data command", 0, "", 1}));
  for (const auto& [option, value] : given) {
    auto flag = "--" + option;
    for (auto& sign : flag) sign = sign == '_' ? '-' : sign;
    recipe.set("dataset_config." + option, Value::of(value, {flag, 0, "", 2}));
  }
  Report report;
  Group group(recipe, "dataset_config", report);
  const auto choice = registry.read(group);
  group.finish();
  report.must_be_good();
  auto tokenizer = choice.make();
  if (!tokenizer) throw ConfigError("--tokenizer-type none cannot read text; choose another tokenizer");
  return tokenizer;
}

}  // namespace tessera
