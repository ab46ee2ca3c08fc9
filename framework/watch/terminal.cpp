#include "framework/watch/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/system_call.h"
#include "framework/base/utf8.h"
#include "framework/log/log.h"

namespace tessera::watch {
namespace {

// Second screen, no cursor, no wrapping at the last column; and back.
constexpr std::string_view begin_screen = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view end_screen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::array<int, 3> ending_signals = {SIGINT, SIGTERM, SIGHUP};
constexpr std::array<int, 6> fatal_signals = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT};

struct termios mode_before;  // only written while no handler is installed
volatile std::sig_atomic_t received = 0;

extern "C" void on_ending_signal(int number) { received = number; }
extern "C" void on_resize(int) {}  // interrupts ppoll()
/// Restores the terminal, then the default action of the signal ends the program.
extern "C" void on_fatal_signal(int number) {
  write_all(STDOUT_FILENO, end_screen);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &mode_before);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  ::sigaction(number, &action, nullptr);
}

}  // namespace

std::optional<KeyPress> take_key(std::string& bytes) {
  if (bytes.empty()) return std::nullopt;
  const auto take = [&bytes](std::size_t length, Key key) {
    KeyPress press{key};
    const auto step = utf8_step(bytes, 0);
    if (step.valid && step.code >= ' ' && (step.code < 0x7F || step.code >= 0xA0)) {
      length = step.length;
      press.text = bytes.substr(0, length);
    }
    bytes.erase(0, length);
    return press;
  };
  constexpr std::array<std::pair<std::string_view, Key>, 27> keys = {{{"\x1b[A", Key::up},
                                                                      {"\x1b[B", Key::down},
                                                                      {"\x1b[C", Key::next_chart},
                                                                      {"\x1b[D", Key::previous_chart},
                                                                      {"\x1bOA", Key::up},
                                                                      {"\x1bOB", Key::down},
                                                                      {"\x1bOC", Key::next_chart},
                                                                      {"\x1bOD", Key::previous_chart},
                                                                      {"\x1b[Z", Key::previous_chart},
                                                                      {"\t", Key::next_chart},
                                                                      {"q", Key::quit},
                                                                      {"Q", Key::quit},
                                                                      {"?", Key::help},
                                                                      {"h", Key::help},
                                                                      {"l", Key::logarithmic},
                                                                      {"+", Key::closer},
                                                                      {"=", Key::closer},
                                                                      {"-", Key::wider},
                                                                      {"0", Key::all},
                                                                      {"\r", Key::one_chart},
                                                                      {"\n", Key::one_chart},
                                                                      {" ", Key::one_chart},
                                                                      {"j", Key::down},
                                                                      {"k", Key::up},
                                                                      {"/", Key::filter},
                                                                      {"\x7f", Key::erase},
                                                                      {"\b", Key::erase}}};
  for (const auto& entry : keys)
    if (std::string_view(bytes).substr(0, entry.first.size()) == entry.first)
      return take(entry.first.size(), entry.second);
  if (bytes == "\x1b") return take(1, Key::escape);
  std::size_t length = 1;
  if (bytes.size() > 1 && bytes[0] == '\x1b' && (bytes[1] == '[' || bytes[1] == 'O')) {  // another sequence
    length = 2;
    while (length < bytes.size() && (bytes[length] < '@' || bytes[length] > '~')) ++length;
    if (length < bytes.size()) ++length;
  }
  return take(length, Key::other);
}

bool Terminal::suits() { return ::isatty(STDIN_FILENO) == 1 && log::StatusLine::suits(STDOUT_FILENO); }

Terminal::Terminal() {
  const char* no_color = std::getenv("NO_COLOR");
  colors_ = no_color == nullptr || *no_color == 0;
  if (::tcgetattr(STDIN_FILENO, &mode_before) != 0)
    throw IoError(text("the terminal: its mode cannot be read: ", std::strerror(errno), "; use --plain"));
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : ending_signals) sigaddset(&handled, number);
  sigaddset(&handled, SIGWINCH);
  ::pthread_sigmask(SIG_BLOCK, &handled, &mask_before_);
  auto mode = mode_before;
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  mode.c_cc[VMIN] = 0;
  mode.c_cc[VTIME] = 0;
  mode.c_cc[VSUSP] = _POSIX_VDISABLE;  // a stopped program would leave the terminal in this mode
  if (::tcsetattr(STDIN_FILENO, TCSANOW, &mode) != 0) {
    const int reason = errno;
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    throw IoError(text("the terminal: its mode cannot be set: ", std::strerror(reason), "; use --plain"));
  }
  received = 0;
  for (const int number : ending_signals) handle(number, on_ending_signal);
  for (const int number : fatal_signals) handle(number, on_fatal_signal);
  handle(SIGWINCH, on_resize);
  write_all(STDOUT_FILENO, begin_screen);
}

Terminal::~Terminal() {
  write_all(STDOUT_FILENO, end_screen);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &mode_before);
  for (const int number : ending_signals) handle(number, SIG_DFL);
  for (const int number : fatal_signals) handle(number, SIG_DFL);
  handle(SIGWINCH, SIG_DFL);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

Screen Terminal::blank_screen() {
  struct winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {std::min<int>(size.ws_col, 1000), std::min<int>(size.ws_row, 500)};
}

void Terminal::show(const Screen& screen) {
  const auto bytes = screen.difference(shown_ ? &*shown_ : nullptr, colors_);
  if (!bytes.empty() && !write_all(STDOUT_FILENO, bytes)) closed_ = true;
  shown_ = screen;
}

std::optional<KeyPress> Terminal::key(double seconds) {
  if (auto known = take_key(bytes_)) return known;
  if (ended_by() != 0) return std::nullopt;
  struct pollfd input = {STDIN_FILENO, POLLIN, 0};
  const auto whole = std::floor(seconds);
  const struct timespec most = {static_cast<std::time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  // Signals come here or not at all: with poll() one that came before it would be noticed only after the wait.
  if (::ppoll(&input, 1, &most, &mask_before_) <= 0) return std::nullopt;
  std::array<char, 256> buffer = {};
  const auto count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (count <= 0) {
    closed_ = closed_ || count == 0 || errno != EINTR;
    return std::nullopt;
  }
  bytes_.append(buffer.data(), static_cast<std::size_t>(count));
  return take_key(bytes_);
}

int Terminal::ended_by() const { return received != 0 ? static_cast<int>(received) : (closed_ ? SIGHUP : 0); }

}  // namespace tessera::watch
