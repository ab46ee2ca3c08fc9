// A launch script: followed to its end, or to the mistake that ends it, both ways of each condition.
#include <algorithm>

#include "framework/interop/shell/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string words(reinterpret_cast<const char*>(data), size);
  std::replace_if(  // as read_script_text does
      words.begin(), words.end(),
      [](char c) { return c >= tessera::shell::unknown_begin && c <= tessera::shell::place_end; }, ' ');
  tessera::shell::Inputs inputs;
  inputs.arguments[1] = "a b";
  constexpr long steps = 5000;
  const auto usual = tessera::shell::follow_text(words, "fuzz", inputs, {}, steps);
  tessera::shell::Choices choices;
  for (const auto& decision : usual.decisions) choices[decision] = decision.taken == 0 ? 1 : 0;
  const auto other = tessera::shell::follow_text(words, "fuzz", {}, choices, steps);
  for (const auto& reading : {usual, other})
    for (const auto& run : reading.runs)
      for (const auto& word : run.words)
        if (tessera::shell::place_of(word, run.at).file >= static_cast<int>(reading.files.size()) ||
            tessera::shell::plain(word).size() > word.size())
          __builtin_trap();
  return 0;
}
