#include "framework/data/gpt_index.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "framework/base/checked.h"
#include "framework/data/legacy_random.h"

namespace tessera {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();

// Tokens of one epoch; also looks at every length once.
std::int64_t count_tokens(const TokenSource& source, const SequenceRange& range) {
  std::int64_t tokens = 0;
  for (auto s = range.first; s < range.last; ++s) {
    const auto length = source.length(s);
    if (length < 0) throw ConfigError(text(source.place(s, 0), ": has a negative length; the index is damaged"));
    tokens += length;
  }
  return tokens;
}

// How many epochs, and whether the last is kept apart.
struct Epochs {
  std::int64_t count = 1, samples_before_last = 0;
  bool last_apart = false;
};

Epochs plan_epochs(const GptIndexRequest& want, std::int64_t tokens) {
  const std::int64_t extra = want.extra_token ? 1 : 0, length = want.seq_length;
  Epochs epochs;
  if (!want.samples) return epochs;
  const auto needed = checked_sum(
      {{"tokens", checked_product({{"samples", *want.samples}, {"seq_length", length}})}, {"one more", extra}});
  epochs.count = std::max<std::int64_t>(1, needed / tokens + (needed % tokens != 0));
  if (epochs.count == 1) return epochs;
  epochs.samples_before_last = ((epochs.count - 1) * tokens - extra) / length;
  const auto from_last = *want.samples - epochs.samples_before_last;
  const auto whole = (tokens - extra) / length;
  epochs.last_apart = from_last < static_cast<std::int64_t>(0.80 * static_cast<double>(whole));
  return epochs;
}

void add_epochs(std::vector<std::int32_t>& documents, const SequenceRange& range, std::int64_t epochs,
                NumpyRandomState& random) {
  const auto before = documents.size();
  for (std::int64_t e = 0; e < epochs; ++e)
    for (auto s = range.first; s < range.last; ++s) documents.push_back(static_cast<std::int32_t>(s));
  random.shuffle(std::span(documents).subspan(before));
}

std::int64_t count_samples(const GptIndexRequest& want, std::int64_t tokens) {
  const auto usable = tokens - (want.extra_token ? 1 : 0);
  if (want.drop_last) return usable / want.seq_length;
  // Upstream divides in single precision here; repeated, because the count is part of the order.
  return static_cast<std::int64_t>(std::ceil(static_cast<float>(usable) / static_cast<float>(want.seq_length)));
}

void cut_samples(GptIndex& index, const TokenSource& source, const GptIndexRequest& want, std::int64_t samples) {
  const std::int64_t extra = want.extra_token ? 1 : 0;
  const auto last = index.documents.size() - 1;
  index.starts.reserve(static_cast<std::size_t>(samples) + 1);
  index.starts.push_back({0, 0});
  std::size_t at = 0;
  std::int64_t offset = 0;
  for (std::int64_t s = 0; s < samples; ++s) {
    for (auto need = want.seq_length + extra;;) {
      const auto left = source.length(index.documents[at]) - offset;
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
    }
    index.starts.push_back({static_cast<std::int32_t>(at), static_cast<std::int32_t>(offset)});
  }
}

void add_shuffled(std::vector<std::uint32_t>& order, std::int64_t until, NumpyRandomState& random) {
  const auto before = order.size();
  order.resize(static_cast<std::size_t>(until));
  const auto fresh = std::span(order).subspan(before);
  std::iota(fresh.begin(), fresh.end(), static_cast<std::uint32_t>(before));
  random.shuffle(fresh);
}

}  // namespace

GptIndex build_gpt_index(const TokenSource& source, const GptIndexRequest& want) {
  const auto tokens = count_tokens(source, want.range);
  if (tokens == 0) throw ConfigError("holds no token; give it a larger weight in split, or more documents");
  const auto epochs = plan_epochs(want, tokens);
  const auto samples = count_samples(want, checked_product({{"epochs", epochs.count}, {"tokens", tokens}}));
  if (samples == 0)
    throw ConfigError(text("holds ", tokens, " tokens, less than one sample of ", want.seq_length,
                           "; shorten seq_length or give more text"));
  if (checked_product({{"epochs", epochs.count}, {"sequences", want.range.size()}}) > most || samples >= most)
    throw ConfigError(text("needs ", epochs.count, " epochs of ", want.range.size(), " sequences or ", samples,
                           " samples; the most is ", most));

  GptIndex index;
  index.epochs = epochs.count;
  NumpyRandomState random(want.seed);
  index.documents.reserve(static_cast<std::size_t>(epochs.count * want.range.size()));
  add_epochs(index.documents, want.range, epochs.count - (epochs.last_apart ? 1 : 0), random);
  if (epochs.last_apart) add_epochs(index.documents, want.range, 1, random);
  cut_samples(index, source, want, samples);
  if (epochs.last_apart) add_shuffled(index.shuffle, epochs.samples_before_last, random);
  add_shuffled(index.shuffle, samples, random);
  return index;
}

}  // namespace tessera
