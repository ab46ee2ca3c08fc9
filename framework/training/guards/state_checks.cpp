#include "framework/training/guards/state_checks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>
#include <type_traits>

#include "framework/base/crc32c.h"
#include "framework/base/system_call.h"
#include "framework/training/guards/state_plan.h"

namespace tessera::training {
namespace {

using resilience::Damage;

/// What one rank says of one thing. A plain value.
struct Entry {
  enum class Kind : std::uint32_t { own, copy, weights, unsharded };
  Kind kind;
  std::uint32_t number;  ///< shard; for weights the part of the state
  std::uint32_t checksum;
  Damage found, noted;
};
static_assert(std::has_unique_object_representations_v<Entry>);

/// CRC-32C of the CRC-32C of each MiB.
std::uint32_t checksum_of(kernels::Threads& threads, const std::vector<std::span<const std::byte>>& ranges) {
  constexpr std::size_t tile = std::size_t{1} << 20;
  std::vector<std::uint32_t> sums;
  for (const auto& range : ranges) {
    const auto before = sums.size();
    sums.resize(before + (range.size() + tile - 1) / tile);
    threads.parallel_for(range.size(), tile, [&](std::size_t first, std::size_t last) {
      sums[before + first / tile] = crc32c(range.subspan(first, last - first));
    });
  }
  return crc32c(std::as_bytes(std::span(sums)));
}

std::uint32_t checksum_of_shard(kernels::Threads& threads, SharedState& state) {
  std::vector<std::span<const std::byte>> ranges;
  for (const auto& range : state.shard_elements()) ranges.push_back(std::as_bytes(range));
  return checksum_of(threads, ranges);
}

/// Nothing is computed with the weights of a copy.
Damage of_copy(Damage damage) { return std::min(damage, Damage::state); }

}  // namespace

StateChecks::StateChecks(const TrainingSetup& setup, const StateKeeper& keeper, ModelState& state,
                         kernels::Threads& threads)
    : setup_(setup), world_(setup.model.processes.world), keeper_(keeper), state_(state), threads_(threads) {}

bool StateChecks::due(std::int64_t step) const {
  const auto interval = setup_.resilience.check_state_interval;
  return (interval > 0 && step % interval == 0) || (difference_ && difference_->step == step);
}

bool StateChecks::damaged() const {
  const auto damaged = [](SharedState& state) { return state.updates().noted_damage() != Damage::none; };
  for (const auto& part : state_.parts())
    if (damaged(*part)) return true;
  if (auto* copies = keeper_.copies())
    for (const auto shard : copies->held_shards())
      if (damaged(copies->copy_of(shard))) return true;
  return false;
}

void StateChecks::seal() {
  for (const auto& part : state_.parts()) part->updates().seal(threads_);
  if (auto* copies = keeper_.copies())
    for (const auto shard : copies->held_shards()) copies->copy_of(shard).updates().seal(threads_);
}

std::string StateChecks::own_entries(bool stored) {
  std::vector<Entry> entries;
  const auto& shards = keeper_.shards();
  const auto parts = state_.parts();
  const auto add = [&](Entry::Kind kind, std::size_t number, SharedState& state) {
    auto& updates = state.updates();
    entries.push_back({kind, static_cast<std::uint32_t>(number),
                       stored ? updates.stored_checksum() : checksum_of_shard(threads_, state),
                       stored ? Damage::none : updates.damage(threads_), updates.noted_damage()});
  };
  for (std::size_t i = 0; i < shards.size(); ++i)
    if (std::binary_search(shards[i].ranks.begin(), shards[i].ranks.end(), world_.rank()))
      add(Entry::Kind::own, i, *parts[shards[i].part]);
  if (auto* copies = keeper_.copies())
    for (const auto shard : copies->held_shards()) {
      add(Entry::Kind::copy, shard, copies->copy_of(shard));
      entries.back().found = of_copy(entries.back().found), entries.back().noted = of_copy(entries.back().noted);
    }
  for (std::size_t part = 0; part < parts.size(); ++part)
    entries.push_back({Entry::Kind::weights, static_cast<std::uint32_t>(part),
                       stored ? 0 : checksum_of(threads_, parts[part]->model_weights()), Damage::none, Damage::none});
  const bool shares = setup_.model.processes.mesh.sizes().tensor > 1;
  entries.push_back({Entry::Kind::unsharded, 0, shares ? checksum_of(threads_, parts.front()->unsharded_elements()) : 0,
                     Damage::none, Damage::none});
  return {reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(Entry)};
}

/// Fills shards_ and alike_ from what all ranks say. `stored`: from the checksums that updates have stored.
resilience::StateVerdict StateChecks::verdict(bool stored) {
  if (!stored) state_.weights_needed();  // the other ranks' shards are here
  const auto words = world_.all_gather(own_entries(stored), "the check of the state");
  const auto ranks = words.size();
  shards_.assign(keeper_.shards().size(), {});
  std::vector<int> parts(ranks);
  std::array<std::vector<std::uint32_t>, 3> sums;  // of each rank: the weights of each part, what is not sharded
  for (auto& one : sums) one.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t at = 0; at < words[r].size(); at += sizeof(Entry)) {
      Entry entry;
      std::memcpy(&entry, words[r].data() + at, sizeof entry);
      const bool copy = entry.kind == Entry::Kind::copy;
      if (copy || entry.kind == Entry::Kind::own)
        shards_[entry.number].push_back({{static_cast<int>(r), copy}, entry.checksum, entry.found, entry.noted});
      if (entry.kind == Entry::Kind::weights)
        parts[r] = static_cast<int>(entry.number) + 1, sums[entry.number][r] = entry.checksum;
      if (entry.kind == Entry::Kind::unsharded) sums[2][r] = entry.checksum;
    }
  const auto& mesh = setup_.model.processes.mesh;
  alike_.clear();
  const auto add = [&](const char* what, bool derived, const std::vector<int>& members, std::size_t which) {
    auto& group = alike_.emplace_back(resilience::AlikeRanks{what, derived, members, {}});
    for (const int rank : members) group.checksums.push_back(sums[which][static_cast<std::size_t>(rank)]);
  };
  for (const auto& shard : shards_of_run(mesh, false, parts))
    add("weights of data-parallel ranks", true, shard.ranks, shard.part);
  for (const auto& group : mesh.groups(std::array{parallel::Axis::tensor}))
    add("weights or optimizer state that tensor-parallel ranks have alike", false, group, 2);
  return resilience::judge(shards_, alike_, setup_.resilience.check_updates);
}

