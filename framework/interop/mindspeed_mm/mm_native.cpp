#include "framework/interop/mindspeed_mm/mm_native.h"

#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/interop/tables/our_names.h"

namespace tessera::mindspeed_mm {
namespace {

std::vector<std::byte> in_theirs(const hugging_face::WeightRow& ours, const hugging_face::WeightRow& row,
                                 std::vector<std::byte> elements, std::size_t size, const Shape& shape) {
  if (ours.steps == row.steps) return elements;
  // The steps that MindSpeed-MM's layout has not are undone: all of them, then its own are done.
  const auto parts = part_shapes_of(ours, shape);
  return to_ours(row, to_theirs(ours, std::move(elements), size, parts), size, parts);
}

}  // namespace

NativeSource::NativeSource(const checkpoint::WeightSource& weights, const MmModel& model, std::optional<DType> type,
                           const MmTable& table)
    : weights_(weights), model_(model) {
  for (std::size_t i = 0; i < model.rows().size(); ++i) {
    const auto &ours = model.table().rows()[i], &row = model.rows()[i];
    if (!weights.has(ours.name))
      throw ConfigError(text(weights.folder().string(), ": has no ", ours.name, ", which a Qwen2-VL needs"));
    auto shape = weights.shape(ours.name);
    if (tables::has_vocabulary_rows(ours.name)) shape = model.embedding();
    if (weights.shape(ours.name)[0] < shape[0])
      throw ConfigError(text(weights.folder().string(), ": ", ours.name, " is ", weights.shape(ours.name), "; ", shape,
                             " was expected"));
    const auto place = table.theirs(row.name);
    tensors_.emplace(row.name, MmTensor{place->row, place->layer, type.value_or(weights.dtype(ours.name)),
                                        shape_of(row, part_shapes_of(ours, shape))});
    rows_.emplace(row.name, i);
  }
  std::set<std::string> known;
  for (const auto& ours : model.table().rows()) known.insert(ours.name);
  for (const auto& name : weights.names())
    if (!known.contains(name))
      throw ConfigError(text(weights.folder().string(), ": has ", name, ", which the model of its recipe has not"));
}

void NativeSource::read(const MmTensor& tensor, std::span<std::byte> into) const {
  const auto i = rows_.at(tensor.name());
  const auto& ours = model_.table().rows()[i];
  const auto stored = weights_.shape(ours.name);
  std::vector<std::byte> elements(static_cast<std::size_t>(stored.elements()) * size_of(tensor.type));
  const Tensor all{std::span(elements), tensor.type, stored};
  weights_.read(ours.name, all);
  checkpoint::must_be_finite(all, text(weights_.folder().string(), ": ", ours.name, " as ", name_of(tensor.type)));
  elements.resize(into.size());  // without padding
  const auto shape = tables::has_vocabulary_rows(ours.name) ? model_.embedding() : stored;
  elements = in_theirs(ours, model_.rows()[i], std::move(elements), size_of(tensor.type), shape);
  std::memcpy(into.data(), elements.data(), elements.size());
}

}  // namespace tessera::mindspeed_mm
