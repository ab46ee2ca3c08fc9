#include "framework/interop/hugging_face/peft_adapter.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/checkpoint/copy_converted.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

const std::string factor_a = ".lora_A.weight", factor_b = ".lora_B.weight", magnitude = ".lora_magnitude.weight";

bool has_end(const std::string& name, const std::string& end) {
  return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

std::string without_end(const std::string& name, std::size_t count) { return name.substr(0, name.size() - count); }

/// The ends of the names of factors: theirs without the name of the adapter, and ours.
const std::vector<std::pair<std::string, std::string>>& factor_ends() {
  static const std::vector<std::pair<std::string, std::string>> ends = {
      {".lora_A.weight", factor_a},          {".lora_B.weight", factor_b},
      {".lora_embedding_A", factor_a},       {".lora_embedding_B", factor_b},
      {".lora_magnitude_vector", magnitude}, {".lora_magnitude_vector.weight", magnitude}};
  return ends;
}

/// The name without the adapter's own, "default", which some programs keep: "lora_A.default.weight".
std::string without_adapter_name(const std::string& name) {
  for (const char* mark : {".lora_A.", ".lora_B.", ".lora_embedding_A.", ".lora_embedding_B.",
                           ".lora_magnitude_vector.", ".modules_to_save."}) {
    const auto at = name.find(mark);
    if (at == std::string::npos) continue;
    auto end = name.substr(at + std::strlen(mark));
    if (end != "weight" && end != "bias") end = end.find('.') == std::string::npos ? "" : end.substr(end.find('.') + 1);
    const bool is_module = std::string(mark) == ".modules_to_save.";
    return name.substr(0, at + (is_module ? 0 : std::strlen(mark) - 1)) + (end.empty() ? "" : "." + end);
  }
  return name;
}

/// Of floating-point numbers; -0 is a zero too, as programs write it that multiply by 0.
bool only_zeros(const Tensor& tensor) {
  constexpr auto without_sign = std::byte{0x7f};
  const auto bytes = tensor.raw();
  const auto size = size_of(tensor.dtype());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if ((i % size == size - 1 ? bytes[i] & without_sign : bytes[i]) != std::byte{0}) return false;
  return true;
}

/// The row's steps on rows alone: those of a factor or of magnitudes, which are not transposed.
WeightRow of_rows(const WeightRow& row) {
  auto own = row;
  own.from.resize(1);
  std::erase(own.steps, WeightStep::transpose);
  return own;
}

std::string listed(const std::vector<std::string>& all) {
  constexpr std::size_t most = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, all.size()); ++i) list += "\n  " + all[i];
  return all.size() > most ? list + text("\n  and ", all.size() - most, " more") : list;
}

}  // namespace

Tensor PeftAdapter::Stored::tensor() const {
  return {std::span(const_cast<std::byte*>(elements.data()), elements.size()), type, shape};
}

PeftAdapter::PeftAdapter(const fs::path& folder, WeightTable table, const WeightShapes& base,
                         const options::Mappings& mappings)
    : folder_(folder),
      config_(read_peft_config(folder / peft_config_file, mappings)),
      files_(folder / peft_weights_file),
      names_(std::move(table)) {
  for (const auto& name : files_.names()) add(name);
  join_parameters(base);
  check_copies();
  check_factors(base);
  if (!problems_.empty()) refuse_problems();
  files_.require_intact();
  refuse_zeros();
}

void PeftAdapter::refuse_problems() const {
  throw ConfigError(text(folder_.string(), ": the adapter does not belong to this base model:", listed(problems_),
                         "\n  it was made for ", config_.base.empty() ? "a base that it does not name" : config_.base));
}

void PeftAdapter::add(const std::string& given) {
  checkpoint::must_be_finite(files_.tensor(given), text(folder_.string(), ": tensor '", given, "'"));
  const std::string prefix = "base_model.model.";
  const auto name = without_adapter_name(given.rfind(prefix, 0) == 0 ? given.substr(prefix.size()) : given);
  if (name.find(".original_module.") != std::string::npos) return ignored_.push_back(given);
  for (const auto& [end, ours] : factor_ends())
    if (has_end(name, end)) return add_factor(given, without_end(name, end.size()), ours);
  const std::string copy = ".base_layer.weight";
  if (has_end(name, copy) && names_.module(without_end(name, copy.size()))) return ignored_.push_back(given);
  auto parameter = name;
  if (const auto at = parameter.find(".base_layer."); at != std::string::npos)
    parameter.erase(at, std::string(".base_layer").size());
  add_parameter(given, parameter);
}

