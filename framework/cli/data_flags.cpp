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

void TokenizerFlags::add_to(Command& command) {
  const auto flag = [&](const char* name, const char* option, const char* help) {
    command
        .add_option(
            name, [this, option](const std::string& value) { given[option] = value; }, help)
        ->suggest_as(text("dataset_config.", option));
  };
  flag("--tokenizer-type", "tokenizer_type", "Tokenizer type [GPT2BPETokenizer]; docs/data.md lists them");
  flag("--tokenizer-model,--tokenizer-name-or-path", "tokenizer_model",
       "Path of a SentencePiece model, of a Hugging Face tokenizer's folder, or of TikTokenizer's vocabulary");
  flag("--vocab-file", "vocab_file", "Path of vocab.json (GPT2BPETokenizer) or vocab.txt (BertWordPiece*)");
  flag("--merge-file", "merge_file", "Path of merges.txt (GPT2BPETokenizer)");
  flag("--vocab-size", "vocab_size", "Vocabulary size of NullTokenizer and TikTokenizer");
  flag("--vocab-extra-ids", "vocab_extra_ids",
       "Number of tokens <extra_id_0>, ... to add (SentencePieceTokenizer, BertWordPiece*)");
  flag("--tiktoken-pattern", "tiktoken_pattern", "Pattern that splits a text into words: v1 or v2 (TikTokenizer)");
  flag("--tiktoken-num-special-tokens", "tiktoken_num_special_tokens",
       "Number of ids before the vocabulary, for special tokens (TikTokenizer)");
  command.add_option("--tiktoken-special-tokens", given_special_tokens,
                     "Names of the first special tokens (TikTokenizer)");
}

std::unique_ptr<tokenizers::Tokenizer> TokenizerFlags::make(const tokenizers::TokenizerRegistry& registry) const {
  options::Value recipe;
  recipe.set("dataset_config.tokenizer_type", options::Value::of("GPT2BPETokenizer", {"data command", 0, "", 1}));
  const auto origin = [](std::string option) {
    std::replace(option.begin(), option.end(), '_', '-');
    return options::Origin{"--" + option, 0, "", 2};
  };
  for (const auto& [option, value] : given)
    recipe.set("dataset_config." + option, options::Value::of(value, origin(option)));
  if (!given_special_tokens.empty()) {
    auto list = options::OptionType<std::vector<std::string>>::write(given_special_tokens);
    list.origin = origin("tiktoken_special_tokens");
    recipe.set("dataset_config.tiktoken_special_tokens", std::move(list));
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
