#include "framework/training/step/not_finite.h"

#include <optional>

#include "framework/kernels/type_conversion.h"
#include "framework/kernels/vector.h"

namespace tessera::training {

std::string earliest(const comm::Communicator& world, const NotFinite& own) {
  const auto all =
      world.all_gather(own.what.empty() ? "" : text(own.order, ' ', own.what), "the search for what is not finite");
  const auto order = [&](std::size_t rank) { return std::stoll(all[rank]); };
  std::optional<std::size_t> first;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty() && (!first || order(rank) < order(*first))) first = rank;
  if (!first) return "";
  const auto what = all[*first].substr(all[*first].find(' ') + 1);
  return all.size() == 1 ? what : text("on rank ", *first, " ", what);
}

void FirstValue::see(std::int64_t micro_batch, std::int64_t chunk, std::string_view name, const Tensor& value) {
  if (!found_.what.empty()) return;
  const auto pass = micro_batch * chunks_ + position_(chunk);
  if (pass != pass_) values_ = 0;
  pass_ = pass;
  // Ranks have other experts, and not all of these have tokens: they stand between the values that every rank sees.
  const bool of_expert = name.find(".local_experts.") != std::string_view::npos;
  if (!of_expert) ++values_;
  const auto at = kernels::first_not_finite(threads_, value);
  if (at < 0) return;
  constexpr std::int64_t most_values = 1 << 20;  // of a chunk
  found_.order = (pass * most_values + values_) * 2 + (of_expert ? 1 : 0);
  found_.what = name == "loss" ? text("the loss of token ", at, " of micro-batch ", micro_batch,
                                      " is not finite; the outputs of all layers are")
                               : text("the output of ", name, " ", value.shape(), " is not finite at element ", at);
}

}  // namespace tessera::training
