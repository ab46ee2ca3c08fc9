#include "framework/training/guards/state_keeper.h"

#include <algorithm>
#include <array>

#include "framework/base/crc32c.h"
#include "framework/comm/together.h"
#include "framework/model/model.h"
#include "framework/training/guards/state_plan.h"
#include "framework/worker/launch_link.h"

namespace tessera::training {
namespace {

/// How data-parallel ranks share this rank's state.
StateSharing sharing(const TrainingSetup& setup, const comm::Communicator& data) {
  const auto& o = setup.optimization.data_parallel;
  return {.rank = data.rank(),
          .ranks = data.size(),
          .distributed_optimizer = o.use_distributed_optimizer,
          .bucket_elements = o.bucket_elements(data.size())};
}

/// What lies where, in words.
std::string words_of(const StateLayout& layout) {
  std::string all = text(layout.sharing().rank, '/', layout.sharing().ranks, ' ', layout.sharing().shards());
  for (const auto& range : layout.parameters().ranges())
    all += text('\n', range.parameter->name, ' ', range.parameter->shape(), ' ',
                static_cast<int>(range.parameter->type), ' ', range.first);
  for (const auto& tensor : layout.state_tensors()) all += "\n" + tensor;
  for (const auto& array : layout.segment().arrays) all += text('\n', array.offset, ' ', array.bytes);
  return all;
}

}  // namespace

/// The parameters that one group of ranks shares.
struct StateKeeper::Part {
  StateLayout layout;
  const comm::Communicator& sharers;
  resilience::UndoLog::Extents undo;
};

StateKeeper::StateKeeper(const TrainingSetup& setup) : setup_(setup), world_(setup.model.processes.world) {
  lay_out();
  const worker::LaunchLink launcher;
  folder_ = launcher.folder();
  find_shards();
  if (setup.resilience.policy != resilience::Policy::off && launcher.may_keep_state()) open();
  if (file_ && setup.resilience.policy == resilience::Policy::replica) plan_copies();
  judge_coverage();
  if (file_) find();
}

StateKeeper::~StateKeeper() = default;

void StateKeeper::lay_out() {
  std::vector<model::Model*> chunks;
  for (const auto& chunk : setup_.model.chunks) chunks.push_back(chunk.get());
  const auto& optimizer = *setup_.optimization.optimizer;
  const auto& processes = setup_.model.processes;
  std::string words;
  for (auto& group : groups_of_parameters(parameters_of(chunks), processes.mesh.sizes())) {
    const auto& sharers = group.experts ? processes.expert_data : processes.data;
    StateLayout layout(std::move(group.parameters), &optimizer, sharing(setup_, sharers));
    const auto undo = undo_extents(layout, optimizer);
    words += words_of(layout);
    parts_.push_back({std::move(layout), sharers, undo});
  }
  nn::AuxiliaryLog log(model::report_extents(setup_.model.first(), *setup_.optimization.objective));
  record_bytes_ = record_bytes(log);
  record_.resize(record_bytes_);
  sections_ = {journal_section(log.extents())};
  for (const auto& part : parts_) sections_.push_back(resilience::UndoLog::bytes(part.undo));
  for (const auto& part : parts_) sections_.push_back(resilience::StateSums::bytes(part.undo.pieces));
  for (const auto& part : parts_) sections_.push_back(part.layout.segment().bytes);
  layout_checksum_ = crc32c(words);
}

void StateKeeper::find_shards() {
  const std::array own = {worker::host_of_job(), static_cast<int>(parts_.size())};
  std::vector<std::array<int, 2>> all(static_cast<std::size_t>(world_.size()));
  world_.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)), "the hosts of the run");
  std::vector<int> parts;
  for (const auto& [host, count] : all) hosts_.push_back(host), parts.push_back(count);
  shards_ =
      shards_of_run(setup_.model.processes.mesh, setup_.optimization.data_parallel.use_distributed_optimizer, parts);
}

/// By all ranks; one says why.
void StateKeeper::refuse(const std::string& why) const {
  comm::together(world_, "resilience_config", [&] {
    if (world_.rank() == 0) throw ConfigError(why);
  });
  throw BugError("a rank refused and nobody threw");
}

void StateKeeper::plan_copies() {
  const bool several = std::any_of(hosts_.begin(), hosts_.end(), [&](int host) { return host != hosts_.front(); });
  if (!several && worker::start_of_job() == 0)
    refuse(
        "resilience_config.policy replica keeps copies on another host, but all ranks are on one; start the run on "
        "several hosts, or give policy memory");
  planned_copies_ = copies_of(shards_, hosts_);
  std::vector<std::string> outlines;
  for (const auto& part : parts_) outlines.push_back(write_outline(part.layout));
  copies_ = std::make_unique<StateCopies>(StateCopies::Run{.world = world_,
                                                           .optimization = setup_.optimization,
                                                           .folder = folder_,
                                                           .recipe = crc32c(setup_.documents.resolved_recipe),
                                                           .shards = shards_,
                                                           .checks_updates = setup_.resilience.check_updates},
                                          outlines, file_->taken_over());
}

