#include "framework/data/gpt_dataset.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace tessera {

GptDataset::GptDataset(std::shared_ptr<const TokenSource> source, const Request& request)
    : source_(std::move(source)), request_(request), index_(build_gpt_index(*source_, request.index)) {
  const auto& o = request_.options;
  if (!request_.eod && (o.reset_position_ids || o.reset_attention_mask || o.eod_mask_loss))
    throw ConfigError(
        "reset_position_ids, reset_attention_mask and eod_mask_loss need to know the token that ends a document; "
        "choose a tokenizer_type");
}

// How many tokens came, and the one after them when there was no more room.
struct GptDataset::Gathered {
  std::int64_t count = 0;
  std::int32_t following = -1;
};

GptDataset::Gathered GptDataset::gather(const SampleStart& from, const SampleStart& to,
                                        std::span<std::int32_t> out) const {
  const auto room = static_cast<std::int64_t>(out.size());
  const std::int64_t extra = request_.index.extra_token ? 1 : 0;
  Gathered got;
  for (auto d = from.document; d <= to.document; ++d) {
    const std::int64_t sequence = index_.documents[static_cast<std::size_t>(d)];
    const std::int64_t begin = d == from.document ? from.offset : 0;
    const auto end = d == to.document ? to.offset + extra : source_->length(sequence);
    const auto count = std::min(end - begin, room - got.count);
    if (count > 0) {
      const auto here = out.subspan(static_cast<std::size_t>(got.count), static_cast<std::size_t>(count));
      source_->read(sequence, begin, here);
      check(here, sequence, begin);
      got.count += count;
    }
    if (begin + std::max<std::int64_t>(count, 0) < end) {
      source_->read(sequence, begin + count, {&got.following, 1});
      check({&got.following, 1}, sequence, begin + count);
    }
  }
  return got;
}

void GptDataset::check(std::span<const std::int32_t> tokens, std::int64_t sequence, std::int64_t offset) const {
  if (request_.vocab_size == 0) return;
  const auto below = static_cast<std::uint32_t>(request_.vocab_size);
  std::uint32_t largest = 0;  // negative ones are the largest of all
  for (const auto token : tokens) largest = std::max(largest, static_cast<std::uint32_t>(token));
  if (largest < below) return;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (static_cast<std::uint32_t>(tokens[i]) >= below)
      throw ConfigError(text(source_->place(sequence, offset + static_cast<std::int64_t>(i)), ": holds token ",
                             tokens[i], ", but the model's vocabulary has ", below,
                             "; make the data with the model's tokenizer, or raise vocab_size"));
}

void GptDataset::read(std::int64_t index, const SampleView& out) const {
  must(index >= 0 && index < samples(), "a sample is read by its number");
  const auto at = index_.shuffle[static_cast<std::size_t>(index)];
  const auto got = gather(index_.starts[at], index_.starts[at + 1], out.tokens);
  const auto count = static_cast<std::size_t>(got.count);
  std::fill(out.tokens.begin() + got.count, out.tokens.end(), 0);
  if (count > 0) std::copy(out.tokens.begin() + 1, out.tokens.begin() + got.count, out.labels.begin());
  std::fill(out.labels.begin() + std::max<std::int64_t>(got.count - 1, 0), out.labels.end(), -1);
  if (count == out.labels.size()) out.labels[count - 1] = got.following;
  for (std::size_t i = 0; i < out.labels.size(); ++i) out.loss_mask[i] = out.labels[i] >= 0 ? 1.0F : 0.0F;
  std::iota(out.positions.begin(), out.positions.end(), 0);
  std::fill(out.document_start.begin(), out.document_start.end(), 0);
  const auto& o = request_.options;
  if (o.reset_position_ids || o.reset_attention_mask || o.eod_mask_loss) mark_documents(out, got.count);
}

std::vector<TokenOrigin> GptDataset::origins(std::int64_t index) const {
  must(index >= 0 && index < samples(), "a sample is asked about by its number");
  const auto at = index_.shuffle[static_cast<std::size_t>(index)];
  const auto &from = index_.starts[at], &to = index_.starts[at + 1];
  const std::int64_t extra = request_.index.extra_token ? 1 : 0;
  std::vector<TokenOrigin> all;
  std::int64_t first = 0;
  for (auto d = from.document; d <= to.document; ++d) {  // as gather()
    const std::int64_t sequence = index_.documents[static_cast<std::size_t>(d)];
    const std::int64_t begin = d == from.document ? from.offset : 0;
    const auto end = d == to.document ? to.offset + extra : source_->length(sequence);
    const auto count = std::min(end - begin, seq_length() - first);
    if (count <= 0) continue;
    all.push_back({first, count, source_->document_of(sequence), sequence, begin, source_->place(sequence, begin)});
    first += count;
  }
  return all;
}

void GptDataset::mark_documents(const SampleView& out, std::int64_t count) const {
  const auto& o = request_.options;
  std::int32_t start = 0;
  for (std::size_t i = 0; i < out.tokens.size(); ++i) {
    if (o.reset_position_ids) out.positions[i] = static_cast<std::int32_t>(i) - start;
    if (o.reset_attention_mask) out.document_start[i] = start;
    if (static_cast<std::int64_t>(i) >= count || out.tokens[i] != *request_.eod) continue;
    if (o.eod_mask_loss) out.loss_mask[i] = 0;
    start = static_cast<std::int32_t>(i) + 1;
  }
}

std::unique_ptr<Dataset> one_split(const std::shared_ptr<const TokenSource>& source, const std::string& name, int split,
                                   const SequenceRange& range, const DocumentOptions& options, const DataParts& parts) {
  constexpr std::array<const char*, 3> names = {"train", "valid", "test"};
  const auto asked =
      std::array{parts.asked.train, parts.asked.valid, parts.asked.test}[static_cast<std::size_t>(split)];
  if (asked == 0 || (split == 2 && range.size() == 0)) return nullptr;
  GptDataset::Request request;
  request.index = {
      range, parts.seq_length, asked, static_cast<std::uint32_t>(parts.seed), options.add_extra_token_to_sequence,
      true};
  if (asked == one_epoch) request.index.samples.reset();
  if (split == 1) request.index.drop_last = options.drop_last_partial_validation_sequence;
  request.vocab_size = parts.vocab_size;
  request.eod = parts.eod;
  request.options = options;
  try {
    return std::make_unique<GptDataset>(source, request);
  } catch (ConfigError& error) {
    throw ConfigError(text(name, ": the ", names[static_cast<std::size_t>(split)], " split (sequences ", range.first,
                           " to ", range.last, ") ", error.what()));
  }
}

DataSplits split_dataset(const std::shared_ptr<const TokenSource>& source, const std::string& name,
                         const std::string& weights, const DocumentOptions& options, const DataParts& parts) {
  const auto ranges = cut_split(weights, source->sequences());
  const auto make = [&](int split) {
    const auto& range = ranges[static_cast<std::size_t>(split)];
    return range ? one_split(source, name, split, *range, options, parts) : nullptr;
  };
  DataSplits splits;
  splits.train = make(0);
  splits.valid = make(1);
  splits.test = make(2);
  return splits;
}

}  // namespace tessera
