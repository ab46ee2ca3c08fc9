#include <algorithm>

#include "framework/checkpoint/format.h"
#include "framework/multimodal/mllm_options.h"
#include "framework/options/limits.h"
#include "framework/parallel/context_options.h"
#include "framework/parallel/layer_shares.h"
#include "framework/recipe/rules.h"
#include "framework/training/saving/run_checkpoints.h"

namespace tessera::recipe {
namespace {

const std::string cut = "parallel_config.";
constexpr double most_passes = 4'194'304;  // of micro-batches through chunks in one step: their schedule has 200 MB

void tell_all(const Recipe& recipe, options::Report& report, const std::vector<options::Finding>& findings,
              const std::vector<std::string>& about) {
  for (const auto& finding : findings) tell(recipe, report, "", finding, about);
}

void check_optimizer(const Recipe& r, options::Report& report) {
  const std::string sharing = r.parallel.zero_level ? cut + "zero_level" : "training_config.use_distributed_optimizer";
  if (r.optimizer.type == "muon" && r.parallel.tensor_model_parallel_size > 1)
    tell(r, report, "muon", {"optimizer_config.optimizer_type", cut + "tensor_model_parallel_size"},
         "muon updates whole matrices, which tensor_model_parallel_size shards",
         "choose another optimizer_type, or tensor_model_parallel_size 1");
  else if (r.optimizer.type == "muon" && r.experts() > 0 && r.parallel.sharers_of_expert() > 1)
    tell(r, report, "muon", {"optimizer_config.optimizer_type", cut + "expert_tensor_parallel_size"},
         text("muon updates whole matrices, but expert_tensor_parallel_size ", r.parallel.sharers_of_expert(),
              " shards those of the experts"),
         "choose another optimizer_type, or expert_tensor_parallel_size 1");
  if (r.optimizer.type == "muon" && r.data_parallel.use_distributed_optimizer)
    tell(r, report, "muon", {"optimizer_config.optimizer_type", sharing},
         "muon updates whole matrices, which the distributed optimizer shards",
         text("choose another optimizer_type, or leave ", sharing, " out"));
  const auto& d = r.data_parallel;
  if (r.parameter_gather.overlap_param_gather && !(r.data_parallel.use_distributed_optimizer && d.overlap_grad_reduce))
    tell(r, report, "PAR16", {"optimizer_config.overlap_param_gather", sharing, "training_config.overlap_grad_reduce"},
         "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce",
         "give training_config.use_distributed_optimizer and training_config.overlap_grad_reduce too");
}

/// Dispatchers do not affect results, but this one exists only for experts that are sharded as dense layers are.
void check_dispatcher(const Recipe& r, options::Report& report) {
  const std::string option = "moe_config.moe_token_dispatcher_type";
  const auto* dispatcher = r.resolved.at(option);
  const auto sharers = r.parallel.sharers_of_expert(), tensor = r.parallel.tensor_model_parallel_size;
  if (r.experts() > 0 && dispatcher != nullptr && dispatcher->scalar == "alltoall_seq" && sharers != tensor)
    tell(r, report, "MOE9", {cut + "expert_tensor_parallel_size", option},
         text("moe_token_dispatcher_type is alltoall_seq, which needs expert_tensor_parallel_size equal to "
              "tensor_model_parallel_size; they are ",
              sharers, " and ", tensor),
         "leave expert_tensor_parallel_size out, or give moe_token_dispatcher_type alltoall");
}

void check_images(const Recipe& r, options::Report& report) {
  if (r.architecture == nullptr || r.architecture->vision() == nullptr) return;
  const auto ranks = r.parallel.context_parallel_size;
  if (ranks > 1)
    tell(r, report, "visual encoder", {cut + "context_parallel_size", "model_config.use_visual_encoder"},
         text("context_parallel_size is ", ranks,
              ", but use_visual_encoder is true: context parallelism of images is "
              "not implemented"),
         "leave context_parallel_size out");
  if (!parallel::LayerPlan::mistakes(r.parallel, *r.architecture->towers()).empty()) return;
  const auto plan = r.layer_plan();
  if (r.architecture->vision()->feature_cache_path && plan.at(0, 0).layers < r.architecture->embedding_layer())
    tell(r, report, "visual encoder", {"vision_config.feature_cache_path", cut + "num_layer_list"},
         text("feature_cache_path is given, but the first stage has only ", plan.at(0, 0).layers, " of the vision ",
              "tower's ", r.architecture->embedding_layer(), " layers: a tower of several stages keeps no features"),
         "leave it out, or give the first stage the whole tower");
  for (const auto layer : plan.noop_layers())
    if (layer < r.architecture->embedding_layer())
      tell(r, report, "visual encoder", {cut + "noop_layers"},
           text("noop_layers has layer ", layer, ", which is one of the vision tower's ",
                r.architecture->embedding_layer(), " layers; layers are numbered from the tower on"),
           "name layers of the text model");
  const auto place = plan.of_layer(r.architecture->embedding_layer());
  if (r.architecture->ties_embedding() && place.stage == plan.stages() - 1 && place.chunk + 1 < plan.chunks())
    tell(r, report, "visual encoder", {cut + "num_layer_list", "model_config.untie_embeddings_and_output_weights"},
         text("the text model begins in chunk ", place.chunk,
              " of the last stage and ends in its last chunk: a stage "
              "cannot have a tied embedding twice"),
         "let it begin on another stage or in the last chunk");
}

/// Records with images need a model that reads them, and patches of the data are those of its vision tower.
void check_patches(const Recipe& r, options::Report& report) {
  const auto* data = r.dataset.options<multimodal::MllmOptions>();
  if (data == nullptr || r.architecture == nullptr) return;
  const auto* tower = r.architecture->vision();
  if (tower == nullptr)
    return tell(r, report, "visual encoder", {"dataset_config.dataset_type", "model_config.use_visual_encoder"},
                "dataset_type is mllm, but the model has no vision tower: images would be dropped",
                "give model_config.use_visual_encoder: true and vision_config, or load_checkpoint, a folder of a model "
                "with images");
  const std::string positions = "model_config.position_embedding_type";
  if (const auto* type = r.resolved.at(positions); type != nullptr && type->scalar != "mrope")
    tell(r, report, "visual encoder", {positions, "dataset_config.dataset_type"},
         text("position_embedding_type is ", type->scalar, ", but dataset_type mllm gives positions of time, rows and ",
              "columns"),
         "give position_embedding_type: mrope and mrope_section");
  constexpr std::int64_t rgb = 3;
  if (tower->in_channels != rgb)
    tell(r, report, "visual encoder", {"vision_config.in_channels", "dataset_config.dataset_type"},
         text("in_channels is ", tower->in_channels, ", but dataset_type mllm gives images of three channels"),
         "leave in_channels out");
  if (tower->tokens_per_second && data->videos)
    tell(r, report, "visual encoder", {"dataset_config.videos", "vision_config.tokens_per_second"},
         text("records have videos, and tokens_per_second of the tower is ", *tower->tokens_per_second,
              ": positions by the times of frames are not implemented for training"),
         "leave dataset_config.videos out");
  const auto must_agree = [&](const std::string& option, std::int64_t of_data, std::int64_t of_tower) {
    if (of_data != of_tower)
      tell(r, report, "visual encoder", {"dataset_config." + option, "vision_config." + option},
           text(option, " is ", of_data, " in dataset_config, but ", of_tower, " in vision_config"), "make them equal");
  };
  must_agree("patch_size", data->patch_size, tower->patch_size);
  must_agree("temporal_patch_size", data->temporal_patch_size, tower->temporal_patch_size);
  must_agree("spatial_merge_size", data->spatial_merge_size, tower->spatial_merge_size);
}

/// Combinations that are not implemented yet.
void check_built(const Recipe& r, options::Report& report) {
  const auto missing = [&](bool given, const std::string& option) {
    if (given) tell(r, report, "not built", {cut + option}, text(option, " is not implemented yet"), "leave it out");
  };
  missing(!r.parallel.select_comm_recompute.empty(), "select_comm_recompute");
}

/// The format `name`, which `option` gives, is registered, and can hold what the run saves.
void check_checkpoint_format(const Recipe& r, const std::optional<std::string>& name, const std::string& option,
                             options::Report& report) {
  if (!name || *name == checkpoint::native_format || r.formats.all().empty()) return;  // `build` refuses the latter
  const auto* format = r.formats.find(*name);
  if (format == nullptr || !format->saves()) {
    std::string names = checkpoint::native_format;
    for (const auto& known : r.formats.all())
      if (known->saves()) names += ", " + known->name();
    return tell(r, report, "checkpoint format", {"training_config." + option},
                text(option, " is '", *name, "'; a run can save in: ", names), "give one of these, or leave it out");
  }
  const checkpoint::SavedRun run{.layout = {.tensor = r.parallel.tensor_model_parallel_size,
                                            .expert = r.parallel.expert_model_parallel_size,
                                            .expert_tensor = r.parallel.sharers_of_expert()},
                                 .has_experts = r.experts() > 0,
                                 .has_noop_layers = !r.parallel.noop_layers.ids.empty()};
  tell_all(r, report, format->refusals(run), {"training_config." + option});
}

void check_micro_batches(const Recipe& r, std::int64_t ranks, options::Report& report) {
  auto shape = r.pipeline_shape(ranks);
  const auto passes = static_cast<double>(shape.stages * shape.chunks) * static_cast<double>(shape.micro_batches);
  if (passes > most_passes)
    tell(r, report, "passes of a step", {"dataset_config.micro_batch_num", "dataset_config.global_batch_size"},
         text("micro-batches x stages x chunks of a step is ", shape.micro_batches, " x ", shape.stages, " x ",
              shape.chunks, "; at most ", static_cast<std::int64_t>(most_passes), " is supported"),
         "increase batch_size, or reduce micro_batch_num or global_batch_size");
  const std::vector<std::string> about = {"dataset_config.rampup_batch_size", "dataset_config.micro_batch_num",
                                          "dataset_config.global_batch_size",
                                          cut + "virtual_pipeline_model_parallel_size", cut + "num_layer_list"};
  const schedule::BatchPlan plan(r.ramp, r.batch_sizes(ranks));
  const auto is_good = [&](const schedule::StepSize& size, const std::string& when) {
    shape.micro_batches = size.micro_batches;
    auto mistakes = parallel::mistakes_of_schedule(shape);
    for (auto& one : mistakes) one.message = when + one.message;
    tell_all(r, report, mistakes, about);
    return mistakes.empty();
  };
  if (is_good(plan.full(), ""))
    plan.each_size(r.length(ranks).samples, [&](const auto& size, std::int64_t consumed) {
      return is_good(size, plan.grows() ? text("after ", consumed, " samples, within rampup_batch_size, ") : "");
    });
}

void check_number_of_ranks(const Recipe& r, options::Report& report) {
  const auto& o = r.parallel;
  double ranks = 1;
  for (const auto size : {o.tensor_model_parallel_size, o.context_parallel_size, o.pipeline_model_parallel_size,
                          o.data_parallel_size.value_or(1)})
    ranks *= static_cast<double>(size);
  if (ranks > static_cast<double>(options::most_ranks))
    tell(r, report, "number of ranks",
         {cut + "tensor_model_parallel_size", cut + "context_parallel_size", cut + "pipeline_model_parallel_size",
          cut + "data_parallel_size"},
         text("the sizes of parallel_config make ", static_cast<std::int64_t>(std::min(ranks, 1e18)),
              " ranks; at most ", options::most_ranks, " are allowed"),
         "make one of them smaller");
}

/// Whether a problem with a key of parallel_config was reported: then the rules about the parallel layout are not
/// checked.
bool is_wrong(const options::Value& group, const options::Report& report) {
  return std::any_of(group.fields.begin(), group.fields.end(),
                     [&](const auto& field) { return report.concerns(cut + field.name); });
}

/// Whether a number with which the rules of context and expert parallelism calculate is wrong.
bool has_wrong_size(const parallel::Towers& towers, const parallel::CutExtents& extents,
                    const options::Report& report) {
  std::vector<std::string> needed = {cut + "context_parallel_size", cut + "tensor_model_parallel_size",
                                     cut + "ulysses_degree_in_cp", cut + "hierarchical_context_parallel_sizes",
                                     "model_config.seq_length"};
  for (const auto& tower : towers.all()) needed.push_back(tower.option);
  for (const auto& one : extents.heads) needed.insert(needed.end(), {one.option, one.groups_option});
  return std::any_of(needed.begin(), needed.end(), [&](const auto& option) { return report.concerns(option); });
}

}  // namespace

void check_parallel(const Recipe& r, options::Report& report) {
  if (is_wrong(*r.resolved.find("parallel_config"), report)) return;
  const auto towers = r.architecture ? r.architecture->towers() : std::nullopt;
  if (!towers) return;
  const auto wrong = [&](const std::string& option) { return report.concerns(option); };
  const auto sizes = r.architecture->size_options();
  if (std::any_of(sizes.begin(), sizes.end(), wrong) || wrong("model_config.seq_length")) return;
  std::vector<std::string> about = {cut + "pipeline_model_parallel_size"};
  for (const auto& tower : towers->all()) about.push_back(tower.option);
  tell_all(r, report, parallel::LayerPlan::mistakes(r.parallel, *towers), about);
  tell_all(r, report, parallel::mistakes_of_predictions(r.parallel, r.architecture->predictions()),
           {"model_config.mtp_num_layers"});
  auto extents = r.architecture->cut_extents(wrong);
  extents.vocabulary = r.size.vocab_size.value_or(0);
  extents.seq_length = r.size.seq_length;
  tell_all(r, report, parallel::mistakes_of_extents(r.parallel, extents), {cut + "tensor_model_parallel_size"});
  if (!has_wrong_size(*towers, extents, report)) {
    tell_all(r, report, parallel::mistakes_of_context(r.parallel, extents, *towers),
             {cut + "context_parallel_size", cut + "cp_comm_type"});
    tell_all(r, report,
             parallel::mistakes_of_experts(
                 r.parallel, {.experts = r.experts(), .inner = extents.expert_inner, .half = r.half.fp16}),
             {cut + "expert_model_parallel_size", "model_config.num_experts"});
  }
  check_dispatcher(r, report);
  check_images(r, report);
  check_patches(r, report);
  check_optimizer(r, report);
  check_number_of_ranks(r, report);
  if (report.good()) check_built(r, report);
  if (report.good()) {
    check_checkpoint_format(r, r.training.ckpt_format, "ckpt_format", report);
    check_checkpoint_format(r, r.training.ckpt_convert_format, "ckpt_convert_format", report);
  }
  if (report.good() && r.batch.micro_batch_num)
    check_micro_batches(r, r.parallel.data_parallel_size.value_or(1), report);
}

void check_ranks(const Recipe& r, std::int64_t world, options::Report& report) {
  check_head(r, report);
  auto misfits = parallel::mistakes_of_ranks(r.parallel, world);
  if (misfits.empty() && r.experts() > 0) misfits = parallel::mistakes_of_expert_ranks(r.parallel, world);
  tell_all(r, report, misfits, {cut + "context_parallel_size", cut + "pipeline_model_parallel_size"});
  if (!misfits.empty()) return;
  const auto ranks = parallel::data_parallel_ranks(r.parallel, world);
  if (const auto why = uncountable(r, ranks); !why.empty()) {
    tell(r, report, "countable sizes", {"dataset_config.batch_size", "training_config.training_iters"},
         text("on ", ranks, " data parallel ranks ", why), "make one of them smaller");
    return;
  }
  const auto sizes = r.batch_sizes(ranks);
  const auto& b = r.batch;
  if (b.global_batch_size && b.micro_batch_num && sizes.global != *b.micro_batch_num * b.batch_size * ranks)
    tell(r, report, "micro_batch_num", {"dataset_config.micro_batch_num", "dataset_config.global_batch_size"},
         text("micro_batch_num is ", *b.micro_batch_num, ", but global_batch_size ", sizes.global,
              " in micro-batches of ", b.batch_size, ranks > 1 ? text(" on ", ranks, " data parallel ranks") : "",
              " makes ", sizes.global / b.batch_size / ranks),
         "give one of micro_batch_num and global_batch_size");
  const auto broken = [&](const options::Finding& finding) {
    tell(r, report, "dataset_config.", finding, {"dataset_config.batch_size"});
  };
  for (const auto& rule : schedule::broken_rules(r.ramp, sizes)) broken(rule);
  if (!report.good()) return;
  check_steps(r, ranks, report);
  if (!report.good()) return;
  if (const auto rule = schedule::BatchPlan(r.ramp, sizes).broken_step(r.length(ranks).samples)) return broken(*rule);
  check_micro_batches(r, ranks, report);
}

void check_ranks(const Recipe& recipe, std::int64_t world) {
  options::Report report;
  check_ranks(recipe, world, report);
  report.must_be_good();
}

void keep_global_batch(Recipe& recipe, std::int64_t full) {
  const auto replicas = parallel::data_parallel_ranks(recipe.parallel, full);
  recipe.batch.global_batch_size = recipe.batch_sizes(replicas).global;
  recipe.replicas_of_order = replicas;
  recipe.batch.micro_batch_num.reset();
  recipe.parallel.data_parallel_size.reset();
}

std::vector<std::int64_t> numbers_of_ranks(const Recipe& recipe, std::int64_t full) {
  auto other = recipe;
  keep_global_batch(other, full);
  const auto replicas = parallel::data_parallel_ranks(other.parallel, full);
  // decrease_batch_size_if_needed rounds each step down to micro-batches of all replicas.
  const auto has_same_steps = [&](std::int64_t count) {
    if (!other.ramp.decrease_batch_size_if_needed || count == replicas) return true;
    const auto samples = [&](std::int64_t ranks) {
      return schedule::BatchPlan(other.ramp, other.batch_sizes(ranks)).full().samples;
    };
    return !other.ramp.rampup_batch_size && samples(count) == samples(replicas);
  };
  std::vector<std::int64_t> all;
  for (std::int64_t count = 1; count <= replicas; ++count) {
    options::Report report;
    check_ranks(other, full / replicas * count, report);
    if (report.good() && has_same_steps(count)) all.push_back(full / replicas * count);
  }
  return all;
}

}  // namespace tessera::recipe