/// All ranks are at the same step.
void StateKeeper::arrange_copies(ModelState& state, kernels::Threads& threads) {
  if (!copies_) return;
  try {
    copies_->arrange(planned_copies_, state, threads);
  } catch (const IoError& error) {
    notes_.push_back(text("no copies are kept on other hosts: ", error.what()));
    planned_copies_.clear();
    judge_coverage();
  }
}

void StateKeeper::judge_coverage() {
  const worker::LaunchLink launcher;
  const char* not_kept = file_                                                 ? ""
                         : setup_.resilience.policy == resilience::Policy::off ? "resilience_config.policy is off"
                         : !launcher.present()                                 ? "the run was not started by tsrun"
                         : !launcher.may_keep_state()                          ? "ENABLE_TTP=0 was given to tsrun"
                                                                               : "there is no memory for the state";
  coverage_ = resilience::coverage_of(not_kept, shards_, planned_copies_, hosts_);
  if (launcher.present()) notes_.push_back(words_of(coverage_));
  if (!launcher.present() && setup_.resilience.policy != resilience::Policy::off && world_.size() > 1)
    notes_.emplace_back(
        "the state is not kept for a restart (resilience_config.policy), because the run was not started by tsrun, "
        "which would restart its processes; after a fault the same command continues from the newest checkpoint");
  if (setup_.resilience.require_host && !coverage_.host() && worker::start_of_job() == 0) refuse(refusal_of(coverage_));
}

/// All ranks have a file, or none.
void StateKeeper::open() {
  const resilience::StateKey key{layout_checksum_, crc32c(setup_.documents.resolved_recipe), world_.rank(),
                                 world_.size()};
  std::string problem;
  comm::together(world_, "the state in memory", [&] {
    const auto named = worker::state_file(folder_, world_.rank()),
               held = worker::held_state_file(folder_, world_.rank());
    std::error_code absent;
    const bool in_held = std::filesystem::file_size(held, absent) > 0 && !absent;
    for (const auto& path : in_held ? std::vector{held} : std::vector{named, held}) {
      try {
        file_ = std::make_unique<resilience::StateFile>(path, key, sections_, 1 + 2 * parts_.size());
        problem.clear();
        return;
      } catch (const IoError& error) {
        if (problem.empty()) problem = error.what();
      }
    }
  });
  const auto problems = world_.all_gather(problem, "the state in memory");
  const auto first = std::find_if(problems.begin(), problems.end(), [](const auto& one) { return !one.empty(); });
  if (first == problems.end()) return;
  if (file_) file_->discard();
  file_.reset();
  notes_.push_back(text("the state is not kept in memory: ", *first,
                        "; after a fault the run continues from its newest checkpoint"));
}

/// What the ranks found is worth nothing: the run continues from a checkpoint, or begins.
void StateKeeper::start_anew(const std::string& why) {
  if (!why.empty()) notes_.push_back(text("the state in memory cannot be used: ", why));
  file_->discard();
  file_.reset();
  if (copies_) copies_->discard();
  open();
  if (!file_) copies_.reset();
}

void StateKeeper::find() {
  resilience::StepJournal journal(file_->section(0), record_bytes_, most_position_bytes);
  const resilience::RankState own{file_->taken_over(), journal.state()};
  std::vector<resilience::RankState> all(static_cast<std::size_t>(world_.size()));
  world_.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), "the state in memory");
  const auto resolution =
      resilience::resolve(all, shards_, copies_ ? copies_->found() : std::vector<resilience::ShardCopy>());
  if (resolution.withdrawn) {
    withdrawn_ = read_position(world_.broadcast(journal.position(), resolution.narrator, "the state in memory"));
    if (copies_) copies_->discard();
    return;
  }
  if (resolution.usable) return adopt(resolution, journal, own.present && own.journal.committed == resolution.step);
  if (resolution.problem.empty()) return;
  given_up_ = resolution.step;
  start_anew(resolution.problem);
}

void StateKeeper::adopt(const resilience::Resolution& resolution, const resilience::StepJournal& journal,
                        bool complete) {
  gifts_ = resolution.gifts;
  found_.emplace();
  found_->step = resolution.step;
  found_->rank_is_lost = !file_->taken_over();
  found_->any_is_lost = resolution.lost();
  found_->rank_is_complete = complete;
  found_->reported = resolution.reported;
  position_ = world_.broadcast(resolution.narrator == 0 ? journal.position() : journal.told_position(),
                               resolution.narrator, "the state in memory");
  found_->position = read_position(position_);
  if (resolution.recorder < 0) return;
  const auto record = journal.record();
  std::copy(record.begin(), record.end(), record_.begin());
  world_.broadcast(std::span(record_), resolution.recorder, "the state in memory");
}

