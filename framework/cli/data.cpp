#include "framework/cli/data.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>

#include "framework/base/files.h"
#include "framework/base/number_text.h"
#include "framework/cli/meter.h"
#include "framework/data/bpe_trainer.h"
#include "framework/data/indexed_dataset.h"
#include "framework/data/preprocess.h"

namespace tessera {
namespace {

/// `format` stays empty when the names of the files are to say it.
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

/// The flags that choose a tokenizer, under Megatron-LM's names: those of their options in dataset_config, with dashes.
struct TokenizerFlags {
  std::map<std::string, std::string> given;  // option -> value, of options with one value

  void add_to(Command& command) {
    const auto flag = [&](const char* name, const char* option, const char* help) {
      command.add_option(
          name, [this, option](const std::string& value) { given[option] = value; }, help);
    };
    flag("--tokenizer-type", "tokenizer_type", "Tokenizer type [GPT2BPETokenizer]; docs/data.md lists them");
    flag("--tokenizer-model", "tokenizer_model",
         "Path of a SentencePiece model, of a Hugging Face tokenizer's folder, or of TikTokenizer's vocabulary");
    flag("--vocab-file", "vocab_file", "Path of vocab.json (GPT2BPETokenizer) or vocab.txt (BertWordPiece*)");
    flag("--merge-file", "merge_file", "Path of merges.txt (GPT2BPETokenizer)");
    flag("--vocab-size", "vocab_size", "Vocabulary size of NullTokenizer and TikTokenizer");
    flag("--vocab-extra-ids", "vocab_extra_ids",
         "Number of tokens <extra_id_0>, ... to add (SentencePieceTokenizer, BertWordPiece*)");
    flag("--tiktoken-pattern", "tiktoken_pattern", "Pattern that splits a text into words: v1 or v2 (TikTokenizer)");
    flag("--tiktoken-num-special-tokens", "tiktoken_num_special_tokens",
         "Number of ids before the vocabulary, for special tokens (TikTokenizer)");
    command.add_option("--tiktoken-special-tokens", given_special_tokens_,
                       "Names of the first special tokens (TikTokenizer)");
  }

  bool empty() const { return given.empty() && given_special_tokens_.empty(); }

  std::unique_ptr<Tokenizer> make(const TokenizerRegistry& shelf) const {
    Value recipe;
    recipe.set("dataset_config.tokenizer_type", Value::of("GPT2BPETokenizer", {"data command", 0, "", 1}));
    const auto origin = [](std::string option) {
      std::replace(option.begin(), option.end(), '_', '-');
      return Origin{"--" + option, 0, "", 2};
    };
    for (const auto& [option, value] : given) recipe.set("dataset_config." + option, Value::of(value, origin(option)));
    if (!given_special_tokens_.empty()) {
      auto list = OptionType<std::vector<std::string>>::write(given_special_tokens_);
      list.origin = origin("tiktoken_special_tokens");
      recipe.set("dataset_config.tiktoken_special_tokens", std::move(list));
    }
    Report report;
    Group group(recipe, "dataset_config", report);
    const auto choice = shelf.read(group);
    group.finish();
    report.must_be_good();
    auto tokenizer = choice.make();
    if (!tokenizer) throw ConfigError("--tokenizer-type none cannot read text; choose another tokenizer");
    return tokenizer;
  }

 private:
  std::vector<std::string> given_special_tokens_;
};

/// Megatron-LM's line of progress.
void tell(const PreprocessProgress& now, double seconds) {
  const auto rate = [&](double count) { return short_number(seconds > 0 ? count / seconds : 0); };
  std::cerr << "Processed " << now.documents << " documents (" << rate(static_cast<double>(now.documents))
            << " docs/s, " << rate(static_cast<double>(now.bytes) * 1e-6) << " MB/s).\n";
}

struct Preprocess {
  PreprocessRequest request;
  TokenizerFlags tokenizer;

