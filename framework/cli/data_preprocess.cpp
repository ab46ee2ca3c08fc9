#include <unistd.h>

#include <iomanip>
#include <iostream>

#include "framework/cli/data_commands.h"
#include "framework/cli/data_flags.h"
#include "framework/cli/instruction_flags.h"
#include "framework/cli/preprocess_meter.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/log/log.h"
#include "framework/training/guards/stop_signal.h"
#include "framework/worker/stop_signals.h"

namespace tessera::cli {
namespace {

const log::Logger preprocess_logger("data");

struct Preprocess {
  preprocessing::PreprocessRequest request;
  InstructionFlags instructions;
  TokenizerFlags tokenizer;
  std::string recipe, language = "english";
  bool keep_newlines = false;
  std::int64_t log_interval = 0;

  std::unique_ptr<tokenizers::Tokenizer> chosen(const CommandContext& context) const {
    if (recipe.empty()) return tokenizer.make(context.registries.tokenizers);
    if (!tokenizer.empty())
      throw ConfigError(
          "--recipe names the tokenizer, so the tokenizer flags may not be given too; remove one of them");
    RecipeArguments arguments;
    arguments.file = recipe;
    auto made = read_recipe(arguments, context).tokenizer.make();
    if (!made)
      throw ConfigError(text(recipe,
                             ": has no tokenizer; set dataset_config.tokenizer_type, or give the tokenizer "
                             "flags instead of --recipe"));
    return made;
  }

  /// After a signal that asks to stop, the exit code is that of a program which the signal ends.
  void run(CommandContext& context) const {
    if (!instructions.used()) instructions.check_unused();
    const auto made_of = chosen(context);
    const training::StopSignal stop;
    try {
      PreprocessMeter meter({.interval = log_interval});
      const auto progress = [&](const preprocessing::PreprocessProgress& now) {
        if (stop.asked())
          throw preprocessing::Interrupted(text("preprocess: interrupted by ", worker::name_of_signal(stop.signal())));
        meter(now);
      };
      instructions.used() ? write_instructions(*made_of, progress, meter) : write_texts(*made_of, progress, meter);
    } catch (const preprocessing::Interrupted& error) {
      preprocess_logger.error(text(error.what(), instructions.used() ? "; nothing is kept: start it again" : ""));
      context.exit_code = 128 + stop.signal();
    }
  }

  using Progress = std::function<void(const preprocessing::PreprocessProgress&)>;

  void write_texts(const tokenizers::Tokenizer& made_of, const Progress& progress, const PreprocessMeter& meter) const {
    const auto result = preprocessing::preprocess(made_of, request, progress);
    for (const auto& note : result.notes) std::cout << "note: " << note << "\n";
    const auto skipped = result.total.skipped;
    for (const auto& one : result.skipped) std::cout << "skipped: " << one << "\n";
    if (skipped > static_cast<std::int64_t>(result.skipped.size()))
      std::cout << "skipped: " << skipped << " documents in all\n";
    for (const auto& one : result.files)
      std::cout << one.prefix << ": " << one.documents << " documents, " << one.sequences << " sequences, "
                << one.tokens << " tokens of " << indexed::name_of(indexed::token_type_for(made_of.vocab_size()))
                << "\n";
    if (result.total.documents == 0) std::cout << "warning: the input has no document\n";
    std::cout << std::fixed << std::setprecision(1) << static_cast<double>(result.total.bytes) * 1e-6
              << " MB of input in " << meter.seconds() << " s: " << meter.rates(result.total, result.resumed_documents)
              << "\n";
  }

