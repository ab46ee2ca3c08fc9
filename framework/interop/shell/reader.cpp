#include "framework/interop/shell/reader.h"

#include <algorithm>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/interop/shell/script_evaluator.h"

namespace tessera::shell {
namespace {

constexpr std::size_t largest = std::size_t{4} << 20;

}  // namespace

std::string read_script_text(const std::string& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (!error && size > largest)
    throw ConfigError(text(file, ": ", size / 1'000'000, " MB; a launch script may have 4 MB: give the script itself"));
  std::string words;
  try {
    words = read_file(file);
  } catch (const IoError& failed) {
    throw ConfigError(failed.what());
  }
  if (words.find('\0') != std::string::npos) throw ConfigError(text(file, ": is binary; a launch script was expected"));
  if (words.compare(0, 3, "\xef\xbb\xbf") == 0) words.erase(0, 3);
  std::string out;
  out.reserve(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == '\r' && (i + 1 == words.size() || words[i + 1] == '\n')) continue;
    out += words[i] >= unknown_begin && words[i] <= place_end ? ' ' : words[i];
  }
  return out;
}

Reading follow_text(const std::string& words, const std::string& file, const Inputs& inputs, const Choices& choices,
                    long steps) {
  return ScriptEvaluator(file, inputs, choices, steps).read(words);
}

Reading follow_script(const std::string& file, const Inputs& inputs, const Choices& choices, long steps) {
  return follow_text(read_script_text(file), file, inputs, choices, steps);
}

}  // namespace tessera::shell
