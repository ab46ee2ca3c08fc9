#include "framework/base/run_event.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "framework/base/clock.h"
#include "framework/base/error.h"

namespace tessera {
namespace {

/// A text of at most half the length of `words`, with whole UTF-8 characters.
std::string shortened(const std::string& words) {
  constexpr std::string_view dots = "...";
  auto size = words.size() > 2 * dots.size() ? words.size() / 2 - dots.size() : 0;
  while (size > 0 && (static_cast<unsigned char>(words[size]) & 0xC0U) == 0x80U) --size;
  return words.substr(0, size).append(dots);
}

/// The event as a line; the longest fact is cut until the line is short enough.
std::string line_of(Json event) {
  std::string line = event.dump();
  while (line.size() >= longest_event) {
    std::string longest, words;
    std::size_t most = 0;
    for (const auto& member : event.items()) {
      auto content = member.value.is_string() ? member.value.string() : member.value.dump();
      if (content.size() <= most) continue;
      most = content.size();
      longest = member.name;
      words = std::move(content);
    }
    event.put(longest, shortened(words));
    line = event.dump();
  }
  return line + "\n";
}

/// Waits at most a tenth of a second for other writers, so that none of them is in the middle of a line. The lock ends
/// with the descriptor. A writer that is paused for longer does not hold up the others.
void lock_briefly(int file) {
  for (int i = 0; i < 100 && ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i) ::usleep(1000);
}

/// Whether the file ends within a line: of a process that was killed, or of a full disk.
bool ends_within_line(int file) {
  const auto size = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

std::string append_event(const std::filesystem::path& folder, std::string_view kind,
                         std::optional<std::int64_t> iteration, const Json& facts) {
  Json event = {{"time", wall_time()}, {"event", kind}};
  if (iteration) event.put("iteration", *iteration);
  event.update(facts);
  const auto path = folder / events_file_name;
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (file < 0) return text(path.string(), ": cannot be opened: ", std::strerror(errno), "; events are lost");
  std::string line = line_of(std::move(event));
  lock_briefly(file);
  if (ends_within_line(file)) line.insert(line.begin(), '\n');
  const auto done = ::write(file, line.data(), line.size());
  const auto problem = done < 0 ? std::strerror(errno) : "no space left";
  ::close(file);
  if (done == static_cast<ssize_t>(line.size())) return "";
  return text(path.string(), ": cannot be written: ", problem, "; events are lost");
}

}  // namespace tessera
