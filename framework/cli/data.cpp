#include "framework/cli/data.h"

#include <unistd.h>

#include <iomanip>
#include <iostream>
#include <map>
#include <optional>

#include "framework/base/files.h"
#include "framework/cli/meter.h"
#include "framework/cli/preprocess_meter.h"
#include "framework/cli/recipe_arguments.h"
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

/// The flags that choose a tokenizer, by the names of their options in dataset_config.
struct TokenizerFlags {
  std::map<std::string, std::string> given;

  void add_to(Command& command) {
    const auto flag = [&](const char* name, const char* option, const char* help) {
      command.add_option(
          name, [this, option](const std::string& value) { given[option] = value; }, help);
    };
    flag("--tokenizer-type", "tokenizer_type", "GPT2BPETokenizer (default) or NullTokenizer");
    flag("--vocab-file", "vocab_file", "vocab.json of a byte-level BPE");
    flag("--merge-file", "merge_file", "merges.txt of a byte-level BPE");
    flag("--vocab-size", "vocab_size", "NullTokenizer: numbers below it are tokens");
  }

  std::unique_ptr<Tokenizer> make(const TokenizerRegistry& shelf) const {
    Value recipe;
    recipe.set("dataset_config.tokenizer_type", Value::of("GPT2BPETokenizer", {"data command", 0, "", 1}));
    for (const auto& [option, value] : given) {
      auto flag = "--" + option;
      for (auto& sign : flag) sign = sign == '_' ? '-' : sign;
      recipe.set("dataset_config." + option, Value::of(value, {flag, 0, "", 2}));
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
};

struct Preprocess {
  PreprocessRequest request;
  TokenizerFlags tokenizer;
  std::string recipe, language = "english";
  bool keep_newlines = false;
  std::int64_t log_interval = 0;

  std::unique_ptr<Tokenizer> chosen(const CommandContext& context) const {
    if (recipe.empty()) return tokenizer.make(context.shelves.tokenizers);
    if (!tokenizer.given.empty())
      throw ConfigError(
          "--recipe names the tokenizer, so the tokenizer flags may not be given too; remove one of them");
    RecipeArguments arguments;
    arguments.file = recipe;
    auto made = read_recipe(arguments, context, std::cerr).tokenizer.make();
    if (!made)
      throw ConfigError(text(recipe,
                             ": has no tokenizer; set dataset_config.tokenizer_type, or give the tokenizer "
                             "flags instead of --recipe"));
    return made;
  }

  void run(const CommandContext& context) const {
    const auto made_of = chosen(context);
    PreprocessMeter meter({log_interval, ::isatty(STDERR_FILENO) == 1});
    const auto result = preprocess(*made_of, request, [&](const PreprocessProgress& now) { meter(now); });
    for (const auto& note : result.notes) std::cout << "note: " << note << "\n";
    const auto skipped = result.total.skipped;
    for (const auto& one : result.skipped) std::cout << "skipped: " << one << "\n";
    if (skipped > static_cast<std::int64_t>(result.skipped.size()))
      std::cout << "skipped: " << skipped << " documents in all\n";
    for (const auto& one : result.files)
      std::cout << one.prefix << ": " << one.documents << " documents, " << one.sequences << " sequences, "
                << one.tokens << " tokens of " << name_of(token_type_for(made_of->vocab_size())) << "\n";
    if (result.total.documents == 0) std::cout << "warning: the input has no document\n";
    std::cout << std::fixed << std::setprecision(1) << static_cast<double>(result.total.bytes) * 1e-6
              << " MB of input in " << meter.seconds() << " s: " << meter.rates(result.total, result.resumed_documents)
              << "\n";
  }
};

void add_preprocess(Command& data, CommandContext& context) {
  auto work = std::make_shared<Preprocess>();
  auto* command = data.add_subcommand("preprocess",
                                      "Turn text into token files: PREFIX_KEY_document.bin and .idx from JSON lines, "
                                      "PREFIX.bin and .idx from plain text");
  auto& request = work->request;
  command
      ->add_option("--input", request.inputs,
                   "Files to read, in this order; also compressed with gzip, Zstandard or xz, patterns such as "
                   "'part*.jsonl' (sorted), and - for standard input")
      ->required();
  command->add_option("--output-prefix", request.output_prefix, "Path of the token files, without _KEY_document.bin")
      ->required();
  add_format(*command, request.format);
  command->add_option("--json-keys,--json-key", request.json_keys,
                      "Keys whose values are texts; one pair of files for each [text]");
  command->add_flag("--append-eod", request.append_eod, "Append the end-of-document token to each document");
  command->add_option("--workers", request.workers, "Threads that encode; the output does not depend on it [1]")
      ->between(1, 1024);
  command
      ->add_option("--partitions", request.partitions,
                   "Parts that the lines are dealt to in turns; each becomes PREFIX_NUMBER_KEY_document, and all are "
                   "joined to PREFIX_KEY_document [1]")
      ->between(1, 1024);
  command->add_flag("--keep-sequential-samples", request.keep_sequential_samples,
                    "With --partitions: parts are blocks of lines, so that the joined files keep the order");
  command->add_flag("--split-sentences", request.split_sentences,
                    "The values are lists of sentences; writes PREFIX_KEY_sentence. A single string is refused: the "
                    "model that splits it is not available");
  command->add_flag("--keep-newlines", work->keep_newlines,
                    "Accepted for compatibility; has no effect, because sentences are not split here");
  command->add_option("--lang", work->language,
                      "Accepted for compatibility; has no effect, because sentences are not split here [english]");
  command
      ->add_option("--log-interval", work->log_interval,
                   "Documents from one printed line of progress to the next; 0: only on a terminal, on one line [0]")
      ->not_negative();
  command
      ->add_option(
          "--on-error", [&request](const std::string& word) { request.skip_bad = word == "skip"; },
          "What happens at a document that cannot be encoded: stop (an error with file and line), or skip (it is left "
          "out and counted; the first ones are printed) [stop]")
      ->one_of({"stop", "skip"});
  command->add_flag("--resume", request.resume,
                    "Continue an interrupted run of the same command; the files become the same");
  command->add_option("--recipe", work->recipe, "Recipe whose dataset_config names the tokenizer");
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
    if (!tokenizer.given.empty()) std::cout << tokenizer.make(context.shelves.tokenizers)->decode(ids) << "\n";
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
