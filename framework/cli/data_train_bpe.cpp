#include <iomanip>
#include <iostream>

#include "framework/base/files.h"
#include "framework/cli/data_commands.h"
#include "framework/cli/data_flags.h"
#include "framework/cli/meter.h"
#include "framework/parquet/parquet.h"
#include "framework/tokenizers/bpe_trainer.h"

namespace tessera::cli {
namespace {

struct TrainBpe {
  std::vector<std::string> inputs, json_keys = {"text"};
  std::optional<files::TextFormat> format;
  std::int64_t vocab_size = 8192, min_frequency = 2;
  std::string output_dir;

  void run() const {
    const std::filesystem::path folder(output_dir);
    refuse_overwriting(std::vector<std::filesystem::path>(inputs.begin(), inputs.end()),
                       std::vector<std::filesystem::path>{folder / "vocab.json", folder / "merges.txt"});
    tokenizers::BpeTrainer trainer;
    Meter meter("train-bpe:");
    std::vector<std::vector<std::string>> texts;
    for (const auto& name : inputs) {
      if (parquet::is_parquet(name)) {
        parquet::ParquetTexts rows(name, json_keys);
        while (rows.next(texts)) {
          for (const auto& list : texts)
            for (const auto& one : list) trainer.add(one);
          meter(rows.position(), rows.size());
        }
        continue;
      }
      files::TextFile file(name, format.value_or(files::format_by_name(name)));
      for (files::RawDocument document; file.next(document);) {
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

}  // namespace

void add_data_train_bpe(Command& data) {
  auto work = std::make_shared<TrainBpe>();
  auto* command =
      data.add_subcommand("train-bpe", "Train a byte-level BPE tokenizer on text: vocab.json and merges.txt");
  command->add_option("--input", work->inputs, "Files to train on: text, JSON lines, Parquet")->required();
  add_format(*command, work->format);
  command->add_option("--json-keys,--json-key", work->json_keys, "Keys whose values are texts [text]");
  command->add_option("--vocab-size", work->vocab_size,
                      "Vocabulary size: 256 bytes, merges, and <|endoftext|> as the last token [8192]");
  command
      ->add_option("--min-frequency", work->min_frequency, "Minimum number of occurrences of a pair to be merged [2]")
      ->positive();
  command->add_option("--output-dir,--output", work->output_dir, "Folder for the two files")->required();
  command->callback([work] { work->run(); });
}

}  // namespace tessera::cli
