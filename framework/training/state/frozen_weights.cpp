#include "framework/training/state/frozen_weights.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "framework/base/random.h"
#include "framework/checkpoint/element_checks.h"
#include "framework/checkpoint/laid_out_weights.h"
#include "framework/kernels/type_conversion.h"
#include "framework/kernels/weight.h"
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

/// A box of a parameter without elements, to ask for them.
checkpoint::TensorRange asked(const nn::Parameter& parameter, const Box& box) {
  return {.name = parameter.name,
          .global_shape = parameter.global_shape,
          .offsets = box.begin,
          .tensor = Tensor::without_elements(parameter.type, Shape(box.extent)),
          .role = parameter.role};
}

/// Calls visit(box, index of its first element in this rank's part) for each box of `elements` of that part.
template <class Visit>
void for_boxes_of(const nn::Parameter& parameter, nn::ElementRange elements, const Visit& visit) {
  for (const auto& box : nn::boxes_of(parameter, elements)) {
    visit(box, elements.first);
    elements.first += box.elements();
  }
}

/// The elements of a box, which begins at `first` in this rank's part `all`.
checkpoint::TensorRange range_of(const nn::Parameter& parameter, const Box& box, std::int64_t first,
                                 const Tensor& all) {
  auto range = asked(parameter, box);
  const auto size = size_of(parameter.type);
  const auto raw =
      all.raw().subspan(static_cast<std::size_t>(first) * size, static_cast<std::size_t>(box.elements()) * size);
  range.tensor = Tensor(raw, parameter.type, range.tensor.shape());
  return range;
}

/// The sum over the elements of a box of an unsharded tensor of `row_width` columns; row(r, floats) gives its rows.
template <class Row>
std::uint64_t digest_of(kernels::Threads& threads, const nn::Parameter& parameter, const Box& box, const Row& row) {
  constexpr std::int64_t elements_of_tile = 1 << 16;
  const bool is_matrix = box.extent.size() == 2;
  const auto row_width = is_matrix ? parameter.global_shape[1] : 1, width = is_matrix ? box.extent[1] : 1;
  const auto first_column = is_matrix ? box.begin[1] : 0, first_row = box.begin[0];
  const auto name = name_id(parameter.name);
  std::atomic<std::uint64_t> sum = 0;
  const auto rows = static_cast<std::size_t>(box.elements() / width);
  threads.parallel_for(rows, static_cast<std::size_t>(std::max<std::int64_t>(1, elements_of_tile / width)),
                       [&](std::size_t begin, std::size_t end) {
                         std::vector<float> values(static_cast<std::size_t>(width));
                         std::uint64_t part = 0;
                         for (auto r = static_cast<std::int64_t>(begin); r < static_cast<std::int64_t>(end); ++r) {
                           row(r, std::span(values));
                           const auto index = static_cast<std::uint64_t>((first_row + r) * row_width + first_column);
                           part += checkpoint::digest_of(values, name, index);
                         }
                         sum += part;
                       });
  return sum;
}

/// The same of a box that begins at `first` in this rank's part.
std::uint64_t digest_of(kernels::Threads& threads, const nn::Parameter& parameter, const Box& box, std::int64_t first) {
  const auto& leaf = parameter.leaf;
  if (leaf.stored) {
    const auto width = leaf.stored->width;
    return digest_of(threads, parameter, box, [&](std::int64_t r, std::span<float> to) {
      kernels::read_row(leaf.weight(), first / width + r, width, to);
    });
  }
  const kernels::Elements all = leaf.value;
  return digest_of(threads, parameter, box, [&](std::int64_t r, std::span<float> to) {
    const auto width = static_cast<std::int64_t>(to.size());
    kernels::widen_range(all.part(static_cast<std::size_t>(first + r * width), to.size()), to);
  });
}

bool is_in(const nn::Parameter& parameter, const checkpoint::WeightSource& source) {
  return source.has(parameter.name) && source.shape(parameter.name) == parameter.global_shape;
}

/// Appends the blocks of `more`, further rows of the same matrix.
void append(StoredMatrix& all, StoredMatrix more) {
  all.width = more.width;
  std::ranges::move(more.blocks, std::back_inserter(all.blocks));
  for (auto& file : more.files)
    if (std::ranges::find(all.files, file) == all.files.end()) all.files.push_back(std::move(file));
}

