#include "framework/interop/megatron/megatron_writer.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "framework/checkpoint/layout.h"
#include "framework/interop/megatron/megatron_arguments.h"
#include "framework/interop/megatron/megatron_files.h"
#include "framework/interop/tables/our_names.h"
#include "framework/interop/torch/torch_file.h"

namespace tessera::megatron {
namespace {

/// What one optimizer updates of each chunk, in the order of the modules.
struct Optimizer {
  std::vector<std::vector<const MegatronWeight*>> chunks;
  bool of_experts = false;
};

/// The optimizers of a rank: one, or with chains_optimizers that of the dense weights, and behind it that of experts if
/// the rank has some.
std::vector<Optimizer> optimizers_of(const MegatronContent& content) {
  std::vector<Optimizer> all(2);
  all[1].of_experts = true;
  bool experts = false;
  for (const auto& chunk : content.chunks) {
    for (auto& optimizer : all) optimizer.chunks.emplace_back();
    for (const auto& weight : chunk) {
      if (weight.buffer) continue;
      const bool own = content.chains_optimizers && weight.of_expert;
      all[own ? 1 : 0].chunks.back().push_back(&weight);
      experts = experts || own;
    }
  }
  if (!experts) all.pop_back();
  return all;
}

/// The groups of an optimizer, in the order of their first weights.
struct Groups {
  std::vector<std::vector<const MegatronWeight*>> members;
  std::vector<MegatronGroup> kinds;
  bool of_experts = false;
};

/// `decoupled`: embedding and output layer have a learning rate of their own.
Groups groups_of(const Optimizer& optimizer, bool decoupled) {
  Groups out;
  out.of_experts = optimizer.of_experts;
  for (const auto& chunk : optimizer.chunks)
    for (const auto* weight : chunk) {
      const MegatronGroup kind{weight->decays, decoupled && tables::has_vocabulary_rows(weight->name)};
      const auto found = std::find(out.kinds.begin(), out.kinds.end(), kind);
      const auto at = static_cast<std::size_t>(found - out.kinds.begin());
      if (found == out.kinds.end()) {
        out.kinds.push_back(kind);
        out.members.emplace_back();
      }
      out.members[at].push_back(weight);
    }
  return out;
}

/// Puts values into a TorchFileWriter.
class Writer {
 public:
  Writer(const MegatronContent& content, const checkpoint::Progress& progress, const Json& args, DType type)
      : content_(content), progress_(progress), args_(args), type_(type) {}

  void write(const std::filesystem::path& path, std::int64_t iteration) {
    begin(iteration);
    const auto& chunks = content_.chunks;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      key(chunks.size() == 1 ? "model" : text("model", c));
      model(chunks[c]);
    }
    if (!content_.slots.empty()) {
      key("optimizer");
      optimizers();
    }
    end(path);
  }

  /// Of a distributed checkpoint: without weights and without the state of each.
  void write_common(const std::filesystem::path& path, std::int64_t iteration, const MegatronCommon& common) {
    begin(iteration);
    if (!common.slots.empty()) {
      key("optimizer");
      common_optimizers(common);
    }
    if (common.describes_itself) {
      key("content_metadata");
      Json content{{"singleton_local_shards", false}, {"chained_optim_avoid_prefix", true}};
      // Its presence alone, also of None, makes Megatron-LM ask for keys with the number of an optimizer.
      if (!common.sharding.empty()) content["distrib_optim_sharding_type"] = Json(common.sharding);
      json(content);
    }
    end(path);
  }

 private:
  void begin(std::int64_t iteration) {
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
  }

  void end(const std::filesystem::path& path) {
    if (progress_.schedule) {
      key("opt_param_scheduler");
      Json fields;
      schedule::visit_fields(*progress_.schedule, [&](const char* name, const auto& field) { fields[name] = field; });
      json(fields);
    }
    key("num_floating_point_operations_so_far");
    p_.real(0);
    p_.set_items();
    file_.write(path);
  }

  void key(std::string_view words) { p_.text(words); }

