#include "framework/training/guards/state_copies.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "framework/base/crc32c.h"
#include "framework/comm/together.h"
#include "framework/training/guards/state_plan.h"

namespace tessera::training {
namespace {

constexpr int first_tag = 1 << 20;  // below it are those of lost state

template <class Pointer>
std::vector<Pointer> pointers_to(std::vector<nn::Parameter>& parameters) {
  std::vector<Pointer> all;
  for (auto& parameter : parameters) all.push_back(&parameter);
  return all;
}

}  // namespace

std::string write_outline(const StateLayout& layout) {
  std::string all;
  for (const auto& shard : layout.shards()) {
    const auto& parameter = *layout.parameters().ranges()[shard.parameter].parameter;
    // A shard of the distributed optimizer is a range of elements without a shape; whole parameters keep theirs, for
    // optimizers that update matrices.
    const auto shape = layout.sharing().shards() ? Shape{shard.elements.count} : parameter.shape();
    all += text(static_cast<int>(parameter.role), ' ', shape.rank());
    for (std::size_t d = 0; d < shape.rank(); ++d) all += text(' ', shape[d]);
    all += " " + parameter.name + "\n";
  }
  return all;
}

std::vector<nn::Parameter> read_outline(const std::string& outline) {
  std::vector<nn::Parameter> all;
  std::istringstream lines(outline);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    int role = 0;
    std::size_t rank = 0;
    words >> role >> rank;
    std::vector<std::int64_t> extents(rank);
    for (auto& extent : extents) words >> extent;
    auto& parameter = all.emplace_back();
    words >> parameter.name;
    must(static_cast<bool>(words), "a line of an outline has role, shape and name");
    parameter.role = static_cast<ParameterRole>(role);
    parameter.global_shape = Shape(extents);
  }
  return all;
}

std::size_t copy_file_bytes(const StateLayout& layout, const optim::Optimizer& optimizer) {
  auto parameters = read_outline(write_outline(layout));
  const auto sections = kept_sections(StateLayout(pointers_to<nn::Parameter*>(parameters), &optimizer), optimizer);
  return resilience::StateFile::bytes(std::array{sections.undo, sections.sums, sections.segment});
}

void start_transfers(const comm::Communicator& world, std::vector<comm::Transfer>& transfers,
                     const std::vector<std::span<float>>& ranges, int from, int to, int tag, std::string_view who) {
  for (const auto& range : ranges) {
    const auto bytes = std::as_writable_bytes(range);
    transfers.push_back(to == world.rank() ? world.receive(bytes, from, tag, who) : world.send(bytes, to, tag, who));
  }
}

/// One copy with its file. Parameters have their places: the state refers to them.
struct StateCopies::Copy {
  Copy(std::size_t number, const std::string& outline, const OptimizationSetup& optimization,
       const std::filesystem::path& path, const resilience::StateKey& key, bool checks)
      : shard(number),
        parameters(read_outline(outline)),
        layout(pointers_to<nn::Parameter*>(parameters), optimization.optimizer.get()),
        undo(undo_extents(layout, *optimization.optimizer)),
        file(path, key,
             {resilience::UndoLog::bytes(undo), resilience::StateSums::bytes(undo.pieces), layout.segment().bytes}, 2),
        state(layout, StateMemory(layout.segment(), file.descriptor(), file.offset(2), !file.taken_over(), {}),
              optimization.optimizer.get(), false, std::make_unique<resilience::UndoLog>(file.section(0), undo),
              checks ? std::make_unique<resilience::StateSums>(file.section(1), undo.pieces) : nullptr),
        scalars(optimization, pointers_to<const nn::Parameter*>(parameters)) {}
  std::size_t shard;
  std::vector<nn::Parameter> parameters;
  StateLayout layout;
  resilience::UndoLog::Extents undo;
  resilience::StateFile file;
  SharedState state;
  UpdateScalars scalars;
};

StateCopies::StateCopies(Run run, const std::vector<std::string>& outlines, bool keeps) : run_(std::move(run)) {
  std::vector<std::vector<std::string>> of_part;
  for (std::size_t part = 0; part < 2; ++part)
    of_part.push_back(run_.world.all_gather(part < outlines.size() ? outlines[part] : "", "the shards of the run"));
  for (const auto& shard : run_.shards)
    outlines_.push_back(of_part[shard.part][static_cast<std::size_t>(shard.ranks.front())]);
  for (std::size_t i = 0; i < run_.shards.size(); ++i) {
    if (!std::filesystem::exists(path_of(i))) continue;
    auto copy = keeps ? open(i) : nullptr;
    if (copy && copy->file.taken_over())
      copies_.push_back(std::move(copy));
    else
      std::filesystem::remove(path_of(i));
  }
}

StateCopies::~StateCopies() = default;