/// The elements of the parameter in a file of `source` as this rank needs them; nothing: no file has them so.
std::optional<checkpoint::MappedTensor> dense_in(const checkpoint::WeightSource& source,
                                                 const nn::Parameter& parameter) {
  const auto boxes = nn::boxes_of(parameter, {0, parameter.elements()});
  if (boxes.size() != 1) return std::nullopt;
  return source.map(asked(parameter, boxes.front()));
}

/// The rows of the parameter in files of `source`, in blocks of any type; nothing: no file has them so.
std::optional<StoredMatrix> rows_in(const checkpoint::WeightSource& source, const nn::Parameter& parameter) {
  if (!nn::may_be_stored(parameter)) return std::nullopt;
  StoredMatrix all;
  for (const auto& box : nn::boxes_of(parameter, {0, parameter.elements()})) {
    auto rows = source.stored(asked(parameter, box));
    if (!rows) return std::nullopt;
    append(all, *std::move(rows));
  }
  if (all.blocks.empty() || all.width < 2) return std::nullopt;  // see kernels::Weight
  return all;
}

/// Counts a mapped parameter. `rows`: null if it lies in a file as the model reads it.
void count_mapped(FrozenWeights::Mapped& all, const nn::Parameter& parameter, const StoredMatrix* rows) {
  all.reserved += static_cast<std::int64_t>(padded_bytes(parameter));
  all.in_files += rows ? rows->bytes() : static_cast<std::int64_t>(stored_bytes(parameter));
}

void count_laid_out(FrozenWeights::Mapped& all, const nn::Parameter& parameter,
                    const checkpoint::WeightSource& source) {
  all.reserved += static_cast<std::int64_t>(padded_bytes(parameter));
  const auto size = size_of(checkpoint::laid_out_type(source, parameter.name));
  all.in_files += parameter.elements() * static_cast<std::int64_t>(size);
}

}  // namespace

// Vectors come first: pages of their memory are then not among those of matrices, which stay untouched while they are
// mapped.
FrozenWeights::FrozenWeights(std::vector<Entry> entries)
    : entries_(std::move(entries)), places_(entries_.size()), files_(entries_.size()), copied_(entries_.size()) {
  std::size_t end = 0;
  for (const bool stored : {false, true})
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const auto& parameter = *entries_[i].parameter;
      must(!parameter.trained, "memory of frozen parameters is for frozen parameters");
      if (nn::may_be_stored(parameter) != stored) continue;
      places_[i] = end;
      end += padded_bytes(parameter);
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

FrozenWeights::Mapped FrozenWeights::mappable(std::span<nn::Parameter* const> parameters,
                                              const checkpoint::WeightSource& source, Ways ways) {
  Mapped all;
  for (const auto* parameter : parameters) {
    if (parameter->trained || !is_in(*parameter, source)) continue;
    if (const auto bytes = ways.quantised ? ways.quantised(*parameter) : std::nullopt) {
      all.reserved += static_cast<std::int64_t>(padded_bytes(*parameter));
      all.in_files += *bytes;
    } else if (dense_in(source, *parameter))
      count_mapped(all, *parameter, nullptr);
    else if (const auto stored = ways.rows ? rows_in(source, *parameter) : std::nullopt)
      count_mapped(all, *parameter, &*stored);
    else if (ways.laid_out && may_be_stored(*parameter) && checkpoint::needs_layout(source, parameter->name))
      count_laid_out(all, *parameter, source);
  }
  return all;
}

FrozenWeights::Mapped FrozenWeights::mapped() const {
  Mapped all;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (const auto& parameter = *entries_[i].parameter; !files_[i].empty() && !copied_[i])
      count_mapped(all, parameter, parameter.leaf.stored.get());
  return all;
}

std::vector<nn::Parameter*> FrozenWeights::parameters() const {
  std::vector<nn::Parameter*> all;
  for (const auto& entry : entries_) all.push_back(entry.parameter);
  return all;
}

Tensor FrozenWeights::memory_of(std::size_t entry) const {
  const auto& parameter = *entries_[entry].parameter;
  return Tensor(memory_.bytes().subspan(places_[entry], stored_bytes(parameter)), parameter.type, parameter.shape());
}

void FrozenWeights::bind(std::size_t entry) {
  auto& leaf = entries_[entry].parameter->leaf;
  files_[entry].clear();
  copied_[entry] = false;
  leaf.stored.reset();
  leaf.value = memory_of(entry);
  leaf.bind_grad({});
  leaf.number = -1;
}

void FrozenWeights::unmap() {
  digest_.reset();
  for (std::size_t i = 0; i < entries_.size(); ++i) bind(i);
}

void FrozenWeights::initialise(kernels::Threads& threads, std::uint64_t seed,
                               const std::function<bool(const std::string& name)>& is_given) {
  digest_.reset();
  std::vector<float> values;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    auto& parameter = *entries_[i].parameter;
    if (is_given && is_given(parameter.name)) continue;
    bind(i);
    values.resize(static_cast<std::size_t>(parameter.elements()));
    nn::FlatParameters::initialise(threads, seed, parameter, values);
    kernels::narrow(threads, values, parameter.leaf.value);
  }
}

