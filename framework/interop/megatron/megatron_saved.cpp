#include "framework/interop/megatron/megatron_saved.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/megatron/megatron_arguments.h"

namespace tessera::megatron {
namespace {

using NodeKind = torch::PickleNode::Kind;

/// Plain values and lists of them as JSON; objects (enumerations, types) say nothing.
Json json_of(const torch::PickleNode& node, bool in_list = false) {
  switch (node.kind) {
    case NodeKind::list:
    case NodeKind::tuple: {
      auto list = Json::array();
      for (const auto* item : node.items)
        if (!in_list) list.push_back(json_of(*item, true));
      return in_list ? Json() : list;
    }
    case NodeKind::boolean:
      return node.flag;
    case NodeKind::integer:
      return node.integer;
    case NodeKind::real:
      return node.real;
    case NodeKind::words:
      return node.text;
    default:
      return {};
  }
}

/// A field of opt_param_scheduler: false when it is of another type.
bool take(const std::optional<double>& value, const torch::PickleNode&, double& field) {
  if (value) field = *value;
  return value.has_value();
}
bool take(const std::optional<double>& value, const torch::PickleNode&, std::int64_t& field) {
  if (value) field = static_cast<std::int64_t>(*value);
  return value.has_value();
}
bool take(const std::optional<double>&, const torch::PickleNode& node, std::string& field) {
  if (node.kind == NodeKind::words) field = node.text;
  return node.kind == NodeKind::words;
}

}  // namespace

const torch::PickleNode* MegatronSaved::arguments() const {
  const auto* args = root_->find("args");
  if (args == nullptr || args->kind == NodeKind::dict) return args;
  return args->kind == NodeKind::call && args->items.size() > 2 ? args->items[2] : nullptr;  // an argparse.Namespace
}

const torch::PickleNode* MegatronSaved::argument(const char* name) const {
  const auto* args = arguments();
  return args == nullptr ? nullptr : args->find(name);
}

std::int64_t MegatronSaved::count(const char* name, std::int64_t otherwise) const {
  constexpr double most = 1e15;  // exact as double, and no count
  const auto value = number(argument(name));
  return value && *value > -most && *value < most ? static_cast<std::int64_t>(*value) : otherwise;
}

std::optional<std::string> MegatronSaved::words(const char* name) const {
  const auto* value = argument(name);
  if (value == nullptr || value->kind == NodeKind::none) return std::nullopt;
  if (value->kind != NodeKind::words)
    throw ConfigError(text(file_->name(), ": its argument ", name, " is no text; the text of the flag was expected"));
  return value->text;
}

bool MegatronSaved::flag(const char* name) const {
  const auto* value = argument(name);
  return value != nullptr && value->kind == NodeKind::boolean && value->flag;
}

bool MegatronSaved::is_tied() const {
  const auto* untied = argument("untie_embeddings_and_output_weights");
  return untied != nullptr && untied->kind == NodeKind::boolean && !untied->flag;
}

std::optional<double> MegatronSaved::number(const torch::PickleNode* node) const {
  if (node == nullptr) return std::nullopt;
  if (node->kind == NodeKind::integer) return static_cast<double>(node->integer);
  if (node->kind == NodeKind::real) return node->real;
  if (!torch::TorchFile::is_tensor(*node)) return std::nullopt;
  const auto tensor = file_->tensor(*node, "a number");
  if (tensor.elements() != 1) return std::nullopt;
  double out = 0;
  if (tensor.dtype() == DType::int64 || tensor.dtype() == DType::int32) {
    std::int64_t whole_number = 0;
    checkpoint::copy_converted(tensor, Tensor(std::span(&whole_number, 1), Shape{1}));
    return static_cast<double>(whole_number);
  }
  checkpoint::copy_converted(tensor, Tensor(std::span(&out, 1), Shape{1}));
  return out;
}

std::int64_t MegatronSaved::bucket_size(bool first, std::int64_t elements) const {
  if (!flag("overlap_grad_reduce") || !first || flag("overlap_param_gather_with_optimizer_step")) return 0;
  if (const auto buckets = count("ddp_num_buckets", 0); buckets > 0) return elements / buckets;
  if (const auto given = count("ddp_bucket_size", 0); given > 0) return given;
  const auto ranks = count("data_parallel_size", 0) * std::max<std::int64_t>(1, count("context_parallel_size", 0));
  return std::max<std::int64_t>(40000000, 1000000 * ranks);
}

std::int64_t MegatronSaved::iteration() const {
  return static_cast<std::int64_t>(number(root_->find("iteration")).value_or(0));
}

checkpoint::Progress MegatronSaved::progress(double updates,
                                             const std::optional<checkpoint::LossScaleState>& scale) const {
  const auto whole_number = [&](const torch::PickleNode* node, std::int64_t otherwise) {
    const auto value = number(node);
    return value ? static_cast<std::int64_t>(*value) : otherwise;
  };
  const auto of_argument = [&](const char* key, std::int64_t otherwise) {
    return whole_number(argument(key), otherwise);
  };
  checkpoint::Progress out;
  out.iteration = iteration();
  out.updates = updates >= 0 ? static_cast<std::int64_t>(updates) : iteration();
  out.consumed_samples = of_argument("consumed_train_samples", 0);
  out.skipped_samples = of_argument("skipped_train_samples", 0);
  out.consumed_valid_samples = of_argument("consumed_valid_samples", 0);
  out.sample_chain = static_cast<std::uint32_t>(of_argument("tessera_sample_chain", 0));
  out.global_batch_size = of_argument("global_batch_size", 0);
  out.order_stride = of_argument("tessera_order_stride", 0);
  out.seed = static_cast<std::uint64_t>(of_argument("seed", 1234));
  if (const auto* schedule = root_->find("opt_param_scheduler");
      schedule != nullptr && schedule->kind == NodeKind::dict) {
    out.schedule.emplace();
    schedule::visit_fields(*out.schedule, [&](const char* name, auto& field) {
      const auto* node = schedule->find(name);
      if (node == nullptr || !take(number(node), *node, field))
        throw ConfigError(text(file_->name(), ": its opt_param_scheduler does not give ", name));
    });
  }
  out.loss_scale = scale;
  return out;
}

std::map<std::string, std::int64_t> MegatronSaved::parallel_sizes() const {
  std::map<std::string, std::int64_t> sizes;
  for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                           "virtual_pipeline_model_parallel_size", "expert_model_parallel_size"})
    if (const auto size = count(name, 0); size > 0) sizes[text("parallel_config.", name)] = size;
  return sizes;
}

std::optional<checkpoint::LossScaleState> MegatronSaved::loss_scale(const torch::PickleNode* scaler) const {
  if (scaler == nullptr || scaler->find("scale") == nullptr) return std::nullopt;
  const auto whole_number = [&](const char* name) {
    return static_cast<std::int64_t>(number(scaler->find(name)).value_or(0));
  };
  return checkpoint::LossScaleState{static_cast<float>(number(scaler->find("scale")).value_or(1)),
                                    whole_number("growth_tracker"), whole_number("hysteresis_tracker")};
}

options::Value MegatronSaved::recipe(const options::Mappings& mappings) const {
  const auto* args = arguments();
  if (args == nullptr || args->kind != NodeKind::dict)
    throw ConfigError(text(file_->name(), ": its file has no 'args', from which the model is constructed"));
  Json json = Json::object();
  for (std::size_t i = 0; i + 1 < args->items.size(); i += 2) json[args->items[i]->text] = json_of(*args->items[i + 1]);
  return recipe_of_arguments(json, file_->name() + ": args", mappings);
}

}  // namespace tessera::megatron
