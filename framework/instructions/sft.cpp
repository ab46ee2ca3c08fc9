// Conversations as text: Megatron-LM's --sft.

#include <array>

#include "framework/data/dataset.h"
#include "framework/gpt/data_path.h"
#include "framework/gpt/split.h"
#include "framework/instructions/sft_dataset.h"
#include "framework/instructions/without_label.h"

namespace tessera::instructions {
namespace {

struct SftOptions {
  gpt::DataPath data_path;
  std::optional<std::string> split;
  gpt::DataPath train_data_path, valid_data_path, test_data_path;
  std::string sft_tokenizer_prompt_format = "nemotron-h-aligned";
  std::optional<std::string> chat_template;
  std::optional<bool> sft_answers_only;
  bool mask_history = false;
  std::int64_t sft_lines_per_sample = 1;
};

void describe(options::Schema<SftOptions>& s) {
  using O = SftOptions;
  s.when_changed(options::Change::told);
  s.option("data_path", &O::data_path,
           "File of JSON lines with `messages`; `split` divides its lines into train, valid and test.")
      .when_changed(options::Change::order);
  s.option("split", &O::split, "Weights of train, valid and test, for example \"969, 30, 1\"; null: these.")
      .when_changed(options::Change::order)
      .must("DAT5", [](const O& o) { return gpt::broken_split(o.split); });
  s.option("train_data_path", &O::train_data_path, "File of the training data, instead of `data_path`.")
      .when_changed(options::Change::order);
  s.option("valid_data_path", &O::valid_data_path, "File of the validation data.");
  s.option("test_data_path", &O::test_data_path, "File of the test data.");
  s.option("sft_tokenizer_prompt_format", &O::sft_tokenizer_prompt_format,
           "Format of conversations: nemotron-h-aligned, nemotron-nano-v2, identity, or default: the chat template of "
           "the tokenizer or `chat_template`.");
  s.option("chat_template", &O::chat_template,
           "Chat template (Jinja) that renders a conversation to text, as its text or the name of its file; null: the "
           "tokenizer's.");
  s.option("sft_answers_only", &O::sft_answers_only,
           "Compute the loss on answers only; null: true, except for the format default, as in Megatron-LM.")
      .no_flag("Megatron-LM decides it by the prompt format");
  s.option("mask_history", &O::mask_history,
           "Compute the loss on the last answer of each conversation only; needs the loss on answers only.")
      .no_flag("Megatron-LM learns all answers");
  s.option("sft_lines_per_sample", &O::sft_lines_per_sample,
           "Lines of the file that are packed into one sample; no conversation attends to another.")
      .when_changed(options::Change::order)
      .at_least(1)
      .at_most(1000000)
      .no_flag("a sample of Megatron-LM is one line");
}

std::string file_of(const gpt::DataPath& path, const char* option) {
  if (path.parts.size() > 1)
    throw ConfigError(text("dataset_config.", option, " has ", path.parts.size(),
                           " words; dataset_type sft reads one file, join the files into one"));
  return path.parts[0];
}

struct Maker {
  const SftOptions& options;
  const data::DataParts& parts;
  std::shared_ptr<const tokenizers::SftTokenizer> tokenizer;

  std::int64_t epoch_of(const gpt::SequenceRange& lines) const {
    return (lines.size() + options.sft_lines_per_sample - 1) / options.sft_lines_per_sample;
  }

  void warn(const data::Dataset* train, const gpt::SequenceRange& lines) const {
    if (!train) return;
    refuse_if_without_labels(*train, epoch_of(lines));
    if (!parts.warn) return;
    if (const auto note = tokenizer->padding_note(); !note.empty()) parts.warn(note);
    warn_of_samples_without_label(*train, epoch_of(lines), parts.warn);
  }

  std::unique_ptr<data::Dataset> one(const std::shared_ptr<const ConversationFile>& file, const std::string& name,
                                     const gpt::SequenceRange& lines, std::int64_t asked, const char* split) const {
    if (asked == 0) return nullptr;
    SftDataset::Request request;
    request.lines = lines;
    request.samples = asked;
    if (asked == data::one_epoch) request.samples = epoch_of(lines);
    request.seq_length = parts.seq_length;
    request.lines_per_sample = options.sft_lines_per_sample;
    request.vocab_size = parts.vocab_size;
    try {
      return std::make_unique<SftDataset>(file, tokenizer, request);
    } catch (const ConfigError& error) {
      throw ConfigError(text(name, ": the ", split, " split ", error.what()));
    }
  }

  std::unique_ptr<data::Dataset> whole(const gpt::DataPath& path, const char* option, std::int64_t asked,
                                       const char* split) const {
    if (path.empty()) return nullptr;
    const auto name = file_of(path, option);
    const auto file = std::make_shared<ConversationFile>(name);
    auto data = one(file, name, {0, file->lines()}, asked, split);
    if (option == std::string_view("train_data_path")) warn(data.get(), {0, file->lines()});
    return data;
  }
};

std::unique_ptr<data::DataSplits> make_sft(const SftOptions& o, data::DataParts parts) {
  const bool apart = !o.train_data_path.empty() || !o.valid_data_path.empty() || !o.test_data_path.empty();
  if (apart && (!o.data_path.empty() || o.split))
    throw ConfigError("data_path and split exclude train_data_path, valid_data_path and test_data_path");
  if (!apart && o.data_path.empty()) throw ConfigError("dataset_type sft needs data_path: a file of JSON lines");
  const Maker maker{o, parts,
                    std::make_shared<tokenizers::SftTokenizer>(
                        parts.tokenizer, tokenizers::SftFormat{o.sft_tokenizer_prompt_format, o.chat_template,
                                                               o.sft_answers_only, o.mask_history})};
  auto splits = std::make_unique<data::DataSplits>();
  if (apart) {
    splits->train = maker.whole(o.train_data_path, "train_data_path", parts.asked.train, "train");
    splits->valid = maker.whole(o.valid_data_path, "valid_data_path", parts.asked.valid, "valid");
    splits->test = maker.whole(o.test_data_path, "test_data_path", parts.asked.test, "test");
    return splits;
  }
  const auto name = file_of(o.data_path, "data_path");
  const auto file = std::make_shared<ConversationFile>(name);
  const auto ranges = gpt::cut_split(o.split.value_or("969, 30, 1"), file->lines());
  const auto of = [&](std::size_t which, std::int64_t asked, const char* split) {
    return ranges[which] ? maker.one(file, name, *ranges[which], asked, split) : nullptr;
  };
  splits->train = of(0, parts.asked.train, "train");
  if (ranges[0]) maker.warn(splits->train.get(), *ranges[0]);
  splits->valid = of(1, parts.asked.valid, "valid");
  if (ranges[2] && ranges[2]->size() > 0) splits->test = of(2, parts.asked.test, "test");
  return splits;
}

}  // namespace

void register_sft(data::DatasetRegistry& registry) {
  registry.add("sft", make_sft, "Megatron-LM's SFTDataset: conversations as JSON lines.", {"SFTDataset"});
}

}  // namespace tessera::instructions