Tensor FrozenWeights::elements_of(std::size_t entry) {
  const auto& leaf = entries_[entry].parameter->leaf;
  if (!leaf.stored) return leaf.value;
  auto copy = memory_of(entry);
  copied_[entry] = true;
  kernels::read_box(*leaf.stored, {0, leaf.stored->rows(), 0, leaf.stored->width}, copy.dtype(), copy);
  return copy;
}

std::vector<checkpoint::TensorRange> FrozenWeights::ranges(StateScope scope) {
  std::vector<checkpoint::TensorRange> all;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& [parameter, saves] = entries_[i];
    std::vector<nn::ElementRange> wanted;
    if (scope == StateScope::held) wanted = {{0, parameter->elements()}};
    if (scope != StateScope::held && saves) wanted = parameter->owned();
    if (wanted.empty()) continue;
    const auto elements = elements_of(i);
    for (const auto& range : wanted)
      for_boxes_of(*parameter, range, [&, own = parameter](const Box& box, std::int64_t first) {
        all.push_back(range_of(*own, box, first, elements));
      });
  }
  return all;
}

std::set<std::string> FrozenWeights::map(const checkpoint::WeightSource& source) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    auto& parameter = *entries_[i].parameter;
    if (!is_in(parameter, source)) continue;
    if (auto mapped = dense_in(source, parameter)) {
      parameter.leaf.value = Tensor(mapped->tensor.raw(), parameter.type, parameter.shape());
      files_[i] = {std::move(mapped->file)};
    } else if (auto rows = rows_in(source, parameter)) {
      files_[i] = rows->files;
      parameter.leaf.value = Tensor::without_elements(parameter.type, parameter.shape());
      parameter.leaf.stored = std::make_shared<const StoredMatrix>(*std::move(rows));
    } else {
      continue;
    }
    names.insert(parameter.name);
  }
  digest_.reset();
  return names;
}

void FrozenWeights::must_be_finite(const std::filesystem::path& folder) {
  for (const auto& [parameter, saves] : entries_) {
    const auto speaker = text(folder.string(), ": tensor '", parameter->name, "'");
    const auto& leaf = parameter->leaf;
    if (!leaf.stored) {
      checkpoint::must_be_finite(leaf.value, speaker);
      continue;
    }
    std::vector<float> row(static_cast<std::size_t>(leaf.stored->width));
    for (std::int64_t r = 0; r < leaf.stored->rows(); ++r) {
      kernels::read_row(leaf.weight(), r, leaf.stored->width, row);
      const auto elements = Tensor(std::span(row), {leaf.stored->width});
      if (!checkpoint::is_finite(elements)) checkpoint::must_be_finite(elements, text(speaker, ", row ", r));
    }
  }
}

void FrozenWeights::require_intact() const {
  for (const auto& files : files_)
    for (const auto& file : files) file->require_pages();
}

std::uint64_t FrozenWeights::digest(kernels::Threads& threads) {
  if (!digest_) {
    digest_ = 0;
    for (const auto& [parameter, saves] : entries_) {
      if (!saves) continue;
      for (const auto& elements : parameter->owned())
        for_boxes_of(*parameter, elements, [&, own = parameter](const Box& box, std::int64_t first) {
          *digest_ += digest_of(threads, *own, box, first);
        });
    }
  }
  return *digest_;
}

}  // namespace tessera::training