void StateKeeper::give_to_lost(ModelState& state, kernels::Threads& threads) {
  std::vector<comm::Transfer> transfers;
  for (const auto& gift : gifts_) {
    if (gift.from != world_.rank() && gift.to != world_.rank()) continue;
    const bool copy = gift.of_copy && gift.from == world_.rank();
    auto& source = copy ? copies_->copy_of(gift.shard) : *state.parts()[shards_[gift.shard].part];
    const auto start = [&](const auto& ranges) {
      start_transfers(world_, transfers, ranges, gift.from, gift.to, static_cast<int>(gift.shard),
                      "the state of a lost rank");
    };
    start(source.shard_elements());
    if (!found_->reported) start(source.shard_gradients());
  }
  for (auto& transfer : transfers) transfer.wait();
  gifts_.clear();
  if (found_->rank_is_lost)
    for (const auto& part : state.parts()) part->updates().seal(threads);
  arrange_copies(state, threads);
  if (!found_->rank_is_lost) return;
  journal_->intend(found_->step, record_);
  journal_->commit(found_->position.progress.iteration, position_);
}

ModelState StateKeeper::make_state() {
  const auto* optimizer = setup_.optimization.optimizer.get();
  const bool overlaps = setup_.optimization.parameter_gather.overlap_param_gather;
  std::vector<std::unique_ptr<SharedState>> made;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    const auto segment = part.layout.segment();
    const bool checks = setup_.resilience.check_updates;
    if (!file_) {
      StateMemory memory(segment, part.sharers);
      made.push_back(
          std::make_unique<SharedState>(std::move(part.layout), std::move(memory), optimizer, overlaps, nullptr,
                                        checks ? std::make_unique<resilience::StateSums>(part.undo.pieces) : nullptr));
      continue;
    }
    const auto n = parts_.size();
    StateMemory memory(segment, file_->descriptor(), file_->offset(1 + 2 * n + i), !found_ && !withdrawn_,
                       part.sharers);
    made.push_back(std::make_unique<SharedState>(
        std::move(part.layout), std::move(memory), optimizer, overlaps,
        std::make_unique<resilience::UndoLog>(file_->section(1 + i), part.undo),
        checks ? std::make_unique<resilience::StateSums>(file_->section(1 + n + i), part.undo.pieces) : nullptr));
  }
  if (file_) journal_.emplace(file_->section(0), record_bytes_, most_position_bytes);
  std::vector<model::Model*> chunks;
  for (const auto& chunk : setup_.model.chunks) chunks.push_back(chunk.get());
  return ModelState(std::move(made), frozen_weights(parameters_of(chunks), setup_.model.processes));
}

void StateKeeper::begin(std::int64_t step, const RunPosition& position, ModelState& state, kernels::Threads& threads) {
  if (!journal_) return;
  comm::together(world_, "the state in memory", [] {});  // all ranks have loaded theirs
  arrange_copies(state, threads);
  journal_->restart(step, write_position(position));
  file_->set_ready();
  withdrawn_.reset();
}

void StateKeeper::withdraw(const RunPosition& position) {
  found_.reset();
  if (!journal_) return;
  journal_->withdraw(write_position(position));
  if (copies_) copies_->discard();
  comm::together(world_, "going back to a checkpoint", [] {});
}

void StateKeeper::prepare(std::int64_t step, ModelState& state) {
  if (copies_) copies_->send_gradients(state);
  if (journal_) journal_->prepare(step);
}

void StateKeeper::intend(std::int64_t step, const StepIntent& intent, nn::AuxiliaryLog& log, ModelState& state) {
  if (!journal_) return;
  write_record(intent, log, record_);
  begin_update(state);
  journal_->intend(step, record_);
}

void StateKeeper::begin_update(ModelState& state) {
  for (const auto& part : state.parts()) part->updates().begin();
  if (copies_) copies_->begin_update();
}

void StateKeeper::update_copies(kernels::Threads& threads, const StepIntent& intent) {
  if (copies_) copies_->update(threads, intent);
}

void StateKeeper::commit(std::int64_t step, const RunPosition& position) {
  if (!journal_) return;
  journal_->commit(step, write_position(position));
  if (found_ && found_->rank_is_lost) file_->set_ready();
}

void StateKeeper::confirm() {
  if (journal_) journal_->confirm();
}

StepIntent StateKeeper::found_intent(nn::AuxiliaryLog& log) const { return read_record(record_, log); }

void StateKeeper::adopt_intent(ModelState& state) {
  if (journal_->state().intended == found_->step) return;
  begin_update(state);
  journal_->intend(found_->step, record_);
}

}  // namespace tessera::training
