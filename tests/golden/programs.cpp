#include "tests/golden/programs.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "framework/base/error.h"

namespace tessera::golden {

Programs Programs::built() { return {TESSERA_PROGRAM, TSRUN_PROGRAM}; }

int run_program(const std::vector<std::string>& words, const std::filesystem::path& log) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int to = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const int from = open("/dev/null", O_RDONLY | O_CLOEXEC);
  must(to >= 0 && from >= 0, "what a program says can be sent to a file");
  const auto child = fork();
  if (child == 0) {
    dup2(from, STDIN_FILENO);
    dup2(to, STDOUT_FILENO);
    dup2(to, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(to);
  close(from);
  must(child > 0, "a program can be started");
  int status = 0;
  while (waitpid(child, &status, 0) < 0) must(errno == EINTR, "a program can be waited for");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tessera::golden
