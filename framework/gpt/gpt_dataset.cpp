#include "framework/gpt/gpt_dataset.h"

#include <algorithm>
#include <numeric>

#include "framework/data/bad_sample.h"

namespace tessera::gpt {

GptDataset::GptDataset(std::shared_ptr<const indexed::TokenSource> source, const Request& request)
    : GptDataset(source, request, build_gpt_index(*source, request.index, plan_gpt_index(*source, request.index))) {}

GptDataset::GptDataset(std::shared_ptr<const indexed::TokenSource> source, Request request, GptIndex index)
    : source_(std::move(source)), request_(std::move(request)), index_(std::move(index)) {
  const auto& o = request_.options;
  if (!request_.eod && (o.reset_position_ids || o.reset_attention_mask || o.eod_mask_loss))
    throw ConfigError(
        "reset_position_ids, reset_attention_mask and eod_mask_loss require an end-of-document token, and there is no "
        "tokenizer; choose a tokenizer_type");
}

// How many tokens came, and the one after them when there was no more room.
struct GptDataset::Gathered {
  std::int64_t count = 0;
  std::int32_t following = -1;
};

GptDataset::Gathered GptDataset::gather(const SampleStart& from, const SampleStart& to, const SampleView& out) const {
  const auto room = static_cast<std::int64_t>(out.tokens.size());
  const std::int64_t extra = request_.index.extra_token ? 1 : 0;
  const auto& range = request_.index.range;
  Gathered got{0, request_.pad};
  if (from.document < 0 || to.document >= index_.documents.size())
    throw ConfigError(
        "the index of the samples is damaged: it names a document that it does not have; delete its cache");
  for (auto d = from.document; d <= to.document; ++d) {
    const std::int64_t sequence = index_.documents[d];
    const std::int64_t begin = d == from.document ? from.offset : 0;
    const bool known = range.contains(sequence);
    const auto length = known ? source_->length(sequence) : 0;
    const auto end = d == to.document ? to.offset + extra : length;
    if (!known || begin < 0 || begin > length || end > length)
      throw ConfigError(text("the index of the samples is damaged or of other data: it reads tokens ", begin, " to ",
                             end, " of sequence ", sequence, ", which is not there; delete its cache"));
    const auto count = std::min(end - begin, room - got.count);
    if (count > 0) {
      const auto first = static_cast<std::size_t>(got.count), size = static_cast<std::size_t>(count);
      const auto here = out.tokens.subspan(first, size);
      source_->read(sequence, begin, here);
      check(here, sequence, begin);
      if (request_.options.dataloader_inter_document_masking) {
        std::fill_n(out.document_start.begin() + got.count, count, static_cast<std::int32_t>(got.count));
        std::iota(out.positions.begin() + got.count, out.positions.begin() + got.count + count, 0);
      }
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
      throw data::BadSampleError(text(source_->place(sequence, offset + static_cast<std::int64_t>(i)), ": holds token ",
                                      tokens[i], ", but the model's vocabulary has ", below,
                                      "; make the data with the model's tokenizer, or raise vocab_size"));
}

/// After reading from the index: a file of the index cache that is truncated reads as zeros.
void GptDataset::require_index() const {
  for (const auto* array : {&index_.documents, &index_.starts, &index_.shuffle}) array->require_pages();
}

void GptDataset::read(std::int64_t index, const SampleView& out) const {
  must(index >= 0 && index < samples(), "a sample is read by its number");
  const auto row = index_.shuffle[index];
  if (row < 0 || row >= samples())
    throw ConfigError("the index of the samples is damaged: it names a sample that it does not have; delete its cache");
  const auto& o = request_.options;
  const bool within_documents = o.dataloader_inter_document_masking;
  if (!within_documents) {
    std::iota(out.positions.begin(), out.positions.end(), 0);
    std::fill(out.document_start.begin(), out.document_start.end(), 0);
  }
  const auto got = gather(index_.start(row), index_.start(row + 1), out);
  require_index();
  const auto filled = out.tokens.begin() + got.count;
  std::fill(filled, out.tokens.end(), request_.pad);
  if (within_documents && filled != out.tokens.end()) {  // padding belongs to the last document
    auto start = got.count > 0 ? out.document_start[static_cast<std::size_t>(got.count - 1)] : 0;
    std::fill(out.document_start.begin() + got.count, out.document_start.end(), start);
    std::iota(out.positions.begin() + got.count, out.positions.end(), static_cast<std::int32_t>(got.count) - start);
  }
  std::copy(out.tokens.begin() + 1, out.tokens.end(), out.labels.begin());
  out.labels.back() = got.count == static_cast<std::int64_t>(out.tokens.size()) ? got.following : request_.pad;
  std::fill(out.loss_mask.begin(), out.loss_mask.end(), 1.0F);
  if (o.reset_position_ids || o.reset_attention_mask || o.eod_mask_loss) mark_documents(out);
  replace_padding(out);
}

std::vector<data::TokenOrigin> GptDataset::origins(std::int64_t index) const {
  must(index >= 0 && index < samples(), "a sample is asked about by its number");
  const auto row = index_.shuffle[index];
  const auto from = index_.start(row), to = index_.start(row + 1);
  const std::int64_t extra = request_.index.extra_token ? 1 : 0;
  std::vector<data::TokenOrigin> all;
  std::int64_t first = 0;
  for (auto d = from.document; d <= to.document; ++d) {  // as gather()
    const std::int64_t sequence = index_.documents[d];
    const std::int64_t begin = d == from.document ? from.offset : 0;
    const auto end = d == to.document ? to.offset + extra : source_->length(sequence);
    const auto count = std::min(end - begin, seq_length() - first);
    if (count <= 0) continue;
    all.push_back({.first = first,
                   .count = count,
                   .document = source_->document_of(sequence),
                   .sequence = sequence,
                   .offset = begin,
                   .place = source_->place(sequence, begin)});
    first += count;
  }
  return all;
}

void GptDataset::mark_documents(const SampleView& out) const {
  const auto& o = request_.options;
  const bool positions = o.reset_position_ids && !o.dataloader_inter_document_masking;
  const bool attention =
      o.reset_attention_mask && o.create_attention_mask_in_dataloader && !o.dataloader_inter_document_masking;
  std::int32_t start = 0;
  for (std::size_t i = 0; i < out.tokens.size(); ++i) {
    if (positions) out.positions[i] = static_cast<std::int32_t>(i) - start;
    if (attention) out.document_start[i] = start;
    if (out.tokens[i] != *request_.eod) continue;
    if (o.eod_mask_loss) out.loss_mask[i] = 0;
    start = static_cast<std::int32_t>(i) + 1;
  }
}

void GptDataset::replace_padding(const SampleView& out) const {
  for (std::size_t i = 0; i < out.tokens.size(); ++i) {
    if (out.tokens[i] == request_.pad) out.tokens[i] = 0;
    if (out.labels[i] != request_.pad) continue;
    out.labels[i] = -1;
    out.loss_mask[i] = 0;
  }
}

}  // namespace tessera::gpt
