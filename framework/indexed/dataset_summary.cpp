#include "framework/indexed/dataset_summary.h"

#include <algorithm>
#include <bit>
#include <filesystem>

namespace tessera::indexed {
namespace {

constexpr std::int64_t tokens_at_once = 64 << 10, sizeof_wide = 8;

std::size_t bucket_of(std::int64_t length) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)));
}

std::vector<DatasetSummary::Bucket> histogram_of(const IndexedDataset& data) {
  std::vector<DatasetSummary::Bucket> all(33);  // lengths are 31 bits
  for (std::size_t i = 1; i < all.size(); ++i) {
    all[i].from = std::int64_t{1} << (i - 1);
    all[i].to = 2 * all[i].from - 1;
  }
  for (std::int64_t s = 0; s < data.sequences(); ++s) {
    auto& bucket = all[bucket_of(data.length(s))];
    ++bucket.sequences;
    bucket.tokens += data.length(s);
  }
  const auto used = [](const auto& bucket) { return bucket.sequences > 0; };
  const auto first = std::find_if(all.begin(), all.end(), used);
  const auto last = std::find_if(all.rbegin(), std::make_reverse_iterator(first), used).base();
  return {first, last};
}

/// Reads the tokens of a sequence in pieces; int64 ones as they are.
class Checker {
 public:
  Checker(const IndexedDataset& data, std::int64_t limit) : data_(data), limit_(limit) {}

  void sequence(std::int64_t s, TokenCheck& out) {
    for (std::int64_t at = 0; at < data_.length(s); at += tokens_at_once) {
      ids_.resize(static_cast<std::size_t>(std::min(tokens_at_once, data_.length(s) - at)));
      try {
        data_.read(s, at, ids_);
        look(s, at, out);
      } catch (const ConfigError&) {
        if (data_.type() != TokenType::int64) throw;
        const auto first = static_cast<std::uint64_t>(data_.first_byte(s) + at * sizeof_wide);
        data_.verify_bytes(first, first + ids_.size() * sizeof_wide);
        one_by_one(s, at, out);  // an id that no int32 holds: look at each alone
      }
    }
  }

 private:
  void look(std::int64_t s, std::int64_t at, TokenCheck& out) {
    for (const auto id : ids_) {
      if (out.tokens++ == 0) out.least = out.greatest = id;
      out.least = std::min<std::int64_t>(out.least, id);
      out.greatest = std::max<std::int64_t>(out.greatest, id);
    }
    for (std::size_t i = 0; i < ids_.size(); ++i)
      if (ids_[i] < 0 || ids_[i] >= limit_)
        outside(out, [&] { return text(data_.place(s, at + static_cast<std::int64_t>(i)), " is ", ids_[i]); });
  }

  void one_by_one(std::int64_t s, std::int64_t at, TokenCheck& out) {
    const auto count = static_cast<std::int64_t>(ids_.size());
    for (auto i = at; i < at + count; ++i) {
      ids_.resize(1);
      try {
        data_.read(s, i, ids_);
      } catch (const ConfigError& error) {
        ++out.tokens;
        outside(out, [&] { return std::string(error.what()); });
        continue;
      }
      look(s, i, out);
    }
  }

  template <class Words>
  static void outside(TokenCheck& out, const Words& message) {
    if (out.outside++ == 0) out.first_outside = message();
  }

  const IndexedDataset& data_;
  std::int64_t limit_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

DatasetSummary summarize(const IndexedDataset& data) {
  DatasetSummary out;
  out.documents = data.documents();
  for (std::int64_t d = 0; d < data.documents(); ++d) {
    std::int64_t length = 0;
    for (auto s = data.first_sequence(d); s < data.first_sequence(d + 1); ++s) length += data.length(s);
    out.empty_documents += length == 0 ? 1 : 0;
    out.longest_document = std::max(out.longest_document, length);
    out.shortest_document = d == 0 ? length : std::min(out.shortest_document, length);
  }
  for (std::int64_t s = 0; s < data.sequences(); ++s) {
    out.longest_sequence = std::max(out.longest_sequence, data.length(s));
    out.shortest_sequence = s == 0 ? data.length(s) : std::min(out.shortest_sequence, data.length(s));
  }
  if (data.sequences() > 0)
    out.mean_sequence = static_cast<double>(data.tokens()) / static_cast<double>(data.sequences());
  out.histogram = histogram_of(data);
  return out;
}

TokenCheck check_tokens(const IndexedDataset& data, std::optional<std::int64_t> vocab_size,
                        const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  TokenCheck out;
  const auto item = static_cast<std::int64_t>(size_of(data.type()));
  Checker checker(data, vocab_size.value_or(std::int64_t{1} << 31U));
  std::int64_t end = 0, used = 0;
  for (std::int64_t s = 0; s < data.sequences(); ++s) {
    if (data.first_byte(s) != end) ++out.out_of_order;
    used += std::max<std::int64_t>(0, data.first_byte(s) + data.length(s) * item - std::max(end, data.first_byte(s)));
    end = data.first_byte(s) + data.length(s) * item;
    checker.sequence(s, out);
    if (progress) progress(out.tokens, data.tokens());
  }
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(data.prefix() + ".bin"));
  out.unused_bytes = std::max<std::int64_t>(0, size - used);
  return out;
}

}  // namespace tessera::indexed
