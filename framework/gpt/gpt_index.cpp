#include "framework/gpt/gpt_index.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <numeric>

#include "framework/base/checked.h"
#include "framework/base/crc32c.h"
#include "framework/data/legacy_random.h"

namespace tessera::gpt {
namespace {

/// Lengths by number: directly where a source has them in a row.
class Lengths {
 public:
  explicit Lengths(const indexed::TokenSource& source) : source_(source), row_(source.lengths()) {}
  std::int64_t operator[](std::int64_t sequence) const {
    if (!row_) return source_.length(sequence);
    std::int32_t length;
    std::memcpy(&length, row_ + static_cast<std::size_t>(sequence) * sizeof length, sizeof length);
    return length;
  }
  void prefetch(std::int64_t sequence) const {
    if (row_) __builtin_prefetch(row_ + static_cast<std::size_t>(sequence) * sizeof(std::int32_t));
  }

 private:
  const indexed::TokenSource& source_;
  const std::byte* row_;
};

// Tokens of one epoch; also looks at every length once.
std::int64_t count_tokens(const indexed::TokenSource& source, const SequenceRange& range) {
  const Lengths lengths(source);
  std::int64_t tokens = 0;
  for (auto s = range.begin; s < range.end; ++s) {
    const auto length = lengths[s];
    if (length < 0) throw ConfigError(text(source.place(s, 0), ": has a negative length; the index is damaged"));
    tokens += length;
  }
  return tokens;
}

void plan_epochs(const GptIndexRequest& want, std::int64_t tokens, GptIndexPlan& plan) {
  const std::int64_t extra = want.extra_token ? 1 : 0, length = want.seq_length;
  if (!want.samples) return;
  const auto needed = checked_sum(
      {{"tokens", checked_product({{"samples", *want.samples}, {"seq_length", length}})}, {"one more", extra}});
  plan.epochs = std::max<std::int64_t>(1, needed / tokens + (needed % tokens != 0));
  if (plan.epochs == 1) return;
  plan.samples_before_last = ((plan.epochs - 1) * tokens - extra) / length;
  const auto from_last = *want.samples - plan.samples_before_last;
  const auto whole = (tokens - extra) / length;
  plan.last_apart = from_last < static_cast<std::int64_t>(0.80 * static_cast<double>(whole));
}

std::int64_t count_samples(const GptIndexRequest& want, std::int64_t tokens) {
  const auto usable = tokens - (want.extra_token ? 1 : 0);
  if (want.drop_last) return usable / want.seq_length;
  // Upstream divides in single precision here; repeated, because the count is part of the order.
  return static_cast<std::int64_t>(std::ceil(static_cast<float>(usable) / static_cast<float>(want.seq_length)));
}

/// The largest length of all of the file: it decides the type of `starts`.
bool is_longer_somewhere(const indexed::TokenSource& source, std::int64_t most) {
  if (most >= std::numeric_limits<std::int32_t>::max()) return false;  // lengths are 32 bits
  for (std::int64_t s = 0; s < source.sequences(); ++s)
    if (source.length(s) > most) return true;
  return false;
}

void fill_epochs(std::span<std::int32_t> documents, const SequenceRange& range, data::NumpyRandomState& random) {
  const auto of_epoch = static_cast<std::size_t>(range.size());
  for (std::size_t at = 0; at < documents.size(); at += of_epoch)
    std::iota(documents.begin() + static_cast<std::ptrdiff_t>(at),
              documents.begin() + static_cast<std::ptrdiff_t>(at + of_epoch), static_cast<std::int32_t>(range.begin));
  random.shuffle(documents);
}

/// Calls take(row, document, offset) with the start of each sample but the first, and with the end of the last one,
/// until it returns false.
template <class Take>
void each_start(std::span<const std::int32_t> documents, const indexed::TokenSource& source,
                const GptIndexRequest& want, std::int64_t samples, const Take& take) {
  constexpr std::size_t ahead = 24;
  const Lengths lengths(source);
  const std::int64_t extra = want.extra_token ? 1 : 0;
  const auto last = documents.size() - 1;
  std::size_t at = 0;
  std::int64_t offset = 0, length = lengths[documents[0]];
  for (std::int64_t row = 1; row <= samples; ++row) {
    for (auto need = want.seq_length + extra;;) {
      const auto left = length - offset;
      need -= left;
      if (need <= 0) {
        offset += need + left - extra;
        break;
      }
      if (at == last) {
        offset += left - extra;
        break;
      }
      ++at;
      offset = 0;
      length = lengths[documents[at]];
      lengths.prefetch(documents[std::min(at + ahead, last)]);
    }
    if (!take(row, static_cast<std::int64_t>(at), offset)) return;
  }
}

template <class Start>
void cut_samples(std::span<const std::int32_t> documents, const indexed::TokenSource& source,
                 const GptIndexRequest& want, std::span<Start> out) {
  out[0] = out[1] = 0;
  each_start(documents, source, want, static_cast<std::int64_t>(out.size() / 2) - 1,
             [&](std::int64_t row, std::int64_t document, std::int64_t offset) {
               out[static_cast<std::size_t>(2 * row)] = static_cast<Start>(document);
               out[static_cast<std::size_t>(2 * row + 1)] = static_cast<Start>(offset);
               return true;
             });
}

/// What is wrong with documents of `epochs` epochs; "" if nothing is.
std::string wrong_documents(std::span<const std::int32_t> documents, const SequenceRange& range, std::int64_t epochs) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(range.size()));
  for (const auto sequence : documents) {
    if (!range.contains(sequence))
      return text("document_index names sequence ", sequence, "; expected ", range.begin, " to ", range.end - 1);
    ++counts[static_cast<std::size_t>(sequence - range.begin)];
  }
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != epochs)
      return text("document_index has sequence ", range.begin + static_cast<std::int64_t>(i), " ", counts[i],
                  " times; expected ", epochs);
  return "";
}

