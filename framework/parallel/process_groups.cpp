#include "framework/parallel/process_groups.h"

#include <sched.h>

#include <algorithm>
#include <numeric>

#include "framework/base/cpu_limit.h"

namespace tessera::parallel {
namespace {

/// The cores in this process's affinity mask, divided by the number of ranks of the host with the same mask; not more
/// than an equal share of the host's CPU quota. Masks that overlap partly are not taken into account.
int own_cores(const comm::World& world) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
  std::string mine = world.host() + " ";
  for (int core = 0; core < CPU_SETSIZE; ++core) mine += CPU_ISSET(core, &set) ? '1' : '0';
  const auto all = world.all().all_gather(mine, "cores of each process");
  const auto sharers = std::count(all.begin(), all.end(), mine);
  const int share = CPU_COUNT(&set) / static_cast<int>(sharers);
  return std::max(1, std::min(share, usable_core_count(CPU_SETSIZE) / world.local_size()));
}

}  // namespace

ProcessGroups::ProcessGroups(const comm::World& all, const Mesh& ranks, std::int64_t query_groups,
                             std::int64_t embedding_stage)
    : mesh(ranks), place(ranks.place_of(all.rank())), world(all.all()) {
  must(ranks.sizes().world() == all.size(), "the mesh has as many places as there are processes");
  if (all.size() == 1) return;
  cores = own_cores(all);
  make_groups(query_groups, embedding_stage,
              [&](const char* name, std::span<const int> members) { return all.group(name, members); });
}

ProcessGroups ProcessGroups::unconnected(const Mesh& ranks, const MeshPlace& place, std::int64_t query_groups,
                                         std::int64_t embedding_stage) {
  ProcessGroups all;
  all.mesh = ranks;
  all.place = place;
  if (ranks.sizes().world() == 1) return all;
  const int own = ranks.rank_of(place);
  std::vector<int> everyone(static_cast<std::size_t>(ranks.sizes().world()));
  std::iota(everyone.begin(), everyone.end(), 0);
  all.world = comm::Communicator::unconnected("world", everyone, own);
  all.foreseen_message_bytes = comm::message_bytes_of_member();
  all.make_groups(query_groups, embedding_stage, [&](const char* name, std::span<const int> members) {
    if (members.size() > 1) all.foreseen_message_bytes += comm::message_bytes_of_member();
    const auto at = std::find(members.begin(), members.end(), own) - members.begin();
    return comm::Communicator::unconnected(name, members, static_cast<int>(at));
  });
  return all;
}

// Every rank creates its groups in the same order, and only its own: creation is collective over the members alone.
void ProcessGroups::make_groups(std::int64_t query_groups, std::int64_t embedding_stage, const GroupMaker& make) {
  const int own = world.rank();
  const auto group = [&](const char* name, std::initializer_list<Axis> axes) {
    return make(name, mesh.group_of(own, std::span(axes.begin(), axes.size())));
  };
  tensor = group("tensor", {Axis::tensor});
  context = group("context", {Axis::context});
  data = group("data", {Axis::context, Axis::data});
  const auto& sizes = mesh.sizes();
  // As with other groups: a group with the same ranks as another one is that one.
  micro_batch = sizes.context == 1  ? tensor
                : sizes.tensor == 1 ? context
                                    : group("micro-batch", {Axis::tensor, Axis::context});
  experts = sizes.experts_like_dense() ? tensor : make("experts", mesh.expert_group_of(own));
  if (const auto sharers = sizes.sharers_of_expert(); sharers > 1)
    expert_tensor = sharers == sizes.tensor ? tensor
                    : sizes.expert == 1     ? experts
                                            : make("expert tensor", mesh.expert_tensor_group_of(own));
  expert_data = sizes.experts_like_dense() ? data : make("expert data", mesh.expert_data_group_of(own));
  pipeline = group("pipeline", {Axis::pipeline});
  model = group("model", {Axis::tensor, Axis::pipeline});
  if (const auto heads = sizes.context_heads; heads > 1) {
    const auto at = context.rank();
    std::vector<int> neighbours, ring;
    for (int r = 0; r < context.size(); ++r) {
      const auto rank = context.world_ranks()[static_cast<std::size_t>(r)];
      if (r / heads == at / heads) neighbours.push_back(rank);
      if (r % heads == at % heads) ring.push_back(rank);
    }
    context_heads = make("context heads", neighbours);
    context_ring = make("context ring", ring);
  }
  // Consecutive tensor-parallel ranks share a key/value head, so its copies are on adjacent ranks.
  if (const auto copies = tensor.size() / std::max<std::int64_t>(1, query_groups); copies > 1) {
    const auto first = static_cast<std::size_t>(tensor.rank() / copies * copies);
    head_copies = make("head copies", tensor.world_ranks().subspan(first, static_cast<std::size_t>(copies)));
  }
  // Only the stages with the token embedding and with the output layer hold a tied embedding; if these are one, there
  // is a single copy.
  auto first = place, last = place;
  first.pipeline = static_cast<int>(embedding_stage);
  last.pipeline = sizes.pipeline - 1;
  const bool holds = place.pipeline == first.pipeline || place.pipeline == last.pipeline;
  if (first.pipeline == last.pipeline || !holds) return;
  ends = make("ends", std::vector{mesh.rank_of(first), mesh.rank_of(last)});
}

}  // namespace tessera::parallel
