#include "framework/instructions/cut_lengths.h"

#include <algorithm>

namespace tessera::instructions {

std::int64_t in_proportion(std::int64_t room, std::int64_t part, std::int64_t whole) {
  const auto share = static_cast<double>(part) / static_cast<double>(whole);
  return static_cast<std::int64_t>(static_cast<double>(room) * share);
}

CutLengths cut_lengths(std::int64_t prompt, std::int64_t answer, std::int64_t room) {
  std::int64_t most_answer = 0;
  if (answer * 2 < room)
    most_answer = room;
  else if (prompt * 2 < room)
    most_answer = room - prompt;
  else if (prompt + answer > 0)
    most_answer = in_proportion(room, answer, prompt + answer);
  const auto kept = std::min(most_answer, answer);
  return {std::min(std::max<std::int64_t>(room - kept, 0), prompt), kept};
}

}  // namespace tessera::instructions