void PeftAdapter::add_factor(const std::string& given, const std::string& module, const std::string& factor) {
  if (const auto* experts = names_.experts(module)) return add_experts(given, *experts, false, factor);
  const std::string inner = ".base_layer";
  if (has_end(module, inner))
    if (const auto* experts = names_.experts(without_end(module, inner.size())))
      return add_experts(given, *experts, true, factor);
  const auto* found = names_.module(module);
  if (found == nullptr) return problem(text(given, ": the base has no linear layer ", module));
  const auto tensor = files_.tensor(given);
  const auto ours = found->ours() + factor;
  const auto rows = of_rows(*found->row);
  if (factor == factor_a || !found->part.empty() || rows.steps.empty()) return keep(ours, tensor);
  if (tensor.shape().rank() == 0 || tensor.shape()[0] != rows.heads.rows())
    return problem(text(given, ": has shape ", tensor.shape(), "; expected ", rows.heads.rows(), " rows"));
  const auto bytes = tensor.raw();
  tensors_[ours] = {tensor.shape(), tensor.dtype(),
                    to_ours(rows, {bytes.begin(), bytes.end()}, size_of(tensor.dtype()), {tensor.shape()})};
}

/// Rows of A are expert after expert; columns of B rank after rank: column j E + e is rank j of expert e.
void PeftAdapter::add_experts(const std::string& given, const PeftExperts& experts, bool gate_up,
                              const std::string& factor) {
  const auto tensor = files_.tensor(given);
  const auto& shape = tensor.shape();
  const auto E = experts.count;
  const bool is_a = factor == factor_a;
  if (factor == magnitude) return problem(text(given, ": DoRA on experts is not supported"));
  if (shape.rank() != 2 || shape[is_a ? 0 : 1] % E != 0)
    return problem(
        text(given, ": has shape ", shape, "; expected ", is_a ? "rows" : "columns", " for ", E, " experts"));
  const auto rank = shape[is_a ? 0 : 1] / E;
  const auto size = size_of(tensor.dtype());
  const auto bytes = tensor.raw();
  for (std::int64_t e = 0; e < E; ++e) {
    Stored own{is_a ? Shape{rank, shape[1]} : Shape{shape[0], rank}, tensor.dtype(), {}};
    own.elements.resize(static_cast<std::size_t>(own.shape.elements()) * size);
    for (std::int64_t row = 0; row < own.shape[0]; ++row)
      for (std::int64_t column = 0; column < own.shape[1]; ++column) {
        const auto from = is_a ? (e * rank + row) * shape[1] + column : row * shape[1] + column * E + e;
        std::memcpy(own.elements.data() + static_cast<std::size_t>(row * own.shape[1] + column) * size,
                    bytes.data() + static_cast<std::size_t>(from) * size, size);
      }
    tensors_[text(experts.layer, e, gate_up ? ".linear_fc1" : ".linear_fc2", factor)] = std::move(own);
  }
}

void PeftAdapter::add_parameter(const std::string& given, const std::string& name) {
  std::size_t index = 0;
  if (const auto* row = names_.parameter(name, index)) {
    auto& parts = parameters_[row->name];
    parts.row = row;
    parts.tensors.resize(row->from.size());
    parts.tensors[index] = given;
    return;
  }
  for (const auto& copy : names_.table().copies())
    if (copy.name == name) {
      copies_[given] = copy.of;
      return;
    }
  problem(text(given, ": the base has no parameter ", name));
}

void PeftAdapter::keep(const std::string& ours, const Tensor& elements) {
  const auto bytes = elements.raw();
  tensors_[ours] = {elements.shape(), elements.dtype(), {bytes.begin(), bytes.end()}};
}

void PeftAdapter::join_parameters(const WeightShapes& base) {
  for (const auto& [ours, parts] : parameters_) {
    const auto of_base = base.find(ours);
    if (of_base == base.end()) {
      problem(text(parts.tensors.front(), ": the base has no ", ours));
      continue;
    }
    const auto& row = *parts.row;
    const auto shapes = part_shapes_of(row, of_base->second);
    Stored own{of_base->second, DType::float32, {}};
    std::vector<std::byte> marks;
    bool whole = true;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto count = static_cast<std::size_t>(shapes[i].elements());
      const auto& given = parts.tensors[i];
      std::vector<float> part(count);
      if (given.empty()) {
        whole = false;
      } else if (files_.shape(given) != shapes[i]) {
        problem(text(given, ": has shape ", files_.shape(given), "; the base has ", shapes[i]));
      } else {
        checkpoint::copy_converted(files_.tensor(given), Tensor(std::span(part), shapes[i]));
      }
      const auto bytes = std::as_bytes(std::span(part));
      own.elements.insert(own.elements.end(), bytes.begin(), bytes.end());
      marks.insert(marks.end(), static_cast<std::size_t>(shapes[i][0]), std::byte{!given.empty()});
    }
    own.elements = to_ours(row, std::move(own.elements), sizeof(float), shapes);
    if (!whole) {
      auto rows = of_rows(row);
      rows.name += " (rows)";
      const Shape all{static_cast<std::int64_t>(marks.size())};
      for (const auto mark : to_ours(rows, std::move(marks), 1, {all})) own.rows.push_back(mark != std::byte{0});
    }
    tensors_[ours] = std::move(own);
  }
}

