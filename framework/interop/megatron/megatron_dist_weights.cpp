#include "framework/interop/megatron/megatron_dist_weights.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/weight_source.h"
#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/options/limits.h"

namespace tessera::megatron {
namespace {

const std::string stacked_layers = "decoder.layers.", stacked_experts = ".mlp.experts.experts.",
                  single_experts = ".mlp.experts.local_experts.", chained_begin = "chained_",
                  gated_module = "linear_fc1.", state_of_weights = "optimizer.state.", our_state = "optimizer.";

bool begins_with(const std::string& words, const std::string& begin) { return words.rfind(begin, 0) == 0; }

bool is_digit_at(const std::string& words, std::size_t at) {
  return at < words.size() && std::isdigit(static_cast<unsigned char>(words[at])) != 0;
}

/// "chained_0.optimizer.state..." without the number of the optimizer.
std::string without_chain(const std::string& key) {
  if (!begins_with(key, chained_begin) || !is_digit_at(key, chained_begin.size())) return key;
  const auto dot = key.find('.');
  return dot == std::string::npos ? key : key.substr(dot + 1);
}

std::int64_t product_of(std::span<const std::int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{1}, std::multiplies<>());
}

/// The next index of a box in row-major order; false after the last.
bool next_index(std::vector<std::int64_t>& index, const Box& box) {
  for (auto dim = index.size(); dim-- > 0;) {
    if (++index[dim] < box.begin[dim] + box.extent[dim]) return true;
    index[dim] = box.begin[dim];
  }
  return false;
}

Box leading_dims(const Box& box, std::size_t count) {
  const auto end = static_cast<std::ptrdiff_t>(count);
  return {{box.begin.begin(), box.begin.begin() + end}, {box.extent.begin(), box.extent.begin() + end}};
}

Box without_dims(const Box& box, std::size_t count) {
  const auto begin = static_cast<std::ptrdiff_t>(count);
  if (box.begin.size() == count) return {{0}, {1}};  // of a scalar
  return {{box.begin.begin() + begin, box.begin.end()}, {box.extent.begin() + begin, box.extent.end()}};
}

Box box_in(const torch::DcpIndex& index, const torch::DcpTensor& tensor, const torch::DcpChunk& chunk) {
  const auto offsets = index.offsets(tensor, chunk);
  return Box::of({offsets.begin(), offsets.end()}, Shape(index.extents(tensor, chunk)));
}

}  // namespace

DistName::DistName(const std::string& key, const options::Value& table) : table_(&table) {
  auto name = without_chain(key);
  if (begins_with(name, state_of_weights)) {
    const auto dot = name.find('.', state_of_weights.size());
    if (dot == std::string::npos) return;
    slot_ = name.substr(state_of_weights.size(), dot - state_of_weights.size());
    name = name.substr(dot + 1);
  } else if (begins_with(name, our_state)) {
    return;  // not by weight
  }
  if (slot_ == "step") return;
  layers_ = begins_with(name, stacked_layers) && !is_digit_at(name, stacked_layers.size());
  if (const auto at = name.find(stacked_experts); at != std::string::npos) {
    experts_ = !is_digit_at(name, at + stacked_experts.size());
    name.replace(at, stacked_experts.size(), single_experts);
  }
  for (const auto& [end, half] : {std::pair<std::string_view, std::int64_t>{"_w", 0}, {"_v", 1}})
    if (name.find(gated_module) != std::string::npos && name.ends_with(end)) {
      name.resize(name.size() - end.size());
      half_ = half;
      halves_ = 2;
      break;
    }
  name_ = std::move(name);
  const std::vector<std::int64_t> first(axes(), 0);
  if (ours(first).empty()) name_.clear();
}

std::string DistName::ours(std::span<const std::int64_t> index) const {
  auto theirs = name_;
  if (experts_) theirs.insert(theirs.find(single_experts) + single_experts.size(), std::to_string(index.back()) + ".");
  if (layers_) theirs.insert(stacked_layers.size(), std::to_string(index.front()) + ".");
  return our_name_of_megatron(theirs, *table_);
}

std::string DistName::stored(std::span<const std::int64_t> index) const {
  return slot_.empty() || is_master() ? ours(index) : text(our_state, slot_, ".", ours(index));
}