std::filesystem::path StateCopies::path_of(std::size_t shard) const {
  return run_.folder / text("state.copy.", shard, ".of.", run_.world.rank());
}

std::unique_ptr<StateCopies::Copy> StateCopies::open(std::size_t shard) const {
  const resilience::StateKey key{crc32c(outlines_[shard]), run_.recipe, run_.world.rank(), run_.world.size()};
  return std::make_unique<Copy>(shard, outlines_[shard], run_.optimization, path_of(shard), key, run_.checks_updates);
}

StateCopies::Copy* StateCopies::held(std::size_t shard) const {
  const auto found =
      std::find_if(copies_.begin(), copies_.end(), [&](const auto& copy) { return copy->shard == shard; });
  return found == copies_.end() ? nullptr : found->get();
}

SharedState& StateCopies::copy_of(std::size_t shard) {
  auto* copy = held(shard);
  must(copy != nullptr, "a copy that this rank holds");
  return copy->state;
}

std::vector<std::size_t> StateCopies::held_shards() const {
  std::vector<std::size_t> all;
  for (const auto& copy : copies_) all.push_back(copy->shard);
  return all;
}

std::vector<resilience::ShardCopy> StateCopies::found() const {
  std::string own;
  for (const auto& copy : copies_) own += text(copy->shard, ' ');
  const auto words = run_.world.all_gather(own, "the copies of the run");
  std::vector<resilience::ShardCopy> all;
  for (std::size_t holder = 0; holder < words.size(); ++holder) {
    std::istringstream numbers(words[holder]);
    for (std::size_t shard = 0; numbers >> shard;)
      all.push_back({shard, run_.shards[shard].ranks.front(), static_cast<int>(holder)});
  }
  return all;
}

void StateCopies::discard() {
  for (const auto& copy : copies_) copy->file.discard();
  copies_.clear();
}

void StateCopies::arrange(const std::vector<resilience::ShardCopy>& plan, ModelState& state,
                          kernels::Threads& threads) {
  const auto before = found();
  const auto is_in = [](const auto& list, const resilience::ShardCopy& copy) {
    return std::find(list.begin(), list.end(), copy) != list.end();
  };
  const auto own = [&](std::size_t shard) {
    return resilience::ShardCopy{shard, run_.shards[shard].ranks.front(), run_.world.rank()};
  };
  for (const auto& copy : copies_)
    if (!is_in(plan, own(copy->shard))) copy->file.discard();
  std::erase_if(copies_, [&](const auto& copy) { return !is_in(plan, own(copy->shard)); });
  plan_.clear();
  std::string problem;
  try {
    for (const auto& copy : plan)
      if (copy.holder == run_.world.rank() && held(copy.shard) == nullptr) copies_.push_back(open(copy.shard));
  } catch (const IoError& error) {
    problem = error.what();
  }
  // All ranks fail if one cannot create its file: all must have the same plan.
  for (const auto& other : run_.world.all_gather(problem, "the copies of the run"))
    if (!other.empty()) {
      discard();
      throw IoError(other);
    }
  for (const auto& copy : plan)
    // Copies that were found are of this step already; only new ones are filled.
    if (!is_in(before, copy)) plan_.push_back(copy);
  refresh(state, threads);
  plan_ = plan;
}

void StateCopies::send(ModelState& state, std::vector<std::span<float>> (SharedState::*elements)(), const char* what) {
  std::vector<comm::Transfer> transfers;
  const auto rank = run_.world.rank();
  for (const auto& copy : plan_) {
    if (copy.owner != rank && copy.holder != rank) continue;
    auto& from = copy.holder == rank ? copy_of(copy.shard) : *state.parts()[run_.shards[copy.shard].part];
    start_transfers(run_.world, transfers, (from.*elements)(), copy.owner, copy.holder,
                    first_tag + static_cast<int>(copy.shard), what);
  }
  for (auto& transfer : transfers) transfer.wait();
}

void StateCopies::refresh(ModelState& state, kernels::Threads& threads) {
  send(state, &SharedState::shard_elements, "the copy of a shard");
  for (const auto& copy : plan_) {
    if (copy.holder != run_.world.rank()) continue;
    held(copy.shard)->state.updates().seal(threads);
    held(copy.shard)->file.set_ready();
  }
}

void StateCopies::send_gradients(ModelState& state) {
  send(state, &SharedState::shard_gradients, "the gradients of a copy");
}

void StateCopies::begin_update() {
  for (const auto& copy : copies_) copy->state.updates().begin();
}

void StateCopies::update(kernels::Threads& threads, const StepIntent& intent) {
  for (const auto& copy : copies_)
    copy->state.complete_update(threads, copy->scalars.at(intent.rates, intent.outcome), copy->scalars.group_of());
}

}  // namespace tessera::training