  void write_instructions(const tokenizers::Tokenizer& made_of, const Progress& progress,
                          const PreprocessMeter& meter) const {
    const auto whole = instructions.with(request);
    const auto result = instructions::write_instructions(made_of, whole, progress);
    for (const auto& one : result.reasons) std::cout << "left out: " << one << "\n";
    if (result.cut > 0)
      std::cout << "warning: " << result.cut << " rows were cut to " << result.cut_to << " tokens, the first at "
                << result.first_cut << "; give " << (whole.seq_length ? "a larger --seq-length" : "--seq-length")
                << " to keep more of them\n";
    if (result.emptied > 0)
      std::cout
          << "warning: " << result.emptied
          << " rows have several answers, of which MindSpeed-LLM uses none: they are written with an empty prompt "
             "and an empty answer, the first at "
          << result.first_emptied << "; make a row of each answer\n";
    if (result.samples == 0)
      std::cout << "warning: all rows reach --seq-length, so the files are empty; give a larger one"
                << (instructions.makes_pairs() ? "\n" : ", or --pack --neat-pack, which cuts them\n");
    if (result.without_label > 0)
      std::cout << "warning: " << result.without_label << " of " << result.samples
                << " samples have no label, because prompts fill --seq-length or answers are empty; nothing is learned "
                   "from them\n";
    if (result.equal_pairs > 0)
      std::cout << "warning: " << result.equal_pairs << " pairs have equal chosen and rejected answers, the first at "
                << result.first_equal_pair << "; no preference is learned from them, correct or remove them\n";
    std::cout << request.output_prefix
              << (instructions.makes_pairs() ? "_packed_{chosen,rejected}_{input_ids,labels}_document: "
                                             : "_packed_{input_ids,attention_mask,labels}_document: ")
              << result.samples << " samples, " << result.tokens << " tokens of int32 from " << result.rows
              << " rows; left out: " << result.left_out << " without an answer or with wrong roles, "
              << result.total.skipped << " with errors; " << result.too_long << " reach --seq-length\n"
              << std::fixed << std::setprecision(1) << static_cast<double>(result.total.bytes) * 1e-6
              << " MB of input in " << meter.seconds() << " s: " << meter.rates(result.total, 0) << "\n";
  }
};

}  // namespace

void add_data_preprocess(Command& data, CommandContext& context) {
  auto work = std::make_shared<Preprocess>();
  auto* command = data.add_subcommand("preprocess",
                                      "Turn text into token files: PREFIX_KEY_document.bin and .idx from JSON lines, "
                                      "PREFIX.bin and .idx from plain text; with --handler-name instructions");
  auto& request = work->request;
  command
      ->add_option("--input", request.inputs,
                   "Files to read, in this order: JSON lines, plain text or Parquet, whose columns are the keys; text "
                   "also compressed with gzip, Zstandard or xz, patterns such as "
                   "'part*.jsonl' (sorted), and - for standard input")
      ->required();
  command->add_option("--output-prefix", request.output_prefix, "Path of the token files, without _KEY_document.bin")
      ->required();
  add_format(*command, request.format);
  command->add_option("--json-keys,--json-key", request.json_keys,
                      "Keys whose values are texts, of Parquet columns; one pair of files for each [text]");
  command->add_flag("--append-eod", request.append_eod, "Append the end-of-document token to each document");
  command->add_option("--workers", request.workers, "Threads that encode; the output does not depend on it [1]")
      ->between(1, 1024);
  command
      ->add_option("--partitions", request.partitions,
                   "Number of partitions, to which lines are assigned round-robin; each becomes "
                   "PREFIX_NUMBER_KEY_document, and all are "
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
                   "Interval of progress lines, in documents; 0: one line that is updated, on a terminal only [0]")
      ->not_negative();
  command
      ->add_option(
          "--on-error", [&request](const std::string& word) { request.skip_bad = word == "skip"; },
          "Action for a document that cannot be encoded: stop (an error with file and line), or skip (it is left "
          "out and counted; the first ones are printed) [stop]")
      ->one_of({"stop", "skip"});
  command->add_flag("--resume", request.resume,
                    "Continue an interrupted run of the same command; the files become the same");
  command->add_option("--recipe", work->recipe, "Recipe whose dataset_config names the tokenizer");
  work->tokenizer.add_to(*command, context.registries.tokenizers);
  work->instructions.add_to(*command);
  command->callback([work, &context] { work->run(context); });
}

}  // namespace tessera::cli
