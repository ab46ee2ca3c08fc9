#include "framework/training/state_keeper.h"

#include <algorithm>

#include "framework/base/crc32c.h"
#include "framework/comm/together.h"
#include "framework/model/model.h"
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
  if (setup.resilience.policy == resilience::Policy::off || !launcher.may_keep_state()) return;
  open();
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
    const auto undo = UpdatePlan(layout, optimizer).undo_extents();
    words += words_of(layout);
    parts_.push_back({std::move(layout), sharers, undo});
  }
  nn::AuxiliaryLog log(setup_.model.first().auxiliary());
  record_bytes_ = record_bytes(log);
  record_.resize(record_bytes_);
  sections_ = {resilience::StepJournal::bytes(record_bytes_, most_position_bytes)};
  for (const auto& part : parts_) sections_.push_back(resilience::UndoLog::bytes(part.undo));
  for (const auto& part : parts_) sections_.push_back(part.layout.segment().bytes);
  layout_checksum_ = crc32c(words);
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
        file_ = std::make_unique<resilience::StateFile>(path, key, sections_, 1 + parts_.size());
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

/// What this rank found is worth nothing: the run continues from a checkpoint, or begins.
void StateKeeper::start_anew(const std::string& why) {
  if (!why.empty()) notes_.push_back(text("the state in memory cannot be used: ", why));
  file_->discard();
  file_.reset();
  open();
}

void StateKeeper::find() {
  struct Own {
    std::int64_t taken_over;
    resilience::JournalState state;
  };
  resilience::StepJournal journal(file_->section(0), record_bytes_, most_position_bytes);
  const Own own{file_->taken_over() ? 1 : 0, journal.state()};
  std::vector<Own> all(static_cast<std::size_t>(world_.size()));
  world_.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), "the state in memory");
  const auto count = [&](const auto& holds) { return std::count_if(all.begin(), all.end(), holds); };
  const auto left = count([](const Own& one) { return one.taken_over != 0; });
  if (left < world_.size()) {
    if (left > 0) start_anew(text("only ", left, " of ", world_.size(), " ranks have it"));
    return;
  }
  std::int64_t step = 0;
  for (const auto& one : all) step = std::max({step, one.state.committed, one.state.intended});
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto& state = all[r].state;
    if (state.committed == step || state.intended == step || state.prepared == step) continue;
    return start_anew(text("rank ", r, " has completed step ", state.committed, ", and others step ", step));
  }
  found_.emplace();
  found_->step = step;
  found_->rank_is_complete = own.state.committed == step;
  found_->reported = all[0].state.committed == step;
  found_->position = read_position(world_.broadcast(journal.position(), 0, "the state in memory"));
  const auto source = std::find_if(all.begin(), all.end(), [&](const Own& one) { return one.state.intended == step; });
  if (count([&](const Own& one) { return one.state.committed < step; }) > 0) {
    must(source != all.end(), "a step that some rank has committed was intended by all that have");
    const auto record = journal.record();
    std::copy(record.begin(), record.end(), record_.begin());
    world_.broadcast(std::span(record_), static_cast<int>(source - all.begin()), "the state in memory");
  }
}

ModelState StateKeeper::make_state() {
  const auto* optimizer = setup_.optimization.optimizer.get();
  const bool overlaps = setup_.optimization.parameter_gather.overlap_param_gather;
  std::vector<std::unique_ptr<SharedState>> made;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    const auto segment = part.layout.segment();
    if (!file_) {
      StateMemory memory(segment, part.sharers);
      made.push_back(std::make_unique<SharedState>(std::move(part.layout), std::move(memory), optimizer, overlaps));
      continue;
    }
    StateMemory memory(segment, file_->descriptor(), file_->offset(1 + parts_.size() + i), !found_, part.sharers);
    made.push_back(
        std::make_unique<SharedState>(std::move(part.layout), std::move(memory), optimizer, overlaps,
                                      std::make_unique<resilience::UndoLog>(file_->section(1 + i), part.undo)));
  }
  if (file_) journal_.emplace(file_->section(0), record_bytes_, most_position_bytes);
  return ModelState(std::move(made));
}

void StateKeeper::begin(std::int64_t step, const RunPosition& position) {
  if (!journal_) return;
  journal_->commit(step, write_position(position));
  file_->set_ready();
}

void StateKeeper::prepare(std::int64_t step) {
  if (journal_) journal_->prepare(step);
}

void StateKeeper::intend(std::int64_t step, const StepIntent& intent, nn::AuxiliaryLog& log, ModelState& state) {
  if (!journal_) return;
  write_record(intent, log, record_);
  state.begin_update();
  journal_->intend(step, record_);
}

void StateKeeper::commit(std::int64_t step, const RunPosition& position) {
  if (journal_) journal_->commit(step, write_position(position));
}

StepIntent StateKeeper::found_intent(nn::AuxiliaryLog& log) const { return read_record(record_, log); }

void StateKeeper::adopt_intent(ModelState& state) {
  if (journal_->state().intended == found_->step) return;
  state.begin_update();
  journal_->intend(found_->step, record_);
}

}  // namespace tessera::training
