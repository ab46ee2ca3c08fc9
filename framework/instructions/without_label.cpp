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

  /// False for a sample that cannot be used, which the run reports when it reads it.
  bool read(std::int64_t index) {
    try {
      data_.read(index, {.samples = data_.rows_per_sample(),
                         .seq_length = data_.seq_length(),
                         .tokens = tokens_,
                         .labels = labels_,
                         .loss_mask = mask_,
                         .positions = positions_,
                         .document_start = starts_});
    } catch (const ConfigError&) {
      return false;
    }
    return true;
  }

  /// Whether each row has a label.
  bool has_labels() const {
    const auto length = static_cast<std::ptrdiff_t>(data_.seq_length());
    for (auto row = mask_.begin(); row != mask_.end(); row += length)
      if (std::none_of(row, row + length, [](float weight) { return weight > 0; })) return false;
    return true;
  }

  bool has_equal_rows() const {
    const auto length = static_cast<std::ptrdiff_t>(data_.seq_length());
    return std::equal(tokens_.begin(), tokens_.begin() + length, tokens_.begin() + length) &&
           std::equal(mask_.begin(), mask_.begin() + length, mask_.begin() + length);
  }

 private:
  const data::Dataset& data_;
  std::vector<std::int32_t> tokens_, labels_, positions_, starts_;
  std::vector<float> mask_;
};

struct Counted {
  std::int64_t all = 0, examined = 0, count = 0, first = 0;
  /// "3 of the first 1000"
  std::string words() const { return text(count, " of ", examined == all ? "" : "the first ", examined); }
};

template <class Fails>
Counted count(const data::Dataset& data, std::int64_t epoch, const Fails& fails) {
  Counted found;
  found.all = std::min(data.samples(), epoch);
  found.examined = std::min(found.all, most_examined);
  SampleReader reader(data);
  for (std::int64_t i = 0; i < found.examined; ++i)
    if (reader.read(i) && fails(reader) && found.count++ == 0) found.first = i;
  return found;
}

}  // namespace

void warn_of_samples_without_label(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn) {
  if (!warn) return;
  const auto found = count(data, epoch, [](const SampleReader& sample) { return !sample.has_labels(); });
  if (found.count == 0) return;
  warn(text(found.words(), " training samples have no label, the first of them is sample ", found.first,
            ": their prompts fill seq_length ", data.seq_length(),
            ", or they have no answer. Nothing is learned from them; raise seq_length, or shorten or remove these "
            "conversations"));
}

void warn_of_equal_pairs(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn) {
  if (!warn) return;
  const auto found = count(data, epoch, [](const SampleReader& sample) { return sample.has_equal_rows(); });
  if (found.count == 0) return;
  warn(text(found.words(), " training pairs have equal chosen and rejected answers, the first of them is sample ",
            found.first, ". No preference is learned from them; correct or remove these pairs"));
}

}  // namespace tessera::instructions