namespace {

/// As each_box_of_range, in the dims from `dim` on.
void boxes_of_range(const Box& block, std::size_t dim, std::int64_t begin, std::int64_t end, std::int64_t first,
                    const std::function<void(const Box&, std::int64_t)>& visit) {
  const auto inner = product_of(std::span(block.extent).subspan(dim + 1));
  const auto rows = [&](std::int64_t from, std::int64_t count) {
    auto part = block;
    part.begin[dim] += from;
    part.extent[dim] = count;
    return part;
  };
  auto at = begin;
  if (at % inner != 0) {
    const auto stop = std::min(end, (at / inner + 1) * inner);
    boxes_of_range(rows(at / inner, 1), dim + 1, at % inner, at % inner + stop - at, first, visit);
    at = stop;
  }
  if (const auto count = (end - at) / inner; count > 0) {
    visit(rows(at / inner, count), first + at - begin);
    at += count * inner;
  }
  if (at < end) boxes_of_range(rows(at / inner, 1), dim + 1, 0, end - at, first + at - begin, visit);
}

}  // namespace

void each_box_of_range(const Box& block, std::int64_t begin, std::int64_t end,
                       const std::function<void(const Box&, std::int64_t)>& visit) {
  if (begin < end) boxes_of_range(block, 0, begin, end, 0, visit);
}

void DistWeights::refuse(const std::string& message) const { throw ConfigError(text(speaker_, ": ", message)); }

DistWeights::DistWeights(const torch::DcpFolder& folder, const options::Value& table, std::string speaker)
    : folder_(folder), table_(table), speaker_(std::move(speaker)) {
  for (const auto& tensor : folder_.index().tensors) take(tensor);
}

void DistWeights::take(const torch::DcpTensor& tensor) {
  const DistName name(tensor.key, table_);
  if (!name.is_weight()) return;
  const auto& flattened = tensor.flattened_from;
  const auto& size = flattened.rank() > 0 ? flattened : tensor.size;
  if (size.rank() < name.axes() || (name.has_layers() && size[0] > options::most_layers) ||
      (name.has_experts() && size[name.axes() - 1] > options::most_experts))
    refuse(text("'", tensor.key, "' is ", size, ", which does not begin with the number of ",
                name.has_layers() ? "layers" : "", name.axes() == 2 ? " and " : "",
                name.has_experts() ? "experts" : ""));
  for (const auto& chunk : folder_.index().chunks_of(tensor)) {
    if (flattened.rank() > 0)
      take_flattened(name, tensor, chunk);
    else
      take_box(name, size, {&tensor, &chunk}, 0, box_in(folder_.index(), tensor, chunk));
  }
}

/// The tensor of shape G was held in equal blocks of shape L; it is stored as [G / L, elements of a block], and a chunk
/// has a range of the elements of one block.
void DistWeights::take_flattened(const DistName& name, const torch::DcpTensor& tensor, const torch::DcpChunk& chunk) {
  const auto& whole = tensor.flattened_from;
  const auto dims = whole.rank();
  bool fits = tensor.size.rank() == dims + 1;
  Box block{std::vector<std::int64_t>(dims), std::vector<std::int64_t>(dims)};
  for (std::size_t dim = 0; dim < dims && fits; ++dim) {
    fits = tensor.size[dim] > 0 && whole[dim] % tensor.size[dim] == 0;
    if (fits) block.extent[dim] = whole[dim] / tensor.size[dim];
  }
  if (!fits || tensor.size[dims] != block.elements())
    refuse(text("'", tensor.key, "' is ", tensor.size, " and was ", whole,
                " before it was flattened: not equal blocks, and the elements of one as last extent"));
  const auto own = box_in(folder_.index(), tensor, chunk);
  const auto blocks = leading_dims(own, dims);
  auto index = blocks.begin;
  std::int64_t first = 0;
  do {
    for (std::size_t dim = 0; dim < dims; ++dim) block.begin[dim] = index[dim] * block.extent[dim];
    each_box_of_range(block, own.begin[dims], own.begin[dims] + own.extent[dims], [&](const Box& box, std::int64_t at) {
      take_box(name, whole, {&tensor, &chunk}, first + at, box);
    });
    first += own.extent[dims];
  } while (next_index(index, blocks));
}

