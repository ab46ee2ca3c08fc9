#include "framework/checkpoint/reshard.h"

#include <algorithm>
#include <deque>

#include "framework/checkpoint/weight_source.h"
#include "framework/checkpoint/writer.h"

namespace tessera {
namespace {

const std::string optimizer_mark = "optimizer.";

bool is_state(const std::string& name) { return name.rfind(optimizer_mark, 0) == 0; }
std::string weight_of(const std::string& name) {
  return is_state(name) ? name.substr(name.find('.', optimizer_mark.size()) + 1) : name;
}

class Resharder {
 public:
  Resharder(const Checkpoint& from, const Resharding& how, const Value& table)
      : from_(from), weights_(from), how_(how), cut_(table, how.gated) {
    for (const auto& name : from.names()) {
      const auto layer = layer_of(weight_of(name));
      if (layer >= layers())
        throw ConfigError(
            text(from.folder().string(), ": has layer ", layer, ", and the layout ", layers(), " layers"));
      if (!has_vocabulary_rows(name)) continue;
      const auto rows = from.shape(name)[0];
      const auto tokens = how.true_vocabulary > 0 ? std::min(how.true_vocabulary, rows) : rows;
      if (how.vocabulary > 0 && how.vocabulary < tokens)
        throw ConfigError(text(from.folder().string(), ": ", name, " has ", tokens, " tokens; ", how.vocabulary,
                               " rows would lose some of them"));
    }
  }

  /// All ranges of one writer, in memory of their own.
  void write(const CheckpointWriter& writer, int number, std::int64_t tensor, std::int64_t stage,
             std::vector<std::string>& parts) const {
    std::deque<std::vector<std::byte>> memory;
    std::vector<TensorRange> ranges;
    for (const auto& name : from_.names())
      if (stage_of(weight_of(name)) == stage)
        for (const auto& box : boxes(name, tensor)) ranges.push_back(filled(name, box, memory));
    parts.push_back(writer.write(number, ranges));
  }

 private:
  std::int64_t layers() const {
    std::int64_t sum = 0;
    for (const auto& stage : how_.layout.layers)
      for (const auto count : stage) sum += count;
    return sum;
  }

  std::int64_t stage_of(const std::string& weight) const {
    const auto& stages = how_.layout.layers;
    auto layer = layer_of(weight);
    if (layer < 0) return weight.rfind("embedding.", 0) == 0 ? 0 : how_.layout.stages() - 1;
    for (std::size_t c = 0; c < stages[0].size(); ++c)
      for (std::size_t p = 0; p < stages.size(); ++p)
        if ((layer -= stages[p][c]) < 0) return static_cast<std::int64_t>(p);
    throw BugError("a layer of a checkpoint is in no stage");
  }

  Shape shape_of(const std::string& name) const {
    const auto there = from_.shape(name);
    if (how_.vocabulary == 0 || !has_vocabulary_rows(weight_of(name))) return there;
    std::vector<std::int64_t> dims(there.dims().begin(), there.dims().end());
    dims[0] = how_.vocabulary;
    return Shape(dims);
  }

  /// What a writer has of a tensor; the first one has what cannot be cut.
  std::vector<Box> boxes(const std::string& name, std::int64_t tensor) const {
    const auto shape = shape_of(name);
    const auto ranks = how_.layout.tensor;
    if (cut_.part(name, shape, ranks) != shape) {
      try {
        return cut_.boxes(name, shape, ranks, tensor);
      } catch (const ConfigError&) {  // kept in one piece
      }
    }
    if (tensor > 0) return {};
    return {Box::of(std::vector<std::int64_t>(shape.rank(), 0), shape)};
  }

  TensorRange filled(const std::string& name, const Box& box, std::deque<std::vector<std::byte>>& memory) const {
    const auto type = from_.dtype(name);
    const auto shape = shape_of(name);
    const auto extent = shape.rank() == 0 ? Shape{} : Shape(box.extent);
    auto& bytes = memory.emplace_back(static_cast<std::size_t>(extent.elements()) * size_of(type));
    TensorRange range{name, shape, shape.rank() == 0 ? std::vector<std::int64_t>{} : box.begin,
                      Tensor(std::span(bytes), type, extent)};
    read(range);
    return range;
  }

  void read(const TensorRange& range) const {
    const auto there = from_.shape(range.name);
    if (range.global_shape == there) return from_.read(range, {true, false});
    const auto rows = std::min(there[0] - range.offsets[0], range.tensor.shape()[0]);  // that are there
    if (!is_state(range.name) && rows < range.tensor.shape()[0]) {
      read_padded(weights_, range);
    } else if (rows > 0) {  // new optimizer state stays zero
      from_.read({range.name, there, range.offsets, range.tensor.slice(0, rows)}, {true, false});
    }
  }

  const Checkpoint& from_;
  CheckpointWeights weights_;
  const Resharding& how_;
  CheckpointCut cut_;
};

}  // namespace

void reshard(const Checkpoint& from, const std::filesystem::path& root, const std::string& prefix,
             const Resharding& how, const Value& weights_table) {
  const Resharder resharder(from, how, weights_table);
  const CheckpointWriter writer(root, prefix, from.iteration());
  auto blobs = how.blobs;
  blobs.insert(from.blobs().begin(), from.blobs().end());  // what stands there stays
  writer.begin();
  try {
    std::vector<std::string> parts;
    int number = 0;
    for (std::int64_t stage = 0; stage < how.layout.stages(); ++stage)
      for (std::int64_t tensor = 0; tensor < how.layout.tensor; ++tensor)
        resharder.write(writer, number++, tensor, stage, parts);
    writer.commit(parts, blobs);
  } catch (...) {
    writer.abandon();
    throw;
  }
}

}  // namespace tessera
