#include "framework/training/frozen_weights.h"

#include <algorithm>
#include <bit>

#include "framework/base/random.h"
#include "framework/kernels/type_conversion.h"
#include "framework/nn/flat_parameters.h"

namespace tessera::training {
namespace {

constexpr std::size_t alignment_of_frozen = 64;  // a cache line, as of all arrays of the state

std::size_t stored_bytes(const nn::Parameter& parameter) {
  return static_cast<std::size_t>(parameter.elements()) * size_of(parameter.type);
}

std::size_t padded_bytes(const nn::Parameter& parameter) {
  return (stored_bytes(parameter) + alignment_of_frozen - 1) / alignment_of_frozen * alignment_of_frozen;
}

/// The elements of a box, which is contiguous in this rank's part.
checkpoint::TensorRange range_of(const nn::Parameter& parameter, const nn::PlacedBox& box) {
  const auto size = size_of(parameter.type);
  const auto raw = parameter.leaf.value.raw().subspan(static_cast<std::size_t>(box.first) * size,
                                                      static_cast<std::size_t>(box.shape.elements()) * size);
  return {.name = parameter.name,
          .global_shape = parameter.global_shape,
          .offsets = box.offsets,
          .tensor = Tensor(raw, parameter.type, box.shape),
          .role = parameter.role};
}

/// A permutation of 64-bit numbers that changes half of the bits on average (the finalizer of SplitMix64).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

std::uint64_t digest_of(const checkpoint::TensorRange& range) {
  const auto whole_row = range.global_shape.rank() == 2 ? range.global_shape[1] : 1;
  const auto width = range.tensor.shape().rank() == 2 ? range.tensor.shape()[1] : 1;
  const auto first_column = range.offsets.size() == 2 ? range.offsets[1] : 0;
  const auto first_row = range.offsets.empty() ? 0 : range.offsets[0];
  std::vector<float> values(static_cast<std::size_t>(width));
  const kernels::Elements all = range.tensor;
  std::uint64_t sum = 0;
  for (std::int64_t row = 0; row < range.tensor.elements() / width; ++row) {
    kernels::widen_range(all.part(static_cast<std::size_t>(row * width), values.size()), values);
    auto index = static_cast<std::uint64_t>((first_row + row) * whole_row + first_column);
    for (const auto value : values)
      sum += mixed(name_id(range.name) + mixed(index++) + std::bit_cast<std::uint32_t>(value));
  }
  return sum;
}

}  // namespace

FrozenWeights::FrozenWeights(std::vector<Entry> entries) : entries_(std::move(entries)), files_(entries_.size()) {
  std::size_t end = 0;
  for (const auto& entry : entries_) {
    must(!entry.parameter->trained, "memory of frozen parameters is for frozen parameters");
    places_.push_back(end);
    end += padded_bytes(*entry.parameter);
  }
  memory_ = Storage(end);
  unmap();
}

std::int64_t FrozenWeights::bytes_of(std::span<nn::Parameter* const> parameters) {
  std::size_t all = 0;
  for (const auto* parameter : parameters)
    if (!parameter->trained) all += padded_bytes(*parameter);
  return static_cast<std::int64_t>(all);
}

void FrozenWeights::bind(std::size_t entry) {
  auto& parameter = *entries_[entry].parameter;
  files_[entry].reset();
  parameter.leaf.value =
      Tensor(memory_.bytes().subspan(places_[entry], stored_bytes(parameter)), parameter.type, parameter.shape());
  parameter.leaf.bind_grad({});
  parameter.leaf.number = -1;
}

void FrozenWeights::unmap() {
  digest_.reset();
  for (std::size_t i = 0; i < entries_.size(); ++i) bind(i);
}

void FrozenWeights::initialise(kernels::Threads& threads, std::uint64_t seed) {
  unmap();
  std::vector<float> values;
  for (const auto& [parameter, saves] : entries_) {
    values.resize(static_cast<std::size_t>(parameter->elements()));
    nn::FlatParameters::initialise(threads, seed, *parameter, values);
    kernels::narrow(threads, values, parameter->leaf.value);
  }
}

std::vector<checkpoint::TensorRange> FrozenWeights::ranges(StateScope scope) const {
  std::vector<checkpoint::TensorRange> all;
  const auto add = [&](const nn::Parameter& parameter, nn::ElementRange elements) {
    for (const auto& box : nn::boxes_of(parameter, elements)) all.push_back(range_of(parameter, box));
  };
  for (const auto& [parameter, saves] : entries_) {
    if (scope == StateScope::held) add(*parameter, {0, parameter->elements()});
    if (scope == StateScope::owned && saves)
      for (const auto& elements : parameter->owned()) add(*parameter, elements);
  }
  return all;
}

std::set<std::string> FrozenWeights::map(const checkpoint::WeightSource& source) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    auto& parameter = *entries_[i].parameter;
    const auto boxes = nn::boxes_of(parameter, {0, parameter.elements()});
    if (boxes.size() != 1 || !source.has(parameter.name) || source.shape(parameter.name) != parameter.global_shape)
      continue;
    auto mapped = source.map(range_of(parameter, boxes.front()));
    if (!mapped) continue;
    parameter.leaf.value = Tensor(mapped->tensor.raw(), parameter.type, parameter.shape());
    files_[i] = std::move(mapped->file);
    names.insert(parameter.name);
  }
  digest_.reset();
  return names;
}

void FrozenWeights::require_intact() const {
  for (const auto& file : files_)
    if (file) file->require_pages();
}

std::uint64_t FrozenWeights::digest() {
  if (!digest_) {
    digest_ = 0;
    for (const auto& range : ranges(StateScope::owned)) *digest_ += digest_of(range);
  }
  return *digest_;
}

}  // namespace tessera::training