  void run(const CommandContext& context) const {
    const auto chosen = tokenizer.make(context.shelves.tokenizers);
    Meter meter("preprocess:");
    std::int64_t bytes = 0;
    const auto made = preprocess(*chosen, request, [&](const PreprocessProgress& now) {
      bytes = now.all_bytes;
      if (request.report_every == 0) return meter(now.bytes, now.all_bytes);
      if (now.documents % request.report_every == 0) tell(now, meter.seconds());
    });
    const auto megabytes = static_cast<double>(bytes) * 1e-6;
    for (const auto& one : made)
      std::cout << one.prefix << ": " << one.documents << " documents, " << one.sequences << " sequences, "
                << one.tokens << " tokens of " << name_of(token_type_for(chosen->vocab_size())) << "\n";
    std::cout << std::fixed << std::setprecision(1) << megabytes << " MB of input in " << meter.seconds() << " s\n";
  }
};

void add_preprocess(Command& data, CommandContext& context) {
  auto work = std::make_shared<Preprocess>();
  auto* command = data.add_subcommand("preprocess",
                                      "Turn text into token files: PREFIX_KEY_document.bin and .idx from JSON lines, "
                                      "PREFIX.bin and .idx from plain text");
  auto& request = work->request;
  command->add_option("--input", request.inputs, "Files to read, in this order")->required();
  command->add_option("--output-prefix", request.output_prefix, "Where the token files go")->required();
  add_format(*command, request.format);
  command->add_option("--json-keys,--json-key", request.json_keys,
                      "Keys whose values are texts; one pair of files for each [text]");
  command->add_flag("--append-eod", request.append_eod, "Put the end-of-document token behind each document");
  command->add_option("--workers", request.workers, "Threads; the files do not depend on it [1]")->between(1, 1024);
  command
      ->add_option("--log-interval", request.report_every,
                   "Print the progress after every so many documents; 0: only on a terminal, on one line [0]")
      ->not_negative();
  work->tokenizer.add_to(*command);
  command->callback([work, &context] { work->run(context); });
}

struct Inspect {
  std::string prefix;
  std::int64_t first_tokens = 16, document = 0;
  TokenizerFlags tokenizer;

  void run(const CommandContext& context) const {
    const IndexedDataset data(prefix);
    std::int64_t empty = 0, longest = 0, shortest = data.tokens();
    for (std::int64_t d = 0; d < data.documents(); ++d) {
      std::int64_t length = 0;
      for (auto s = data.first_sequence(d); s < data.first_sequence(d + 1); ++s) length += data.length(s);
      empty += length == 0 ? 1 : 0;
      longest = std::max(longest, length);
      shortest = std::min(shortest, length);
    }
    std::cout << "documents   " << data.documents() << "\nempty       " << empty << "\nsequences   " << data.sequences()
              << "\ntokens      " << data.tokens() << "\ntype        " << name_of(data.type()) << "\nlongest     "
              << longest << " tokens\nshortest    " << shortest << " tokens\n";
    show_tokens(data, context);
  }

