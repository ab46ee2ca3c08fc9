#include "framework/checkpoint/reshard.h"

#include <algorithm>
#include <map>
#include <set>

#include "framework/checkpoint/filled_state.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/room.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/checkpoint/writer.h"

namespace tessera::checkpoint {
namespace {

class Resharder {
 public:
  Resharder(const Checkpoint& from, const Resharding& how)
      : from_(from), weights_(from), how_(how), states_(states_by_weight(from)) {
    std::set<std::string> wanted;
    for (const auto& writer : how.writers)
      for (const auto& saved : writer)
        if (wanted.insert(saved.name).second) check(saved);
    for (const auto& name : weights_.names())
      if (wanted.count(name) == 0) refuse(text(name, " is in it, but not in the model of the new layout"));
  }

  /// Writes the part of one writer.
  WrittenPart write(CheckpointWriter& writer, std::size_t number) const {
    std::vector<TensorRange> ranges;
    for (const auto& saved : how_.writers[number])
      for (const auto& box : saved.boxes) {
        ranges.push_back(range_of(saved, box, saved.name));
        if (const auto states = states_.find(saved.name); states != states_.end())
          for (const auto& state : states->second) ranges.push_back(range_of(saved, box, state));
      }
    return writer.write(static_cast<int>(number), FilledState(
                                                      std::move(ranges), [this](const auto& into) { fill(into); },
                                                      [](const auto&) { return true; }));
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(
        text(from_.folder().string(), ": ", what, "; give a recipe that describes the model of this checkpoint"));
  }

  void check(const WeightPart& saved) const {
    if (!from_.has(saved.name)) refuse(saved.name + " is in the model of the new layout, but not in the checkpoint");
    const auto there = from_.shape(saved.name);
    if (there == saved.global_shape) return;
    const auto a = there.dims(), b = saved.global_shape.dims();
    // Only the padding of the vocabulary depends on the layout (it makes the rows divisible), so only rows may differ.
    const bool other_rows = !a.empty() && a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1);
    if (!has_vocabulary_rows(saved.role) || !other_rows)
      refuse(text(saved.name, " is ", there, ", and ", saved.global_shape, " in the model of the new layout"));
    const auto tokens = how_.true_vocabulary > 0 ? std::min(how_.true_vocabulary, there[0]) : there[0];
    if (saved.global_shape[0] < tokens)
      throw ConfigError(text(from_.folder().string(), ": ", saved.name, " has ", tokens, " tokens; ",
                             saved.global_shape[0], " rows would lose some of them"));
  }

  /// A box of the weight, or the same of a tensor of its optimizer state.
  TensorRange range_of(const WeightPart& saved, const Box& box, const std::string& name) const {
    return {.name = name,
            .global_shape = saved.global_shape,
            .offsets = box.begin,
            .tensor = Tensor::without_elements(from_.dtype(name), Shape(box.extent)),
            .role = saved.role};
  }

  /// Damaged data must not be saved again with a valid checksum.
  static constexpr ReadOptions verified = {.check_crc = true, .convert = false, .once = true};

  void fill(const TensorRange& range) const {
    const auto there = from_.shape(range.name);
    if (there == range.global_shape) return from_.read(range, verified);
    const auto extent = range.tensor.shape()[0];
    const auto rows = std::min(there[0] - range.offsets[0], extent);  // that the checkpoint has
    if (!is_optimizer_state(range.name) && rows < extent)
      read_padded(weights_, range);
    else if (rows > 0)  // new optimizer state stays zero
      from_.read({.name = range.name,
                  .global_shape = there,
                  .offsets = range.offsets,
                  .tensor = range.tensor.slice(0, rows),
                  .role = range.role},
                 verified);
  }

  const Checkpoint& from_;
  CheckpointWeights weights_;
  const Resharding& how_;
  std::map<std::string, std::vector<std::string>> states_;  ///< of each weight, by its name
};

}  // namespace

void reshard(const Checkpoint& from, const std::filesystem::path& root, const std::string& prefix,
             const Resharding& how) {
  const Resharder resharder(from, how);
  std::uint64_t bytes = 0;
  for (const auto& name : from.names()) bytes += Tensor::without_elements(from.dtype(name), from.shape(name)).bytes();
  must_have_room(root, bytes);
  CheckpointWriter writer(root, prefix, from.iteration(), static_cast<int>(how.writers.size()));
  auto blobs = how.blobs;
  blobs.insert(from.blobs().begin(), from.blobs().end());  // does not replace those that `how` has
  writer.begin();
  try {
    std::vector<WrittenPart> parts;
    for (std::size_t number = 0; number < how.writers.size(); ++number)
      parts.push_back(resharder.write(writer, number));
    writer.commit(parts, blobs);
  } catch (...) {
    writer.abandon();
    throw;
  }
}

}  // namespace tessera::checkpoint
