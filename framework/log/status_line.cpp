#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "framework/base/system_call.h"
#include "framework/log/outputs.h"

namespace tessera::log {

StatusLine::StatusLine(int descriptor) : descriptor_(descriptor) {
  const std::lock_guard lock(log_mutex());
  shown_lines().push_back(this);
}

StatusLine::~StatusLine() {
  hide();
  const std::lock_guard lock(log_mutex());
  std::erase(shown_lines(), this);
}

bool StatusLine::suits(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && terminal != nullptr && *terminal != 0 && std::strcmp(terminal, "dumb") != 0;
}

int StatusLine::columns() const {
  winsize size{};
  return ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void StatusLine::show(std::string_view text) {
  const std::lock_guard lock(log_mutex());
  hide();
  size_ = std::min(text.size(), max_text);
  std::memcpy(text_, text.data(), size_);
  draw();
}

void StatusLine::draw() {
  const std::lock_guard lock(log_mutex());
  hide();
  if (size_ == 0) return;
  write_all(descriptor_, {text_, size_});
  drawn_ = static_cast<int>(size_);
}

void StatusLine::hide() {
  const std::lock_guard lock(log_mutex());
  if (drawn_ == 0) return;
  const int rows_above = (drawn_ - 1) / columns();  // a terminal made narrower has wrapped the text
  char up[16];
  const int length = rows_above > 0 ? std::snprintf(up, sizeof up, "\033[%dA", rows_above) : 0;
  write_all(descriptor_, {up, static_cast<std::size_t>(length)});
  write_all(descriptor_, "\r\033[J");
  drawn_ = 0;
}

void StatusLine::leave() {
  const std::lock_guard lock(log_mutex());
  if (size_ == 0) return;
  draw();
  write_all(descriptor_, "\n");
  drawn_ = 0;
  size_ = 0;
}

}  // namespace tessera::log
