#include "framework/instructions/without_label.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera::instructions {
namespace {

constexpr std::int64_t most_examined = 1000;  // reading a sample may encode text, and the run waits for it

class LabelCheck {
 public:
  explicit LabelCheck(const data::Dataset& data)
      : data_(data), tokens_(static_cast<std::size_t>(data.seq_length())), mask_(tokens_.size()) {
    labels_ = positions_ = starts_ = tokens_;
  }

  bool has_label(std::int64_t index) {
    try {
      data_.read(index, {.samples = 1,
                         .seq_length = data_.seq_length(),
                         .tokens = tokens_,
                         .labels = labels_,
                         .loss_mask = mask_,
                         .positions = positions_,
                         .document_start = starts_});
    } catch (const ConfigError&) {
      return true;  // the run reports it when it reads the sample
    }
    return std::any_of(mask_.begin(), mask_.end(), [](float weight) { return weight > 0; });
  }

 private:
  const data::Dataset& data_;
  std::vector<std::int32_t> tokens_, labels_, positions_, starts_;
  std::vector<float> mask_;
};

}  // namespace

void warn_of_samples_without_label(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn) {
  if (!warn) return;
  LabelCheck check(data);
  const auto all = std::min(data.samples(), epoch), examined = std::min(all, most_examined);
  std::int64_t without = 0, first = 0;
  for (std::int64_t i = 0; i < examined; ++i) {
    if (check.has_label(i)) continue;
    if (without++ == 0) first = i;
  }
  if (without == 0) return;
  warn(text(without, " of ", examined == all ? "" : "the first ", examined,
            " training samples have no label, the first of them is sample ", first, ": their prompts fill seq_length ",
            data.seq_length(),
            ", or they have no answer. Nothing is learned from them; raise seq_length, or shorten or remove these "
            "conversations"));
}

}  // namespace tessera::instructions