SharedState& StateChecks::state_at(std::size_t shard, const resilience::Holder& holder) {
  return holder.of_copy ? keeper_.copies()->copy_of(shard) : *state_.parts()[keeper_.shards()[shard].part];
}

/// A process that is killed in between leaves sums that are wrong: the next one finds the same damage.
void StateChecks::repair(const resilience::StateVerdict& verdict) {
  for (const auto& one : verdict.repairs) {
    const bool gets = one.to.rank == world_.rank();
    if (!gets && one.from.rank != world_.rank()) continue;
    std::vector<comm::Transfer> transfers;
    start_transfers(world_, transfers, state_at(one.shard, gets ? one.to : one.from).shard_elements(), one.from.rank,
                    one.to.rank, static_cast<int>(one.shard), "the repair of a shard");
    for (auto& transfer : transfers) transfer.wait();
    if (gets) state_at(one.shard, one.to).updates().seal(threads_);
  }
  state_.weights_changed();
}

/// "rank 2 on node7" for each.
std::vector<std::string> StateChecks::names_of(const std::vector<int>& ranks) const {
  const auto hosts = world_.all_gather(host_name(), "the hosts of the run");
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(text("rank ", rank, " on ", hosts[static_cast<std::size_t>(rank)]));
  return names;
}

void StateChecks::remember(std::int64_t step) { difference_ = {step, shards_, alike_}; }

/// The steps since the checkpoint were computed again, and all ranks agree. Who had this before was right, unless
/// damaged weights had spoilt the gradients of all.
void StateChecks::name_those_who_were_wrong(std::int64_t step, std::vector<std::string>& notes) {
  if (!difference_ || difference_->step != step) return;
  std::set<int> wrong, right;
  for (std::size_t i = 0; i < shards_.size(); ++i)
    for (std::size_t k = 0; k < shards_[i].size(); ++k) {
      const auto& before = difference_->shards[i][k];
      (before.checksum == shards_[i][k].checksum ? right : wrong).insert(before.holder.rank);
    }
  for (std::size_t i = 0; i < alike_.size(); ++i)
    for (std::size_t k = 0; k < alike_[i].ranks.size(); ++k)
      if (difference_->alike[i].checksums[k] != alike_[i].checksums[k]) wrong.insert(alike_[i].ranks[k]);
  std::erase_if(right, [&](int rank) { return wrong.contains(rank); });
  difference_.reset();
  const auto names = names_of({wrong.begin(), wrong.end()});
  if (right.empty())
    notes.push_back(text("iteration ", step,
                         " was computed again: no rank had the right state before; give "
                         "resilience_config.check_state_interval 1 to learn which rank is the first to be wrong"));
  else
    notes.push_back(text("iteration ", step, " was computed again: the state of ", joined(names), " was wrong"));
}

bool StateChecks::updates_agree() { return setup_.resilience.check_updates && verdict(true).sound(); }

StateChecks::Result StateChecks::check(std::int64_t step) {
  Result result;
  auto found = verdict();
  if (!found.sound() && found.problem.empty()) {
    const auto wrong = joined(names_of(found.wrong.empty() ? found.suspects : found.wrong));
    repair(found);
    result.repaired = true;
    result.notes.push_back(text("after iteration ", step, " weights or optimizer state of ", wrong,
                                found.repairs.empty()
                                    ? " differed from those of other ranks; restored from the shards"
                                    : " had changed in memory; repaired from a rank that has the same",
                                ": no step is lost"));
    found = verdict();
    if (!found.sound() && found.problem.empty()) found.problem = "the state differs again after it was repaired";
  }
  if (found.sound()) {
    name_those_who_were_wrong(step, result.notes);
    return result;
  }
  result.sound = false;
  const bool known = !found.wrong.empty();
  result.problem =
      text("after iteration ", step, " the state of ", joined(names_of(known ? found.wrong : found.suspects)),
           known ? " is damaged: " : " differs, and it is not known which of them is wrong: ", found.problem);
  if (!known) remember(step);
  return result;
}

std::string flip_a_bit(ModelState& state) {
  std::vector<std::span<float>> ranges;
  std::size_t all = 0;
  for (const auto& part : state.parts())
    for (const auto& range : part->shard_elements()) ranges.push_back(range), all += range.size();
  if (all == 0) return "no bit: this rank trains nothing";
  std::random_device random;
  auto at = std::uniform_int_distribution<std::size_t>(0, all - 1)(random);
  const auto bit = std::uniform_int_distribution<unsigned>(0, 31)(random);
  const auto element = at;
  auto range = ranges.begin();
  for (; at >= range->size(); ++range) at -= range->size();
  std::uint32_t word = 0;
  std::memcpy(&word, &(*range)[at], sizeof word);
  word ^= std::uint32_t{1} << bit;
  std::memcpy(&(*range)[at], &word, sizeof word);
  return text("bit ", bit, " of element ", element, " of ", all, " of its weights and optimizer state");
}

}  // namespace tessera::training
