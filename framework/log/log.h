#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::log {

/// Severity of a message. The log shows messages of its level and of the levels after it.
enum class LogLevel { debug, info, warning, error };
inline constexpr std::array<std::pair<const char*, LogLevel>, 4> log_levels = {
    {{"debug", LogLevel::debug}, {"info", LogLevel::info}, {"warning", LogLevel::warning}, {"error", LogLevel::error}}};

/// The level that `word` names: "debug", "info", "warning" or "error". Throws ConfigError for another word.
LogLevel log_level_of(std::string_view word);

/// Writes the messages of one component, for example `const Logger logger("comm");`, to standard error and, in a run,
/// to the run's log file. All threads may use it at any time; it never throws and never blocks for longer than a write.
///
/// A message is plain text; one newline at its end is left out, and an empty message shows nothing. A warning that
/// repeats an earlier one word for word is shown at most once a minute, with the number of repetitions.
class Logger {
 public:
  /// `component` must stay valid.
  explicit constexpr Logger(const char* component) : component_(component) {}

  void debug(std::string_view message) const { write(LogLevel::debug, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void warning(std::string_view message) const { write(LogLevel::warning, message); }
  void error(std::string_view message) const { write(LogLevel::error, message); }
  void write(LogLevel level, std::string_view message) const;

  /// Whether messages of `level` are shown: for messages that are expensive to make.
  static bool shows(LogLevel level);

 private:
  const char* component_;
};

/// Default: info. set_log_level_from_recipe has no effect after set_log_level, which is for --log-level.
void set_log_level(LogLevel level);
void set_log_level_from_recipe(LogLevel level);

/// From now on messages are those of rank `rank` of `ranks`. With several ranks each line on standard error has time,
/// rank, level and component, because the ranks' lines end up in one terminal or in log files; with one rank it has the
/// message alone, coloured on a terminal.
void set_log_rank(int rank, int ranks);

/// Also appends all messages to `file`, with time, rank, level and component; it is created with the first of them. An
/// empty name: no file. A file that cannot be written is reported once on standard error, and then left out.
void set_log_file(const std::string& file);

/// Lines in a format that other programs read, such as Megatron-LM's of an iteration: written as they are, at level
/// info, to a file descriptor and to the log file. Allocates nothing.
class LineLog {
 public:
  /// `descriptor` stays open as long as this object lives.
  explicit LineLog(int descriptor) : descriptor_(descriptor) {}
  /// `lines` end with a newline each. `console` false: only to the log file.
  void write(std::string_view lines, bool console = true) const;

 private:
  int descriptor_;
};

/// The text at the bottom of a terminal that is written again and again, such as a progress bar. Messages and lines of
/// the log appear above it. Allocates nothing after its construction; failed writes are ignored.
class StatusLine {
 public:
  /// `descriptor`: of a terminal that suits().
  explicit StatusLine(int descriptor);
  ~StatusLine();  ///< takes the text away
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Whether it is a terminal that understands more than letters.
  static bool suits(int descriptor);
  /// Width of the terminal in letters; 80 if it is unknown.
  int columns() const;
  /// Replaces the text; at most max_text bytes of one line.
  void show(std::string_view text);
  /// Takes the text away, or draws it again.
  void hide();
  void draw();
  /// Leaves the text on a line of its own.
  void leave();
  bool visible() const { return drawn_ > 0; }

 private:
  static constexpr std::size_t max_text = 2048;
  int descriptor_;
  int drawn_ = 0;  // letters on the terminal now
  std::size_t size_ = 0;
  char text_[max_text];
};

}  // namespace tessera::log
