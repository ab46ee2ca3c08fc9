#include "launch/tsrun/run_folder.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "framework/base/links.h"
#include "launch/tsrun/process.h"

namespace tessera::tsrun {
namespace {

/// Runs a program and returns its output (stdout and stderr) and its exit code.
std::pair<std::string, int> output_of(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("pipe2 failed");
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  Spawn asked;
  asked.words = words;
  asked.environment = this_environment();
  asked.output = writing.number();
  const auto pid = spawn(asked);
  writing.close();
  std::string all;
  char bytes[4096];
  for (auto count = read(reading.number(), bytes, sizeof bytes); count > 0;
       count = read(reading.number(), bytes, sizeof bytes))
    all.append(bytes, static_cast<std::size_t>(count));
  int status = 0;
  waitpid(pid, &status, 0);
  return {all, WIFEXITED(status) ? WEXITSTATUS(status) : 128};
}

std::string last_line(const std::string& words) {
  const auto end = words.find_last_not_of('\n') + 1;
  const auto begin = words.rfind('\n', end == 0 ? 0 : end - 1);
  return words.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1));
}

}  // namespace

bool trains(const std::vector<std::string>& program) {
  return program.size() > 2 && std::filesystem::path(program[0]).filename() == "tessera" &&
         std::find(program.begin(), program.end(), "train") != program.end();
}

std::filesystem::path run_folder_of(const std::vector<std::string>& program) {
  if (!trains(program)) return {};
  auto question = program;
  question.emplace_back("--print-output-dir");
  const auto [words, code] = output_of(question);
  if (code != 0) throw ConfigError(words.substr(0, words.find_last_not_of('\n') + 1));
  return last_line(words);
}

std::filesystem::path default_log_folder(const std::vector<std::string>& program) {
  const auto folder = run_folder_of(program);
  if (folder.empty()) return "log";
  must_stay_within(folder, folder / "log");
  return folder / "log";
}

}  // namespace tessera::tsrun
