#include "framework/instructions/without_label.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace tessera::instructions {
namespace {

constexpr std::int64_t most_examined = 1000;  // reading a sample may encode text, and the run waits for it

class SampleReader {
 public:
  explicit SampleReader(const data::Dataset& data)
      : data_(data),
        tokens_(static_cast<std::size_t>(data.rows_per_sample() * data.seq_length())),
        mask_(tokens_.size()) {
    labels_ = positions_ = starts_ = tokens_;
  }

  /// False for a sample that cannot be used; problem() then says why.
  bool read(std::int64_t index) {
    try {
      data_.read(index, {.samples = data_.rows_per_sample(),
                         .seq_length = data_.seq_length(),
                         .tokens = tokens_,
                         .labels = labels_,
                         .loss_mask = mask_,
                         .positions = positions_,
                         .document_start = starts_});
    } catch (const ConfigError& error) {
      problem_ = error.what();
      return false;
    }
    return true;
  }
  const std::string& problem() const { return problem_; }

  bool has_a_label() const { return has_one(mask_.begin(), mask_.end()); }
  /// Whether each row has a label.
  bool has_labels() const {
    const auto length = static_cast<std::ptrdiff_t>(data_.seq_length());
    for (auto row = mask_.begin(); row != mask_.end(); row += length)
      if (!has_one(row, row + length)) return false;
    return true;
  }

  bool has_equal_rows() const {
    const auto length = static_cast<std::ptrdiff_t>(data_.seq_length());
    return std::equal(tokens_.begin(), tokens_.begin() + length, tokens_.begin() + length) &&
           std::equal(mask_.begin(), mask_.begin() + length, mask_.begin() + length);
  }

 private:
  template <class Weight>
  static bool has_one(Weight begin, Weight end) {
    return std::any_of(begin, end, [](float weight) { return weight > 0; });
  }

  const data::Dataset& data_;
  std::vector<std::int32_t> tokens_, labels_, positions_, starts_;
  std::vector<float> mask_;
  std::string problem_;
};

struct Counted {
  std::int64_t all = 0, examined = 0, count = 0, first = 0;
  std::int64_t unusable = 0, first_unusable = 0;
  std::string problem;  ///< of the first that cannot be used
  /// "3 of the first 1000"
  std::string words(std::int64_t number) const {
    return text(number, " of ", examined == all ? "" : "the first ", examined);
  }
};

template <class Fails>
Counted count(const data::Dataset& data, std::int64_t epoch, const Fails& fails) {
  Counted found;
  found.all = std::min(data.samples(), epoch);
  found.examined = std::min(found.all, most_examined);
  SampleReader reader(data);
  for (std::int64_t i = 0; i < found.examined; ++i) {
    if (reader.read(i)) {
      if (fails(reader) && found.count++ == 0) found.first = i;
    } else if (found.unusable++ == 0) {
      found.first_unusable = i;
      found.problem = reader.problem();
    }
  }
  return found;
}

bool has_pairs(const data::Dataset& data) { return data.rows_per_sample() == 2; }

}  // namespace

void refuse_if_without_labels(const data::Dataset& data, std::int64_t epoch) {
  const auto all = std::min(data.samples(), epoch);
  if (all <= 0 || all > most_examined) return;
  SampleReader reader(data);
  for (std::int64_t i = 0; i < all; ++i)
    if (!reader.read(i) || reader.has_a_label()) return;
  throw ConfigError(text("none of the ", all, " training samples has a label within seq_length ", data.seq_length(),
                         ", so the run trains nothing: their prompts are as long as that, or they have no answer; "
                         "raise seq_length, or correct the data"));
}

void warn_of_samples_without_label(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn) {
  if (!warn) return;
  const auto found = count(data, epoch, [](const SampleReader& sample) { return !sample.has_labels(); });
  if (found.count > 0 && has_pairs(data))
    warn(text(found.words(found.count), " training pairs have an answer without a label, the first of them is sample ",
              found.first, ". It has no token, and its log-probability is 0; correct or remove these pairs"));
  if (found.count > 0 && !has_pairs(data))
    warn(text(found.words(found.count), " training samples have no label, the first of them is sample ", found.first,
              ": their prompts fill seq_length ", data.seq_length(),
              ", or they have no answer. Nothing is learned from them; raise seq_length, or shorten or remove these "
              "conversations"));
  if (found.unusable > 0)
    warn(text(found.words(found.unusable), " training samples cannot be used, the first of them is sample ",
              found.first_unusable, ": ", found.problem));
}

void warn_of_cut_samples(std::int64_t cut, std::int64_t all, std::int64_t longest, const data::Dataset& data,
                         const data::TellLine& warn) {
  if (cut == 0 || !warn) return;
  warn(text(cut, " of ", all, " training ", has_pairs(data) ? "pairs" : "samples", " are longer than seq_length ",
            data.seq_length(), ", the longest has ", longest,
            " tokens; their prompts and answers are cut, raise seq_length to keep them"));
}

void warn_of_equal_pairs(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn) {
  if (!warn) return;
  const auto found = count(data, epoch, [](const SampleReader& sample) { return sample.has_equal_rows(); });
  if (found.count == 0) return;
  warn(text(found.words(found.count),
            " training pairs have equal chosen and rejected answers, the first of them is sample ", found.first,
            ". No preference is learned from them; correct or remove these pairs"));
}

}  // namespace tessera::instructions
