// Instructions and answers as token files: MindSpeed-LLM's --is-instruction-dataset.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/gpt/data_path.h"
#include "framework/gpt/split.h"
#include "framework/instructions/instruction_dataset.h"
#include "framework/instructions/instruction_handlers.h"
#include "framework/instructions/instruction_templates.h"
#include "framework/instructions/pair_dataset.h"
#include "framework/instructions/tokens_of_texts.h"
#include "framework/instructions/without_label.h"
#include "framework/tokenizers/token_origin.h"
#include "framework/tokenizers/tokenizer.h"

namespace tessera::instructions {
namespace {

constexpr int most_workers = 4;  // every rank has its threads

struct InstructionOptions {
  gpt::DataPath data_path;
  std::optional<std::string> split;
  bool reset_position_ids = false, reset_attention_mask = false;
  bool neat_pack = false, padded_samples = false, no_shuffle = false, cut_max_seqlen = false;
  std::optional<std::string> prompt_type;
  bool is_pairwise_dataset = false;
  // Texts, from which token files are made.
  std::optional<std::string> handler_name, map_keys, data_cache_path;
  std::optional<bool> enable_thinking;
  std::optional<std::int64_t> max_samples;
  bool train_on_prompt = false, mask_history = false;
};

bool reads_texts(const InstructionOptions& o) { return o.handler_name.has_value(); }

void describe_texts(options::Schema<InstructionOptions>& s) {
  using O = InstructionOptions;
  const auto texts = [](const O& o) { return reads_texts(o); };
  const char* const no_texts = "`handler_name` is null";
  const auto conversations = [](const O& o) { return reads_texts(o) && !o.is_pairwise_dataset; };
  const char* const no_conversations = "`handler_name` is null or of pairs";
  s.option("handler_name", &O::handler_name,
           "Handler of MindSpeed-LLM that reads `data_path` as JSON, JSON lines or Parquet: "
           "{Alpaca,Sharegpt}Style{Instruction,Pairwise}Handler; null: `data_path` is a prefix of token files.")
      .when_changed(options::Change::order)
      .no_flag("MindSpeed-LLM trains on token files");
  s.option(
       "map_keys", &O::map_keys,
       "JSON object that names the keys of the texts, as --map-keys of `tessera data preprocess`; null: the keys of "
       "the handler.")
      .matters_when(texts, no_texts)
      .no_flag("MindSpeed-LLM trains on token files");
  s.option("data_cache_path", &O::data_cache_path,
           "Folder of the token files that are made of texts; null: cache/instructions beside the first file.")
      .matters_when(texts, no_texts);
  s.option("enable_thinking", &O::enable_thinking,
           "Reasoning (thinking) of answers, for prompt types that have it: true adds an empty one where it is missing "
           "and trains on it, false removes it; null: it is kept, and an empty one is not trained on.")
      .matters_when(texts, no_texts)
      .no_flag("MindSpeed-LLM trains on token files");
  s.option("max_samples", &O::max_samples, "Maximum number of rows of the texts, from the first; null: all.")
      .when_changed(options::Change::order)
      .at_least(1)
      .at_most(std::int64_t{1} << 40)
      .matters_when(texts, no_texts)
      .no_flag("MindSpeed-LLM trains on token files");
  s.option("train_on_prompt", &O::train_on_prompt, "Compute the loss on prompts too.")
      .matters_when(conversations, no_conversations)
      .no_flag("MindSpeed-LLM trains on token files");
  s.option("mask_history", &O::mask_history, "Compute the loss on the last answer of each conversation only.")
      .matters_when(conversations, no_conversations)
      .no_flag("MindSpeed-LLM trains on token files");
}

void describe(options::Schema<InstructionOptions>& s) {
  using O = InstructionOptions;
  const auto one_answer = [](const O& o) { return !o.is_pairwise_dataset; };
  const char* const has_pairs = "`is_pairwise_dataset` is true";
  s.when_changed(options::Change::told);
  s.option("data_path", &O::data_path,
           "Prefix of the files PREFIX_packed_{input_ids,attention_mask,labels}_document.bin and .idx, or of pairs "
           "PREFIX_packed_{chosen,rejected}_{input_ids,labels}_document; with `handler_name` files of texts.")
      .when_changed(options::Change::order);
  s.option("split", &O::split, "Weights of train, valid and test, for example \"969, 30, 1\"; null: these.")
      .when_changed(options::Change::order)
      .must("DAT5", [](const O& o) { return gpt::broken_split(o.split); });
  s.option("reset_position_ids", &O::reset_position_ids,
           "Reset position ids after each end-of-document token; needs `reset_attention_mask`.")
      .matters_when(one_answer, has_pairs);
  s.option("reset_attention_mask", &O::reset_attention_mask,
           "Reset the attention mask after each end-of-document token: no attention across documents.")
      .matters_when(one_answer, has_pairs);
  s.option("neat_pack", &O::neat_pack,
           "Take the boundaries of packed samples from the attention mask, as data preprocessed with --neat-pack has "
           "them, instead of from end-of-document tokens.")
      .matters_when(one_answer, has_pairs);
  s.option("padded_samples", &O::padded_samples,
           "Fill each pass over the data up to whole global batches with samples from the beginning of the file.")
      .when_changed(options::Change::order);
  s.option("no_shuffle", &O::no_shuffle, "Read samples in the order of the file.").when_changed(options::Change::order);
  s.option(
       "cut_max_seqlen", &O::cut_max_seqlen,
       "Cut a sample that is longer than `seq_length` at its end; false: cut its prompts and answers in proportion.")
      .matters_when(one_answer, has_pairs);
  s.option("prompt_type", &O::prompt_type,
           "Prompt type that the data was preprocessed with, or is with `handler_name`. Samples longer than "
           "`seq_length` of chatglm2, glm4, gemma and "
           "others with `efficient_eos` are refused without `cut_max_seqlen`.")
      .matters_when([](const O& o) { return reads_texts(o) || !o.is_pairwise_dataset; }, has_pairs);
  s.option("is_pairwise_dataset", &O::is_pairwise_dataset,
           "Samples are pairs of a chosen and a rejected answer to one prompt, for stages that learn preferences.");
  describe_texts(s);
}

using Order = std::vector<std::int64_t>;

std::int32_t padding_of(const data::DataParts& parts) {
  return std::max(parts.pad.value_or(-1) >= 0 ? *parts.pad : parts.eod.value_or(0), 0);
}

// The prefix of token files: the option itself, or of those made of its texts.
std::string prefix_of(const InstructionOptions& o, const data::DataParts& parts) {
  if (!reads_texts(o)) return o.data_path.parts[0];
  if (!parts.tokenizer)
    throw ConfigError("handler_name is given without a tokenizer, which its texts need; choose a tokenizer_type");
  InstructionWriteRequest request;
  request.inputs = o.data_path.parts;
  request.handler_name = *o.handler_name;
  request.map_keys = o.map_keys.value_or("");
  request.prompt_type = *o.prompt_type;
  request.enable_thinking = o.enable_thinking;
  request.max_rows = o.max_samples;
  request.train_on_prompt = o.train_on_prompt;
  request.mask_history = o.mask_history;
  if (o.neat_pack && !o.is_pairwise_dataset) {
    request.pack = request.neat_pack = true;
    request.seq_length = parts.seq_length;
  }
  const auto threads = std::thread::hardware_concurrency();
  request.workers = std::clamp(static_cast<int>(threads), 1, most_workers);
  const auto folder = o.data_cache_path ? std::filesystem::path(*o.data_cache_path) : folder_of_tokens(request);
  return tokens_of_texts(*parts.tokenizer, request, folder, parts.tell);
}

struct OneMaker {
  OneMaker(const InstructionOptions& o, const data::DataParts& parts)
      : files(std::make_shared<InstructionFiles>(prefix_of(o, parts))) {
    request.seq_length = parts.seq_length;
    request.vocab_size = parts.vocab_size;
    request.eod = parts.eod;
    request.pad = padding_of(parts);
    request.rules = {.reset_attention_mask = o.reset_attention_mask,
                     .reset_position_ids = o.reset_position_ids,
                     .neat_pack = o.neat_pack,
                     .cut_max_seqlen = o.cut_max_seqlen,
                     .efficient_eos = o.prompt_type && *efficient_eos_of(*o.prompt_type)};
  }
  std::unique_ptr<data::Dataset> of(Order order) const {
    auto one = request;
    one.order = std::move(order);
    return std::make_unique<InstructionDataset>(files, std::move(one));
  }
  std::int64_t longest(std::int64_t sample) const { return files->input_ids.length(sample); }
  static void warn(const data::Dataset&, const gpt::SequenceRange&, const data::TellLine&) {}
  const std::string& prefix() const { return files->input_ids.prefix(); }