  void json(const Json& value) {
    if (value.is_object()) {
      p_.empty_dict();
      p_.mark();
      const auto sorted = value.sorted();
      for (const auto& [name, item] : sorted.items()) {
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
    if (value.is_string()) return p_.text(value.string());
    p_.none();
  }

  void tensor(const StatePieces& elements, DType type) { file_.tensor(type, elements.shape, elements.as(type)); }
  void scalar_tensor(float value) {
    auto& bytes = memory_.emplace_back(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    file_.tensor(Tensor{std::span(bytes), DType::float32, Shape{}});
  }

  void model(const std::vector<MegatronWeight>& chunk) {
    p_.empty_dict();
    p_.mark();
    for (const auto& weight : chunk) {
      key(weight.name);
      tensor(weight.elements, weight.buffer ? DType::float32 : type_);
    }
    p_.set_items();
  }

  void optimizers() {
    const auto all = optimizers_of(content_);
    if (all.size() == 1) return optimizer(groups_of(all[0], has_decoupled_rate(args_)));
    p_.empty_list();
    p_.mark();
    for (const auto& one : all) optimizer(groups_of(one, has_decoupled_rate(args_)));
    p_.append_items();
  }

  void optimizer(const Groups& groups) {
    if (type_ == DType::float32 && !content_.shared) return inner_optimizer(groups);
    p_.empty_dict();
    p_.mark();
    key("optimizer");
    inner_optimizer(groups);
    if (progress_.loss_scale) {
      key("grad_scaler");
      scaler(*progress_.loss_scale);
    }
    if (content_.shared) return p_.set_items();
    key("fp32_from_fp16_params");
    p_.empty_list();
    p_.mark();
    for (const auto& members : groups.members) {
      p_.empty_list();
      p_.mark();
      for (const auto* weight : members) tensor(weight->elements, DType::float32);
      p_.append_items();
    }
    p_.append_items();
    p_.set_items();
  }

  /// Several are a dict by number.
  void common_optimizers(const MegatronCommon& common) {
    if (common.optimizers.size() == 1) return common_optimizer(common, common.optimizers[0]);
    p_.empty_dict();
    p_.mark();
    for (std::size_t i = 0; i < common.optimizers.size(); ++i) {
      p_.integer(static_cast<std::int64_t>(i));
      common_optimizer(common, common.optimizers[i]);
    }
    p_.set_items();
  }

  void common_optimizer(const MegatronCommon& common, const MegatronCommon::Optimizer& optimizer) {
    const bool distributed = !common.sharding.empty();
    if (type_ == DType::float32 && !distributed) return common_groups(optimizer, true);
    p_.empty_dict();
    p_.mark();
    key("optimizer");
    common_groups(optimizer, !distributed);
    if (progress_.loss_scale) {
      key("grad_scaler");
      scaler(*progress_.loss_scale);
    }
    if (distributed) {
      key("param_state");
      steps_of(optimizer.weights);
      key("param_state_sharding_type");
      p_.text(common.sharding);
    }
    p_.set_items();
  }

  void common_groups(const MegatronCommon::Optimizer& optimizer, bool with_step) {
    p_.empty_dict();
    p_.mark();
    if (with_step) {
      key("state");
      p_.empty_dict();
      if (is_adam()) {
        key("common_step");
        scalar_tensor(static_cast<float>(progress_.updates));
        p_.set_item();
      }
    }
    key("param_groups");
    p_.empty_list();
    p_.mark();
    for (const auto& kind : optimizer.groups) {
      p_.empty_dict();
      p_.mark();
      group_fields(kind, optimizer.of_experts);
      p_.set_items();
    }
    p_.append_items();
    p_.set_items();
  }

  /// PyTorch's AdamW keeps the number of steps of each weight; a rank takes those of the weights that it has.
  void steps_of(std::int64_t weights) {
    p_.empty_dict();
    p_.mark();
    for (std::int64_t i = 0; i < weights; ++i) {
      p_.integer(i);
      p_.empty_dict();
      key("step");
      scalar_tensor(static_cast<float>(progress_.updates));
      p_.set_item();
    }
    p_.set_items();
  }

  void scaler(const checkpoint::LossScaleState& state) {
    p_.empty_dict();
    p_.mark();
    key("scale");
    auto& bytes = memory_.emplace_back(sizeof(float));
    std::memcpy(bytes.data(), &state.scale, sizeof state.scale);
    file_.tensor(Tensor{std::span(bytes), DType::float32, Shape{1}});
    key("growth_tracker");
    p_.integer(state.growth_tracker);
    key("hysteresis_tracker");
    p_.integer(state.hysteresis_tracker);
    p_.set_items();
  }

  void inner_optimizer(const Groups& groups) {
    const auto steps = static_cast<double>(progress_.updates);
    p_.empty_dict();
    p_.mark();
    std::int64_t id = 0;
    if (!content_.shared) {
      key("state");
      p_.empty_dict();
      p_.mark();
      for (const auto& members : groups.members)
        for (const auto* weight : members) {
          p_.integer(id++);
          state_of(*weight, static_cast<float>(steps));
        }
      p_.set_items();
    }
    key("param_groups");
    p_.empty_list();
    p_.mark();
    id = 0;
    for (std::size_t i = 0; i < groups.members.size(); ++i) group(groups, i, id);
    p_.append_items();
    p_.set_items();
  }

  void state_of(const MegatronWeight& weight, float steps) {
    p_.empty_dict();
    p_.mark();
    if (is_adam()) {
      key("step");
      scalar_tensor(steps);
    }
    for (std::size_t i = 0; i < weight.slots.size(); ++i) {
      key(content_.slots[i]);
      tensor(weight.slots[i], DType::float32);
    }
    p_.set_items();
  }
  bool is_adam() const {
    return std::find(content_.slots.begin(), content_.slots.end(), "exp_avg") != content_.slots.end();
  }

  void group_fields(const MegatronGroup& kind, bool of_experts) {
    const auto decay = kind.decays ? 1.0 : 0.0;
    const auto number_in = [](const Json& json, const char* name, double otherwise) {
      return json.contains(name) && json[name].is_number() ? json[name].get<double>() : otherwise;
    };
    const auto& schedule = progress_.schedule;
    const auto rate = number_in(args_, kind.decoupled ? "decoupled_lr" : "lr", 0);
    const auto lowest = schedule ? schedule->min_lr : 0.0;
    Json fields = {{"wd_mult", decay},
                   {"lr_mult", 1.0},
                   {"is_expert_parallel", of_experts},
                   {"is_decoupled_lr", kind.decoupled},
                   {"max_lr", schedule && !kind.decoupled ? schedule->max_lr : rate},
                   {"min_lr", kind.decoupled ? number_in(args_, "decoupled_min_lr", lowest) : lowest},
                   {"lr", rate},
                   {"weight_decay", decay * number_in(args_, "weight_decay", 0)}};
    if (is_adam()) {
      fields["betas"] = {number_in(args_, "adam_beta1", 0.9), number_in(args_, "adam_beta2", 0.999)};
      fields["eps"] = number_in(args_, "adam_eps", 1e-8);
      for (const char* off : {"amsgrad", "maximize", "capturable", "differentiable"}) fields[off] = false;
      for (const char* unsaid : {"foreach", "fused"}) fields[unsaid] = nullptr;
      fields["decoupled_weight_decay"] = true;
    }
    // Adam of Transformer Engine and Apex has it here, that of PyTorch with each weight or as common_step.
    if (content_.shared || is_adam()) fields["step"] = static_cast<double>(progress_.updates);
    for (const auto& [name, value] : fields.items()) {
      key(name);
      json(value);
    }
  }

  void group(const Groups& groups, std::size_t number, std::int64_t& id) {
    p_.empty_dict();
    p_.mark();
    group_fields(groups.kinds[number], groups.of_experts);
    if (!content_.shared) {
      key("params");
      p_.empty_list();
      p_.mark();
      for (std::size_t i = 0; i < groups.members[number].size(); ++i) p_.integer(id++);
      p_.append_items();
    }
    p_.set_items();
  }

  const MegatronContent& content_;
  const checkpoint::Progress& progress_;
  const Json& args_;
  DType type_;
  torch::TorchFileWriter file_;
  torch::PickleWriter& p_ = file_.pickle;
  std::deque<std::vector<std::byte>> memory_;
};

/// Of each optimizer a buffer for each chunk with weights of it: these weights (fp32) and their state one behind the
/// other as megatron_flat_places says. None instead, where a data-parallel rank before this one has the same weights.
class SharedWriter {
 public:
  SharedWriter(const MegatronContent& content, DType type) : content_(content), type_(type) {}

  void write(const std::filesystem::path& path) {
    const auto all = optimizers_of(content_);
    if (all.size() == 1) {
      if (!content_.first_of_replicas) return;
      state(all[0]);
    } else {
      p_.empty_list();
      p_.mark();
      for (const auto& one : all)
        if (one.of_experts || content_.first_of_replicas)
          state(one);
        else
          p_.none();
      p_.append_items();
    }
    file_.write(path);
  }

 private:
  void type_name(DType type) { p_.global("torch", name_of(type)); }

  void state(const Optimizer& optimizer) {
    p_.empty_dict();
    p_.mark();
    p_.text("buckets_coalesced");
    p_.boolean(true);
    std::int64_t number = 0;
    for (const auto& chunk : optimizer.chunks) {
      if (chunk.empty()) continue;
      p_.integer(number++);
      buffer(chunk);
    }
    p_.set_items();
  }

  void buffer(const std::vector<const MegatronWeight*>& chunk) {
    std::vector<MegatronFlat> flats;
    for (const auto* weight : chunk) flats.push_back({weight->elements.shape.elements(), weight->bucket_of_its_own});
    const auto places = megatron_flat_places(flats, 0);
    p_.empty_dict();
    p_.mark();
    p_.mark();
    type_name(type_);
    type_name(DType::float32);
    p_.tuple();
    p_.empty_dict();
    p_.mark();
    p_.text("param");
    flat(chunk, places, [](const MegatronWeight& weight) { return &weight.elements; });
    for (std::size_t i = 0; i < content_.slots.size(); ++i) {
      p_.text(content_.slots[i]);
      flat(chunk, places, [i](const MegatronWeight& weight) { return &weight.slots[i]; });
    }
    p_.text("numel_unpadded");
    p_.integer(places.back());
    p_.set_items();
    p_.set_items();
  }

  template <class Pick>
  void flat(const std::vector<const MegatronWeight*>& chunk, const std::vector<std::int64_t>& places,
            const Pick& pick) {
    std::map<std::int64_t, const StatePieces*> by_place;
    for (std::size_t i = 0; i < chunk.size(); ++i)
      if (const auto* elements = pick(*chunk[i]); elements->shape.elements() > 0) by_place[places[i]] = elements;
    file_.tensor(DType::float32, Shape{places.back()},
                 [by_place, end = places.back()](const torch::ArchiveWriter::Sink& sink) {
                   std::int64_t at = 0;
                   for (const auto& [place, elements] : by_place) {
                     zeros(place - at, sink);
                     elements->as(DType::float32)(sink);
                     at = place + elements->shape.elements();
                   }
                   zeros(end - at, sink);
                 });
  }

  static void zeros(std::int64_t count, const torch::ArchiveWriter::Sink& sink) {
    if (count > 0) sink(std::vector<std::byte>(static_cast<std::size_t>(count) * sizeof(float)));
  }

  const MegatronContent& content_;
  DType type_;
  torch::TorchFileWriter file_;
  torch::PickleWriter& p_ = file_.pickle;
};

}  // namespace

void write_megatron_rank(const std::filesystem::path& folder, std::int64_t iteration, const MegatronContent& content,
                         const checkpoint::Progress& progress, const Json& args, DType type) {
  Writer(content, progress, args, type).write(folder / weights_file, iteration);
  if (content.shared) SharedWriter(content, type).write(folder / "distrib_optim.pt");
}

void write_megatron_common(const std::filesystem::path& path, std::int64_t iteration, const MegatronCommon& common,
                           const checkpoint::Progress& progress, const Json& args, DType type) {
  MegatronContent content;
  content.slots = common.slots;
  content.shared = !common.sharding.empty();
  Writer(content, progress, args, type).write_common(path, iteration, common);
}

}  // namespace tessera::megatron
