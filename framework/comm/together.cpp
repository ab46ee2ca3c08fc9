#include "framework/comm/together.h"

namespace tessera::comm {

void together(const Communicator& group, std::string_view who, const std::function<void()>& work) {
  if (group.size() == 1) {
    work();
    return;
  }
  constexpr char fine = '+', wrong = 'c', failed = 'e';
  std::exception_ptr own;
  std::string verdict(1, fine);
  try {
    work();
  } catch (const ConfigError& error) {
    own = std::current_exception();
    verdict = wrong + std::string(error.what());
  } catch (const CommError&) {
    throw;  // communication is broken: the others cannot be told
  } catch (const std::exception& error) {
    own = std::current_exception();
    verdict = failed + std::string(error.what());
  }
  // Every member learns every verdict, so all of them take the same branch below.
  const auto all = group.all_gather(verdict, who);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == fine) continue;
    if (static_cast<int>(rank) == group.rank()) std::rethrow_exception(own);
    throw PeerFailed(text("rank ", group.world_ranks()[rank], ": ", all[rank].substr(1)), all[rank][0] == wrong);
  }
}

}  // namespace tessera::comm
