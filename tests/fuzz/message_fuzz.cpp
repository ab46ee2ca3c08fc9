// Lines that come over a connection of tsrun: each is a message that is written again as one, or a problem that is
// told.
#include "launch/tsrun/messages.h"

namespace {

using namespace tessera;

template <class Any>
void read(const std::string& line) {
  std::string why;
  const auto message = tsrun::parse<Any>(line, why);
  if (!message) {
    if (why.empty()) __builtin_trap();
    return;
  }
  const auto again = std::visit([](const auto& m) { return tsrun::encode(m); }, *message);
  if (!tsrun::parse<tsrun::AnyMessage>(again, why)) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  read<tsrun::AnyMessage>(line);
  read<tsrun::UnauthenticatedMessage>(line);
  read<tsrun::AnswerMessage>(line);
  read<tsrun::RendezvousMessage>(line);
  read<tsrun::PendingMessage>(line);
  read<tsrun::FromHostMessage>(line);
  read<tsrun::FromWorkerMessage>(line);
  read<tsrun::ToHostMessage>(line);
  read<tsrun::ToWorkerMessage>(line);
  return 0;
}
