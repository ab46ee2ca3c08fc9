#pragma once

#include <string>
#include <vector>

#include "framework/interop/shell/reader.h"

namespace tessera::shell {

constexpr long enough_steps = 100'000;

inline Reading followed(const std::string& script, const Inputs& inputs = {}, const Choices& choices = {}) {
  return follow_text(script, "x.sh", inputs, choices, enough_steps);
}

/// The words of the programs that a script starts, each in brackets: "[torchrun] [a b]"; a line for each program.
inline std::string programs(const std::string& script, const Inputs& inputs = {}, const Choices& choices = {}) {
  std::string out;
  for (const auto& run : followed(script, inputs, choices).runs) {
    std::string line;
    for (const auto& word : run.words) line += (line.empty() ? "[" : " [") + plain(word) + "]";
    out += (out.empty() ? "" : "\n") + line;
  }
  return out;
}

/// What is said of a script: remarks and the error, "3: words", a line each.
inline std::string said(const std::string& script) {
  const auto reading = followed(script);
  std::string out;
  for (const auto& remark : reading.remarks) out += std::to_string(remark.at.line) + ": " + remark.words + "\n";
  if (!reading.error.empty()) out += std::to_string(reading.error_at.line) + ": " + reading.error + "\n";
  return out;
}

}  // namespace tessera::shell