std::string wrong_starts(std::span<const std::int32_t> documents, const IndexArray& starts,
                         const indexed::TokenSource& source, const GptIndexRequest& want) {
  std::string wrong;
  const auto compare = [&](std::int64_t row, std::int64_t document, std::int64_t offset) {
    if (starts[2 * row] == document && starts[2 * row + 1] == offset) return true;
    wrong = text("sample_index has sample ", row, " begin at document ", starts[2 * row], ", token ",
                 starts[2 * row + 1], "; by the lengths of the sequences it begins at document ", document, ", token ",
                 offset, ": it was made of other data with the same prefix, or is damaged");
    return false;
  };
  if (compare(0, 0, 0)) each_start(documents, source, want, starts.size() / 2 - 1, compare);
  return wrong;
}

/// Samples before the last epoch stay before it if it is shuffled separately.
std::string wrong_shuffle(const IndexArray& shuffle, const GptIndexPlan& plan) {
  std::vector<bool> seen(static_cast<std::size_t>(shuffle.size()));
  for (std::int64_t i = 0; i < shuffle.size(); ++i) {
    const auto row = shuffle[i];
    const bool apart = plan.last_apart && (i < plan.samples_before_last) != (row < plan.samples_before_last);
    if (row < 0 || row >= shuffle.size() || seen[static_cast<std::size_t>(row)] || apart)
      return text("shuffle_index has sample ", row, " at ", i, ", so it is not an order of the samples");
    seen[static_cast<std::size_t>(row)] = true;
  }
  return "";
}

template <class Number>
void fill_shuffled(std::span<Number> order, const GptIndexPlan& plan, data::NumpyRandomState& random) {
  std::iota(order.begin(), order.end(), Number{0});
  const auto first = plan.last_apart ? static_cast<std::size_t>(plan.samples_before_last) : order.size();
  random.shuffle(order.first(first));
  if (plan.last_apart) random.shuffle(order.subspan(first));
}

}  // namespace

