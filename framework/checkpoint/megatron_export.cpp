#include <algorithm>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/files.h"
#include "framework/checkpoint/config_table.h"
#include "framework/checkpoint/convert.h"
#include "framework/checkpoint/megatron.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string optimizer_mark = "optimizer.";

bool begins(const std::string& name, const std::string& start) { return name.rfind(start, 0) == 0; }
bool ends(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// The number after "decoder.layers."; -1 for what is no layer's.
std::int64_t layer_of(const std::string& name) {
  const std::string start = "decoder.layers.";
  return begins(name, start) ? std::strtoll(name.c_str() + start.size(), nullptr, 10) : -1;
}

/// Where a weight stands among Megatron's: place of its part of the model, layer, place in the layer, bias after
/// weight.
std::tuple<std::size_t, std::int64_t, std::size_t, bool> place_of(const std::string& name, const Value& table) {
  const auto& order = table.find("order")->items;
  const auto layer = layer_of(name);
  std::size_t part = order.size(), inside = order.size();
  for (std::size_t i = order.size(); i-- > 0;) {
    if (begins(name, order[i].scalar)) part = i;
    if (layer >= 0 && order[i].scalar.front() == '.' && name.find(order[i].scalar) != std::string::npos) inside = i;
  }
  return {part, layer, inside, ends(name, ".bias")};
}

/// Megatron's two groups of weights.
struct Groups {
  std::vector<std::vector<const TensorRange*>> members;
  std::vector<bool> decay;
};

Groups groups_of(const std::vector<const TensorRange*>& weights) {
  Groups out;
  for (const auto* weight : weights) {
    const bool decay = weight->global_shape.rank() != 1 && !ends(weight->name, ".bias");
    const auto found = std::find(out.decay.begin(), out.decay.end(), decay);
    const auto at = static_cast<std::size_t>(found - out.decay.begin());
    if (found == out.decay.end()) {
      out.decay.push_back(decay);
      out.members.emplace_back();
    }
    out.members[at].push_back(weight);
  }
  return out;
}

/// Puts values into a TorchFileWriter.
class Writer {
 public:
  Writer(std::span<const TensorRange> tensors, const Json& progress, Json args, DType type, const Value& table)
      : progress_(progress), args_(std::move(args)), type_(type) {
    for (const auto& range : tensors) {
      all_[range.name] = &range;
      if (begins(range.name, optimizer_mark))
        slots_.insert(range.name.substr(optimizer_mark.size(),
                                        range.name.find('.', optimizer_mark.size()) - optimizer_mark.size()));
      else
        weights_.push_back(&range);
    }
    std::stable_sort(weights_.begin(), weights_.end(),
                     [&](const auto* a, const auto* b) { return place_of(a->name, table) < place_of(b->name, table); });
  }

  void write(const fs::path& path, std::int64_t iteration) {
    p_.empty_dict();
    p_.mark();
    key("args");
    p_.global("argparse", "Namespace");
    p_.empty_tuple();
    p_.make();
    json(args_);
    p_.state();
    key("checkpoint_version");
    p_.real(3);
    key("iteration");
    p_.integer(iteration);
    key("model");
    model();
    if (!slots_.empty()) {
      key("optimizer");
      optimizer();
    }
    if (progress_.contains("schedule")) {
      key("opt_param_scheduler");
      json(progress_["schedule"]);
    }
    key("num_floating_point_operations_so_far");
    p_.real(0);
    p_.set_items();
    file_.write(path);
  }

 private:
  void key(std::string_view words) { p_.text(words); }

  void json(const Json& value) {
    if (value.is_object()) {
      p_.empty_dict();
      p_.mark();
      for (const auto& [name, item] : value.items()) {
        key(name);
        json(item);
      }
      return p_.set_items();
    }
    if (value.is_array()) {
      p_.mark();
      for (const auto& item : value) json(item);
      return p_.tuple();
    }
    if (value.is_boolean()) return p_.boolean(value.get<bool>());
    if (value.is_number_integer()) return p_.integer(value.get<std::int64_t>());
    if (value.is_number()) return p_.real(value.get<double>());
    if (value.is_string()) return p_.text(value.get<std::string>());
    p_.none();
  }

  /// A tensor of another element type, in memory that stays.
  Tensor as(const Tensor& tensor, DType type) {
    if (tensor.dtype() == type) return tensor;
    auto& bytes = memory_.emplace_back(static_cast<std::size_t>(tensor.elements()) * size_of(type));
    const Tensor out{std::span(bytes), type, tensor.shape()};
    copy_converted(tensor, out);
    return out;
  }
  void scalar_tensor(float value) {
    auto& bytes = memory_.emplace_back(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    file_.tensor(Tensor{std::span(bytes), DType::float32, Shape{}});
  }

  void model() {
    p_.empty_dict();
    p_.mark();
    for (const auto* weight : weights_) {
      key(weight->name);
      file_.tensor(as(weight->tensor, type_));
    }
    p_.set_items();
  }

  void optimizer() {
    const auto groups = groups_of(weights_);
    if (type_ == DType::float32) return inner_optimizer(groups);
    p_.empty_dict();
    p_.mark();
    key("optimizer");
    inner_optimizer(groups);
    if (progress_.contains("loss_scale")) {
      key("grad_scaler");
      scaler(progress_["loss_scale"]);
    }
    key("fp32_from_fp16_params");
    p_.empty_list();
    p_.mark();
    for (const auto& members : groups.members) {
      p_.empty_list();
      p_.mark();
      for (const auto* weight : members) file_.tensor(as(weight->tensor, DType::float32));
      p_.append_items();
    }
    p_.append_items();
    p_.set_items();
  }

  void scaler(const Json& scale) {
    p_.empty_dict();
    p_.mark();
    key("scale");
    auto& bytes = memory_.emplace_back(sizeof(float));
    const auto value = std::stof(scale["scale"].get<std::string>());
    std::memcpy(bytes.data(), &value, sizeof value);
    file_.tensor(Tensor{std::span(bytes), DType::float32, Shape{1}});
    for (const char* name : {"growth_tracker", "hysteresis_tracker"}) {
      key(name);
      p_.integer(scale[name].get<std::int64_t>());
    }
    p_.set_items();
  }

  void inner_optimizer(const Groups& groups) {
    const auto steps = progress_.value("updates", progress_.value("iteration", 0.0));
    p_.empty_dict();
    p_.mark();
    key("state");
    p_.empty_dict();
    p_.mark();
    std::int64_t id = 0;
    for (const auto& members : groups.members)
      for (const auto* weight : members) {
        p_.integer(id++);
        state_of(*weight, static_cast<float>(steps));
      }
    p_.set_items();
    key("param_groups");
    p_.empty_list();
    p_.mark();
    id = 0;
    for (std::size_t i = 0; i < groups.members.size(); ++i) group(groups, i, id);
    p_.append_items();
    p_.set_items();
  }

  void state_of(const TensorRange& weight, float steps) {
    p_.empty_dict();
    p_.mark();
    if (slots_.count("exp_avg") != 0) {
      key("step");
      scalar_tensor(steps);
    }
    for (const auto& slot : slots_) {
      const auto found = all_.find(optimizer_mark + slot + "." + weight.name);
      must(found != all_.end(), "every weight has every slot of the optimizer");
      key(slot);
      file_.tensor(as(found->second->tensor, DType::float32));
    }
    p_.set_items();
  }

  void group(const Groups& groups, std::size_t number, std::int64_t& id) {
    const auto decay = groups.decay[number] ? 1.0 : 0.0;
    const auto number_in = [](const Json& json, const char* name, double otherwise) {
      return json.contains(name) && json[name].is_number() ? json[name].get<double>() : otherwise;
    };
    const auto schedule = progress_.value("schedule", Json::object());
    const auto rate = number_in(args_, "lr", 0);
    Json fields = {{"wd_mult", decay},
                   {"lr_mult", 1.0},
                   {"is_expert_parallel", false},
                   {"is_decoupled_lr", false},
                   {"max_lr", number_in(schedule, "max_lr", rate)},
                   {"min_lr", number_in(schedule, "min_lr", 0)},
                   {"lr", rate},
                   {"weight_decay", decay * number_in(args_, "weight_decay", 0)}};
    if (slots_.count("exp_avg") != 0) {
      fields["betas"] = {number_in(args_, "adam_beta1", 0.9), number_in(args_, "adam_beta2", 0.999)};
      fields["eps"] = number_in(args_, "adam_eps", 1e-8);
      for (const char* off : {"amsgrad", "maximize", "capturable", "differentiable"}) fields[off] = false;
      for (const char* unsaid : {"foreach", "fused"}) fields[unsaid] = nullptr;
      fields["decoupled_weight_decay"] = true;
    }
    p_.empty_dict();
    p_.mark();
    for (const auto& [name, value] : fields.items()) {
      key(name);
      json(value);
    }
    key("params");
    p_.empty_list();
    p_.mark();
    for (std::size_t i = 0; i < groups.members[number].size(); ++i) p_.integer(id++);
    p_.append_items();
    p_.set_items();
  }

  const Json& progress_;
  Json args_;
  DType type_;
  std::map<std::string, const TensorRange*> all_;
  std::vector<const TensorRange*> weights_;  ///< in Megatron's order
  std::set<std::string> slots_;
  TorchFileWriter file_;
  PickleWriter& p_ = file_.pickle;
  std::deque<std::vector<std::byte>> memory_;
};

/// What Megatron-LM looks at when it loads, beside what the table says.
void add_fixed_arguments(Json& args, const Json& progress, std::int64_t rows, DType type) {
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"tensor_model_parallel_size", 1},
           {"pipeline_model_parallel_size", 1},
           {"virtual_pipeline_model_parallel_size", nullptr},
           {"context_parallel_size", 1},
           {"expert_model_parallel_size", 1},
           {"world_size", 1},
           {"data_parallel_random_init", false},
           {"use_distributed_optimizer", false},
           {"ckpt_format", "torch"},
           {"use_dist_ckpt", false},
           {"add_position_embedding", true},
           {"consumed_train_samples", progress.value("consumed_samples", std::int64_t{0})},
           {"skipped_train_samples", progress.value("skipped_samples", std::int64_t{0})},
           {"consumed_valid_samples", progress.value("consumed_valid_samples", std::int64_t{0})},
           {"padded_vocab_size", rows},
           {"bf16", type == DType::bfloat16},
           {"fp16", type == DType::float16}})
    args[name] = value;
}

}  // namespace