  void show_tokens(const IndexedDataset& data, const CommandContext& context) const {
    if (data.documents() == 0) return;
    if (document < 0 || document >= data.documents())
      throw ConfigError(text("--document ", document, ": ", prefix, " has the documents 0 to ", data.documents() - 1));
    std::vector<std::int32_t> ids;
    for (auto s = data.first_sequence(document); s < data.first_sequence(document + 1); ++s) {
      const auto count = std::min<std::int64_t>(data.length(s), first_tokens - static_cast<std::int64_t>(ids.size()));
      if (count <= 0) break;
      const auto before = ids.size();
      ids.resize(before + static_cast<std::size_t>(count));
      data.read(s, 0, std::span(ids).subspan(before));
    }
    std::cout << "document " << document << " begins";
    for (const auto id : ids) std::cout << " " << id;
    std::cout << "\n";
    if (!tokenizer.empty()) std::cout << tokenizer.make(context.shelves.tokenizers)->decode(ids) << "\n";
  }
};

void add_inspect(Command& data, CommandContext& context) {
  auto work = std::make_shared<Inspect>();
  auto* command = data.add_subcommand("inspect", "Say what is in PREFIX.bin and PREFIX.idx");
  command->add_option("PREFIX", work->prefix, "The files' name without .bin or .idx")->required();
  command->add_option("--document", work->document, "Whose first tokens are shown [0]");
  command->add_option("--tokens", work->first_tokens, "How many of them [16]")->not_negative();
  work->tokenizer.add_to(*command);
  command->callback([work, &context] { work->run(context); });
}

void add_merge(Command& data) {
  struct Merge {
    std::vector<std::string> inputs;
    std::string output;
  };
  auto work = std::make_shared<Merge>();
  auto* command = data.add_subcommand("merge", "Put token files one behind the other");
  command->add_option("PREFIX", work->inputs, "Names of the files without .bin or .idx, in order")->required();
  command->add_option("--output-prefix", work->output, "Name of the new files")->required();
  command->callback([work] {
    std::vector<IndexedDataset> sources;
    std::vector<std::filesystem::path> read;
    for (const auto& prefix : work->inputs) {
      sources.emplace_back(prefix);
      for (const auto* end : {".bin", ".idx"}) read.emplace_back(prefix + end);
    }
    refuse_overwriting(read, IndexedDatasetBuilder::files(work->output));
    IndexedDatasetBuilder builder(work->output, sources.front().type());
    Meter meter("merge:");
    for (std::size_t i = 0; i < sources.size(); ++i) {
      builder.add(sources[i]);
      meter(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(sources.size()));
    }
    builder.finish();
    std::cout << work->output << ": " << builder.tokens() << " tokens\n";
  });
}

struct TrainBpe {
  std::vector<std::string> inputs, json_keys = {"text"};
  std::optional<TextFormat> format;
  std::int64_t vocab_size = 8192, min_frequency = 2;
  std::string output_dir;

  void run() const {
    const std::filesystem::path folder(output_dir);
    refuse_overwriting(std::vector<std::filesystem::path>(inputs.begin(), inputs.end()),
                       std::vector<std::filesystem::path>{folder / "vocab.json", folder / "merges.txt"});
    BpeTrainer trainer;
    Meter meter("train-bpe:");
    std::vector<std::vector<std::string>> texts;
    for (const auto& name : inputs) {
      TextFile file(name, format.value_or(format_by_name(name)));
      for (RawDocument document; file.next(document);) {
        file.texts(document, json_keys, texts);
        for (const auto& list : texts)
          for (const auto& one : list) trainer.add(one);
        meter(file.position(), file.size());
      }
    }
    const auto trained =
        trainer.train(vocab_size, min_frequency, [&](std::int64_t done, std::int64_t all) { meter(done, all); });
    make_folder(folder);
    trained.write(folder / "vocab.json", folder / "merges.txt");
    const auto tokens = static_cast<std::int64_t>(trained.vocabulary.size());
    std::cout << (folder / "vocab.json").string() << ", " << (folder / "merges.txt").string() << ": " << tokens
              << " tokens, " << trained.merges.size() << " merges, in " << std::fixed << std::setprecision(1)
              << meter.seconds() << " s\n";
    if (tokens < vocab_size)
      std::cout << "fewer than the " << vocab_size << " asked for: no other pair occurs " << min_frequency
                << " times\n";
  }
};

void add_train_bpe(Command& data) {
  auto work = std::make_shared<TrainBpe>();
  auto* command = data.add_subcommand("train-bpe", "Learn a byte-level BPE from text: vocab.json and merges.txt");
  command->add_option("--input", work->inputs, "Files to learn from")->required();
  add_format(*command, work->format);
  command->add_option("--json-keys,--json-key", work->json_keys, "Keys whose values are texts [text]");
  command->add_option("--vocab-size", work->vocab_size,
                      "Tokens wanted: 256 bytes, merges, <|endoftext|> as the last [8192]");
  command->add_option("--min-frequency", work->min_frequency, "How often a pair must occur to be merged [2]");
  command->add_option("--output-dir,--output", work->output_dir, "Folder for the two files")->required();
  command->callback([work] { work->run(); });
}

}  // namespace

void add_data_commands(Command& app, CommandContext& context) {
  auto* data = app.add_subcommand("data", "Text to tokens: preprocess, inspect, merge, train-bpe");
  data->require_subcommand();
  add_preprocess(*data, context);
  add_inspect(*data, context);
  add_merge(*data);
  add_train_bpe(*data);
}

}  // namespace tessera