/// PEFT writes a tied table under both names.
void PeftAdapter::check_copies() {
  for (const auto& [given, of] : copies_) {
    std::size_t index = 0;
    const auto* row = names_.parameter(of, index);
    const auto found = row == nullptr ? parameters_.end() : parameters_.find(row->name);
    if (found == parameters_.end()) {
      problem(text(given, ": is trained, but ", of, ", which is the same table in the base, is not"));
      continue;
    }
    const auto a = files_.tensor(given), b = files_.tensor(found->second.tensors[index]);
    if (a.dtype() != b.dtype() || a.shape() != b.shape() || std::memcmp(a.raw().data(), b.raw().data(), a.bytes()) != 0)
      problem(text(given, ": differs from ", of, ", which is the same table in the base"));
  }
}

void PeftAdapter::check_factors(const WeightShapes& base) {
  std::set<std::string> layers;
  for (const auto& [name, stored] : tensors_)
    for (const auto* end : {&factor_a, &factor_b, &magnitude})
      if (has_end(name, *end)) layers.insert(without_end(name, end->size()));
  for (const auto& ours : layers) check_pair(ours, base);
}

void PeftAdapter::check_pair(const std::string& ours, const WeightShapes& base) {
  const auto a = tensors_.find(ours + factor_a), b = tensors_.find(ours + factor_b);
  if (a == tensors_.end() || b == tensors_.end())
    return problem(text(ours, ": has ", a == tensors_.end() ? "no lora_A" : "no lora_B"));
  const auto modules = names_.of_ours(ours);
  const auto weight = base.find(modules.empty() ? ours : modules.front()->row->name);
  if (weight == base.end()) return problem(text(ours, ": the base has no such layer"));
  auto rows = weight->second[0];
  if (modules.size() == 1 && !modules.front()->part.empty()) {
    auto plain = *modules.front()->row;
    rows = part_shapes_of(plain, weight->second)[modules.front()->index][0];
  }
  const bool embedding = ours == "embedding.word_embeddings";
  const auto in = embedding ? weight->second[0] : weight->second[1], out = embedding ? weight->second[1] : rows;
  const auto rank = a->second.shape.rank() == 2 ? a->second.shape[0] : 0;
  if (a->second.shape != Shape{rank, in} || b->second.shape != Shape{out, rank})
    problem(text(ours, ": A is ", a->second.shape, " and B is ", b->second.shape, "; the base has ", out, " rows and ",
                 in, " columns there"));
  if (const auto m = tensors_.find(ours + magnitude); m != tensors_.end() && m->second.shape.elements() != out)
    problem(text(ours, ": has ", m->second.shape.elements(), " magnitudes; the base has ", out, " rows there"));
}

void PeftAdapter::refuse_zeros() const {
  if (tensors_.empty()) throw ConfigError(text(folder_.string(), ": the adapter has no tensors"));
  if (std::all_of(tensors_.begin(), tensors_.end(), [](const auto& one) { return only_zeros(one.second.tensor()); }))
    throw ConfigError(text(folder_.string(),
                           ": every tensor of the adapter is zero, so it changes nothing and cannot "
                           "learn; it was damaged, or saved with an incomplete state"));
}

bool PeftAdapter::changes_nothing() const {
  return std::all_of(tensors_.begin(), tensors_.end(), [this](const auto& one) {
    if (has_end(one.first, factor_a)) return true;
    if (!has_end(one.first, factor_b)) return false;
    const auto layer = one.first.substr(0, one.first.size() - factor_b.size());
    return only_zeros(one.second.tensor()) || only_zeros(tensors_.at(layer + factor_a).tensor());
  });
}

std::vector<std::string> PeftAdapter::names() const {
  std::vector<std::string> names;
  for (const auto& [name, stored] : tensors_) names.push_back(name);
  return names;
}

const PeftAdapter::Stored& PeftAdapter::kept(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw ConfigError(text(folder_.string(), ": the adapter has no tensor '", name, "'"));
  return found->second;
}

void PeftAdapter::read(const std::string& name, const Tensor& into) const {
  const auto& own = kept(name);
  if (own.rows.empty()) return checkpoint::copy_converted(own.tensor(), into);
  for (std::size_t row = 0; row < own.rows.size(); ++row)
    if (own.rows[row])
      checkpoint::copy_converted(own.tensor().slice(static_cast<std::int64_t>(row), 1),
                                 into.slice(static_cast<std::int64_t>(row), 1));
}

void PeftAdapter::read_box(const checkpoint::TensorRange& into) const {
  const auto& own = kept(into.name);
  if (own.rows.empty()) return WeightSource::read_box(into);
  for (std::int64_t row = 0; row < into.tensor.shape()[0]; ++row) {
    const auto global = into.offsets[0] + row;
    if (own.rows[static_cast<std::size_t>(global)])
      checkpoint::copy_converted(own.tensor().slice(global, 1), into.tensor.slice(row, 1));
  }
}

}  // namespace tessera::hugging_face