std::string our_name_of_megatron(const std::string& theirs, const Value& table) {
  if (const auto* ignored = table.find("ignored"))
    for (const auto& end : ignored->items)
      if (ends(theirs, end.scalar)) return "";
  const auto layer = layer_of(theirs);
  const std::string mark = "{layer}";
  const auto of_layer = [&](std::string pattern) {
    if (const auto at = pattern.find(mark); at != std::string::npos)
      pattern.replace(at, mark.size(), std::to_string(layer));
    return pattern;
  };
  if (const auto* renamed = table.find("renamed"))
    for (const auto& [pattern, ours] : renamed->fields)
      if (theirs == of_layer(pattern)) return of_layer(ours.scalar);
  return theirs;
}

fs::path save_megatron(const fs::path& root, std::int64_t iteration, std::span<const TensorRange> tensors,
                       const std::string& progress, const Value& recipe, DType type, const Mappings& mappings) {
  auto facts = Json::parse(progress.empty() ? "{}" : progress);
  auto args =
      Json::parse(write_by_table(recipe, mappings.table("arguments/megatron.yaml"), "checkpoint of Megatron-LM"));
  std::int64_t rows = 0;
  for (const auto& range : tensors)
    if (has_vocabulary_rows(range.name)) rows = range.global_shape[0];
  add_fixed_arguments(args, facts, rows, type);
  const auto folder = root / checkpoint_name("", iteration);
  make_folder(folder / "mp_rank_00");
  Writer(tensors, facts, std::move(args), type, mappings.table("weights/megatron.yaml"))
      .write(folder / "mp_rank_00" / "model_optim_rng.pt", iteration);
  sync_folder(folder / "mp_rank_00");
  write_file_atomic(root / tracker_name(""), std::to_string(iteration));
  return folder;
}

}  // namespace tessera
