#include "framework/training/saving/resume.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>

#include "framework/base/links.h"
#include "framework/comm/together.h"
#include "framework/training/saving/after_loading.h"
#include "framework/training/saving/rates.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/saving/shared_loading.h"
#include "framework/training/setup/given_checkpoint.h"
#include "framework/training/setup/strictness.h"
#include "framework/training/setup/upcycling.h"

namespace tessera::training {
namespace {

/// The options whose values differ between the recipe of a checkpoint and that of the run; `reason`: why they cannot be
/// compared, else empty.
struct RecipeChanges {
  std::vector<OptionChange> all;
  std::string reason;
};

RecipeChanges changes_since(const TrainingSetup& setup, const checkpoint::OpenedCheckpoint& saved) {
  if (!setup.documents.changes_since) return {};
  try {
    const bool has_recipe = saved.blobs().count(checkpoint::recipe_blob) != 0;
    const auto described = has_recipe ? options::Value{} : saved.recipe();
    if (auto found = setup.documents.changes_since(saved.blobs(), has_recipe ? nullptr : &described))
      return {*std::move(found), ""};
    return {{}, text(saved.folder().string(), ": its recipe cannot be read")};
  } catch (const ConfigError& error) {
    return {{}, error.what()};
  }
}

/// Calls `load`. If it fails because tensors do not fit, the error names the options that differ from the checkpoint.
void naming_options(const RecipeChanges& changes, const std::function<void()>& load) {
  try {
    load();
  } catch (const ConfigError& error) {
    const auto lines = lines_about_tensors(changes.all);
    if (lines.empty()) throw;
    throw ConfigError(text(error.what(), "\nthe recipe differs from that of the checkpoint:", lines));
  }
}

/// Refuses a checkpoint whose weights or state mean something else here; else says what has changed.
void judge_changes(const checkpoint::OpenedCheckpoint& saved, const RecipeChanges& changes, const TakenOver& taken,
                   const TrainingOptions& o, std::vector<std::string>& notes) {
  if (!changes.reason.empty())
    notes.push_back(text("it is not known what has changed since the checkpoint was saved: ", changes.reason));
  auto lines = accept_changes(saved.folder().string(), changes.all, taken, o);
  std::move(lines.begin(), lines.end(), std::back_inserter(notes));
}

/// The order of the training samples, as far as it follows from batch size and ranks. A global batch size that is known
/// counts instead of the options that give it.
void add_order_changes(const checkpoint::Progress& saved, const TrainingSetup& setup,
                       std::vector<OptionChange>& changes) {
  const std::string global = "dataset_config.global_batch_size";
  const auto now = with_rates({}, setup);
  if (saved.global_batch_size > 0)
    std::erase_if(changes, [&](const auto& change) {
      return change.option == global || change.option == "dataset_config.micro_batch_num";
    });
  const auto add = [&](const std::string& what, std::int64_t value, std::int64_t before) {
    if (value > 0 && before > 0 && value != before)
      changes.push_back({what, text(value), text(before), options::Change::order});
  };
  add(global, now.global_batch_size, saved.global_batch_size);
  add("samples of a micro-batch on all data-parallel ranks", now.order_stride, saved.order_stride);
}

void restore_rates(const checkpoint::Progress& progress, const std::filesystem::path& folder, TrainingSetup& setup) {
  try {
    restore_rates(progress, setup);
  } catch (ConfigError& error) {
    error.during("resuming from " + folder.string());
    throw;
  }
}

/// Without the state of parameters that the checkpoint's run froze: it begins at zero.
void drop_newly_trained(const checkpoint::OpenedCheckpoint& given, const RecipeChanges& changes,
                        std::vector<checkpoint::TensorRange>& slots, std::vector<std::string>& notes) {
  const auto of_freezing = [](const OptionChange& change) {
    return std::ranges::any_of(options_of_freezing,
                               [&](const char* name) { return change.option == text("training_config.", name); });
  };
  if (std::none_of(changes.all.begin(), changes.all.end(), of_freezing)) return;
  if (std::erase_if(slots, [&](const auto& range) { return !given.has(range.name); }) > 0)
    notes.emplace_back("the optimizer state of parameters that were frozen before begins at zero");
}

/// The names of the parameters that would follow from others (Parameter::derive), but that `given` has.
std::set<std::string> derived_in(const checkpoint::WeightSource& given, ModelState& state) {
  std::set<std::string> names;
  const auto add_of = [&](const auto& parameters) {
    for (const auto* parameter : parameters)
      if (parameter->derive && given.has(parameter->name)) names.insert(parameter->name);
  };
  add_of(state.parameters());
  add_of(state.frozen().parameters());
  return names;
}

/// What is read of a checkpoint from which a run continues.
struct Continuation {
  checkpoint::Progress progress;
  std::vector<checkpoint::TensorRange> wanted;  ///< weights and optimizer state that are to be read
};

/// All of it: weights, optimizer, counters, as far as the options ask. What is left to be read, the caller reads, and
/// then calls finish_continuing().
Continuation begin_continuing(const checkpoint::OpenedCheckpoint& given, checkpoint::Progress progress,
                              TrainingSetup& setup, ModelState& state, Restored& out) {
  const auto& o = setup.options;
  auto& notes = out.notes;
  const bool left_out = checkpoint::base_in(given.blobs()).has_value();
  out.derived = derived_in(given, state);
  out.leaves_optimizer = o.no_load_optim && (!out.saved_in_job || given.optimizer_names().empty());
  must_have_seed(given, progress, o);
  state.frozen().unmap();  // where the vocabulary has another padding, it is written
  refuse_dense(given, state.weight_ranges());
  auto changes = changes_since(setup, given);
  std::vector<checkpoint::TensorRange> weights, slots;
  naming_options(changes, [&] {
    auto all = left_out ? state.trained_ranges() : state.weight_ranges();
    const auto known = expected_in(given, all_of_model(setup.model, all), setup, notes);
    leave_out_lacking(given, o, all);
    weights = read_other_paddings(given, all, setup.model.tokens, notes);
    given.must_fit_weights(weights, known);
    refuse_left_over(given, known);
    if (out.leaves_optimizer) return;
    slots = state.optimizer_ranges();
    drop_newly_trained(given, changes, slots, notes);
    if (!slots.empty()) must_have_state(given, progress);
    leave_out_lacking(given, o, slots);
    slots = read_other_paddings(given, slots, setup.model.tokens, notes);
    given.must_fit_optimizer(slots);
  });
  add_order_changes(progress, setup, changes.all);
  judge_changes(given, changes,
                {.optimizer_state = !out.leaves_optimizer,
                 .own_schedule = setup.optimization.schedule_resume.override_opt_param_scheduler},
                o, notes);
  if (!o.new_dataset || out.saved_in_job) refuse_other_stride(given.folder(), progress, setup);
  if (left_out) {
    auto more = load_frozen(given, setup, state, out.base);
    std::move(more.begin(), more.end(), std::back_inserter(notes));
  } else {
    map_frozen(given, state, weights, notes);
    draw_lacking(given, o, state.frozen());
    keep_origin(given, o, state);
  }
  weights.insert(weights.end(), slots.begin(), slots.end());
  return {std::move(progress), std::move(weights)};
}

/// When everything has been read.
void finish_continuing(const checkpoint::OpenedCheckpoint& given, checkpoint::Progress progress, TrainingSetup& setup,
                       ModelState& state, Restored& out) {
  const auto& o = setup.options;
  clear_state_of_frozen(setup.model.trained, state);
  if (out.leaves_optimizer) {
    progress.updates = 0;
    begin_rates(setup);
  } else {
    restore_rates(progress, given.folder(), setup);
  }
  if (progress.numbers.good_steps == 0) progress.numbers.last_good = progress.iteration - 1;  // of another program
  if (o.no_load_rng) progress.seed = static_cast<std::uint64_t>(o.seed);
  progress.has_seed = true;
  out.notes.push_back(text("resuming from ", given.folder().string(), " after iteration ", progress.iteration));
  out.progress = std::move(progress);
  out.folder = given.folder();
}

/// The weights alone; all else starts from scratch.
void begin_with(const checkpoint::OpenedCheckpoint& given, TrainingSetup& setup, ModelState& state, Restored& out) {
  auto& notes = out.notes;
  const bool left_out = checkpoint::base_in(given.blobs()).has_value();
  const auto ranges = without_new_adapters(given, left_out ? state.trained_ranges() : state.weight_ranges());
  out.derived = derived_in(given, state);
  refuse_packed(given, state.trained_ranges(), setup.model.upcycles);
  if (!setup.model.upcycles) refuse_dense(given, ranges);
  const auto since = changes_since(setup, given);
  const auto all = expected_in(given, without_new_adapters(given, all_of_model(setup.model, ranges)), setup, notes);
  if (!setup.model.upcycles && !left_out)
    naming_options(since, [&] { checkpoint::must_fit(given, without_score_head(given, all, true)); });
  judge_changes(given, since, {.progress = false, .optimizer_state = false}, setup.options, notes);
  auto changes = load_frozen(given, setup, state, out.base);
  keep_origin(given, setup.options, state);
  auto trained = without_new_adapters(given, state.trained_ranges());
  if (!setup.model.upcycles) leave_out_lacking(given, setup.options, trained);
  const auto fits = left_out ? checkpoint::with_paddings_of(given, trained, setup.model.tokens) : all;
  auto more = load_weights(given, trained, fits, setup.model.upcycles);
  std::move(more.begin(), more.end(), std::back_inserter(changes));
  if (setup.model.upcycles)
    changes.emplace_back(
        "every expert begins with the feed-forward network of its layer; routers keep their initial weights");
  if (setup.model.open_adapter) {
    const auto adapter = setup.model.open_adapter(given);
    more = load_adapter(*adapter, setup.model, state);
    out.derived = derived_in(*adapter, state);
    std::move(more.begin(), more.end(), std::back_inserter(changes));
  }
  for (const auto& range : trained)
    checkpoint::must_be_finite(range.tensor, text(given.folder().string(), ": tensor '", range.name, "'"));
  notes.insert(notes.end(), changes.begin(), changes.end());
  notes.push_back(text("starting from the weights of ", given.folder().string()));
}

/// Continue from a checkpoint that all ranks open. Returns what is damaged in it, the same on all ranks; else empty.
std::string continue_together(const checkpoint::FoundCheckpoint& found, TrainingSetup& setup, ModelState& state,
                              Restored& out) {
  const auto& world = setup.model.processes.world;
  std::unique_ptr<checkpoint::OpenedCheckpoint> given;
  Continuation next;
  auto damage = damage_found(world, [&] {
    const auto open = [&] { given = open_index_of(found, setup.options, setup.documents.mappings); };
    found.format == nullptr ? open() : naming_damage(open);
    next = begin_continuing(*given, given->progress().value_or(checkpoint::Progress{}), setup, state, out);
  });
  if (damage.empty()) damage = load_together(world, *given, next.wanted, setup.options.crc_check);
  if (damage.empty())
    comm::together(world, "loading", [&] { finish_continuing(*given, next.progress, setup, state, out); });
  return damage;
}

/// A checkpoint in another format than that in which the run saves continues it as well.
void tell_format(const TrainingSetup& setup, const checkpoint::FoundCheckpoint& found,
                 std::vector<std::string>& notes) {
  const auto* ours = saving_format(setup.options, setup.documents.formats);
  if (found.format == ours) return;
  const auto name = [](const auto* format) { return format == nullptr ? checkpoint::native_format : format->name(); };
  notes.push_back(text(found.folder.string(), " is of format ", name(found.format), "; the run saves in ", name(ours),
                       " (ckpt_format)"));
}

/// Which of the run folder's checkpoints a run goes on from.
struct OwnCheckpoints {
  const RunFolder* folder;                ///< null: the job has saved none of them
  std::string run;                        ///< those of this run first
  std::optional<std::int64_t> step = {};  ///< only that of this iteration
};

/// Go on from one of them; false when there is none.
bool resume_own(TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const OwnCheckpoints& own,
                Restored& out) {
  const auto& o = setup.options;
  const auto& documents = setup.documents;
  const auto& world = setup.model.processes.world;
  FoundNewest found;
  Unreadable unreadable;
  for (std::int64_t lost_at = -1;;) {
    found = find_newest(world, o, documents.formats, documents.mappings, own.run, out.notes, own.step, unreadable);
    found.lost_at = std::max(found.lost_at, lost_at);
    if (!found.checkpoint) break;
    auto attempt = out;
    attempt.saved_in_job = own.folder != nullptr && own.folder->saved_in_job(found.checkpoint->iteration);
    // What it lacks is in memory what an earlier attempt, or the run before it went back, has left there.
    if (o.may_lack_tensors()) state.draw(threads, static_cast<std::uint64_t>(o.seed));
    tell_format(setup, *found.checkpoint, attempt.notes);
    const auto damage = continue_together(*found.checkpoint, setup, state, attempt);
    if (damage.empty()) {
      out = std::move(attempt);
      break;
    }
    lost_at = std::max(found.lost_at, found.checkpoint->iteration);
    if (!set_damaged_aside(world, *found.checkpoint, damage, out.notes))
      unreadable.emplace(found.checkpoint->folder, damage);
    forget_what_was_read(state);
  }
  if (found.lost_at >= 0)
    out.notes.push_back(
        text("because of the damaged checkpoint, ", found.lost_at - out.progress.iteration, " steps are repeated"));
  if (!found.checkpoint && o.resume_training == Resume::always && !o.load_checkpoint)
    throw ConfigError(text("training_config.resume_training is true, but ",
                           checkpoint_path(o, 0).parent_path().string(),
                           " holds no usable checkpoint; give auto to start from scratch, or load_checkpoint"));
  return found.checkpoint.has_value();
}

/// Checkpoints of the run after iteration `last` are not to be loaded any more.
void set_aside_after(std::int64_t last, const TrainingSetup& setup, const std::string& run,
                     std::vector<std::string>& notes) {
  const auto& world = setup.model.processes.world;
  comm::together(world, "going back to a checkpoint", [&] {
    if (world.rank() > 0) return;
    for (const auto& found : finished_of(run, setup.options, setup.documents.formats)) {
      if (found.iteration <= last) continue;
      const auto aside =
          checkpoint::set_aside(found.folder, text("the run went back to iteration ", last, " or before"));
      notes.push_back(text("set aside ", found.folder.string(), " as ", aside.string()));
    }
  });
}

/// The run begins at another iteration than that of the checkpoint. The training data follows; weights, optimizer and
/// schedule stay what they are. Source: Megatron-LM, --override-ckpt-iteration.
void override_iteration(checkpoint::Progress& progress, const TrainingSetup& setup, std::vector<std::string>& notes) {
  const auto iteration = *setup.options.override_ckpt_iteration;
  const auto samples = iteration * setup.data.batch_plan.full().samples;
  notes.push_back(text("override_ckpt_iteration: the run begins after iteration ", iteration, " and ", samples,
                       " samples, instead of ", progress.iteration, " and ", progress.consumed_samples));
  progress.iteration = iteration;
  progress.consumed_samples = samples;
  progress.skipped_samples = 0;
  if (progress.data_start > samples) progress.data_start = 0;
  progress.sample_chain = 0;
  progress.findings = {};
  progress.numbers.last_good = iteration - 1;
  progress.numbers.bad_in_row = 0;
  if (progress.schedule && setup.optimization.schedule_resume.override_opt_param_scheduler)
    progress.schedule->num_steps = samples;
}

/// Initial weights; with `given`, trained ones that it does not have. Memory of frozen ones may then be mapped.
void draw(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
          const checkpoint::WeightSource* given = nullptr) {
  const auto seed = static_cast<std::uint64_t>(setup.options.seed);
  state.draw(threads, seed, [&](const auto& name) { return given != nullptr && given->has(name); });
  if (given == nullptr) state.frozen().initialise(threads, seed);
}

/// Begin with, or continue from, what load_checkpoint names, which is at `place`.
void load_given(TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const std::filesystem::path& place,
                Restored& out) {
  const auto& o = setup.options;
  const auto given = open_any(setup, place, out.notes, step_of_given(setup));
  if (!given) {
    out.notes.push_back(text("no checkpoint in ", place.string(), " yet: starting from scratch"));
    return draw(setup, state, threads);
  }
  const auto all = all_of_model(setup.model, state.trained_ranges());
  const bool is_base = without_new_adapters(*given, all).size() < all.size();
  if (setup.model.open_adapter && !is_base)
    throw ConfigError(text("training_config.load_checkpoint: ", given->folder().string(),
                           " has adapters itself, and lora_config.adapter names others; leave adapter out, or give "
                           "load_checkpoint the model without adapters"));
  const auto asks =
      given->continues_by_request() ? o.resume_training == Resume::always : o.resume_training != Resume::never;
  const bool resumes = asks && !setup.model.weights_alone && !setup.model.upcycles && !is_base;
  const auto progress = resumes ? given->progress() : std::nullopt;
  draw(setup, state, threads, setup.model.upcycles ? nullptr : given.get());
  if (!progress) return begin_with(*given, setup, state, out);
  auto next = begin_continuing(*given, *progress, setup, state, out);
  for (const auto& range : next.wanted) given->read_box(range);
  if (o.override_ckpt_iteration) override_iteration(next.progress, setup, out.notes);
  finish_continuing(*given, std::move(next.progress), setup, state, out);
  out.continues = is_of_run_folder(o, place);
}

/// The iteration to which the recipe says that the run goes back. A restart has gone back already.
std::optional<std::int64_t> step_to_resume(const TrainingSetup& setup, const RunFolder* folder) {
  const auto& o = setup.options;
  const bool is_own =
      setup.model.weights_alone || !o.load_checkpoint || is_same_folder(*o.load_checkpoint, o.output_dir);
  return is_own && (folder == nullptr || !folder->is_restart()) ? o.ckpt_step : std::nullopt;
}

/// After the weights were loaded. Collective. Source of the rounding: Megatron-LM, reload_model_params.
void weights_loaded(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const Restored& from) {
  const auto& processes = setup.model.processes;
  state.weights_changed();
  const bool without_optimizer = from.folder.empty() || from.leaves_optimizer;
  if (without_optimizer && !setup.options.load_main_params_from_ckpt.value_or(true))
    for (const auto& part : state.parts()) part->round_main_weights();
  state.derive_initial(threads, &processes, [&](const auto& name) { return from.derived.contains(name); });
  if (from.base) check_base(processes.world, state, threads, *from.base);
}

}  // namespace

Restored restore(TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const RunFolder* folder) {
  const auto& o = setup.options;
  Restored out;
  out.progress.seed = static_cast<std::uint64_t>(o.seed);
  const bool resumes = folder != nullptr ? folder->resumes() : o.resume_training != Resume::never;
  const OwnCheckpoints own{folder, folder != nullptr ? folder->found().run : "", step_to_resume(setup, folder)};
  if (resumes && resume_own(setup, state, threads, own, out)) {
    out.continues = true;
    out.is_saved = out.folder == checkpoint_path(o, out.progress.iteration);
    weights_loaded(setup, state, threads, out);
    return out;
  }
  if (!o.load_checkpoint) {
    draw(setup, state, threads);
    state.weights_changed();
    state.derive_initial(threads, &setup.model.processes);
    return out;
  }
  comm::together(setup.model.processes.world, "loading", [&] {
    const std::filesystem::path given = *o.load_checkpoint;
    load_given(setup, state, threads, folder != nullptr ? folder->given_checkpoint() : given, out);
  });
  weights_loaded(setup, state, threads, out);
  return out;
}

bool can_go_back(const TrainingSetup& setup, const std::string& run, std::int64_t back_to) {
  const auto& world = setup.model.processes.world;
  std::string found;
  comm::together(world, "going back to a checkpoint", [&] {
    if (world.rank() > 0) return;
    for (const auto& checkpoint : finished_of(run, setup.options, setup.documents.formats))
      if (checkpoint.iteration <= back_to) found = "yes";
  });
  return !world.broadcast(found, 0, "going back to a checkpoint").empty();
}

Restored restore_back(TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const RunFolder& folder,
                      const checkpoint::Progress& kept, std::int64_t back_to) {
  Restored out;
  set_aside_after(back_to, setup, kept.run, out.notes);
  state.weights_needed();
  for (const auto& part : state.parts())
    for (const auto& elements : part->shard_elements()) std::fill(elements.begin(), elements.end(), 0.0F);
  if (!resume_own(setup, state, threads, {&folder, kept.run}, out) || out.progress.iteration > back_to)
    throw Error(text("the run has no checkpoint of iteration ", std::min(back_to, kept.iteration),
                     " or before to go back to. Give training_config.save_interval"));
  weights_loaded(setup, state, threads, out);
  out.continues = true;
  out.went_back = true;
  out.progress.run = kept.run;
  // Before the start of a job with new_dataset its data begins where the run now is.
  out.progress.data_start = std::min(kept.data_start, out.progress.consumed_samples);
  // With what the run has found out since, it is not what was saved.
  out.is_saved =
      out.progress.findings == kept.findings && out.folder == checkpoint_path(setup.options, out.progress.iteration);
  out.progress.findings = kept.findings;
  return out;
}

std::string how_to_resume(const TrainingOptions& options, bool saved) {
  if (!saved) return "no checkpoint was saved: the same command starts from the beginning";
  if (options.resume_training != Resume::never) return "the same command resumes from the newest checkpoint";
  return "to resume, add --set training_config.resume_training=true: the same command alone starts a new run";
}

}  // namespace tessera::training