GptIndexPlan plan_gpt_index(const indexed::TokenSource& source, const GptIndexRequest& want) {
  const auto tokens = count_tokens(source, want.range);
  if (tokens == 0) throw ConfigError("holds no token; give it a larger weight in split, or more documents");
  GptIndexPlan plan;
  plan_epochs(want, tokens, plan);
  plan.samples = count_samples(want, checked_product({{"epochs", plan.epochs}, {"tokens", tokens}}));
  if (plan.samples == 0 && want.samples != 0)
    throw ConfigError(text("holds ", tokens, " tokens, less than one sample of ", want.seq_length,
                           "; shorten seq_length or give more text"));
  if (want.range.end > std::numeric_limits<std::int32_t>::max())
    throw ConfigError(text("ends at sequence ", want.range.end, "; the format numbers at most ",
                           std::numeric_limits<std::int32_t>::max(), ", divide the file"));
  plan.documents = checked_product({{"epochs", plan.epochs}, {"sequences", want.range.size()}});
  if (plan.documents > want.most_narrow_start || is_longer_somewhere(source, want.most_narrow_start))
    plan.start_type = IndexType::int64;
  if (plan.samples > want.most_narrow_samples) plan.shuffle_type = IndexType::int64;
  return plan;
}

GptIndex build_gpt_index(const indexed::TokenSource& source, const GptIndexRequest& want, const GptIndexPlan& plan,
                         int threads) {
  data::NumpyRandomState random(want.seed);
  GptIndex index;
  index.documents = IndexArray(IndexType::int32, {plan.documents});
  const auto documents = index.documents.values<std::int32_t>();
  const auto joined = static_cast<std::size_t>((plan.epochs - (plan.last_apart ? 1 : 0)) * want.range.size());
  fill_epochs(documents.first(joined), want.range, random);
  if (plan.last_apart) fill_epochs(documents.subspan(joined), want.range, random);

  const auto cut = [&] {
    index.starts = IndexArray(plan.start_type, {plan.samples + 1, 2});
    if (plan.start_type == IndexType::int32)
      cut_samples(std::span<const std::int32_t>(documents), source, want, index.starts.values<std::int32_t>());
    else
      cut_samples(std::span<const std::int32_t>(documents), source, want, index.starts.values<std::int64_t>());
  };
  auto other = threads > 1 ? std::async(std::launch::async, cut) : std::async(std::launch::deferred, cut);
  index.shuffle = IndexArray(plan.shuffle_type, {plan.samples});
  if (plan.shuffle_type == IndexType::uint32)
    fill_shuffled(index.shuffle.values<std::uint32_t>(), plan, random);
  else
    fill_shuffled(index.shuffle.values<std::int64_t>(), plan, random);
  other.get();
  return index;
}

std::string wrong_gpt_index(const IndexArray& document_index, const IndexArray& starts, const IndexArray& shuffle,
                            const indexed::TokenSource& source, const GptIndexRequest& want, const GptIndexPlan& plan) {
  const auto documents = document_index.values<std::int32_t>();
  const auto joined = static_cast<std::size_t>((plan.epochs - (plan.last_apart ? 1 : 0)) * want.range.size());
  auto wrong = wrong_documents(documents.first(joined), want.range, plan.epochs - (plan.last_apart ? 1 : 0));
  if (wrong.empty() && plan.last_apart) wrong = wrong_documents(documents.subspan(joined), want.range, 1);
  if (wrong.empty()) wrong = wrong_starts(documents, starts, source, want);
  return wrong.empty() ? wrong_shuffle(shuffle, plan) : wrong;
}

std::uint32_t lengths_sum(const indexed::TokenSource& source, const SequenceRange& range) {
  if (const auto* row = source.lengths())
    return crc32c(std::span(row + range.begin * std::int64_t{4}, static_cast<std::size_t>(range.size()) * 4));
  std::uint32_t sum = 0;
  for (auto s = range.begin; s < range.end; ++s) {
    const auto length = static_cast<std::int32_t>(source.length(s));
    sum = crc32c(std::as_bytes(std::span(&length, 1)), sum);
  }
  return sum;
}

}  // namespace tessera::gpt
