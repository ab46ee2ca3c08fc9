#include "framework/interop/hugging_face/peft_tensors.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "framework/base/error.h"

namespace tessera::hugging_face {
namespace {

const std::string base_model = "base_model.model.";

std::vector<std::byte> bytes_of_tensor(const Tensor& tensor) {
  const auto bytes = tensor.raw();
  return {bytes.begin(), bytes.end()};
}

/// The row for a tensor whose rows are those of the weight, of one module or of all that the layer is.
WeightRow rows_alone(const WeightRow& row, std::size_t modules) {
  auto own = row;
  std::erase(own.steps, WeightStep::transpose);
  if (modules == 1) own.from.resize(1);
  return own;
}

}  // namespace

/// A tensor that an adapter has: the end of our name, of theirs, and of theirs for a table.
struct PeftTensors::Kind {
  std::string ours, theirs, of_table;
  bool rows;  ///< its rows are those of the weight
  bool is_a() const { return !rows; }
};

const std::vector<PeftTensors::Kind>& PeftTensors::kinds() {
  static const std::vector<Kind> all = {
      {".lora_A.weight", ".lora_A.weight", ".lora_embedding_A", false},
      {".lora_B.weight", ".lora_B.weight", ".lora_embedding_B", true},
      {".lora_magnitude.weight", ".lora_magnitude_vector", ".lora_magnitude_vector", true}};
  return all;
}

PeftTensors::PeftTensors(const PeftNames& names, const checkpoint::WeightSource& trained, bool lora_only)
    : names_(names), trained_(trained) {
  for (const auto& name : trained.names()) add(name);
  name_parameters(lora_only);
  if (!problems_.empty())
    throw ConfigError(text(trained.folder().string(), ": cannot be written for PEFT:", problems_));
}

Tensor PeftTensors::room(DType type, const Shape& shape) {
  auto& own = memory_.emplace_back(static_cast<std::size_t>(shape.elements()) * size_of(type));
  return {std::span(own), type, shape};
}

Tensor PeftTensors::read(const std::string& name) {
  const auto tensor = room(trained_.dtype(name), trained_.shape(name));
  trained_.read(name, tensor);
  checkpoint::must_be_finite(tensor, text(trained_.folder().string(), ": tensor '", name, "'"));
  return tensor;
}

Tensor PeftTensors::copy(const std::byte* elements, DType type, const Shape& shape) {
  const auto own = room(type, shape);
  std::memcpy(own.raw().data(), elements, own.bytes());
  return own;
}

void PeftTensors::add(const std::string& name) {
  for (const auto& kind : kinds()) {
    if (!name.ends_with(kind.ours)) continue;
    const auto ours = name.substr(0, name.size() - kind.ours.size());
    if (!add_expert(ours, kind)) add_layer(ours, kind);
    return;
  }
  add_parameter(name);
}

void PeftTensors::add_layer(const std::string& ours, const Kind& kind) {
  const auto modules = names_.of_ours(ours);
  if (modules.empty()) {
    problems_ += text("\n  ", ours, kind.ours, ": the base has no such layer");
    return;
  }
  const auto factor = read(ours + kind.ours);
  const auto type = factor.dtype();
  const auto& row = *modules.front()->row;
  const bool table = ours == "embedding.word_embeddings";
  const bool whole = kind.rows && (modules.size() > 1 || modules.front()->part.empty()) && !table;
  const auto rows = rows_alone(row, modules.size());
  const auto elements =
      whole ? to_theirs(rows, bytes_of_tensor(factor), size_of(type), part_shapes_of(rows, factor.shape()))
            : bytes_of_tensor(factor);
  transposed_ |= std::count(row.steps.begin(), row.steps.end(), WeightStep::transpose) > 0;
  const auto* at = elements.data();
  for (const auto* module : modules) {
    const auto shape =
        kind.rows && modules.size() > 1 ? part_shapes_of(rows, factor.shape())[module->index] : factor.shape();
    const auto own = copy(at, type, shape);
    if (kind.rows) at += own.bytes();
    tensors_[base_model + module->name + (table ? kind.of_table : kind.theirs)] = own;
    const bool router = module->layer.ends_with(".mlp.router");
    if (kind.is_a()) modules_[module->name + (router ? ".weight" : "")] = {ours, shape[0], router};
  }
}

/// Puts the factors of all experts of a layer together when the first comes. False: single experts have them.
bool PeftTensors::add_expert(const std::string& ours, const Kind& kind) {
  for (const auto& experts : names_.experts()) {
    if (ours.rfind(experts.layer, 0) != 0) continue;
    const auto rest = ours.substr(experts.layer.size());
    const auto number = rest.substr(0, rest.find('.')), layer = rest.substr(number.size());
    if ((layer != ".linear_fc1" && layer != ".linear_fc2") || kind.ours == ".lora_magnitude.weight") return false;
    if (number == "0") fuse(experts, layer, kind);
    return true;
  }
  return false;
}

/// Rows of A are expert after expert; columns of B rank after rank.
void PeftTensors::fuse(const PeftExperts& experts, const std::string& layer, const Kind& kind) {
  const auto E = experts.count;
  Tensor all;
  for (std::int64_t e = 0; e < E; ++e) {
    const auto name = text(experts.layer, e, layer, kind.ours);
    if (!trained_.has(name)) {
      problems_ += text("\n  ", name, ": is missing; PEFT has adapters on all experts of a layer or on none");
      return;
    }
    const auto own = read(name);
    const auto& shape = own.shape();
    if (all.empty())
      all = room(own.dtype(), kind.is_a() ? Shape{shape[0] * E, shape[1]} : Shape{shape[0], shape[1] * E});
    const auto size = size_of(own.dtype());
    for (std::int64_t row = 0; row < shape[0]; ++row)
      for (std::int64_t column = 0; column < shape[1]; ++column) {
        const auto into = kind.is_a() ? (e * shape[0] + row) * shape[1] + column : row * shape[1] * E + column * E + e;
        std::memcpy(all.raw().data() + static_cast<std::size_t>(into) * size,
                    own.raw().data() + static_cast<std::size_t>(row * shape[1] + column) * size, size);
      }
  }
  const bool gate_up = layer == ".linear_fc1";
  tensors_[base_model + experts.name + (gate_up ? ".base_layer" : "") + kind.theirs] = all;
  if (kind.is_a())
    modules_[experts.name + (gate_up ? ".gate_up_proj" : ".down_proj")] = {text(experts.layer, 0, layer),
                                                                           all.shape()[0] / E, true};
}

void PeftTensors::add_parameter(const std::string& name) {
  const auto* row = names_.row(name);
  if (row == nullptr) {
    problems_ += text("\n  ", name, ": the base has no such parameter");
    return;
  }
  const auto ours = read(name);
  const auto shapes = part_shapes_of(*row, ours.shape());
  const auto elements = to_theirs(*row, bytes_of_tensor(ours), size_of(ours.dtype()), shapes);
  const auto* at = elements.data();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto own = copy(at, ours.dtype(), shapes[i]);
    at += own.bytes();
    whole_[names_.spelled(row->from[i])] = own;
  }
}

/// The parameters of an adapted module are in its base_layer; a tied table is there under both names.
void PeftTensors::name_parameters(bool lora_only) {
  for (const auto& [name, tensor] : whole_) {
    const auto module = name.substr(0, name.rfind('.'));
    if (lora_only && name.ends_with(".bias") && !modules_.contains(module)) continue;
    tensors_[base_model + module + (modules_.contains(module) ? ".base_layer" : "") + name.substr(module.size())] =
        tensor;
    if (name.ends_with(".weight")) saved_.insert(module);
    for (const auto& copied : names_.table().copies()) {
      std::size_t index = 0;
      if (copied.of != name || names_.parameter(copied.name, index) != nullptr) continue;
      tensors_[base_model + copied.name] = tensor;
      tied_ = true;
    }
  }
}

}  // namespace tessera::hugging_face
