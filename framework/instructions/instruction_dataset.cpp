#include "framework/instructions/instruction_dataset.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "framework/base/error.h"
#include "framework/data/bad_sample.h"
#include "framework/data/legacy_random.h"
#include "framework/instructions/cut_lengths.h"

namespace tessera::instructions {
namespace {

constexpr std::int32_t theirs_ignored = -100, ignored = -1;

std::string of(const std::string& prefix, const char* field) { return prefix + "_packed_" + field + "_document"; }

// `prefix`, unless it has files of pairs only.
const std::string& without_pairs(const std::string& prefix) {
  const auto name = of(prefix, "input_ids") + ".idx";
  if (std::filesystem::exists(of(prefix, "chosen_input_ids") + ".idx") && !std::filesystem::exists(name))
    throw ConfigError(text(name,
                           ": does not exist, the files with this prefix hold pairs; set "
                           "is_pairwise_dataset: true, or preprocess conversations"));
  return prefix;
}

}  // namespace

InstructionFiles::InstructionFiles(const std::string& prefix)
    : input_ids(of(without_pairs(prefix), "input_ids")),
      attention_mask(of(prefix, "attention_mask")),
      labels(of(prefix, "labels")) {
  for (const auto* other : {&attention_mask, &labels}) {
    const auto name = of(prefix, other == &labels ? "labels" : "attention_mask");
    if (other->sequences() != input_ids.sequences())
      throw ConfigError(text(name, ": has ", other->sequences(), " samples, but ", of(prefix, "input_ids"), " has ",
                             input_ids.sequences(), "; preprocess the data again"));
    for (std::int64_t i = 0; i < input_ids.sequences(); ++i)
      if (other->length(i) != input_ids.length(i))
        throw ConfigError(text(name, ": sample ", i, " has ", other->length(i), " numbers, but its input ids are ",
                               input_ids.length(i), "; preprocess the data again"));
  }
}

std::vector<std::int64_t> instruction_order(const gpt::SequenceRange& range, std::int64_t asked, std::uint32_t seed,
                                            bool shuffle, std::int64_t pad_to) {
  std::vector<std::int64_t> order;
  if (range.size() <= 0) return order;
  data::NumpyRandomState random(seed);
  const auto rest = pad_to > 0 ? range.size() % pad_to : 0;
  while (static_cast<std::int64_t>(order.size()) < asked) {
    const auto before = order.size();
    for (auto i = range.begin; i < range.end; ++i) order.push_back(i);
    for (std::int64_t i = 0; rest != 0 && i < pad_to - rest; ++i) order.push_back(i);
    if (shuffle) random.shuffle(std::span(order).subspan(before));
  }
  return order;
}

std::array<gpt::SequenceRange, 3> instruction_split(const std::string& weights, std::int64_t samples) {
  std::array<double, 3> parts = {0, 0, 0};
  const char sign = weights.find(',') != std::string::npos ? ',' : '/';
  std::size_t count = 0;
  for (std::size_t begin = 0; begin <= weights.size(); ++count) {
    const auto end = std::min(weights.find(sign, begin), weights.size());
    auto word = weights.substr(begin, end - begin);
    word.erase(0, std::min(word.find_first_not_of(" \t"), word.size()));
    word.erase(word.find_last_not_of(" \t") + 1);
    double value = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || read.ec != std::errc() || read.ptr != word.data() + word.size() || !std::isfinite(value) ||
        value < 0)
      throw ConfigError(text("split '", weights, "': '", word, "' is not a weight; give for example \"969,30,1\""));
    if (count < 3) parts[count] = value;
    begin = end + 1;
  }
  const double sum = parts[0] + parts[1] + parts[2];
  if (!(sum > 0)) throw ConfigError(text("split '", weights, "' has no weight above 0"));
  std::array<std::int64_t, 4> bounds = {0, 0, 0, 0};
  for (std::size_t i = 0; i < 3; ++i)  // Python's round: to even
    bounds[i + 1] =
        bounds[i] + static_cast<std::int64_t>(std::nearbyint(parts[i] / sum * static_cast<double>(samples)));
  const auto beyond = bounds[3] - samples;
  for (std::size_t i = 1; i < 4; ++i) bounds[i] -= beyond;
  return {gpt::SequenceRange{bounds[0], bounds[1]}, {bounds[1], bounds[2]}, {bounds[2], bounds[3]}};
}