/// A box of a tensor that may have axes of layers and experts in front.
void DistWeights::take_box(const DistName& name, const Shape& size, const DistItem& item, std::int64_t first,
                           const Box& box) {
  const auto axes = name.axes();
  std::vector<std::int64_t> extents(size.dims().begin() + static_cast<std::ptrdiff_t>(axes), size.dims().end());
  auto part = without_dims(box, axes);
  if (name.halves() > 1 && !extents.empty()) {
    part.begin[0] += name.half() * extents[0];
    extents[0] *= name.halves();
  }
  const Shape own(extents);
  const auto outer = leading_dims(box, axes);
  if (items_.empty() || items_.back().chunk != item.chunk) items_.push_back(item);
  auto index = outer.begin;
  do {
    const auto ours = name.stored(index);
    auto& tensor = (name.is_master() ? masters_ : tensors_)[ours];
    if (tensor.pieces.empty()) tensor = {own, item.tensor->type, {}};
    if (tensor.shape != own) refuse(text("'", item.tensor->key, "' gives '", ours, "' another shape than another key"));
    tensor.pieces.push_back({items_.size() - 1, first, part});
    first += part.elements();
  } while (next_index(index, outer));
}

void DistWeights::add(const std::string& name, const Shape& shape, const DistItem& item, std::int64_t first,
                      const Box& box) {
  const auto same = [&](const DistItem& last) {
    return last.chunk == item.chunk && last.object == item.object && last.node == item.node;
  };
  if (items_.empty() || !same(items_.back())) items_.push_back(item);
  auto& tensor = (checkpoint::is_optimizer_state(name) ? tensors_ : masters_)[name];
  if (tensor.pieces.empty()) tensor = {shape, elements(item, name).dtype(), {}};
  tensor.pieces.push_back({items_.size() - 1, first, box});
}

void DistWeights::finish() {
  for (auto& [name, master] : masters_) tensors_[name] = std::move(master);
  masters_.clear();
  for (const auto& [name, tensor] : tensors_) {
    std::int64_t elements = 0;
    for (const auto& piece : tensor.pieces) elements += piece.box.elements();
    if (elements != tensor.shape.elements())
      refuse(text("'", name, "' has ", elements, " elements in its files; ", tensor.shape, " are ",
                  tensor.shape.elements(),
                  elements > tensor.shape.elements() ? ": two keys are the same weight" : ": some are missing"));
  }
  std::set<std::string> states;
  for (const auto& [name, tensor] : tensors_)
    if (checkpoint::is_optimizer_state(name))
      states.insert(name.substr(0, name.size() - checkpoint::weight_of(name).size()));
  const auto* buffers = table_.find("buffers");
  for (const auto& weight : weights())
    if (buffers != nullptr && std::any_of(buffers->items.begin(), buffers->items.end(), [&](const auto& end) {
          return weight.size() >= end.scalar.size() && weight.substr(weight.size() - end.scalar.size()) == end.scalar;
        }))
      for (const auto& state : states)
        tensors_.emplace(state + weight, DistTensor{tensors_.at(weight).shape, DType::float32, {}});
}

const DistTensor& DistWeights::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse(text("has no tensor '", name, "'"));
  return found->second;
}

std::vector<std::string> DistWeights::weights() const {
  std::vector<std::string> names, sorted;
  for (const auto& [name, tensor] : tensors_)
    if (!checkpoint::is_optimizer_state(name)) names.push_back(name);
  for (const auto index : megatron_order(names, table_)) sorted.push_back(std::move(names[index]));
  return sorted;
}

Tensor DistWeights::elements(const DistItem& item, const std::string& name) const {
  return item.chunk != nullptr ? folder_.elements(*item.tensor, *item.chunk) : item.object->tensor(*item.node, name);
}

void DistWeights::read(const std::string& name, const Box& wanted, const Tensor& into) const {
  const auto& own = tensor(name);
  if (own.pieces.empty()) std::fill(into.raw().begin(), into.raw().end(), std::byte{0});
  for (const auto& piece : own.pieces) {
    const auto common = intersection(piece.box, wanted);
    if (!common) continue;
    const auto& item = items_[piece.item];
    const auto all = elements(item, name);
    const auto part =
        all.reshaped(Shape{all.elements()}).slice(piece.first, piece.box.elements()).reshaped(Shape(piece.box.extent));
    checkpoint::copy_box(*common, part, piece.box, into, wanted);
    if (item.chunk != nullptr)
      folder_.require_intact(*item.chunk);
    else
      item.object->require_intact();
  }
  checkpoint::must_be_finite(into, text(speaker_, ": tensor '", name, "'"), wanted.begin);
}

}  // namespace tessera::megatron
