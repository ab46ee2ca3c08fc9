#include "framework/checkpoint/weight_source.h"

#include <algorithm>
#include <set>

#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/element_checks.h"
#include "framework/checkpoint/layout.h"

namespace tessera::checkpoint {
namespace {

constexpr std::size_t most_named_problems = 8;

std::string place_of(std::size_t element, const Shape& shape, std::span<const std::int64_t> offsets) {
  std::vector<std::int64_t> place(shape.rank());
  auto rest = static_cast<std::int64_t>(element);
  for (std::size_t dim = shape.rank(); dim-- > 0; rest /= shape[dim])
    place[dim] = rest % shape[dim] + (dim < offsets.size() ? offsets[dim] : 0);
  std::string words = "[";
  for (std::size_t dim = 0; dim < place.size(); ++dim) words += text(dim == 0 ? "" : ", ", place[dim]);
  return words + "]";
}

bool same_but_for_rows(const Shape& a, const Shape& b) {
  const auto x = a.dims(), y = b.dims();
  return x.size() == y.size() && !x.empty() && std::equal(x.begin() + 1, x.end(), y.begin() + 1, y.end());
}

/// What is wrong with one wanted tensor; empty if it can be read.
std::string problem_with(const WeightSource& source, const TensorRange& range) {
  if (!source.has(range.name)) return text(range.name, ": is missing");
  const auto there = source.shape(range.name);
  if (there == range.global_shape) return "";
  if (!has_vocabulary_rows(range.role) || !same_but_for_rows(there, range.global_shape))
    return text(range.name, ": is ", there, "; expected ", range.global_shape);
  if (there[0] < range.global_shape[0]) return "";
  return text(range.name, ": its vocabulary has ", there[0], " rows and the model here ", range.global_shape[0],
              "; refused, for tokens may be among the ", there[0] - range.global_shape[0],
              " rows that would be left out; give model_config.vocab_size: ", there[0]);
}

constexpr std::int64_t bytes_of_rows = std::int64_t{16} << 20;  // that are read at a time

/// The mean of all rows of a tensor, in the columns of the box `range`.
std::vector<float> mean_row(const WeightSource& source, const TensorRange& range) {
  const auto there = source.shape(range.name);
  const auto given = there[0];
  auto extents = std::vector<std::int64_t>(range.tensor.shape().dims().begin(), range.tensor.shape().dims().end());
  const auto width = Shape(extents).elements() / std::max<std::int64_t>(extents[0], 1);
  const auto few = std::max<std::int64_t>(1, bytes_of_rows / (width * static_cast<std::int64_t>(sizeof(float))));
  const auto most = source.reads_rows(range.name) ? std::min(few, given) : given;
  std::vector<float> values(static_cast<std::size_t>(most * width));
  std::vector<double> sums(static_cast<std::size_t>(width), 0.0);
  auto offsets = range.offsets;
  for (std::int64_t row = 0; row < given; row += extents[0]) {
    extents[0] = std::min(most, given - row);
    offsets[0] = row;
    const auto part = std::span(values).first(static_cast<std::size_t>(extents[0] * width));
    source.read_box({range.name, there, offsets, Tensor(part, Shape(extents)), range.role});
    for (std::size_t i = 0; i < part.size(); ++i) sums[i % sums.size()] += part[i];
  }
  std::vector<float> mean;
  for (const auto sum : sums)
    mean.push_back(static_cast<float>(sum / static_cast<double>(std::max<std::int64_t>(given, 1))));
  return mean;
}

}  // namespace

std::string read_padded(const WeightSource& source, const TensorRange& range) {
  const auto there = source.shape(range.name);
  const auto given = there[0], rows = range.global_shape[0], here = range.tensor.shape()[0];
  const auto kept = std::clamp<std::int64_t>(given - range.offsets[0], 0, here);
  if (kept > 0) source.read_box({range.name, there, range.offsets, range.tensor.slice(0, kept), range.role});
  if (kept < here) {
    auto mean = mean_row(source, range);
    const Tensor one{std::span<float>(mean), Shape{static_cast<std::int64_t>(mean.size())}};
    for (auto row = kept; row < here; ++row) copy_converted(one, range.tensor.slice(row, 1));
  }
  return text(range.name, ": ", given, " rows kept, ", rows - given, " rows of padding filled with their mean");
}

bool differs_in_padding(const WeightSource& source, const TensorRange& range, std::int64_t tokens) {
  if (!has_vocabulary_rows(range.role) || !source.has(range.name)) return false;
  const auto there = source.shape(range.name);
  if (there == range.global_shape || !same_but_for_rows(there, range.global_shape)) return false;
  return there[0] < range.global_shape[0] || (tokens > 0 && range.global_shape[0] >= tokens);
}

std::vector<TensorRange> with_paddings_of(const WeightSource& source, std::vector<TensorRange> all,
                                          std::int64_t tokens) {
  for (auto& range : all)
    if (differs_in_padding(source, range, tokens)) range.global_shape = source.shape(range.name);
  return all;
}

std::string read_other_padding(const WeightSource& source, const TensorRange& range) {
  const auto there = source.shape(range.name);
  const auto given = there[0], rows = range.global_shape[0];
  const auto first = range.offsets[0], here = range.tensor.shape()[0];
  const auto kept = std::clamp<std::int64_t>(given - first, 0, here);
  if (given < rows && !is_optimizer_state(range.name)) return read_padded(source, range);
  if (kept > 0)
    source.read_box({.name = range.name,
                     .global_shape = there,
                     .offsets = range.offsets,
                     .tensor = range.tensor.slice(0, kept),
                     .role = range.role});
  if (kept < here) {
    const auto bytes = range.tensor.slice(kept, here - kept).raw();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
  return given < rows ? text(range.name, ": ", given, " rows kept, ", rows - given, " rows of padding zero")
                      : text(range.name, ": ", rows, " rows kept, ", given - rows, " rows of padding left out");
}

std::vector<std::string> CheckpointWeights::names() const {
  auto names = checkpoint_.names();
  std::erase_if(names, is_optimizer_state);
  return names;
}

std::map<std::string, std::vector<std::string>> states_by_weight(const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<std::string>> states;
  for (const auto& name : checkpoint.names())
    if (is_optimizer_state(name)) states[weight_of(name)].push_back(name);
  return states;
}

void WeightSource::read_box(const TensorRange& into) const {
  const auto all = shape(into.name);
  if (into.tensor.shape() == all) return read(into.name, into.tensor);
  std::vector<std::byte> memory(static_cast<std::size_t>(all.elements()) * size_of(into.tensor.dtype()));
  const Tensor full{std::span(memory), into.tensor.dtype(), all};
  read(into.name, full);
  const auto box = Box::of(into.offsets, into.tensor.shape());
  copy_box(box, full, Box::whole(all), into.tensor, box);
}

std::optional<MappedTensor> WeightSource::map(const TensorRange&) const { return std::nullopt; }
std::optional<StoredMatrix> WeightSource::stored(const TensorRange&) const { return std::nullopt; }

void CheckpointWeights::read(const std::string& name, const Tensor& into) const { read_box(whole(name, into)); }

void CheckpointWeights::read_box(const TensorRange& into) const {
  checkpoint_.read(into, {.check_crc = true, .convert = true, .once = true});
  must_be_finite(into.tensor, text(folder().string(), ": tensor '", into.name, "'"), into.offsets);
}

bool is_finite(const Tensor& tensor) { return first_not_finite(tensor) == static_cast<std::size_t>(tensor.elements()); }

void must_be_finite(const Tensor& tensor, const std::string& speaker, std::span<const std::int64_t> offsets) {
  const auto at = first_not_finite(tensor);
  if (at == static_cast<std::size_t>(tensor.elements())) return;
  std::vector<double> one(1);
  const auto size = size_of(tensor.dtype());
  const Tensor element(tensor.raw().subspan(at * size, size), tensor.dtype(), Shape{1});
  copy_converted(element, Tensor(std::span(one), Shape{1}));
  const bool may_overflow = tensor.dtype() == DType::float16 && one[0] == one[0];
  throw ConfigError(text(speaker, ": element ", place_of(at, tensor.shape(), offsets), " is ",
                         one[0] != one[0] ? "NaN" : "infinite",
                         "; weights must be finite, so these were saved by a run that had diverged, or are damaged",
                         may_overflow ? ", or are larger than 65504, the largest number of float16" : ""));
}

void must_fit(const WeightSource& source, std::span<const TensorRange> wanted) {
  std::vector<std::string> problems;
  std::set<std::string> taken;
  for (const auto& range : wanted) {
    taken.insert(range.name);
    if (auto problem = problem_with(source, range); !problem.empty()) problems.push_back(std::move(problem));
  }
  for (const auto& name : source.names())
    if (taken.count(name) == 0) problems.push_back(text(name, ": is there, but the model here has no such weight"));
  if (problems.empty()) return;
  std::string message;
  for (std::size_t i = 0; i < std::min(most_named_problems, problems.size()); ++i) message += "\n  " + problems[i];
  if (problems.size() > most_named_problems)
    message += text("\n  and ", problems.size() - most_named_problems, " more");
  const auto left_out = source.about_left_out();
  message += left_out.empty() ? "\n  give the recipe of this checkpoint, or another checkpoint" : "\n  " + left_out;
  throw ConfigError(
      text(source.folder().string(), ": its weights do not fit the model that the recipe describes:", message));
}

std::vector<std::string> load_all(const WeightSource& source, std::span<const TensorRange> wanted,
                                  std::span<const TensorRange> all) {
  must_fit(source, all.empty() ? wanted : all);
  std::vector<std::string> notes;
  for (const auto& range : wanted) {
    if (source.shape(range.name) == range.global_shape)
      source.read_box(range);
    else if (auto note = read_other_padding(source, range);
             notes.empty() || notes.back() != note)  // once for all its boxes
      notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace tessera::checkpoint