InstructionDataset::InstructionDataset(std::shared_ptr<const InstructionFiles> files, Request request)
    : files_(std::move(files)), request_(std::move(request)) {
  const auto& r = request_.rules;
  if (r.neat_pack && !r.reset_attention_mask)
    throw ConfigError("neat_pack is given without reset_attention_mask; give reset_attention_mask: true");
  if (r.reset_attention_mask && !r.neat_pack && !request_.eod)
    throw ConfigError(
        "reset_attention_mask requires an end-of-document token, and there is no tokenizer; choose a tokenizer_type");
}

void InstructionDataset::read(std::int64_t index, const SampleView& out) const {
  must(index >= 0 && index < samples(), "a sample is read by its number");
  const auto sample = request_.order[static_cast<std::size_t>(index)];
  const auto length = files_->input_ids.length(sample);
  const auto& rules = request_.rules;
  const auto refuse = [&](const auto&... message) {
    throw data::BadSampleError(text(files_->input_ids.place(sample, 0), ": ", message...));
  };
  if (length == 0) refuse("the sample is empty");
  const bool is_long = length > request_.seq_length;
  if (rules.reset_attention_mask && is_long)
    refuse("the sample has ", length, " tokens, more than seq_length ", request_.seq_length,
           "; preprocess it with this seq_length");
  if (rules.neat_pack && length != request_.seq_length)
    refuse("neat_pack needs samples of seq_length ", request_.seq_length, " tokens, this one has ", length,
           "; preprocess them with --pack --neat-pack and this --seq-length");
  if (is_long && rules.efficient_eos && !rules.cut_max_seqlen)
    refuse(
        "the sample has ", length, " tokens, more than seq_length ", request_.seq_length,
        ", and with this prompt_type MindSpeed-LLM cuts it to tokens of which some are -100; preprocess it with this "
        "seq_length, or set cut_max_seqlen: true");
  const auto count = is_long && !rules.cut_max_seqlen ? read_cut(sample, out)
                                                      : read_whole(sample, std::min(length, request_.seq_length), out);
  std::fill(out.tokens.begin() + count, out.tokens.end(), request_.pad);
  std::fill(out.labels.begin() + std::max<std::int64_t>(count - 1, 0), out.labels.end(), theirs_ignored);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto token = out.tokens[static_cast<std::size_t>(i)], label = out.labels[static_cast<std::size_t>(i)];
    const auto wrong = [&](std::int32_t id) {
      return request_.vocab_size > 0 && (id < 0 || id >= request_.vocab_size);
    };
    if (wrong(token) || (label != theirs_ignored && wrong(label)))
      refuse("holds token ", wrong(token) ? token : label, ", but the model's vocabulary has ", request_.vocab_size,
             "; make the data with the model's tokenizer, or raise vocab_size");
  }
  for (std::size_t i = 0; i < out.labels.size(); ++i) {
    out.loss_mask[i] = out.labels[i] == theirs_ignored ? 0.0F : 1.0F;
    if (out.labels[i] == theirs_ignored) out.labels[i] = ignored;
  }
  if (rules.neat_pack) {
    number_parts(sample, out);
    return;
  }
  if (rules.cut_max_seqlen && !rules.reset_attention_mask) check_mask(sample, count, out);
  std::iota(out.positions.begin(), out.positions.end(), 0);
  std::fill(out.document_start.begin(), out.document_start.end(), 0);
  if (rules.reset_attention_mask) mark_documents(count, out);
}

// The first `length` tokens, and as labels those of the tokens after each.
std::int64_t InstructionDataset::read_whole(std::int64_t sample, std::int64_t length, const SampleView& out) const {
  files_->input_ids.read(sample, 0, out.tokens.first(static_cast<std::size_t>(length)));
  if (length > 1) files_->labels.read(sample, 1, out.labels.first(static_cast<std::size_t>(length - 1)));
  return length;
}

