#include "framework/instructions/pair_dataset.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>

#include "framework/base/error.h"
#include "framework/data/bad_sample.h"
#include "framework/instructions/cut_lengths.h"
#include "framework/instructions/instruction_encoding.h"

namespace tessera::instructions {
namespace {

// `prefix`, if it has files of pairs.
const std::string& with_pairs(const std::string& prefix) {
  const auto name = prefix + "_packed_chosen_input_ids_document.idx";
  if (std::filesystem::exists(prefix + "_packed_input_ids_document.idx") && !std::filesystem::exists(name))
    throw ConfigError(text(name,
                           ": does not exist, the files with this prefix hold no pairs; preprocess pairs with "
                           "--handler-name AlpacaStylePairwiseHandler or SharegptStylePairwiseHandler, or set "
                           "is_pairwise_dataset: false"));
  return prefix;
}

PairFiles::Answer answer_files(const std::string& prefix, const char* which) {
  const auto name = text(prefix, "_packed_", which);
  return {indexed::IndexedDataset(name + "_input_ids_document"), indexed::IndexedDataset(name + "_labels_document")};
}

void check_answer(const PairFiles::Answer& answer, std::int64_t samples, const std::string& name) {
  for (const auto* one : {&answer.input_ids, &answer.labels})
    if (one->sequences() != samples)
      throw ConfigError(text(name, one == &answer.labels ? "_labels" : "_input_ids", "_document: has ",
                             one->sequences(), " samples, but the chosen input ids are ", samples,
                             "; preprocess the data again"));
  for (std::int64_t i = 0; i < samples; ++i)
    if (answer.labels.length(i) != answer.input_ids.length(i))
      throw ConfigError(text(name, "_labels_document: sample ", i, " has ", answer.labels.length(i),
                             " numbers, but its input ids are ", answer.input_ids.length(i),
                             "; preprocess the data again"));
}

}  // namespace

PairFiles::PairFiles(const std::string& prefix)
    : chosen(answer_files(with_pairs(prefix), "chosen")), rejected(answer_files(prefix, "rejected")) {
  check_answer(chosen, samples(), prefix + "_packed_chosen");
  check_answer(rejected, samples(), prefix + "_packed_rejected");
}

std::int64_t PairFiles::longest(std::int64_t sample) const {
  return std::max(chosen.input_ids.length(sample), rejected.input_ids.length(sample));
}

PairDataset::PairDataset(std::shared_ptr<const PairFiles> files, Request request)
    : files_(std::move(files)), request_(std::move(request)) {}

void PairDataset::read(std::int64_t index, const SampleView& out) const {
  must(index >= 0 && index < samples() && out.samples == 2, "a pair is read by its number, into two rows");
  const auto sample = request_.order[static_cast<std::size_t>(index)];
  const auto first = samples_of<SampleView>(out, 0, 1), second = samples_of<SampleView>(out, 1, 1);
  const auto prompt = prompt_of(sample, first.labels);
  const auto kept = cut_lengths(prompt, files_->longest(sample) - prompt, request_.seq_length);
  read_row(files_->chosen, sample, prompt, kept.prompt, kept.answer, first);
  read_row(files_->rejected, sample, prompt, kept.prompt, kept.answer, second);
  if (!std::equal(first.tokens.begin(), first.tokens.begin() + kept.prompt, second.tokens.begin()))
    throw data::BadSampleError(text(files_->rejected.input_ids.place(sample, 0),
                                    ": the rejected sequence begins with another prompt than the chosen one; "
                                    "preprocess the data again"));
}

// The tokens before the first label of the chosen sequence. `memory` is overwritten.
std::int64_t PairDataset::prompt_of(std::int64_t sample, std::span<std::int32_t> memory) const {
  const auto length = static_cast<std::size_t>(files_->chosen.labels.length(sample));
  std::vector<std::int32_t> more(length > memory.size() ? length : 0);
  const auto labels = more.empty() ? memory.first(length) : std::span(more);
  files_->chosen.labels.read(sample, 0, labels);
  const auto at = std::find_if(labels.begin(), labels.end(), [](std::int32_t one) { return one != ignored_label; });
  const auto prompt = at - labels.begin();
  if (at == labels.end() || files_->rejected.input_ids.length(sample) < prompt)
    throw data::BadSampleError(
        text(files_->chosen.labels.place(sample, 0), ": ",
             at == labels.end() ? "the chosen answer has no label" : "the rejected sequence is shorter than the prompt",
             "; correct or remove this pair"));
  return prompt;
}

void PairDataset::read_row(const PairFiles::Answer& from, std::int64_t sample, std::int64_t prompt,
                           std::int64_t kept_prompt, std::int64_t most_answer, const SampleView& out) const {
  const auto answer = std::min(from.input_ids.length(sample) - prompt, most_answer);
  const auto begin = static_cast<std::size_t>(kept_prompt), count = begin + static_cast<std::size_t>(answer);
  from.input_ids.read(sample, 0, out.tokens.first(begin));
  from.input_ids.read(sample, prompt, out.tokens.subspan(begin, count - begin));
  std::fill(out.tokens.begin() + static_cast<std::ptrdiff_t>(count), out.tokens.end(), request_.pad);
  for (std::size_t i = 0; i < out.tokens.size(); ++i) {
    const auto token = out.tokens[i];
    if (request_.vocab_size > 0 && i < count && (token < 0 || token >= request_.vocab_size))
      throw data::BadSampleError(text(from.input_ids.place(sample, 0), ": holds token ", token,
                                      ", but the model's vocabulary has ", request_.vocab_size,
                                      "; make the data with the model's tokenizer, or raise vocab_size"));
    const bool learned = i + 1 >= begin && i + 1 < count;
    out.labels[i] = learned ? out.tokens[i + 1] : -1;
    out.loss_mask[i] = learned ? 1.0F : 0.0F;
  }
  std::iota(out.positions.begin(), out.positions.end(), 0);
  std::fill(out.document_start.begin(), out.document_start.end(), 0);
}

}  // namespace tessera::instructions