  std::shared_ptr<const InstructionFiles> files;
  InstructionDataset::Request request;
};

struct PairMaker {
  PairMaker(const InstructionOptions& o, const data::DataParts& parts)
      : files(std::make_shared<PairFiles>(prefix_of(o, parts))),
        request{{}, parts.seq_length, parts.vocab_size, padding_of(parts)} {}
  std::unique_ptr<data::Dataset> of(Order order) const {
    auto one = request;
    one.order = std::move(order);
    return std::make_unique<PairDataset>(files, std::move(one));
  }
  std::int64_t longest(std::int64_t sample) const { return files->longest(sample); }
  static void warn(const data::Dataset& train, const gpt::SequenceRange& range, const data::TellLine& warn) {
    warn_of_equal_pairs(train, range.size(), warn);
  }
  const std::string& prefix() const { return files->chosen.input_ids.prefix(); }

  std::shared_ptr<const PairFiles> files;
  PairDataset::Request request;
};

template <class Maker>
void examine(const Maker& maker, const data::Dataset& train, const gpt::SequenceRange& range,
             const data::TellLine& warn) {
  refuse_if_without_labels(train, range.size());
  warn_of_samples_without_label(train, range.size(), warn);
  maker.warn(train, range, warn);
  std::int64_t cut = 0, longest = 0;
  for (auto i = range.begin; warn && i < range.end; ++i) {
    cut += maker.longest(i) > train.seq_length() ? 1 : 0;
    longest = std::max(longest, maker.longest(i));
  }
  warn_of_cut_samples(cut, range.size(), longest, train, warn);
}

template <class Maker>
std::unique_ptr<data::DataSplits> splits_of(const InstructionOptions& o, const data::DataParts& parts,
                                            const Maker& maker) {
  if (parts.warn)
    if (const auto line = tokenizers::other_origin(maker.prefix(), parts.tokenizer); !line.empty()) parts.warn(line);
  const auto ranges = instruction_split(o.split.value_or("969, 30, 1"), maker.files->samples());
  const auto of = [&](const gpt::SequenceRange& range, std::int64_t asked) -> std::unique_ptr<data::Dataset> {
    if (asked == 0 || range.size() <= 0) return nullptr;
    const auto pad_to = o.padded_samples ? parts.global_batch_size : 0;
    return maker.of(instruction_order(range, asked == data::one_epoch ? 1 : asked,
                                      static_cast<std::uint32_t>(parts.seed), !o.no_shuffle, pad_to));
  };
  auto splits = std::make_unique<data::DataSplits>();
  splits->train = of(ranges[0], parts.asked.train);
  if (splits->train) examine(maker, *splits->train, ranges[0], parts.warn);
  splits->valid = of(ranges[1], parts.asked.valid);
  splits->test = of(ranges[2], parts.asked.test);
  return splits;
}

void check_texts(const InstructionOptions& o) {
  if (!o.prompt_type)
    throw ConfigError(
        "dataset_config.handler_name is given without prompt_type; give the prompt type of the model, for example "
        "qwen");
  if (InstructionHandler(*o.handler_name, o.map_keys.value_or("")).makes_pairs() != o.is_pairwise_dataset)
    throw ConfigError(text("dataset_config.handler_name is ", *o.handler_name, ", but is_pairwise_dataset is ",
                           o.is_pairwise_dataset
                               ? "true; give AlpacaStylePairwiseHandler or SharegptStylePairwiseHandler"
                               : "false; set it to true for pairs, or give AlpacaStyleInstructionHandler or "
                                 "SharegptStyleInstructionHandler"));
}

std::unique_ptr<data::DataSplits> make_instruction(const InstructionOptions& o, data::DataParts parts) {
  if (o.data_path.empty())
    throw ConfigError(
        "dataset_type instruction needs data_path: the prefix of PREFIX_packed_input_ids_document.bin, or "
        "with handler_name files of texts");
  if (reads_texts(o)) check_texts(o);
  if (o.data_path.parts.size() > 1 && !reads_texts(o))
    throw ConfigError(text("dataset_config.data_path has ", o.data_path.parts.size(),
                           " words; dataset_type instruction reads one prefix, as MindSpeed-LLM does"));
  if (o.prompt_type && !efficient_eos_of(*o.prompt_type))
    throw ConfigError(text("dataset_config.prompt_type '", *o.prompt_type,
                           "' is not known; give a name of MindSpeed-LLM's configs/finetune/templates.json"));
  return o.is_pairwise_dataset ? splits_of(o, parts, PairMaker(o, parts)) : splits_of(o, parts, OneMaker(o, parts));
}

std::int64_t rows_per_sample(const data::DatasetRegistry::Choice& choice) {
  const auto* options = choice.options<InstructionOptions>();
  return options && options->is_pairwise_dataset ? 2 : 1;
}

}  // namespace

void register_instruction(data::DatasetRegistry& registry) {
  registry.add("instruction", make_instruction,
               "MindSpeed-LLM's instruction data, or preference pairs: input ids and labels as token files.",
               {"DecoderPackedMTFDataset"});
  registry.declare_rows_per_sample("instruction", rows_per_sample);
}

}  // namespace tessera::instructions