// A sample that is too long: of each prompt and answer a part, until seq_length is reached.
std::int64_t InstructionDataset::read_cut(std::int64_t sample, const SampleView& out) const {
  const auto length = static_cast<std::size_t>(files_->input_ids.length(sample));
  std::vector<std::int32_t> ids(length), labels(length), cut_ids, cut_labels;
  files_->input_ids.read(sample, 0, ids);
  files_->labels.read(sample, 0, labels);
  std::vector<std::size_t> begins, ends;
  for (std::size_t i = 0; i < length; ++i) {
    const bool prompt = labels[i] == theirs_ignored, before = i > 0 && labels[i - 1] == theirs_ignored;
    if (prompt && !before) begins.push_back(i);
    if (!prompt && before) ends.push_back(i);
  }
  if (begins.empty() || ends.size() != begins.size())
    throw data::BadSampleError(
        text(files_->labels.place(sample, 0),
             ": the sample is longer than seq_length and has no answer after its last prompt, so it "
             "cannot be cut; set cut_max_seqlen: true, or a longer seq_length"));
  std::int64_t total = 0;
  for (std::size_t turn = 0; turn < begins.size() && total < request_.seq_length; ++turn) {
    const auto begin = begins[turn], end = ends[turn];
    const auto until = turn + 1 < begins.size() ? begins[turn + 1] : length;
    const auto [prompt, answer] = cut_lengths(static_cast<std::int64_t>(end - begin),
                                              static_cast<std::int64_t>(until - end), request_.seq_length - total);
    total += prompt + answer;
    const auto add = [&](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from, std::size_t at,
                         std::int64_t count) {
      to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(at),
                from.begin() + static_cast<std::ptrdiff_t>(at) + count);
    };
    add(cut_ids, ids, begin, prompt);
    add(cut_ids, labels, end, answer);
    add(cut_labels, labels, begin, prompt);
    add(cut_labels, labels, end, answer);
  }
  const auto count = std::min(cut_ids.size(), out.tokens.size());
  std::copy_n(cut_ids.begin(), count, out.tokens.begin());
  if (count > 1) std::copy_n(cut_labels.begin() + 1, count - 1, out.labels.begin());
  return static_cast<std::int64_t>(count);
}

// The parts that the attention mask numbers: each has positions from 0; every token of padding is a part of its own.
void InstructionDataset::number_parts(std::int64_t sample, const SampleView& out) const {
  auto parts = out.document_start;
  files_->attention_mask.read(sample, 0, parts);
  std::sort(parts.begin(), parts.end(), [](std::int32_t a, std::int32_t b) {
    return a != b && (b == 0 || (a != 0 && a < b));  // 0 comes last
  });
  std::int32_t start = 0, part = parts[0];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto here = static_cast<std::int32_t>(i);
    if (parts[i] != part || parts[i] == 0) start = here;
    part = parts[i];
    parts[i] = start;
    out.positions[i] = request_.rules.reset_position_ids ? here - start : here;
  }
}

void InstructionDataset::mark_documents(std::int64_t count, const SampleView& out) const {
  std::int32_t start = 0;
  for (std::size_t i = 0; i < out.tokens.size(); ++i) {
    out.document_start[i] = start;
    if (request_.rules.reset_position_ids) out.positions[i] = static_cast<std::int32_t>(i) - start;
    if (static_cast<std::int64_t>(i) < count && out.tokens[i] == *request_.eod)
      start = static_cast<std::int32_t>(i) + 1;
  }
}

// A 0 in the mask hides a token from all others: after the last token that makes no difference.
void InstructionDataset::check_mask(std::int64_t sample, std::int64_t count, const SampleView& out) const {
  auto mask = out.positions.first(static_cast<std::size_t>(count));
  files_->attention_mask.read(sample, 0, mask);
  const auto hidden = std::find(mask.begin(), mask.end(), 0);
  const auto seen = std::find_if(hidden, mask.end(), [](std::int32_t one) { return one != 0; });
  if (seen != mask.end())
    throw data::BadSampleError(
        text(files_->attention_mask.place(sample, hidden - mask.begin()),
             ": the attention mask hides a token before the end of the sample, which is not supported"));
}

}  // namespace tessera::instructions
